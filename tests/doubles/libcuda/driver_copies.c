/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_double.h"

place_t bytes_place(const void *at, size_t bytes)
{
    const memory_t *m = memory_find(at);
    if (m && m->state == MEMORY_FREED)
        return PLACE_WRONG;
    if (!m || (const char *)at == m->at + m->bytes)
        return memory_is_ours(at) || !memory_is_mapped(at) ? PLACE_WRONG : PLACE_PAGEABLE;
    if (bytes > (size_t)(m->at + m->bytes - (const char *)at))
        return PLACE_WRONG;
    return m->kind >= MEMORY_PINNED ? PLACE_PINNED : PLACE_DEVICE;
}

CUresult wrong_place(const void *at, size_t bytes)
{
    char where[200];
    memory_describe(at, where, sizeof where);
    return refuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at %s", bytes, where);
}

/* Where the driver may do either, the seed decides. */
static bool may_be_late(void)
{
    uint64_t seed = driver_settings.of.seed;
    return seed < 2 ? seed == 0 : draw() & 1;
}

/* ---- Copies ------------------------------------------------------------------------------------
 */

typedef struct copy {
    const char *call;
    void *to;
    const void *from;
    size_t bytes;
    bool to_device, from_device; /* it may not be memory that the driver does not know */
    bool sync;
} copy_t;

static CUresult check_copy(const copy_t *copy, place_t *to, place_t *from)
{
    *to = bytes_place(copy->to, copy->bytes);
    *from = bytes_place(copy->from, copy->bytes);
    if (*to == PLACE_WRONG || (copy->to_device && *to == PLACE_PAGEABLE))
        return wrong_place(copy->to, copy->bytes);
    if (*from == PLACE_WRONG || (copy->from_device && *from == PLACE_PAGEABLE))
        return wrong_place(copy->from, copy->bytes);
    return copy->sync ? capture_forbids() : CUDA_SUCCESS;
}

/*
 * What the driver promises. Synchronous calls: memory that is not pinned is read before the call
 * returns, but may arrive later; copies inside of devices return at once; all others return when
 * done. Asynchronous calls: between two places of the host they are synchronous; with memory that
 * is not pinned they "may be"; all others are not.
 */
static bool is_waited_for(const copy_t *copy, place_t to, place_t from)
{
    if (to != PLACE_DEVICE && from != PLACE_DEVICE)
        return true;
    if (to == PLACE_DEVICE && from == PLACE_DEVICE)
        return false;
    if (copy->sync && from != PLACE_PAGEABLE)
        return true;
    return (to == PLACE_PAGEABLE || from == PLACE_PAGEABLE) && !may_be_late();
}

static bool stage(work_t *work)
{
    work->owned = malloc(work->bytes);
    if (!work->owned)
        return false;
    memcpy(work->owned, work->from, work->bytes);
    work->from = work->owned;
    return true;
}

