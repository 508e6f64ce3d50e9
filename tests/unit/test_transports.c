/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the transport table and the module loader: names, missing and foreign modules, and an
 * untouched process. */
#include "gw_test.h"

#include <gradwire/transport.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

typedef gw_status_t (*find_fn)(const char *name, const gw_transport_t **out, char *why,
                               size_t why_size);

START_TEST(names)
{
    const gw_transport_t *transport = NULL;
    char why[200];
    ck_assert_str_eq(gw_transport_name_at(0), "loopback");
    ck_assert_str_eq(gw_transport_name_at(1), "ucx");
    ck_assert_str_eq(gw_transport_name_at(2), "mpi");
    size_t count = 0;
    while (gw_transport_name_at(count))
        count++;
    ck_assert_ptr_null(gw_transport_name_at(count + 1));
    ck_assert_int_eq(gw_transport_find("loopback", &transport, why, sizeof(why)), GW_OK);
    ck_assert_str_eq(transport->name, "loopback");
    ck_assert_int_eq(transport->abi, GW_TRANSPORT_ABI);
    ck_assert_int_eq(transport->probe(why, sizeof(why)), GW_OK);
}
END_TEST

START_TEST(unknown_names)
{
    static const char *const unknown[] = {"", "UCX", "ucx2", "../gradwire/ucx", "loopback "};
    const gw_transport_t *untouched = (const gw_transport_t *)&unknown, *transport = untouched;
    char why[200];
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        ck_assert_int_eq(gw_transport_find(unknown[i], &transport, why, sizeof(why)),
                         GW_ERR_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(why, unknown[i]));
    }
    ck_assert_int_eq(gw_transport_find(NULL, &transport, NULL, 0), GW_ERR_NOT_FOUND);
    ck_assert_int_eq(gw_transport_find("a name that does not fit", &transport, why, 8),
                     GW_ERR_NOT_FOUND);
    ck_assert_uint_eq(strlen(why), 7);
    ck_assert_ptr_eq(transport, untouched);
}
END_TEST

/* ---- modules
 * ----------------------------------------------------------------------------------------- */

static const char *build(void)
{
    const char *dir = getenv("GW_BUILD");
    ck_assert_msg(dir, "GW_BUILD is not set");
    return dir;
}

static void shell(const char *format, const char *a, const char *b)
{
    char command[4096];
    snprintf(command, sizeof(command), format, a, b);
    ck_assert_msg(system(command) == 0, "%s", command);
}

/* The find function of a copy of the library, alone in a fresh directory. */
static find_fn copied_library(char directory[64])
{
    char path[128];
    strcpy(directory, "/tmp/gw-modules-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    shell("cp %s/lib/libgradwire.so* %s/", build(), directory);
    snprintf(path, sizeof(path), "%s/libgradwire.so", directory);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library, "%s", dlerror());
    void *find = dlsym(library, "gw_transport_find");
    ck_assert_ptr_nonnull(find);
    return (find_fn)(uintptr_t)find;
}

/* A missing, damaged or foreign module is named; once it is repaired it is found. */
START_TEST(bad_modules)
{
    const gw_transport_t *transport = NULL;
    char directory[64], why[600];
    find_fn find = copied_library(directory);
    ck_assert_int_eq(find("ucx", &transport, why, sizeof(why)), GW_ERR_NO_MODULE);
    ck_assert_msg(strstr(why, "no module") && strstr(why, directory), "%s", why);
    shell("mkdir %s/gradwire && echo rubbish >%s/gradwire/ucx.so", directory, directory);
    ck_assert_int_eq(find("ucx", &transport, why, sizeof(why)), GW_ERR_NO_MODULE);
    ck_assert_msg(strstr(why, "cannot load") && strstr(why, "gradwire/ucx.so"), "%s", why);
    shell("cp %s/tests/module_old.so %s/gradwire/ucx.so", build(), directory);
    ck_assert_int_eq(find("ucx", &transport, why, sizeof(why)), GW_ERR_NO_MODULE);
    ck_assert_msg(strstr(why, "another version"), "%s", why);
    ck_assert_ptr_null(transport);
    shell("rm -r %s%s", directory, "");
}
END_TEST

#ifdef HAVE_UCX

/* The flag that glibc adds by itself to each action that is set. */
#define RESTORER 0x04000000

static void actions(struct sigaction out[NSIG])
{
    memset(out, 0, sizeof(struct sigaction) * NSIG);
    for (int i = 1; i < NSIG; i++)
        if (sigaction(i, NULL, &out[i]) == 0)
            out[i].sa_flags &= ~RESTORER;
}

static void handler(int signo)
{
}

/* Finds the module and checks that signal actions and the variables of the environment are what
 * they were. */
