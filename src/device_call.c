/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces of device memory: before the engine has them, and after. */
#include "device_call.h"

#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "comm_internal.h"
#include "device/device_internal.h"

enum { WAIT_MS = 100 /* of one sleep until a call is over */, RELEASE_US = 500 };

/* ---- Residuals ----------------------------------------------------------------------------------
 */

struct gw__leaving {
    gw__leaving_t *next;
    void *floats;
    bool pinned;
};

static bool in_pinned(const gw_comm_t *comm)
{
    return comm->context->settings.residuals == GW__RESIDUALS_PINNED;
}

static bool under_way(const gw__device_calls_t *calls)
{
    return calls->posted != atomic_load(&calls->ended);
}

static void free_leaving(gw_comm_t *comm)
{
    gw__device_calls_t *calls = &comm->device_calls;
    gw__device_t *device = calls->gpu.device;
    if (!calls->leaving || under_way(calls) || calls->gpu.stuck)
        return;
    CUstreamCaptureMode mode = gw__device_relax(device);
    /* One that was set to zero on the way out: nothing else is on the stream. */
    device->cu->cuStreamSynchronize(calls->gpu.stream);
    while (calls->leaving) {
        gw__leaving_t *first = calls->leaving;
        if (first->pinned)
            device->cu->cuMemFreeHost(first->floats);
        else
            device->cu->cuMemFree_v2((CUdeviceptr)(uintptr_t)first->floats);
        calls->leaving = first->next;
        free(first);
    }
    gw__device_strict(device, mode);
}

/* A residual that is dropped may be that of a call that was posted before: it is freed when none is
 * under way. By the calling thread. */
static void unmap_residual(void *arg, void *floats, size_t bytes)
{
    gw__device_calls_t *calls = &((gw_comm_t *)arg)->device_calls;
    gw__leaving_t *leaving = malloc(sizeof *leaving);
    (void)bytes;
    if (!leaving) /* lost: better than freed under somebody's hands */
        return;
    *leaving = (gw__leaving_t){calls->leaving, floats, in_pinned(arg)};
    calls->leaving = leaving;
}

static gw_status_t clear_floats(const gw__gpu_t *gpu, CUdeviceptr at, size_t bytes)
{
    return GW__CU(gpu->device->cu, NULL, cuMemsetD8Async, at, 0, bytes, gpu->stream);
}

static void zero_residual(void *arg, void *floats, size_t bytes)
{
    const gw__gpu_t *gpu = &((gw_comm_t *)arg)->device_calls.gpu;
    if (gw__device_enter(gpu->device, NULL) != GW_OK)
        return;
    clear_floats(gpu, (CUdeviceptr)(uintptr_t)floats, bytes);
    gw__device_leave(gpu->device);
}

