/* SPDX-License-Identifier: Apache-2.0 */
/* The residual store: finds the residual of a call by its place in the repeating sequence of calls.
 */
#include "residual.h"

#include <stdlib.h>
#include <string.h>

#include "context_internal.h"
#include "hash.h"

void gw__residual_init(gw__residual_store_t *store, gw_context_t *context)
{
    memset(store, 0, sizeof *store);
    store->context = context;
}

static size_t slot_bytes(const gw__residual_slot_t *slot)
{
    return slot->key.count * sizeof(float);
}

static void drop(gw__residual_store_t *store, int i)
{
    gw__residual_slot_t *slot = &store->slots[i];
    if (!slot->values)
        return;
    gw__context_give_residual(store->context, slot_bytes(slot));
    free(slot->values);
    memset(slot, 0, sizeof *slot);
    store->resets++;
}

void gw__residual_free(gw__residual_store_t *store)
{
    for (int i = 0; i < store->slot_count; i++)
        drop(store, i);
    free(store->slots);
    store->slots = NULL;
    store->slot_count = store->slot_capacity = 0;
}

void gw__residual_clear(gw__residual_store_t *store)
{
    for (int i = 0; i < store->slot_count; i++)
        drop(store, i);
}

void gw__residual_reset(gw__residual_store_t *store, int slot)
{
    if (slot < 0 || !store->slots[slot].values)
        return;
    memset(store->slots[slot].values, 0, slot_bytes(&store->slots[slot]));
    store->resets++;
}

static uint64_t signature_of(const gw__residual_key_t *key)
{
    uint64_t h = gw__mix64((uint64_t)key->collective << 32 | (uint64_t)key->op << 16 |
                           (uint64_t)key->dtype << 8 | (uint64_t)key->plan);
    h = gw__mix64(h ^ key->count);
    return gw__mix64(h ^ key->coder);
}

static bool same_key(const gw__residual_key_t *a, const gw__residual_key_t *b)
{
    return a->collective == b->collective && a->op == b->op && a->dtype == b->dtype &&
           a->plan == b->plan && a->count == b->count && a->coder == b->coder;
}

/* The call `back` calls before the next one; back >= 1. */
static gw__residual_call_t *past(gw__residual_store_t *store, uint64_t back)
{
    return &store->history[(store->calls - back) % GW__RESIDUAL_HISTORY];
}

static uint32_t longest_period(const gw__residual_store_t *store)
{
    return store->calls < GW__RESIDUAL_PERIOD_MAX ? (uint32_t)store->calls
                                                  : GW__RESIDUAL_PERIOD_MAX;
}

/* Extends or ends the runs of every period by the call that comes now. */
static void extend_runs(gw__residual_store_t *store, uint64_t signature, const void *address)
{
    for (uint32_t p = 1; p <= longest_period(store); p++) {
        const gw__residual_call_t *before = past(store, p);
        bool same = before->signature == signature;
        store->run_signature[p] = same ? store->run_signature[p] + 1 : 0;
        store->run_address[p] = same && before->address == address ? store->run_address[p] + 1 : 0;
    }
}

/*
 * The period that explains most of the recent calls, signatures and addresses, and was seen once in
 * full; 0: none. The longest run, not the shortest period: ten equal buckets that pass through one
 * staging buffer repeat at once, but only the whole step explains the call between two steps.
 */
static uint32_t stable_period(const gw__residual_store_t *store)
{
    uint32_t best = 0;
    for (uint32_t p = 1; p <= longest_period(store); p++)
        if (store->run_address[p] >= p &&
            (best == 0 || store->run_address[p] > store->run_address[best]))
            best = p;
    return best;
}

/*
 * The same by signatures alone, for trainers that allocate anew in every step. Buffers of equal
 * size within one step look the same, so it takes three repetitions and eight calls to believe it.
 */
static uint32_t volatile_period(const gw__residual_store_t *store)
{
    uint32_t best = 0;
    for (uint32_t p = 1; p <= longest_period(store); p++)
        if (store->run_signature[p] >= 8 && store->run_signature[p] / 3 >= p &&
            (best == 0 || store->run_signature[p] > store->run_signature[best]))
            best = p;
    return best;
}

/* Whether one of the last period - 1 calls used the slot: then it belongs to another call of the
 * step. */
static bool taken(gw__residual_store_t *store, int slot, uint32_t period)
{
    for (uint32_t p = 1; p < period; p++)
        if (past(store, p)->slot == slot)
            return true;
    return false;
}

