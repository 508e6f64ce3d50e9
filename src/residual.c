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
    store->end = GW__RESIDUAL_PERIOD_MAX;
    for (uint32_t i = 0; i < store->end; i++)
        store->slot[i] = -1;
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
    /* The place will be another call's: the past must not lead there. */
    for (uint32_t at = 0; at < store->end; at++)
        if (store->slot[at] == i)
            store->slot[at] = -1;
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

/* Never 0, which stands for no call and no address. */
static uint32_t fold(uint64_t hash)
{
    return (uint32_t)(hash >> 32) | 1;
}

static uint32_t signature_of(const gw__residual_key_t *key)
{
    uint64_t h = gw__mix64((uint64_t)key->collective << 32 | (uint64_t)key->op << 16 |
                           (uint64_t)key->dtype << 8 | (uint64_t)key->plan);
    h = gw__mix64(h ^ key->count);
    return fold(gw__mix64(h ^ key->coder));
}

static uint32_t address_of(const void *address)
{
    return address ? fold(gw__mix64((uint64_t)(uintptr_t)address)) : 0;
}

static bool same_key(const gw__residual_key_t *a, const gw__residual_key_t *b)
{
    return a->collective == b->collective && a->op == b->op && a->dtype == b->dtype &&
           a->plan == b->plan && a->count == b->count && a->coder == b->coder;
}

/* Longer runs say nothing more, and must not wrap round. */
enum { RUN_MAX = 0x3FFFFFFF };

/* Extends or ends the runs of every period by the call that comes now. */
static void extend_runs(gw__residual_store_t *store, uint32_t signature, uint32_t address)
{
    const uint32_t *signatures = store->signature + store->end - GW__RESIDUAL_PERIOD_MAX;
    const uint32_t *addresses = store->address + store->end - GW__RESIDUAL_PERIOD_MAX;
    for (int q = 0; q < GW__RESIDUAL_PERIOD_MAX; q++) {
        int32_t same = -(int32_t)(signatures[q] == signature);
        int32_t here = same & -(int32_t)(addresses[q] == address);
        int32_t s = store->run_signature[q], a = store->run_address[q];
        store->run_signature[q] = (s + (s < RUN_MAX)) & same;
        store->run_address[q] = (a + (a < RUN_MAX)) & here;
    }
}

/*
 * The period whose run explains most of the recent calls, among those that were seen `repeats`
 * times in `least` calls or more; 0: none. The longest run, not the shortest period: ten equal
 * buckets that pass through one staging buffer repeat at once, but only the whole step explains the
 * call between two steps.
 */
static int best_period(const int32_t *run, int32_t repeats, int32_t least)
{
    int32_t longest = 0;
    for (int q = 0; q < GW__RESIDUAL_PERIOD_MAX; q++) {
        int32_t needed = (GW__RESIDUAL_PERIOD_MAX - q) * repeats;
        needed = needed > least ? needed : least;
        int32_t counts = run[q] >= needed ? run[q] : 0;
        longest = counts > longest ? counts : longest;
    }
    for (int period = 1; longest > 0 && period <= GW__RESIDUAL_PERIOD_MAX; period++)
        if (run[GW__RESIDUAL_PERIOD_MAX - period] == longest)
            return period;
    return 0;
}

static int32_t run_of(const int32_t *run, int period)
{
    return period > 0 ? run[GW__RESIDUAL_PERIOD_MAX - period] : 0;
}

/* By signatures and addresses: seen once in full. */
static int stable_period(const gw__residual_store_t *store)
{
    return best_period(store->run_address, 1, 1);
}

/*
 * By signatures alone, for trainers that allocate anew in every step. Buffers of equal size within
 * one step look the same, so it takes three repetitions and eight calls to believe it.
 */
static int volatile_period(const gw__residual_store_t *store)
{
    return best_period(store->run_signature, 3, 8);
}

/* Whether one of the last period - 1 calls used the slot: then it belongs to another call of the
 * step. */
static bool taken(const gw__residual_store_t *store, int slot, int period)
{
    for (int p = 1; p < period; p++)
        if (store->slot[store->end - (uint32_t)p] == slot)
            return true;
    return false;
}

/* The slot that the call one period ago used, unless another call of this step took it already. */
static int slot_of_period(const gw__residual_store_t *store, int period,
                          const gw__residual_key_t *key)
{
    int slot = period > 0 ? store->slot[store->end - (uint32_t)period] : -1;
    if (slot < 0 || !store->slots[slot].values || !same_key(&store->slots[slot].key, key))
        return -1;
    return taken(store, slot, period) ? -1 : slot;
}

static int slot_of_address(const gw__residual_store_t *store, const gw__residual_key_t *key,
                           const void *address, int period)
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
 * changed. Looks once in so many calls. */
