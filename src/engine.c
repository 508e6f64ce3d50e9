/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host engine: one pass over the rounds under way starts every task whose inputs are ready.
 * Computing is done here, with a turn of the transport after each task, so that a chunk is encoded
 * while the one before it is on the wire; what is ready beyond that goes to workers.
 */
#include "engine.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "context_internal.h"
#include "engine_gpu.h"
#include "memory.h"

enum {
    SPINS = 64,       /* steps without an event before the engine sleeps */
    SLEEP_US = 1000,  /* longest sleep: bounds how late a timeout is noticed */
    LAST_TURNS = 4,   /* progress before a call returns */
    IDLE_EVERY = 64,  /* steps after which the caller's library gets a turn although all moves */
    LOOK_EVERY = 4096 /* steps after which silence is judged even if the transport is busy */
};

/* A round holds frames of all ranks: at a thousand ranks six of them would take gigabytes. */
#define MEMORY_LIMIT ((size_t)256 << 20)

/* A tag: call number, message, stage. Only a few calls are under way at once, so 24 bits of the
 * number are enough. */
uint64_t gw__engine_tag(const gw__engine_call_t *call, uint32_t message, gw__stage_t stage)
{
    return (call->number & 0xFFFFFF) << 24 | (uint64_t)message << 1 | (uint64_t)stage;
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
    free(engine->timeline);
    engine->memory = NULL;
    engine->timeline = NULL;
    engine->closing = NULL;
    engine->heard = NULL;
    engine->arrived = engine->expected = NULL;
}

gw_status_t gw__engine_fail(gw__engine_t *engine, gw_status_t status, int peer, const char *format,
                            ...)
{
    va_list args;
    va_start(args, format);
    int used = vsnprintf(engine->error, sizeof engine->error, format, args);
    va_end(args);
    /* Who was stopped hears from the others only that they are gone. */
    double still = gw__engine_standstill(engine);
    if (still > 0 && used > 0 && (size_t)used < sizeof engine->error)
        snprintf(engine->error + used, sizeof engine->error - (size_t)used,
                 "; this process itself stood still for %.1f s", still);
    engine->failed_rank = peer;
    return status;
}

static bool ready(const gw__round_t *round, const gw__task_t *task)
{
    for (uint32_t i = task->dep[0]; task->span && i <= task->dep[1]; i++)
        if (round->state[i] != GW__TASK_DONE)
            return false;
    for (int d = 0; d < 2 && !task->span; d++)
        if (task->dep[d] != GW__NO_TASK && round->state[task->dep[d]] != GW__TASK_DONE)
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
        engine->wait_ns = gw__now_ns() - engine->started - engine->own_ns;
}

void gw__engine_idle(const gw__engine_t *engine)
{
    if (engine->idle && !engine->elsewhere)
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
    if (request->status != GW_OK) {
        /* The echo of a peer that gave up and left: it may have said why. */
        gw_status_t told = gw__closing_heed(engine, task->peer);
        if (told != GW_OK)
            return told;
        return gw__engine_fail(engine, request->status, task->peer,
                               "rank %d: %s while %s (round %u of %u)", task->peer,
                               gw_status_text(request->status),
                               receive ? "receiving from it" : "sending to it", round->number,
                               engine->call->plan.rounds);
    }
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
    uint32_t message = round->number * engine->call->plan.channels + task->channel;
    uint64_t tag = gw__engine_tag(engine->call, message, task->stage);
    uint8_t *frame = gw__engine_frame(engine, round, task);
    gw_request_t *request = &round->request[i];
    memset(request, 0, sizeof *request);
    round->state[i] = GW__TASK_RUNNING;
    round->began_ns[i] = engine->timeline ? gw__now_ns() : 0;
    if (task->kind == GW__TASK_RECV)
        return engine->transport->recv(engine->link, task->peer, tag, frame, engine->frame_capacity,
                                       request);
    engine->figures.wire_bytes += round->frame_length[task->buffer];
    return engine->transport->send(engine->link, task->peer, tag, frame,
                                   round->frame_length[task->buffer], request);
}

