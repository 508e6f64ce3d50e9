/* SPDX-License-Identifier: Apache-2.0 */
/* The residual store: error feedback of the calls of one communicator. */
#ifndef GW_RESIDUAL_H
#define GW_RESIDUAL_H

#include <pthread.h>

#include <gradwire/context.h>

/* What identifies a kind of call. Two calls with different keys never share a residual. */
typedef struct gw__residual_key {
    gw_collective_t collective;
    gw_op_t op;
    gw_dtype_t dtype;
    gw_plan_kind_t plan;
    size_t count;
    uint64_t coder; /* hash of the codec's spec */
    bool momentum;  /* as many floats again behind the residual */
    size_t beside;  /* so many floats more behind them, which the codec keeps */
    bool half;      /* bfloat16 for the residual: no momentum, and nothing beside it */
} gw__residual_key_t;

/* Where floats are that are not the host's. map: zeroed as far as work behind it in the
 * communicator's stream sees; NULL: no memory. */
typedef struct gw__residual_memory {
    void *(*map)(void *arg, size_t bytes);
    void (*unmap)(void *arg, void *floats, size_t bytes);
    void (*zero)(void *arg, void *floats, size_t bytes);
    void *arg;
} gw__residual_memory_t;

typedef struct gw__residual_slot {
    gw__residual_key_t key;
    const void *address; /* of the buffer that used it last */
    float *values; /* key.count floats, or twice as many, and key.beside; NULL: the entry is free */
    uint64_t last_call; /* of the communicator */
    uint64_t last_use;  /* of its kind */
} gw__residual_slot_t;

typedef struct gw__residual_kind gw__residual_kind_t;
typedef struct gw__residual_rhythm gw__residual_rhythm_t;

/*
 * A trainer makes the same sequence of calls every step, and the i-th call of a step is to find the
 * residual that the i-th call of the last step left, wherever its buffer lies now.
 *
 * Calls of different kinds (keys) tell themselves apart. So the question is only how many calls of
 * one kind a step holds. Per kind, in this order:
 *   1. the order of the kinds repeats with a period, in which the kind comes so many times;
 *   2. the addresses repeat with a period: that many;
 *   3. neither is known yet: an address that was seen keeps its residual, a new one gets one, up to
 * eight;
 *   4. neither shows: one.
 * Equal buckets that are allocated anew in every step, with no call of another kind between them,
 * look like one: they share a residual, and what one lost is added to the next. Memory stays
 * bounded then, but the feedback is of no use.
 *
 * Belongs to one communicator and is used by one thread at a time. One for device memory is used by
 * any: those calls ask for their residual when they are posted, which is in the order in which they
 * run, while whoever drives the calls resets that of one that failed.
 */
typedef struct gw__residual_store {
    gw_context_t *context;
    gw__residual_memory_t memory; /* map NULL: the host's */
    pthread_mutex_t lock;         /* of all below, where memory is not the host's */
    gw__residual_slot_t *slots;
    int slot_count, slot_capacity;
    gw__residual_kind_t **kinds;
    int kind_count, kind_capacity;
    gw__residual_rhythm_t *order; /* of the kinds of all calls */
    uint64_t calls;
    _Atomic uint64_t resets; /* residuals dropped: sequence changed, call failed, bound reached */
    bool told_bound;         /* the bound was reached and the log says so */
} gw__residual_store_t;

/* `memory`: NULL: the host's. */
void gw__residual_init(gw__residual_store_t *store, gw_context_t *context,
                       const gw__residual_memory_t *memory);
void gw__residual_free(gw__residual_store_t *store);

/*
 * The residual of this call: key->count floats (and as many behind them for the momentum, and
 * key->beside), zero at first; its slot in *slot. NULL (slot -1)
 * when memory or the bound of the store does not allow one: the call then runs without feedback.
 */
float *gw__residual_acquire(gw__residual_store_t *store, const gw__residual_key_t *key,
                            const void *address, int *slot);

/* Sets a slot to zero after a call that failed; counted. Slot -1 is fine. */
void gw__residual_reset(gw__residual_store_t *store, int slot);

/* Drops the slots of one count (and of one coder's hash, unless it is 0); counted. Returns their
 * number. */
int gw__residual_forget(gw__residual_store_t *store, size_t count, uint64_t coder);

/* Drops all slots; counted. What was learned of the sequence stays. */
void gw__residual_clear(gw__residual_store_t *store);

#endif
