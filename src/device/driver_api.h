/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the CUDA driver API that Gradwire uses, as lists. libcuda.so.1 is opened by name. */
#ifndef GW_DRIVER_API_H
#define GW_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

/*
 * Numbers and signatures are facts of the ABI of 64-bit Linux. tests/box/driver_abi.sh compares
 * them with cuda.h where a toolkit is installed. No file includes this header and cuda.h.
 */

/* X(name, number, sentence) */
#define GW_CU_RESULTS(X)                                                                           \
    X(CUDA_SUCCESS, 0, "no error")                                                                 \
    X(CUDA_ERROR_INVALID_VALUE, 1, "an argument is out of range")                                  \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                                                \
    X(CUDA_ERROR_NOT_INITIALIZED, 3, "cuInit was not called or failed")                            \
    X(CUDA_ERROR_DEINITIALIZED, 4, "the driver is shutting down")                                  \
    X(CUDA_ERROR_STUB_LIBRARY, 34, "libcuda is a stub of the toolkit")                             \
    X(CUDA_ERROR_NO_DEVICE, 100, "there is no CUDA device")                                        \
    X(CUDA_ERROR_INVALID_DEVICE, 101, "no such device")                                            \
    X(CUDA_ERROR_INVALID_IMAGE, 200, "the image of kernels is invalid")                            \
    X(CUDA_ERROR_INVALID_CONTEXT, 201, "no context is current, or not this one")                   \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "the image holds no code for this GPU")                   \
    X(CUDA_ERROR_INVALID_PTX, 218, "the image's PTX does not compile")                             \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222, "the image's PTX is newer than the driver")         \
    X(CUDA_ERROR_OPERATING_SYSTEM, 304, "a call of the operating system failed")                   \
    X(CUDA_ERROR_INVALID_HANDLE, 400, "not a handle of this driver")                               \
    X(CUDA_ERROR_ILLEGAL_STATE, 401, "the resource is in another state")                           \
    X(CUDA_ERROR_NOT_FOUND, 500, "not found")                                                      \
    X(CUDA_ERROR_NOT_READY, 600, "work is still under way")                                        \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "a kernel touched memory that it may not")                  \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "too many registers or threads for a launch")       \
    X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, 708, "the primary context is active")                     \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "the current context was destroyed")                   \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712, "the host memory is registered already")     \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713, "the host memory is not registered")             \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716, "a kernel used an address that is not aligned")          \
    X(CUDA_ERROR_LAUNCH_FAILED, 719, "a kernel failed")                                            \
    X(CUDA_ERROR_NOT_PERMITTED, 800, "the call is not permitted here")                             \
    X(CUDA_ERROR_NOT_SUPPORTED, 801, "this system or driver cannot do it")                         \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900, "not permitted while a stream is capturing")     \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901, "an earlier error has ended the capture")        \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902, "would merge two captures")                            \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903, "the capture began on another stream")             \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904, "a stream of the capture was not joined")           \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905, "would depend on work outside of the capture")     \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906, "the legacy stream waits for a capturing stream")   \
    X(CUDA_ERROR_CAPTURED_EVENT, 907, "the event was recorded in a capturing stream")              \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908, "the capture began in another thread")          \
    X(CUDA_ERROR_TIMEOUT, 909, "a deadline passed")                                                \
    X(CUDA_ERROR_UNKNOWN, 999, "unknown error")

/* X(name, number) */
#define GW_CU_DEVICE_ATTRIBUTES(X)                                                                 \
    X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                                                \
    X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 2)                                                      \
    X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 5)                                                       \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)                                          \
    X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10)                                                           \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                \
    X(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33)                                                          \
    X(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34)                                                       \
    X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 39)                                      \
    X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                                                  \
    X(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50)                                                       \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                            \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                            \
    X(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 78)                                         \
    X(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 83)                                                      \
    X(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 88)                                              \
    X(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89)                                           \
    X(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)                             \
    X(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 92)                                           \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)                                   \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)                                             \
    X(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)                                      \
    X(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 123)

