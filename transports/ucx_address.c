/* SPDX-License-Identifier: Apache-2.0 */
/* The address that a rank gives to its peers: UCX's worker address in a header that is checked
 * before UCX sees it. */
#include "ucx_internal.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Layout, little-endian:
 *     0  magic "GWUX"
 *     4  revision, 2 bytes
 *     6  number of sources, 2 bytes; 65535: too many to tell. 4 bytes zero
 *    12  rank
 *    16  size of the communicator
 *    20  bytes of the worker address
 *    24  node: hash of boot id and host name
 *    32  process id, in
 *    36  ... this PID namespace
 *    44  flags: 1 = can use shared memory; 4 bytes
 *    48  hash of everything else
 *    56  worker address
 *    ..  sources: addresses of this host, from any of which this rank may connect; 17 bytes each
 */
enum {
    AT_MAGIC = 0,
    AT_REVISION = 4,
    AT_SOURCES = 6,
    AT_RANK = 12,
    AT_SIZE = 16,
    AT_LENGTH = 20,
    AT_NODE = 24,
    AT_PID = 32,
    AT_PID_SPACE = 36,
    AT_FLAGS = 44,
    AT_HASH = 48,
    HEADER = 56,
    SOURCE = 17,
    SOURCES_MAX = 32,
    ANYWHERE = 65535
};
#define MAGIC              0x58555747u
#define REVISION           2
#define FLAG_SHARED_MEMORY 1u

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* FNV-1a: finds accidents, not forgers. */
static uint64_t hash(uint64_t h, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t hash_address(const unsigned char *address, size_t length)
{
    uint64_t h = hash(UINT64_C(0xcbf29ce484222325), address, AT_HASH);
    return hash(h, address + HEADER, length - HEADER);
}

/* Ranks with an equal value can share memory: same kernel, same host name. */
static uint64_t node_id(void)
{
    char text[64] = "", host[256] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text));
    if (fd >= 0)
        close(fd);
    gethostname(host, sizeof(host) - 1);
    uint64_t h = hash(UINT64_C(0xcbf29ce484222325), text, got > 0 ? (size_t)got : 0);
    return hash(h, host, strlen(host));
}

/* Process ids mean something only among those who see the same ones. */
static uint64_t pid_space(void)
{
    char text[64];
    ssize_t got = readlink("/proc/self/ns/pid", text, sizeof(text));
    return got > 0 ? hash(UINT64_C(0xcbf29ce484222325), text, (size_t)got) : 0;
}

/* The source of one interface address; false for those from which no other host is reached. */
static bool source_of(const struct ifaddrs *entry, ucx_source_t *out)
{
    if (!entry->ifa_addr || entry->ifa_flags & IFF_LOOPBACK)
        return false;
    memset(out, 0, sizeof(*out));
    if (entry->ifa_addr->sa_family == AF_INET) {
        out->family = 4;
        memcpy(out->addr, &((const struct sockaddr_in *)(const void *)entry->ifa_addr)->sin_addr,
               4);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
        out->family = 6;
        memcpy(out->addr, &((const struct sockaddr_in6 *)(const void *)entry->ifa_addr)->sin6_addr,
               16);
    }
    return out->family != 0;
}

static bool known_source(const unsigned char *list, int count, const ucx_source_t *source)
{
    for (int i = 0; i < count; i++)
        if (list[i * SOURCE] == source->family &&
            !memcmp(list + i * SOURCE + 1, source->addr, sizeof(source->addr)))
            return true;
    return false;
}

/* All addresses of this host, for UCX binds none when it connects; ANYWHERE when that cannot be
 * told. */
static int list_sources(unsigned char list[SOURCES_MAX * SOURCE])
{
    struct ifaddrs *all;
    ucx_source_t source;
    int count = 0;
    if (getifaddrs(&all) != 0)
        return ANYWHERE;
    for (const struct ifaddrs *entry = all; entry && count != ANYWHERE; entry = entry->ifa_next) {
        if (!source_of(entry, &source) || known_source(list, count, &source))
            continue;
        if (count == SOURCES_MAX) {
            count = ANYWHERE;
            continue;
        }
        list[count * SOURCE] = source.family;
        memcpy(list + count++ * SOURCE + 1, source.addr, sizeof(source.addr));
    }
    freeifaddrs(all);
    return count;
}