/* Pinned memory has one address for the host and the devices. */
static gw_status_t allocate(const gw_comm_t *comm, size_t bytes, CUdeviceptr *at)
{
    const gw__driver_t *cu = comm->device_calls.gpu.device->cu;
    void *host = NULL;
    if (!in_pinned(comm))
        return GW__CU(cu, NULL, cuMemAlloc_v2, at, bytes);
    gw_status_t status = GW__CU(cu, NULL, cuMemHostAlloc, &host, bytes,
                                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    *at = (CUdeviceptr)(uintptr_t)host;
    return status;
}

static void *map_residual(void *arg, size_t bytes)
{
    const gw__gpu_t *gpu = &((gw_comm_t *)arg)->device_calls.gpu;
    gw__device_t *device = gpu->device;
    CUdeviceptr at = 0;
    if (gw__device_enter(device, NULL) != GW_OK)
        return NULL;
    CUstreamCaptureMode mode = gw__device_relax(device);
    gw_status_t status = allocate(arg, bytes, &at);
    if (status == GW_OK && clear_floats(gpu, at, bytes) != GW_OK) {
        unmap_residual(arg, (void *)(uintptr_t)at, bytes);
        at = 0;
    }
    gw__device_strict(device, mode);
    gw__device_leave(device);
    return (void *)(uintptr_t)at;
}

/* ---- Streams that wait --------------------------------------------------------------------------
 */

struct gw__held {
    gw__held_t *next;
    CUevent passed;
};

/* Forgets streams that have gone on; in the context. */
static void forget_held(gw__device_calls_t *calls)
{
    gw__device_t *device = calls->gpu.device;
    CUstreamCaptureMode mode = gw__device_relax(device);
    for (gw__held_t **at = &calls->held; *at;) {
        gw__held_t *held = *at;
        if (GW__CU(device->cu, NULL, cuEventQuery, held->passed) == GW_IN_PROGRESS) {
            at = &held->next;
            continue;
        }
        *at = held->next;
        gw__event_give(device, held->passed);
        free(held);
    }
    gw__device_strict(device, mode);
}

/* Puts the wait on the stream, and an event behind it. */
static gw_status_t hold(gw__device_calls_t *calls, CUstream stream, uint32_t awaited)
{
    gw__device_t *device = calls->gpu.device;
    gw__held_t *held = calloc(1, sizeof *held);
    if (!held)
        return GW_ERR_NO_MEMORY;
    gw_status_t status = gw__event_take(device, &held->passed, NULL);
    if (status != GW_OK) {
        free(held);
        return status;
    }
    status = gw__flag_hold(calls->over, stream, awaited, NULL);
    if (status != GW_OK) {
        gw__event_give(device, held->passed);
        free(held);
        return status;
    }
    calls->unknown |= GW__CU(device->cu, NULL, cuEventRecord, held->passed, stream) != GW_OK;
    held->next = calls->held;
    calls->held = held;
    return GW_OK;
}

/* They go on as soon as they come to the wait. Not for ever: they may have other things to do. */
static void await_held(gw_comm_t *comm)
{
    gw__device_calls_t *calls = &comm->device_calls;
    int64_t end = gw__now_ns() + (int64_t)(comm->context->settings.timeout * 1e9);
    while (calls->held && gw__now_ns() < end) {
        if (gw__device_enter(calls->gpu.device, NULL) != GW_OK)
            break;
        forget_held(calls);
        gw__device_leave(calls->gpu.device);
        if (calls->held)
            nanosleep(&(struct timespec){.tv_nsec = RELEASE_US * 1000}, NULL);
    }
    calls->unknown |= calls->held != NULL;
    while (calls->held) {
        gw__held_t *held = calls->held;
        calls->held = held->next;
        free(held);
    }
}

/* ---- The communicator's device ------------------------------------------------------------------
 */

/*
 * The stream of the calls. Not of the application's priority: streams of one priority share what
 * the hardware has to run them in order, and one that waits for the end of a call would be in the
 * way of the call.
 */
static gw_status_t make_stream(gw__gpu_t *gpu, const gw__device_call_t *call, gw__why_t *why)
{
    const gw__driver_t *cu = gpu->device->cu;
    int least = 0, greatest = 0, theirs = 0;
    gw_status_t status = GW__CU(cu, why, cuCtxGetStreamPriorityRange, &least, &greatest);
    if (status == GW_OK && call->in_order)
        status = GW__CU(cu, why, cuStreamGetPriority, call->stream, &theirs);
    if (status != GW_OK)
        return status;
    return GW__CU(cu, why, cuStreamCreateWithPriority, &gpu->stream, CU_STREAM_NON_BLOCKING,
                  theirs == greatest ? least : greatest);
}

static gw_status_t furnish(gw_comm_t *comm, const gw__device_call_t *call, gw__why_t *why)
{
    gw__device_calls_t *calls = &comm->device_calls;
    gw__gpu_t *gpu = &calls->gpu;
    gw_status_t status = gw__device_enter(gpu->device, why);
    if (status != GW_OK)
        return status;
    CUstreamCaptureMode mode = gw__device_relax(gpu->device);
    status = make_stream(gpu, call, why);
    gw__device_strict(gpu->device, mode);
    gw__device_leave(gpu->device);
    if (status == GW_OK)
        status = gw__device_queue(gpu->device, gpu->stream, &gpu->queue, why);
    if (status == GW_OK)
        status = gw__flag_take(gpu->device, &gpu->marks, why);
    if (status == GW_OK)
        status = gw__flag_take(gpu->device, &calls->over, why);
    return status;
}

static void destroy_stream(gw__gpu_t *gpu)
{
    if (!gpu->stream || gw__device_enter(gpu->device, NULL) != GW_OK)
        return;
    gpu->device->cu->cuStreamDestroy_v2(gpu->stream);
    gw__device_leave(gpu->device);
}

/* The device object goes when all work on its memory has ended; where that never does, it stays. */
static void leave_device(const gw_comm_t *comm, gw__device_t *device)
{
    int64_t end = gw__now_ns() + (int64_t)(comm->context->settings.timeout * 1e9);
    while (gw__device_release(device, NULL) == GW_IN_PROGRESS && gw__now_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = RELEASE_US * 1000}, NULL);
}

