/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's computing tasks on a GPU. */
#include "engine_gpu.h"

#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "device/device_internal.h"
#include "device_ops.h"
#include "frame.h"
#include "half_residual.h"

enum {
    LANE = 1,           /* in a timeline: that of a worker, for this thread does something else */
    REST_US = 20,       /* of a sleep while tasks run */
    LOOK_NS = 10000000, /* between two questions whether the stream is well */
    DRAIN_US = 200      /* between two looks at a stream that is to end */
};

/* Bytes of a chunk in binary32. */
static size_t floats_of(const gw__engine_call_t *call)
{
    return (call->plan.chunk * sizeof(float) + 255) / 256 * 256;
}

size_t gw__gpu_scratch(const gw__engine_call_t *call)
{
    size_t bytes = floats_of(call);
    size_t scratch = call->gpu ? gw__device_scratch(call->coder, call->plan.chunk) : 0;
    /* Elements or a sum, a residual, and what the codec wants. */
    return call->gpu ? 2 * bytes + (scratch + 255) / 256 * 256 : 0;
}

size_t gw__gpu_frame_room(const gw__engine_call_t *call)
{
    return GW_FRAME_HEADER + gw__device_room(call->coder, call->dtype, call->plan.chunk);
}

gw__engine_room_t gw__gpu_room(const gw__gpu_t *gpu)
{
    return (gw__engine_room_t){gpu->pinned->bytes, gpu->memory->bytes};
}

void gw__gpu_base(const gw__gpu_t *gpu, uint8_t **pinned, uint8_t **device)
{
    *pinned = (uint8_t *)gpu->pinned->host;
    *device = (uint8_t *)(uintptr_t)gpu->memory->at;
}

bool gw__gpu_serves(const gw_coder_t *coder, gw_plan_kind_t plan)
{
    return gw__device_serves(coder) && !gw__keeps_momentum(coder) && !gw__plan_merges(plan);
}

/* ---- Launches -----------------------------------------------------------------------------------
 */

/* What a task needs to be put on the stream. Pointers to elements, sums and payloads are the
 * device's. */
typedef struct launch {
    const gw__engine_t *engine;
    const gw__engine_call_t *call;
    gw_cuda_queue_t *queue;
    gw__round_t *round;
    const gw__task_t *task;
    const uint8_t *own; /* elements of the task */
    uint8_t *out;       /* where its result goes */
    float *wide;
    float *residual; /* of the task, in binary32; NULL: none */
    gw_cuda_result_t *result;
} launch_t;

/* Where the device sees pinned memory of the call. */
static void *seen(const gw__gpu_t *gpu, const void *host)
{
    return (void *)(uintptr_t)(gpu->pinned->at +
                               (CUdeviceptr)((const char *)host - gpu->pinned->host));
}

static uint8_t *payload_of(const launch_t *l, const gw__task_t *task)
{
    uint8_t *frame = seen(l->call->gpu, gw__engine_frame(l->engine, l->round, task));
    return frame + GW_FRAME_HEADER;
}

/* A residual that is kept in 16 bits goes by way of binary32. */
static gw_status_t load_residual(launch_t *l, float *room)
{
    const gw__engine_call_t *call = l->call;
    l->residual = call->residual ? call->residual + l->task->first : NULL;
    if (!call->half_residual)
        return GW_OK;
    l->residual = room;
    return gw__cuda_cast.bf16_to_f32(l->queue, gw__engine_half(call, l->task), room,
                                     l->task->count);
}

static gw_status_t keep_residual(const launch_t *l, gw_status_t status)
{
    if (status != GW_OK || !l->call->half_residual)
        return status;
    return gw__cuda_cast.bf16_stochastic(l->queue, l->residual, gw__engine_half(l->call, l->task),
                                         l->task->count, l->task->first,
                                         gw__half_residual_key(gw__engine_key(l->engine, l->task)));
}

static gw_status_t encode(const launch_t *l, const void *src, gw_dtype_t dtype)
{
    gw_encode_t in = {.src = src,
                      .src_dtype = dtype,
                      .wire_dtype = l->call->dtype,
                      .residual = l->residual,
                      .count = l->task->count,
                      .first = l->task->first,
                      .key = gw__engine_key(l->engine, l->task),
                      .shared_key = l->call->key};
    return gw__device_encode(l->queue, l->call->coder, &in, l->wide, payload_of(l, l->task),
                             l->result);
}

