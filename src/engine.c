/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host engine: one pass over the rounds under way starts every task whose inputs are ready, and
 * moves data after each computing task, so that a chunk is encoded while the one before it is on
 * the wire.
 */
#include "engine.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "context_internal.h"
#include "memory.h"

enum { WAITING, RUNNING, DONE };

enum {
    SPINS = 64,          /* passes without an event before the engine sleeps */
    SLEEP_US = 1000,     /* longest sleep: bounds how late a timeout is noticed */
    LATE_WARNING_S = 10, /* a peer that has not entered the call earns a warning after this */
    LAST_TURNS = 4,      /* progress before a call returns */
    IDLE_EVERY = 64,   /* passes after which the caller's library gets a turn although all moves */
    LOOK_EVERY = 4096, /* passes after which silence is judged even if the transport is busy */
    STANDSTILL_MS =
        500, /* longer between two looks: this process itself was stopped or computing */
};

/* A round holds frames of all ranks: at a thousand ranks six of them would take gigabytes. */
#define MEMORY_LIMIT ((size_t)256 << 20)

/* A tag: call number, round, stage. Only a few calls are under way at once, so 24 bits of the
 * number are enough. */
uint64_t gw__engine_tag(const gw__engine_call_t *call, uint32_t round, gw__stage_t stage)
{
    return (call->number & 0xFFFFFF) << 24 | (uint64_t)round << 1 | (uint64_t)stage;
}

gw_status_t gw__engine_init(gw__engine_t *engine, gw_context_t *context, int rank, int size)
{
    memset(engine, 0, sizeof *engine);
    engine->context = context;
    engine->rank = rank;
    engine->size = size;
    engine->timeout = context->settings.timeout;
    engine->checksum = context->settings.checksum;
    engine->failed_rank = -1;
    engine->memory_limit = MEMORY_LIMIT;
    engine->arrived = calloc((size_t)size, sizeof *engine->arrived);
    engine->expected = calloc((size_t)size, sizeof *engine->expected);
    engine->heard = calloc((size_t)size, sizeof *engine->heard);
    engine->closing = calloc((size_t)size, sizeof *engine->closing);
    if (!engine->arrived || !engine->expected || !engine->heard || !engine->closing) {
        gw__engine_free(engine);
        return GW_ERR_NO_MEMORY;
    }
    return gw_coder_parse("raw", &engine->raw, NULL, 0);
}

void gw__engine_attach(gw__engine_t *engine, const gw_transport_t *transport, gw_link_t *link)
{
    engine->transport = transport;
    engine->link = link;
}

void gw__engine_free(gw__engine_t *engine)
{
    gw__memory_unmap(engine->memory, engine->memory_bytes);
    free(engine->arrived);
    free(engine->expected);
    free(engine->heard);
    free(engine->closing);
    engine->memory = NULL;
    engine->closing = NULL;
    engine->heard = NULL;
    engine->arrived = engine->expected = NULL;
}

gw_status_t gw__engine_fail(gw__engine_t *engine, gw_status_t status, int peer, const char *format,
                            ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(engine->error, sizeof engine->error, format, args);
    va_end(args);
    engine->failed_rank = peer;
    return status;
}

static bool ready(const gw__round_t *round, const gw__task_t *task)
{
    for (int d = 0; d < 2; d++)
        if (task->dep[d] != GW__NO_TASK && round->state[task->dep[d]] != DONE)
            return false;
    return true;
}

static void expect(gw__engine_t *engine, int peer)
{
    if (engine->expected[peer])
        return;
    engine->expected[peer] = true;
    engine->missing++;
}

/* The first bytes of a peer in this call: until then it is late, from then on it must keep going.
 */
static void arrive(gw__engine_t *engine, int peer)
{
    if (engine->arrived[peer])
        return;
    engine->arrived[peer] = true;
    if (--engine->missing == 0)
        engine->wait_ns = gw__now_ns() - engine->started - engine->encode_ns - engine->decode_ns;
}

void gw__engine_idle(const gw__engine_t *engine)
{
    if (engine->idle)
        engine->idle(engine->idle_arg);
}

void gw__engine_heard(gw__engine_t *engine, int peer)
{
    engine->silence_ns = 0;
    engine->heard[peer] = gw__now_ns();
    arrive(engine, peer);
}

static gw_status_t finish_message(gw__engine_t *engine, gw__round_t *round, uint32_t i)
{
    const gw__task_t *task = &round->task[i];
    const gw_request_t *request = &round->request[i];
    bool receive = task->kind == GW__TASK_RECV;
    if (request->status != GW_OK)
        return gw__engine_fail(engine, request->status, task->peer,
                               "rank %d: %s while %s (round %u of %u)", task->peer,
                               gw_status_text(request->status),
                               receive ? "receiving from it" : "sending to it", round->number,
                               engine->call->plan.rounds);
    engine->silence_ns = 0;
    if (receive) {
        round->frame_length[task->buffer] = request->length;
        gw__engine_heard(engine, task->peer);
    }
    return GW_OK;
}

