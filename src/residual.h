/* SPDX-License-Identifier: Apache-2.0 */
/* The residual store: error feedback of the calls of one communicator. */
#ifndef GW_RESIDUAL_H
#define GW_RESIDUAL_H

#include <gradwire/context.h>

/* What identifies a kind of call. Two calls with different keys never share a residual. */
typedef struct gw__residual_key {
    gw_collective_t collective;
    gw_op_t op;
    gw_dtype_t dtype;
    gw_plan_kind_t plan;
    size_t count;
    uint64_t coder; /* hash of the codec's spec */
} gw__residual_key_t;

enum { GW__RESIDUAL_HISTORY = 1024, GW__RESIDUAL_PERIOD_MAX = 512 };

typedef struct gw__residual_slot {
    gw__residual_key_t key;
    const void *address; /* of the buffer that used it last */
    float *values;       /* key.count floats */
    uint64_t last_call;
} gw__residual_slot_t;

/*
 * A trainer makes the same sequence of calls every step. The store recognises that sequence
 * (signatures, and addresses where they are stable) and gives the i-th call of a step the residual
 * that the i-th call of the last step left, wherever its buffer lies now. Belongs to one
 * communicator and is used by one thread at a time.
 */
typedef struct gw__residual_store {
    gw_context_t *context;
    gw__residual_slot_t *slots;
    int slot_count, slot_capacity;
    uint64_t calls; /* calls seen */
    /* The past: the call p calls before the next one lies at [end - p]. Hashes of what a call was,
     * and of that with its address (0: no call), and the slot that it used (-1: none). */
    uint32_t end;
    uint32_t signature[GW__RESIDUAL_HISTORY], address[GW__RESIDUAL_HISTORY];
    int slot[GW__RESIDUAL_HISTORY];
    /* For how many calls in a row each equals the one p calls before it, at
     * [GW__RESIDUAL_PERIOD_MAX - p]: in the order of the past, so that one pass of vector
     * instructions serves all periods. */
    int32_t run_signature[GW__RESIDUAL_PERIOD_MAX];
    int32_t run_address[GW__RESIDUAL_PERIOD_MAX];
    uint64_t resets;    /* residuals dropped: layout changed, call failed, bound reached */
    int stable;         /* the period by addresses of the newest call; 0: none */
    int stable_repeats; /* how often it must have been seen */
    int fresh;          /* calls in a row at unknown addresses */
    int fresh_needed;   /* how many of them show that there is one bucket at ever new places */
    bool told_bound;    /* the bound was reached and the log says so */
} gw__residual_store_t;

void gw__residual_init(gw__residual_store_t *store, gw_context_t *context);
void gw__residual_free(gw__residual_store_t *store);

/*
 * The residual of this call: key->count floats, zero at first; its slot in *slot. NULL (slot -1)
 * when memory or the bound of the store does not allow one: the call then runs without feedback.
 */
float *gw__residual_acquire(gw__residual_store_t *store, const gw__residual_key_t *key,
                            const void *address, int *slot);

/* Sets a slot to zero after a call that failed; counted. Slot -1 is fine. */
void gw__residual_reset(gw__residual_store_t *store, int slot);

/* Drops all slots; counted. */
void gw__residual_clear(gw__residual_store_t *store);

#endif
