/* SPDX-License-Identifier: Apache-2.0 */
/* The hardware map of one machine, read by hwloc from the system or from a checked file. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology_int.h"

/* The CPUs that the calling thread may run on; empty when the system does not tell. */
static void thread_cpus(hwloc_bitmap_t out)
{
    hwloc_bitmap_zero(out);
    for (int cpus = 1024; cpus <= 65536; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        if (!set)
            return;
        int rc = sched_getaffinity(0, size, set);
        for (int i = 0; rc == 0 && i < cpus; i++)
            if (CPU_ISSET_S((size_t)i, size, set))
                hwloc_bitmap_set(out, (unsigned)i);
        CPU_FREE(set);
        if (rc == 0 || errno != EINVAL)
            return;
    }
}

/*
 * What hwloc is asked for: everything that is there, also where this process may not run, because a
 * device near a forbidden CPU is still a device. The binding of the thread is never moved for
 * discovery, which the x86 back end would do.
 */
static int configure(hwloc_topology_t hw, bool live)
{
    unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED;
#if HWLOC_API_VERSION >= 0x00020500
    if (live)
        flags |= HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
#endif
#if HWLOC_API_VERSION >= 0x00020800
    if (live)
        flags |= HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;
#endif
    static const char *const unwanted[] = {"x86",  "gl",   "opencl",   "cuda",
                                           "nvml", "rsmi", "levelzero"};
    for (size_t i = 0; live && i < sizeof unwanted / sizeof unwanted[0]; i++)
        hwloc_topology_set_components(hw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
    hwloc_topology_set_cache_types_filter(hw, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_io_types_filter(hw, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(hw, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    return hwloc_topology_set_flags(hw, flags);
}

/* Libraries below hwloc (libudev) keep state of their own: one thread reads the machine at a time.
 */
static int read_machine(hwloc_topology_t hw)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    int rc = hwloc_topology_load(hw);
    pthread_mutex_unlock(&lock);
    return rc;
}

static gw_status_t load_hwloc(gw_topology_t *t, const char *xml, char *why, size_t why_size)
{
    char *text = NULL;
    gw_status_t status = xml ? gw__xml_rewrite(xml, &text, why, why_size) : GW_OK;
    if (status != GW_OK)
        return status;
    if (gw__hwloc_init(&t->hw) != 0) {
        t->hw = NULL;
        status = gw__why(why, why_size, GW_ERR_NO_MEMORY, "hwloc could not start");
    } else if (configure(t->hw, !xml) != 0 ||
               (text && hwloc_topology_set_xmlbuffer(t->hw, text, (int)strlen(text) + 1) != 0) ||
               read_machine(t->hw) != 0) {
        int error = errno;
        status = gw__why(why, why_size, xml ? GW_ERR_INVALID : GW_ERR_IO,
                         "%s: hwloc cannot make a map of it: %s", xml ? xml : "this machine",
                         strerror(error));
    }
    free(text);
    return status;
}

/* The CPUs to work on: those that the cgroup or file allows and, on this machine, the thread is
 * bound to. */
static gw_status_t read_allowed(gw_topology_t *t)
{
    t->allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(t->hw));
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (!t->allowed || !bound) {
        hwloc_bitmap_free(bound);
        return GW_ERR_NO_MEMORY;
    }
    if (t->live)
        thread_cpus(bound);
    hwloc_bitmap_and(bound, bound, hwloc_topology_get_topology_cpuset(t->hw));
    if (hwloc_bitmap_intersects(t->allowed, bound))
        hwloc_bitmap_and(t->allowed, t->allowed, bound);
    hwloc_bitmap_free(bound);
    return GW_OK;
}

gw_status_t gw_topology_load(const char *xml, gw_topology_t **out, char *why, size_t why_size)
{
    if (!out)
        return gw__why(why, why_size, GW_ERR_INVALID, "no place for the map");
    gw_topology_t *t = calloc(1, sizeof *t);
    if (!t)
        return gw__why(why, why_size, GW_ERR_NO_MEMORY, "out of memory");
    /* hwloc's own variable names a file that describes this machine; it is checked like any other
     */
    const char *own = xml ? NULL : getenv("HWLOC_XMLFILE");
    if (own && own[0] == '\0')
        own = NULL;
    t->live = !xml;
    snprintf(t->source, sizeof t->source, "%s%.200s%s", own ? "this machine as " : "",
             xml ? xml : (own ? own : "this machine"), own ? " describes it" : "");
    gw_status_t status = load_hwloc(t, xml ? xml : own, why, why_size);
    if (status == GW_OK) {
        status = read_allowed(t);
        if (status == GW_OK)
            status = gw__devices_collect(t);
        if (status != GW_OK)
            gw__why(why, why_size, status, "out of memory");
    }
    if (status == GW_OK)
        *out = t;
    else
        gw_topology_free(t);
    return status;
}

void gw_topology_free(gw_topology_t *topology)
{
    if (!topology)
        return;
    if (topology->hw)
        hwloc_topology_destroy(topology->hw);
    hwloc_bitmap_free(topology->allowed);
    free(topology->devices);
    free(topology);
}

/* A set in list format, cut behind a whole item. */
static void print_set(hwloc_const_bitmap_t set, char *out, size_t size)
{
    char *text;
    out[0] = '\0';
    if (hwloc_bitmap_list_asprintf(&text, set) < 0)
        return;
    if (strlen(text) < size) {
        strcpy(out, text);
    } else {
        memcpy(out, text, size - 4);
        out[size - 4] = '\0';
        char *comma = strrchr(out, ',');
        strcpy(comma ? comma + 1 : out + size - 4, "...");
    }
    free(text);
}

static int count_type(hwloc_topology_t hw, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(hw, type);
    return n > 0 ? n : 0;
}

/* The names of the matrices that hwloc has between GPUs. */
static void print_distances(hwloc_topology_t hw, char *out, size_t size)
{
    struct hwloc_distances_s *list[16];
    unsigned n = 16;
    size_t len = 0;
    strcpy(out, "none");
    if (hwloc_distances_get(hw, &n, list, 0, 0) != 0)
        return;
    if (n > 16)
        n = 16;
    for (unsigned i = 0; i < n; i++) {
        const char *name = hwloc_distances_get_name(hw, list[i]);
        bool devices = false;
        for (unsigned j = 0; j < list[i]->nbobjs; j++)
            devices =
                devices || (list[i]->objs[j] && list[i]->objs[j]->type == HWLOC_OBJ_OS_DEVICE);
        if (devices && len < size)
            len += (size_t)snprintf(out + len, size - len, "%s%s", len ? ", " : "",
                                    name ? name : "unnamed");
        hwloc_distances_release(hw, list[i]);
    }
}

void gw_topology_summary(const gw_topology_t *topology, gw_topo_summary_t *out)
{
    hwloc_topology_t hw = topology->hw;
    *out = (gw_topo_summary_t){.packages = count_type(hw, HWLOC_OBJ_PACKAGE),
                               .numa_nodes = count_type(hw, HWLOC_OBJ_NUMANODE),
                               .cores = count_type(hw, HWLOC_OBJ_CORE),
                               .cpus = count_type(hw, HWLOC_OBJ_PU),
                               .cpus_allowed = hwloc_bitmap_weight(topology->allowed),
                               .io_visible = count_type(hw, HWLOC_OBJ_PCI_DEVICE) > 0,
                               .devices = topology->device_count};
    memcpy(out->source, topology->source, sizeof out->source);
    print_set(topology->allowed, out->allowed_cpuset, sizeof out->allowed_cpuset);
    print_distances(hw, out->distances, sizeof out->distances);
}

static int package_of(hwloc_topology_t hw, hwloc_const_bitmap_t cpus)
{
    hwloc_obj_t package = NULL;
    while (!hwloc_bitmap_iszero(cpus) &&
           (package = hwloc_get_next_obj_by_type(hw, HWLOC_OBJ_PACKAGE, package)))
        if (hwloc_bitmap_isincluded(cpus, package->cpuset))
            return (int)package->logical_index;
    return -1;
}

gw_status_t gw_topology_numa(const gw_topology_t *topology, int i, gw_topo_numa_t *out)
{
    if (!topology || !out)
        return GW_ERR_INVALID;
    hwloc_obj_t node =
        i < 0 ? NULL : hwloc_get_obj_by_type(topology->hw, HWLOC_OBJ_NUMANODE, (unsigned)i);
    if (!node)
        return GW_ERR_NOT_FOUND;
    hwloc_bitmap_t allowed = hwloc_bitmap_dup(node->cpuset);
    if (!allowed)
        return GW_ERR_NO_MEMORY;
    hwloc_bitmap_and(allowed, allowed, topology->allowed);
    *out = (gw_topo_numa_t){.os_index = (int)node->os_index,
                            .package = package_of(topology->hw, node->cpuset),
                            .memory_bytes = node->attr->numanode.local_memory,
                            .cpus_allowed = hwloc_bitmap_weight(allowed)};
    hwloc_bitmap_free(allowed);
    print_set(node->cpuset, out->cpuset, sizeof out->cpuset);
    return GW_OK;
}

gw_status_t gw_topology_device(const gw_topology_t *topology, int i, gw_topo_device_t *out)
{
    if (!topology || !out)
        return GW_ERR_INVALID;
    if (i < 0 || i >= topology->device_count)
        return GW_ERR_NOT_FOUND;
    *out = topology->devices[i];
    return GW_OK;
}

static int distance_from(const gw_topology_t *topology, const gw_topo_device_t *device,
                         hwloc_const_bitmap_t cpus)
{
    hwloc_obj_t node = NULL, package = NULL;
    if (device->numa >= 0)
        node = hwloc_get_numanode_obj_by_os_index(topology->hw, (unsigned)device->numa);
    if (device->package >= 0)
        package = hwloc_get_obj_by_type(topology->hw, HWLOC_OBJ_PACKAGE, (unsigned)device->package);
    if (hwloc_bitmap_iszero(cpus) || (!node && !package))
        return 3;
    if (node && hwloc_bitmap_intersects(node->cpuset, cpus))
        return 0;
    return package && hwloc_bitmap_intersects(package->cpuset, cpus) ? 1 : 2;
}

int gw_topology_distance(const gw_topology_t *topology, int device, const char *cpuset)
{
    if (!topology || device < 0 || device >= topology->device_count)
        return 3;
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (!cpus)
        return 3;
    if (!cpuset && topology->live)
        thread_cpus(cpus);
    else if (!cpuset)
        hwloc_bitmap_copy(cpus, topology->allowed);
    else if (strlen(cpuset) > 4096 || hwloc_bitmap_list_sscanf(cpus, cpuset) != 0)
        hwloc_bitmap_zero(cpus);
    int distance = distance_from(topology, &topology->devices[device], cpus);
    hwloc_bitmap_free(cpus);
    return distance;
}