static void close_device(gw_comm_t *comm)
{
    gw__device_calls_t *calls = &comm->device_calls;
    gw__gpu_t *gpu = &calls->gpu;
    destroy_stream(gpu);
    if (gpu->marks)
        gw__flag_give(gpu->marks);
    if (calls->over && !calls->unknown)
        gw__flag_give(calls->over);
    if (gpu->stuck || calls->unknown)
        gw_context_log(comm->context, GW_LOG_WARN,
                       "GPU %d has not ended the work of a communicator that is freed: its memory "
                       "stays allocated",
                       gw__device_ordinal(gpu->device));
    else
        leave_device(comm, gpu->device);
    *gpu = (gw__gpu_t){.device = NULL};
    calls->over = NULL;
}

static gw_status_t open_device(gw_comm_t *comm, const gw__memory_t *memory,
                               const gw__device_call_t *call, gw__why_t *why)
{
    gw__gpu_t *gpu = &comm->device_calls.gpu;
    if (gpu->device)
        return GW_OK;
    gw_status_t status = gw__device_acquire(memory->ordinal, NULL, &gpu->device, why);
    if (status != GW_OK)
        return status;
    status = furnish(comm, call, why);
    if (status != GW_OK) {
        close_device(comm);
        return status;
    }
    gw__residual_init(&comm->device_calls.residuals, comm->context,
                      &(gw__residual_memory_t){map_residual, unmap_residual, zero_residual, comm});
    return GW_OK;
}

/* ---- Memory of a call ---------------------------------------------------------------------------
 */

static void give_room(gw__gpu_t *gpu, gw__room_t *room)
{
    if (!room || atomic_fetch_sub(&room->users, 1) > 1)
        return;
    if (room->pinned && !gpu->stuck)
        gw__piece_give(gpu->device, room->pinned);
    if (room->memory && !gpu->stuck)
        gw__piece_give(gpu->device, room->memory);
    free(room);
}

static gw_status_t make_room(gw__device_calls_t *calls, gw__engine_room_t size, gw__why_t *why)
{
    gw__gpu_t *gpu = &calls->gpu;
    gw__room_t *room = calloc(1, sizeof *room);
    if (!room) {
        gw__why_print(why, "no memory for a call");
        return GW_ERR_NO_MEMORY;
    }
    atomic_init(&room->users, 1);
    gw_status_t status =
        gw__piece_take(gpu->device, GW__POOL_PINNED, size.pinned, gpu->stream, &room->pinned, why);
    if (status == GW_OK)
        status = gw__piece_take(gpu->device, GW__POOL_DEVICE, size.device, gpu->stream,
                                &room->memory, why);
    if (status != GW_OK) {
        give_room(gpu, room);
        return status;
    }
    give_room(gpu, calls->room);
    calls->room = room;
    return GW_OK;
}

/* At least so much, and not less than the communicator has. Where the bound allows no more, calls
 * of others have what there is: that is an error, for they may wait for this thread. */
static gw_status_t take_room(gw__device_calls_t *calls, gw__engine_room_t size,
                             gw__device_call_t *call, gw__why_t *why)
{
    const gw__room_t *has = calls->room;
    gw_status_t status = GW_OK;
    if (has) {
        size.pinned = size.pinned < has->pinned->bytes ? has->pinned->bytes : size.pinned;
        size.device = size.device < has->memory->bytes ? has->memory->bytes : size.device;
    }
    if (!has || size.pinned > has->pinned->bytes || size.device > has->memory->bytes)
        status = make_room(calls, size, why);
    if (status != GW_OK)
        return status == GW_IN_PROGRESS ? GW_ERR_NO_MEMORY : status;
    call->room = calls->room;
    atomic_fetch_add(&call->room->users, 1);
    return GW_OK;
}

static gw__engine_room_t room_for(gw_work_t *work)
{
    gw_comm_t *comm = work->comm;
    if (work->device.through_host)
        return (gw__engine_room_t){work->call.count * gw_dtype_size(work->call.dtype), 256};
    gw__engine_call_t job = gw__call_job(work, work->decision.coder);
    job.gpu = &comm->device_calls.gpu;
    gw__engine_room_t room = gw__engine_room(&comm->engine, &job);
    room.device = room.device < 256 ? 256 : room.device;
    return room;
}

/* ---- A call -------------------------------------------------------------------------------------
 */

static bool is_device(const gw__memory_t *memory)
{
    return memory->kind == GW__MEMORY_DEVICE || memory->kind == GW__MEMORY_MANAGED;
}