gw_status_t gw__ucx_address_pack(gw_link_t *link, void *out, size_t *length)
{
    ucp_address_t *worker;
    if (link->pid != getpid() || !link->worker)
        return GW_ERR_UNSUPPORTED;
    size_t size, room = *length;
    ucs_status_t status = ucp_worker_get_address(link->worker, &worker, &size);
    if (status != UCS_OK)
        return gw__ucx_status(status);
    unsigned char *to = out, sources[SOURCES_MAX * SOURCE];
    int count = list_sources(sources);
    size_t tail = count == ANYWHERE ? 0 : (size_t)count * SOURCE;
    *length = HEADER + size + tail;
    if (room >= *length) {
        memset(to, 0, HEADER);
        put(to + AT_MAGIC, MAGIC, 4);
        put(to + AT_REVISION, REVISION, 2);
        put(to + AT_SOURCES, (uint64_t)count, 2);
        put(to + AT_RANK, (uint64_t)link->params.rank, 4);
        put(to + AT_SIZE, (uint64_t)link->params.size, 4);
        put(to + AT_LENGTH, size, 4);
        put(to + AT_NODE, node_id(), 8);
        put(to + AT_PID, (uint64_t)getpid(), 4);
        put(to + AT_PID_SPACE, pid_space(), 8);
        put(to + AT_FLAGS, link->context->shared_memory ? FLAG_SHARED_MEMORY : 0, 4);
        memcpy(to + HEADER, worker, size);
        memcpy(to + HEADER + size, sources, tail);
        put(to + AT_HASH, hash_address(to, *length), 8);
    }
    ucp_worker_release_address(link->worker, worker);
    return room < *length ? GW_ERR_NO_SPACE : GW_OK;
}

static size_t sources_of(const unsigned char *from)
{
    size_t count = (size_t)get(from + AT_SOURCES, 2);
    return count == ANYWHERE ? 0 : count;
}

/* Why an address cannot be used, or NULL. */
static const char *defect(const gw_link_t *link, int rank, const gw_address_t *address)
{
    const unsigned char *from = address->bytes;
    if (!from || address->length < HEADER || address->length > GW_TRANSPORT_ADDRESS_MAX)
        return "has a wrong length";
    if (get(from + AT_MAGIC, 4) != MAGIC)
        return "is none of Gradwire's UCX transport";
    if (get(from + AT_REVISION, 2) != REVISION)
        return "is of another revision";
    if (get(from + AT_LENGTH, 4) == 0 ||
        get(from + AT_LENGTH, 4) + sources_of(from) * SOURCE != address->length - HEADER)
        return "is truncated";
    if (get(from + AT_HASH, 8) != hash_address(from, address->length))
        return "was damaged on its way";
    if (get(from + AT_RANK, 4) != (uint64_t)rank ||
        get(from + AT_SIZE, 4) != (uint64_t)link->params.size)
        return "is that of another rank or communicator";
    return NULL;
}

static void read_source(const unsigned char *address, size_t i, ucx_source_t *out)
{
    const unsigned char *at = address + HEADER + get(address + AT_LENGTH, 4) + i * SOURCE;
    out->family = at[0];
    memcpy(out->addr, at + 1, sizeof(out->addr));
}

/* Takes what a peer tells of itself; its worker address goes to `copy`, its hosts behind it.
 * Returns the bytes that these take. */
