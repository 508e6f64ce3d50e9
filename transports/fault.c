/* SPDX-License-Identifier: Apache-2.0 */
/* The transport `fault`, a tool for testing: another transport whose messages it delays, reorders,
 * truncates, corrupts, duplicates and drops, and whose ranks it kills. */
#include "fault.h"
#include "transports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * Faults happen at the sender, before the message reaches the transport below. What becomes of a
 * message is a function of seed, sender, receiver and tag, so it does not depend on timing; events
 * like `kill` come after a number of messages sent.
 *
 * Each request of the caller has an operation here with a request of its own for the transport
 * below. The caller's becomes final in progress(), cancel(), or in the call that starts it.
 * Messages that are held back keep the caller's buffer, and messages of equal tag never overtake
 * each other.
 */
#define REORDER_NS INT64_C(20000000)  /* longest time that a message waits for others to pass it */
#define CLOSE_NS   INT64_C(200000000) /* how long close() tries to send what is left */
#define FOR_EVER   INT64_MAX

typedef struct op {
    struct op *prev, *next; /* in order of posting */
    gw_request_t inner;
    gw_request_t *outer; /* NULL: a duplicate, for which nobody waits */
    int peer;
    uint64_t tag;
    bool held;       /* not given to the transport below yet */
    int64_t due;     /* when held: monotonic nanoseconds */
    unsigned passes; /* when held: messages to the same peer that free it earlier; 0: none do */
    const void *data;
    size_t length;
    unsigned char *copy; /* owned; NULL: the caller's buffer is sent */
} op_t;