static CUresult copy_in(CUcontext context, CUstream handle, const copy_t *copy)
{
    place_t to, from;
    CUresult result = check_copy(copy, &to, &from);
    CUstream stream = result ? NULL : stream_of(context, handle);
    if (!stream)
        return result ? result : CUDA_ERROR_INVALID_HANDLE;
    work_t *work = work_new(WORK_COPY);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->to = copy->to;
    work->from = copy->from;
    work->bytes = copy->bytes;
    work->flags =
        (to != PLACE_PAGEABLE ? TO_DRIVER : 0) | (from != PLACE_PAGEABLE ? FROM_DRIVER : 0);
    bool wait = is_waited_for(copy, to, from);
    if (copy->sync && from == PLACE_PAGEABLE && to == PLACE_DEVICE) {
        stream_wait(stream, stream_last(stream));
        if (!stage(work)) {
            work_free(work);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    result = submit(context, handle, work);
    if (!result && wait)
        stream_wait(stream, stream_last(stream));
    return result ? result : wait ? context->broken : CUDA_SUCCESS;
}

static CUresult copy(const copy_t *copy, CUstream stream)
{
    CUcontext context;
    CUresult result = enter(copy->call, &context);
    if (result)
        return result;
    if (!copy->bytes)
        return leave(CUDA_SUCCESS);
    driver_counts.copies++;
    return leave(copy_in(context, stream, copy));
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(&(copy_t){__func__, (void *)to, (void *)from, bytes, false, false, true}, NULL);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(&(copy_t){__func__, (void *)to, (void *)from, bytes, false, false, false}, stream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy(&(copy_t){__func__, (void *)to, from, bytes, true, false, true}, NULL);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy(&(copy_t){__func__, to, (void *)from, bytes, false, true, true}, NULL);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(&(copy_t){__func__, (void *)to, (void *)from, bytes, true, true, true}, NULL);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy(&(copy_t){__func__, (void *)to, from, bytes, true, false, false}, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(&(copy_t){__func__, to, (void *)from, bytes, false, true, false}, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(&(copy_t){__func__, (void *)to, (void *)from, bytes, true, true, false}, stream);
}

/* ---- Fills -------------------------------------------------------------------------------------
 */

/* Synchronous ones return at once too, except for memory of the host. */
static CUresult fill(const char *call, CUdeviceptr to, uint64_t value, size_t unit, size_t count,
                     CUstream handle, bool sync)
{
    CUcontext context;
    CUresult result = enter(call, &context);
    if (result || !count)
        return result ? result : leave(CUDA_SUCCESS);
    void *at = (void *)to;
    place_t place = bytes_place(at, unit * count);
    if (place == PLACE_WRONG || place == PLACE_PAGEABLE || to % unit)
        return leave(wrong_place(at, unit * count));
    work_t *work = work_new(WORK_SET);
    if (!work)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    work->to = at;
    work->bytes = unit * count;
    work->unit = unit;
    work->value = value;
    work->flags = TO_DRIVER;
    result = sync ? capture_forbids() : CUDA_SUCCESS;
    if (result)
        work_free(work);
    else
        result = submit(context, handle, work);
    CUstream stream = result ? NULL : stream_of(context, handle);
    if (stream && sync && place == PLACE_PINNED)
        stream_wait(stream, stream_last(stream));
    return leave(result);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    return fill(__func__, to, value, 1, count, NULL, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count)
{
    return fill(__func__, to, value, 4, count, NULL, true);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    return fill(__func__, to, value, 1, count, stream, false);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    return fill(__func__, to, value, 4, count, stream, false);
}

/* ---- Running -----------------------------------------------------------------------------------
 */

bool is_lost(const char *at, size_t bytes)
{
    const memory_t *m = memory_find(at);
    return !m || m->state != MEMORY_LIVE || at + bytes > m->at + m->bytes;
}

void lose(const work_t *work, const char *at)
{
    static const char *const names[] = {[WORK_COPY] = "a copy",
                                        [WORK_SET] = "a fill",
                                        [WORK_WRITE_VALUE] = "a written value",
                                        [WORK_WAIT_VALUE] = "a wait for a value"};
    char where[200];
    memory_describe(at, where, sizeof where);
    const memory_t *m = memory_find(at);
    say("%s of %zu bytes is at %s%s", names[work->kind], work->bytes, where,
        m && m->state == MEMORY_EARLY ? ", to which its stream has not come: a missing wait" : "");
    context_break(work->stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void set(const work_t *work)
{
    if (work->unit == 1)
        memset(work->to, (int)work->value, work->bytes);
    for (size_t i = 0; work->unit == 4 && i < work->bytes; i += 4)
        memcpy(work->to + i, &work->value, 4);
}

void copy_run(work_t *work)
{
    static char name[64];
    if ((work->flags & TO_DRIVER) && is_lost(work->to, work->bytes)) {
        lose(work, work->to);
        return;
    }
    if ((work->flags & FROM_DRIVER) && is_lost(work->from, work->bytes)) {
        lose(work, work->from);
        return;
    }
    snprintf(name, sizeof name, "a copy or fill of %zu bytes", work->bytes);
    executor_runs = name;
    memory_open();
    pthread_mutex_unlock(&driver_lock);
    if (work->kind == WORK_COPY)
        memmove(work->to, work->from, work->bytes);
    else if (work->kind == WORK_SET)
        set(work);
    else
        value_write(work);
    pthread_mutex_lock(&driver_lock);
}