static gw_status_t decode(const launch_t *l, gw_decode_mode_t mode, void *dst, gw_dtype_t dtype)
{
    gw_decode_t io = {.payload = payload_of(l, l->task),
                      .length = l->round->frame_length[l->task->buffer] - GW_FRAME_HEADER,
                      .wire_dtype = l->call->dtype,
                      .count = l->task->count,
                      .first = l->task->first,
                      .mode = mode,
                      .dst = dst,
                      .dst_dtype = dtype};
    return gw__device_decode(l->queue, l->call->coder, &io, l->wide, l->result);
}

static gw_status_t reduce(const launch_t *l)
{
    gw__round_t *round = l->round;
    gw_reduce_t in = {.own = l->own,
                      .own_dtype = l->call->dtype,
                      .payload = round->payload,
                      .length = round->payload_length,
                      .scale = l->call->scale,
                      .wire_dtype = l->call->dtype,
                      .residual = l->residual,
                      .count = l->task->count,
                      .first = l->task->first,
                      .key = gw__engine_key(l->engine, l->task),
                      .shared_key = l->call->key};
    for (uint32_t i = l->task->dep[0]; i <= l->task->dep[1]; i++) {
        const gw__task_t *from = &round->task[i];
        in.own_at += from->peer < l->engine->rank;
        round->payload[in.payloads] = payload_of(l, from);
        round->payload_length[in.payloads++] = round->frame_length[from->buffer] - GW_FRAME_HEADER;
    }
    return gw__device_reduce(l->queue, l->call->coder, &in, l->wide, payload_of(l, l->task),
                             l->result);
}

static gw_status_t scale_sum(const launch_t *l)
{
    if (l->call->scale == 1.0f)
        return GW_OK;
    return gw__cuda_sum.scale(l->queue, l->round->sum, l->call->scale, l->task->count);
}

static gw_status_t encode_sum(const launch_t *l)
{
    gw_status_t status = scale_sum(l);
    return status == GW_OK ? encode(l, l->round->sum, GW_F32) : status;
}

static gw_status_t store_sum(const launch_t *l)
{
    gw_status_t status = scale_sum(l);
    return status == GW_OK
               ? gw__device_narrow(l->queue, l->call->dtype, l->round->sum, l->out, l->task->count)
               : status;
}

static gw_status_t launch(const launch_t *l)
{
    const gw__task_t *task = l->task;
    gw_dtype_t dtype = l->call->dtype;
    switch (task->kind) {
    case GW__TASK_ENCODE:
        return encode(l, l->own, dtype);
    case GW__TASK_COPY:
        return (task->opens ? gw__device_widen : gw__device_add)(l->queue, dtype, l->own,
                                                                 l->round->sum, task->count);
    case GW__TASK_DECODE_ADD:
        return decode(l, task->opens ? GW_DECODE_STORE : GW_DECODE_ADD, l->round->sum, GW_F32);
    case GW__TASK_SUM_ENCODE:
        return encode_sum(l);
    case GW__TASK_REDUCE_ENCODE:
        return reduce(l);
    case GW__TASK_SUM_STORE:
        return store_sum(l);
    case GW__TASK_DECODE_STORE:
        return decode(l, GW_DECODE_STORE, l->out, dtype);
    case GW__TASK_MERGE:
    case GW__TASK_MERGED_STORE:
    case GW__TASK_SEND:
    case GW__TASK_RECV:
    case GW__TASK_KINDS:
        break;
    }
    return GW_ERR_INTERNAL;
}

static gw_status_t put(gw__engine_t *engine, gw__round_t *round, uint32_t i, gw__why_t *why)
{
    const gw__engine_call_t *call = engine->call;
    gw__gpu_t *gpu = call->gpu;
    size_t at = round->task[i].first * gw_dtype_size(call->dtype);
    launch_t l = {.engine = engine,
                  .call = call,
                  .queue = &gpu->queue.queue,
                  .round = round,
                  .task = &round->task[i],
                  .own = (const uint8_t *)call->send + at,
                  .out = (uint8_t *)call->recv + at,
                  .wide = (float *)(uintptr_t)gpu->memory->at,
                  .result = seen(gpu, round->on_gpu[i].words)};
    gw_status_t status = gw__device_enter(gpu->device, why);
    if (status != GW_OK)
        return status;
    gpu->queue.why.text[0] = '\0';
    gpu->queue.queue.scratch = (void *)(uintptr_t)(gpu->memory->at + 2 * floats_of(call));
    if (gw__task_encodes(l.task->kind))
        status = load_residual(&l, (float *)(uintptr_t)(gpu->memory->at + floats_of(call)));
    if (status == GW_OK)
        status = launch(&l);
    if (gw__task_encodes(l.task->kind))
        status = keep_residual(&l, status);
    if (status != GW_OK)
        gw__why_print(why, "%s",
                      gpu->queue.why.text[0] ? gpu->queue.why.text : gw_status_text(status));
    else
        status = gw__flag_raise_after(gpu->marks, gpu->stream, false, &round->on_gpu[i].mark, why);
    gw__device_leave(gpu->device);
    return status;
}

