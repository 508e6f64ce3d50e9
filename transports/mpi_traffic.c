/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI module's progress: what MPI has finished, what has come, what can go; and its rests. */
#include "mpi_internal.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

enum {
    WATCH_EVERY = 64, /* turns without an event before peers are looked at */
    YIELDS = 8,       /* rests that only give the processor away */
    REST_US = 100,    /* longest rest: MPI tells nobody that something came */
};

void gw__mpi_queue_add(gw__mpi_queue_t *queue, gw_request_t *req)
{
    req->handle = NULL;
    if (queue->tail)
        queue->tail->handle = req;
    else
        queue->head = req;
    queue->tail = req;
}

bool gw__mpi_queue_take(gw__mpi_queue_t *queue, gw_request_t *req)
{
    gw_request_t *before = NULL;
    for (gw_request_t *at = queue->head; at; before = at, at = at->handle) {
        if (at != req)
            continue;
        if (before)
            before->handle = at->handle;
        else
            queue->head = at->handle;
        if (queue->tail == at)
            queue->tail = before;
        return true;
    }
    return false;
}

bool gw__mpi_usable(const gw_link_t *link, int peer, uint64_t tag, const void *data, size_t size)
{
    return peer >= 0 && peer < link->params.size && peer != link->params.rank &&
           tag >> GW_TAG_BITS == 0 && (data || size == 0) && link->owner == getpid();
}

void gw__mpi_track(gw_link_t *link, MPI_Request request, gw__mpi_fragment_t *fragment, int peer,
                   bool sending)
{
    link->requests[link->active] = request;
    link->slots[link->active++] =
        (gw__mpi_slot_t){.fragment = fragment, .peer = peer, .sending = sending};
    if (sending)
        link->peers[peer].in_flight++;
    else
        link->receiving++;
}

/* MPI has finished with a fragment. */
static void finish(gw_link_t *link, const gw__mpi_slot_t *slot)
{
    link->events++;
    if (slot->sending) {
        link->peers[slot->peer].in_flight--;
        gw__mpi_fragment_put(slot->fragment);
    } else {
        link->receiving--;
        slot->fragment->done = true;
    }
    if (slot->failed)
        gw__mpi_peer_lose(link, slot->peer, GW_ERR_PEER_FAILED);
    if (slot->sending)
        gw__mpi_push(link, slot->peer);
    else
        gw__mpi_deliver(link, slot->peer);
}

/* Nothing that MPI says is of use any more. */
static void give_up(gw_link_t *link)
{
    link->broken = true;
    for (int peer = 0; peer < link->params.size; peer++)
        if (peer != link->params.rank)
            gw__mpi_peer_lose(link, peer, GW_ERR_PEER_FAILED);
}

/* Takes what is over out of the slots; returns how many that were. */
static int sort_out(gw_link_t *link)
{
    int left = 0, over = 0;
    for (int i = 0; i < link->active; i++) {
        if (link->slots[i].over) {
            link->finished[over++] = link->slots[i];
            continue;
        }
        link->requests[left] = link->requests[i];
        link->slots[left++] = link->slots[i];
    }
    link->active = left;
    return over;
}

static void test(gw_link_t *link)
{
    int count = 0;
    if (link->active == 0)
        return;
    int rc = gw__mpi.Testsome(link->active, link->requests, &count, link->indices, link->statuses);
    if (rc != MPI_SUCCESS && rc != MPI_ERR_IN_STATUS) {
        give_up(link);
        return;
    }
    if (count == MPI_UNDEFINED || count <= 0)
        return;
    for (int i = 0; i < count; i++) {
        gw__mpi_slot_t *slot = &link->slots[link->indices[i]];
        slot->over = true;
        slot->failed = rc == MPI_ERR_IN_STATUS && link->statuses[i].MPI_ERROR != MPI_SUCCESS;
    }
    /* What finish() starts comes behind those that are left. */
    int over = sort_out(link);
    for (int i = 0; i < over; i++)
        finish(link, &link->finished[i]);
}

int gw__mpi_progress(gw_link_t *link)
{
    link->events = 0;
    if (link->broken || link->owner != getpid())
        return 0;
    gw__mpi_look(link);
    test(link);
    gw__mpi_push_all(link);
    if (link->events > 0)
        link->calm = link->turns = 0;
    else if (++link->turns % WATCH_EVERY == 0)
        gw__mpi_watch(link);
    return link->events;
}

/*
 * MPI has no wait that ends after a time. Others may need this processor to go on, so it is given
 * away first; then come rests that double, up to what costs little of a message's time on a wire.
 */
void gw__mpi_wait(gw_link_t *link, int timeout_us)
{
    unsigned calm = link->calm++;
    if (calm < YIELDS) {
        sched_yield();
        return;
    }
    unsigned doubled = calm - YIELDS < 7 ? 1u << (calm - YIELDS) : REST_US;
    unsigned rest = doubled < REST_US ? doubled : REST_US;
    if (timeout_us < (int)rest)
        rest = timeout_us > 0 ? (unsigned)timeout_us : 0;
    struct timespec time = {0, (long)rest * 1000};
    nanosleep(&time, NULL);
}
