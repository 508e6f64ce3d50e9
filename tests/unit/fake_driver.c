/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the fake that the device layer makes. Names may be changed on the compiler's command
 * line, so that a library lacks them. */
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"

#pragma GCC visibility push(default)

#define PROTOTYPE(name, since, params) CUresult name params;
GW_CU_FUNCTIONS(PROTOTYPE)
fake_driver_t *fake_driver(void);

static fake_driver_t f = {.devices = FAKE_DEVICES};

fake_driver_t *fake_driver(void)
{
    return &f;
}

static CUcontext context_of(CUdevice device)
{
    return (CUcontext)(uintptr_t)(0x1000 + device);
}

static void note(const char *call)
{
    int i = 0;
    while (f.names[i] && strcmp(f.names[i], call) != 0)
        i++;
    f.names[i] = call;
}

static CUresult step(const char *call)
{
    note(call);
    if (++f.calls != f.fail_at)
        return CUDA_SUCCESS;
    f.failed = call;
    return f.fail_with;
}

/* A call that makes something: nothing is there after a failure. */
#define MAKE(thing, out, handle)                                                                   \
    do {                                                                                           \
        CUresult result = step(__func__);                                                          \
        if (result)                                                                                \
            return result;                                                                         \
        *(out) = handle;                                                                           \
        f.alive[thing]++;                                                                          \
        return CUDA_SUCCESS;                                                                       \
    } while (0)

/* A call that ends something does so even when it fails. */
#define END(thing)                                                                                 \
    do {                                                                                           \
        f.alive[thing]--;                                                                          \
        return step(__func__);                                                                     \
    } while (0)

#define GIVE(out, value)                                                                           \
    do {                                                                                           \
        CUresult result = step(__func__);                                                          \
        if (!result)                                                                               \
            *(out) = value;                                                                        \
        return result;                                                                             \
    } while (0)

#define NEXT(type) ((type)(uintptr_t)(0x10000 + 256 * f.calls))

/* ---- Devices and contexts ----------------------------------------------------------------------
 */

CUresult cuInit(unsigned flags)
{
    return step(__func__);
}

CUresult cuDriverGetVersion(int *version)
{
    GIVE(version, FAKE_VERSION);
}

CUresult cuDeviceGetCount(int *count)
{
    GIVE(count, f.devices);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    if (ordinal >= f.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    GIVE(device, ordinal);
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    CUresult result = step(__func__);
    if (!result)
        strncpy(name, "Fake", (size_t)size);
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    GIVE(bytes, (size_t)4 << 20);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    GIVE(value, attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 7 : 2048);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    *flags = 0;
    GIVE(active, !f.inactive);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    MAKE(FAKE_RETAINED, context, context_of(device));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    END(FAKE_RETAINED);
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    GIVE(context, f.depth ? f.stack[f.depth - 1] : NULL);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = step(__func__);
    if (!result && f.depth == FAKE_DEPTH)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!result)
        f.stack[f.depth++] = context;
    return result;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    if (!f.depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = f.stack[--f.depth];
    return step(__func__);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult result = step(__func__);
    if (result)
        return result;
    f.relaxed += *mode == CU_STREAM_CAPTURE_MODE_RELAXED ? 1 : -1;
    *mode = *mode == CU_STREAM_CAPTURE_MODE_RELAXED ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                                    : CU_STREAM_CAPTURE_MODE_RELAXED;
    return result;
}

/* ---- Memory ------------------------------------------------------------------------------------
 */

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes)
{
    MAKE(FAKE_DEVICE_MEMORY, at, NEXT(CUdeviceptr));
}

CUresult cuMemFree_v2(CUdeviceptr at)
{
    END(FAKE_DEVICE_MEMORY);
}

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    MAKE(FAKE_PINNED_MEMORY, at, malloc(bytes));
}

CUresult cuMemFreeHost(void *at)
{
    free(at);
    END(FAKE_PINNED_MEMORY);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_at, void *at, unsigned flags)
{
    GIVE(device_at, (CUdeviceptr)(uintptr_t)at);
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values,
                                CUdeviceptr at)
{
    CUresult result = step(__func__);
    for (unsigned i = 0; !result && i < count; i++)
        switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned *)values[i] = f.type;
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: /* one byte, as some drivers do */
            *(unsigned char *)values[i] = (unsigned char)f.managed;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)values[i] = f.ordinal;
            break;
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            *(CUcontext *)values[i] = f.of_memory;
            break;
        default:
            *(CUdeviceptr *)values[i] = f.type ? at : 0;
        }
    return result;
}

/* ---- Streams and events ------------------------------------------------------------------------
 */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    MAKE(FAKE_STREAMS, stream, NEXT(CUstream));
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    END(FAKE_STREAMS);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    GIVE(context, f.of_stream ? f.of_stream : f.stack[f.depth - 1]);
}

CUresult cuStreamSynchronize(CUstream stream)
{
    return step(__func__);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    f.waits++;
    return step(__func__);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags)
{
    f.waits += !f.no_operations;
    return f.no_operations ? CUDA_ERROR_NOT_SUPPORTED : step(__func__);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags)
{
    if (f.no_operations)
        return CUDA_ERROR_NOT_SUPPORTED;
    GIVE((uint32_t *)(uintptr_t)at, value);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *argument)
{
    CUresult result = step(__func__);
    if (result)
        return result;
    f.host = fn;
    f.argument = argument;
    if (!f.keep_host)
        fn(argument);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    MAKE(FAKE_EVENTS, event, NEXT(CUevent));
}

CUresult cuEventDestroy_v2(CUevent event)
{
    END(FAKE_EVENTS);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return step(__func__);
}

CUresult cuEventQuery(CUevent event)
{
    CUresult result = step(__func__);
    f.queries++;
    return !result && f.busy ? CUDA_ERROR_NOT_READY : result;
}

/* ---- Kernels -----------------------------------------------------------------------------------
 */

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values)
{
    MAKE(FAKE_MODULES, module, NEXT(CUmodule));
}

CUresult cuModuleUnload(CUmodule module)
{
    END(FAKE_MODULES);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit_options,
                           void **jit_values, unsigned jit_count, CUlibraryOption *options,
                           void **values, unsigned count)
{
    MAKE(FAKE_LIBRARIES, library, NEXT(CUlibrary));
}

CUresult cuLibraryUnload(CUlibrary library)
{
    END(FAKE_LIBRARIES);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    GIVE(module, NEXT(CUmodule));
}

/* Its name is the function's handle. */
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    GIVE(function, (CUfunction)(uintptr_t)name);
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    bool threads = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    GIVE(value, !threads ? f.spilled : f.threads ? f.threads : 1024);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **args, void **extra)
{
    CUresult result = step(__func__);
    if (result)
        return result;
    f.launches++;
    f.kernel = (const char *)(uintptr_t)function;
    f.grid = grid_x;
    f.block = block_x;
    f.stream = stream;
    return CUDA_SUCCESS;
}
