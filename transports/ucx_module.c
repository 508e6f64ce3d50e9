/* SPDX-License-Identifier: Apache-2.0 */
/* The UCX transport as a module: probe, life cycle of a link, and the table that the library asks
 * for. */
#include "ucx_internal.h"

#include <dirent.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * Descriptors that a link may take. Measured with UCX 1.13: up to 12 and 2 for every rank (the
 * watch on its process, its socket), and for a moment a third where both ends connect at once. The
 * rest is for machines with more interfaces, and for the program itself.
 */
enum { DESCRIPTORS = 24, DESCRIPTORS_PER_RANK = 3 };

static gw_status_t ucx_probe(char *why, size_t size)
{
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    if (UCP_VERSION(major, minor) >= UCP_VERSION(UCP_API_MAJOR, UCP_API_MINOR)) {
        if (size)
            why[0] = '\0';
        return GW_OK;
    }
    snprintf(why, size,
             "UCX %u.%u.%u at run time is older than %u.%u, which the module was built with", major,
             minor, release, UCP_API_MAJOR, UCP_API_MINOR);
    return GW_ERR_NO_MODULE;
}

static gw_status_t refuse(const gw_link_t *link, ucs_status_t status)
{
    char text[224];
    gw__ucx_explain(status, text, sizeof(text));
    link->params.log(link->params.log_arg, GW_LOG_WARN, "ucx: no worker: %s", text);
    return gw__ucx_status(status);
}

static gw_status_t worker_open(gw_link_t *link)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    if (link->params.guard)
        gw__ucx_guard_begin(&link->guard);
    ucs_status_t status = ucp_worker_create(link->context->ucp, &params, &link->worker);
    if (status == UCS_OK && link->params.guard)
        gw__ucx_guard_close(link);
    if (status != UCS_OK) {
        link->worker = NULL;
        return refuse(link, status);
    }
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE};
    status = ucp_worker_query(link->worker, &attr);
    if (status == UCS_OK && attr.thread_mode == UCS_THREAD_MODE_SINGLE)
        return GW_ERR_NO_MODULE;
    if (status == UCS_OK)
        status = ucp_worker_get_efd(link->worker, &link->event_fd);
    return status == UCS_OK ? GW_OK : refuse(link, status);
}

static void link_free(gw_link_t *link)
{
    for (int i = 0; link->peers && i < link->params.size; i++)
        if (link->peers[i].watch >= 0)
            close(link->peers[i].watch);
    gw__ucx_slabs_free(link);
    free(link->guard.before);
    free(link->guard.sources);
    free(link->addresses);
    free(link->peers);
    free(link->devices);
    free(link);
}

static gw_link_t *link_new(const gw_link_params_t *params)
{
    gw_link_t *link = calloc(1, sizeof(*link));
    if (!link)
        return NULL;
    link->params = *params;
    link->pid = getpid();
    link->peers = calloc((size_t)params->size, sizeof(*link->peers));
    link->devices = params->devices ? strdup(params->devices) : NULL;
    link->params.devices = link->devices;
    if (params->secret)
        memcpy(&link->tag_key, params->secret, sizeof(link->tag_key));
    link->params.secret = NULL;
    for (int i = 0; link->peers && i < params->size; i++)
        link->peers[i] = (ucx_peer_t){.link = link, .rank = i, .watch = -1};
    if (link->peers && (link->devices || !params->devices))
        return link;
    link_free(link);
    return NULL;
}

/* Descriptors in use; 0 where the system does not tell. The directory's own is counted too. */
static size_t descriptors_used(void)
{
    size_t used = 0;
    DIR *directory = opendir("/proc/self/fd");
    if (!directory)
        return errno == EMFILE ? SIZE_MAX / 2 : 0;
    for (const struct dirent *entry; (entry = readdir(directory));)
        used += entry->d_name[0] != '.';
    closedir(directory);
    return used;
}

/* UCX ends the process when it finds no descriptor for a connection, so that must not come about.
 */
