/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the network cards and GPUs of a machine: what the bus shows, joined with what the system
 * names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology_int.h"

/* Display controllers that compute: VGA chips of a server's console are none. */
enum {
    CLASS_VGA = 0x0300,
    CLASS_3D = 0x0302,
    CLASS_DISPLAY_OTHER = 0x0380,
    CLASS_ACCELERATOR = 0x1200,
    CLASS_INFINIBAND = 0x0c06,
    CLASS_INFINIBAND_NEW = 0x0207,
    VENDOR_NVIDIA = 0x10de,
    VENDOR_AMD = 0x1002
};

static gw_topo_device_t *add(gw_topology_t *t)
{
    if (t->device_count == t->device_size) {
        int size = t->device_size ? 2 * t->device_size : 32;
        gw_topo_device_t *more = realloc(t->devices, (size_t)size * sizeof *more);
        if (!more)
            return NULL;
        t->devices = more;
        t->device_size = size;
    }
    gw_topo_device_t *device = &t->devices[t->device_count++];
    *device = (gw_topo_device_t){.numa = GW_NUMA_UNKNOWN, .package = -1};
    return device;
}

/* The one NUMA node and package that `object` hangs under; unknown when it hangs above several. */
static void locate(hwloc_topology_t hw, hwloc_obj_t object, gw_topo_device_t *device)
{
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(hw, object);
    if (!near)
        return;
    if (near->nodeset && hwloc_bitmap_weight(near->nodeset) == 1)
        device->numa = hwloc_bitmap_first(near->nodeset);
    hwloc_obj_t package = NULL, found = NULL;
    while ((package = hwloc_get_next_obj_by_type(hw, HWLOC_OBJ_PACKAGE, package)))
        if (hwloc_bitmap_isincluded(near->cpuset, package->cpuset))
            found = package;
    if (found)
        device->package = (int)found->logical_index;
}

static gw_status_t add_found(gw_topology_t *t, gw_device_kind_t kind, hwloc_obj_t object,
                             hwloc_obj_t pci)
{
    gw_topo_device_t *device = add(t);
    if (!device)
        return GW_ERR_NO_MEMORY;
    device->kind = kind;
    if (pci) {
        const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;
        snprintf(device->pci, sizeof device->pci, "%04x:%02x:%02x.%01x", a->domain, a->bus, a->dev,
                 a->func);
    }
    if (object->type == HWLOC_OBJ_OS_DEVICE && object->name)
        snprintf(device->name, sizeof device->name, "%.63s", object->name);
    else
        snprintf(device->name, sizeof device->name, "%s", device->pci);
    locate(t->hw, object, device);
    return GW_OK;
}

/* How good a name for a GPU an OS device gives: 0 none, more is better. Releases of hwloc differ in
 * the type that they give a management device, so its subtype or name decides. */
static int gpu_name_rank(hwloc_obj_t os)
{
    const char *subtype = os->subtype ? os->subtype : "", *name = os->name ? os->name : "";
    hwloc_obj_osdev_type_t type = os->attr->osdev.type;
    if (type != HWLOC_OBJ_OSDEV_COPROC && type != HWLOC_OBJ_OSDEV_GPU)
        return 0;
    if (strcmp(subtype, "CUDA") == 0)
        return 4;
    if (strcmp(subtype, "LevelZero") == 0)
        return 3;
    if (strcmp(subtype, "NVML") == 0 || strcmp(subtype, "RSMI") == 0 ||
        strncmp(name, "nvml", 4) == 0 || strncmp(name, "rsmi", 4) == 0)
        return 2;
    return strcmp(subtype, "OpenCL") == 0 ? 1 : 0;
}

static bool is_net(hwloc_obj_t os)
{
    return os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK;
}

static bool is_rdma(hwloc_obj_t os)
{
    return os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
}

static bool gpu_by_class(const struct hwloc_pcidev_attr_s *a)
{
    if (a->class_id == CLASS_3D)
        return true;
    if (a->vendor_id == VENDOR_NVIDIA)
        return a->class_id == CLASS_VGA;
    return a->vendor_id == VENDOR_AMD &&
           (a->class_id == CLASS_DISPLAY_OTHER || a->class_id == CLASS_ACCELERATOR);
}

static bool nic_by_class(const struct hwloc_pcidev_attr_s *a)
{
    return a->class_id == 0x0200 || a->class_id == CLASS_INFINIBAND ||
           a->class_id == CLASS_INFINIBAND_NEW;
}

/*
 * One PCI function. What the system made of it counts more than its class: a card of an odd class
 * with a network interface is a NIC, and a GPU without a driver library is still known by its
 * class.
 */
