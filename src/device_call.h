/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces of device memory: what a communicator and a call have for them. */
#ifndef GW_DEVICE_CALL_H
#define GW_DEVICE_CALL_H

#include <stdatomic.h>

#include <gradwire/comm.h>

#include "engine_gpu.h"
#include "residual.h"

/* Pinned and device memory for a call; calls of a communicator run one after the other and share
 * it. */
typedef struct gw__room {
    gw__piece_t *pinned, *memory;
    atomic_uint users; /* calls that are not over, and the communicator */
} gw__room_t;

/* Device memory whose last use is not over yet. */
typedef struct gw__leaving gw__leaving_t;

/* An event behind a wait of an application's stream for `over`: until it has passed there, the flag
 * must stay. */
typedef struct gw__held gw__held_t;

/*
 * Of a communicator. Made by its first call on device memory; its device stays.
 *
 * The calling thread takes all memory, flags and events that a call needs before it lets the
 * application's stream wait for the end of the call: the driver may wait for that stream in any
 * function that allocates. Whoever drives the calls only launches.
 */
typedef struct gw__device_calls {
    gw__gpu_t gpu;                  /* gpu.device NULL: there was none yet */
    gw__flag_t *over;               /* raised at the end of each call that a stream waits for */
    uint32_t awaited;               /* so many calls are; of the calling thread */
    gw__room_t *room;               /* of the largest call so far */
    unsigned posted;                /* calls that were prepared; of the calling thread */
    atomic_uint ended;              /* of them */
    gw__residual_store_t residuals; /* in device memory; made with the device */
    gw__leaving_t *leaving;         /* of the calling thread */
    gw__held_t *held;               /* likewise */
    bool unknown;                   /* a stream waits, and nobody knows for how long */
} gw__device_calls_t;

/* Of a call, in its work. */
typedef struct gw__device_call {
    bool on;           /* its elements are in device memory */
    bool through_host; /* and are copied to pinned memory and back, for the host to do the rest */
    bool in_order;     /* of `stream`, of the application */
    bool copied_in, copying_out;
    CUstream stream;
    CUevent ready; /* recorded there; NULL: the elements are ready */
    const void *send;
    void *recv; /* of the application, when the host does the rest */
    gw__room_t *room;
    uint32_t awaited; /* the stream waits for the end of so many calls; 0: none does */
    float *residual;  /* in device memory, or NULL */
    uint32_t mark;    /* of a copy */
    bool ended;
} gw__device_call_t;

typedef struct gw_work gw_work_t;

/*
 * Finds out where the buffers of a call are, and takes what a call on device memory needs. GW_OK
 * also for host memory, with nothing done. Otherwise nothing was done either, and `why` says why.
 * By the calling thread.
 *
 * GW_ERR_UNSUPPORTED: memory of another device than that of the communicator's first such call, one
 * buffer in host memory, no kernels, a stream that is being captured, GRADWIRE_DEVICE=off.
 * GW_ERR_INVALID: no stream. GW_ERR_NO_MODULE, GW_ERR_NO_MEMORY, GW_ERR_DEVICE.
 */
gw_status_t gw__device_call_prepare(gw_work_t *work, gw__why_t *why);

/* Lets the stream of a call that was posted wait for its end; where streams cannot, this thread
 * does. `awaited`: of the call. */
void gw__device_call_hold(gw_comm_t *comm, CUstream stream, uint32_t awaited);

/* The call's turn has come: its memory is the engine's now. */
gw__gpu_t *gw__device_call_gpu(gw_work_t *work);

/* Of calls that go through the host: puts the copy of the elements to pinned memory, or of the
 * result back, on the stream; and whether it is done. */
gw_status_t gw__device_call_copy(gw_work_t *work, bool out, gw__why_t *why);
gw_status_t gw__device_call_copied(gw_work_t *work, gw__why_t *why);

/* The call is over, or never was: gives back what it took, and lets the stream go on. Nothing for
 * host memory; the second time too. */
void gw__device_call_end(gw_work_t *work);

/* Bounded by GRADWIRE_TIMEOUT. */
void gw__device_calls_free(gw_comm_t *comm);

#endif
