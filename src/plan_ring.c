/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan `ring`: reduce-scatter, then all-gather, round a ring; for frames that can be summed without
 * decoding. Every rank owns one shard. Push: the rank behind the owner begins, each merges its own
 * frame with the one that it gets and passes it on, and the owner ends with the sum of all; so
 * shard s is added in order of rank s + 1, s + 2, ..., s. Pull: that frame goes once more round the
 * ring as it is. Every rank sends 2 (P-1)/P of the elements, all to the rank behind it
 * (Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms, 2009).
 */
#include "plan.h"

/* What a rank does to the chunk of one shard. */
typedef struct stop {
    const gw__plan_t *plan;
    int shard, place; /* place in the row of those who add: 0 begins, P-1 is the owner */
    int before, behind;
    size_t first, count;
    gw__task_list_t *list;
} stop_t;

/* Frame buffers of a round. */
static uint32_t own(const stop_t *s)
{
    return (uint32_t)s->shard;
}

static uint32_t push_in(const stop_t *s)
{
    return (uint32_t)(s->plan->size + s->shard);
}

static uint32_t pull_in(const stop_t *s)
{
    return (uint32_t)(2 * s->plan->size + s->shard);
}

static uint32_t append(const stop_t *s, gw__task_t task, uint32_t after, uint32_t and_after)
{
    task.channel = (uint32_t)s->shard;
    task.first = s->first;
    task.count = s->count;
    task.dep[0] = after;
    task.dep[1] = and_after;
    return gw__task_append(s->list, task);
}

/* The stop of this rank at the shard where it has this place; false when that has no such chunk. */
static bool stop_at(const gw__plan_t *plan, uint32_t k, int place, gw__task_list_t *list,
                    stop_t *out)
{
    int p = plan->size, r = plan->rank;
    *out = (stop_t){.plan = plan,
                    .shard = (r + 2 * p - 1 - place) % p,
                    .place = place,
                    .before = (r + p - 1) % p,
                    .behind = (r + 1) % p,
                    .list = list};
    return gw__plan_chunk(plan, out->shard, k, &out->first, &out->count);
}

/* Returns the task after which the own frame holds the sum so far. */
static uint32_t push(const stop_t *s, uint32_t *encoded)
{
    gw__task_t task = {.kind = GW__TASK_ENCODE, .peer = -1, .buffer = own(s)};
    uint32_t last = *encoded = append(s, task, GW__NO_TASK, GW__NO_TASK);
    if (s->place > 0) {
        task = (gw__task_t){.kind = GW__TASK_RECV, .peer = s->before, .buffer = push_in(s)};
        uint32_t received = append(s, task, GW__NO_TASK, GW__NO_TASK);
        task = (gw__task_t){
            .kind = GW__TASK_MERGE, .peer = s->before, .buffer = own(s), .from = push_in(s)};
        last = append(s, task, last, received);
    }
    if (s->place < s->plan->size - 1) {
        task = (gw__task_t){.kind = GW__TASK_SEND, .peer = s->behind, .buffer = own(s)};
        append(s, task, last, GW__NO_TASK);
    }
    return last;
}

/* The owner's sum to all. A frame is passed on when it was decoded: whoever passed a damaged one on
 * would be blamed for it. The own elements may lie where the sum is stored. */
static void pull(const stop_t *s, uint32_t encoded, uint32_t summed)
{
    bool owner = s->place == s->plan->size - 1;
    gw__task_t task = {.stage = GW__PULL,
                       .peer = owner ? s->plan->rank : s->before,
                       .buffer = owner ? own(s) : pull_in(s)};
    uint32_t there = summed;
    if (!owner) {
        task.kind = GW__TASK_RECV;
        there = append(s, task, GW__NO_TASK, GW__NO_TASK);
    }
    task.kind = GW__TASK_MERGED_STORE;
    uint32_t stored = append(s, task, there, encoded);
    if (s->place == s->plan->size - 2)
        return; /* the owner is behind this one */
    task.kind = GW__TASK_SEND;
    task.peer = s->behind;
    append(s, task, owner ? summed : stored, GW__NO_TASK);
}

/* All pushes come before the pulls, which need them. push() writes the same tasks for the same
 * place in every round, so that pull() finds them again by their numbers. */
uint32_t gw__plan_ring_round(const gw__plan_t *plan, uint32_t k, gw__task_t *out)
{
    gw__task_list_t list = {.tasks = out};
    uint32_t encoded = 0, summed = 0;
    stop_t s;
    for (int place = 0; place < plan->size; place++)
        if (stop_at(plan, k, place, &list, &s))
            summed = push(&s, &encoded);
    encoded = 0;
    for (int place = 0; place < plan->size; place++) {
        if (!stop_at(plan, k, place, &list, &s))
            continue;
        bool owner = place == plan->size - 1;
        pull(&s, encoded, owner ? summed : GW__NO_TASK);
        encoded += place == 0 ? 2 : 4;
    }
    return list.count;
}
