/* SPDX-License-Identifier: Apache-2.0 */
/* Starts hwloc so that it maps no driver library into the trainer and prints nothing. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hwloc/plugins.h>

#include "environment.h"
#include "topology_int.h"

/*
 * hwloc opens every plugin it finds when its first topology is made, before an application can name
 * the ones it wants; only HWLOC_PLUGINS_BLACKLIST, read in that moment, keeps a library unmapped.
 * gl connects to X servers, opencl, cuda, nvml, rsmi and levelzero start drivers, xml_libxml brings
 * libxml2 and ICU and changes libxml2's global error handler, pci complains without rights. hwloc's
 * built-in parts read PCI from sysfs and XML without them.
 */
static const char unwanted[] = "HWLOC_PLUGINS_BLACKLIST=hwloc_gl,hwloc_opencl,hwloc_cuda,"
                               "hwloc_nvml,hwloc_rsmi,hwloc_levelzero,hwloc_xml_libxml,hwloc_pci";
static char blocked[1024];
static const gw__preset_t presets[] = {{blocked, false}, {"HWLOC_HIDE_ERRORS=2", true}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The user's own list stands behind ours. NULL: no memory. */
static gw__environment_t *enter(void)
{
    const char *users = getenv("HWLOC_PLUGINS_BLACKLIST");
    snprintf(blocked, sizeof blocked, "%s%s%s", unwanted, users ? "," : "", users ? users : "");
    return gw__environment_enter(presets, sizeof presets / sizeof presets[0]);
}

/*
 * hwloc reads these variables when its first topology is made, and again once it has none: so the
 * first one is kept for ever, and the environment is exchanged only once in the life of a process.
 */
int gw__hwloc_init(hwloc_topology_t *out)
{
    static hwloc_topology_t keeper;
    static bool started;
    int rc = 0;
    pthread_mutex_lock(&lock);
    if (!started) {
        gw__environment_t *visit = enter();
        hwloc_hide_errors(); /* hwloc reads the variable once: let that be now */
        rc = hwloc_topology_init(&keeper);
        if (visit)
            gw__environment_leave(visit);
        started = rc == 0;
    }
    if (rc == 0)
        rc = hwloc_topology_init(out);
    pthread_mutex_unlock(&lock);
    return rc;
}
