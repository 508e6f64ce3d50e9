/* SPDX-License-Identifier: Apache-2.0 */
/* Opens libgradwire when the program starts MPI, never before. */
#define _GNU_SOURCE
#include "preload.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

gw__library_t gw__library;

static const char file_name[] = "libgradwire.so";

/*
 * The library lies beside the shim. Where the loader knows the shim by a relative name only
 * (LD_PRELOAD=./x.so) the working directory may have changed since; then the bare name is searched
 * by the shim's RUNPATH, $ORIGIN, which the loader resolved at start.
 */
static void library_path(char *path, size_t size)
{
    Dl_info self;
    snprintf(path, size, "%s", file_name);
    if (!dladdr((void *)&gw__library_open, &self) || !self.dli_fname || self.dli_fname[0] != '/')
        return;
    const char *slash = strrchr(self.dli_fname, '/');
    int directory = (int)(slash - self.dli_fname);
    if ((size_t)directory + sizeof file_name + 1 <= size)
        snprintf(path, size, "%.*s/%s", directory, self.dli_fname, file_name);
}

static const char *bind_functions(void *library)
{
#define BIND(name)                                                                                 \
    if (!(gw__library.name = (__typeof__(gw_##name) *)dlsym(library, "gw_" #name)))                \
        return "gw_" #name;
    GW_LIBRARY_TABLE(BIND)
#undef BIND
    return NULL;
}

bool gw__library_open(char *why, size_t size)
{
    char path[PATH_MAX];
    library_path(path, sizeof path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, size, "cannot open its library: %s", dlerror());
        return false;
    }
    /* It stays open whatever happens: it may have left thread-local data behind. */
    const char *missing = bind_functions(library);
    if (missing) {
        snprintf(why, size, "%s has no %s: another version?", path, missing);
        return false;
    }
    if (strcmp(gw__library.version(), GW_VERSION) != 0) {
        snprintf(why, size, "%s is version %s, this shim %s", path, gw__library.version(),
                 GW_VERSION);
        return false;
    }
    return true;
}
