/* SPDX-License-Identifier: Apache-2.0 */
/* Messages over UCX's tag interface: start, progress, wait, cancel. */
#define _GNU_SOURCE /* ppoll */
#include "ucx_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CANCEL_NS                                                                                  \
    UINT64_C(200000000) /* how long cancel() waits before it gives the peer up, and once more      \
                            after that */
#define WATCH_NS UINT64_C(100000000) /* how often the processes of peers are looked at */

/* Operations come from slabs and go back to a free list: nothing is allocated once a link has been
 * busy. */
struct ucx_slab {
    ucx_slab_t *next;
    ucx_op_t ops[64];
};

uint64_t gw__ucx_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

void gw__ucx_slabs_free(gw_link_t *link)
{
    for (ucx_slab_t *slab = link->slabs, *next; slab; slab = next) {
        next = slab->next;
        free(slab);
    }
}

static ucx_op_t *op_get(gw_link_t *link)
{
    if (!link->free_ops) {
        ucx_slab_t *slab = calloc(1, sizeof(*slab));
        if (!slab)
            return NULL;
        slab->next = link->slabs;
        link->slabs = slab;
        for (size_t i = 0; i < sizeof(slab->ops) / sizeof(slab->ops[0]); i++) {
            slab->ops[i].next = link->free_ops;
            link->free_ops = &slab->ops[i];
        }
    }
    ucx_op_t *op = link->free_ops;
    link->free_ops = op->next;
    return op;
}

static void op_put(gw_link_t *link, ucx_op_t *op)
{
    op->next = link->free_ops;
    link->free_ops = op;
}

static void op_enlist(ucx_op_t *op, ucx_peer_t *peer)
{
    op->peer = peer;
    op->prev = NULL;
    op->next = peer->ops;
    if (peer->ops)
        peer->ops->prev = op;
    peer->ops = op;
}

static void op_delist(ucx_op_t *op)
{
    if (op->next)
        op->next->prev = op->prev;
    if (op->prev)
        op->prev->next = op->next;
    else
        op->peer->ops = op->next;
}

/*
 * The end of an operation, as its owner sees it. Parts of a sent message may still be in UCX's
 * queues; a flush would tell, but over TCP it waits for an answer of the peer, who may be waiting
 * for nothing any more. Whoever sends keeps progressing until the peer has confirmed (see the
 * contract).
 */
static void op_end(ucx_op_t *op)
{
    op_delist(op);
    op->req->handle = NULL;
    op->req->status = op->result;
    op->peer->link->events++;
    op_put(op->peer->link, op);
}

/* UCX's callbacks only put operations aside: what follows may call UCX again. */
static void put_aside(ucx_op_t *op)
{
    gw_link_t *link = op->peer->link;
    op->done = true;
    op->after = link->done;
    link->done = op;
}

static void end_done(gw_link_t *link)
{
    while (link->done) {
        ucx_op_t *op = link->done;
        link->done = op->after;
        if (op->req)
            op_end(op);
    }
}

/* The end of an operation that UCX had kept: called by UCX inside ucp_worker_progress and a few
 * others. */
static void op_done(ucx_op_t *op, void *request, ucs_status_t status, size_t length)
{
    ucp_request_free(request);
    if (!op->req)
        return;
    op->result = gw__ucx_status(status);
    if (op->result == GW_ERR_CANCELED)
        op->result = op->verdict;
    else if (op->result == GW_ERR_IO)
        op->result = GW_ERR_PEER_FAILED;
    op->req->length = length;
    op->request = NULL;
    put_aside(op);
}

void gw__ucx_op_abandon(ucx_op_t *op)
{
    op_delist(op);
    op->req->handle = NULL;
    op->req->status = op->done ? op->result : op->verdict;
    op->peer->link->events++;
    /* It does not go back to the free list: UCX still knows it. Its slab is freed with the link. */
    op->req = NULL;
}

static void on_sent(void *request, ucs_status_t status, void *op)
{
    op_done(op, request, status, 0);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *op)
{
    op_done(op, request, status, status == UCS_OK ? info->length : 0);
}

static gw_status_t settle(gw_request_t *req, gw_status_t status)
{
    req->status = status;
    return status;
}

/* The checks and the operation that sends and receives have in common. */
static gw_status_t start(gw_link_t *link, int peer, uint64_t tag, const void *data, size_t length,
                         gw_request_t *req, ucx_op_t **out)
{
    *req = (gw_request_t){.status = GW_IN_PROGRESS, .peer = peer};
    if (peer < 0 || peer >= link->params.size || peer == link->params.rank ||
        tag >> GW_TAG_BITS != 0 || (!data && length > 0))
        return GW_ERR_INVALID;
    if (link->pid != getpid() || !link->addresses)
        return GW_ERR_UNSUPPORTED;
    if (!link->worker)
        return GW_ERR_PEER_FAILED;
    ucx_op_t *op = op_get(link);
    if (!op)
        return GW_ERR_NO_MEMORY;
    *op = (ucx_op_t){.req = req, .verdict = GW_ERR_PEER_FAILED};
    op_enlist(op, &link->peers[peer]);
    *out = op;
    return GW_OK;
}

/* Takes what UCX returned: done already, failed, or to be finished by the callback. */
static gw_status_t begun(ucx_op_t *op, gw_request_t *req, ucs_status_ptr_t request)
{
    gw_link_t *link = op->peer->link;
    if (UCS_PTR_IS_PTR(request)) {
        op->request = op->done ? NULL : request;
        req->handle = op;
        end_done(link);
        return req->status;
    }
    op->result = gw__ucx_status(UCS_PTR_STATUS(request));
    if (op->result == GW_ERR_IO || op->result == GW_ERR_CANCELED)
        op->result = GW_ERR_PEER_FAILED;
    req->handle = op;
    op_end(op);
    return req->status;
}

