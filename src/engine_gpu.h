/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's computing tasks on a GPU: the same plan, its tasks as launches in a stream. */
#ifndef GW_ENGINE_GPU_H
#define GW_ENGINE_GPU_H

#include "device/device_flag.h"
#include "device/device_pool.h"
#include "engine.h"

/*
 * Tasks of a call on device memory go to a stream of the communicator's own, in the order in which
 * they become ready; behind each the stream writes how far it is (its mark) to pinned memory, where
 * the engine sees it without a call of the driver. Frames lie in pinned memory: kernels write and
 * read payloads there, the host writes and checks headers, the transport sends from and receives
 * into it. So nothing is copied for the wire, and a rank on a GPU and one on a CPU exchange the
 * same frames.
 */
struct gw__gpu {
    gw__device_t *device;
    CUstream stream;    /* highest in priority, and never of the application's */
    gw__stream_t queue; /* the same for kernels */
    gw__flag_t *marks;  /* raised by the stream behind every task */
    uint32_t launched;  /* so often it was asked to */
    int64_t last_ns;    /* when the last task was seen to be done */
    int64_t next_look;  /* when to ask the driver again whether the stream is well */
    bool stuck;         /* tasks may run for ever: their memory is not given back */

    /* Of the call under way; nobody else's until it is over. */
    gw__piece_t *pinned, *memory;
    CUevent ready; /* of the application's stream: elements may be read from then on; NULL: now */
};

/* Bytes at the beginning of the device memory of a call for what one task at a time needs. */
size_t gw__gpu_scratch(const gw__engine_call_t *call);

/* Bytes of pinned memory for a frame of a chunk: behind it lies where the units of its payload
 * begin, if its codec wants that. */
size_t gw__gpu_frame_room(const gw__engine_call_t *call);

/* What memory the call was given, and where it is. */
gw__engine_room_t gw__gpu_room(const gw__gpu_t *gpu);
void gw__gpu_base(const gw__gpu_t *gpu, uint8_t **pinned, uint8_t **device);

/* Whether a codec's tasks can run there, in a plan of this kind; else such a call goes through host
 * memory. */
bool gw__gpu_serves(const gw_coder_t *coder, gw_plan_kind_t plan);

/* Before the first task: what is put on the stream from now on waits for the elements. */
gw_status_t gw__gpu_begin(gw__engine_t *engine);

/* Puts a task that is ready on the stream. */
gw_status_t gw__gpu_start(gw__engine_t *engine, gw__round_t *round, uint32_t task);

/* Takes in what a task that runs came to, if it is done; *moved then. For tasks of calls on host
 * memory nothing. */
gw_status_t gw__gpu_collect(gw__engine_t *engine, gw__round_t *round, uint32_t task, bool *moved);

/* Whether a task runs. */
bool gw__gpu_busy(const gw__engine_t *engine);

/* In place of a judgement of silence while tasks run: whether the stream goes on at all. It may
 * wait for the application as long as that likes. */
gw_status_t gw__gpu_judge(gw__engine_t *engine);

/* Whether the stream is well; `why` says what is wrong with it. */
gw_status_t gw__gpu_look(gw__gpu_t *gpu, gw__why_t *why);

/* Sleeps a little. */
void gw__gpu_rest(void);

/* After a failure: waits until no task runs any more. They end by themselves, unless the
 * application's stream or the device never comes back: so bounded by the timeout, and then the GPU
 * is `stuck`. */
void gw__gpu_drain(gw__engine_t *engine);

#endif