/* They write: a CUcontext, an unsigned, two pointers, a uint64_t, two ints, a pointer, a size_t, an
 * int. */
#define GW_CU_POINTER_ATTRIBUTES(X)                                                                \
    X(CU_POINTER_ATTRIBUTE_CONTEXT, 1)                                                             \
    X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                         \
    X(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3)                                                      \
    X(CU_POINTER_ATTRIBUTE_HOST_POINTER, 4)                                                        \
    X(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)                                                           \
    X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                          \
    X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                                      \
    X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                                                   \
    X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)                                                         \
    X(CU_POINTER_ATTRIBUTE_MAPPED, 13)

#define GW_CU_FUNCTION_ATTRIBUTES(X)                                                               \
    X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)                                                  \
    X(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1)                                                      \
    X(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3)                                                       \
    X(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)                                                               \
    X(CU_FUNC_ATTRIBUTE_BINARY_VERSION, 6)                                                         \
    X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)

#define GW_CU_MEMORY_TYPES(X)                                                                      \
    X(CU_MEMORYTYPE_HOST, 1)                                                                       \
    X(CU_MEMORYTYPE_DEVICE, 2)

#define GW_CU_CAPTURE_STATUSES(X)                                                                  \
    X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                                            \
    X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                                                          \
    X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)

#define GW_CU_CAPTURE_MODES(X)                                                                     \
    X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)                                                            \
    X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                      \
    X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)

#define GW_CU_ADDRESS_STATUSES(X)                                                                  \
    X(CU_GET_PROC_ADDRESS_SUCCESS, 0)                                                              \
    X(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 1)                                                     \
    X(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 2)

