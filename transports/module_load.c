/* SPDX-License-Identifier: Apache-2.0 */
/* Loads transport modules: finds lib/gradwire/<name>.so beside the library and leaves the process
 * as it was. */
#define _GNU_SOURCE /* dladdr1 */
#include "transports.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/*
 * UCX reads these when libucs is loaded, and only then. They keep it from installing signal
 * handlers, from patching the allocator of the whole process, from starting a thread for its file
 * system, and from writing to stdout. A variable that the user has set stays as he set it.
 */
static char *const ucx_presets[] = {
    "UCX_ERROR_SIGNALS=",         "UCX_HANDLE_ERRORS=none", "UCX_DEBUG_SIGNO=0",
    "UCX_MEM_EVENTS=n",           "UCX_MEMTYPE_CACHE=n",    "UCX_VFS_ENABLE=n",
    "UCX_WARN_UNUSED_ENV_VARS=n", "UCX_LOG_LEVEL=fatal",    "UCX_LOG_FILE=stderr",
};

/* What a module's libraries would do to the process. */
static const struct guard {
    const char *module;
    const char *resident; /* when the application has this library already, its settings are the
                             application's */
    char *const *presets;
    size_t preset_count;
} guards[] = {
    {"ucx", "libucs.so.0", ucx_presets, sizeof(ucx_presets) / sizeof(ucx_presets[0])},
};

static const struct guard *guard_of(const char *module)
{
    for (size_t i = 0; i < sizeof(guards) / sizeof(guards[0]); i++)
        if (!strcmp(guards[i].module, module))
            return &guards[i];
    return NULL;
}

static bool resident(const struct guard *guard)
{
    void *library = dlopen(guard->resident, RTLD_NOLOAD | RTLD_LAZY);
    if (library)
        dlclose(library);
    return library != NULL;
}

static bool is_set(char *const *env, const char *preset)
{
    size_t name = (size_t)(strchr(preset, '=') - preset) + 1;
    for (; *env; env++)
        if (!strncmp(*env, preset, name))
            return true;
    return false;
}

/*
 * Presets come in by an exchange of the whole environment, not by setenv(): setenv() may move the
 * array under a thread that is just in getenv(). The new array stays in use, without the presets
 * once the module is loaded, and both are kept (a few kilobytes, once per process), so a thread in
 * getenv() always reads valid memory. What another thread's setenv() writes is never lost; in the
 * microseconds of the exchange a getenv() may still give what was there before.
 */
typedef struct visit {
    struct visit *earlier;
    char **before;   /* the array of before */
    char **snapshot; /* its entries as they were then */
    size_t count;    /* of them */
    char *inside[];  /* the new array: those entries, then the presets; then the snapshot */
} visit_t;

static visit_t *visits; /* all that were ever made; guarded by the caller's lock */

static visit_t *visit_new(const struct guard *guard)
{
    static char *nothing[] = {NULL};
    char **before = environ ? environ : nothing;
    size_t count = 0, added = 0;
    while (before[count])
        count++;
    size_t inside = count + guard->preset_count + 1;
    visit_t *visit = malloc(sizeof(*visit) + (inside + count) * sizeof(char *));
    if (!visit)
        return NULL;
    *visit = (visit_t){.earlier = visits, .before = before, .count = count};
    visit->snapshot = visit->inside + inside;
    memcpy(visit->snapshot, before, count * sizeof(char *));
    memcpy(visit->inside, visit->snapshot, count * sizeof(char *));
    for (size_t i = 0; i < guard->preset_count; i++)
        if (!is_set(before, guard->presets[i]))
            visit->inside[count + added++] = guard->presets[i];
    visit->inside[count + added] = NULL;
    visits = visit;
    return visit;
}

/* Writers hold the C library's lock from their look at `environ` to their last store: once that
 * lock was free, all of them work on the new array, and what they did to the old one stands. */
static bool environment_enter(const struct guard *guard)
{
    visit_t *visit = visit_new(guard);
    if (!visit)
        return false;
    __atomic_store_n(&environ, visit->inside, __ATOMIC_RELEASE);
    unsetenv("GRADWIRE_NEVER_SET");
    for (size_t i = 0; i < visit->count; i++) {
        char *was = visit->snapshot[i], *is = visit->before[i];
        if (is != was)
            __atomic_compare_exchange_n(&visit->inside[i], &was, is, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE);
    }
    return true;
}

