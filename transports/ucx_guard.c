/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard of a link: keeps strangers from the TCP ports that UCX listens on, with a filter on the
 * listening sockets. UCX takes a stranger who sends its magic number for a peer: wrong bytes after
 * it end the process, and right ones write to its memory. Three states:
 *
 *   closed, from the making of the worker until connect(): nobody connects;
 *   open, while connections are made: the hosts of the ranks may connect;
 *   sealed, once all connections stand: nobody connects.
 *
 * Only sockets of this link's worker are touched, nothing that UCX shares with the program.
 */
#define _GNU_SOURCE /* accept4 */
#include "ucx_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SILENCE_NS UINT64_C(2000000000)

typedef struct sockaddr_storage address_t;

void gw__ucx_each_descriptor(void (*visit)(void *arg, int fd), void *arg)
{
    DIR *directory = opendir("/proc/self/fd");
    if (!directory)
        return;
    for (const struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.')
            visit(arg, atoi(entry->d_name));
    closedir(directory);
}

static bool option_is_set(int fd, int option)
{
    int value = 0;
    socklen_t length = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 && value;
}

/* The local address of a TCP socket; false for anything else. */
static bool local_address(int fd, address_t *out)
{
    socklen_t length = sizeof(*out);
    memset(out, 0, sizeof(*out));
    return getsockname(fd, (struct sockaddr *)out, &length) == 0 &&
           (out->ss_family == AF_INET || out->ss_family == AF_INET6);
}

static const uint8_t *host_of(const address_t *address, size_t *length)
{
    bool v4 = address->ss_family == AF_INET;
    *length = v4 ? 4 : 16;
    return v4 ? (const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr
              : (const uint8_t *)&((const struct sockaddr_in6 *)address)->sin6_addr;
}

static const uint8_t *port_of(const address_t *address)
{
    return (const uint8_t *)(address->ss_family == AF_INET
                                 ? &((const struct sockaddr_in *)address)->sin_port
                                 : &((const struct sockaddr_in6 *)address)->sin6_port);
}

static bool same_address(const address_t *a, const address_t *b)
{
    size_t length = 0;
    return a->ss_family == b->ss_family && !memcmp(port_of(a), port_of(b), 2) &&
           !memcmp(host_of(a, &length), host_of(b, &length), length);
}

/* ---- Which sockets are ours
 * ----------------------------------------------------------------------------- */

static void note_listener(void *arg, int fd)
{
    ucx_guard_t *guard = arg;
    address_t address;
    if (guard->before_count == GW__UCX_LISTENERS_BEFORE || !option_is_set(fd, SO_ACCEPTCONN) ||
        !local_address(fd, &address))
        return;
    guard->before[guard->before_count++] = address;
}

void gw__ucx_guard_begin(ucx_guard_t *guard)
{
    guard->before = calloc(GW__UCX_LISTENERS_BEFORE, sizeof(*guard->before));
    guard->before_count = 0;
    if (guard->before)
        gw__ucx_each_descriptor(note_listener, guard);
}

static bool contains(const uint8_t *text, size_t length, const uint8_t *part, size_t part_length)
{
    return memmem(text, length, part, part_length) != NULL;
}

static bool is_loopback(const address_t *address)
{
    size_t length;
    const uint8_t *host = host_of(address, &length);
    return length == 4 ? host[0] == 127 : IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)host);
}

typedef struct search {
    ucx_guard_t *guard;
    const uint8_t *worker; /* UCX's address of the worker */
    size_t length;
} search_t;

/*
 * UCX's listening sockets are those that appeared while the worker was made, and whose address the
 * worker's own address tells: the port, and the host unless it is the loopback. That tells them
 * from a socket that the program opened meanwhile.
 */
static void take_listener(void *arg, int fd)
{
    search_t *search = arg;
    ucx_guard_t *guard = search->guard;
    address_t address;
    size_t length;
    if (guard->count == GW__UCX_LISTENERS_MAX || !option_is_set(fd, SO_ACCEPTCONN) ||
        !local_address(fd, &address) || !(fcntl(fd, F_GETFL) & O_NONBLOCK))
        return;
    const uint8_t *host = host_of(&address, &length);
    if (!contains(search->worker, search->length, port_of(&address), 2) ||
        (!is_loopback(&address) && !contains(search->worker, search->length, host, length)))
        return;
    for (int i = 0; i < guard->before_count; i++)
        if (same_address(&guard->before[i], &address))
            return;
    guard->listener[guard->count++] = (ucx_listener_t){fd, address};
}

/* UCX gives a listening socket up when it cannot accept, and its number may be another's by now. */
static bool still_listens(const ucx_listener_t *listener)
{
    address_t address;
    return option_is_set(listener->fd, SO_ACCEPTCONN) && local_address(listener->fd, &address) &&
           same_address(&address, &listener->address);
}

/* ---- Filters
 * -------------------------------------------------------------------------------------------- */

static void attach(gw_link_t *link, struct sock_filter *code, int length)
{
    struct sock_fprog program = {.len = (unsigned short)length, .filter = code};
    for (int i = 0; i < link->guard.count; i++)
        if (still_listens(&link->guard.listener[i]) &&
            setsockopt(link->guard.listener[i].fd, SOL_SOCKET, SO_ATTACH_FILTER, &program,
                       sizeof(program)) != 0)
            link->params.log(link->params.log_arg, GW_LOG_WARN,
                             "ucx: cannot keep strangers from its listening port: %s",
                             strerror(errno));
}

