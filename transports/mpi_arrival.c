/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving: fragments of a peer come in the order in which it sent them, since all have one MPI
 * tag. Which receive a message belongs to is decided here, by the tag in its first fragment: MPI's
 * tags are too small for ours (MPI_TAG_UB may be 32767).
 */
#include "mpi_internal.h"

#include <string.h>

enum { LOOKS = 16 }; /* fragments taken from MPI in one turn */

/* ---- Messages that nobody has asked for yet ---- */

static void drop_fragments(gw__mpi_fragment_t *fragment)
{
    while (fragment) {
        gw__mpi_fragment_t *next = fragment->next;
        gw__mpi_fragment_put(fragment);
        fragment = next;
    }
}

/* Takes a message out of the early ones. */
static void early_take(gw__mpi_peer_t *peer, gw__mpi_fragment_t *message)
{
    gw__mpi_fragment_t *before = NULL;
    for (gw__mpi_fragment_t *at = peer->early; at != message; at = at->message)
        before = at;
    if (before)
        before->message = message->message;
    else
        peer->early = message->message;
    if (peer->early_end == message)
        peer->early_end = before;
}

static void early_add(gw__mpi_peer_t *peer, gw__mpi_fragment_t *message)
{
    message->message = NULL;
    if (peer->early)
        peer->early_end->message = message;
    else
        peer->early = message;
    peer->early_end = message;
    message->next = NULL;
    peer->kept = peer->kept_end = message;
}

/* ---- The message under way ---- */

static void target_done(gw_link_t *link, gw__mpi_peer_t *peer, gw_status_t status)
{
    gw_request_t *req = peer->target;
    peer->target = NULL;
    gw__mpi_queue_take(&peer->receives, req);
    req->length = (size_t)peer->length;
    gw__mpi_settle(req, status);
    link->events++;
}

/* Gives the message under way, `peer->got` bytes of which are here, to a receive. One that it does
 * not fit into ends at once, and the rest of the message is dropped. */
static void claim(gw_link_t *link, gw__mpi_peer_t *peer, gw_request_t *req)
{
    peer->target = req;
    if (peer->length > req->priv[GW__REQ_SIZE])
        target_done(link, peer, GW_ERR_FRAME_LENGTH);
}

static size_t payload_of(const gw__mpi_fragment_t *fragment)
{
    return fragment->length - sizeof fragment->header;
}

/* Takes the payload of a fragment; true when the fragment was kept. */
static bool take_payload(gw__mpi_peer_t *peer, gw__mpi_fragment_t *fragment)
{
    size_t payload = payload_of(fragment);
    bool keep = !peer->target && peer->kept;
    if (peer->target && payload > 0)
        memcpy((uint8_t *)(uintptr_t)peer->target->priv[GW__REQ_DATA] + peer->got,
               fragment->payload, payload);
    if (keep && fragment != peer->kept) {
        fragment->next = NULL;
        peer->kept_end->next = fragment;
        peer->kept_end = fragment;
    }
    peer->got += payload;
    return keep;
}

static void close_message(gw_link_t *link, gw__mpi_peer_t *peer)
{
    peer->assembling = false;
    peer->kept = peer->kept_end = NULL;
    if (peer->target)
        target_done(link, peer, GW_OK);
}

static void begin_message(gw_link_t *link, gw__mpi_peer_t *peer, gw__mpi_fragment_t *fragment)
{
    gw_request_t *req = peer->receives.head;
    while (req && req->priv[GW__REQ_TAG] != fragment->header.tag)
        req = req->handle;
    peer->assembling = true;
    peer->length = fragment->header.length;
    peer->got = 0;
    if (req)
        claim(link, peer, req);
    else
        early_add(peer, fragment);
}

/* The sender has taken the message back: a receive that it had begun to fill waits on. */
static void forget_message(gw__mpi_peer_t *peer)
{
    if (peer->kept) {
        gw__mpi_fragment_t *message = peer->kept;
        early_take(peer, message);
        drop_fragments(message);
    }
    peer->target = NULL;
    peer->kept = peer->kept_end = NULL;
    peer->assembling = false;
}