/* Flags of calls. */
#define GW_CU_FLAGS(X)                                                                             \
    X(CU_STREAM_DEFAULT, 0)                                                                        \
    X(CU_STREAM_NON_BLOCKING, 1)                                                                   \
    X(CU_EVENT_DEFAULT, 0)                                                                         \
    X(CU_EVENT_BLOCKING_SYNC, 1)                                                                   \
    X(CU_EVENT_DISABLE_TIMING, 2)                                                                  \
    X(CU_EVENT_INTERPROCESS, 4)                                                                    \
    X(CU_EVENT_WAIT_DEFAULT, 0)                                                                    \
    X(CU_STREAM_WAIT_VALUE_GEQ, 0)                                                                 \
    X(CU_STREAM_WAIT_VALUE_EQ, 1)                                                                  \
    X(CU_STREAM_WAIT_VALUE_AND, 2)                                                                 \
    X(CU_STREAM_WAIT_VALUE_NOR, 3)                                                                 \
    X(CU_STREAM_WAIT_VALUE_FLUSH, 1 << 30)                                                         \
    X(CU_STREAM_WRITE_VALUE_DEFAULT, 0)                                                            \
    X(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER, 1)                                                  \
    X(CU_MEM_ATTACH_GLOBAL, 1)                                                                     \
    X(CU_MEM_ATTACH_HOST, 2)                                                                       \
    X(CU_GET_PROC_ADDRESS_DEFAULT, 0)                                                              \
    X(CU_MEMHOSTALLOC_PORTABLE, 1)                                                                 \
    X(CU_MEMHOSTALLOC_DEVICEMAP, 2)                                                                \
    X(CU_MEMHOSTALLOC_WRITECOMBINED, 4)                                                            \
    X(CU_MEMHOSTREGISTER_PORTABLE, 1)                                                              \
    X(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                                             \
    X(CU_MEMHOSTREGISTER_IOMEMORY, 4)                                                              \
    X(CU_MEMHOSTREGISTER_READ_ONLY, 8)

#define GW_CU_CONSTANTS(X)                                                                         \
    GW_CU_DEVICE_ATTRIBUTES(X)                                                                     \
    GW_CU_POINTER_ATTRIBUTES(X)                                                                    \
    GW_CU_FUNCTION_ATTRIBUTES(X)                                                                   \
    GW_CU_MEMORY_TYPES(X)                                                                          \
    GW_CU_CAPTURE_STATUSES(X)                                                                      \
    GW_CU_CAPTURE_MODES(X)                                                                         \
    GW_CU_ADDRESS_STATUSES(X)                                                                      \
    GW_CU_FLAGS(X)

/*
 * X(exported name, CUDA version since which it is (1000 * major + 10 * minor), parameters).
 * cuGetProcAddress takes the name without its version ("_v2"). A struct of function pointers is
 *     #define FIELD(name, since, params) CUresult (*name) params;
 */
#define GW_CU_FUNCTIONS(X)                                                                         \
    GW_CU_OF_DEVICES(X)                                                                            \
    GW_CU_OF_MEMORY(X)                                                                             \
    GW_CU_OF_COPIES(X)                                                                             \
    GW_CU_OF_STREAMS(X)                                                                            \
    GW_CU_OF_KERNELS(X)

#define GW_CU_OF_DEVICES(X)                                                                        \
    X(cuGetProcAddress_v2, 12000,                                                                  \
      (const char *name, void **fn, int version, uint64_t flags,                                   \
       CUdriverProcAddressQueryResult *status))                                                    \
    X(cuGetErrorName, 6000, (CUresult result, const char **name))                                  \
    X(cuGetErrorString, 6000, (CUresult result, const char **sentence))                            \
    X(cuInit, 2000, (unsigned flags))                                                              \
    X(cuDriverGetVersion, 2020, (int *version))                                                    \
    X(cuDeviceGet, 2000, (CUdevice * device, int ordinal))                                         \
    X(cuDeviceGetCount, 2000, (int *count))                                                        \
    X(cuDeviceGetName, 2000, (char *name, int size, CUdevice device))                              \
    X(cuDeviceGetUuid_v2, 11040, (CUuuid * uuid, CUdevice device))                                 \
    X(cuDeviceGetPCIBusId, 4010, (char *id, int size, CUdevice device))                            \
    X(cuDeviceTotalMem_v2, 3020, (size_t * bytes, CUdevice device))                                \
    X(cuDeviceGetAttribute, 2000, (int *value, CUdevice_attribute attribute, CUdevice device))     \
    X(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device))                      \
    X(cuDevicePrimaryCtxRelease_v2, 11000, (CUdevice device))                                      \
    X(cuDevicePrimaryCtxGetState, 7000, (CUdevice device, unsigned *flags, int *active))           \
    X(cuCtxSetCurrent, 4000, (CUcontext context))                                                  \
    X(cuCtxGetCurrent, 4000, (CUcontext * context))                                                \
    X(cuCtxPushCurrent_v2, 4000, (CUcontext context))                                              \
    X(cuCtxPopCurrent_v2, 4000, (CUcontext * context))                                             \
    X(cuCtxGetDevice, 2000, (CUdevice * device))                                                   \
    X(cuCtxSynchronize, 2000, (void))                                                              \
    X(cuCtxGetStreamPriorityRange, 5050, (int *least, int *greatest))