struct gw_link {
    gw_link_params_t params;
    gw__fault_spec_t spec;
    const gw_transport_t *below;
    gw_link_t *inner; /* NULL: this rank was killed */
    op_t *first, *last, *free;
    uint64_t sent, *sent_to;
    bool *lost; /* peers whose connection has broken */
    bool mute, frozen;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* ---- Operations
 * ----------------------------------------------------------------------------------------- */

static op_t *op_new(gw_link_t *link, int peer, uint64_t tag, gw_request_t *outer)
{
    op_t *op = link->free;
    if (op)
        link->free = op->next;
    else
        op = malloc(sizeof(*op));
    if (!op)
        return NULL;
    *op = (op_t){.prev = link->last, .peer = peer, .tag = tag, .outer = outer};
    op->inner.status = GW_IN_PROGRESS;
    if (link->last)
        link->last->next = op;
    else
        link->first = op;
    link->last = op;
    if (outer)
        outer->handle = op;
    return op;
}

/* The end of an operation; its owner sees `status`. */
static void op_end(gw_link_t *link, op_t *op, gw_status_t status)
{
    *(op->prev ? &op->prev->next : &link->first) = op->next;
    *(op->next ? &op->next->prev : &link->last) = op->prev;
    if (op->outer) {
        op->outer->handle = NULL;
        op->outer->length = op->inner.length;
        op->outer->status = status;
    }
    free(op->copy);
    op->next = link->free;
    link->free = op;
}

/* Takes an operation back from the transport below, whatever its state, and ends it. */
static void op_revoke(gw_link_t *link, op_t *op, gw_status_t status)
{
    if (!op->held)
        link->below->cancel(link->inner, &op->inner);
    bool done = !op->held && op->inner.status != GW_ERR_CANCELED;
    op_end(link, op, done ? op->inner.status : status);
}

static void op_start(gw_link_t *link, op_t *op)
{
    op->held = false;
    link->below->send(link->inner, op->peer, op->tag, op->copy ? op->copy : op->data, op->length,
                      &op->inner);
}

/* Whether an earlier message of the same tag still waits here. */
static bool behind(const op_t *op)
{
    for (const op_t *o = op->prev; o; o = o->prev)
        if (o->held && o->peer == op->peer && o->tag == op->tag)
            return true;
    return false;
}

/* Sends what was held back long enough. */
static void release(gw_link_t *link)
{
    int64_t now = link->first ? now_ns() : 0;
    for (op_t *op = link->first; op; op = op->next)
        if (op->held && op->due <= now && !behind(op))
            op_start(link, op);
}

/* Ends what the transport below has finished; how many. */
static int harvest(gw_link_t *link)
{
    int count = 0;
    for (op_t *op = link->first, *next; op; op = next) {
        next = op->next;
        if (op->held || op->inner.status == GW_IN_PROGRESS)
            continue;
        op_end(link, op, op->inner.status);
        count++;
    }
    return count;
}

/* ---- Events
 * ------------------------------------------------------------------------------------------------
 */

/* Revokes all operations, or those with one peer. */
static void revoke_all(gw_link_t *link, int peer)
{
    for (op_t *op = link->first, *next; op; op = next) {
        next = op->next;
        if (peer < 0 || op->peer == peer)
            op_revoke(link, op, GW_ERR_PEER_FAILED);
    }
}

static void say(const gw_link_t *link, gw_log_level_t level, const char *what, int peer,
                uint64_t tag)
{
    link->params.log(link->params.log_arg, level,
                     "fault: rank %d: message %llu, to rank %d, tag %012llx: %s", link->params.rank,
                     (unsigned long long)link->sent, peer, (unsigned long long)tag, what);
}

static bool strikes(const gw_link_t *link, const gw__fault_event_t *event)
{
    return event->rank == link->params.rank && link->sent > event->after;
}

/* The connection between two ranks breaks at both ends, each after so many messages of its own. */
static bool breaks(const gw_link_t *link, int peer)
{
    const gw__fault_event_t *e = &link->spec.error;
    int self = link->params.rank;
    return e->rank >= 0 && link->sent_to[peer] > e->after && !link->lost[peer] &&
           ((e->rank == self && e->peer == peer) || (e->peer == self && e->rank == peer));
}

/* What this send sets off. */
static void strike(gw_link_t *link, int peer, uint64_t tag)
{
    link->sent++;
    link->sent_to[peer]++;
    if (!link->mute && strikes(link, &link->spec.mute)) {
        link->mute = true;
        say(link, GW_LOG_INFO, "mute from now on", peer, tag);
    }
    if (!link->frozen && strikes(link, &link->spec.freeze)) {
        link->frozen = true;
        say(link, GW_LOG_INFO, "frozen from now on", peer, tag);
    }
    if (breaks(link, peer)) {
        say(link, GW_LOG_INFO, "the connection breaks", peer, tag);
        link->lost[peer] = true;
        revoke_all(link, peer);
    }
    if (strikes(link, &link->spec.kill)) {
        say(link, GW_LOG_INFO, "killed", peer, tag);
        revoke_all(link, -1);
        link->below->close(link->inner);
        link->inner = NULL;
    }
}

/* ---- Faults of one message
 * --------------------------------------------------------------------------------- */

/* A number for one kind of fault (its key's first letters) of one message. */
static uint64_t draw(const gw_link_t *link, const char *kind, int peer, uint64_t tag)
{
    uint64_t z = mix(link->spec.seed ^ (uint64_t)(unsigned char)kind[0] << 8 ^
                     (uint64_t)(unsigned char)kind[1]);
    z = mix(z ^ (uint64_t)link->params.rank << 32 ^ (uint64_t)peer);
    return mix(z ^ tag);
}

static bool happens(const gw_link_t *link, const char *kind, double chance, int peer, uint64_t tag)
{
    if (chance <= 0.0 || link->sent <= link->spec.from ||
        (link->spec.only >= 0 && link->spec.only != link->params.rank))
        return false;
    if ((double)(draw(link, kind, peer, tag) >> 11) * 0x1p-53 >= chance)
        return false;
    say(link, GW_LOG_DEBUG, kind, peer, tag);
    return true;
}

/* Gives the operation its own bytes; false without memory. */
static bool own_bytes(op_t *op)
{
    op->copy = malloc(op->length + 1);
    if (op->copy && op->length)
        memcpy(op->copy, op->data, op->length);
    return op->copy != NULL;
}

/* Flips one bit. */
static bool corrupt(const gw_link_t *link, op_t *op)
{
    size_t reach =
        link->spec.reach && link->spec.reach < op->length ? link->spec.reach : op->length;
    uint64_t where = draw(link, "where", op->peer, op->tag);
    if (reach == 0 || !happens(link, "corrupt", link->spec.corrupt, op->peer, op->tag))
        return true;
    if (!own_bytes(op))
        return false;
    op->copy[where % reach] ^= (unsigned char)(1u << (where >> 32) % 8);
    return true;
}

static void truncate_(const gw_link_t *link, op_t *op)
{
    if (op->length > 0 && happens(link, "truncate", link->spec.truncate, op->peer, op->tag))
        op->length = draw(link, "length", op->peer, op->tag) % op->length;
}

static void hold(gw_link_t *link, op_t *op)
{
    op->held = true;
    if (link->frozen) {
        op->due = FOR_EVER;
    } else if (happens(link, "delay", link->spec.delay, op->peer, op->tag)) {
        op->due = now_ns() + link->spec.delay_ns;
    } else if (happens(link, "reorder", link->spec.reorder, op->peer, op->tag)) {
        op->due = now_ns() + REORDER_NS;
        op->passes = 1 + draw(link, "passes", op->peer, op->tag) % 4;
    }
}

/* A message goes to this peer: those that wait for others to pass come nearer to their turn. */
static void pass(gw_link_t *link, const op_t *passing)
{
    for (op_t *op = link->first; op; op = op->next)
        if (op->held && op->passes > 0 && op != passing && op->peer == passing->peer &&
            op->tag != passing->tag && --op->passes == 0)
            op->due = 0;
}

static void duplicate(gw_link_t *link, const op_t *op)
{
    if (!happens(link, "duplicate", link->spec.duplicate, op->peer, op->tag))
        return;
    op_t *twin = op_new(link, op->peer, op->tag, NULL);
    if (!twin)
        return;
    twin->data = op->copy ? op->copy : op->data;
    twin->length = op->length;
    twin->held = true; /* for the next progress: behind the first one if that waits */
    if (!own_bytes(twin))
        op_end(link, twin, GW_OK);
}

/* ---- The contract
 * --------------------------------------------------------------------------------------- */

static gw_status_t settle(gw_request_t *req, gw_status_t status)
{
    req->handle = NULL;
    req->status = status;
    return status;
}

/* Whether the arguments of a send or receive can be used. */
static bool usable(const gw_link_t *link, int peer, uint64_t tag, const void *data, size_t length)
{
    return peer >= 0 && peer < link->params.size && peer != link->params.rank &&
           tag >> GW_TAG_BITS == 0 && (data || length == 0);
}

/* What the caller is told when a request has been started. */
static gw_status_t begun(gw_link_t *link, op_t *op, gw_request_t *req)
{
    if (!op->held && op->inner.status != GW_IN_PROGRESS)
        op_end(link, op, op->inner.status);
    return req->status;
}

static gw_status_t fault_send(gw_link_t *link, int peer, uint64_t tag, const void *data,
                              size_t length, gw_request_t *req)
{
    *req = (gw_request_t){.status = GW_IN_PROGRESS, .peer = peer};
    if (!usable(link, peer, tag, data, length))
        return settle(req, GW_ERR_INVALID);
    if (link->inner && !link->lost[peer])
        strike(link, peer, tag);
    if (!link->inner || link->lost[peer])
        return settle(req, GW_ERR_PEER_FAILED);
    if (link->mute || happens(link, "drop", link->spec.drop, peer, tag))
        return settle(req, GW_OK);
    op_t *op = op_new(link, peer, tag, req);
    if (!op)
        return settle(req, GW_ERR_NO_MEMORY);
    op->data = data;
    op->length = length;
    truncate_(link, op);
    hold(link, op);
    if (!corrupt(link, op)) {
        op_end(link, op, GW_ERR_NO_MEMORY);
        return req->status;
    }
    if (op->due == 0 && !behind(op))
        op_start(link, op);
    duplicate(link, op);
    pass(link, op);
    return begun(link, op, req);
}

static gw_status_t fault_recv(gw_link_t *link, int peer, uint64_t tag, void *data, size_t capacity,
                              gw_request_t *req)
{
    *req = (gw_request_t){.status = GW_IN_PROGRESS, .peer = peer};
    if (!usable(link, peer, tag, data, capacity))
        return settle(req, GW_ERR_INVALID);
    if (!link->inner || link->lost[peer])
        return settle(req, GW_ERR_PEER_FAILED);
    op_t *op = op_new(link, peer, tag, req);
    if (!op)
        return settle(req, GW_ERR_NO_MEMORY);
    link->below->recv(link->inner, peer, tag, data, capacity, &op->inner);
    return link->frozen ? req->status : begun(link, op, req);
}

static int fault_progress(gw_link_t *link)
{
    if (!link->inner || link->frozen)
        return 0;
    release(link);
    int moved = link->below->progress(link->inner), ended = harvest(link);
    return ended > moved ? ended : moved;
}

static void fault_wait(gw_link_t *link, int timeout_us)
{
    int64_t now = now_ns(), us = timeout_us > 0 ? timeout_us : 0;
    for (const op_t *op = link->first; op && !link->frozen; op = op->next) {
        bool final = !op->held && op->inner.status != GW_IN_PROGRESS;
        int64_t left = final ? 0 : op->held ? (op->due - now) / 1000 + 1 : us;
        if (left < us)
            us = left > 0 ? left : 0;
    }
    if (link->inner && !link->frozen) {
        link->below->wait(link->inner, (int)us);
        return;
    }
    struct timespec sleep = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&sleep, NULL);
}