/* ---- Frames -------------------------------------------------------------------------------------
 */

static gw__frame_piece_t piece_of(const gw__engine_t *engine, const gw__task_t *task)
{
    return (gw__frame_piece_t){engine->call->dtype, task->count, task->first};
}

/* A frame as it came, before the GPU reads its payload; its own rank's are as they should be, but
 * have to be indexed, too. */
static gw_status_t check_frame(const gw__engine_t *engine, const gw__round_t *round,
                               const gw__task_t *task)
{
    const gw__engine_call_t *call = engine->call;
    uint8_t *frame = gw__engine_frame(engine, round, task);
    size_t length = round->frame_length[task->buffer], payload = length - GW_FRAME_HEADER;
    gw_status_t status = GW_OK;
    if (task->peer != engine->rank)
        status = gw__frame_check(call->coder, piece_of(engine, task), frame, length, &payload);
    return status ? status
                  : gw__device_index(call->coder, call->dtype, task->count, frame + GW_FRAME_HEADER,
                                     payload);
}

/* Those that a task reads. */
static gw_status_t check_frames(const gw__engine_t *engine, const gw__round_t *round,
                                const gw__task_t *task, int *peer)
{
    gw_status_t status = GW_OK;
    if (task->kind == GW__TASK_DECODE_ADD || task->kind == GW__TASK_DECODE_STORE) {
        *peer = task->peer;
        return check_frame(engine, round, task);
    }
    for (uint32_t i = task->dep[0];
         task->kind == GW__TASK_REDUCE_ENCODE && i <= task->dep[1] && status == GW_OK; i++) {
        *peer = round->task[i].peer;
        status = check_frame(engine, round, &round->task[i]);
    }
    return status;
}

/* The GPU says that a payload is not valid: the CPU finds out whose. */
static gw_status_t find_culprit(const gw__engine_t *engine, const gw__round_t *round,
                                const gw__task_t *task, int *peer)
{
    gw_status_t status = GW_OK;
    float *nowhere = malloc(task->count * sizeof *nowhere);
    *peer = task->peer;
    for (uint32_t i = task->dep[0];
         nowhere && task->kind == GW__TASK_REDUCE_ENCODE && i <= task->dep[1] && status == GW_OK;
         i++) {
        const gw__task_t *from = &round->task[i];
        gw_decode_t io = {.payload = gw__engine_frame(engine, round, from),
                          .length = round->frame_length[from->buffer],
                          .wire_dtype = engine->call->dtype,
                          .count = from->count,
                          .first = from->first,
                          .dst = nowhere,
                          .dst_dtype = GW_F32};
        *peer = from->peer;
        status = gw_frame_decode(engine->call->coder, &io);
    }
    free(nowhere);
    return status == GW_OK ? GW_ERR_FRAME_PAYLOAD : status;
}

static void close_frame(const gw__engine_t *engine, gw__round_t *round, const gw__task_t *task)
{
    const gw_coder_t *coder = engine->call->coder;
    size_t payload = gw__device_is_fixed(coder)
                         ? coder->family->bound(coder, engine->call->dtype, task->count)
                         : round->on_gpu[task - round->task].words[GW_CUDA_LENGTH];
    round->frame_length[task->buffer] =
        gw__frame_close(coder, piece_of(engine, task), engine->checksum, payload,
                        gw__engine_frame(engine, round, task));
}

/* ---- A call -------------------------------------------------------------------------------------
 */

static gw_status_t fail(gw__engine_t *engine, gw_status_t status, const gw__why_t *why)
{
    return gw__engine_fail(engine, status, engine->rank, "rank %d: GPU %d: %s", engine->rank,
                           gw__device_ordinal(engine->call->gpu->device), why->text);
}