#define GW_CU_OF_MEMORY(X)                                                                         \
    X(cuMemGetInfo_v2, 3020, (size_t * free_bytes, size_t * bytes))                                \
    X(cuMemAlloc_v2, 3020, (CUdeviceptr * at, size_t bytes))                                       \
    X(cuMemFree_v2, 3020, (CUdeviceptr at))                                                        \
    X(cuMemAllocAsync, 11020, (CUdeviceptr * at, size_t bytes, CUstream stream))                   \
    X(cuMemFreeAsync, 11020, (CUdeviceptr at, CUstream stream))                                    \
    X(cuMemAllocManaged, 6000, (CUdeviceptr * at, size_t bytes, unsigned flags))                   \
    X(cuMemHostAlloc, 2020, (void **at, size_t bytes, unsigned flags))                             \
    X(cuMemFreeHost, 2000, (void *at))                                                             \
    X(cuMemHostRegister_v2, 6050, (void *at, size_t bytes, unsigned flags))                        \
    X(cuMemHostUnregister, 4000, (void *at))                                                       \
    X(cuMemHostGetDevicePointer_v2, 3020, (CUdeviceptr * device_at, void *at, unsigned flags))     \
    X(cuMemGetAddressRange_v2, 3020, (CUdeviceptr * start, size_t * bytes, CUdeviceptr at))        \
    X(cuPointerGetAttribute, 4000, (void *value, CUpointer_attribute attribute, CUdeviceptr at))   \
    X(cuPointerGetAttributes, 7000,                                                                \
      (unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr at))

