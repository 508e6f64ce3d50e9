/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that are set for a moment: what users set, read and write meanwhile is kept. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "environment.h"
#include "gw_test.h"

extern char **environ;

static const gw__preset_t presets[] = {{"GW_TEST_OURS=ours", false}, {"GW_TEST_MILD=mild", true}};

static gw__environment_t *enter(void)
{
    gw__environment_t *visit = gw__environment_enter(presets, 2);
    ck_assert_ptr_nonnull(visit);
    return visit;
}

static bool is(const char *name, const char *value)
{
    const char *now = getenv(name);
    return value ? now && strcmp(now, value) == 0 : now == NULL;
}

static int entries_of(const char *name)
{
    int found = 0;
    for (char **e = environ; *e; e++)
        found += strncmp(*e, name, strlen(name)) == 0 && (*e)[strlen(name)] == '=';
    return found;
}

START_TEST(presets_come_and_go)
{
    gw__environment_t *visit = enter();
    ck_assert(is("GW_TEST_OURS", "ours") && is("GW_TEST_MILD", "mild"));
    ck_assert_ptr_nonnull(getenv("PATH"));
    gw__environment_leave(visit);
    ck_assert(is("GW_TEST_OURS", NULL) && is("GW_TEST_MILD", NULL));
    ck_assert_ptr_nonnull(getenv("PATH"));
}
END_TEST

START_TEST(what_the_user_has_set_comes_back)
{
    setenv("GW_TEST_OURS", "user's", 1);
    setenv("GW_TEST_MILD", "", 1);
    for (int turn = 0; turn < 3; turn++) {
        gw__environment_t *visit = enter();
        ck_assert(is("GW_TEST_OURS", "ours") && is("GW_TEST_MILD", ""));
        ck_assert_int_eq(entries_of("GW_TEST_OURS"), 1);
        gw__environment_leave(visit);
        ck_assert(is("GW_TEST_OURS", "user's") && is("GW_TEST_MILD", ""));
        ck_assert_int_eq(entries_of("GW_TEST_OURS"), 1);
    }
}
END_TEST

START_TEST(writes_in_between_are_kept)
{
    setenv("GW_TEST_A", "old", 1);
    setenv("GW_TEST_B", "old", 1);
    gw__environment_t *visit = enter();
    setenv("GW_TEST_A", "new", 1);
    unsetenv("GW_TEST_B");
    setenv("GW_TEST_C", "added", 1);
    gw__environment_leave(visit);
    ck_assert(is("GW_TEST_A", "new") && is("GW_TEST_B", NULL) && is("GW_TEST_C", "added"));
    ck_assert(is("GW_TEST_OURS", NULL));

    visit = enter();
    setenv("GW_TEST_OURS", "theirs", 1); /* now it is somebody's */
    unsetenv("GW_TEST_MILD");
    gw__environment_leave(visit);
    ck_assert(is("GW_TEST_OURS", "theirs") && is("GW_TEST_MILD", NULL));
}
END_TEST

START_TEST(an_empty_environment)
{
    environ = NULL;
    gw__environment_t *visit = enter();
    ck_assert(is("GW_TEST_OURS", "ours"));
    gw__environment_leave(visit);
    ck_assert(is("GW_TEST_OURS", NULL));
    ck_assert(!environ || !*environ);
}
END_TEST

/* ---- Other threads ----------------------------------------------------------------------------
 */

#if defined(__SANITIZE_THREAD__)
/* The C library's own lock, which ThreadSanitizer does not see, orders what setenv() allocates. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libc.so.6\n";
}
#endif

static atomic_bool over;
static atomic_int missing; /* presets that a visit did not see */

/* getenv() must not run beside writers: POSIX does not allow it, and the C library frees arrays.
 * Writers share this, whoever calls getenv() has it alone; visits come and go as they like. */
static pthread_rwlock_t writing = PTHREAD_RWLOCK_INITIALIZER;

/* Sets and removes variables all the time. */
static void *write_variables(void *arg)
{
    char name[32], value[32];
    snprintf(name, sizeof name, "GW_TEST_WRITER_%d", *(int *)arg);
    for (int i = 0; !atomic_load(&over); i++) {
        snprintf(value, sizeof value, "%d", i);
        pthread_rwlock_rdlock(&writing);
        setenv(name, value, 1);
        if (i % 3 == 0)
            unsetenv(name);
        pthread_rwlock_unlock(&writing);
        usleep(i % 5 ? 0 : 50);
    }
    return NULL;
}

static void *visit_often(void *arg)
{
    for (int i = 0; i < *(int *)arg; i++) {
        gw__environment_t *visit = enter();
        pthread_rwlock_wrlock(&writing);
        if (!is("GW_TEST_OURS", "ours"))
            atomic_fetch_add(&missing, 1);
        pthread_rwlock_unlock(&writing);
        gw__environment_leave(visit);
        usleep(100);
    }
    return NULL;
}

START_TEST(threads_write_and_visit)
{
    pthread_t writer[2], visitor[2];
    int number[2] = {0, 1}, visits = 500;
    for (int i = 0; i < 2; i++) {
        pthread_create(&writer[i], NULL, write_variables, &number[i]);
        pthread_create(&visitor[i], NULL, visit_often, &visits);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(visitor[i], NULL);
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(writer[i], NULL);
    ck_assert_int_eq(atomic_load(&missing), 0);
    ck_assert(is("GW_TEST_OURS", NULL) && is("GW_TEST_MILD", NULL));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("environment");
    TCase *tc = tcase_create("environment");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, presets_come_and_go);
    tcase_add_test(tc, what_the_user_has_set_comes_back);
    tcase_add_test(tc, writes_in_between_are_kept);
    tcase_add_test(tc, an_empty_environment);
    tcase_add_test(tc, threads_write_and_visit);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