static gw_status_t start_message(gw__engine_t *engine, gw__round_t *round, uint32_t i)
{
    const gw__task_t *task = &round->task[i];
    uint64_t tag = gw__engine_tag(engine->call, round->number, task->stage);
    uint8_t *frame = gw__engine_frame(engine, round, task);
    gw_request_t *request = &round->request[i];
    memset(request, 0, sizeof *request);
    if (task->kind == GW__TASK_RECV)
        return engine->transport->recv(engine->link, task->peer, tag, frame, engine->frame_capacity,
                                       request);
    engine->figures.wire_bytes += round->frame_length[task->buffer];
    return engine->transport->send(engine->link, task->peer, tag, frame,
                                   round->frame_length[task->buffer], request);
}

static gw_status_t compute(gw__engine_t *engine, gw__round_t *round, const gw__task_t *task)
{
    int64_t begin = gw__now_ns();
    gw_status_t status = gw__engine_compute(engine, round, task);
    bool encodes = task->kind == GW__TASK_ENCODE || task->kind == GW__TASK_SUM_ENCODE;
    *(encodes ? &engine->encode_ns : &engine->decode_ns) += gw__now_ns() - begin;
    if (status == GW_OK)
        return GW_OK;
    /* Without a peer it is about the own elements. */
    int rank = task->peer >= 0 ? task->peer : engine->rank;
    return gw__engine_fail(engine, status, rank, "rank %d: %s (%s of elements %zu to %zu)", rank,
                           gw_status_text(status), gw__task_kind_name(task->kind), task->first,
                           task->first + task->count);
}

/* Brings one task forward if that is possible now; *moved tells whether anything happened. */
static gw_status_t advance(gw__engine_t *engine, gw__round_t *round, uint32_t i, bool *moved)
{
    const gw__task_t *task = &round->task[i];
    bool message = task->kind == GW__TASK_SEND || task->kind == GW__TASK_RECV;
    gw_status_t status = GW_OK;
    if (round->state[i] == WAITING) {
        if (!ready(round, task))
            return GW_OK;
        *moved = true;
        if (message) {
            round->state[i] = RUNNING;
            start_message(engine, round, i);
        } else {
            status = compute(engine, round, task);
            engine->transport->progress(engine->link);
        }
    }
    if (message && round->request[i].status == GW_IN_PROGRESS)
        return GW_OK;
    if (message)
        status = finish_message(engine, round, i);
    round->state[i] = DONE;
    round->done++;
    *moved = true;
    return status;
}

static gw__round_t *round_at(gw__engine_t *engine, uint32_t k)
{
    return &engine->rounds[k % engine->window];
}

/* Fills free places of the window, and posts the receives of the new rounds at once. */
static void admit(gw__engine_t *engine)
{
    const gw__plan_t *plan = &engine->call->plan;
    while (engine->next_round < plan->rounds &&
           engine->next_round < engine->done_rounds + engine->window) {
        gw__round_t *round = round_at(engine, engine->next_round);
        round->number = engine->next_round++;
        round->tasks = gw__plan_round(plan, round->number, round->task);
        round->open = round->done = 0;
        memset(round->state, WAITING, round->tasks);
        for (uint32_t i = 0; i < round->tasks; i++) {
            if (round->task[i].kind != GW__TASK_RECV)
                continue;
            expect(engine, round->task[i].peer);
            round->state[i] = RUNNING;
            start_message(engine, round, i);
        }
    }
}

/* One pass over everything under way. */
static gw_status_t pass(gw__engine_t *engine, bool *moved)
{
    admit(engine);
    *moved = engine->transport->progress(engine->link) > 0;
    for (uint32_t k = engine->done_rounds; k < engine->next_round; k++) {
        gw__round_t *round = round_at(engine, k);
        for (uint32_t i = round->open; i < round->tasks; i++) {
            if (round->state[i] == DONE)
                continue;
            gw_status_t status = advance(engine, round, i, moved);
            if (status != GW_OK)
                return status;
        }
        while (round->open < round->tasks && round->state[round->open] == DONE)
            round->open++;
    }
    while (engine->done_rounds < engine->next_round) {
        const gw__round_t *round = round_at(engine, engine->done_rounds);
        if (round->done < round->tasks)
            break;
        engine->done_rounds++;
    }
    if (engine->done_rounds == engine->call->plan.rounds)
        gw__closing_tell(engine);
    return gw__closing_step(engine, moved);
}

/* The peer to blame for silence, -1: none. Of those that owe a message the one heard longest ago:
 * the others wait for it too, and went on a little longer. Without such, one that takes no message.
 */
static int silent_peer(gw__engine_t *engine)
{
    int owes = -1, takes = -1;
    for (uint32_t k = engine->done_rounds; k < engine->next_round; k++) {
        const gw__round_t *round = round_at(engine, k);
        for (uint32_t i = 0; i < round->tasks; i++) {
            int peer = round->task[i].peer;
            if (round->state[i] != RUNNING)
                continue;
            if (round->task[i].kind == GW__TASK_SEND)
                takes = peer;
            else if (owes < 0 || engine->heard[peer] < engine->heard[owes])
                owes = peer;
        }
    }
    if (owes >= 0 || takes >= 0)
        return owes >= 0 ? owes : takes;
    for (int r = 0; r < engine->size; r++)
        if (engine->closing[r].takes_part && !engine->closing[r].heard)
            return r;
    return -1;
}