#define GW_CU_OF_COPIES(X)                                                                         \
    X(cuMemcpy, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                            \
    X(cuMemcpyAsync, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))      \
    X(cuMemcpyHtoD_v2, 3020, (CUdeviceptr to, const void *from, size_t bytes))                     \
    X(cuMemcpyDtoH_v2, 3020, (void *to, CUdeviceptr from, size_t bytes))                           \
    X(cuMemcpyDtoD_v2, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                     \
    X(cuMemcpyHtoDAsync_v2, 3020,                                                                  \
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                           \
    X(cuMemcpyDtoHAsync_v2, 3020, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))     \
    X(cuMemcpyDtoDAsync_v2, 3020,                                                                  \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
    X(cuMemsetD8_v2, 3020, (CUdeviceptr to, unsigned char value, size_t count))                    \
    X(cuMemsetD32_v2, 3020, (CUdeviceptr to, unsigned value, size_t count))                        \
    X(cuMemsetD8Async, 3020, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream)) \
    X(cuMemsetD32Async, 3020, (CUdeviceptr to, unsigned value, size_t count, CUstream stream))

#define GW_CU_OF_STREAMS(X)                                                                        \
    X(cuStreamCreate, 2000, (CUstream * stream, unsigned flags))                                   \
    X(cuStreamCreateWithPriority, 5050, (CUstream * stream, unsigned flags, int priority))         \
    X(cuStreamDestroy_v2, 4000, (CUstream stream))                                                 \
    X(cuStreamGetPriority, 5050, (CUstream stream, int *priority))                                 \
    X(cuStreamGetFlags, 5050, (CUstream stream, unsigned *flags))                                  \
    X(cuStreamGetCtx, 9020, (CUstream stream, CUcontext * context))                                \
    X(cuStreamQuery, 2000, (CUstream stream))                                                      \
    X(cuStreamSynchronize, 2000, (CUstream stream))                                                \
    X(cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned flags))                   \
    X(cuStreamWaitValue32_v2, 11070,                                                               \
      (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                           \
    X(cuStreamWaitValue64_v2, 11070,                                                               \
      (CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags))                           \
    X(cuStreamWriteValue32_v2, 11070,                                                              \
      (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                           \
    X(cuStreamWriteValue64_v2, 11070,                                                              \
      (CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags))                           \
    X(cuLaunchHostFunc, 10000, (CUstream stream, CUhostFn fn, void *argument))                     \
    X(cuEventCreate, 2000, (CUevent * event, unsigned flags))                                      \
    X(cuEventDestroy_v2, 4000, (CUevent event))                                                    \
    X(cuEventRecord, 2000, (CUevent event, CUstream stream))                                       \
    X(cuEventQuery, 2000, (CUevent event))                                                         \
    X(cuEventSynchronize, 2000, (CUevent event))                                                   \
    X(cuEventElapsedTime, 2000, (float *ms, CUevent start, CUevent end))                           \
    X(cuStreamBeginCapture_v2, 10010, (CUstream stream, CUstreamCaptureMode mode))                 \
    X(cuStreamEndCapture, 10000, (CUstream stream, CUgraph * graph))                               \
    X(cuStreamIsCapturing, 10000, (CUstream stream, CUstreamCaptureStatus * status))               \
    X(cuStreamGetCaptureInfo_v2, 11030,                                                            \
      (CUstream stream, CUstreamCaptureStatus * status, uint64_t * id, CUgraph * graph,            \
       const CUgraphNode **nodes, size_t *count))                                                  \
    X(cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode * mode))                      \
    X(cuGraphDestroy, 10000, (CUgraph graph))

#define GW_CU_OF_KERNELS(X)                                                                        \
    X(cuModuleLoadData, 2000, (CUmodule * module, const void *image))                              \
    X(cuModuleLoadDataEx, 2010,                                                                    \
      (CUmodule * module, const void *image, unsigned count, CUjit_option *options,                \
       void **values))                                                                             \
    X(cuModuleUnload, 2000, (CUmodule module))                                                     \
    X(cuModuleGetFunction, 2000, (CUfunction * function, CUmodule module, const char *name))       \
    X(cuLibraryLoadData, 12000,                                                                    \
      (CUlibrary * library, const void *image, CUjit_option *jit_options, void **jit_values,       \
       unsigned jit_count, CUlibraryOption *options, void **values, unsigned count))               \
    X(cuLibraryUnload, 12000, (CUlibrary library))                                                 \
    X(cuLibraryGetModule, 12000, (CUmodule * module, CUlibrary library))                           \
    X(cuFuncGetAttribute, 2020, (int *value, CUfunction_attribute attribute, CUfunction function)) \
    X(cuFuncSetAttribute, 9000, (CUfunction function, CUfunction_attribute attribute, int value))  \
    X(cuLaunchKernel, 4000,                                                                        \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **args,    \
       void **extra))

#if !defined(GW_DRIVER_TYPES_ELSEWHERE)

#define GW_CU_ENUM(name, number, ...) name = number,
typedef enum cudaError_enum { GW_CU_RESULTS(GW_CU_ENUM) } CUresult;
typedef enum CUdevice_attribute_enum { GW_CU_DEVICE_ATTRIBUTES(GW_CU_ENUM) } CUdevice_attribute;
typedef enum CUpointer_attribute_enum { GW_CU_POINTER_ATTRIBUTES(GW_CU_ENUM) } CUpointer_attribute;
typedef enum CUfunction_attribute_enum {
    GW_CU_FUNCTION_ATTRIBUTES(GW_CU_ENUM)
} CUfunction_attribute;
typedef enum CUmemorytype_enum { GW_CU_MEMORY_TYPES(GW_CU_ENUM) } CUmemorytype;
typedef enum CUstreamCaptureStatus_enum {
    GW_CU_CAPTURE_STATUSES(GW_CU_ENUM)
} CUstreamCaptureStatus;
typedef enum CUstreamCaptureMode_enum { GW_CU_CAPTURE_MODES(GW_CU_ENUM) } CUstreamCaptureMode;
typedef enum CUdriverProcAddressQueryResult_enum {
    GW_CU_ADDRESS_STATUSES(GW_CU_ENUM)
} CUdriverProcAddressQueryResult;
enum { GW_CU_FLAGS(GW_CU_ENUM) };
#undef GW_CU_ENUM

/* No option is passed: with a count of 0 their tables may be NULL. */
typedef enum CUjit_option_enum { GW_CU_NO_JIT_OPTION } CUjit_option;
typedef enum CUlibraryOption_enum { GW_CU_NO_LIBRARY_OPTION } CUlibraryOption;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef void (*CUhostFn)(void *argument);
typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;

#define CU_STREAM_LEGACY     ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)
#define CU_DEVICE_INVALID    ((CUdevice)-2)

#endif
#endif