static void fault_cancel(gw_link_t *link, gw_request_t *req)
{
    if (req->status == GW_IN_PROGRESS && req->handle)
        op_revoke(link, req->handle, GW_ERR_CANCELED);
}

static const char *fault_describe(gw_link_t *link, int peer)
{
    return link->inner ? link->below->describe(link->inner, peer) : "killed";
}

static gw_status_t fault_probe(char *why, size_t size)
{
    if (size)
        why[0] = '\0';
    return GW_OK;
}

/* Finds the transport below and opens its link. */
static gw_status_t open_below(gw_link_t *link, const gw_link_params_t *params)
{
    char why[256] = "";
    gw_status_t status = gw_transport_find(link->spec.over, &link->below, why, sizeof(why));
    if (status == GW_OK && (link->below->flags & GW_TRANSPORT_CALLER_ONLY)) {
        snprintf(why, sizeof(why), "it has to stay on the caller's thread, which fault does not");
        status = GW_ERR_UNSUPPORTED;
    }
    if (status == GW_OK && link->below->probe)
        status = link->below->probe(why, sizeof(why));
    if (status != GW_OK) {
        params->log(params->log_arg, GW_LOG_WARN, "fault: over %s: %s", link->spec.over, why);
        return status;
    }
    return link->below->open(params, &link->inner);
}