/* ---- Fragments ---- */

/* What comes from a peer is looked at before it is believed. */
static bool fits(const gw__mpi_peer_t *peer, const gw__mpi_fragment_t *fragment)
{
    const gw__mpi_header_t *header = &fragment->header;
    if (fragment->length < sizeof *header || header->magic != GW__MPI_MAGIC ||
        header->number != peer->taken)
        return false;
    size_t payload = payload_of(fragment);
    switch (header->kind) {
    case GW__MPI_FIRST:
        return !peer->assembling && header->tag >> GW_TAG_BITS == 0 && payload <= header->length &&
               (payload > 0 || header->length == 0);
    case GW__MPI_MORE:
        return peer->assembling && payload > 0 && payload <= peer->length - peer->got;
    case GW__MPI_TAKE_BACK:
        return peer->assembling && payload == 0;
    case GW__MPI_BYE:
        return !peer->assembling && payload == 0;
    default:
        return false;
    }
}

/* True when the fragment was kept. */
static bool take(gw_link_t *link, int from, gw__mpi_fragment_t *fragment)
{
    gw__mpi_peer_t *peer = &link->peers[from];
    bool kept = false;
    peer->taken++;
    switch (fragment->header.kind) {
    case GW__MPI_TAKE_BACK:
        forget_message(peer);
        break;
    case GW__MPI_BYE:
        peer->left = true;
        gw__mpi_peer_lose(link, from, GW_ERR_PEER_FAILED);
        break;
    case GW__MPI_FIRST:
        begin_message(link, peer, fragment);
        /* fall through */
    default:
        kept = take_payload(peer, fragment);
        if (peer->got == peer->length)
            close_message(link, peer);
    }
    return kept;
}

void gw__mpi_deliver(gw_link_t *link, int from)
{
    gw__mpi_peer_t *peer = &link->peers[from];
    while (peer->stream && peer->stream->done) {
        gw__mpi_fragment_t *fragment = peer->stream;
        peer->stream = fragment->next;
        fragment->next = NULL;
        bool kept = false;
        if (peer->lost == GW_OK && !fits(peer, fragment)) {
            link->params.log(link->params.log_arg, GW_LOG_WARN,
                             "mpi: rank %d sent what is no message of Gradwire's", from);
            gw__mpi_peer_lose(link, from, GW_ERR_PEER_FAILED);
        }
        if (peer->lost == GW_OK)
            kept = take(link, from, fragment);
        if (!kept)
            gw__mpi_fragment_put(fragment);
    }
}

static void stream_add(gw__mpi_peer_t *peer, gw__mpi_fragment_t *fragment)
{
    if (peer->stream)
        peer->stream_end->next = fragment;
    else
        peer->stream = fragment;
    peer->stream_end = fragment;
}

/* One fragment from MPI; false when there is none, or no room for it. */
static bool look_once(gw_link_t *link)
{
    MPI_Message message;
    MPI_Status status;
    MPI_Request request;
    int found = 0, length = 0;
    gw__mpi_fragment_t *fragment = gw__mpi_fragment_get();
    if (!fragment)
        return false;
    if (gw__mpi.Improbe(MPI_ANY_SOURCE, GW__MPI_TAG, link->comm, &found, &message, &status) !=
            MPI_SUCCESS ||
        !found) {
        gw__mpi_fragment_put(fragment);
        return false;
    }
    int from = status.MPI_SOURCE;
    gw__mpi.Get_count(&status, gw__mpi.byte, &length);
    bool fits_in = length >= 0 && length <= GW__MPI_FRAGMENT;
    if (fits_in && gw__mpi.Imrecv(&fragment->header, length, gw__mpi.byte, &message, &request) ==
                       MPI_SUCCESS) {
        fragment->length = (size_t)length;
        stream_add(&link->peers[from], fragment);
        gw__mpi_track(link, request, fragment, from, false);
        return true;
    }
    if (fits_in)
        gw__mpi_fragment_park(fragment);
    else
        gw__mpi_fragment_put(fragment);
    gw__mpi_peer_lose(link, from, GW_ERR_PEER_FAILED);
    return true;
}

