/* SPDX-License-Identifier: Apache-2.0 */
/* The hardware map: what this node is made of, and which ranks share a node. */
#ifndef GRADWIRE_TOPOLOGY_H
#define GRADWIRE_TOPOLOGY_H

#include <gradwire/types.h>

typedef struct gw_topology gw_topology_t;

/*
 * Reads the hardware of this node, or the hwloc XML file `xml`. A file is checked whole before
 * anything is made of it: GW_ERR_IO or GW_ERR_INVALID with the file and the reason in `why` (may be
 * NULL). Missing PCI, NUMA or rights only leave their part of the map empty. Free with
 * gw_topology_free. Any thread, own object each.
 */
GW_API gw_status_t gw_topology_load(const char *xml, gw_topology_t **out, char *why,
                                    size_t why_size);
GW_API void gw_topology_free(gw_topology_t *topology);

enum { GW_NUMA_UNKNOWN = -1 };

typedef struct gw_topo_numa {
    int os_index;
    int package; /* logical index of the package, -1 when unknown */
    uint64_t memory_bytes;
    int cpus_allowed;
    char cpuset[128]; /* list format "0-7,16-23", cut with "..." when longer */
} gw_topo_numa_t;

typedef enum gw_device_kind { GW_DEVICE_NIC, GW_DEVICE_GPU } gw_device_kind_t;

typedef struct gw_topo_device {
    gw_device_kind_t kind;
    char name[64];     /* "eth0", "mlx5_0", "cuda0"; PCI address where no system name is known */
    char pci[16];      /* "0000:3b:00.0", "" when not a PCI device or hidden */
    int numa;          /* os index of the nearest NUMA node, GW_NUMA_UNKNOWN */
    int package;       /* logical index, -1 when unknown or several */
    double speed_mbit; /* link speed of a NIC, 0 when unknown */
    bool up, loopback, bridge, virtual_link; /* NICs of the live system */
    bool infiniband;                         /* has an OpenFabrics device */
    char address[64]; /* first usable IPv4 "10.0.0.1/24", else IPv6, else "" */
} gw_topo_device_t;

typedef struct gw_topo_summary {
    char source[256]; /* "this machine" or the file */
    int packages, numa_nodes, cores, cpus, cpus_allowed;
    char allowed_cpuset[256];
    bool io_visible; /* PCI could be read */
    int devices;
    char distances[64]; /* "none", or what hwloc recorded between GPUs: "NVLinkBandwidth" */
} gw_topo_summary_t;

GW_API void gw_topology_summary(const gw_topology_t *topology, gw_topo_summary_t *out);
/* i-th NUMA node or device in a stable order; GW_ERR_NOT_FOUND behind the last. */
GW_API gw_status_t gw_topology_numa(const gw_topology_t *topology, int i, gw_topo_numa_t *out);
GW_API gw_status_t gw_topology_device(const gw_topology_t *topology, int i, gw_topo_device_t *out);

/* How far a device is from the CPUs in `cpuset` (hwloc list format; NULL: those this thread may run
 * on, and for a map read from a file those allowed in it): 0 same NUMA node, 1 same package, 2
 * another package, 3 unknown. */
GW_API int gw_topology_distance(const gw_topology_t *topology, int device, const char *cpuset);

/* ---- Facts that ranks exchange
 * ----------------------------------------------------------------------- */

#define GW_NODE_FACTS_IFACES 16

typedef struct gw_node_iface {
    char name[16];
    uint8_t family; /* 4, 6, or 0: entry not used */
    uint8_t prefix;
    uint8_t flags;    /* GW_IFACE_* */
    uint8_t distance; /* from this rank's CPUs, as gw_topology_distance */
    uint32_t speed_mbit;
    uint8_t addr[16]; /* network order */
} gw_node_iface_t;
enum {
    GW_IFACE_LOOPBACK = 1,
    GW_IFACE_BRIDGE = 2, /* docker0, virbr0, ...: of no use to reach other nodes */
    GW_IFACE_LINK_LOCAL = 4,
    GW_IFACE_INFINIBAND = 8,
    GW_IFACE_DEFAULT_ROUTE = 16,
    GW_IFACE_GATEWAY = 32, /* some route through a gateway leaves here */
    GW_IFACE_NAMED = 64    /* on the list of GRADWIRE_INTERFACES: the user says that it is a way */
};

/* One rank's facts: a plain value of fixed size that travels as bytes (little-endian hosts only).
 */
typedef struct gw_node_facts {
    uint64_t node_id; /* boot id, network and UTS namespace: equal on ranks that share a node */
    char host[64];
    uint16_t version; /* 1 */
    uint16_t iface_count;
    uint32_t cpus_allowed;
    gw_node_iface_t iface[GW_NODE_FACTS_IFACES];
} gw_node_facts_t;

/* Facts of this process; `topology` may be NULL (distances unknown). `interfaces` is the setting
 * GRADWIRE_INTERFACES: NULL or "" for all, a list of names, CIDR ranges or, after ^, ones to avoid.
 */
GW_API gw_status_t gw_node_facts_collect(const gw_topology_t *topology, const char *interfaces,
                                         gw_node_facts_t *out, char *why, size_t why_size);

/*
 * Groups `size` ranks by node: node[i] is 0 for rank 0's node, then 1, 2, ... in order of first
 * appearance. Returns the number of nodes. The facts come from peers and are validated first:
 * GW_ERR_INVALID.
 */
GW_API gw_status_t gw_node_group(const gw_node_facts_t *facts, int size, int *node, int *nodes);

/*
 * The interface that rank `rank` uses for this communicator: one whose network reaches every other
 * node of the communicator (same subnet as an interface of theirs, else routed), never a loopback
 * or bridge for remote peers; IPv4 before IPv6; among several the nearest to the rank, then the
 * fastest, then the first. Ranks of one node: the loopback will do. Same result for a rank wherever
 * it is computed. GW_ERR_NO_DEVICE lists what was tried in `why`.
 */
GW_API gw_status_t gw_node_choose_iface(const gw_node_facts_t *facts, int size, int rank,
                                        char *name, size_t name_size, char *why, size_t why_size);

#endif
