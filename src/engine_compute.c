/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's computing tasks and its working memory. */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "engine.h"
#include "engine_gpu.h"
#include "frame.h"
#include "half_residual.h"
#include "hash.h"
#include "kernels.h"
#include "memory.h"
#include "reduce.h"

enum { ALIGNMENT = 64 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

/* Where the working memory is cut from; with base NULL it only counts. */
typedef struct stock {
    uint8_t *base;
    size_t used;
} stock_t;

static void *take(stock_t *stock, size_t bytes)
{
    void *piece = stock->base ? stock->base + stock->used : NULL;
    stock->used += aligned(bytes);
    return piece;
}

/* Elements of a round's sums: of chunks, of a slice of one, or none. */
static size_t sum_room(const gw__engine_call_t *call)
{
    if (!call->plan.reduces)
        return gw__plan_max_sums(call->plan.kind, call->plan.size) * call->plan.chunk;
    return call->coder->family->reduce || call->gpu ? 0 : gw__reduce_slice(call->coder);
}

static size_t frame_room(const gw__engine_call_t *call)
{
    size_t bytes = gw_frame_bound(call->coder, call->dtype, call->plan.chunk);
    return aligned(call->gpu ? gw__gpu_frame_room(call) : bytes);
}

/* What the host alone touches, frames, and sums: three times the same stock, but for calls on
 * device memory. */
typedef struct stocks {
    stock_t *host, *pinned, *device;
} stocks_t;

static void lay_out(const gw__engine_call_t *call, const stocks_t *from, gw__round_t *round)
{
    uint32_t tasks = gw__plan_max_tasks(call->plan.kind, call->plan.size);
    uint32_t buffers = gw__plan_max_buffers(call->plan.kind, call->plan.size);
    size_t peers = call->plan.reduces ? (size_t)call->plan.size : 0;
    round->task = take(from->host, tasks * sizeof *round->task);
    round->request = take(from->host, tasks * sizeof *round->request);
    round->began_ns = take(from->host, tasks * sizeof *round->began_ns);
    round->frame_length = take(from->host, buffers * sizeof *round->frame_length);
    round->state = take(from->host, tasks * sizeof *round->state);
    round->payload = take(from->host, peers * sizeof *round->payload);
    round->payload_length = take(from->host, peers * sizeof *round->payload_length);
    round->frames = take(from->pinned, buffers * frame_room(call));
    round->on_gpu = take(from->pinned, call->gpu ? tasks * sizeof *round->on_gpu : 0);
    round->sum = take(from->device, sum_room(call) * sizeof *round->sum);
}

/* Bytes of one round, of all kinds of memory. */
static size_t round_bytes(const gw__engine_call_t *call, stock_t count[3])
{
    gw__round_t round;
    memset(count, 0, 3 * sizeof *count);
    lay_out(call, &(stocks_t){&count[0], &count[1], &count[2]}, &round);
    return count[0].used + count[1].used + count[2].used;
}

/* Rounds at once. */
static uint32_t window_of(const gw__engine_t *engine, const gw__engine_call_t *call)
{
    stock_t count[3];
    size_t fitting = engine->memory_limit / round_bytes(call, count);
    uint32_t window = fitting < 1 ? 1 : fitting < GW__WINDOW ? (uint32_t)fitting : GW__WINDOW;
    return window < call->plan.rounds ? window : call->plan.rounds;
}

gw__engine_room_t gw__engine_room(const gw__engine_t *engine, const gw__engine_call_t *call)
{
    stock_t count[3];
    size_t window = window_of(engine, call);
    round_bytes(call, count);
    return (gw__engine_room_t){window * count[1].used,
                               window * count[2].used + gw__gpu_scratch(call)};
}

/* As many rounds as the memory that the call was given has room for. */
static gw_status_t fit_gpu(gw__engine_t *engine, const gw__engine_call_t *call, stock_t *pinned,
                           stock_t *device)
{
    stock_t count[3];
    gw__engine_room_t has = gw__gpu_room(call->gpu);
    size_t scratch = gw__gpu_scratch(call);
    round_bytes(call, count);
    while (engine->window > 0 && (engine->window * count[1].used > has.pinned ||
                                  engine->window * count[2].used + scratch > has.device))
        engine->window--;
    gw__gpu_base(call->gpu, &pinned->base, &device->base);
    device->base += scratch;
    return engine->window > 0 ? GW_OK : GW_ERR_NO_MEMORY;
}

static gw_status_t grow(gw__engine_t *engine, size_t bytes)
{
    if (bytes <= engine->memory_bytes)
        return GW_OK;
    gw__memory_unmap(engine->memory, engine->memory_bytes);
    engine->memory_bytes = 0;
    engine->memory = gw__memory_map(bytes);
    if (!engine->memory)
        return GW_ERR_NO_MEMORY;
    engine->memory_bytes = bytes;
    return GW_OK;
}

gw_status_t gw__engine_reserve(gw__engine_t *engine, const gw__engine_call_t *call)
{
    stock_t count[3], host = {0}, pinned = {0}, device = {0};
    engine->frame_capacity = gw_frame_bound(call->coder, call->dtype, call->plan.chunk);
    engine->frame_stride = frame_room(call);
    engine->window = window_of(engine, call);
    if (call->gpu && fit_gpu(engine, call, &pinned, &device) != GW_OK)
        return GW_ERR_NO_MEMORY;
    size_t all = round_bytes(call, count);
    if (grow(engine, engine->window * (call->gpu ? count[0].used : all)) != GW_OK)
        return GW_ERR_NO_MEMORY;
    host.base = engine->memory;
    stocks_t from =
        call->gpu ? (stocks_t){&host, &pinned, &device} : (stocks_t){&host, &host, &host};
    for (uint32_t w = 0; w < engine->window; w++)
        lay_out(call, &from, &engine->rounds[w]);
    return GW_OK;
}

uint8_t *gw__engine_frame(const gw__engine_t *engine, const gw__round_t *round,
                          const gw__task_t *task)
{
    return round->frames + (size_t)task->buffer * engine->frame_stride;
}

uint64_t gw__engine_key(const gw__engine_t *engine, const gw__task_t *task)
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
        .key = gw__engine_key(engine, task),
        .shared_key = call->key,
    };
    uint8_t *frame = gw__engine_frame(engine, round, task);
    size_t *length = &round->frame_length[task->buffer];
    gw_status_t status =
        call->half_residual
            ? gw__frame_encode_half(call->coder, &in, gw__engine_half(call, task), engine->checksum,
                                    frame, engine->frame_capacity, length)
            : gw__frame_encode(call->coder, &in, engine->checksum, frame, engine->frame_capacity,
                               length);
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
        .key = gw__engine_key(engine, task),
        .shared_key = call->key,
    };
    for (uint32_t i = task->dep[0]; i <= task->dep[1]; i++) {
        const gw__task_t *from = &round->task[i];
        in.own_at += from->peer < engine->rank;
        round->payload[in.payloads] = gw__engine_frame(engine, round, from);
        round->payload_length[in.payloads++] = round->frame_length[from->buffer];
    }
    uint8_t *frame = gw__engine_frame(engine, round, task);
    size_t *length = &round->frame_length[task->buffer];
    gw_status_t status =
        call->half_residual
            ? gw__frame_reduce_half(call->coder, &in, round->payload_length,
                                    gw__engine_half(call, task), engine->checksum, round->sum,
                                    frame, engine->frame_capacity, length)
            : gw__frame_reduce(call->coder, &in, engine->checksum, round->sum, frame,
                               engine->frame_capacity, length);
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
                          .key = gw__engine_key(engine, task),
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
        .from = round->frames + (size_t)task->from * engine->frame_stride,
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