static void drop_stale(gw__residual_store_t *store, int period, int32_t run)
{
    int32_t confirmed = 2 * period > 32 ? 2 * period : 32;
    if (period == 0 || run < confirmed || run % confirmed != 0)
        return;
    int dropped = 0;
    for (int i = 0; i < store->slot_count; i++)
        if (store->slots[i].values &&
            store->slots[i].last_call + (uint64_t)confirmed < store->calls) {
            drop(store, i);
            dropped++;
        }
    if (dropped > 0)
        gw_context_log(store->context, GW_LOG_INFO,
                       "the sequence of calls has changed: %d residuals of the old one dropped",
                       dropped);
}

static int least_recent(const gw__residual_store_t *store)
{
    int oldest = -1;
    for (int i = 0; i < store->slot_count; i++)
        if (store->slots[i].values &&
            (oldest < 0 || store->slots[i].last_call < store->slots[oldest].last_call))
            oldest = i;
    return oldest;
}

/*
 * Makes room within the bound by giving up residuals that the sequence does not use any more, the
 * one used longest ago first. Never one in use: a step with more buckets than the bound allows
 * would push each one out just before its turn, and none would ever be found.
 */
static bool make_room(gw__residual_store_t *store, size_t bytes, int period)
{
    uint64_t in_use = period > 0 ? 2 * (uint64_t)period : GW__RESIDUAL_PERIOD_MAX;
    while (!gw__context_take_residual(store->context, bytes)) {
        int oldest = least_recent(store);
        if (oldest >= 0 && store->calls - store->slots[oldest].last_call >= in_use) {
            drop(store, oldest);
            continue;
        }
        if (!store->told_bound)
            gw_context_log(store->context, GW_LOG_WARN,
                           "GRADWIRE_RESIDUAL_BYTES is reached: error feedback is kept for a part "
                           "of the calls only");
        store->told_bound = true;
        return false;
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

static int new_slot(gw__residual_store_t *store, const gw__residual_key_t *key, int period)
{
    size_t bytes = key->count * sizeof(float);
    if (!make_room(store, bytes, period))
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

/* Writes the call down; when the end of the memory is reached, the past that is still looked at
 * moves to its front. */
static void record(gw__residual_store_t *store, uint32_t signature, uint32_t address, int slot)
{
    if (store->end == GW__RESIDUAL_HISTORY) {
        uint32_t from = GW__RESIDUAL_HISTORY - GW__RESIDUAL_PERIOD_MAX;
        memmove(store->signature, store->signature + from,
                GW__RESIDUAL_PERIOD_MAX * sizeof store->signature[0]);
        memmove(store->address, store->address + from,
                GW__RESIDUAL_PERIOD_MAX * sizeof store->address[0]);
        memmove(store->slot, store->slot + from, GW__RESIDUAL_PERIOD_MAX * sizeof store->slot[0]);
        store->end = GW__RESIDUAL_PERIOD_MAX;
    }
    store->signature[store->end] = signature;
    store->address[store->end] = address;
    store->slot[store->end++] = slot;
    store->calls++;
}

/*
 * In this order: the place in a sequence with stable addresses; the place in a sequence with
 * structure (more than one kind of call), because an allocator may hand yesterday's address of one
 * bucket to another; the address; the place among calls that all look the same.
 */
static int find_slot(const gw__residual_store_t *store, const gw__residual_key_t *key,
                     const void *address, int stable, int by_signature)
{
    int slot = slot_of_period(store, stable, key);
    if (slot < 0 && by_signature > 1)
        slot = slot_of_period(store, by_signature, key);
    if (slot < 0)
        slot = slot_of_address(store, key, address, stable > 0 ? stable : by_signature);
    if (slot < 0 && by_signature == 1)
        slot = slot_of_period(store, by_signature, key);
    return slot;
}

float *gw__residual_acquire(gw__residual_store_t *store, const gw__residual_key_t *key,
                            const void *address, int *out)
{
    uint32_t signature = signature_of(key), where = address_of(address);
    extend_runs(store, signature, where);
    int stable = stable_period(store), by_signature = stable > 0 ? 0 : volatile_period(store);
    int slot = find_slot(store, key, address, stable, by_signature);
    if (slot < 0)
        slot = new_slot(store, key, stable > 0 ? stable : by_signature);
    record(store, signature, where, slot);
    *out = slot;
    if (slot >= 0) {
        store->slots[slot].address = address;
        store->slots[slot].last_call = store->calls;
    }
    drop_stale(store, stable, run_of(store->run_address, stable));
    drop_stale(store, by_signature, run_of(store->run_signature, by_signature));
    return slot < 0 ? NULL : store->slots[slot].values;
}

void gw__residual_note(gw__residual_store_t *store, const gw__residual_key_t *key)
{
    uint32_t signature = signature_of(key);
    extend_runs(store, signature, 0);
    record(store, signature, 0, -1);
}
