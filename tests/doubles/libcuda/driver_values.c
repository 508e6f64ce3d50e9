/* SPDX-License-Identifier: Apache-2.0 */
/* Values that streams write and wait for. */
#include "driver_double.h"

static CUresult value(const char *call, work_kind_t kind, CUstream stream, CUdeviceptr to,
                      uint64_t number, size_t unit, unsigned flags)
{
    CUcontext context;
    CUresult result = enter(call, &context);
    if (result)
        return result;
    if (!driver_settings.memops)
        return leave(CUDA_ERROR_NOT_SUPPORTED);
    const memory_t *m = memory_find((void *)to);
    if (flags > (kind == WORK_WAIT_VALUE ? 3 : 1))
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (to % unit || bytes_place((void *)to, unit) > PLACE_PINNED || m->kind == MEMORY_MANAGED)
        return leave(wrong_place((void *)to, unit));
    if (is_ignored(call))
        return leave(CUDA_SUCCESS);
    work_t *work = work_new(kind);
    if (!work)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    work->to = (char *)to;
    work->bytes = work->unit = unit;
    work->value = number;
    work->flags = kind == WORK_WAIT_VALUE ? flags : TO_DRIVER;
    return leave(submit(context, stream, work));
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t number, unsigned flags)
{
    return value(__func__, WORK_WAIT_VALUE, stream, at, number, 4, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr at, uint64_t number, unsigned flags)
{
    return value(__func__, WORK_WAIT_VALUE, stream, at, number, 8, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, uint32_t number, unsigned flags)
{
    return value(__func__, WORK_WRITE_VALUE, stream, at, number, 4, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr at, uint64_t number, unsigned flags)
{
    return value(__func__, WORK_WRITE_VALUE, stream, at, number, 8, flags);
}

/* True also where the memory is gone, which is an error and ends the wait. */
bool value_is_there(const work_t *work)
{
    if (is_lost(work->to, work->unit)) {
        lose(work, work->to);
        return true;
    }
    if (memory_find(work->to)->kind == MEMORY_DEVICE)
        memory_open();
    bool wide = work->unit == 8;
    uint64_t is = wide ? __atomic_load_n((uint64_t *)(void *)work->to, __ATOMIC_ACQUIRE)
                       : __atomic_load_n((uint32_t *)(void *)work->to, __ATOMIC_ACQUIRE);
    switch (work->flags) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return is == work->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (is & work->value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return wide ? ~(is | work->value) != 0 : (uint32_t) ~(is | work->value) != 0;
    }
    return wide ? (int64_t)(is - work->value) >= 0 : (int32_t)(is - work->value) >= 0;
}

void value_write(const work_t *work)
{
    if (work->unit == 8)
        __atomic_store_n((uint64_t *)(void *)work->to, work->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)(void *)work->to, (uint32_t)work->value, __ATOMIC_RELEASE);
}