static gw_status_t descriptors_check(const gw_link_params_t *params)
{
    size_t need = DESCRIPTORS + DESCRIPTORS_PER_RANK * (size_t)params->size;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        descriptors_used() + need <= limit.rlim_cur)
        return GW_OK;
    params->log(params->log_arg, GW_LOG_WARN,
                "ucx: a communicator of %d ranks may need %zu file descriptors, and fewer are left "
                "of %llu; raise the limit (ulimit -n) or use fewer communicators",
                params->size, need, (unsigned long long)limit.rlim_cur);
    return GW_ERR_IO;
}

/* Whether nothing uses this port: neither a listening socket nor the rest of a connection. */
static bool port_is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    if (fd >= 0)
        close(fd);
    return is_free;
}

/* UCX tries ports of the range at random until one is free, and would never end when none is. Each
 * rank of the node needs one for each of its devices. */
static gw_status_t ports_check(const gw_link_t *link)
{
    const gw_link_params_t *params = &link->params;
    int need = params->local_ranks > 0 ? params->local_ranks : 1, found = 0;
    for (const char *c = params->devices ? params->devices : ""; *c; c++)
        need += *c == ',' ? (params->local_ranks > 0 ? params->local_ranks : 1) : 0;
    if (params->port_max == 0 || !link->context->network)
        return GW_OK;
    for (int port = params->port_min; port <= params->port_max && found < need; port++)
        found += port_is_free(port);
    if (found >= need)
        return GW_OK;
    params->log(params->log_arg, GW_LOG_WARN,
                "ucx: %d of the ports %d-%d (GRADWIRE_PORTS) are free, and %d are needed", found,
                params->port_min, params->port_max, need);
    return GW_ERR_NO_DEVICE;
}

static gw_status_t ucx_open(const gw_link_params_t *params, gw_link_t **out)
{
    if (params->size < 1 || params->size > 65536 || params->rank < 0 ||
        params->rank >= params->size)
        return GW_ERR_INVALID;
    gw_status_t status = descriptors_check(params);
    if (status != GW_OK)
        return status;
    gw_link_t *link = link_new(params);
    if (!link)
        return GW_ERR_NO_MEMORY;
    status = gw__ucx_context_get(&link->params, &link->context);
    if (status != GW_OK)
        goto free_link;
    status = ports_check(link);
    if (status == GW_OK)
        status = worker_open(link);
    if (status != GW_OK)
        goto put_context;
    *out = link;
    return GW_OK;
put_context:
    if (link->worker)
        ucp_worker_destroy(link->worker);
    gw__ucx_context_put(link->context);
free_link:
    link_free(link);
    return status;
}

static gw_status_t ucx_close(gw_link_t *link)
{
    /* A forked child has a copy of the memory, but the sockets and shared segments are its
     * parent's. */
    if (link->pid == getpid()) {
        if (link->worker) {
            gw__ucx_peers_close(link, gw__ucx_now() + (uint64_t)(link->params.timeout * 1e9));
            ucp_worker_destroy(link->worker);
        }
        gw__ucx_context_put(link->context);
    }
    link_free(link);
    return GW_OK;
}

static const char *ucx_describe(gw_link_t *link, int peer)
{
    return peer >= 0 && peer < link->params.size ? gw__ucx_peer_describe(&link->peers[peer]) : "";
}

static const gw_transport_t ucx = {
    .abi = GW_TRANSPORT_ABI,
    .name = "ucx",
    .summary = "UCX: TCP, InfiniBand and shared memory",
    .probe = ucx_probe,
    .open = ucx_open,
    .address = gw__ucx_address_pack,
    .connect = gw__ucx_address_unpack,
    .send = gw__ucx_send,
    .recv = gw__ucx_recv,
    .progress = gw__ucx_progress,
    .wait = gw__ucx_wait,
    .cancel = gw__ucx_cancel,
    .describe = ucx_describe,
    .close = ucx_close,
    .flags = GW_TRANSPORT_NETWORK,
    .seal = gw__ucx_guard_seal,
    .reach = gw__ucx_reach,
};

GW_API const gw_transport_t *gw_transport_module(void);

const gw_transport_t *gw_transport_module(void)
{
    return &ucx;
}
