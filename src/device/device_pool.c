/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of memory and events that are kept. A piece is given to another stream before its last use
 * has ended, where the new work can be made to wait in that stream. It always is: that the handle
 * of the stream is the same means little, as a new stream may have the handle of one that is gone
 * and still has work to do. It is a hint that the wait costs nothing.
 */
#include <stdlib.h>

#include "device_internal.h"

enum { LEAST = 64 * 1024, STEPS = 8 /* sizes between two powers of 2 */ };

/* ---- Pieces ------------------------------------------------------------------------------------
 */

/* Rounded up, so that calls of about the same size share pieces; 0: no such size. */
static size_t size_class(size_t bytes)
{
    size_t power = LEAST;
    if (bytes <= LEAST)
        return LEAST;
    while (power <= bytes / 2)
        power *= 2;
    size_t step = power / STEPS;
    return bytes > SIZE_MAX - step ? 0 : (bytes + step - 1) / step * step;
}

/* Whether the last use of a piece that nobody has taken is over. What a broken context has not
 * done it will never do. */
static bool ended(gw__device_t *d, gw__piece_t *p)
{
    if (p->used && GW__CU(d->cu, NULL, cuEventQuery, p->last) != GW_IN_PROGRESS)
        p->used = false;
    return !p->used;
}

/* The smallest that is large enough: one whose use has ended, else one that was used last by this
 * stream, else one of another. */
static gw__piece_t *choose(gw__device_t *d, gw__pool_kind_t kind, size_t bytes, CUstream stream)
{
    gw__piece_t *best[] = {NULL, NULL, NULL};
    for (gw__piece_t *p = d->pools[kind].first; p; p = p->next) {
        if (p->taken || p->lost || p->bytes < bytes)
            continue;
        gw__piece_t **place = &best[ended(d, p) ? 0 : p->stream == stream ? 1 : 2];
        if (!*place || p->bytes < (*place)->bytes)
            *place = p;
    }
    if (best[0] || kind == GW__POOL_PINNED)
        return best[0];
    return best[1] ? best[1] : best[2];
}

