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

#include "environment.h"

/*
 * UCX reads these when libucs is loaded, and only then. They keep it from installing signal
 * handlers, from patching the allocator of the whole process, from starting a thread for its file
 * system, and from writing to stdout. A variable that the user has set stays as he set it.
 */
static const gw__preset_t ucx_presets[] = {
    {"UCX_ERROR_SIGNALS=", true},         {"UCX_HANDLE_ERRORS=none", true},
    {"UCX_DEBUG_SIGNO=0", true},          {"UCX_MEM_EVENTS=n", true},
    {"UCX_MEMTYPE_CACHE=n", true},        {"UCX_VFS_ENABLE=n", true},
    {"UCX_WARN_UNUSED_ENV_VARS=n", true}, {"UCX_LOG_LEVEL=fatal", true},
    {"UCX_LOG_FILE=stderr", true},
};

/* What a module's libraries would do to the process. */
static const struct guard {
    const char *module;
    const char *resident; /* when the application has this library already, its settings are the
                             application's */
    const gw__preset_t *presets;
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
    gw__environment_t *visit = gw__environment_enter(guard->presets, guard->preset_count);
    if (!visit)
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    gw__environment_leave(visit);
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
