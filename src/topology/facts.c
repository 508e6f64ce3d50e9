/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of one rank that the others need: on which node it runs and how that node can be
 * reached. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology_int.h"

gw_status_t gw__why(char *why, size_t size, gw_status_t status, const char *format, ...)
{
    if (why && size > 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(why, size, format, args);
        va_end(args);
    }
    return status;
}

void gw__addr_print(int family, const uint8_t *addr, int prefix, char *out, size_t size)
{
    char text[INET6_ADDRSTRLEN];
    inet_ntop(family == 4 ? AF_INET : AF_INET6, addr, text, sizeof text);
    snprintf(out, size, "%s/%d", text, prefix);
}

/* FNV-1a, 64 bits: equal input, equal id; nothing here needs a secret. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u;
}

static uint64_t hash_link(uint64_t hash, const char *path)
{
    char text[64];
    ssize_t n = readlink(path, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return hash_text(hash, text);
}

/*
 * Equal host names do not make a node: containers share them. Equal boot ids do not either: ranks
 * in different network namespaces of one machine are as far apart as two machines. Without /proc
 * the name is what remains.
 */
static uint64_t node_id(const char *host)
{
    char boot[64] = "";
    uint64_t hash = 0xcbf29ce484222325u;
    bool known = gw__read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot) > 0;
    hash = hash_text(hash, boot);
    hash = hash_link(hash, "/proc/self/ns/net");
    hash = hash_link(hash, "/proc/self/ns/uts");
    return known ? hash : hash_text(hash, host);
}

static uint8_t flags_of(const gw__netif_t *netif, int family, const uint8_t *addr)
{
    bool v4 = family == 4;
    return (uint8_t)((netif->loopback ? GW_IFACE_LOOPBACK : 0) |
                     (netif->bridge ? GW_IFACE_BRIDGE : 0) |
                     (gw__addr_link_local(family, addr) ? GW_IFACE_LINK_LOCAL : 0) |
                     (netif->infiniband ? GW_IFACE_INFINIBAND : 0) |
                     ((v4 ? netif->default4 : netif->default6) ? GW_IFACE_DEFAULT_ROUTE : 0) |
                     ((v4 ? netif->gateway4 : netif->gateway6) ? GW_IFACE_GATEWAY : 0));
}

static uint8_t distance_of(const gw_topology_t *topology, const char *name)
{
    gw_topo_device_t device;
    for (int i = 0; topology && gw_topology_device(topology, i, &device) == GW_OK; i++)
        if (device.kind == GW_DEVICE_NIC && strcmp(device.name, name) == 0)
            return (uint8_t)gw_topology_distance(topology, i, NULL);
    return 3;
}

/* What an address is worth when there are more than fit: lower is better. */
static int worth(const gw_node_iface_t *iface)
{
    if (iface->flags & GW_IFACE_LOOPBACK)
        return 1; /* ranks of one node need it */
    if (iface->flags & (GW_IFACE_BRIDGE | GW_IFACE_LINK_LOCAL))
        return 2;
    return 0;
}

/* All entries in order of worth, then of the kernel; as many as fit. */
static void keep_best(const gw_node_iface_t *all, int count, gw_node_facts_t *out)
{
    int kept = 0;
    bool has_loopback = false;
    for (int i = 0; i < count; i++)
        has_loopback = has_loopback || worth(&all[i]) == 1;
    for (int w = 0; w <= 2; w++)
        for (int i = 0; i < count; i++) {
            /* one place stays free for a loopback */
            int limit = GW_NODE_FACTS_IFACES - (w == 0 && has_loopback);
            if (worth(&all[i]) == w && kept < limit)
                out->iface[kept++] = all[i];
        }
    out->iface_count = (uint16_t)kept;
}

static gw_node_iface_t make_iface(const gw_topology_t *topology, const gw__netif_t *netif,
                                  int family, bool named)
{
    const uint8_t *addr = family == 4 ? netif->addr4 : netif->addr6;
    gw_node_iface_t iface = {
        .family = (uint8_t)family,
        .prefix = family == 4 ? netif->prefix4 : netif->prefix6,
        .flags = (uint8_t)(flags_of(netif, family, addr) | (named ? GW_IFACE_NAMED : 0)),
        .distance = distance_of(topology, netif->name),
        .speed_mbit = netif->speed_mbit};
    memcpy(iface.name, netif->name, sizeof iface.name);
    memcpy(iface.addr, addr, family == 4 ? 4 : 16);
    return iface;
}

