/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI transport's table, and the life of a link: a communicator of our own inside MPI. */
#include "mpi_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TURN_US = 1000,
    GRACE_S = 1, /* how long close waits for peers after a failure */
};

typedef struct address {
    uint32_t magic, rank, size, zero;
    gw__mpi_process_t process;
} address_t;

static gw_status_t mpi_probe(char *why, size_t size)
{
    char unused[1];
    return size ? gw__mpi_bind(why, size) : gw__mpi_bind(unused, sizeof unused);
}

/*
 * MPI_Comm_dup would copy the application's attributes and run its callbacks; MPI_Comm_create takes
 * over the ranks and their order only. Collective.
 */
static bool comm_create(MPI_Comm parent, MPI_Comm *out)
{
    MPI_Group group;
    *out = gw__mpi.comm_null;
    if (gw__mpi.Comm_group(parent, &group) != MPI_SUCCESS)
        return false;
    int rc = gw__mpi.Comm_create(parent, group, out);
    gw__mpi.Group_free(&group);
    return rc == MPI_SUCCESS && *out != gw__mpi.comm_null &&
           gw__mpi.Comm_set_errhandler(*out, gw__mpi.errors_return) == MPI_SUCCESS;
}

static void link_free(gw_link_t *link)
{
    free(link->finished);
    free(link->statuses);
    free(link->indices);
    free(link->slots);
    free(link->requests);
    free(link->peers);
    free(link);
}

static gw_link_t *link_new(const gw_link_params_t *params)
{
    gw_link_t *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    link->params = *params;
    link->owner = getpid();
    /* Each direction with each peer has its share. */
    size_t peers = (size_t)params->size;
    size_t capacity = 2 * GW__MPI_IN_FLIGHT * peers;
    link->peers = calloc(peers, sizeof *link->peers);
    link->requests = calloc(capacity, sizeof *link->requests);
    link->slots = calloc(capacity, sizeof *link->slots);
    link->indices = calloc(capacity, sizeof *link->indices);
    link->statuses = calloc(capacity, sizeof *link->statuses);
    link->finished = calloc(capacity, sizeof *link->finished);
    if (link->peers && link->requests && link->slots && link->indices && link->statuses &&
        link->finished)
        return link;
    link_free(link);
    return NULL;
}

/* The collective step comes before all that may fail on one rank alone. A communicator that is not
 * wanted then stays: freeing it is collective as well. */
static gw_status_t mpi_open(const gw_link_params_t *params, gw_link_t **out)
{
    char why[256];
    MPI_Comm comm;
    int rank = -1, size = -1;
    if (!params->mpi_comm)
        return GW_ERR_INVALID;
    gw_status_t status = gw__mpi_bind(why, sizeof why);
    if (status != GW_OK) {
        params->log(params->log_arg, GW_LOG_WARN, "mpi: %s", why);
        return status;
    }
    if (!comm_create(*(const MPI_Comm *)params->mpi_comm, &comm)) {
        params->log(params->log_arg, GW_LOG_WARN, "mpi: MPI makes no communicator for Gradwire");
        return GW_ERR_IO;
    }
    gw__mpi.Comm_rank(comm, &rank);
    gw__mpi.Comm_size(comm, &size);
    if (rank != params->rank || size != params->size) {
        params->log(params->log_arg, GW_LOG_WARN,
                    "mpi: rank %d of %d is rank %d of %d in the MPI communicator given",
                    params->rank, params->size, rank, size);
        return GW_ERR_INVALID;
    }
    gw_link_t *link = link_new(params);
    if (!link)
        return GW_ERR_NO_MEMORY;
    link->comm = comm;
    *out = link;
    return GW_OK;
}

static gw_status_t mpi_address(gw_link_t *link, void *out, size_t *length)
{
    address_t address = {.magic = GW__MPI_MAGIC,
                         .rank = (uint32_t)link->params.rank,
                         .size = (uint32_t)link->params.size};
    size_t room = *length;
    *length = sizeof address;
    if (room < sizeof address)
        return GW_ERR_NO_SPACE;
    gw__mpi_watch_describe(&address.process);
    memcpy(out, &address, sizeof address);
    return GW_OK;
}