/* Where both buffers are. */
static gw_status_t find(const gw_call_t *call, gw__memory_t *send, gw__memory_t *recv,
                        gw__why_t *why)
{
    gw_status_t status = gw__device_kind(call->recv, recv, why);
    *send = *recv;
    if (status == GW_OK && call->send && call->send != call->recv)
        status = gw__device_kind(call->send, send, why);
    if (status == GW_OK && is_device(send) != is_device(recv)) {
        gw__why_print(why, "elements come from %s memory and go to %s memory",
                      gw__memory_kind_name(send->kind), gw__memory_kind_name(recv->kind));
        status = GW_ERR_UNSUPPORTED;
    }
    return status;
}

/* Whether the application's stream may be used: of this device, and not being captured, since a
 * graph could not be replayed on this rank alone. */
static gw_status_t check_stream(gw__device_t *device, CUstream stream, gw__why_t *why)
{
    gw__stream_t queue;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    gw_status_t status = GW__CU(device->cu, why, cuStreamIsCapturing, stream, &capture);
    if (status == GW_OK && capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        gw__why_print(why, "the stream is being captured");
        return GW_ERR_UNSUPPORTED;
    }
    return status == GW_OK ? gw__device_queue(device, stream, &queue, why) : status;
}

static gw_status_t record_ready(gw__device_t *device, gw__device_call_t *call, gw__why_t *why)
{
    gw_status_t status = gw__event_take(device, &call->ready, why);
    if (status != GW_OK)
        return status;
    return GW__CU(device->cu, why, cuEventRecord, call->ready, call->stream);
}

/* With one rank the sum is there. */
static gw_status_t copy_alone(gw_work_t *work, gw__why_t *why)
{
    gw__gpu_t *gpu = &work->comm->device_calls.gpu;
    const gw__driver_t *cu = gpu->device->cu;
    gw_call_t *call = &work->call;
    CUstream stream = work->device.in_order ? work->device.stream : gpu->stream;
    gw_status_t status = GW_OK;
    if (call->send && call->send != call->recv)
        status = GW__CU(cu, why, cuMemcpyAsync, (CUdeviceptr)(uintptr_t)call->recv,
                        (CUdeviceptr)(uintptr_t)call->send,
                        call->count * gw_dtype_size(call->dtype), stream);
    if (status == GW_OK && !work->device.in_order)
        status = GW__CU(cu, why, cuStreamSynchronize, stream);
    call->send = NULL;
    return status;
}

static gw_status_t take(gw_work_t *work, gw__why_t *why)
{
    gw_comm_t *comm = work->comm;
    gw__device_calls_t *calls = &comm->device_calls;
    gw__device_call_t *call = &work->device;
    call->through_host = work->split || !gw__gpu_serves(work->decision.coder, work->decision.plan);
    gw_status_t status = take_room(calls, room_for(work), call, why);
    if (status == GW_OK && call->in_order)
        status = record_ready(calls->gpu.device, call, why);
    if (status == GW_OK && !call->through_host)
        call->residual = gw__call_residual(work, &calls->residuals, 0);
    return status;
}

/* The device is known, and its context current. */
static gw_status_t prepare(gw_work_t *work, const gw__memory_t *send, const gw__memory_t *recv,
                           gw__why_t *why)
{
    gw_comm_t *comm = work->comm;
    gw__device_calls_t *calls = &comm->device_calls;
    gw__device_call_t *call = &work->device;
    gw__device_t *device = calls->gpu.device;
    gw_status_t status = gw__device_owns(device, recv, why);
    if (status == GW_OK)
        status = gw__device_owns(device, send, why);
    if (status != GW_OK)
        return status;
    call->on = true;
    calls->posted++;
    free_leaving(comm);
    return comm->size == 1 ? copy_alone(work, why) : take(work, why);
}

gw_status_t gw__device_call_prepare(gw_work_t *work, gw__why_t *why)
{
    gw_comm_t *comm = work->comm;
    gw__device_calls_t *calls = &comm->device_calls;
    gw__memory_t send, recv;
    if (work->call.count == 0)
        return GW_OK;
    gw_status_t status = find(&work->call, &send, &recv, why);
    if (status != GW_OK || !is_device(&recv)) {
        if (status != GW_OK || !work->device.in_order)
            return status;
        gw__why_print(why, "%s memory knows no order of streams", gw__memory_kind_name(recv.kind));
        return GW_ERR_UNSUPPORTED;
    }
    if (!comm->context->settings.device) {
        gw__why_print(why, "device memory, and GRADWIRE_DEVICE=off");
        return GW_ERR_UNSUPPORTED;
    }
    status = open_device(comm, &recv, &work->device, why);
    /* With the application's context current: default streams are those of that one. */
    if (status == GW_OK && work->device.in_order)
        status = check_stream(calls->gpu.device, work->device.stream, why);
    if (status == GW_OK)
        status = gw__device_enter(calls->gpu.device, why);
    if (status != GW_OK)
        return status;
    status = prepare(work, &send, &recv, why);
    gw__device_leave(calls->gpu.device);
    if (status != GW_OK)
        gw__device_call_end(work);
    else if (work->device.in_order && work->device.room)
        work->device.awaited = ++calls->awaited;
    return status;
}