static void warn_late(gw__engine_t *engine, double silence)
{
    int rank = 0;
    while (rank < engine->size - 1 && (!engine->expected[rank] || engine->arrived[rank]))
        rank++;
    gw_context_log(engine->context, GW_LOG_WARN,
                   "all-reduce %llu of %zu elements: rank %d%s not entered it for %.0f s; waiting",
                   (unsigned long long)engine->call->number, engine->call->plan.count, rank,
                   engine->missing > 1 ? " and others have" : " has", silence);
    engine->told_late = true;
}

/*
 * What silence means. While a peer has not entered the call it may be evaluating or loading data:
 * that earns a warning, and excuses the others too, since they may be waiting for the same peer.
 */
static gw_status_t judge_silence(gw__engine_t *engine)
{
    int64_t now = gw__now_ns(), step = now - engine->last_look;
    int64_t most = (int64_t)STANDSTILL_MS * 1000000;
    engine->last_look = now;
    engine->silence_ns += step < most ? step : most;
    double silence = (double)engine->silence_ns * 1e-9;
    if (engine->missing > 0) {
        double patience = engine->timeout < LATE_WARNING_S ? engine->timeout : LATE_WARNING_S;
        if (!engine->told_late && silence > patience)
            warn_late(engine, silence);
        return GW_OK;
    }
    if (silence < engine->timeout)
        return GW_OK;
    return gw__closing_blame(engine, silent_peer(engine), silence);
}

static void cancel_all(gw__engine_t *engine)
{
    for (uint32_t k = engine->done_rounds; k < engine->next_round; k++) {
        gw__round_t *round = round_at(engine, k);
        for (uint32_t i = 0; i < round->tasks; i++)
            if (round->state[i] == RUNNING && round->request[i].status == GW_IN_PROGRESS)
                engine->transport->cancel(engine->link, &round->request[i]);
    }
}

static void fill_times(gw__engine_t *engine, gw__engine_figures_t *f)
{
    int64_t total = gw__now_ns() - engine->started;
    f->encode_us = (uint64_t)engine->encode_ns / 1000;
    f->decode_us = (uint64_t)engine->decode_ns / 1000;
    f->wait_us = (uint64_t)engine->wait_ns / 1000;
    f->wire_us = (uint64_t)(total - engine->encode_ns - engine->decode_ns - engine->wait_ns) / 1000;
    f->time_us = (uint64_t)total / 1000;
}

static void begin(gw__engine_t *engine, const gw__engine_call_t *call)
{
    engine->call = call;
    memset(&engine->figures, 0, sizeof engine->figures);
    memset(engine->arrived, 0, (size_t)engine->size * sizeof *engine->arrived);
    memset(engine->expected, 0, (size_t)engine->size * sizeof *engine->expected);
    memset(engine->heard, 0, (size_t)engine->size * sizeof *engine->heard);
    engine->next_round = engine->done_rounds = 0;
    engine->missing = engine->open = 0;
    engine->encode_ns = engine->decode_ns = engine->wait_ns = 0;
    engine->told_late = false;
    engine->silence_ns = 0;
    engine->started = engine->last_look = gw__now_ns();
}

static gw_status_t run(gw__engine_t *engine)
{
    int idle = 0, passes = 0;
    while (engine->done_rounds < engine->call->plan.rounds || engine->open > 0) {
        bool moved;
        gw_status_t status = pass(engine, &moved);
        if (status != GW_OK)
            return status;
        idle = moved ? 0 : idle + 1;
        passes++;
        if (!moved || passes % IDLE_EVERY == 0)
            gw__engine_idle(engine);
        if (idle >= SPINS)
            engine->transport->wait(engine->link, SLEEP_US);
        else if (!moved)
            sched_yield();
        if (idle < SPINS && passes % LOOK_EVERY != 0)
            continue;
        status = judge_silence(engine);
        if (status != GW_OK)
            return status;
    }
    /* The last closing message of this rank may still be queued: nothing is in its way now. */
    for (int i = 0; i < LAST_TURNS; i++)
        engine->transport->progress(engine->link);
    return GW_OK;
}

gw_status_t gw__engine_run(gw__engine_t *engine, const gw__engine_call_t *call,
                           gw__engine_figures_t *figures)
{
    begin(engine, call);
    gw__closing_begin(engine);
    gw_status_t status = gw__engine_reserve(engine, call);
    if (status != GW_OK)
        gw__engine_fail(engine, status, -1, "no memory for the frames of %zu elements",
                        call->plan.chunk);
    else
        status = run(engine);
    if (status != GW_OK) {
        cancel_all(engine);
        gw__closing_abort(engine, status);
    }
    fill_times(engine, &engine->figures);
    *figures = engine->figures;
    return status;
}
