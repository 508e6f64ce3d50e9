/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's computing tasks and its working memory. */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "engine.h"
#include "frame.h"
#include "hash.h"
#include "kernels.h"
#include "memory.h"
#include "reduce.h"

enum { ALIGNMENT = 64 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

/* Takes the next piece of the working memory; with base NULL it only counts. */
static void *take(uint8_t *base, size_t *used, size_t bytes)
{
    void *piece = base ? base + *used : NULL;
    *used += aligned(bytes);
    return piece;
}

/* Elements of a round's sums: of chunks, of a slice of one, or none. */
static size_t sum_room(const gw__engine_call_t *call)
{
    if (!call->plan.reduces)
        return gw__plan_max_sums(call->plan.kind, call->plan.size) * call->plan.chunk;
    return call->coder->family->reduce ? 0 : gw__reduce_slice(call->coder);
}

/* Bytes of `window` rounds. */
static size_t lay_out(gw__engine_t *engine, const gw__engine_call_t *call, uint32_t window,
                      uint8_t *base)
{
    uint32_t tasks = gw__plan_max_tasks(call->plan.kind, engine->size);
    uint32_t buffers = gw__plan_max_buffers(call->plan.kind, engine->size);
    size_t used = 0;
    for (uint32_t w = 0; w < window; w++) {
        gw__round_t *round = &engine->rounds[w];
        round->task = take(base, &used, tasks * sizeof *round->task);
        round->request = take(base, &used, tasks * sizeof *round->request);
        round->began_ns = take(base, &used, tasks * sizeof *round->began_ns);
        round->frame_length = take(base, &used, buffers * sizeof *round->frame_length);
        round->state = take(base, &used, tasks * sizeof *round->state);
        round->frames = take(base, &used, buffers * engine->frame_capacity);
        bool reduces = call->plan.reduces;
        size_t peers = reduces ? (size_t)engine->size : 0;
        round->sum = take(base, &used, sum_room(call) * sizeof *round->sum);
        round->payload = take(base, &used, peers * sizeof *round->payload);
        round->payload_length = take(base, &used, peers * sizeof *round->payload_length);
    }
    return used;
}

gw_status_t gw__engine_reserve(gw__engine_t *engine, const gw__engine_call_t *call)
{
    engine->frame_capacity = aligned(gw_frame_bound(call->coder, call->dtype, call->plan.chunk));
    size_t fitting = engine->memory_limit / lay_out(engine, call, 1, NULL);
    engine->window = fitting < 1 ? 1 : fitting < GW__WINDOW ? (uint32_t)fitting : GW__WINDOW;
    if (engine->window > call->plan.rounds)
        engine->window = call->plan.rounds;
    size_t bytes = lay_out(engine, call, engine->window, NULL);
    if (bytes > engine->memory_bytes) {
        gw__memory_unmap(engine->memory, engine->memory_bytes);
        engine->memory_bytes = 0;
        engine->memory = gw__memory_map(bytes);
        if (!engine->memory)
            return GW_ERR_NO_MEMORY;
        engine->memory_bytes = bytes;
    }
    lay_out(engine, call, engine->window, engine->memory);
    return GW_OK;
}

uint8_t *gw__engine_frame(const gw__engine_t *engine, const gw__round_t *round,
                          const gw__task_t *task)
{
    return round->frames + (size_t)task->buffer * engine->frame_capacity;
}

/* Of the randomness of one encoding: ranks and stages never share it. */
static uint64_t key_of(const gw__engine_t *engine, const gw__task_t *task)
{
    return gw__mix64(engine->call->key ^ (uint64_t)engine->rank << 1 ^ (uint64_t)task->stage);
}

static gw_status_t encode(const gw__engine_t *engine, gw__round_t *round, const gw__task_t *task,
                          const void *src, gw_dtype_t src_dtype, gw__result_t *out)
{
    const gw__engine_call_t *call = engine->call;
    gw_encode_t in = {
        .src = src,
        .src_dtype = src_dtype,
        .wire_dtype = call->dtype,
        .residual = call->residual ? call->residual + task->first : NULL,
        .momentum = call->momentum && task->stage == GW__PUSH ? call->momentum + task->first : NULL,
        .count = task->count,
        .first = task->first,
        .key = key_of(engine, task),
        .shared_key = call->key,
    };
    gw_status_t status =
        gw__frame_encode(call->coder, &in, engine->checksum, gw__engine_frame(engine, round, task),
                         engine->frame_capacity, &round->frame_length[task->buffer]);
    out->poisoned = in.poisoned;
    return status;
}

static gw_status_t decode(const gw__engine_t *engine, gw__round_t *round, const gw__task_t *task,
                          gw_decode_mode_t mode, void *dst, gw_dtype_t dst_dtype, gw__result_t *out)
{
    gw_decode_t io = {
        .payload = gw__engine_frame(engine, round, task),
        .length = round->frame_length[task->buffer],
        .wire_dtype = engine->call->dtype,
        .count = task->count,
        .first = task->first,
        .mode = mode,
        .dst = dst,
        .dst_dtype = dst_dtype,
    };
    out->peer = task->peer;
    return gw_frame_decode(engine->call->coder, &io);
}

/* Adds own elements and the frames of the tasks before this one, which lie in order of rank. */
static gw_status_t reduce(const gw__engine_t *engine, gw__round_t *round, const gw__task_t *task,
                          const void *own, gw__result_t *out)
{
    const gw__engine_call_t *call = engine->call;
    gw_reduce_t in = {
        .own = own,
        .own_dtype = call->dtype,
        .payload = round->payload,
        .length = round->payload_length,
        .scale = call->scale,
        .wire_dtype = call->dtype,
        .residual = call->residual ? call->residual + task->first : NULL,
        .count = task->count,
        .first = task->first,
        .key = key_of(engine, task),
        .shared_key = call->key,
    };
    for (uint32_t i = task->dep[0]; i <= task->dep[1]; i++) {
        const gw__task_t *from = &round->task[i];
        in.own_at += from->peer < engine->rank;
        round->payload[in.payloads] = gw__engine_frame(engine, round, from);
        round->payload_length[in.payloads++] = round->frame_length[from->buffer];
    }
    gw_status_t status = gw__frame_reduce(
        call->coder, &in, engine->checksum, round->sum, gw__engine_frame(engine, round, task),
        engine->frame_capacity, &round->frame_length[task->buffer]);
    out->poisoned = in.poisoned;
    if (status != GW_OK && in.refused < in.payloads)
        out->peer = round->task[task->dep[0] + (uint32_t)in.refused].peer;
    return status;
}

/* Own elements into the sum by way of their momentum, as an encoder takes those that it sends. */
static gw_status_t copy_momentum(const gw__engine_t *engine, gw__round_t *round,
                                 const gw__task_t *task, const uint8_t *own, size_t element)
{
    enum { TILE = 2048 };
    const gw__engine_call_t *call = engine->call;
    float sent[TILE];
    gw_status_t status = GW_OK;
    for (size_t i = 0; i < task->count && status == GW_OK; i += TILE) {
        gw_encode_t in = {.src = own + i * element,
                          .src_dtype = call->dtype,
                          .wire_dtype = call->dtype,
                          .momentum = call->momentum + task->first + i,
                          .count = task->count - i < TILE ? task->count - i : TILE,
                          .first = task->first + i,
                          .key = key_of(engine, task),
                          .shared_key = call->key};
        status =
            call->coder->family->correct(call->coder, &in, task->opens ? round->sum + i : sent);
        if (status == GW_OK && !task->opens)
            gw__kernels()->sum.add(round->sum + i, sent, in.count);
    }
    return status;
}

/* Own elements into the sum: what decoding an uncompressed payload does. */
static gw_status_t copy(const gw__engine_t *engine, gw__round_t *round, const gw__task_t *task,
                        const uint8_t *own, size_t element)
{
    gw_decode_t io = {
        .payload = own,
        .length = task->count * element,
        .wire_dtype = engine->call->dtype,
        .count = task->count,
        .first = task->first,
        .mode = task->opens ? GW_DECODE_STORE : GW_DECODE_ADD,
        .dst = round->sum,
        .dst_dtype = GW_F32,
    };
    return engine->raw.family->decode(&engine->raw, &io);
}

/* A sum to the output, in its type. */
static gw_status_t narrow(const gw__engine_t *engine, const gw__task_t *task, const float *sum,
                          uint8_t *out)
{
    gw_encode_t in = {
        .src = sum,
        .src_dtype = GW_F32,
        .wire_dtype = engine->call->dtype,
        .count = task->count,
        .first = task->first,
    };
    size_t length, bytes = task->count * gw_dtype_size(engine->call->dtype);
    return engine->raw.family->encode(&engine->raw, &in, out, bytes, &length);
}

/* Adds the frame of another rank to the one that is here, without decoding. */
static gw_status_t merge(const gw__engine_t *engine, gw__round_t *round, const gw__task_t *task,
                         gw__result_t *out)
{
    gw_merge_t io = {
        .from = round->frames + (size_t)task->from * engine->frame_capacity,
        .from_length = round->frame_length[task->from],
        .into = gw__engine_frame(engine, round, task),
        .into_length = round->frame_length[task->buffer],
        .wire_dtype = engine->call->dtype,
        .count = task->count,
        .first = task->first,
    };
    gw_status_t status = gw_frame_merge(engine->call->coder, &io);
    if (status != GW_OK && io.refused_from)
        out->peer = task->peer;
    return status;
}

/* A frame that is the sum of all, to the output. Scaled in binary32 and narrowed once. */
static gw_status_t store_merged(const gw__engine_t *engine, gw__round_t *round,
                                const gw__task_t *task, uint8_t *result, gw__result_t *out)
{
    const gw__engine_call_t *call = engine->call;
    if (call->scale == 1.0f)
        return decode(engine, round, task, GW_DECODE_STORE, result, call->dtype, out);
    bool wide = call->dtype == GW_F32;
    float *sum = wide ? (float *)(void *)result : round->sum + task->channel * call->plan.chunk;
    gw_status_t status = decode(engine, round, task, GW_DECODE_STORE, sum, GW_F32, out);
    if (status != GW_OK)
        return status;
    gw__kernels()->sum.scale(sum, call->scale, task->count);
    return wide ? GW_OK : narrow(engine, task, sum, result);
}

static void scale_sum(const gw__engine_t *engine, gw__round_t *round, const gw__task_t *task)
{
    if (engine->call->scale != 1.0f)
        gw__kernels()->sum.scale(round->sum, engine->call->scale, task->count);
}

static gw_status_t execute(const gw__engine_t *engine, gw__round_t *round, const gw__task_t *task,
                           gw__result_t *out)
{
    const gw__engine_call_t *call = engine->call;
    size_t element = gw_dtype_size(call->dtype);
    const uint8_t *own = (const uint8_t *)call->send + task->first * element;
    uint8_t *result = (uint8_t *)call->recv + task->first * element;
    switch (task->kind) {
    case GW__TASK_ENCODE:
        return encode(engine, round, task, own, call->dtype, out);
    case GW__TASK_COPY:
        return call->momentum ? copy_momentum(engine, round, task, own, element)
                              : copy(engine, round, task, own, element);
    case GW__TASK_DECODE_ADD:
        return decode(engine, round, task, task->opens ? GW_DECODE_STORE : GW_DECODE_ADD,
                      round->sum, GW_F32, out);
    case GW__TASK_SUM_ENCODE:
        scale_sum(engine, round, task);
        return encode(engine, round, task, round->sum, GW_F32, out);
    case GW__TASK_REDUCE_ENCODE:
        return reduce(engine, round, task, own, out);
    case GW__TASK_SUM_STORE:
        scale_sum(engine, round, task);
        return narrow(engine, task, round->sum, result);
    case GW__TASK_DECODE_STORE:
        return decode(engine, round, task, GW_DECODE_STORE, result, call->dtype, out);
    case GW__TASK_MERGE:
        return merge(engine, round, task, out);
    case GW__TASK_MERGED_STORE:
        return store_merged(engine, round, task, result, out);
    case GW__TASK_SEND:
    case GW__TASK_RECV:
    case GW__TASK_KINDS:
        break;
    }
    return GW_ERR_INTERNAL;
}

void gw__engine_compute(const gw__engine_t *engine, gw__round_t *round, const gw__task_t *task,
                        gw__result_t *out)
{
    *out = (gw__result_t){.peer = -1, .begin_ns = gw__now_ns()};
    out->status = execute(engine, round, task, out);
    out->end_ns = gw__now_ns();
}