static bool is_message(const gw__task_t *task)
{
    return task->kind == GW__TASK_SEND || task->kind == GW__TASK_RECV;
}

static void note(const gw__engine_t *engine, const gw__round_t *round, const gw__task_t *task,
                 int lane, int64_t begin, int64_t end)
{
    if (engine->timeline)
        gw__timeline_add(engine->timeline, &(gw__event_t){.kind = task->kind,
                                                          .stage = task->stage,
                                                          .lane = lane,
                                                          .peer = task->peer,
                                                          .round = round->number,
                                                          .begin_ns = begin,
                                                          .end_ns = end});
}

static void done(gw__round_t *round, uint32_t i)
{
    round->state[i] = GW__TASK_DONE;
    round->done++;
}

gw_status_t gw__engine_computed(gw__engine_t *engine, gw__round_t *round, uint32_t i, int lane,
                                const gw__result_t *outcome)
{
    const gw__task_t *task = &round->task[i];
    int64_t spent = outcome->end_ns - outcome->begin_ns;
    *(gw__task_encodes(task->kind) ? &engine->encode_ns : &engine->decode_ns) += spent;
    engine->own_ns += lane == 0 ? spent : 0;
    engine->figures.poisoned += outcome->poisoned;
    note(engine, round, task, lane, outcome->begin_ns, outcome->end_ns);
    done(round, i);
    if (outcome->status == GW_OK)
        return GW_OK;
    /* Without a peer it is about the own elements. */
    int rank = outcome->peer >= 0 ? outcome->peer : engine->rank;
    return gw__engine_fail(engine, outcome->status, rank, "rank %d: %s (%s of elements %zu to %zu)",
                           rank, gw_status_text(outcome->status), gw__task_kind_name(task->kind),
                           task->first, task->first + task->count);
}

/* Does a task here, with a turn of the transport after it. */
static gw_status_t compute(gw__engine_t *engine, gw__round_t *round, uint32_t i)
{
    gw__result_t result;
    round->state[i] = GW__TASK_RUNNING;
    gw__engine_compute(engine, round, &round->task[i], &result);
    gw_status_t status = gw__engine_computed(engine, round, i, 0, &result);
    engine->transport->progress(engine->link);
    return status;
}

/*
 * Who does a task that is ready. With workers the first of a pass is kept for this thread, which
 * does it at the end of the pass; the others are offered. So nobody is woken where one task is
 * ready at a time, because the wire is the limit.
 */
static gw_status_t assign(gw__engine_t *engine, gw__round_t *round, uint32_t i)
{
    if (engine->call->gpu)
        return gw__gpu_start(engine, round, i);
    if (engine->hands == 0)
        return compute(engine, round, i);
    if (!engine->kept) {
        engine->kept = round;
        engine->kept_task = i;
    } else if (gw__hands_offer(engine, round, i)) {
        round->state[i] = GW__TASK_RUNNING;
    }
    return GW_OK;
}

static gw_status_t compute_kept(gw__engine_t *engine)
{
    gw__round_t *round = engine->kept;
    engine->kept = NULL;
    return round ? compute(engine, round, engine->kept_task) : GW_OK;
}

/* Brings one task forward if that is possible now; *moved tells whether anything happened. */
static gw_status_t advance(gw__engine_t *engine, gw__round_t *round, uint32_t i, bool *moved)
{
    const gw__task_t *task = &round->task[i];
    bool message = is_message(task);
    if (round->state[i] == GW__TASK_WAITING) {
        if (!ready(round, task))
            return GW_OK;
        *moved = true;
        if (!message)
            return assign(engine, round, i);
        start_message(engine, round, i);
    }
    if (!message)
        return gw__gpu_collect(engine, round, i, moved);
    if (round->request[i].status == GW_IN_PROGRESS)
        return GW_OK;
    done(round, i);
    *moved = true;
    note(engine, round, task, 0, round->began_ns[i], engine->timeline ? gw__now_ns() : 0);
    return finish_message(engine, round, i);
}