static gw_status_t add_pci(gw_topology_t *t, hwloc_obj_t pci, gw_device_kind_t kind)
{
    hwloc_obj_t gpu = NULL, rdma = NULL, os;
    int nets = 0;
    gw_status_t status = GW_OK;
    for (os = pci->io_first_child; os; os = os->next_sibling) {
        if (os->type != HWLOC_OBJ_OS_DEVICE)
            continue;
        nets += is_net(os);
        rdma = is_rdma(os) && !rdma ? os : rdma;
        if (gpu_name_rank(os) > (gpu ? gpu_name_rank(gpu) : 0))
            gpu = os;
    }
    const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;
    if (kind == GW_DEVICE_GPU) {
        bool is_gpu = gpu || (gpu_by_class(a) && !nets && !rdma);
        return is_gpu ? add_found(t, kind, gpu ? gpu : pci, pci) : GW_OK;
    }
    for (os = pci->io_first_child; os && status == GW_OK; os = os->next_sibling)
        if (os->type == HWLOC_OBJ_OS_DEVICE && is_net(os)) {
            status = add_found(t, kind, os, pci);
            if (status == GW_OK)
                t->devices[t->device_count - 1].infiniband = rdma != NULL;
        }
    if (nets || (!rdma && !nic_by_class(a)))
        return status;
    status = add_found(t, kind, rdma ? rdma : pci, pci);
    if (status == GW_OK)
        t->devices[t->device_count - 1].infiniband = rdma || a->class_id != 0x0200;
    return status;
}

/* Devices that the system shows without a PCI function: virtual machines, hidden buses. */
static gw_status_t add_without_pci(gw_topology_t *t, hwloc_obj_t os, gw_device_kind_t kind)
{
    for (hwloc_obj_t up = os->parent; up; up = up->parent)
        if (up->type == HWLOC_OBJ_PCI_DEVICE)
            return GW_OK;
    if (kind == GW_DEVICE_GPU)
        return gpu_name_rank(os) > 1 ? add_found(t, kind, os, NULL) : GW_OK;
    if (!is_net(os) && !is_rdma(os))
        return GW_OK;
    gw_status_t status = add_found(t, kind, os, NULL);
    if (status == GW_OK)
        t->devices[t->device_count - 1].infiniband = is_rdma(os);
    return status;
}

static gw_status_t add_kind(gw_topology_t *t, gw_device_kind_t kind)
{
    gw_status_t status = GW_OK;
    hwloc_obj_t object = NULL;
    while (status == GW_OK && (object = hwloc_get_next_pcidev(t->hw, object)))
        status = add_pci(t, object, kind);
    object = NULL;
    while (status == GW_OK && (object = hwloc_get_next_osdev(t->hw, object)))
        status = add_without_pci(t, object, kind);
    return status;
}

/* "100 Gb/sec (4X EDR)" of an OpenFabrics port, in Mbit/s. */
static double rdma_speed(const char *name)
{
    char path[160], text[64];
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/rate", name);
    return gw__read_text(path, text, sizeof text) > 0 ? strtod(text, NULL) * 1000 : 0;
}

static void join(gw_topo_device_t *device, const gw__netif_t *netif)
{
    device->speed_mbit = netif->speed_mbit;
    device->up = netif->up;
    device->loopback = netif->loopback;
    device->bridge = netif->bridge;
    device->virtual_link = netif->virtual_link;
    device->infiniband = device->infiniband || netif->infiniband;
    if (netif->has4)
        gw__addr_print(4, netif->addr4, netif->prefix4, device->address, sizeof device->address);
    else if (netif->has6)
        gw__addr_print(6, netif->addr6, netif->prefix6, device->address, sizeof device->address);
}

static gw_topo_device_t *nic_by_name(gw_topology_t *t, const char *name)
{
    for (int i = 0; i < t->device_count; i++)
        if (t->devices[i].kind == GW_DEVICE_NIC && strcmp(t->devices[i].name, name) == 0)
            return &t->devices[i];
    return NULL;
}

/* The system's interfaces: those that are on the list get their state, the others follow behind. */
static gw_status_t add_live(gw_topology_t *t)
{
    gw__netif_t *netifs;
    int count;
    if (gw__netif_list(&netifs, &count) != GW_OK)
        return GW_OK; /* the map keeps what the bus shows */
    for (int i = 0; i < t->device_count; i++)
        if (t->devices[i].infiniband)
            t->devices[i].speed_mbit = rdma_speed(t->devices[i].name);
    gw_status_t status = GW_OK;
    for (int i = 0; i < count && status == GW_OK; i++) {
        gw_topo_device_t *device = nic_by_name(t, netifs[i].name);
        if (!device && (device = add(t)))
            strcpy(device->name, netifs[i].name);
        if (device)
            join(device, &netifs[i]);
        else
            status = GW_ERR_NO_MEMORY;
    }
    free(netifs);
    return status;
}

gw_status_t gw__devices_collect(gw_topology_t *topology)
{
    gw_status_t status = add_kind(topology, GW_DEVICE_NIC);
    if (status == GW_OK && topology->live)
        status = add_live(topology);
    if (status == GW_OK)
        status = add_kind(topology, GW_DEVICE_GPU);
    return status;
}
