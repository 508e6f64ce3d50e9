/* SPDX-License-Identifier: Apache-2.0 */
/* The residual store: finds the residual of a call by its place among the calls of its kind. */
#include "residual.h"

#include <stdlib.h>
#include <string.h>

#include "context_internal.h"
#include "hash.h"
#include "memory.h"
#include "rhythm.h"

enum {
    REPEATS = 2,    /* periods of addresses, and */
    LEAST = 16,     /* calls, before a period is believed: an allocator repeats itself by chance */
    LOOK_EVERY = 4, /* looked for once in so many calls */
    ORDER_REPEATS = 3, /* the same for the order of kinds, which is looked at */
    ORDER_LEAST = 8,
    ORDER_EVERY = 8, /* once in so many calls */
    /* More calls of a kind between two of another are many steps with a rare call between them (an
       evaluation). */
    SHARE_MAX = 16,
    YOUNG = 32,      /* calls of a kind in which its addresses alone are trusted, for */
    YOUNG_SLOTS = 8, /* so many residuals */
    STRANGERS = 4,   /* calls out of the sequence before it counts as changed (or a whole period, if
                        longer) */
    IDLE = 16,       /* calls after which a residual may be out of use (or two periods) */
    SWEEP_EVERY = 64, /* calls between two searches for kinds that are gone: */
    BRIEF = 4,        /* those seen fewer times than this go after one such time, */
    GONE = 4096,      /* all others after this many calls */
    /* Kinds that are remembered, at 25 KiB each: more than any model has sizes of buckets. Where
       sizes never repeat, the one seen longest ago makes room. */
    KINDS_MAX = 512,
};

/* One kind of call. */
struct gw__residual_kind {
    gw__residual_key_t key;
    gw__rhythm_t places;              /* hashes of the addresses */
    int32_t slot[2 * GW__PERIOD_MAX]; /* used by the calls of `places` */
    int period;                       /* of the places; 0: none known */
    int share;                        /* calls of the kind in a period of the order; 0: not known */
    int strangers;                    /* in a row */
    uint64_t uses, last_call;
};

void gw__residual_init(gw__residual_store_t *store, gw_context_t *context,
                       const gw__residual_memory_t *memory)
{
    memset(store, 0, sizeof *store);
    store->context = context;
    if (memory)
        store->memory = *memory;
    pthread_mutex_init(&store->lock, NULL);
}

static void lock(gw__residual_store_t *store)
{
    if (store->memory.map)
        pthread_mutex_lock(&store->lock);
}

static void unlock(gw__residual_store_t *store)
{
    if (store->memory.map)
        pthread_mutex_unlock(&store->lock);
}

static size_t key_bytes(const gw__residual_key_t *key)
{
    if (key->half)
        return key->count * 2;
    return (key->count * (key->momentum ? 2 : 1) + key->beside) * sizeof(float);
}

static size_t slot_bytes(const gw__residual_slot_t *slot)
{
    return key_bytes(&slot->key);
}

static float *map(const gw__residual_store_t *store, const gw__residual_key_t *key)
{
    size_t bytes = key_bytes(key);
    return store->memory.map ? store->memory.map(store->memory.arg, bytes) : gw__memory_map(bytes);
}

static void unmap(const gw__residual_store_t *store, const gw__residual_slot_t *slot)
{
    if (store->memory.map)
        store->memory.unmap(store->memory.arg, slot->values, slot_bytes(slot));
    else
        gw__memory_unmap(slot->values, slot_bytes(slot));
}

static void drop(gw__residual_store_t *store, int i)
{
    gw__residual_slot_t *slot = &store->slots[i];
    if (!slot->values)
        return;
    gw__context_give_residual(store->context, slot_bytes(slot));
    unmap(store, slot);
    memset(slot, 0, sizeof *slot);
    store->resets++;
}

void gw__residual_clear(gw__residual_store_t *store)
{
    lock(store);
    for (int i = 0; i < store->slot_count; i++)
        drop(store, i);
    unlock(store);
}

int gw__residual_forget(gw__residual_store_t *store, size_t count, uint64_t coder)
{
    int dropped = 0;
    lock(store);
    for (int i = 0; i < store->slot_count; i++) {
        const gw__residual_slot_t *slot = &store->slots[i];
        if (!slot->values || slot->key.count != count || (coder && slot->key.coder != coder))
            continue;
        drop(store, i);
        dropped++;
    }
    unlock(store);
    return dropped;
}