static void list_names(const gw__netif_t *netifs, int count, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < count && len < size; i++) {
        char addr[64] = "no address";
        if (netifs[i].has4)
            gw__addr_print(4, netifs[i].addr4, netifs[i].prefix4, addr, sizeof addr);
        else if (netifs[i].has6)
            gw__addr_print(6, netifs[i].addr6, netifs[i].prefix6, addr, sizeof addr);
        len += (size_t)snprintf(out + len, size - len, "%s%s (%s%s)", len ? ", " : "",
                                netifs[i].name, addr, netifs[i].up ? "" : ", down");
    }
}

gw_status_t gw__facts_fill(const gw_topology_t *topology, const gw__netif_t *netifs, int count,
                           const char *interfaces, gw_node_facts_t *out, char *why, size_t why_size)
{
    gw__ifilter_t filter;
    gw_status_t status = gw__ifilter_parse(interfaces, &filter, why, why_size);
    if (status != GW_OK)
        return status;
    gw_node_iface_t *all = calloc(2 * (size_t)count + 1, sizeof *all);
    if (!all)
        return GW_ERR_NO_MEMORY;
    int n = 0;
    bool named = filter.count > 0 && !filter.avoid;
    for (int i = 0; i < count; i++) {
        const gw__netif_t *netif = &netifs[i];
        if (!netif->up)
            continue;
        if (netif->has4 && gw__ifilter_pass(&filter, netif->name, 4, netif->addr4))
            all[n++] = make_iface(topology, netif, 4, named);
        if (netif->has6 && gw__ifilter_pass(&filter, netif->name, 6, netif->addr6))
            all[n++] = make_iface(topology, netif, 6, named);
    }
    if (n > 0)
        keep_best(all, n, out);
    free(all);
    if (n == 0 && filter.count > 0) {
        char names[512];
        list_names(netifs, count, names, sizeof names);
        return gw__why(why, why_size, GW_ERR_NO_DEVICE,
                       "GRADWIRE_INTERFACES=%.80s leaves no interface; there are: %s", interfaces,
                       names[0] ? names : "none");
    }
    return GW_OK;
}

/* How many CPUs this process may use: never more than its binding. */
static uint32_t cpus_of_process(const gw_topology_t *topology)
{
    gw_topo_summary_t summary = {0};
    if (topology)
        gw_topology_summary(topology, &summary);
    if (summary.cpus_allowed > 0)
        return (uint32_t)summary.cpus_allowed;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

gw_status_t gw_node_facts_collect(const gw_topology_t *topology, const char *interfaces,
                                  gw_node_facts_t *out, char *why, size_t why_size)
{
    if (!out)
        return gw__why(why, why_size, GW_ERR_INVALID, "no place for the facts");
    gw_node_facts_t facts = {.version = 1};
    if (gethostname(facts.host, sizeof facts.host - 1) != 0 || facts.host[0] == '\0')
        strcpy(facts.host, "unknown");
    facts.node_id = node_id(facts.host);
    facts.cpus_allowed = cpus_of_process(topology);
    gw__netif_t *netifs;
    int count;
    gw_status_t status = gw__netif_list(&netifs, &count);
    if (status != GW_OK)
        return gw__why(why, why_size, status, "the network interfaces could not be read: %s",
                       gw_status_text(status));
    status = gw__facts_fill(topology, netifs, count, interfaces, &facts, why, why_size);
    free(netifs);
    if (status == GW_OK)
        *out = facts;
    return status;
}

/* A name that can be printed: ended, not empty, no control characters. */
static bool good_name(const char *name, size_t size)
{
    size_t len = strnlen(name, size);
    if (len == 0 || len == size)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isgraph((unsigned char)name[i]))
            return false;
    return true;
}

gw_status_t gw__facts_check(const gw_node_facts_t *facts, int rank, char *why, size_t why_size)
{
    const char *bad = NULL;
    if (facts->version != 1)
        bad = "an unknown version";
    else if (!good_name(facts->host, sizeof facts->host))
        bad = "a host name that is not text";
    else if (facts->iface_count > GW_NODE_FACTS_IFACES)
        bad = "too many interfaces";
    for (int i = 0; !bad && i < facts->iface_count; i++) {
        const gw_node_iface_t *iface = &facts->iface[i];
        if (iface->family == 0)
            continue;
        if (iface->family != 4 && iface->family != 6)
            bad = "an unknown address family";
        else if (iface->prefix > (iface->family == 4 ? 32 : 128))
            bad = "an impossible prefix length";
        else if (iface->distance > 3)
            bad = "an impossible distance";
        else if (!good_name(iface->name, sizeof iface->name))
            bad = "an interface name that is not text";
    }
    if (!bad)
        return GW_OK;
    return gw__why(why, why_size, GW_ERR_INVALID, "the facts of rank %d have %s", rank, bad);
}