static void find_untouched(void)
{
    static struct sigaction before[NSIG], after[NSIG];
    char why[300];
    const gw_transport_t *transport;
    size_t count = 0;
    signal(SIGFPE, handler);
    actions(before);
    while (environ[count])
        count++;
    char **copy = malloc(count * sizeof(*copy));
    memcpy(copy, environ, count * sizeof(*copy));
    gw_status_t status = gw_transport_find("ucx", &transport, why, sizeof(why));
    ck_assert_msg(status == GW_OK, "%s", why);
    actions(after);
    for (int i = 1; i < NSIG; i++)
        ck_assert_msg(before[i].sa_handler == after[i].sa_handler &&
                          before[i].sa_flags == after[i].sa_flags,
                      "the action of signal %d was changed", i);
    for (size_t i = 0; i < count; i++)
        ck_assert_ptr_eq(environ[i], copy[i]);
    ck_assert_ptr_null(environ[count]);
    free(copy);
}

START_TEST(process_untouched)
{
    find_untouched();
    /* Does the check see anything? UCX alone does change signal actions, unless it was told not to
     * when it was loaded. */
    ck_assert_ptr_nonnull(dlopen("libucs.so.0", RTLD_NOLOAD | RTLD_LAZY));
}
END_TEST

/* Even when the user's settings ask UCX for its handlers. */
START_TEST(process_untouched_by_setting)
{
    setenv("UCX_HANDLE_ERRORS", "bt", 1);
    setenv("UCX_ERROR_SIGNALS", "SIGILL,SIGSEGV,SIGBUS,SIGFPE", 1);
    setenv("UCX_DEBUG_SIGNO", "SIGHUP", 1);
    find_untouched();
}
END_TEST

/* The negative case of the two above: libucs by itself installs handlers. */
START_TEST(ucx_alone_touches)
{
    static struct sigaction before[NSIG], after[NSIG];
    int changed = 0;
    actions(before);
    ck_assert_ptr_nonnull(dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL));
    actions(after);
    for (int i = 1; i < NSIG; i++)
        changed += before[i].sa_handler != after[i].sa_handler;
    ck_assert_int_gt(changed, 0);
    /* Now it is the application's own, and what it did stays. */
    const gw_transport_t *transport;
    ck_assert_int_eq(gw_transport_find("ucx", &transport, NULL, 0), GW_OK);
    actions(before);
    for (int i = 1; i < NSIG; i++)
        ck_assert(before[i].sa_handler == after[i].sa_handler);
}
END_TEST

static void *find_in_thread(void *arg)
{
    const gw_transport_t *transport = NULL;
    gw_transport_find("ucx", &transport, NULL, 0);
    return (void *)(uintptr_t)transport;
}

/* While other threads read the environment without pause, and now and then write it. */
static void *read_environment(void *stop)
{
    char *path = strdup(getenv("PATH"));
    while (!*(volatile int *)stop)
        if (!getenv("PATH") || strcmp(getenv("PATH"), path) != 0)
            return "PATH was not there";
    free(path);
    return NULL;
}

/* Whether a variable comes to have this value: for a moment it may still show the one before. */
static bool arrives(const char *name, const char *value)
{
    for (int i = 0; i < 20000; i++) {
        usleep(100);
        const char *now = getenv(name);
        if (now && strcmp(now, value) == 0)
            return true;
    }
    return false;
}

static void *write_environment(void *stop)
{
    char value[32];
    for (int i = 0; !*(volatile int *)stop; i++) {
        snprintf(value, sizeof(value), "%d", i);
        setenv("GW_TEST_BUSY", value, 1);
        if (!arrives("GW_TEST_BUSY", value))
            return "a variable that was set was lost";
    }
    return NULL;
}

START_TEST(found_by_many_threads)
{
    pthread_t threads[4], busy[2];
    void *found[4], *failure[2];
    int stop = 0;
    setenv("GW_TEST_BUSY", "", 1);
    pthread_create(&busy[0], NULL, read_environment, &stop);
    pthread_create(&busy[1], NULL, write_environment, &stop);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, find_in_thread, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], &found[i]);
    stop = 1;
    for (int i = 0; i < 2; i++) {
        pthread_join(busy[i], &failure[i]);
        ck_assert_msg(!failure[i], "%s", (const char *)failure[i]);
    }
    for (int i = 0; i < 4; i++)
        ck_assert_ptr_eq(found[i], found[0]);
    ck_assert_ptr_nonnull(found[0]);
    ck_assert_ptr_null(getenv("UCX_MEM_EVENTS"));
    ck_assert_ptr_null(getenv("UCX_ERROR_SIGNALS"));
}
END_TEST

#endif

int main(void)
{
    Suite *suite = suite_create("transports");
    TCase *tc = tcase_create("transports");
    tcase_add_test(tc, names);
    tcase_add_test(tc, unknown_names);
    tcase_add_test(tc, bad_modules);
#ifdef HAVE_UCX
    tcase_add_test(tc, process_untouched);
    tcase_add_test(tc, process_untouched_by_setting);
    tcase_add_test(tc, ucx_alone_touches);
    tcase_add_test(tc, found_by_many_threads);
#else
    gw_test_skip("process_untouched", "this build has no ucx module");
#endif
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