static void attach_closed(gw_link_t *link)
{
    struct sock_filter code[GW__UCX_FILTER_MAX];
    attach(link, code, gw__ucx_filter_closed(code));
}

/* ---- Connections that stand already
 * --------------------------------------------------------------------- */

/* Those that UCX has not seen yet. */
static void refuse_waiting(gw_link_t *link)
{
    for (int i = 0; i < link->guard.count; i++) {
        int fd = -1;
        while (still_listens(&link->guard.listener[i]) &&
               (fd = accept4(link->guard.listener[i].fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
            close(fd);
    }
}

/* Whether UCX accepted this connection from one of its listening sockets. */
static bool was_accepted(const ucx_guard_t *guard, int fd)
{
    address_t address, peer;
    socklen_t length = sizeof(peer);
    if (!local_address(fd, &address) || getpeername(fd, (struct sockaddr *)&peer, &length) != 0)
        return false;
    for (int i = 0; i < guard->count; i++)
        if (same_address(&guard->listener[i].address, &address))
            return true;
    return false;
}

static uint64_t bytes_received(int fd)
{
    struct tcp_info info;
    socklen_t length = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
        length < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(uint64_t))
        return UINT64_MAX;
    return info.tcpi_bytes_received;
}

/* UCX sees such a connection end, and closes it. */
static void cut(void *arg, int fd)
{
    if (was_accepted(arg, fd))
        shutdown(fd, SHUT_RDWR);
}

static void free_filter(int fd)
{
    int unused = 0;
    setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
}

/* Which of the connections there are belong to peers: they have sent a request by now, or will. */
static void sort_out(void *arg, int fd)
{
    ucx_guard_t *guard = arg;
    if (!was_accepted(guard, fd))
        return;
    if (bytes_received(fd) >= GW__UCX_REQUEST_MIN)
        free_filter(fd);
    else if (gw__ucx_now() < guard->patience)
        guard->undecided = true;
    else
        shutdown(fd, SHUT_RDWR);
}

/* ---- The states
 * ----------------------------------------------------------------------------------------- */

void gw__ucx_guard_close(gw_link_t *link)
{
    ucp_address_t *worker;
    size_t length;
    if (link->guard.before && ucp_worker_get_address(link->worker, &worker, &length) == UCS_OK) {
        search_t search = {&link->guard, (const uint8_t *)worker, length};
        gw__ucx_each_descriptor(take_listener, &search);
        ucp_worker_release_address(link->worker, worker);
    }
    free(link->guard.before);
    link->guard.before = NULL;
    attach_closed(link);
    /* Whoever came before the filter is no peer: nobody knows the address yet. UCX reads only in
     * progress(), so none of their bytes was looked at. */
    refuse_waiting(link);
    if (link->guard.count > 0)
        gw__ucx_each_descriptor(cut, &link->guard);
}

static void attach_open(gw_link_t *link, bool requests)
{
    struct sock_filter code[GW__UCX_FILTER_MAX];
    ucx_guard_t *guard = &link->guard;
    attach(
        link, code,
        gw__ucx_filter_open(guard->sources, guard->source_count, guard->loopback, requests, code));
}

void gw__ucx_guard_open(gw_link_t *link)
{
    if (link->guard.count > 0)
        attach_open(link, true);
}

/* Connections that UCX has not accepted. */
static bool has_waiting(const ucx_guard_t *guard)
{
    for (int i = 0; i < guard->count; i++) {
        struct pollfd poller = {.fd = guard->listener[i].fd, .events = POLLIN};
        if (still_listens(&guard->listener[i]) && poll(&poller, 1, 0) > 0)
            return true;
    }
    return false;
}

void gw__ucx_guard_sweep(gw_link_t *link)
{
    ucx_guard_t *guard = &link->guard;
    guard->undecided = false;
    if (gw__ucx_now() >= guard->patience)
        refuse_waiting(link);
    else
        guard->undecided = has_waiting(guard);
    gw__ucx_each_descriptor(sort_out, guard);
}

/*
 * With one listening socket a pair of hosts has one connection, which stands, for messages went
 * both ways; and those within this host began when the endpoints were made. So nobody who is not
 * here yet is expected. With several sockets (UCX_NET_DEVICES of the user) further connections may
 * be in the making between hosts: then hosts of ranks can connect as long as the link lives.
 *
 * The rule on segments must go, for long messages may hold any bytes: it ends for each connection
 * that has brought a whole request. Those that have not are looked at again by progress(), and are
 * cut when they have been silent for SILENCE_NS.
 */
void gw__ucx_guard_seal(gw_link_t *link)
{
    ucx_guard_t *guard = &link->guard;
    if (link->pid != getpid() || guard->count == 0)
        return;
    if (guard->count == 1)
        attach_closed(link);
    else
        attach_open(link, false);
    guard->patience = gw__ucx_now() + SILENCE_NS;
    gw__ucx_guard_sweep(link);
}