void gw__device_call_hold(gw_comm_t *comm, CUstream stream, uint32_t awaited)
{
    gw__device_calls_t *calls = &comm->device_calls;
    gw__device_t *device = calls->gpu.device;
    gw_status_t status = gw__device_enter(device, NULL);
    if (status == GW_OK) {
        forget_held(calls);
        status = hold(calls, stream, awaited);
        gw__device_leave(device);
    }
    while (status != GW_OK && gw__flag_await(calls->over, awaited, WAIT_MS) != GW_OK)
        ;
}

gw__gpu_t *gw__device_call_gpu(gw_work_t *work)
{
    gw__gpu_t *gpu = &work->comm->device_calls.gpu;
    gpu->pinned = work->device.room->pinned;
    gpu->memory = work->device.room->memory;
    gpu->ready = work->device.ready;
    return gpu;
}

/* ---- Through the host ---------------------------------------------------------------------------
 */

static gw_status_t put_copy(gw_work_t *work, bool out, gw__why_t *why)
{
    gw__device_call_t *call = &work->device;
    gw__gpu_t *gpu = &work->comm->device_calls.gpu;
    const gw__driver_t *cu = gpu->device->cu;
    size_t bytes = work->call.count * gw_dtype_size(work->call.dtype);
    gw_status_t status = GW_OK;
    if (!out && call->ready)
        status =
            GW__CU(cu, why, cuStreamWaitEvent, gpu->stream, call->ready, CU_EVENT_WAIT_DEFAULT);
    if (status == GW_OK && out)
        status = GW__CU(cu, why, cuMemcpyHtoDAsync_v2, (CUdeviceptr)(uintptr_t)call->recv,
                        call->room->pinned->host, bytes, gpu->stream);
    else if (status == GW_OK)
        status = GW__CU(cu, why, cuMemcpyDtoHAsync_v2, call->room->pinned->host,
                        (CUdeviceptr)(uintptr_t)call->send, bytes, gpu->stream);
    if (status == GW_OK)
        status = gw__flag_raise_after(gpu->marks, gpu->stream, false, &call->mark, why);
    if (status == GW_OK)
        gpu->launched = call->mark;
    return status;
}

gw_status_t gw__device_call_copy(gw_work_t *work, bool out, gw__why_t *why)
{
    gw__gpu_t *gpu = &work->comm->device_calls.gpu;
    gw__device_call_t *call = &work->device;
    if (!out) {
        call->send = work->call.send ? work->call.send : work->call.recv;
        call->recv = work->call.recv;
        work->call.send = NULL;
        work->call.recv = call->room->pinned->host;
    }
    gw_status_t status = gw__device_enter(gpu->device, why);
    if (status != GW_OK)
        return status;
    status = put_copy(work, out, why);
    gw__device_leave(gpu->device);
    return status;
}

gw_status_t gw__device_call_copied(gw_work_t *work, gw__why_t *why)
{
    gw__gpu_t *gpu = &work->comm->device_calls.gpu;
    if (gw__flag_reached(gpu->marks, work->device.mark))
        return GW_OK;
    gw__gpu_rest();
    gw_status_t status = gw__gpu_look(gpu, why);
    return status == GW_OK ? GW_IN_PROGRESS : status;
}

/* ---- The end ------------------------------------------------------------------------------------
 */

void gw__device_call_end(gw_work_t *work)
{
    gw__device_calls_t *calls = &work->comm->device_calls;
    gw__device_call_t *call = &work->device;
    if (!call->on || call->ended)
        return;
    call->ended = true;
    if (call->ready)
        gw__event_give(calls->gpu.device, call->ready);
    give_room(&calls->gpu, call->room);
    atomic_fetch_add(&calls->ended, 1);
    if (call->awaited)
        gw__flag_raise(calls->over);
}

void gw__device_calls_free(gw_comm_t *comm)
{
    gw__device_calls_t *calls = &comm->device_calls;
    if (!calls->gpu.device)
        return;
    await_held(comm);
    gw__residual_free(&calls->residuals);
    if (gw__device_enter(calls->gpu.device, NULL) == GW_OK) {
        free_leaving(comm);
        gw__device_leave(calls->gpu.device);
    }
    give_room(&calls->gpu, calls->room);
    close_device(comm);
}