gw__round_t *gw__engine_round(gw__engine_t *engine, uint32_t k)
{
    return &engine->rounds[k % engine->window];
}

/* Fills free places of the window, and posts the receives of the new rounds at once. */
static void admit(gw__engine_t *engine)
{
    const gw__plan_t *plan = &engine->call->plan;
    while (engine->next_round < plan->rounds &&
           engine->next_round < engine->done_rounds + engine->window) {
        gw__round_t *round = gw__engine_round(engine, engine->next_round);
        round->number = engine->next_round++;
        round->tasks = gw__plan_round(plan, round->number, round->task);
        round->open = round->done = 0;
        memset(round->state, GW__TASK_WAITING, round->tasks);
        for (uint32_t i = 0; i < round->tasks; i++) {
            if (round->task[i].kind != GW__TASK_RECV)
                continue;
            expect(engine, round->task[i].peer);
            start_message(engine, round, i);
        }
    }
}

/* One pass over everything under way. */
static gw_status_t pass(gw__engine_t *engine, bool *moved)
{
    gw_status_t status;
    admit(engine);
    *moved = gw__hands_collect(engine, &status);
    if (status != GW_OK)
        return status;
    *moved |= engine->transport->progress(engine->link) > 0;
    for (uint32_t k = engine->done_rounds; k < engine->next_round; k++) {
        gw__round_t *round = gw__engine_round(engine, k);
        for (uint32_t i = round->open; i < round->tasks; i++) {
            if (round->state[i] == GW__TASK_DONE)
                continue;
            status = advance(engine, round, i, moved);
            if (status != GW_OK)
                return status;
        }
        while (round->open < round->tasks && round->state[round->open] == GW__TASK_DONE)
            round->open++;
    }
    status = compute_kept(engine);
    if (status != GW_OK)
        return status;
    while (engine->done_rounds < engine->next_round) {
        const gw__round_t *round = gw__engine_round(engine, engine->done_rounds);
        if (round->done < round->tasks)
            break;
        engine->done_rounds++;
    }
    if (engine->done_rounds == engine->call->plan.rounds)
        gw__closing_tell(engine);
    return gw__closing_step(engine, moved);
}

static void cancel_all(gw__engine_t *engine)
{
    for (uint32_t k = engine->done_rounds; k < engine->next_round; k++) {
        gw__round_t *round = gw__engine_round(engine, k);
        for (uint32_t i = 0; i < round->tasks; i++)
            if (is_message(&round->task[i]) && round->state[i] == GW__TASK_RUNNING &&
                round->request[i].status == GW_IN_PROGRESS)
                engine->transport->cancel(engine->link, &round->request[i]);
    }
}

static void fill_times(gw__engine_t *engine, gw__engine_figures_t *f)
{
    int64_t total = gw__now_ns() - engine->started;
    f->encode_us = (uint64_t)engine->encode_ns / 1000;
    f->decode_us = (uint64_t)engine->decode_ns / 1000;
    f->wait_us = (uint64_t)engine->wait_ns / 1000;
    f->wire_us = (uint64_t)(total - engine->own_ns - engine->wait_ns) / 1000;
    f->time_us = (uint64_t)total / 1000;
}

