/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: one rank's tasks of an all-reduce, as pure data. */
#ifndef GW_PLAN_H
#define GW_PLAN_H

#include <stdio.h>

#include <gradwire/context.h>

/*
 * A call is cut into shards (one per owner; `gather` and `tree` have one for all) and these into
 * chunks. Round k holds the k-th chunk of every shard and everything that is done to it. Tasks
 * depend on tasks of their own round only, so that any number of rounds can be under way; the
 * engine bounds that number, and with it the memory.
 */
typedef enum gw__task_kind {
    GW__TASK_ENCODE,        /* own elements [first, first + count) -> frame `buffer` */
    GW__TASK_SEND,          /* frame `buffer` -> peer */
    GW__TASK_RECV,          /* peer -> frame `buffer` */
    GW__TASK_COPY,          /* own elements -> sum: stored when `opens`, else added */
    GW__TASK_DECODE_ADD,    /* frame `buffer` -> sum: stored when `opens`, else added */
    GW__TASK_SUM_ENCODE,    /* sum -> frame `buffer` */
    GW__TASK_REDUCE_ENCODE, /* own elements and the frames of the tasks in `dep`, added in order of
                               rank -> frame `buffer` */
    GW__TASK_SUM_STORE,     /* sum -> output */
    GW__TASK_DECODE_STORE,  /* frame `buffer` -> output */
    GW__TASK_MERGE,         /* frame `from` into frame `buffer`, without decoding */
    GW__TASK_MERGED_STORE,  /* frame `buffer`, a sum that was merged -> output, scaled */
    GW__TASK_KINDS
} gw__task_kind_t;

static inline bool gw__task_encodes(gw__task_kind_t kind)
{
    return kind == GW__TASK_ENCODE || kind == GW__TASK_SUM_ENCODE || kind == GW__TASK_REDUCE_ENCODE;
}

typedef enum gw__stage { GW__PUSH, GW__PULL } gw__stage_t;

enum { GW__NO_TASK = 0xFFFFFFFFu };

typedef struct gw__task {
    gw__task_kind_t kind;
    gw__stage_t stage;
    bool opens; /* first contribution to the sum */
    int peer; /* SEND, RECV, DECODE_*, MERGE (of `from`), MERGED_STORE: the other rank (own rank for
                 an own frame); else -1 */
    uint32_t buffer, from; /* frame buffers of the round */
    uint32_t channel;      /* tells messages of a round and stage between two ranks apart */
    size_t first, count;   /* elements of the call */
    uint32_t dep[2];       /* tasks of the round that come before, or GW__NO_TASK */
    bool span;             /* dep are the first and the last of a row of such tasks */
} gw__task_t;

typedef struct gw__plan {
    gw_plan_kind_t kind;
    int rank, size;
    size_t count, grain;
    size_t chunk;     /* elements of a chunk: a multiple of the grain */
    size_t per_shard; /* grains of a shard; the first `extra` shards have one more */
    size_t extra;
    uint32_t rounds;
    uint32_t channels; /* more than any task's channel */
    bool reduces; /* direct: a shard is added and encoded by one task. Set after gw__plan_init when
                     the codec can do so. Changes no message and no byte. */
} gw__plan_t;

/*
 * Sets up a plan for `count` > 0 elements over `size` > 1 ranks. `chunk` is a wish: it is rounded
 * to the grain, and enlarged until the number of rounds fits a message tag (GW__PLAN_MAX_ROUNDS). A
 * pure function of its arguments.
 */
enum { GW__PLAN_MAX_ROUNDS = 1 << 22 }; /* message tags have room for twice as many */
void gw__plan_init(gw__plan_t *plan, gw_plan_kind_t kind, int rank, int size, size_t count,
                   size_t grain, size_t chunk);

/* Upper limits for one round: tasks; frame buffers and sums of at most `chunk` elements each. */
uint32_t gw__plan_max_tasks(gw_plan_kind_t kind, int size);
uint32_t gw__plan_max_buffers(gw_plan_kind_t kind, int size);
uint32_t gw__plan_max_sums(gw_plan_kind_t kind, int size);

/* Whether frames are summed without decoding: only for codecs and types that can do so
 * (gw__frame_merges). */
bool gw__plan_merges(gw_plan_kind_t kind);

/*
 * Whether ranks hear of each other through others. A rank that waits for its neighbour cannot tell
 * then whether that one is silent or itself waits for one that is late; so all ranks of such a call
 * greet each other, and close with each other.
 */
bool gw__plan_relays(gw_plan_kind_t kind);

/* Writes the tasks of round k < rounds; returns their number. Tasks come after those that they
 * depend on. */
uint32_t gw__plan_round(const gw__plan_t *plan, uint32_t k, gw__task_t *out);

/* Whether this rank and `peer` exchange frames, or at least greetings, in this call. Symmetrical.
 */
bool gw__plan_exchanges(const gw__plan_t *plan, int peer);

/* First element of a shard; shard `size` ends at count. */
size_t gw__plan_shard(const gw__plan_t *plan, int shard);

const char *gw__task_kind_name(gw__task_kind_t kind);

/* One line per task, for people and for tests. */
void gw__plan_print(const gw__plan_t *plan, FILE *out);

/* What the generators share: a task list that grows. */
typedef struct gw__task_list {
    gw__task_t *tasks;
    uint32_t count;
} gw__task_list_t;
uint32_t gw__task_append(gw__task_list_t *list, gw__task_t task);

/* Levels of the tree of `size` ranks: the logarithm, rounded up. */
uint32_t gw__plan_levels(int size);

/* The chunk of a shard that belongs to round k; false when it has none. */
bool gw__plan_chunk(const gw__plan_t *plan, int shard, uint32_t k, size_t *first, size_t *count);

/* The generators, one per plan kind. */
uint32_t gw__plan_direct_round(const gw__plan_t *plan, uint32_t k, gw__task_t *out);
uint32_t gw__plan_gather_round(const gw__plan_t *plan, uint32_t k, gw__task_t *out);
uint32_t gw__plan_ring_round(const gw__plan_t *plan, uint32_t k, gw__task_t *out);
uint32_t gw__plan_tree_round(const gw__plan_t *plan, uint32_t k, gw__task_t *out);

#endif
