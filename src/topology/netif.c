/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the network interfaces of the live system: getifaddrs, /sys/class/net, the route tables. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology_int.h"

long gw__read_text(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t len = 0;
    while (len + 1 < size) {
        ssize_t n = read(fd, buf + len, size - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    buf[len] = '\0';
    return (long)len;
}

bool gw__addr_link_local(int family, const uint8_t *addr)
{
    if (family == 4)
        return addr[0] == 169 && addr[1] == 254;
    return addr[0] == 0xfe && (addr[1] & 0xc0) == 0x80;
}

static bool exists(const char *root, const char *name, const char *leaf)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", root, name, leaf);
    return access(path, F_OK) == 0;
}

/* Whether a card of this machine is below the interface: itself, a port of a bridge, the lower link
 * of a bond or VLAN. */
static bool has_hardware(const char *root, const char *name, int depth)
{
    if (exists(root, name, "device"))
        return true;
    if (depth == 0)
        return false;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    DIR *dir = opendir(path);
    if (!dir)
        return false;
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(dir));)
        if (strncmp(e->d_name, "lower_", 6) == 0)
            found = has_hardware(root, e->d_name + 6, depth - 1);
    closedir(dir);
    return found;
}

/* Names that container and virtual-machine managers give to their inner bridges. */
static bool name_of_bridge(const char *name)
{
    static const char *const prefixes[] = {"docker", "virbr", "br-",    "cni",
                                           "lxcbr",  "lxdbr", "podman", "incusbr"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

void gw__netif_read_sysfs(const char *root, gw__netif_t *netif)
{
    char path[512], text[64];
    if (!exists(root, netif->name, "")) {
        netif->bridge = name_of_bridge(netif->name);
        return;
    }
    snprintf(path, sizeof path, "%s/%s/speed", root, netif->name);
    if (gw__read_text(path, text, sizeof text) > 0) {
        long speed = strtol(text, NULL, 10); /* -1 or an error: the driver does not know */
        netif->speed_mbit = speed > 0 && speed < 100000000 ? (uint32_t)speed : 0;
    }
    snprintf(path, sizeof path, "%s/%s/type", root, netif->name);
    if (gw__read_text(path, text, sizeof text) > 0)
        netif->infiniband = strtol(text, NULL, 10) == 32; /* ARPHRD_INFINIBAND */
    netif->virtual_link = !exists(root, netif->name, "device");
    netif->infiniband = netif->infiniband || exists(root, netif->name, "device/infiniband");
    netif->bridge = exists(root, netif->name, "bridge") && !has_hardware(root, netif->name, 4);
}

static gw__netif_t *by_name(gw__netif_t *netifs, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(netifs[i].name, name) == 0)
            return &netifs[i];
    return NULL;
}

static const char *next_line(const char *text)
{
    const char *end = strchr(text, '\n');
    return end ? end + 1 : text + strlen(text);
}

void gw__netif_read_routes4(const char *text, gw__netif_t *netifs, int count)
{
    enum { UP = 0x1, GATEWAY = 0x2, REJECT = 0x200 };
    for (; *text; text = next_line(text)) {
        char name[32];
        unsigned dest, gateway, flags, mask;
        if (sscanf(text, "%31s %x %x %x %*u %*u %*u %x", name, &dest, &gateway, &flags, &mask) != 5)
            continue; /* the heading */
        gw__netif_t *netif = by_name(netifs, count, name);
        if (!netif || !(flags & UP) || (flags & REJECT))
            continue;
        netif->default4 = netif->default4 || (dest == 0 && mask == 0);
        netif->gateway4 = netif->gateway4 || (flags & GATEWAY);
    }
}

void gw__netif_read_routes6(const char *text, gw__netif_t *netifs, int count)
{
    enum { UP = 0x1, GATEWAY = 0x2, REJECT = 0x200 };
    for (; *text; text = next_line(text)) {
        char dest[40], name[32];
        unsigned prefix, flags;
        if (sscanf(text, "%39s %x %*s %*x %*s %*x %*x %*x %x %31s", dest, &prefix, &flags, name) !=
            4)
            continue;
        gw__netif_t *netif = by_name(netifs, count, name);
        if (!netif || !(flags & UP) || (flags & REJECT))
            continue;
        bool any = prefix == 0 && strspn(dest, "0") == strlen(dest);
        netif->default6 = netif->default6 || any;
        netif->gateway6 = netif->gateway6 || (flags & GATEWAY);
    }
}

static uint8_t prefix_bits(const uint8_t *mask, size_t bytes)
{
    uint8_t bits = 0;
    for (size_t i = 0; i < bytes; i++)
        bits = (uint8_t)(bits + __builtin_popcount(mask[i]));
    return bits;
}

/* Keeps the first address of a family, but a routable one rather than a link-local one. */
static void take_address(gw__netif_t *netif, const struct ifaddrs *a)
{
    if (a->ifa_addr->sa_family == AF_INET) {
        const uint8_t *addr = (const uint8_t *)&((struct sockaddr_in *)a->ifa_addr)->sin_addr;
        if (netif->has4 && !(gw__addr_link_local(4, netif->addr4) && !gw__addr_link_local(4, addr)))
            return;
        netif->has4 = true;
        memcpy(netif->addr4, addr, 4);
        netif->prefix4 =
            a->ifa_netmask
                ? prefix_bits((uint8_t *)&((struct sockaddr_in *)a->ifa_netmask)->sin_addr, 4)
                : 32;
    } else if (a->ifa_addr->sa_family == AF_INET6) {
        const uint8_t *addr = (const uint8_t *)&((struct sockaddr_in6 *)a->ifa_addr)->sin6_addr;
        if (netif->has6 && !(gw__addr_link_local(6, netif->addr6) && !gw__addr_link_local(6, addr)))
            return;
        netif->has6 = true;
        memcpy(netif->addr6, addr, 16);
        netif->prefix6 =
            a->ifa_netmask
                ? prefix_bits((uint8_t *)&((struct sockaddr_in6 *)a->ifa_netmask)->sin6_addr, 16)
                : 128;
    }
}

/* One entry per interface; an address label such as "eth0:1" belongs to eth0. */
static gw_status_t gather(const struct ifaddrs *list, gw__netif_t *netifs, int *count)
{
    for (const struct ifaddrs *a = list; a; a = a->ifa_next) {
        char name[16];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(a->ifa_name, ":"), a->ifa_name);
        gw__netif_t *netif = by_name(netifs, *count, name);
        if (!netif) {
            netif = &netifs[(*count)++];
            memcpy(netif->name, name, sizeof name);
            netif->up = (a->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
            netif->loopback = a->ifa_flags & IFF_LOOPBACK;
        }
        if (a->ifa_addr)
            take_address(netif, a);
    }
    return GW_OK;
}

static void read_routes(const char *path, gw__netif_t *netifs, int count,
                        void (*parse)(const char *, gw__netif_t *, int))
{
    enum { SIZE = 256 * 1024 };
    char *text = malloc(SIZE);
    if (text && gw__read_text(path, text, SIZE) > 0)
        parse(text, netifs, count);
    free(text);
}

gw_status_t gw__netif_list(gw__netif_t **out, int *count)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        return GW_ERR_IO;
    size_t entries = 1;
    for (struct ifaddrs *a = list; a; a = a->ifa_next)
        entries++;
    gw__netif_t *netifs = calloc(entries, sizeof *netifs);
    if (!netifs) {
        freeifaddrs(list);
        return GW_ERR_NO_MEMORY;
    }
    int n = 0;
    gather(list, netifs, &n);
    freeifaddrs(list);
    read_routes("/proc/net/route", netifs, n, gw__netif_read_routes4);
    read_routes("/proc/net/ipv6_route", netifs, n, gw__netif_read_routes6);
    for (int i = 0; i < n; i++) {
        gw__netif_read_sysfs("/sys/class/net", &netifs[i]);
        if (netifs[i].default4 || netifs[i].default6)
            netifs[i].bridge = false; /* what carries the default route leads out */
    }
    *out = netifs;
    *count = n;
    return GW_OK;
}