static gw_status_t allocate(gw__device_t *d, gw__piece_t *p, gw__why_t *why)
{
    if (p->kind == GW__POOL_DEVICE)
        return GW__CU(d->cu, why, cuMemAlloc_v2, &p->at, p->bytes);
    void *host = NULL;
    gw_status_t status = GW__CU(d->cu, why, cuMemHostAlloc, &host, p->bytes,
                                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    p->host = host;
    if (status == GW_OK)
        status = GW__CU(d->cu, why, cuMemHostGetDevicePointer_v2, &p->at, host, 0);
    return status;
}

static void discard(gw__device_t *d, gw__piece_t *p)
{
    if (p->last)
        d->cu->cuEventDestroy_v2(p->last);
    if (p->host)
        d->cu->cuMemFreeHost(p->host);
    else if (p->at)
        d->cu->cuMemFree_v2(p->at);
    free(p);
}

static gw_status_t grow(gw__device_t *d, gw__pool_kind_t kind, size_t bytes, gw__piece_t **out,
                        gw__why_t *why)
{
    gw__pool_pieces_t *pool = &d->pools[kind];
    gw__piece_t *p = calloc(1, sizeof *p);
    if (!p) {
        gw__why_print(why, "no memory for a piece of memory");
        return GW_ERR_NO_MEMORY;
    }
    p->kind = kind;
    p->bytes = bytes;
    gw_status_t status = GW__CU(d->cu, why, cuEventCreate, &p->last, CU_EVENT_DISABLE_TIMING);
    if (status == GW_OK)
        status = allocate(d, p, why);
    if (status != GW_OK) {
        discard(d, p);
        return status;
    }
    d->allocations += 2;
    p->next = pool->first;
    pool->first = p;
    pool->held += bytes;
    pool->pieces++;
    *out = p;
    return GW_OK;
}

/* Frees what nobody uses: only while nothing is taken, for the driver may wait for all work under
 * way, some of which may wait for whoever holds a piece. */
static void shrink(gw__device_t *d, gw__pool_pieces_t *pool)
{
    for (gw__piece_t **at = &pool->first; *at;) {
        gw__piece_t *p = *at;
        if (p->taken || p->lost || !ended(d, p)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        pool->held -= p->bytes;
        pool->pieces--;
        discard(d, p);
    }
}

static gw_status_t make_room(gw__device_t *d, gw__pool_kind_t kind, size_t bytes, gw__why_t *why)
{
    static const char *const names[] = {"device", "pinned"};
    gw__pool_pieces_t *pool = &d->pools[kind];
    if (!bytes || bytes > pool->bound) {
        gw__why_print(why, "%zu bytes of %s memory on GPU %d are more than the bound of %zu", bytes,
                      names[kind], d->ordinal, pool->bound);
        return GW_ERR_NO_MEMORY;
    }
    if (pool->held > pool->bound - bytes && !d->pools[0].taken && !d->pools[1].taken)
        shrink(d, pool);
    return pool->held > pool->bound - bytes ? GW_IN_PROGRESS : GW_OK;
}

/* Rather than let two streams wait for each other's memory, the pool grows; rather than fail, they
 * wait. */
static gw_status_t find_piece(gw__device_t *d, gw__pool_kind_t kind, size_t bytes, CUstream stream,
                              gw__piece_t **out, gw__why_t *why)
{
    size_t bound = d->pools[kind].bound, rounded = size_class(bytes);
    *out = choose(d, kind, bytes, stream);
    if (*out && (!(*out)->used || (*out)->stream == stream))
        return GW_OK;
    if (bytes <= bound && (rounded > bound || !rounded))
        rounded = bound;
    gw_status_t status = make_room(d, kind, rounded, why);
    if (status == GW_OK)
        return grow(d, kind, rounded, out, why);
    return *out ? GW_OK : status;
}

static void mark(gw__pool_pieces_t *pool, gw__piece_t *p)
{
    p->taken = true;
    pool->taken++;
    pool->in_use += p->bytes;
    if (pool->in_use > pool->peak)
        pool->peak = pool->in_use;
}

static gw_status_t take(gw__device_t *d, gw__pool_kind_t kind, size_t bytes, CUstream stream,
                        gw__piece_t **out, gw__why_t *why)
{
    gw__piece_t *p = NULL;
    pthread_mutex_lock(&d->lock);
    gw_status_t status = find_piece(d, kind, bytes, stream, &p, why);
    if (status == GW_OK && p->used)
        status = GW__CU(d->cu, why, cuStreamWaitEvent, stream, p->last, CU_EVENT_WAIT_DEFAULT);
    if (status == GW_OK) {
        p->stream = stream;
        mark(&d->pools[kind], p);
        *out = p;
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

gw_status_t gw__piece_take(gw__device_t *device, gw__pool_kind_t kind, size_t bytes,
                           CUstream stream, gw__piece_t **out, gw__why_t *why)
{
    gw_status_t status = gw__device_enter(device, why);
    if (status != GW_OK)
        return status;
    CUstreamCaptureMode mode = gw__device_relax(device);
    status = take(device, kind, bytes, stream, out, why);
    gw__device_strict(device, mode);
    gw__device_leave(device);
    return status;
}

static void put_back(gw__device_t *d, gw__piece_t *p, bool used, bool lost)
{
    pthread_mutex_lock(&d->lock);
    p->taken = false;
    p->used = used;
    p->lost = lost;
    d->pools[p->kind].taken--;
    d->pools[p->kind].in_use -= p->bytes;
    pthread_mutex_unlock(&d->lock);
}

gw_status_t gw__piece_give_after(gw__device_t *device, gw__piece_t *piece, CUstream stream,
                                 gw__why_t *why)
{
    gw_status_t status = gw__device_enter(device, why);
    if (status == GW_OK) {
        piece->stream = stream;
        status = GW__CU(device->cu, why, cuEventRecord, piece->last, stream);
        gw__device_leave(device);
    }
    put_back(device, piece, status == GW_OK, status != GW_OK);
    return status;
}

void gw__piece_give(gw__device_t *device, gw__piece_t *piece)
{
    put_back(device, piece, false, false);
}

/* ---- Events ------------------------------------------------------------------------------------
 */

/* Room for the event to be given back. */
static gw_status_t events_room(gw__events_t *events, gw__why_t *why)
{
    if (events->made < events->room)
        return GW_OK;
    unsigned room = events->room ? 2 * events->room : 16;
    CUevent *idle = realloc(events->idle, room * sizeof *idle);
    if (!idle) {
        gw__why_print(why, "no memory for events");
        return GW_ERR_NO_MEMORY;
    }
    events->idle = idle;
    events->room = room;
    return GW_OK;
}

static gw_status_t event_make(gw__device_t *d, CUevent *out, gw__why_t *why)
{
    gw_status_t status = events_room(&d->events, why);
    if (status == GW_OK)
        status = gw__device_enter(d, why);
    if (status != GW_OK)
        return status;
    status = GW__CU(d->cu, why, cuEventCreate, out, CU_EVENT_DISABLE_TIMING);
    gw__device_leave(d);
    d->events.made += status == GW_OK;
    d->allocations += status == GW_OK;
    return status;
}

gw_status_t gw__event_take(gw__device_t *device, CUevent *out, gw__why_t *why)
{
    gw_status_t status = GW_OK;
    pthread_mutex_lock(&device->lock);
    if (device->events.waiting > 0)
        *out = device->events.idle[--device->events.waiting];
    else
        status = event_make(device, out, why);
    pthread_mutex_unlock(&device->lock);
    return status;
}

void gw__event_give(gw__device_t *device, CUevent event)
{
    pthread_mutex_lock(&device->lock);
    device->events.idle[device->events.waiting++] = event;
    pthread_mutex_unlock(&device->lock);
}

/* ---- The end -----------------------------------------------------------------------------------
 */

bool gw__pools_idle(gw__device_t *device)
{
    bool idle = device->events.waiting == device->events.made;
    for (int kind = 0; kind < 2; kind++) {
        idle = idle && device->pools[kind].taken == 0;
        for (gw__piece_t *p = device->pools[kind].first; idle && p; p = p->next)
            idle = p->lost || ended(device, p);
    }
    return idle;
}

void gw__pools_free(gw__device_t *device)
{
    for (int kind = 0; kind < 2; kind++)
        for (gw__piece_t *p = device->pools[kind].first, *next; p; p = next) {
            next = p->next;
            discard(device, p);
        }
    while (device->events.waiting > 0)
        device->cu->cuEventDestroy_v2(device->events.idle[--device->events.waiting]);
    free(device->events.idle);
}
