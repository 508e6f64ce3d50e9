/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the topology room share: interfaces of this system, checked XML, quiet hwloc.
 */
#ifndef GW_TOPOLOGY_INT_H
#define GW_TOPOLOGY_INT_H

#include <hwloc.h>

#include <gradwire/topology.h>

/* Fills `why` (may be NULL) and returns `status`, so that a caller can fail in one line. */
gw_status_t gw__why(char *why, size_t size, gw_status_t status, const char *format, ...)
    GW_PRINTF(4, 5);

/* ---- netif.c: the network interfaces of the live system ---- */

typedef struct gw__netif {
    char name[16];
    bool up, loopback, bridge, virtual_link, infiniband;
    bool default4, default6; /* the default route of the family leaves here */
    bool gateway4, gateway6; /* some route through a gateway does */
    uint8_t prefix4, prefix6;
    bool has4, has6;
    uint8_t addr4[4], addr6[16];
    uint32_t speed_mbit; /* 0: unknown */
} gw__netif_t;

/* All interfaces in the order of the kernel; free(*out). GW_ERR_IO, GW_ERR_NO_MEMORY. */
gw_status_t gw__netif_list(gw__netif_t **out, int *count);

/* Reads speed, bridge and kind of link below `root` ("/sys/class/net"). An interface that is not
 * there (sysfs of another network namespace) is judged by its name. */
void gw__netif_read_sysfs(const char *root, gw__netif_t *netif);

/* Marks the interfaces that the route tables name, given as the text of /proc/net/route and
 * /proc/net/ipv6_route. */
void gw__netif_read_routes4(const char *text, gw__netif_t *netifs, int count);
void gw__netif_read_routes6(const char *text, gw__netif_t *netifs, int count);

bool gw__addr_link_local(int family, const uint8_t *addr);

/* Reads a whole file of the kernel, at most size - 1 bytes, NUL-terminated; -1 when it cannot. */
long gw__read_text(const char *path, char *buf, size_t size);

/* ---- ifilter.c: the setting GRADWIRE_INTERFACES ---- */

typedef struct gw__ifilter_item {
    char name[16];  /* "" for a range of addresses */
    uint8_t family; /* 4, 6; 0 for a name */
    uint8_t prefix;
    uint8_t addr[16];
} gw__ifilter_item_t;

#define GW__IFILTER_MAX 32

typedef struct gw__ifilter {
    bool avoid;
    int count; /* 0: everything passes */
    gw__ifilter_item_t item[GW__IFILTER_MAX];
} gw__ifilter_t;

/* GW_ERR_BAD_SETTING with the item and the reason in `why`. */
gw_status_t gw__ifilter_parse(const char *text, gw__ifilter_t *out, char *why, size_t why_size);

/* Whether an interface passes with this address. */
bool gw__ifilter_pass(const gw__ifilter_t *filter, const char *name, int family,
                      const uint8_t *addr);

/* ---- facts.c ---- */

/* The same as gw_node_facts_collect from given interfaces; pure. `host` and `node_id` are kept. */
gw_status_t gw__facts_fill(const gw_topology_t *topology, const gw__netif_t *netifs, int count,
                           const char *interfaces, gw_node_facts_t *out, char *why,
                           size_t why_size);

/* GW_ERR_INVALID when a peer's facts cannot be what gw_node_facts_collect makes. */
gw_status_t gw__facts_check(const gw_node_facts_t *facts, int rank, char *why, size_t why_size);

bool gw__same_prefix(const uint8_t *a, const uint8_t *b, int bits);

/* "10.0.0.1/24" */
void gw__addr_print(int family, const uint8_t *addr, int prefix, char *out, size_t size);

/* ---- quiet.c: hwloc without side effects ---- */

/* hwloc_topology_init with plugins that touch drivers, X servers or libxml2 kept out. */
int gw__hwloc_init(hwloc_topology_t *out);

/* ---- xmlread.c: a small strict XML reader ---- */

typedef struct gw__xml_node {
    const char *tag;
    const char *text; /* the character data, "" when none */
    int line;
    int attr_count;
    const char **attr; /* name, value, name, value, ... */
    struct gw__xml_node *parent, *first, *last, *next;
} gw__xml_node_t;

typedef struct gw__xml {
    gw__xml_node_t *root;
    char *text;
    struct gw__xml_block *blocks;
} gw__xml_t;

/* Reads and parses the file; free with gw__xml_free also after an error. GW_ERR_IO, GW_ERR_INVALID,
 * GW_ERR_NO_MEMORY with file, line and reason. */
gw_status_t gw__xml_read(const char *path, gw__xml_t *out, char *why, size_t why_size);
void gw__xml_free(gw__xml_t *xml);
const char *gw__xml_attr(const gw__xml_node_t *node, const char *name);

/* ---- xmlmap.c, xmlemit.c: from the tree to text that hwloc can be trusted with ---- */

/* The file `path` checked and rewritten with consistent sets; free(*out). */
gw_status_t gw__xml_rewrite(const char *path, char **out, char *why, size_t why_size);

typedef enum gw__xml_class {
    GW__XML_MEMORY,
    GW__XML_NORMAL, /* has CPUs */
    GW__XML_IO
} gw__xml_class_t;

typedef struct gw__xml_object {
    const gw__xml_node_t *node;
    const char *type;
    gw__xml_class_t kind;
    int rank;     /* normal: Machine 0 to PU 4, Group -1; I/O: Bridge 0, PCIDev 1, OSDev 2 */
    int os_index; /* -1: none */
    int place;    /* in the file */
    hwloc_bitmap_t cpus, nodes;
    struct gw__xml_object *parent, *first, *next;
} gw__xml_object_t;

/* Writes the object and what is below it; -1 without memory. */
struct gw__text;
int gw__xml_emit(struct gw__text *text, const gw__xml_object_t *object, hwloc_const_bitmap_t cpus,
                 hwloc_const_bitmap_t nodes);
int gw__xml_emit_distances(struct gw__text *text, const gw__xml_node_t *node);

typedef struct gw__text {
    char *data;
    size_t len, size;
    bool failed;
} gw__text_t;

void gw__text_add(gw__text_t *text, const char *format, ...) GW_PRINTF(2, 3);

/* ---- devices.c ---- */

struct gw_topology {
    hwloc_topology_t hw;
    bool live; /* interfaces and bindings are those of this machine */
    char source[256];
    hwloc_bitmap_t allowed;
    gw_topo_device_t *devices;
    int device_count, device_size;
};

/* Lists NICs and GPUs of topology->hw, and with `live` the interfaces of the system. */
gw_status_t gw__devices_collect(gw_topology_t *topology);

#endif