void gw__residual_free(gw__residual_store_t *store)
{
    gw__residual_clear(store);
    for (int i = 0; i < store->kind_count; i++)
        free(store->kinds[i]);
    free(store->kinds);
    free(store->slots);
    free(store->order);
    store->kinds = NULL;
    store->slots = NULL;
    store->order = NULL;
    store->kind_count = store->kind_capacity = store->slot_count = store->slot_capacity = 0;
    pthread_mutex_destroy(&store->lock);
}

void gw__residual_reset(gw__residual_store_t *store, int slot)
{
    if (slot < 0)
        return;
    lock(store);
    const gw__residual_slot_t *at = &store->slots[slot];
    if (at->values && store->memory.map)
        store->memory.zero(store->memory.arg, at->values, slot_bytes(at));
    else if (at->values)
        memset(at->values, 0, slot_bytes(at));
    store->resets += at->values != NULL;
    unlock(store);
}

static bool same_key(const gw__residual_key_t *a, const gw__residual_key_t *b)
{
    return a->collective == b->collective && a->op == b->op && a->dtype == b->dtype &&
           a->plan == b->plan && a->count == b->count && a->coder == b->coder &&
           a->momentum == b->momentum && a->beside == b->beside && a->half == b->half;
}

/* ---- Slots
 * ------------------------------------------------------------------------------------------- */

/* A slot of this kind that was not used by its last `recent` calls: the one at `address`, or the
 * one used longest ago; -1: none. With `only_address` no other than the former. */
static int slot_at_rest(const gw__residual_store_t *store, const gw__residual_kind_t *kind,
                        const void *address, int recent, bool only_address)
{
    int best = -1;
    for (int i = 0; i < store->slot_count; i++) {
        const gw__residual_slot_t *slot = &store->slots[i];
        if (!slot->values || !same_key(&slot->key, &kind->key) ||
            slot->last_use + (uint64_t)recent > kind->uses)
            continue;
        if (slot->address == address)
            return i;
        if (!only_address && (best < 0 || slot->last_use < store->slots[best].last_use))
            best = i;
    }
    return best;
}

