/* SPDX-License-Identifier: Apache-2.0 */
/* The double of libcuda.so.1 as tests see it: the driver's own calls, and what only the double has.
 */
#ifndef GW_DRIVER_H
#define GW_DRIVER_H

#include "driver_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define GW_DRIVER_PROTOTYPE(name, since, params) CUresult name params;
GW_CU_FUNCTIONS(GW_DRIVER_PROTOTYPE)
#undef GW_DRIVER_PROTOTYPE

/*
 * A real libcuda.so.1 lacks the rest, so take it by dlsym() in programs that run on both.
 *
 * The environment, read by cuInit():
 * GW_DOUBLE_SEED      whose turn it is among streams, and among threads of a kernel: 0 (the
 * default) runs nothing but what somebody waits for, oldest first; 1 the newest first; all others
 * at random, and other work along with what is waited for GW_DOUBLE_DELAY     work that nobody
 * waits for begins after so many milliseconds (10) GW_DOUBLE_PATIENCE  a host function that runs
 * for so many milliseconds ends the process, with a sentence; other waits get one (20000)
 * GW_DOUBLE_DEVICES   number of devices (1); 0: cuInit() says CUDA_ERROR_NO_DEVICE
 * GW_DOUBLE_MEMORY    MiB of memory of each device (1024)
 * GW_DOUBLE_MEMOPS    0: no stream memory operations
 * GW_DOUBLE_IGNORE    cuStreamWaitEvent, cuStreamWaitValue32_v2: says that all is well and does
 *                     nothing, as if the caller had forgotten it
 * GW_DOUBLE_FAIL      "cuMemAlloc_v2:3:2": the third call of that function gives result 2
 */
typedef struct gw_driver_setting {
    uint64_t seed;
    int64_t delay_ms, patience_ms;
} gw_driver_setting_t;

/* For tests that try several seeds in one process; calls no driver function before. */
void gw_driver_get(gw_driver_setting_t *setting);
void gw_driver_set(const gw_driver_setting_t *setting);

/* The first 16 KiB of sentences so far, one a line; they go to stderr too. Valid until this thread
 * asks again. */
const char *gw_driver_said(void);

typedef struct gw_driver_counts {
    uint64_t calls;       /* of any function that got past its first checks */
    uint64_t allocations; /* of any kind of memory, registrations included */
    uint64_t live_bytes;  /* of devices */
    uint64_t launches, copies, host_functions, streams, events;
} gw_driver_counts_t;

void gw_driver_count(gw_driver_counts_t *counts);

/* An image that the double takes for a module, besides those of nvcc. */
#define GW_DRIVER_IMAGE "gw_double image"

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
