/* SPDX-License-Identifier: Apache-2.0 */
/* The transport contract as a test body: sizes, order, tags, early and late receives, floods,
 * errors, cancel. */
#include "transport_body.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE 30.0 /* seconds until a request counts as hung */
#define ZONE     64   /* bytes on each side of a receive buffer that must stay as they are */
#define POISON   0xA5

/* Notes the first failure and leaves the part. */
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            body_fail(me, __VA_ARGS__);                                                            \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            return -1;                                                                             \
    } while (0)

/* A message under way, with its memory. */
typedef struct parcel {
    gw_request_t req;
    unsigned char *memory; /* ZONE bytes, the buffer, ZONE bytes */
    size_t capacity;
} parcel_t;

void body_fail(body_rank_t *me, const char *format, ...)
{
    if (me->failure[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(me->failure, sizeof(me->failure), format, args);
    va_end(args);
}

double body_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

gw_status_t body_finish(body_rank_t *me, gw_request_t *req, double seconds)
{
    double until = body_now() + seconds;
    while (req->status == GW_IN_PROGRESS && body_now() < until)
        if (me->transport->progress(me->link) == 0)
            me->transport->wait(me->link, 1000);
    return req->status;
}

/* What byte i of message `salt` from one rank to another is. */
static unsigned char pattern(int from, int to, size_t salt, size_t i)
{
    return (unsigned char)(i * 7 + (i >> 8) * 3 + salt * 31 + (size_t)from * 5 + (size_t)to * 11);
}

static int parcel_new(body_rank_t *me, parcel_t *p, size_t capacity)
{
    *p = (parcel_t){.capacity = capacity, .memory = malloc(capacity + 2 * ZONE)};
    EXPECT(p->memory, "no memory for %zu bytes", capacity);
    memset(p->memory, POISON, capacity + 2 * ZONE);
    return 0;
}

static void parcel_free(body_rank_t *me, parcel_t *p)
{
    if (p->memory && p->req.status == GW_IN_PROGRESS)
        me->transport->cancel(me->link, &p->req);
    free(p->memory);
    p->memory = NULL;
}

/* Starts a send of the pattern; the status is checked at parcel_sent. */
static int parcel_send(body_rank_t *me, parcel_t *p, int peer, uint64_t tag, size_t length,
                       size_t salt)
{
    TRY(parcel_new(me, p, length));
    for (size_t i = 0; i < length; i++)
        p->memory[ZONE + i] = pattern(me->rank, peer, salt, i);
    gw_status_t status =
        me->transport->send(me->link, peer, tag, p->memory + ZONE, length, &p->req);
    EXPECT(status == p->req.status, "send returned %s but left %s", gw_status_name(status),
           gw_status_name(p->req.status));
    return 0;
}

static int parcel_recv(body_rank_t *me, parcel_t *p, int peer, uint64_t tag, size_t capacity)
{
    TRY(parcel_new(me, p, capacity));
    gw_status_t status =
        me->transport->recv(me->link, peer, tag, p->memory + ZONE, capacity, &p->req);
    EXPECT(status == p->req.status, "recv returned %s but left %s", gw_status_name(status),
           gw_status_name(p->req.status));
    return 0;
}

static int parcel_sent(body_rank_t *me, parcel_t *p)
{
    gw_status_t status = body_finish(me, &p->req, PATIENCE);
    EXPECT(status == GW_OK, "send to %d: %s", p->req.peer, gw_status_name(status));
    parcel_free(me, p);
    return 0;
}

/* Whether nothing was written outside the first `length` bytes of the buffer. */
static int zones_intact(body_rank_t *me, const parcel_t *p, size_t length)
{
    for (size_t i = 0; i < p->capacity + 2 * ZONE; i++)
        if (i < ZONE || i >= ZONE + length)
            EXPECT(p->memory[i] == POISON, "byte %zd outside a message of %zu was written",
                   (ssize_t)i - ZONE, length);
    return 0;
}

static int parcel_came(body_rank_t *me, parcel_t *p, size_t length, size_t salt)
{
    int peer = p->req.peer;
    gw_status_t status = body_finish(me, &p->req, PATIENCE);
    EXPECT(status == GW_OK, "receive from %d: %s", peer, gw_status_name(status));
    EXPECT(p->req.length == length, "%zu bytes came, not %zu", p->req.length, length);
    for (size_t i = 0; i < length; i++)
        EXPECT(p->memory[ZONE + i] == pattern(peer, me->rank, salt, i),
               "message %zu of %zu bytes differs at %zu", salt, length, i);
    TRY(zones_intact(me, p, length));
    parcel_free(me, p);
    return 0;
}

/* Meets all other ranks, progressing nothing: what is unexpected stays unexpected. */
static int meet(body_rank_t *me)
{
    char mine = 0, all[64];
    EXPECT(me->gather(me->gather_arg, &mine, all, 1) == GW_OK, "the gather failed");
    return 0;
}

/* ---- parts
 * ------------------------------------------------------------------------------------------- */

static int part_sizes(body_rank_t *me)
{
    static const size_t sizes[] = {0, 1, 3, 4097, 8192, 8193, 65536, 65537, (4 << 20) + 5};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        parcel_t in[8] = {0}, out[8] = {0};
        for (int peer = 0; peer < me->size; peer++)
            if (peer != me->rank)
                TRY(parcel_recv(me, &in[peer], peer, 77 + s, sizes[s] + 9));
        for (int peer = 0; peer < me->size; peer++)
            if (peer != me->rank)
                TRY(parcel_send(me, &out[peer], peer, 77 + s, sizes[s], s));
        for (int peer = 0; peer < me->size; peer++) {
            if (peer == me->rank)
                continue;
            TRY(parcel_came(me, &in[peer], sizes[s], s));
            TRY(parcel_sent(me, &out[peer]));
        }
    }
    return 0;
}

/* Equal tags match in the order of posting, whether the receive or the message is first. */
static int part_order(body_rank_t *me)
{
    enum { COUNT = 24 };
    int peer = me->rank ^ 1;
    for (int late = 0; late < 2 && peer < me->size; late++) {
        parcel_t in[COUNT] = {0}, out[COUNT] = {0};
        size_t length[COUNT];
        for (int i = 0; i < COUNT; i++)
            length[i] = (size_t)(i % 3 == 0 ? 100000 + i : 10 * i);
        if (!late)
            for (int i = 0; i < COUNT; i++)
                TRY(parcel_recv(me, &in[i], peer, 5, 200000));
        for (int i = 0; i < COUNT; i++)
            TRY(parcel_send(me, &out[i], peer, 5, length[i], (size_t)i));
        if (late)
            for (int i = 0; i < COUNT; i++)
                TRY(parcel_recv(me, &in[i], peer, 5, 200000));
        for (int i = 0; i < COUNT; i++)
            TRY(parcel_came(me, &in[i], length[i], (size_t)i));
        for (int i = 0; i < COUNT; i++)
            TRY(parcel_sent(me, &out[i]));
    }
    return 0;
}

/* Different tags match whatever the order; the largest tag works. */
static int part_tags(body_rank_t *me)
{
    enum { COUNT = 8 };
    const uint64_t top = (UINT64_C(1) << GW_TAG_BITS) - 1;
    int peer = me->rank ^ 1;
    if (peer >= me->size)
        return 0;
    for (size_t length = 50; length < 1000000; length *= 100) {
        parcel_t in[COUNT] = {0}, out[COUNT] = {0};
        for (int i = 0; i < COUNT; i++)
            TRY(parcel_send(me, &out[i], peer, top - (uint64_t)i, length, (size_t)i));
        for (int i = COUNT - 1; i >= 0; i--)
            TRY(parcel_recv(me, &in[i], peer, top - (uint64_t)i, length));
        for (int i = COUNT - 1; i >= 0; i--)
            TRY(parcel_came(me, &in[i], length, (size_t)i));
        for (int i = 0; i < COUNT; i++)
            TRY(parcel_sent(me, &out[i]));
    }
    return 0;
}

/* Messages that are there long before their receives. */
static int part_unexpected(body_rank_t *me)
{
    enum { COUNT = 6 };
    static const size_t length[COUNT] = {0, 100, 9000, 70000, 300000, 1};
    parcel_t in[8][COUNT] = {0}, out[8][COUNT] = {0};
    for (int peer = 0; peer < me->size; peer++)
        for (int i = 0; i < COUNT && peer != me->rank; i++)
            TRY(parcel_send(me, &out[peer][i], peer, (uint64_t)i, length[i], (size_t)i));
    double until = body_now() + 0.05;
    while (body_now() < until)
        me->transport->progress(me->link);
    for (int peer = 0; peer < me->size; peer++)
        for (int i = 0; i < COUNT && peer != me->rank; i++)
            TRY(parcel_recv(me, &in[peer][i], peer, (uint64_t)i, length[i]));
    for (int peer = 0; peer < me->size; peer++)
        for (int i = 0; i < COUNT && peer != me->rank; i++) {
            TRY(parcel_came(me, &in[peer][i], length[i], (size_t)i));
            TRY(parcel_sent(me, &out[peer][i]));
        }
    return 0;
}

/* Both have told each other that they have everything: a few turns later nobody depends on the
 * other's progress. */
static int farewell(body_rank_t *me, int peer)
{
    parcel_t in = {0}, out = {0};
    TRY(parcel_recv(me, &in, peer, 5, 0));
    TRY(parcel_send(me, &out, peer, 5, 0, 0));
    TRY(parcel_came(me, &in, 0, 0));
    TRY(parcel_sent(me, &out));
    for (int i = 0; i < 16; i++)
        me->transport->progress(me->link);
    return 0;
}

/* With everybody: before that a rank owes its peers progress (see the contract). */
static int farewells(body_rank_t *me)
{
    for (int peer = 0; peer < me->size; peer++)
        if (peer != me->rank)
            TRY(farewell(me, peer));
    return 0;
}

/* 64 messages outstanding each way between every pair, again and again. */
static int part_flood(body_rank_t *me)
{
    enum { COUNT = 64 };
    for (int round = 0; round < 4; round++) {
        parcel_t in[8][COUNT] = {0}, out[8][COUNT] = {0};
        size_t base = (size_t)round * round * 4000;
        for (int i = 0; i < COUNT; i++)
            for (int peer = 0; peer < me->size; peer++)
                if (peer != me->rank) {
                    TRY(parcel_recv(me, &in[peer][i], peer, (uint64_t)(i % 7), base + COUNT));
                    TRY(parcel_send(me, &out[peer][i], peer, (uint64_t)(i % 7), base + (size_t)i,
                                    (size_t)i));
                }
        for (int i = 0; i < COUNT; i++)
            for (int peer = 0; peer < me->size; peer++)
                if (peer != me->rank) {
                    TRY(parcel_came(me, &in[peer][i], base + (size_t)i, (size_t)i));
                    TRY(parcel_sent(me, &out[peer][i]));
                }
    }
    return farewells(me);
}

/* After a farewell a rank may stop progressing. */
static int part_standstill(body_rank_t *me)
{
    enum { COUNT = 20 };
    for (int round = 0; round < 20; round++) {
        parcel_t in[COUNT] = {0}, out[COUNT] = {0};
        int peer = me->rank ^ 1;
        size_t base = round % 2 ? 200000 : 3000;
        for (int i = 0; i < COUNT && peer < me->size; i++) {
            if ((me->rank + round / 2) % 2)
                TRY(parcel_recv(me, &in[i], peer, 4, base));
            else
                TRY(parcel_send(me, &out[i], peer, 4, base, (size_t)i));
        }
        for (int i = 0; i < COUNT && peer < me->size; i++) {
            if ((me->rank + round / 2) % 2)
                TRY(parcel_came(me, &in[i], base, (size_t)i));
            else
                TRY(parcel_sent(me, &out[i]));
        }
        if (peer < me->size)
            TRY(farewell(me, peer));
        TRY(meet(me));
    }
    return 0;
}

/* A message longer than the buffer is an error of that receive alone. */
static int part_too_long(body_rank_t *me)
{
    static const struct {
        size_t length, capacity;
    } cases[] = {{1000, 100}, {1, 0}, {20000, 19999}, {1 << 20, 65536}};
    int peer = me->rank ^ 1;
    for (size_t c = 0; c < 8 && peer < me->size; c++) {
        size_t length = cases[c % 4].length, capacity = cases[c % 4].capacity;
        parcel_t in = {0}, out = {0}, in2 = {0}, out2 = {0};
        if (c < 4)
            TRY(parcel_recv(me, &in, peer, 9, capacity));
        TRY(parcel_send(me, &out, peer, 9, length, c));
        if (c >= 4)
            TRY(parcel_recv(me, &in, peer, 9, capacity));
        gw_status_t status = body_finish(me, &in.req, PATIENCE);
        EXPECT(status == GW_ERR_FRAME_LENGTH, "%zu bytes into %zu: %s", length, capacity,
               gw_status_name(status));
        TRY(zones_intact(me, &in, capacity));
        TRY(parcel_sent(me, &out));
        TRY(parcel_recv(me, &in2, peer, 9, length));
        TRY(parcel_send(me, &out2, peer, 9, length, c + 1));
        TRY(parcel_came(me, &in2, length, c + 1));
        TRY(parcel_sent(me, &out2));
        parcel_free(me, &in);
    }
    return 0;
}

/* A cancelled receive takes no message; cancelling what is done changes nothing. */
static int part_cancel(body_rank_t *me)
{
    int peer = me->rank ^ 1;
    for (int i = 0; i < 20; i++) {
        if (peer >= me->size) {
            TRY(meet(me));
            continue;
        }
        parcel_t dead = {0}, in = {0}, out = {0};
        TRY(parcel_recv(me, &dead, peer, 3, 5000));
        EXPECT(dead.req.status == GW_IN_PROGRESS, "a receive of nothing: %s",
               gw_status_name(dead.req.status));
        me->transport->cancel(me->link, &dead.req);
        EXPECT(dead.req.status == GW_ERR_CANCELED, "cancel left %s",
               gw_status_name(dead.req.status));
        TRY(meet(me));
        TRY(parcel_send(me, &out, peer, 3, 5000, (size_t)i));
        TRY(parcel_recv(me, &in, peer, 3, 5000));
        TRY(parcel_came(me, &in, 5000, (size_t)i));
        me->transport->cancel(me->link, &in.req);
        EXPECT(in.req.status == GW_OK, "cancel of a finished receive left %s",
               gw_status_name(in.req.status));
        TRY(parcel_sent(me, &out));
        TRY(zones_intact(me, &dead, 0));
        parcel_free(me, &dead);
    }
    return 0;
}

/* Wrong arguments are refused and leave the link alone. */
static int part_arguments(body_rank_t *me)
{
    char byte = 0;
    gw_request_t req;
    const gw_transport_t *t = me->transport;
    EXPECT(t->send(me->link, me->rank, 1, &byte, 1, &req) == GW_ERR_INVALID,
           "a rank can send to itself");
    EXPECT(t->recv(me->link, -1, 1, &byte, 1, &req) == GW_ERR_INVALID, "peer -1 is accepted");
    EXPECT(t->send(me->link, me->size, 1, &byte, 1, &req) == GW_ERR_INVALID,
           "peer `size` is accepted");
    EXPECT(t->recv(me->link, me->rank ^ 1, UINT64_C(1) << GW_TAG_BITS, &byte, 1, &req) ==
               GW_ERR_INVALID,
           "a tag of 49 bits is accepted");
    EXPECT(req.status == GW_ERR_INVALID, "the request says %s", gw_status_name(req.status));
    return part_sizes(me);
}

/* wait() keeps to its bound when nothing happens, and a sleeper wakes up when something does. */
static int part_wait(body_rank_t *me)
{
    int peer = me->rank ^ 1;
    double start = body_now();
    me->transport->wait(me->link, 20000);
    EXPECT(body_now() - start < 5, "wait(20 ms) took %.1f s", body_now() - start);
    TRY(meet(me));
    for (int i = 0; i < 50 && peer < me->size; i++) {
        parcel_t in = {0}, out = {0};
        bool first = (me->rank & 1) == (i & 1);
        if (first)
            TRY(parcel_send(me, &out, peer, 1, 100, (size_t)i));
        TRY(parcel_recv(me, &in, peer, 1, 100));
        while (in.req.status == GW_IN_PROGRESS && body_now() - start < PATIENCE)
            if (me->transport->progress(me->link) == 0)
                me->transport->wait(me->link, 2000000);
        TRY(parcel_came(me, &in, 100, (size_t)i));
        if (!first)
            TRY(parcel_send(me, &out, peer, 1, 100, (size_t)i));
        TRY(parcel_sent(me, &out));
    }
    EXPECT(body_now() - start < 10, "50 messages to a sleeper took %.1f s", body_now() - start);
    return 0;
}

#define PARTS(X)                                                                                   \
    X(sizes)                                                                                       \
    X(order) X(tags) X(unexpected) X(flood) X(standstill) X(too_long) X(cancel) X(arguments) X(wait)

const char *const body_parts[] = {
#define PART_NAME(name) #name,
    PARTS(PART_NAME)
#undef PART_NAME
        NULL};

static int run_part(body_rank_t *me)
{
#define PART_RUN(name)                                                                             \
    if (!strcmp(#name, me->part))                                                                  \
        return part_##name(me);
    PARTS(PART_RUN)
#undef PART_RUN
    body_fail(me, "there is no part %s", me->part);
    return -1;
}

/* ---- life cycle
 * -------------------------------------------------------------------------------------- */

static void log_line(void *arg, gw_log_level_t level, const char *format, ...)
{
    va_list args;
    if (level > GW_LOG_WARN && !getenv("GW_TEST_VERBOSE"))
        return;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

typedef struct entry {
    size_t length;
    char bytes[GW_TRANSPORT_ADDRESS_MAX];
} entry_t;

static gw_status_t exchange(body_rank_t *me)
{
    entry_t mine = {.length = sizeof(mine.bytes)}, *all = calloc((size_t)me->size, sizeof(*all));
    gw_address_t addresses[64];
    gw_status_t status = me->transport->address(me->link, mine.bytes, &mine.length);
    gw_status_t gathered = me->gather(me->gather_arg, &mine, all, sizeof(mine));
    for (int i = 0; i < me->size; i++)
        addresses[i] = (gw_address_t){all[i].bytes, all[i].length};
    if (status == GW_OK)
        status = gathered;
    if (status == GW_OK)
        status = me->transport->connect(me->link, addresses);
    free(all);
    return status;
}

gw_link_params_t body_params(const body_rank_t *me)
{
    return (gw_link_params_t){.rank = me->rank,
                              .size = me->size,
                              .devices = me->devices,
                              .timeout = me->timeout > 0 ? me->timeout : 10,
                              .one_node = me->one_node,
                              .guard = me->guard,
                              .secret = me->secret,
                              .arg = me->arg,
                              .faults = me->faults,
                              .log = log_line,
                              .mpi_comm = me->mpi_comm};
}

int body_open(body_rank_t *me)
{
    gw_link_params_t params = body_params(me);
    gw_status_t status = me->transport->open(&params, &me->link);
    EXPECT(status == GW_OK, "open: %s", gw_status_name(status));
    status = exchange(me);
    EXPECT(status == GW_OK, "connect: %s", gw_status_name(status));
    return 0;
}

/* The end of what was sent may still be with the transport: the contract has senders progress until
 * the receiver has it. Where ranks are threads, the gather that follows cannot do so. */
static void linger(body_rank_t *me)
{
    double until = body_now() + 0.05;
    while (body_now() < until)
        if (me->transport->progress(me->link) > 0)
            until = body_now() + 0.05;
        else
            me->transport->wait(me->link, 1000);
}

void body_run(body_rank_t *me)
{
    char mine = 0, all[64];
    me->failure[0] = '\0';
    if (body_open(me) == 0)
        run_part(me);
    if (!me->link)
        return;
    snprintf(me->carrier, sizeof(me->carrier), "%s",
             me->transport->describe(me->link, me->rank == 0 ? 1 : 0));
    linger(me);
    me->gather(me->gather_arg, &mine, all, 1);
    double start = body_now();
    gw_status_t status = me->transport->close(me->link);
    me->link = NULL;
    if (status != GW_OK)
        body_fail(me, "close: %s", gw_status_name(status));
    if (body_now() - start > 11)
        body_fail(me, "close took %.1f s", body_now() - start);
}
