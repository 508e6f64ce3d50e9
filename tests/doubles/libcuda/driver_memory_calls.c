/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that allocate, free, register and ask whose memory an address is. */
#include <stdlib.h>

#include "driver_double.h"

/* ---- Memory of devices -------------------------------------------------------------------------
 */

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *bytes)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (!free_bytes || !bytes)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *bytes = driver_settings.memory;
    *free_bytes = *bytes - memory_used(context);
    return leave(CUDA_SUCCESS);
}

static CUresult allocate(const char *call, memory_kind_t kind, size_t bytes, void **at)
{
    CUcontext context;
    CUresult result = enter(call, &context);
    if (result)
        return result;
    result = capture_forbids();
    if (!result && (!at || !bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return leave(result);
    memory_t *m = memory_new(kind, context, bytes);
    if (!m)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    *at = m->at;
    return leave(CUDA_SUCCESS);
}

static CUresult allocate_device(const char *call, memory_kind_t kind, size_t bytes,
                                CUdeviceptr *out)
{
    void *at = NULL;
    CUresult result = allocate(call, kind, bytes, out ? &at : NULL);
    if (!result)
        *out = (CUdeviceptr)at;
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes)
{
    return allocate_device(__func__, MEMORY_DEVICE, bytes, at);
}

CUresult cuMemAllocManaged(CUdeviceptr *at, size_t bytes, unsigned flags)
{
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate_device(__func__, MEMORY_MANAGED, bytes, at);
}

/*
 * The driver may wait for work here, and may not ("may perform implicit synchronization"). The
 * double does not: work under way that names the memory fails.
 */
CUresult cuMemFree_v2(CUdeviceptr at)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    result = capture_forbids();
    if (result || !at)
        return leave(result);
    memory_t *m = memory_at_start((void *)at);
    if (!m || m->kind > MEMORY_MANAGED)
        return leave(
            refuse(CUDA_ERROR_INVALID_VALUE, "%p is no allocation (freed before?)", (void *)at));
    memory_free(m);
    return leave(CUDA_SUCCESS);
}

CUresult cuMemAllocAsync(CUdeviceptr *at, size_t bytes, CUstream stream)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (!at || !bytes)
        return leave(CUDA_ERROR_INVALID_VALUE);
    memory_t *m = memory_new(MEMORY_DEVICE, context, bytes);
    work_t *work = m ? work_new(WORK_ALLOCATE) : NULL;
    if (!work)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    m->state = MEMORY_EARLY;
    m->ordered = true;
    work->to = m->at;
    result = submit(context, stream, work);
    if (result)
        memory_free(m);
    else
        *at = (CUdeviceptr)m->at;
    return leave(result);
}

CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    memory_t *m = memory_at_start((void *)at);
    if (!m || m->kind != MEMORY_DEVICE)
        return leave(
            refuse(CUDA_ERROR_INVALID_VALUE, "%p is no allocation (freed before?)", (void *)at));
    work_t *work = work_new(WORK_FREE);
    if (!work)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    work->to = m->at;
    return leave(submit(context, stream, work));
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr at)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    memory_t *m = memory_find((void *)at);
    if (!m || m->state == MEMORY_FREED || (char *)at == m->at + m->bytes)
        return leave(CUDA_ERROR_NOT_FOUND);
    if (start)
        *start = (CUdeviceptr)m->at;
    if (bytes)
        *bytes = m->bytes;
    return leave(CUDA_SUCCESS);
}

/* ---- Memory of the host ------------------------------------------------------------------------
 */

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    if (flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(__func__, MEMORY_PINNED, bytes, at);
}

static CUresult give_up(const char *call, void *at, memory_kind_t kind, CUresult otherwise)
{
    CUcontext context;
    CUresult result = enter(call, &context);
    if (result)
        return result;
    result = capture_forbids();
    memory_t *m = result ? NULL : memory_at_start(at);
    if (!result && (!m || m->kind != kind))
        result = otherwise;
    if (!result)
        memory_free(m);
    return leave(result);
}

CUresult cuMemFreeHost(void *at)
{
    return give_up(__func__, at, MEMORY_PINNED, CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemHostUnregister(void *at)
{
    return give_up(__func__, at, MEMORY_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    result = capture_forbids();
    if (!result && (!at || !bytes || flags > 15))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return leave(result);
    if (memory_overlaps(at, bytes))
        return leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    if (!memory_is_mapped(at) || !memory_is_mapped((char *)at + bytes - 1))
        return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(memory_register(context, at, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_at, void *at, unsigned flags)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    const memory_t *m = memory_find(at);
    if (!device_at || flags || !m || m->kind < MEMORY_PINNED)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *device_at = (CUdeviceptr)at;
    return leave(CUDA_SUCCESS);
}

/* ---- Whose memory ------------------------------------------------------------------------------
 */

/* NULL: an address that the driver does not know, whose attributes are all 0. */
static CUresult write_attribute(void *value, CUpointer_attribute attribute, const memory_t *m,
                                CUdeviceptr at)
{
    bool host = m && m->kind >= MEMORY_MANAGED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = m ? m->context : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = !m                         ? 0
                             : m->kind >= MEMORY_PINNED ? CU_MEMORYTYPE_HOST
                                                        : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = m ? at : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)value = host ? (void *)at : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(uint64_t *)value = m ? m->id : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(int *)value = m && m->kind == MEMORY_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = m ? m->context->device : CU_DEVICE_INVALID;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = m ? (CUdeviceptr)m->at : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = m ? m->bytes : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)value = m != NULL;
        return CUDA_SUCCESS;
    }
    return refuse(CUDA_ERROR_INVALID_VALUE, "the double has no attribute %d", (int)attribute);
}

static const memory_t *owner_of(CUdeviceptr at)
{
    const memory_t *m = memory_find((void *)at);
    return m && m->state != MEMORY_FREED && (char *)at < m->at + m->bytes ? m : NULL;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr at)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    const memory_t *m = owner_of(at);
    if (!value || !m)
        return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(write_attribute(value, attribute, m, at));
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values,
                                CUdeviceptr at)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    if (!count || !attributes || !values)
        return leave(CUDA_ERROR_INVALID_VALUE);
    const memory_t *m = owner_of(at);
    for (unsigned i = 0; i < count && !result; i++)
        result = write_attribute(values[i], attributes[i], m, at);
    return leave(result);
}
