/* SPDX-License-Identifier: Apache-2.0 */
/* The residual store: finds the residual of a call by its place in the repeating sequence of calls.
 */
#include "residual.h"

#include <stdlib.h>
#include <string.h>

#include "context_internal.h"
#include "hash.h"
#include "memory.h"

/* How many calls in a row at unknown addresses it takes to believe that calls which all look the
 * same are one call of each step, at a new address every time. */
enum { FRESH_MIN = 8, FRESH_MAX = GW__RESIDUAL_PERIOD_MAX };

/* How often a sequence of addresses must have been seen, at most, to be believed. */
enum { REPEATS_MAX = 16 };

/* Calls that confirm a sequence, and bytes of residuals that may wait for more. */
enum { CONFIRMED_MIN = 64, UNIFORM_BYTES = 256 << 20 };

/* A residual is in use for two periods, and for so many calls at least. */
enum { AGE_MIN = 32 };

void gw__residual_init(gw__residual_store_t *store, gw_context_t *context)
{
    memset(store, 0, sizeof *store);
    store->context = context;
    store->end = GW__RESIDUAL_PERIOD_MAX;
    store->fresh_needed = FRESH_MIN;
    store->stable_repeats = 1;
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
    gw__memory_unmap(slot->values, slot_bytes(slot));
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

/* Never 0, which stands for no call. */
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

/* Of a call and its address, together. */
static uint32_t place_of(uint32_t signature, const void *address)
{
    return fold(gw__mix64((uint64_t)(uintptr_t)address ^ (uint64_t)signature << 32));
}

static bool same_key(const gw__residual_key_t *a, const gw__residual_key_t *b)
{
    return a->collective == b->collective && a->op == b->op && a->dtype == b->dtype &&
           a->plan == b->plan && a->count == b->count && a->coder == b->coder;
}

/* Equal calls at one address within a step that are believed to be different buckets. */
enum { SHARED_MAX = 16 };

/* Longer runs say nothing more, and must not wrap round. */
enum { RUN_MAX = 0x3FFFFFFF };

/* Extends or ends the runs of one kind; `before` is the past of as many calls as there are runs. */
static void extend(int32_t *restrict run, const uint32_t *restrict before, uint32_t now)
{
    for (int q = 0; q < GW__RESIDUAL_PERIOD_MAX; q++) {
        int32_t longer = run[q] + (run[q] < RUN_MAX);
        run[q] = before[q] == now ? longer : 0;
    }
}

/* Extends or ends the runs of every period by the call that comes now. The address is part of what
 * the second kind compares: `address` is the hash of both. */
static void extend_runs(gw__residual_store_t *store, uint32_t signature, uint32_t address)
{
    extend(store->run_signature, store->signature + store->end - GW__RESIDUAL_PERIOD_MAX,
           signature);
    extend(store->run_address, store->address + store->end - GW__RESIDUAL_PERIOD_MAX, address);
}

/*
 * The period whose run explains most of the recent calls, among those that were seen `repeats`
 * times in `least` calls or more; 0: none. The longest run, not the shortest period: ten equal
 * buckets that pass through one staging buffer repeat at once, but only the whole step explains the
 * call between two steps.
 */
static inline int best_period(const int32_t *restrict run, int32_t repeats, int32_t least)
{
    int32_t longest = 0, needed = GW__RESIDUAL_PERIOD_MAX * repeats;
    for (int q = 0; q < GW__RESIDUAL_PERIOD_MAX; q++, needed -= repeats) {
        int32_t enough = run[q] >= needed && run[q] >= least ? run[q] : 0;
        longest = enough > longest ? enough : longest;
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

/*
 * By signatures and addresses. Seen once in full, at first; whenever the addresses alone leave such
 * a period, twice as often is asked for: an allocator that hands out a few places in any order
 * repeats itself by chance.
 */
static int stable_period(gw__residual_store_t *store)
{
    bool left = store->stable > 1 && run_of(store->run_address, store->stable) == 0 &&
                run_of(store->run_signature, store->stable) > 0;
    if (left && store->stable_repeats < REPEATS_MAX)
        store->stable_repeats *= 2;
    store->stable = best_period(store->run_address, store->stable_repeats, 1);
    return store->stable;
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

/*
 * Drops what a confirmed sequence has not used for two periods: the layout has changed, or these
 * were used while the sequence was learned. Six periods, so that the four that learning may take
 * are gone for two, and `least` calls; looks once in so many calls.
 */
static void drop_stale(gw__residual_store_t *store, int period, int32_t run, int32_t least)
{
    int32_t confirmed = 6 * period > least ? 6 * period : least;
    if (period == 0 || run < confirmed || run % confirmed != 0)
        return;
    uint64_t age = 2 * period > AGE_MIN ? 2 * (uint64_t)period : AGE_MIN;
    int dropped = 0;
    for (int i = 0; i < store->slot_count; i++)
        if (store->slots[i].values && store->slots[i].last_call + age < store->calls) {
            drop(store, i);
            dropped++;
        }
    if (dropped > 0)
        gw_context_log(store->context, GW_LOG_INFO,
                       "the sequence of calls has changed: %d residuals of the old one dropped",
                       dropped);
}

/* Equal calls alone: their first residuals are the memory by which many equal buckets are noticed
 * when the first one comes again, so they stay, unless that takes too much. */
static int32_t uniform_confirmed(const gw__residual_key_t *key)
{
    bool large = key->count * sizeof(float) > UNIFORM_BYTES / FRESH_MIN;
    return large ? CONFIRMED_MIN : 2 * FRESH_MAX;
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
    in_use = in_use > AGE_MIN ? in_use : AGE_MIN;
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
    float *values = i < 0 ? NULL : gw__memory_map(bytes);
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
 * Calls that all look the same and have no stable order of addresses. Either one bucket that is
 * allocated anew in every step, which must find its residual, or many equal buckets in their first
 * steps, which must not share one. Each address that comes again speaks for the second.
 */
static int slot_of_uniform(gw__residual_store_t *store, const gw__residual_key_t *key,
                           const void *address)
{
    int slot = slot_of_address(store, key, address, 1);
    if (slot >= 0) {
        store->fresh = 0;
        store->fresh_needed =
            2 * store->fresh_needed < FRESH_MAX ? 2 * store->fresh_needed : FRESH_MAX;
        return slot;
    }
    return ++store->fresh > store->fresh_needed ? slot_of_period(store, 1, key) : -1;
}

/* How many of the last `period` calls had this place (signature and address). */
static int calls_at(const gw__residual_store_t *store, uint32_t place, int period)
{
    int count = 0;
    for (int p = 1; p <= period; p++)
        count += store->address[store->end - (uint32_t)p] == place;
    return count;
}

/*
 * In this order: the place in a sequence with stable addresses; the place in a sequence with
 * structure (more than one kind of call), because an allocator may hand yesterday's address of one
 * bucket to another; the address.
 *
 * Equal calls at one address within a period are either buckets that pass through one staging
 * buffer, or one bucket in many steps with a rare call (an evaluation) between some of them.
 * Nothing tells them apart, but residuals of their own for hundreds of steps would cost memory and
 * delay the feedback: beyond SHARED_MAX it is one bucket.
 */
static int find_slot(gw__residual_store_t *store, const gw__residual_key_t *key,
                     const void *address, uint32_t place, int stable, int by_signature)
{
    if (stable == 0 && by_signature <= 1)
        return slot_of_uniform(store, key, address);
    if (stable > SHARED_MAX && calls_at(store, place, stable) > SHARED_MAX)
        return slot_of_address(store, key, address, 1);
    int period = stable > 0 ? stable : by_signature;
    int slot = slot_of_period(store, period, key);
    return slot >= 0 ? slot : slot_of_address(store, key, address, period);
}

float *gw__residual_acquire(gw__residual_store_t *store, const gw__residual_key_t *key,
                            const void *address, int *out)
{
    uint32_t signature = signature_of(key), where = place_of(signature, address);
    extend_runs(store, signature, where);
    int stable = stable_period(store), by_signature = stable > 0 ? 0 : volatile_period(store);
    int slot = find_slot(store, key, address, where, stable, by_signature);
    if (slot < 0)
        slot = new_slot(store, key, stable > 0 ? stable : by_signature > 1 ? by_signature : 0);
    record(store, signature, where, slot);
    *out = slot;
    if (slot >= 0) {
        store->slots[slot].address = address;
        store->slots[slot].last_call = store->calls;
    }
    drop_stale(store, stable, run_of(store->run_address, stable), CONFIRMED_MIN);
    int32_t run = run_of(store->run_signature, by_signature);
    if (by_signature > 1)
        drop_stale(store, by_signature, run, CONFIRMED_MIN);
    else if (store->fresh > store->fresh_needed)
        drop_stale(store, by_signature, run, uniform_confirmed(key));
    return slot < 0 ? NULL : store->slots[slot].values;
}