/* Takes out the presets, unless somebody has meanwhile given such a name a value of his own. */
static void environment_leave(const struct guard *guard)
{
    for (size_t i = guard->preset_count; i-- > 0;) {
        char name[64];
        const char *preset = guard->presets[i], *sign = strchr(preset, '=');
        snprintf(name, sizeof(name), "%.*s", (int)(sign - preset), preset);
        if (getenv(name) == sign + 1)
            unsetenv(name);
    }
}

static void actions_save(struct sigaction *actions, bool *known)
{
    for (int i = 1; i < NSIG; i++)
        known[i] = sigaction(i, NULL, &actions[i]) == 0;
}

/* Whether a handler lies in a library of UCX. */
static bool handler_of_ucx(const struct sigaction *action)
{
    Dl_info info;
    const void *handler = action->sa_flags & SA_SIGINFO
                              ? (const void *)(uintptr_t)action->sa_sigaction
                              : (const void *)(uintptr_t)action->sa_handler;
    if (!dladdr(handler, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    return strncmp(slash ? slash + 1 : info.dli_fname, "libuc", 5) == 0;
}

/* Takes back what UCX's constructors did; what another thread installed at the same time stays. */
static void actions_restore(const struct sigaction *actions, const bool *known)
{
    for (int i = 1; i < NSIG; i++) {
        struct sigaction now;
        if (!known[i] || sigaction(i, NULL, &now) != 0)
            continue;
        if (now.sa_handler != actions[i].sa_handler && handler_of_ucx(&now))
            sigaction(i, &actions[i], NULL);
    }
}

/* dlopen() with the guards round it. */
static void *guarded_dlopen(const char *name, const char *path)
{
    const struct guard *guard = guard_of(name);
    if (!guard || resident(guard))
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct sigaction actions[NSIG];
    bool known[NSIG];
    actions_save(actions, known);
    if (!environment_enter(guard))
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    environment_leave(guard);
    actions_restore(actions, known);
    return library;
}

/* The directory of the object that holds this code, without a final slash; "" on failure. */
static void own_directory(char *out, size_t size)
{
    Dl_info info;
    struct link_map *map = NULL;
    out[0] = '\0';
    if (!dladdr1((const void *)(uintptr_t)gw__module_load, &info, (void **)&map, RTLD_DL_LINKMAP) ||
        !map)
        return;
    /* The program itself has no name here, and argv[0] need not be a path. */
    const char *file = map->l_name[0] ? map->l_name : "/proc/self/exe";
    char *real = realpath(file, NULL);
    const char *slash = real ? strrchr(real, '/') : NULL;
    if (slash)
        snprintf(out, size, "%.*s", (int)(slash - real), real);
    free(real);
}

/* Opens the module beside libgradwire, or where a program that contains this code has its lib
 * directory. */
static void *open_module(const char *name, char *why, size_t why_size)
{
    static const char *const places[] = {"gradwire", "../lib/gradwire"};
    char directory[3072], path[4096];
    own_directory(directory, sizeof(directory));
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s/%s.so", directory, places[i], name);
        if (access(path, R_OK) != 0)
            continue;
        void *library = guarded_dlopen(name, path);
        if (!library) {
            const char *reason = dlerror();
            snprintf(why, why_size, "cannot load %s: %s", path, reason ? reason : "out of memory");
        }
        return library;
    }
    snprintf(why, why_size, "there is no module gradwire/%s.so beside %s", name, directory);
    return NULL;
}

gw_status_t gw__module_load(const char *name, const gw_transport_t **out, char *why,
                            size_t why_size)
{
    void *library = open_module(name, why, why_size);
    if (!library)
        return GW_ERR_NO_MODULE;
    void *symbol = dlsym(library, GW_TRANSPORT_MODULE_SYMBOL);
    const gw_transport_t *transport = symbol ? ((gw_transport_module_fn)(uintptr_t)symbol)() : NULL;
    if (!transport || transport->abi != GW_TRANSPORT_ABI) {
        /* It stays loaded: what UCX's constructors set up cannot be unloaded safely. */
        snprintf(why, why_size, "module %s was built for another version of Gradwire", name);
        return GW_ERR_NO_MODULE;
    }
    *out = transport;
    return GW_OK;
}