static int count_slots(const gw__residual_store_t *store, const gw__residual_kind_t *kind)
{
    int count = 0;
    for (int i = 0; i < store->slot_count; i++)
        count += store->slots[i].values && same_key(&store->slots[i].key, &kind->key);
    return count;
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
 * Makes room within the bound by giving up residuals that are out of use, the one used longest ago
 * first. Never one in use: a step with more buckets than the bound allows would push each one out
 * just before its turn.
 */
static bool make_room(gw__residual_store_t *store, size_t bytes)
{
    while (!gw__context_take_residual(store->context, bytes)) {
        int oldest = least_recent(store);
        if (oldest >= 0 && store->calls - store->slots[oldest].last_call >=
                               IDLE + 2 * (uint64_t)store->slot_count) {
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

static int new_slot(gw__residual_store_t *store, const gw__residual_key_t *key)
{
    size_t bytes = key_bytes(key);
    if (!make_room(store, bytes))
        return -1;
    int i = free_entry(store);
    float *values = i < 0 ? NULL : map(store, key);
    if (!values) {
        gw__context_give_residual(store->context, bytes);
        return -1;
    }
    store->slots[i].key = *key;
    store->slots[i].values = values;
    return i;
}

/* ---- Kinds and their order
 * --------------------------------------------------------------------------- */

/* The kind seen longest ago becomes this one; its residuals go. */
static int replace_kind(gw__residual_store_t *store, const gw__residual_key_t *key)
{
    int oldest = 0;
    for (int i = 1; i < store->kind_count; i++)
        if (store->kinds[i]->last_call < store->kinds[oldest]->last_call)
            oldest = i;
    gw__residual_kind_t *kind = store->kinds[oldest];
    for (int i = 0; i < store->slot_count; i++)
        if (store->slots[i].values && same_key(&store->slots[i].key, &kind->key))
            drop(store, i);
    memset(kind, 0, sizeof *kind);
    kind->key = *key;
    return oldest;
}

static int add_kind(gw__residual_store_t *store, const gw__residual_key_t *key)
{
    if (store->kind_count == KINDS_MAX)
        return replace_kind(store, key);
    if (store->kind_count == store->kind_capacity) {
        int capacity = store->kind_capacity ? 2 * store->kind_capacity : 16;
        gw__residual_kind_t **kinds = realloc(store->kinds, (size_t)capacity * sizeof *kinds);
        if (!kinds)
            return -1;
        store->kinds = kinds;
        store->kind_capacity = capacity;
    }
    gw__residual_kind_t *kind = calloc(1, sizeof *kind);
    if (!kind)
        return -1;
    kind->key = *key;
    store->kinds[store->kind_count] = kind;
    return store->kind_count++;
}

static int kind_of(gw__residual_store_t *store, const gw__residual_key_t *key)
{
    for (int i = 0; i < store->kind_count; i++)
        if (same_key(&store->kinds[i]->key, key))
            return i;
    return add_kind(store, key);
}

/* How many calls of each kind a step holds, where the order of kinds shows it. */
static void learn_order(gw__residual_store_t *store, int kind)
{
    if (!store->order)
        store->order = calloc(1, sizeof *store->order);
    if (!store->order)
        return;
    gw__rhythm_add(store->order, (uint32_t)kind + 1);
    if (store->calls % ORDER_EVERY != 0)
        return;
    int period = gw__rhythm_period(store->order, ORDER_REPEATS, ORDER_LEAST, true);
    for (int i = 0; i < store->kind_count && period > 0; i++) {
        int share = gw__rhythm_count(store->order, (uint32_t)i + 1, period);
        if (share > 0)
            store->kinds[i]->share = share <= SHARE_MAX ? share : 0;
    }
}

/* Drops the residuals of kinds that do not come any more: after its first step a trainer makes its
 * buckets anew. */
static void sweep(gw__residual_store_t *store)
{
    int dropped = 0;
    for (int i = 0; i < store->slot_count; i++) {
        const gw__residual_slot_t *slot = &store->slots[i];
        if (!slot->values)
            continue;
        const gw__residual_kind_t *kind = store->kinds[kind_of(store, &slot->key)];
        uint64_t age = store->calls - kind->last_call;
        if (age > (kind->uses < BRIEF ? SWEEP_EVERY / 2 : GONE)) {
            drop(store, i);
            dropped++;
        }
    }
    if (dropped > 0)
        gw_context_log(store->context, GW_LOG_INFO,
                       "the sequence of calls has changed: %d residuals of the old one dropped",
                       dropped);
}

/* ---- One call
 * ---------------------------------------------------------------------------------------- */

static uint32_t place_of(const void *address)
{
    return (uint32_t)gw__mix64((uintptr_t)address) | 1;
}

/* Calls of the kind in a step, as far as it is known; 0: not. The order of kinds is the better
 * witness: addresses also repeat by chance, and a staging buffer has one for all. */
static int calls_per_step(const gw__residual_kind_t *kind)
{
    return kind->share > 0 ? kind->share : kind->period;
}

/* The period of the addresses where nothing speaks against it; 0: none. */
static int period_of(const gw__residual_kind_t *kind)
{
    return kind->share == 0 || kind->share == kind->period ? kind->period : 0;
}

/* The slot that the call `back` calls of the kind ago used, unless a later one used it too. */
static int slot_ago(const gw__residual_store_t *store, const gw__residual_kind_t *kind, int back)
{
    if (kind->places.count < (uint32_t)back)
        return -1;
    int slot = kind->slot[kind->places.count - (uint32_t)back];
    if (slot < 0 || slot >= store->slot_count || !store->slots[slot].values ||
        !same_key(&store->slots[slot].key, &kind->key))
        return -1;
    for (int p = 1; p < back; p++)
        if (kind->slot[kind->places.count - (uint32_t)p] == slot)
            return -1;
    return slot;
}

/* A call out of the known sequence: an evaluation, a bucket left out. It keeps to itself. */
static int slot_of_stranger(gw__residual_store_t *store, gw__residual_kind_t *kind,
                            const void *address)
{
    int slot = slot_at_rest(store, kind, address, 1, true);
    if (slot < 0)
        slot = slot_at_rest(store, kind, address, 2 * calls_per_step(kind), false);
    return slot < 0 ? new_slot(store, &kind->key) : slot;
}

static int slot_of_young(gw__residual_store_t *store, gw__residual_kind_t *kind,
                         const void *address)
{
    int slot = slot_at_rest(store, kind, address, 0, true);
    if (slot >= 0)
        return slot;
    return count_slots(store, kind) < YOUNG_SLOTS ? new_slot(store, &kind->key)
                                                  : slot_ago(store, kind, 1);
}

/* The slot of a call in sequence, by what the head of the store's header says. */
static int slot_in_sequence(gw__residual_store_t *store, gw__residual_kind_t *kind,
                            const void *address)
{
    int step = calls_per_step(kind);
    if (step == 0 && kind->uses <= YOUNG)
        return slot_of_young(store, kind, address);
    step = step > 0 ? step : 1;
    int slot = slot_ago(store, kind, step);
    if (slot < 0)
        slot = slot_at_rest(store, kind, address, step, false);
    return slot < 0 ? new_slot(store, &kind->key) : slot;
}

/* Residuals of the kind that its last calls did not use: left over from learning. */
static void drop_idle(gw__residual_store_t *store, const gw__residual_kind_t *kind)
{
    int step = calls_per_step(kind);
    uint64_t idle = 2 * (uint64_t)step > IDLE ? 2 * (uint64_t)step : IDLE;
    if ((step == 0 && kind->uses <= YOUNG) || kind->uses % (2 * idle) != 0)
        return;
    for (int i = 0; i < store->slot_count; i++)
        if (store->slots[i].values && same_key(&store->slots[i].key, &kind->key) &&
            store->slots[i].last_use + idle < kind->uses)
            drop(store, i);
}

/* Whether the call is out of the sequence of addresses; too many in a row, and the sequence is
 * forgotten. */
static bool is_stranger(gw__residual_kind_t *kind, uint32_t place)
{
    int period = period_of(kind);
    if (period == 0 || gw__rhythm_past(&kind->places, period) == place) {
        kind->strangers = 0;
        return false;
    }
    if (++kind->strangers <= (period > STRANGERS ? period : STRANGERS))
        return true;
    kind->period = kind->strangers = 0;
    gw__rhythm_break(&kind->places);
    return false;
}

/* Writes a call of the sequence down. The slots lie beside the places and move with them. */
static void record(gw__residual_kind_t *kind, uint32_t place, int slot)
{
    if (gw__rhythm_add(&kind->places, place))
        memmove(kind->slot, kind->slot + GW__PERIOD_MAX, GW__PERIOD_MAX * sizeof kind->slot[0]);
    kind->slot[kind->places.count - 1] = slot;
    if (period_of(kind) == 0 && kind->uses % LOOK_EVERY == 0)
        kind->period = gw__rhythm_period(&kind->places, REPEATS, LEAST, false);
}

static float *acquire(gw__residual_store_t *store, const gw__residual_key_t *key,
                      const void *address, int *out)
{
    int k = kind_of(store, key);
    *out = -1;
    if (k < 0)
        return NULL;
    gw__residual_kind_t *kind = store->kinds[k];
    uint32_t place = place_of(address);
    store->calls++;
    kind->uses++;
    kind->last_call = store->calls;
    learn_order(store, k);
    bool stranger = is_stranger(kind, place);
    int slot =
        stranger ? slot_of_stranger(store, kind, address) : slot_in_sequence(store, kind, address);
    if (!stranger)
        record(kind, place, slot);
    if (slot >= 0) {
        store->slots[slot].address = address;
        store->slots[slot].last_call = store->calls;
        store->slots[slot].last_use = kind->uses;
    }
    drop_idle(store, kind);
    if (store->calls % SWEEP_EVERY == 0)
        sweep(store);
    *out = slot;
    return slot < 0 ? NULL : store->slots[slot].values;
}

float *gw__residual_acquire(gw__residual_store_t *store, const gw__residual_key_t *key,
                            const void *address, int *slot)
{
    lock(store);
    float *floats = acquire(store, key, address, slot);
    unlock(store);
    return floats;
}