void gw__mpi_look(gw_link_t *link)
{
    int most = (link->params.size - 1) * GW__MPI_IN_FLIGHT;
    for (int i = 0; i < LOOKS && link->receiving < most; i++)
        if (!look_once(link))
            return;
}

/* ---- Requests ---- */

/* The early message of this tag; NULL: none. */
static gw__mpi_fragment_t *early_find(const gw__mpi_peer_t *peer, uint64_t tag)
{
    gw__mpi_fragment_t *message = peer->early;
    while (message && message->header.tag != tag)
        message = message->message;
    return message;
}

static void copy_message(const gw__mpi_fragment_t *message, uint8_t *to)
{
    for (; message; to += payload_of(message), message = message->next)
        if (payload_of(message) > 0)
            memcpy(to, message->payload, payload_of(message));
}

/* A receive for a message that is here, in whole or in part. */
static void take_early(gw_link_t *link, gw__mpi_peer_t *peer, gw__mpi_fragment_t *message,
                       gw_request_t *req)
{
    uint64_t length = message->header.length;
    bool fits_in = length <= req->priv[GW__REQ_SIZE], whole = message != peer->kept;
    early_take(peer, message);
    if (fits_in)
        copy_message(message, (uint8_t *)(uintptr_t)req->priv[GW__REQ_DATA]);
    drop_fragments(message);
    if (whole) {
        req->length = (size_t)length;
        gw__mpi_settle(req, fits_in ? GW_OK : GW_ERR_FRAME_LENGTH);
        return;
    }
    peer->kept = peer->kept_end = NULL;
    gw__mpi_queue_add(&peer->receives, req);
    claim(link, peer, req);
}

gw_status_t gw__mpi_recv(gw_link_t *link, int from, uint64_t tag, void *data, size_t capacity,
                         gw_request_t *req)
{
    *req = (gw_request_t){.status = GW_IN_PROGRESS, .peer = from};
    if (!gw__mpi_usable(link, from, tag, data, capacity))
        return gw__mpi_settle(req, GW_ERR_INVALID);
    gw__mpi_peer_t *peer = &link->peers[from];
    req->priv[GW__REQ_TAG] = tag;
    req->priv[GW__REQ_DATA] = (uintptr_t)data;
    req->priv[GW__REQ_SIZE] = capacity;
    gw__mpi_fragment_t *message = early_find(peer, tag);
    if (message)
        take_early(link, peer, message, req);
    else if (peer->lost != GW_OK)
        gw__mpi_settle(req, peer->lost);
    else
        gw__mpi_queue_add(&peer->receives, req);
    return req->status;
}

/* MPI knows nothing of this receive. What is under way to it is dropped. */
void gw__mpi_cancel_recv(gw_link_t *link, gw_request_t *req)
{
    gw__mpi_peer_t *peer = &link->peers[req->peer];
    if (!gw__mpi_queue_take(&peer->receives, req))
        return;
    if (peer->target == req)
        peer->target = NULL;
    gw__mpi_settle(req, GW_ERR_CANCELED);
}

static void end_all(gw_link_t *link, gw__mpi_queue_t *queue, gw_status_t status)
{
    for (gw_request_t *req = queue->head, *next; req; req = next, link->events++) {
        next = req->handle;
        gw__mpi_settle(req, status);
    }
    *queue = (gw__mpi_queue_t){0};
}

void gw__mpi_peer_lose(gw_link_t *link, int peer_rank, gw_status_t status)
{
    gw__mpi_peer_t *peer = &link->peers[peer_rank];
    if (peer->lost != GW_OK)
        return;
    peer->lost = status;
    if (peer->assembling)
        forget_message(peer);
    end_all(link, &peer->receives, status);
    end_all(link, &peer->sends, status);
    peer->take_back = peer->bye = false;
}