static void clear(gw__engine_t *engine, const gw__engine_call_t *call)
{
    engine->call = call;
    memset(&engine->figures, 0, sizeof engine->figures);
    memset(engine->arrived, 0, (size_t)engine->size * sizeof *engine->arrived);
    memset(engine->expected, 0, (size_t)engine->size * sizeof *engine->expected);
    memset(engine->heard, 0, (size_t)engine->size * sizeof *engine->heard);
    engine->next_round = engine->done_rounds = 0;
    engine->missing = engine->open = 0;
    engine->idle_steps = engine->steps = 0;
    engine->kept = NULL;
    engine->encode_ns = engine->decode_ns = engine->wait_ns = engine->own_ns = 0;
    engine->told_late = engine->greeted = false;
    engine->next_reach = 0;
    engine->silence_ns = engine->standstill_ns = 0;
    engine->started = engine->last_look = gw__now_ns();
}

/* The call is over: ends what is under way, and tells the others if it went wrong. */
static gw_status_t end(gw__engine_t *engine, gw_status_t status)
{
    gw__hands_dismiss(engine);
    if (status != GW_OK) {
        cancel_all(engine);
        gw__closing_abort(engine, status);
        gw__gpu_drain(engine);
    } else {
        /* The last closing message of this rank may still be queued: nothing is in its way now. */
        for (int i = 0; i < LAST_TURNS; i++)
            engine->transport->progress(engine->link);
    }
    fill_times(engine, &engine->figures);
    if (engine->timeline)
        engine->timeline->end_ns = gw__now_ns();
    engine->status = status;
    return status;
}

void gw__engine_begin(gw__engine_t *engine, const gw__engine_call_t *call)
{
    clear(engine, call);
    engine->status = GW_IN_PROGRESS;
    if (engine->timeline)
        gw__timeline_begin(engine->timeline, engine->started, gw__plan_relays(call->plan.kind));
    gw__closing_begin(engine);
    gw__hands_borrow(engine);
    gw_status_t status = gw__engine_reserve(engine, call);
    if (status != GW_OK) {
        gw__engine_fail(engine, status, -1, "no memory for the frames of %zu elements",
                        call->plan.chunk);
        end(engine, status);
        return;
    }
    status = gw__gpu_begin(engine);
    if (status != GW_OK)
        end(engine, status);
}

static bool is_over(const gw__engine_t *engine)
{
    return engine->done_rounds == engine->call->plan.rounds && engine->open == 0;
}

gw_status_t gw__engine_step(gw__engine_t *engine)
{
    if (engine->status != GW_IN_PROGRESS)
        return engine->status;
    bool moved;
    gw_status_t status = pass(engine, &moved);
    if (status != GW_OK || is_over(engine))
        return end(engine, status);
    engine->idle_steps = moved || gw__hands_busy(engine) ? 0 : engine->idle_steps + 1;
    if (engine->idle_steps > 0)
        gw__closing_greet(engine);
    engine->steps++;
    if (engine->idle_steps < SPINS && engine->steps % LOOK_EVERY != 0)
        return GW_IN_PROGRESS;
    status = gw__gpu_busy(engine) ? gw__gpu_judge(engine) : gw__engine_judge_silence(engine);
    return status == GW_OK ? GW_IN_PROGRESS : end(engine, status);
}

void gw__engine_rest(gw__engine_t *engine)
{
    if (engine->idle_steps > 0 || engine->steps % IDLE_EVERY == 0)
        gw__engine_idle(engine);
    if (engine->idle_steps >= SPINS && gw__gpu_busy(engine))
        gw__gpu_rest();
    else if (engine->idle_steps >= SPINS)
        engine->transport->wait(engine->link, SLEEP_US);
    else if (engine->idle_steps > 0 || gw__hands_busy(engine))
        sched_yield();
}

void gw__engine_give_up(gw__engine_t *engine, gw_status_t status, const char *why)
{
    if (engine->status == GW_IN_PROGRESS)
        end(engine, gw__engine_fail(engine, status, engine->rank, "%s", why));
}

void gw__engine_abandon(gw__engine_t *engine)
{
    if (engine->status == GW_IN_PROGRESS)
        end(engine, gw__engine_fail(engine, GW_ERR_CANCELED, engine->rank,
                                    "the communicator was freed before the call was over"));
}
