/* SPDX-License-Identifier: Apache-2.0 */
/* Starts hwloc so that it maps no driver library into the trainer and prints nothing. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hwloc/plugins.h>

#include "topology_int.h"

/*
 * hwloc opens every plugin it finds when its first topology is made, before an application can name
 * the ones it wants; only HWLOC_PLUGINS_BLACKLIST, read in that moment, keeps a library unmapped.
 * gl connects to X servers, opencl, cuda, nvml, rsmi and levelzero start drivers, xml_libxml brings
 * libxml2 and ICU and changes libxml2's global error handler, pci complains without rights. hwloc's
 * built-in parts read PCI from sysfs and XML without them.
 */
static const char *const blocked = "HWLOC_PLUGINS_BLACKLIST=hwloc_gl,hwloc_opencl,hwloc_cuda,"
                                   "hwloc_nvml,hwloc_rsmi,hwloc_levelzero,hwloc_xml_libxml,"
                                   "hwloc_pci";
static const char *const hide = "HWLOC_HIDE_ERRORS=2";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A copy of the environment that readers in other threads may still be walking after it was
 * replaced: kept for ever and used again. */
typedef struct env_copy {
    struct env_copy *older;
    size_t slots;
    char *entry[];
} env_copy_t;
static env_copy_t *env_copies;

static bool names_variable(const char *entry, const char *setting)
{
    size_t len = (size_t)(strchr(setting, '=') - setting) + 1;
    return strncmp(entry, setting, len) == 0;
}

static char **copy_environ(void)
{
    size_t count = 0;
    while (environ && environ[count])
        count++;
    if (!env_copies || env_copies->slots < count + 3) {
        size_t slots = 2 * count + 64;
        env_copy_t *copy = malloc(sizeof *copy + slots * sizeof copy->entry[0]);
        if (!copy)
            return NULL;
        copy->older = env_copies;
        copy->slots = slots;
        env_copies = copy;
    }
    char **out = env_copies->entry;
    size_t n = 0;
    bool user_hide = false;
    for (size_t i = 0; i < count; i++) {
        if (names_variable(environ[i], blocked))
            continue;
        user_hide = user_hide || names_variable(environ[i], hide);
        out[n++] = environ[i];
    }
    out[n++] = (char *)blocked;
    if (!user_hide)
        out[n++] = (char *)hide;
    out[n] = NULL;
    return out;
}

/*
 * The environment is exchanged by one pointer for the few milliseconds in which hwloc reads it.
 * Readers in other threads see one complete array or the other; setenv followed by unsetenv could
 * free or shift the array under them. A thread that calls setenv in between has made an array of
 * its own from ours: that one stays, without our two entries.
 */
int gw__hwloc_init(hwloc_topology_t *out)
{
    pthread_mutex_lock(&lock);
    char **before = environ;
    const char *user = getenv("HWLOC_HIDE_ERRORS");
    char **ours = copy_environ();
    if (ours)
        __atomic_store_n(&environ, ours, __ATOMIC_RELEASE);
    hwloc_hide_errors(); /* hwloc reads the variable once: let that be now */
    int rc = hwloc_topology_init(out);
    if (ours && !__atomic_compare_exchange_n(&environ, &ours, before, false, __ATOMIC_ACQ_REL,
                                             __ATOMIC_ACQUIRE)) {
        unsetenv("HWLOC_PLUGINS_BLACKLIST");
        if (!user)
            unsetenv("HWLOC_HIDE_ERRORS");
    }
    pthread_mutex_unlock(&lock);
    return rc;
}