/* Equal on both sides, different for different messages, and not to be guessed by who does not know
 * the link's key. */
static ucp_tag_t tag_of(const gw_link_t *link, int sender, uint64_t tag)
{
    return ((uint64_t)sender << GW_TAG_BITS | tag) ^ link->tag_key;
}

gw_status_t gw__ucx_send(gw_link_t *link, int peer, uint64_t tag, const void *data, size_t length,
                         gw_request_t *req)
{
    ucx_op_t *op;
    gw_status_t status = start(link, peer, tag, data, length, req, &op);
    if (status != GW_OK)
        return settle(req, status);
    status = gw__ucx_peer_open(&link->peers[peer]);
    if (status != GW_OK) {
        op_delist(op);
        op_put(link, op);
        return settle(req, status);
    }
    uint32_t hint =
        link->peers[peer].eager ? UCP_OP_ATTR_FLAG_FAST_CMPL : UCP_OP_ATTR_FLAG_MULTI_SEND;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_MEMORY_TYPE | hint,
                                 .cb.send = on_sent,
                                 .memory_type = UCS_MEMORY_TYPE_HOST,
                                 .user_data = op};
    return begun(op, req,
                 ucp_tag_send_nbx(link->peers[peer].ep, data, length,
                                  tag_of(link, link->params.rank, tag), &param));
}

gw_status_t gw__ucx_recv(gw_link_t *link, int peer, uint64_t tag, void *data, size_t capacity,
                         gw_request_t *req)
{
    ucx_op_t *op = NULL;
    gw_status_t status = start(link, peer, tag, data, capacity, req, &op);
    if (status != GW_OK)
        return settle(req, status);
    /* An endpoint is there to notice the loss of the peer. What a lost peer sent before can still
     * be received. */
    gw_status_t open = gw__ucx_peer_open(&link->peers[peer]);
    /* UCX 1.13 forgets to tell the length of a receive that is done at once: make it call back. */
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                     UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb.recv = on_received,
                                 .memory_type = UCS_MEMORY_TYPE_HOST,
                                 .user_data = op};
    op->receive = true;
    status = begun(op, req,
                   ucp_tag_recv_nbx(link->worker, data, capacity, tag_of(link, peer, tag),
                                    UINT64_MAX, &param));
    if (req->status == GW_IN_PROGRESS && open != GW_OK && !op->done) {
        op->verdict = open;
        ucp_request_cancel(link->worker, op->request);
    }
    return req->status;
}

static int events_of(gw_link_t *link)
{
    int events = link->events;
    link->events = 0;
    return events;
}

int gw__ucx_progress(gw_link_t *link)
{
    if (link->pid != getpid())
        return 0;
    if (!link->worker)
        return events_of(link);
    unsigned moved = ucp_worker_progress(link->worker);
    end_done(link);
    if (link->news || (moved == 0 && gw__ucx_now() >= link->next_watch)) {
        link->next_watch = gw__ucx_now() + WATCH_NS;
        gw__ucx_peers_check(link);
        if (link->guard.undecided)
            gw__ucx_guard_sweep(link);
    }
    int events = events_of(link);
    return events > 0 ? events : (int)moved;
}

void gw__ucx_wait(gw_link_t *link, int timeout_us)
{
    struct pollfd poller = {.fd = link->event_fd, .events = POLLIN};
    if (link->pid != getpid() || link->events || link->news)
        return;
    /* Not armed: something has happened since the last progress. */
    if (link->worker && ucp_worker_arm(link->worker) != UCS_OK)
        return;
    int64_t us = timeout_us > 0 ? timeout_us : 0;
    if (us > (int64_t)(WATCH_NS / 1000))
        us = (int64_t)(WATCH_NS / 1000);
    struct timespec limit = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    ppoll(&poller, 1, &limit, NULL);
}

/* Progresses until the request is final; false when that takes too long. */
static bool settled(gw_link_t *link, const gw_request_t *req)
{
    uint64_t until = gw__ucx_now() + CANCEL_NS;
    while (req->status == GW_IN_PROGRESS) {
        if (gw__ucx_now() >= until)
            return false;
        if (gw__ucx_progress(link) == 0)
            gw__ucx_wait(link, 1000);
    }
    return true;
}

/*
 * UCX can take back a receive that found no message yet, and nothing else. A send, or a receive
 * whose data is on its way, ends with its endpoint. Where an endpoint cannot be closed by force (a
 * peer on this node) it normally finishes in a moment; if not, it ends with the worker.
 *
 * One thing no call of UCX can prevent: a live peer on this node that has heard of a long message
 * may still read it from our memory.
 */
void gw__ucx_cancel(gw_link_t *link, gw_request_t *req)
{
    ucx_op_t *op = req->handle;
    if (req->status != GW_IN_PROGRESS || !op)
        return;
    if (link->pid != getpid()) {
        req->status = GW_ERR_CANCELED;
        return;
    }
    ucx_peer_t *peer = op->peer;
    if (op->done) {
        gw__ucx_op_abandon(op);
        return;
    }
    op->verdict = GW_ERR_CANCELED;
    if (op->receive)
        ucp_request_cancel(link->worker, op->request);
    if ((op->receive || peer->local) && settled(link, req))
        return;
    if (!peer->local) {
        gw__ucx_peer_lose(peer, GW_ERR_PEER_FAILED);
        return;
    }
    link->params.log(link->params.log_arg, GW_LOG_WARN,
                     "ucx: a message %s rank %d cannot be taken back: giving up all connections",
                     op->receive ? "from" : "to", peer->rank);
    gw__ucx_link_break(link);
}
