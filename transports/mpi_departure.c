/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: a message becomes a stream of fragments to its peer, a few of them in flight at once. */
#include "mpi_internal.h"

#include <string.h>

/* A message is done for its caller when the last of its bytes are in a fragment. */
static void queue_pop(gw_link_t *link, gw__mpi_peer_t *peer, gw_status_t status)
{
    gw_request_t *req = peer->sends.head;
    peer->sends.head = req->handle;
    if (!peer->sends.head)
        peer->sends.tail = NULL;
    gw__mpi_settle(req, status);
    link->events++;
}

static bool owes(const gw__mpi_peer_t *peer)
{
    /* Who has left still waits for our BYE. */
    return peer->lost == GW_OK ? peer->sends.head || peer->take_back || peer->bye
                               : peer->left && peer->bye;
}

/* Gives a fragment to MPI. */
static void post(gw_link_t *link, int to, gw__mpi_fragment_t *fragment, size_t payload)
{
    MPI_Request request;
    fragment->length = sizeof fragment->header + payload;
    int rc = gw__mpi.Isend(&fragment->header, (int)fragment->length, gw__mpi.byte, to, GW__MPI_TAG,
                           link->comm, &request);
    if (rc == MPI_SUCCESS) {
        gw__mpi_track(link, request, fragment, to, true);
        return;
    }
    gw__mpi_fragment_park(fragment);
    gw__mpi_peer_lose(link, to, GW_ERR_PEER_FAILED);
}

static void post_message(gw_link_t *link, int to, gw__mpi_fragment_t *fragment)
{
    gw__mpi_peer_t *peer = &link->peers[to];
    gw_request_t *req = peer->sends.head;
    const uint8_t *data = (const uint8_t *)(uintptr_t)req->priv[GW__REQ_DATA];
    uint64_t size = req->priv[GW__REQ_SIZE], done = req->priv[GW__REQ_DONE];
    size_t payload = size - done < GW__MPI_PAYLOAD ? (size_t)(size - done) : GW__MPI_PAYLOAD;
    fragment->header.kind = done == 0 ? GW__MPI_FIRST : GW__MPI_MORE;
    fragment->header.tag = req->priv[GW__REQ_TAG];
    fragment->header.length = size;
    if (payload > 0)
        memcpy(fragment->payload, data + done, payload);
    req->priv[GW__REQ_DONE] += payload;
    if (req->priv[GW__REQ_DONE] == size)
        queue_pop(link, peer, GW_OK);
    post(link, to, fragment, payload);
}

/* One fragment of what is owed. False without memory: later, then. */
static bool post_one(gw_link_t *link, int to)
{
    gw__mpi_peer_t *peer = &link->peers[to];
    gw__mpi_fragment_t *fragment = gw__mpi_fragment_get();
    if (!fragment)
        return false;
    fragment->header = (gw__mpi_header_t){.magic = GW__MPI_MAGIC, .number = peer->sent++};
    if (peer->take_back) {
        peer->take_back = false;
        fragment->header.kind = GW__MPI_TAKE_BACK;
        post(link, to, fragment, 0);
    } else if (peer->sends.head) {
        post_message(link, to, fragment);
    } else {
        peer->bye = false;
        fragment->header.kind = GW__MPI_BYE;
        post(link, to, fragment, 0);
    }
    return true;
}

static void enlist(gw_link_t *link, gw__mpi_peer_t *peer)
{
    if (peer->waiting)
        return;
    peer->waiting = true;
    peer->next = NULL;
    if (link->waiting)
        link->waiting_end->next = peer;
    else
        link->waiting = peer;
    link->waiting_end = peer;
}

void gw__mpi_push(gw_link_t *link, int to)
{
    gw__mpi_peer_t *peer = &link->peers[to];
    if (owes(peer) && peer->in_flight < GW__MPI_IN_FLIGHT)
        enlist(link, peer);
}

/* One fragment each, by turns, so that all peers have something early. */
void gw__mpi_push_all(gw_link_t *link)
{
    while (link->waiting) {
        gw__mpi_peer_t *peer = link->waiting;
        int to = (int)(peer - link->peers);
        if (owes(peer) && peer->in_flight < GW__MPI_IN_FLIGHT && !post_one(link, to))
            return;
        link->waiting = peer->next;
        peer->waiting = false;
        gw__mpi_push(link, to);
    }
}

gw_status_t gw__mpi_send(gw_link_t *link, int to, uint64_t tag, const void *data, size_t length,
                         gw_request_t *req)
{
    *req = (gw_request_t){.status = GW_IN_PROGRESS, .peer = to};
    if (!gw__mpi_usable(link, to, tag, data, length))
        return gw__mpi_settle(req, GW_ERR_INVALID);
    gw__mpi_peer_t *peer = &link->peers[to];
    if (peer->lost != GW_OK)
        return gw__mpi_settle(req, peer->lost);
    req->priv[GW__REQ_TAG] = tag;
    req->priv[GW__REQ_DATA] = (uintptr_t)data;
    req->priv[GW__REQ_SIZE] = length;
    gw__mpi_queue_add(&peer->sends, req);
    gw__mpi_push(link, to);
    gw__mpi_push_all(link);
    return req->status;
}

/* What has gone already cannot be caught up with: the peer is told to forget it. */
void gw__mpi_cancel_send(gw_link_t *link, gw_request_t *req)
{
    gw__mpi_peer_t *peer = &link->peers[req->peer];
    if (!gw__mpi_queue_take(&peer->sends, req))
        return;
    if (req->priv[GW__REQ_DONE] > 0)
        peer->take_back = true;
    gw__mpi_settle(req, GW_ERR_CANCELED);
    gw__mpi_push(link, req->peer);
}
