/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with a layout: split into parts by codec, which run one after the other. */
#ifndef GW_PARTS_H
#define GW_PARTS_H

#include <stdio.h>

#include "engine.h"
#include "layouts.h"
#include "policy.h"

typedef struct gw_work gw_work_t;

/* Elements that lie side by side in the buffer of the call. */
typedef struct gw__stretch {
    size_t first, count;
} gw__stretch_t;

/* All stretches of one codec; or one tensor of a codec that works on matrices. */
typedef struct gw__part {
    gw_coder_t coder;
    bool exact;  /* codec raw */
    size_t rows; /* first dimension of the tensor that it is; 0: several, or none with rows */
    gw_plan_kind_t plan;
    size_t stretch, stretches; /* of the split */
    size_t count;              /* elements of all of them */
    size_t tensors;
    bool feedback;
    size_t residual; /* its first float of the residual of the call, when it has feedback */
    uint64_t key;    /* not 0; the same for the same part in every call, on every rank */
} gw__part_t;

/* What was measured of a part in the last call. */
typedef struct gw__part_time {
    uint64_t wire_bytes, time_us;
} gw__part_time_t;

/* How calls of one kind are split. Never changes once it is made, but for `time`. */
typedef struct gw__split {
    struct gw__split *next;
    const gw_layout_t *layout; /* of the communicator or the context */
    gw_dtype_t dtype;
    long slot; /* 0: no rule and no layout asks for it */
    gw__part_t *part;
    size_t parts;
    gw__stretch_t *stretch;
    size_t stretches;
    size_t residual_floats;
    bool half_residuals;   /* in bfloat16: of all parts, or of none */
    uint64_t digest;       /* of what goes where with which codec: key of the residuals */
    size_t buffer_bytes;   /* of the largest part that has to be gathered; 0: none has */
    uint8_t *buffer;       /* of the communicator */
    gw__part_time_t *time; /* of each part; of whoever drives the calls */
} gw__split_t;

/*
 * The split of such a call: a pure function of settings, call, facts and layout. `raw` is the codec
 * of exact parts. NULL: no memory. Free with gw__split_free.
 */
gw__split_t *gw__split_make(const gw_context_t *context, const gw_layout_t *layout,
                            const gw_call_t *call, const gw_comm_facts_t *facts,
                            const gw_coder_t *raw);
void gw__split_free(gw__split_t *split);

/* What is where with which codec and why, as one JSON object, for the stats file. */
void gw__split_print(const gw_context_t *context, const gw_layout_t *layout, const gw_call_t *call,
                     const gw_comm_facts_t *facts, FILE *out);

/* Of one communicator. The list of splits is the calling thread's, what follows `work` belongs to
 * whoever drives the calls. */
typedef struct gw__parts {
    gw__layouts_t layouts; /* by gw_comm_set_layout */
    gw__split_t *splits;
    struct gw__parts_block *blocks; /* that parts are gathered in */
    gw_work_t *work;                /* the part under way, as a call of its own */
    const gw__split_t *split;       /* of the call under way, or of the last one */
    size_t at;                      /* the part under way */
    float *residual;                /* of the call; NULL: none */
    gw__engine_figures_t figures;   /* of the call, all parts */
    int64_t began;                  /* monotonic nanoseconds */
    uint64_t extra; /* calls that went over the link beyond those that the application made */
} gw__parts_t;

void gw__parts_free(gw_comm_t *comm);

/* Forgets how calls of so many elements are split, and their residuals; returns how many these
 * were. No call may be under way. */
int gw__parts_forget(gw_comm_t *comm, size_t elements);

/* The decision on a call of this communicator, with its own layouts or those of the context. */
gw_decision_t gw__parts_decide(const gw_comm_t *comm, const gw_call_t *call,
                               const gw_comm_facts_t *facts);

/* Finds the split of a call whose decision has a layout, and what it needs; nothing for others.
 * GW_ERR_NO_MEMORY: nothing was sent. By the calling thread. */
gw_status_t gw__parts_prepare(gw_work_t *work, const gw_comm_facts_t *facts);

/* The first moves of a call that has a split, and the next one; returns GW_IN_PROGRESS or the
 * status of the call. */
void gw__parts_begin(gw_work_t *work);
gw_status_t gw__parts_step(gw_work_t *work);

/* Which part took how long in the last call, below the drawing of a timeline. */
void gw__parts_print(const gw_comm_t *comm, FILE *out);

#endif
