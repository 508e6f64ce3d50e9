/* SPDX-License-Identifier: Apache-2.0 */
/* Devices and their primary contexts, of which each thread keeps a stack. */
#include <stdio.h>
#include <string.h>

#include "driver_double.h"

enum { DEPTH = 16, PROCESSORS = 8 };

static struct CUctx_st contexts[DEVICES_MOST];
static __thread CUcontext stack[DEPTH];
static __thread int depth;

CUcontext context_current(void)
{
    CUcontext context = depth ? stack[depth - 1] : NULL;
    return context && context->retained ? context : NULL;
}

CUcontext context_of(CUdevice device)
{
    return &contexts[device];
}

static bool is_device(CUdevice device)
{
    return device >= 0 && device < driver_settings.devices;
}

static bool is_context(CUcontext context)
{
    return context >= contexts && context < contexts + driver_settings.devices && context->retained;
}

/* ---- Devices -----------------------------------------------------------------------------------
 */

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    if (!count)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *count = driver_settings.devices;
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    if (!device || !is_device(ordinal))
        return leave(device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    *device = ordinal;
    return leave(CUDA_SUCCESS);
}

/* Most calls that ask about a device begin with this. */
static CUresult enter_of_device(const char *call, const void *out, CUdevice device)
{
    CUresult result = enter(call, NULL);
    if (result)
        return result;
    if (!is_device(device))
        return leave(CUDA_ERROR_INVALID_DEVICE);
    return out ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    CUresult result = enter_of_device(__func__, name, device);
    if (result)
        return result;
    if (size <= 0)
        return leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)size, "Gradwire double of a GPU");
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult result = enter_of_device(__func__, uuid, device);
    if (result)
        return result;
    memcpy(uuid->bytes, "gradwire double", sizeof uuid->bytes);
    uuid->bytes[15] = (char)device;
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device)
{
    CUresult result = enter_of_device(__func__, id, device);
    if (result)
        return result;
    if (size < 13)
        return leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(id, (size_t)size, "0000:%02X:00.0", 1 + (unsigned)device);
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = enter_of_device(__func__, bytes, device);
    if (result)
        return result;
    *bytes = driver_settings.memory;
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    int values[] = {
        [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = GW_DOUBLE_THREADS_MOST,
        [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] = GW_DOUBLE_THREADS_MOST,
        [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X] = INT32_MAX,
        [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK] = 48 * 1024,
        [CU_DEVICE_ATTRIBUTE_WARP_SIZE] = 32,
        [CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = PROCESSORS,
        [CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] = 1 + device,
        [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] = 2048,
        [CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1,
        [CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9,
        [CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED] = 1,
        [CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = 1,
        [CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] = 1,
        [CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 1,
        [CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1] = driver_settings.memops,
        [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] = GW_DOUBLE_SHARED_MOST,
        [CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 1,
        [CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS] = driver_settings.memops,
        [CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR] = driver_settings.memops,
    };
    CUresult result = enter_of_device(__func__, value, device);
    if (result)
        return result;
    if ((size_t)attribute >= sizeof values / sizeof *values)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *value = values[attribute];
    return leave(CUDA_SUCCESS);
}

/* ---- Primary contexts --------------------------------------------------------------------------
 */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = enter_of_device(__func__, context, device);
    if (result)
        return result;
    contexts[device].device = device;
    contexts[device].retained++;
    *context = &contexts[device];
    return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    if (!is_device(device))
        return leave(CUDA_ERROR_INVALID_DEVICE);
    if (!contexts[device].retained)
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    if (contexts[device].retained == 1)
        stream_wait_all(&contexts[device]);
    contexts[device].retained--;
    if (!contexts[device].retained)
        memory_free_of(&contexts[device]);
    return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    CUresult result = enter_of_device(__func__, flags && active ? flags : NULL, device);
    if (result)
        return result;
    *flags = 0;
    *active = contexts[device].retained > 0;
    return leave(CUDA_SUCCESS);
}

static CUresult push(CUcontext context)
{
    if (depth == DEPTH)
        return refuse(CUDA_ERROR_OUT_OF_MEMORY, "the double's stack of contexts is full");
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    if (context && !is_context(context))
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    if (depth)
        depth--;
    return leave(context ? push(context) : CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    if (!context)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *context = context_current();
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    return leave(is_context(context) ? push(context) : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    if (!depth)
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (context)
        *context = stack[depth];
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (!device)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *device = context->device;
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    result = capture_forbids();
    if (result)
        return leave(result);
    stream_wait_all(context);
    return leave(context->broken);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return leave(CUDA_SUCCESS);
}