static gw_status_t mpi_connect(gw_link_t *link, const gw_address_t *addresses)
{
    gw__mpi_process_t own;
    gw__mpi_watch_describe(&own);
    for (int i = 0; i < link->params.size; i++) {
        address_t address;
        if (addresses[i].length != sizeof address)
            return GW_ERR_UNREACHABLE;
        memcpy(&address, addresses[i].bytes, sizeof address);
        if (address.magic != GW__MPI_MAGIC || address.rank != (uint32_t)i ||
            address.size != (uint32_t)link->params.size)
            return GW_ERR_UNREACHABLE;
        if (i != link->params.rank)
            gw__mpi_watch_begin(&link->peers[i], &address.process, &own);
    }
    return GW_OK;
}

static void mpi_cancel(gw_link_t *link, gw_request_t *req)
{
    if (req->status != GW_IN_PROGRESS)
        return;
    link->canceled = true;
    gw__mpi_cancel_send(link, req);
    gw__mpi_cancel_recv(link, req);
}

static const char *mpi_describe(gw_link_t *link, int peer)
{
    return gw__mpi.version;
}

/* ---- The end ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether all peers have said BYE and MPI has nothing of this rank's any more. */
static bool all_said(const gw_link_t *link)
{
    if (link->active > 0 || link->waiting)
        return false;
    for (int i = 0; i < link->params.size; i++)
        if (i != link->params.rank && !link->peers[i].left)
            return false;
    return true;
}

/* Whether waiting for BYEs is of no use: those that are missing are of lost peers. */
static bool hopeless(const gw_link_t *link)
{
    if (link->broken)
        return true;
    if (link->active > 0 || link->waiting)
        return false;
    for (int i = 0; i < link->params.size; i++)
        if (i != link->params.rank && !link->peers[i].left && link->peers[i].lost == GW_OK)
            return false;
    return true;
}

/* Says BYE to all and hears theirs, as long as it takes within the bound. */
static bool part(gw_link_t *link)
{
    double patience = link->params.timeout;
    if (link->canceled && patience > GRACE_S)
        patience = GRACE_S;
    double until = now() + patience;
    for (int i = 0; i < link->params.size; i++) {
        gw__mpi_peer_t *peer = &link->peers[i];
        if (i == link->params.rank)
            continue;
        peer->bye = peer->lost == GW_OK || peer->left;
        gw__mpi_push(link, i);
    }
    gw__mpi_push_all(link);
    while (!all_said(link) && !hopeless(link) && now() < until)
        if (gw__mpi_progress(link) == 0)
            gw__mpi_wait(link, TURN_US);
    return all_said(link);
}

static void drop_messages(gw__mpi_peer_t *peer)
{
    while (peer->early) {
        gw__mpi_fragment_t *message = peer->early;
        peer->early = message->message;
        while (message) {
            gw__mpi_fragment_t *next = message->next;
            gw__mpi_fragment_put(message);
            message = next;
        }
    }
}

/*
 * The communicator is freed when all ranks have said BYE: each of them is then in its close, so the
 * call is collective as MPI wants it, and no message is left that a later communicator of the same
 * number could meet. Otherwise it stays, and with it the fragments that MPI works on.
 */
static gw_status_t mpi_close(gw_link_t *link)
{
    bool ours = link->owner == getpid() && gw__mpi_alive();
    bool over = ours && part(link);
    for (int i = 0; i < link->active; i++)
        gw__mpi_fragment_park(link->slots[i].fragment);
    for (int i = 0; i < link->params.size; i++)
        drop_messages(&link->peers[i]);
    if (over)
        gw__mpi.Comm_free(&link->comm);
    link_free(link);
    return GW_OK;
}

static const gw_transport_t transport = {
    .abi = GW_TRANSPORT_ABI,
    .name = "mpi",
    .summary = "point to point of the application's MPI",
    .probe = mpi_probe,
    .open = mpi_open,
    .address = mpi_address,
    .connect = mpi_connect,
    .send = gw__mpi_send,
    .recv = gw__mpi_recv,
    .progress = gw__mpi_progress,
    .wait = gw__mpi_wait,
    .cancel = mpi_cancel,
    .describe = mpi_describe,
    .close = mpi_close,
    .flags = GW_TRANSPORT_CALLER_ONLY | GW_TRANSPORT_OVER_MPI,
};

GW_API const gw_transport_t *gw_transport_module(void);

const gw_transport_t *gw_transport_module(void)
{
    return &transport;
}
