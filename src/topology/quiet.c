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
static const char blocked[] = "HWLOC_PLUGINS_BLACKLIST=hwloc_gl,hwloc_opencl,hwloc_cuda,hwloc_nvml,"
                              "hwloc_rsmi,hwloc_levelzero,hwloc_xml_libxml,hwloc_pci";
static char hide[] = "HWLOC_HIDE_ERRORS=2";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Arrays that readers in other threads may still be walking after they were replaced: kept for ever
 * and used again. Two entries of ours and the environment; behind it the environment as it was. */
enum { OURS = 2 };
typedef struct env_copy {
    struct env_copy *older;
    size_t slots;
    char *entry[];
} env_copy_t;
static env_copy_t *env_copies;

static char **room_for(size_t count)
{
    size_t needed = OURS + 2 * (count + 1);
    if (!env_copies || env_copies->slots < needed) {
        size_t slots = 2 * needed + 64;
        env_copy_t *copy = malloc(sizeof *copy + slots * sizeof copy->entry[0]);
        if (!copy)
            return NULL;
        copy->older = env_copies;
        copy->slots = slots;
        env_copies = copy;
    }
    return env_copies->entry;
}

/*
 * The environment is exchanged by one pointer for the millisecond in which hwloc reads it. Readers
 * in other threads, which POSIX allows, see one complete array or the other; setenv followed by
 * unsetenv could free or shift the array under them. Of two entries of one name getenv finds the
 * first: ours stand in front and hide the user's.
 */
void gw__env_enter(gw__env_swap_t *swap)
{
    static char joined[1024];
    *swap = (gw__env_swap_t){.before = environ,
                             .user_blocked = getenv("HWLOC_PLUGINS_BLACKLIST"),
                             .user_hide = getenv("HWLOC_HIDE_ERRORS")};
    while (environ && environ[swap->count])
        swap->count++;
    char **ours = room_for(swap->count);
    if (!ours)
        return;
    snprintf(joined, sizeof joined, "%s%s%s", blocked, swap->user_blocked ? "," : "",
             swap->user_blocked ? swap->user_blocked : "");
    ours[0] = joined;
    ours[1] = swap->user_hide ? joined : hide;
    if (swap->count > 0)
        memcpy(ours + OURS, environ, swap->count * sizeof ours[0]);
    ours[OURS + swap->count] = NULL;
    swap->was = ours + OURS + swap->count + 1;
    memcpy(swap->was, ours + OURS, (swap->count + 1) * sizeof ours[0]);
    swap->ours = ours;
    __atomic_store_n(&environ, ours, __ATOMIC_RELEASE);
}

static void restore_variable(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* Another thread may have written meanwhile. A variable that it replaced or removed is so in the
 * real array too; one that it added made a new array from ours, which stays without our entries. */
void gw__env_leave(gw__env_swap_t *swap)
{
    char **seen = swap->ours;
    if (!swap->ours)
        return;
    if (__atomic_compare_exchange_n(&environ, &seen, swap->before, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        for (size_t i = 0; i <= swap->count && swap->before; i++)
            if (swap->ours[OURS + i] != swap->was[i] && swap->before[i] == swap->was[i])
                swap->before[i] = swap->ours[OURS + i];
        return;
    }
    restore_variable("HWLOC_PLUGINS_BLACKLIST", swap->user_blocked);
    restore_variable("HWLOC_HIDE_ERRORS", swap->user_hide);
}

/*
 * hwloc reads these variables when its first topology is made, and again once it has none: so the
 * first one is kept for ever, and the environment is exchanged only once in the life of a process.
 * A thread that read the exchanged array may walk it at any later time.
 */
int gw__hwloc_init(hwloc_topology_t *out)
{
    static hwloc_topology_t keeper;
    static bool started;
    int rc = 0;
    pthread_mutex_lock(&lock);
    if (!started) {
        gw__env_swap_t swap;
        gw__env_enter(&swap);
        hwloc_hide_errors(); /* hwloc reads the variable once: let that be now */
        rc = hwloc_topology_init(&keeper);
        gw__env_leave(&swap);
        started = rc == 0;
    }
    if (rc == 0)
        rc = hwloc_topology_init(out);
    pthread_mutex_unlock(&lock);
    return rc;
}
