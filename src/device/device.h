/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU as Gradwire uses it: the primary context of the application, kernels, queues for its
 * streams. */
#ifndef GW_DEVICE_H
#define GW_DEVICE_H

#include <stdbool.h>

#include "cuda/cuda_kernels.h"
#include "device_memory.h"

typedef struct gw__device gw__device_t;

/* Bounds of what a device object keeps, in bytes; 0: a quarter of the device's memory, and 1 GiB of
 * pinned memory. */
typedef struct gw__device_limits {
    size_t device_bytes, pinned_bytes;
} gw__device_limits_t;

/*
 * The object of the device with this ordinal, shared by whoever asks in this process; the larger of
 * all bounds asked for holds. The first one loads the kernels, tries out what the device can do and
 * allocates a page of pinned memory; nothing of it waits for work of others, but the driver may:
 * not to be called while a stream waits for this thread. It may be called while a stream of the
 * application is being captured. The caller's current context is afterwards what it was, which
 * holds for all functions of this room.
 *
 * The context is the device's primary one, which the application must have made already (by its
 * first allocation through the CUDA runtime): Gradwire makes none.
 *
 * GW_ERR_NO_MODULE: no driver (as gw__driver_start), a build without GPU kernels, or none for this
 * device. GW_ERR_INVALID: no such ordinal. GW_ERR_UNSUPPORTED: the primary context is not in use.
 * GW_ERR_NO_MEMORY, GW_ERR_DEVICE. Any thread.
 */
gw_status_t gw__device_acquire(int ordinal, const gw__device_limits_t *limits, gw__device_t **out,
                               gw__why_t *why);

/*
 * Gives it back; the last one frees it. GW_IN_PROGRESS: it is the last one and a piece, a flag or
 * an event is taken, or work on a piece is still under way: nothing has happened, ask again (the
 * caller bounds for how long; an object that is left costs memory, nothing else). Errors: the
 * context cannot be entered; nothing has happened either. Never waits for the device. Kernels must
 * have ended: work whose pieces were given back behind it has. NULL is fine. Any thread.
 */
gw_status_t gw__device_release(gw__device_t *device, gw__why_t *why);

int gw__device_ordinal(const gw__device_t *device);

/* Whether streams can wait for a word of memory and write one (device_flag.h). */
bool gw__device_has_memory_operations(const gw__device_t *device);

/*
 * Whether kernels of this device may use the memory: that of other devices and of other contexts is
 * refused with a sentence, host memory that CUDA does not know too. GW_ERR_UNSUPPORTED. Pinned
 * memory is every device's.
 */
gw_status_t gw__device_owns(const gw__device_t *device, const gw__memory_t *memory, gw__why_t *why);

/*
 * Makes the device's context current in this thread until gw__device_leave(): for launches, copies
 * and everything else that is put on a stream. Pairs may be nested. An error has changed nothing.
 */
gw_status_t gw__device_enter(gw__device_t *device, gw__why_t *why);
void gw__device_leave(gw__device_t *device);

/* ---- Queues -----------------------------------------------------------------------------------
 */

/*
 * A stream of the application as a queue for kernels. The caller owns it, and it holds nothing:
 * there is none to free. `queue.blocks` is as many as the device runs at a time.
 *
 * A launch finds its kernel by name in a sorted table (measured: 20 ns) and calls cuLaunchKernel;
 * between gw__device_enter() and gw__device_leave(). Its errors are GW_ERR_INTERNAL for a name
 * that is none, and those of gw__driver_check(); the first one's sentence stays in `why`. One
 * thread at a time.
 */
typedef struct gw__stream {
    gw_cuda_queue_t queue;
    gw__device_t *device;
    CUstream stream;
    gw__why_t why; /* "": no launch has failed */
} gw__stream_t;

/*
 * `out` must stay where it is. A stream of another context is refused, and so are the default
 * streams (NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD), whose meaning is that of the current
 * context, when that is another one: call it with the caller's context current, before
 * gw__device_enter(). GW_ERR_UNSUPPORTED, GW_ERR_INVALID (no stream), GW_ERR_DEVICE.
 */
gw_status_t gw__device_queue(gw__device_t *device, CUstream stream, gw__stream_t *out,
                             gw__why_t *why);

/* ---- Figures ----------------------------------------------------------------------------------
 */

typedef struct gw__device_figures {
    int multiprocessors;
    unsigned kernels;                  /* in the device's table */
    size_t spilled;                    /* bytes of local memory of all kernels: 0 is right */
    size_t device_bytes, device_bound; /* held in pieces of device memory, and at most */
    size_t pinned_bytes, pinned_bound; /* of pinned memory */
    size_t device_peak, pinned_peak;   /* most that was taken at a time */
    unsigned long long allocations;    /* of memory and events, since it was made */
    unsigned pieces, events, flags;    /* that exist */
    unsigned pieces_taken, events_taken, flags_taken;
} gw__device_figures_t;

/* Any thread. */
void gw__device_figures(gw__device_t *device, gw__device_figures_t *out);

#endif
