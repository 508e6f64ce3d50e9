/* SPDX-License-Identifier: Apache-2.0 */
/* Topology XML: any bytes in a file are refused with a reason, or are a map that can be asked
 * everything. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

static void ask(const gw_topology_t *topology)
{
    gw_topo_summary_t summary;
    gw_topo_device_t device;
    gw_topo_numa_t numa;
    gw_topology_summary(topology, &summary);
    fuzz_require(summary.cpus > 0 && summary.cpus_allowed > 0);
    fuzz_require(memchr(summary.allowed_cpuset, '\0', sizeof summary.allowed_cpuset));
    for (int i = 0; gw_topology_numa(topology, i, &numa) == GW_OK; i++)
        fuzz_require(memchr(numa.cpuset, '\0', sizeof numa.cpuset));
    for (int i = 0; gw_topology_device(topology, i, &device) == GW_OK; i++) {
        fuzz_require(memchr(device.name, '\0', sizeof device.name));
        int distance = gw_topology_distance(topology, i, i % 2 ? "0-3" : NULL);
        fuzz_require(distance >= 0 && distance <= 3);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_topology_t *topology = NULL;
    char path[64], why[400] = "";
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_require(fd >= 0);
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, data + done, size - done);
        fuzz_require(n > 0);
        done += (size_t)n;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    gw_status_t status = gw_topology_load(path, &topology, why, sizeof why);
    if (status == GW_OK)
        ask(topology);
    else
        fuzz_require(status < 0 && why[0]);
    gw_topology_free(topology);
    close(fd);
    return 0;
}
