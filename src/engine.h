/* SPDX-License-Identifier: Apache-2.0 */
/* The host engine: runs the tasks of a plan over one link. Knows no codec and no transport by name.
 */
#ifndef GW_ENGINE_H
#define GW_ENGINE_H

#include <gradwire/codec.h>
#include <gradwire/comm.h>
#include <gradwire/transport.h>

#include "plan.h"

enum { GW__WINDOW = 6 }; /* rounds under way at once, at most */

/* One call, filled by the communicator. */
typedef struct gw__engine_call {
    const gw_coder_t *coder;
    gw__plan_t plan;
    const void *send; /* own elements; equal to recv when in place */
    void *recv;
    gw_dtype_t dtype;
    float scale;     /* of the sum before it is encoded or stored; 1: none */
    float *residual; /* plan.count floats or NULL. A gather call and the shards of others: of the
                        push stage; the own shard of a direct call: of the pull stage. */
    uint64_t number; /* of the call on its communicator */
    uint64_t key;    /* of all randomness of this call; rank and stage are mixed in by the engine */
} gw__engine_call_t;

/* What a call cost. Times in microseconds: encode and decode of computing, wait until every peer
 * had entered the call, wire for the rest; together the whole call. */
typedef struct gw__engine_figures {
    uint64_t wire_bytes, encode_us, decode_us, wait_us, wire_us, time_us, poisoned;
} gw__engine_figures_t;

/* One round under way. */
typedef struct gw__round {
    uint32_t number, tasks, open; /* open: tasks before it are done */
    uint32_t done;
    gw__task_t *task;
    uint8_t *state;
    gw_request_t *request;
    uint8_t *frames;
    size_t *frame_length;
    float *sum;
} gw__round_t;

typedef struct gw__engine {
    gw_context_t *context;
    const gw_transport_t *transport;
    gw_link_t *link;
    int rank, size;
    double timeout; /* seconds */
    gw_coder_t raw; /* for elements that are only copied, converted and added */

    /* Working memory: grows to the largest call, then stays. */
    void *memory;
    size_t memory_bytes;
    size_t memory_limit; /* fewer rounds at once rather than more bytes than this */
    uint32_t window;     /* rounds under way at once in this call; ranks may differ */
    size_t frame_capacity;
    gw__round_t rounds[GW__WINDOW];

    /* The call under way. */
    const gw__engine_call_t *call;
    gw__engine_figures_t figures;
    uint32_t next_round, done_rounds;
    bool *arrived, *expected;   /* peers that have sent something in this call; peers that will */
    int missing;                /* peers expected and not arrived */
    int64_t *heard;             /* when a message of each peer came last */
    int64_t started, last_look; /* monotonic nanoseconds */
    int64_t
        silence_ns; /* spent listening since the last event; not while this process stood still */
    int64_t encode_ns, decode_ns, wait_ns; /* spent so far */
    bool told_late;

    /* The last failure. */
    int failed_rank;
    char error[256];
} gw__engine_t;

/* GW_ERR_NO_MEMORY. The link stays the caller's. */
gw_status_t gw__engine_init(gw__engine_t *engine, gw_context_t *context,
                            const gw_transport_t *transport, gw_link_t *link, int rank, int size,
                            double timeout);
void gw__engine_free(gw__engine_t *engine);

/*
 * Runs a call to its end. On an error no request is in progress any more, `error` and `failed_rank`
 * tell what happened, and recv is undefined. `figures` is filled either way.
 */
gw_status_t gw__engine_run(gw__engine_t *engine, const gw__engine_call_t *call,
                           gw__engine_figures_t *figures);

/* Executes one computing task (everything but SEND and RECV) of a round. */
gw_status_t gw__engine_compute(gw__engine_t *engine, gw__round_t *round, const gw__task_t *task);

uint8_t *gw__engine_frame(const gw__engine_t *engine, const gw__round_t *round,
                          const gw__task_t *task);

/* Lays out the working memory for a call. */
gw_status_t gw__engine_reserve(gw__engine_t *engine, const gw__engine_call_t *call);

#endif