static size_t peer_fill(gw_link_t *link, int rank, const unsigned char *from, unsigned char *copy)
{
    ucx_peer_t *peer = &link->peers[rank];
    size_t size = (size_t)get(from + AT_LENGTH, 4);
    memcpy(copy, from + HEADER, size);
    peer->address = copy;
    bool here = get(from + AT_NODE, 8) == node_id();
    /* Both sides must come to the same answer. */
    peer->local = (here || link->params.one_node) && link->context->shared_memory &&
                  (get(from + AT_FLAGS, 4) & FLAG_SHARED_MEMORY);
    bool visible = here && get(from + AT_PID_SPACE, 8) == pid_space();
    pid_t pid = (pid_t)get(from + AT_PID, 4);
    if (visible && pid > 0 && pid != getpid())
        peer->watch = gw__ucx_watch(pid);
    peer->hosts = (ucx_source_t *)(void *)(copy + size);
    peer->host_count = (int)sources_of(from);
    for (int i = 0; i < peer->host_count; i++)
        read_source(from, (size_t)i, &peer->hosts[i]);
    return size + (size_t)peer->host_count * sizeof(*peer->hosts);
}

/* Whether a rank shares our host: by name, or because it has the very same addresses. */
static bool on_this_host(const gw_link_t *link, const unsigned char *own, const unsigned char *from)
{
    size_t count = sources_of(own);
    return link->params.one_node || get(from + AT_NODE, 8) == node_id() ||
           (count > 0 && count == sources_of(from) &&
            !memcmp(own + HEADER + get(own + AT_LENGTH, 4),
                    from + HEADER + get(from + AT_LENGTH, 4), count * SOURCE));
}

/* Adds where a peer comes from. From another host nobody comes with an address that we have too,
 * like that of a bridge for containers. */
static void add_sources(ucx_guard_t *guard, const unsigned char *own, const unsigned char *from,
                        bool local)
{
    ucx_source_t source;
    for (size_t i = 0; i < sources_of(from); i++) {
        read_source(from, i, &source);
        if (local ||
            !known_source(own + HEADER + get(own + AT_LENGTH, 4), (int)sources_of(own), &source))
            guard->sources[guard->source_count++] = source;
    }
    guard->loopback |= local;
}

/* Lets those in that come from where the peers are. */
static void guard_open(gw_link_t *link, const gw_address_t *addresses)
{
    ucx_guard_t *guard = &link->guard;
    const unsigned char *own = addresses[link->params.rank].bytes;
    size_t total = 0;
    bool anywhere = false;
    for (int i = 0; i < link->params.size; i++)
        total += sources_of(addresses[i].bytes);
    guard->sources = calloc(total + 1, sizeof(*guard->sources));
    for (int i = 0; guard->sources && i < link->params.size; i++) {
        const unsigned char *from = addresses[i].bytes;
        if (i == link->params.rank)
            continue;
        anywhere |= get(from + AT_SOURCES, 2) == ANYWHERE;
        add_sources(guard, own, from, on_this_host(link, own, from));
    }
    if (anywhere || !guard->sources)
        guard->source_count = -1;
    gw__ucx_guard_open(link);
}

gw_status_t gw__ucx_address_unpack(gw_link_t *link, const gw_address_t *addresses)
{
    size_t total = 0;
    if (link->addresses)
        return GW_ERR_INVALID;
    for (int i = 0; i < link->params.size; i++) {
        const char *what = defect(link, i, &addresses[i]);
        if (what) {
            link->params.log(link->params.log_arg, GW_LOG_WARN, "ucx: the address of rank %d %s", i,
                             what);
            return GW_ERR_UNREACHABLE;
        }
        const unsigned char *from = addresses[i].bytes;
        total += (size_t)get(from + AT_LENGTH, 4) + sources_of(from) * sizeof(ucx_source_t);
    }
    /* UCX reads worker addresses in place and keeps no copy. */
    unsigned char *memory = malloc(total);
    if (!memory)
        return GW_ERR_NO_MEMORY;
    link->addresses = memory;
    for (int i = 0; i < link->params.size; i++)
        memory += peer_fill(link, i, addresses[i].bytes, memory);
    if (link->params.guard)
        guard_open(link, addresses);
    return GW_OK;
}