gw_status_t gw__gpu_begin(gw__engine_t *engine)
{
    gw__gpu_t *gpu = engine->call->gpu;
    gw__why_t why = {""};
    if (!gpu)
        return GW_OK;
    gpu->last_ns = engine->started;
    gpu->next_look = engine->started + LOOK_NS;
    if (!gpu->ready)
        return GW_OK;
    gw_status_t status = gw__device_enter(gpu->device, &why);
    if (status == GW_OK) {
        status = GW__CU(gpu->device->cu, &why, cuStreamWaitEvent, gpu->stream, gpu->ready,
                        CU_EVENT_WAIT_DEFAULT);
        gw__device_leave(gpu->device);
    }
    return status == GW_OK ? GW_OK : fail(engine, status, &why);
}

gw_status_t gw__gpu_start(gw__engine_t *engine, gw__round_t *round, uint32_t i)
{
    gw__gpu_t *gpu = engine->call->gpu;
    gw__result_t refused = {.peer = -1};
    gw__why_t why = {""};
    round->state[i] = GW__TASK_RUNNING;
    round->began_ns[i] = gw__now_ns();
    round->on_gpu[i] = (gw__gpu_task_t){.mark = gpu->launched};
    refused.status = check_frames(engine, round, &round->task[i], &refused.peer);
    if (refused.status != GW_OK)
        return gw__engine_computed(engine, round, i, LANE, &refused);
    gw_status_t status = put(engine, round, i, &why);
    if (status != GW_OK)
        return fail(engine, status, &why);
    gpu->launched = round->on_gpu[i].mark;
    return GW_OK;
}

gw_status_t gw__gpu_collect(gw__engine_t *engine, gw__round_t *round, uint32_t i, bool *moved)
{
    gw__gpu_t *gpu = engine->call->gpu;
    const gw__task_t *task = &round->task[i];
    if (!gpu || !gw__flag_reached(gpu->marks, round->on_gpu[i].mark))
        return GW_OK;
    /* It began when the one before it was done, if it was on the stream by then. */
    int64_t began = round->began_ns[i] > gpu->last_ns ? round->began_ns[i] : gpu->last_ns;
    gw__result_t out = {.peer = -1, .begin_ns = began, .end_ns = gw__now_ns()};
    const uint32_t *words = round->on_gpu[i].words;
    gpu->last_ns = out.end_ns;
    out.poisoned = words[GW_CUDA_POISONED];
    if (words[GW_CUDA_INVALID])
        out.status = find_culprit(engine, round, task, &out.peer);
    else if (gw__task_encodes(task->kind))
        close_frame(engine, round, task);
    *moved = true;
    return gw__engine_computed(engine, round, i, LANE, &out);
}

bool gw__gpu_busy(const gw__engine_t *engine)
{
    const gw__gpu_t *gpu = engine->status == GW_IN_PROGRESS ? engine->call->gpu : NULL;
    return gpu && !gw__flag_reached(gpu->marks, gpu->launched);
}

/* The stream's own state: a broken context raises no mark any more. */
gw_status_t gw__gpu_look(gw__gpu_t *gpu, gw__why_t *why)
{
    gw_status_t status = gw__device_enter(gpu->device, why);
    if (status != GW_OK)
        return status;
    CUstreamCaptureMode mode = gw__device_relax(gpu->device);
    status = GW__CU(gpu->device->cu, why, cuStreamQuery, gpu->stream);
    gw__device_strict(gpu->device, mode);
    gw__device_leave(gpu->device);
    return status == GW_IN_PROGRESS ? GW_OK : status;
}

gw_status_t gw__gpu_judge(gw__engine_t *engine)
{
    gw__gpu_t *gpu = engine->call->gpu;
    gw__why_t why = {""};
    int64_t now = gw__now_ns();
    engine->last_look = now; /* this process did not stand still */
    if (now < gpu->next_look)
        return GW_OK;
    gpu->next_look = now + LOOK_NS;
    gw_status_t status = gw__gpu_look(gpu, &why);
    return status == GW_OK ? GW_OK : fail(engine, status, &why);
}

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

void gw__gpu_rest(void)
{
    sleep_us(REST_US);
}

void gw__gpu_drain(gw__engine_t *engine)
{
    gw__gpu_t *gpu = engine->call->gpu;
    int64_t end = gw__now_ns() + (int64_t)(engine->timeout * 1e9);
    while (gw__gpu_busy(engine) && !gpu->stuck) {
        gpu->stuck = gw__gpu_look(gpu, NULL) != GW_OK || gw__now_ns() > end;
        sleep_us(DRAIN_US);
    }
}