/* The slot that the call one period ago used, unless another call of this step took it already. */
static int slot_of_period(gw__residual_store_t *store, uint32_t period,
                          const gw__residual_key_t *key)
{
    int slot = period ? past(store, period)->slot : -1;
    if (slot < 0 || !store->slots[slot].values || !same_key(&store->slots[slot].key, key))
        return -1;
    return taken(store, slot, period) ? -1 : slot;
}

static int slot_of_address(gw__residual_store_t *store, const gw__residual_key_t *key,
                           const void *address, uint32_t period)
{
    int best = -1;
    for (int i = 0; i < store->slot_count; i++) {
        const gw__residual_slot_t *slot = &store->slots[i];
        if (slot->values && slot->address == address && same_key(&slot->key, key) &&
            !taken(store, i, period) &&
            (best < 0 || slot->last_call > store->slots[best].last_call))
            best = i;
    }
    return best;
}

/* Drops what a confirmed sequence (two periods, and at least 32 calls) has not used: the layout has
 * changed. */
static void drop_stale(gw__residual_store_t *store, uint32_t period, uint32_t run)
{
    uint32_t confirmed = 2 * period > 32 ? 2 * period : 32;
    if (period == 0 || run != confirmed)
        return;
    int dropped = 0;
    for (int i = 0; i < store->slot_count; i++)
        if (store->slots[i].values && store->slots[i].last_call + confirmed < store->calls) {
            drop(store, i);
            dropped++;
        }
    if (dropped > 0)
        gw_context_log(store->context, GW_LOG_INFO,
                       "the sequence of calls has changed: %d residuals of the old one dropped",
                       dropped);
}

/* Makes room within the bound by giving up the residual that was used longest ago. */
static bool make_room(gw__residual_store_t *store, size_t bytes)
{
    while (!gw__context_take_residual(store->context, bytes)) {
        int oldest = -1;
        for (int i = 0; i < store->slot_count; i++)
            if (store->slots[i].values &&
                (oldest < 0 || store->slots[i].last_call < store->slots[oldest].last_call))
                oldest = i;
        if (!store->told_bound)
            gw_context_log(store->context, GW_LOG_WARN,
                           "GRADWIRE_RESIDUAL_BYTES is reached: error feedback is kept for a part "
                           "of the calls only");
        store->told_bound = true;
        if (oldest < 0)
            return false;
        drop(store, oldest);
    }
    return true;
}

static int free_entry(gw__residual_store_t *store)
{
    for (int i = 0; i < store->slot_count; i++)
        if (!store->slots[i].values)
            return i;
    if (store->slot_count == store->slot_capacity) {
        int capacity = store->slot_capacity ? 2 * store->slot_capacity : 16;
        gw__residual_slot_t *slots = realloc(store->slots, (size_t)capacity * sizeof *slots);
        if (!slots)
            return -1;
        store->slots = slots;
        store->slot_capacity = capacity;
    }
    memset(&store->slots[store->slot_count], 0, sizeof store->slots[0]);
    return store->slot_count++;
}

static int new_slot(gw__residual_store_t *store, const gw__residual_key_t *key)
{
    size_t bytes = key->count * sizeof(float);
    if (!make_room(store, bytes))
        return -1;
    int i = free_entry(store);
    float *values = i < 0 ? NULL : calloc(key->count, sizeof *values);
    if (!values) {
        gw__context_give_residual(store->context, bytes);
        return -1;
    }
    store->slots[i].key = *key;
    store->slots[i].values = values;
    return i;
}

static void record(gw__residual_store_t *store, uint64_t signature, const void *address, int slot)
{
    *past(store, 0) = (gw__residual_call_t){signature, address, slot};
    store->calls++;
}

float *gw__residual_acquire(gw__residual_store_t *store, const gw__residual_key_t *key,
                            const void *address, int *out)
{
    uint64_t signature = signature_of(key);
    extend_runs(store, signature, address);
    uint32_t stable = stable_period(store), by_signature = stable ? 0 : volatile_period(store);
    int slot = slot_of_period(store, stable, key);
    if (slot < 0)
        slot = slot_of_address(store, key, address, stable);
    if (slot < 0)
        slot = slot_of_period(store, by_signature, key);
    if (slot < 0)
        slot = new_slot(store, key);
    record(store, signature, address, slot);
    *out = slot;
    if (slot < 0)
        return NULL;
    store->slots[slot].address = address;
    store->slots[slot].last_call = store->calls;
    drop_stale(store, stable, store->run_address[stable]);
    drop_stale(store, by_signature, store->run_signature[by_signature]);
    return store->slots[slot].values;
}

void gw__residual_note(gw__residual_store_t *store, const gw__residual_key_t *key)
{
    uint64_t signature = signature_of(key);
    extend_runs(store, signature, NULL);
    record(store, signature, NULL, -1);
}