static void link_free(gw_link_t *link)
{
    for (op_t *op = link->free, *next; op; op = next) {
        next = op->next;
        free(op);
    }
    free(link->sent_to);
    free(link->lost);
    free(link);
}

static gw_status_t fault_open(const gw_link_params_t *params, gw_link_t **out)
{
    char why[256];
    gw_link_t *link = calloc(1, sizeof(*link));
    if (!link)
        return GW_ERR_NO_MEMORY;
    gw_status_t status = gw__fault_parse(params->faults, &link->spec, why, sizeof(why));
    if (status != GW_OK)
        params->log(params->log_arg, GW_LOG_WARN, "fault: %s", why);
    link->params = *params;
    if (status == GW_OK) {
        link->sent_to = calloc((size_t)params->size, sizeof(*link->sent_to));
        link->lost = calloc((size_t)params->size, sizeof(*link->lost));
        status = link->sent_to && link->lost ? open_below(link, params) : GW_ERR_NO_MEMORY;
    }
    if (status != GW_OK) {
        link_free(link);
        return status;
    }
    *out = link;
    return GW_OK;
}

static gw_status_t fault_address(gw_link_t *link, void *out, size_t *length)
{
    return link->below->address(link->inner, out, length);
}

static gw_status_t fault_connect(gw_link_t *link, const gw_address_t *addresses)
{
    return link->below->connect(link->inner, addresses);
}

static void fault_seal(gw_link_t *link)
{
    if (link->inner && link->below->seal)
        link->below->seal(link->inner);
}

/* What is left are duplicates: nobody waits for them, and a long one may
 * never be taken. */
static gw_status_t fault_close(gw_link_t *link)
{
    gw_status_t status = GW_OK;
    if (link->inner) {
        int64_t until = now_ns() + CLOSE_NS;
        for (op_t *op = link->first; op && !link->frozen; op = op->next)
            op->due = 0;
        while (link->first && !link->frozen && now_ns() < until)
            if (fault_progress(link) == 0)
                fault_wait(link, 1000);
        revoke_all(link, -1);
        status = link->below->close(link->inner);
    }
    link_free(link);
    return status;
}

/* A frozen link sees no acknowledgement of anybody. */
static gw_status_t fault_reach(gw_link_t *link, int peer, double seconds)
{
    if (link->frozen)
        return GW_ERR_UNREACHABLE;
    if (!link->inner || !link->below->reach)
        return GW_OK;
    return link->below->reach(link->inner, peer, seconds);
}

const gw_transport_t gw__fault = {
    .abi = GW_TRANSPORT_ABI,
    .name = "fault",
    .summary = "a tool for testing: another transport with the faults of GRADWIRE_FAULT",
    .probe = fault_probe,
    .open = fault_open,
    .address = fault_address,
    .connect = fault_connect,
    .send = fault_send,
    .recv = fault_recv,
    .progress = fault_progress,
    .wait = fault_wait,
    .cancel = fault_cancel,
    .describe = fault_describe,
    .close = fault_close,
    .flags = GW_TRANSPORT_NETWORK, /* for those below that want it */
    .seal = fault_seal,
    .reach = fault_reach,
};
