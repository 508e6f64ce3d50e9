/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan `direct`: scatter-reduce by all-to-all, then all-gather. Every rank owns one shard. Push:
 * each contribution to a shard goes to its owner, encoded. The owner adds them in order of rank,
 * its own unencoded. Pull: it encodes the sum once and sends it to all, and decodes its own frame
 * as they do.
 */
#include "plan.h"

/* Frame buffers of a round. */
static uint32_t push_out(int peer)
{
    return (uint32_t)peer;
}

static uint32_t push_in(const gw__plan_t *plan, int peer)
{
    return (uint32_t)(plan->size + peer);
}

/* The owner's own pull frame lies at its own rank. */
static uint32_t pull(const gw__plan_t *plan, int owner)
{
    return (uint32_t)(2 * plan->size + owner);
}

static gw__task_t task(gw__task_kind_t kind, gw__stage_t stage, int peer, uint32_t buffer,
                       uint32_t after)
{
    return (gw__task_t){
        .kind = kind, .stage = stage, .peer = peer, .buffer = buffer, .dep = {after, GW__NO_TASK}};
}

/* Own contributions to the shards of others, starting behind the own rank so that not all send to
 * rank 0 first. */
static void push_others(const gw__plan_t *plan, uint32_t k, gw__task_list_t *list)
{
    for (int j = 1; j < plan->size; j++) {
        int owner = (plan->rank + j) % plan->size;
        gw__task_t encode = task(GW__TASK_ENCODE, GW__PUSH, -1, push_out(owner), GW__NO_TASK);
        if (!gw__plan_chunk(plan, owner, k, &encode.first, &encode.count))
            continue;
        gw__task_t send = task(GW__TASK_SEND, GW__PUSH, owner, push_out(owner), 0);
        send.first = encode.first;
        send.count = encode.count;
        send.dep[0] = gw__task_append(list, encode);
        gw__task_append(list, send);
    }
}

/* Receives and adds the contributions to the own chunk; returns the last addition. */
static uint32_t sum_own(const gw__plan_t *plan, size_t first, size_t count, gw__task_list_t *list)
{
    uint32_t last = GW__NO_TASK;
    for (int r = 0; r < plan->size; r++) {
        gw__task_t add = task(GW__TASK_COPY, GW__PUSH, -1, 0, last);
        if (r != plan->rank) {
            gw__task_t in = task(GW__TASK_RECV, GW__PUSH, r, push_in(plan, r), GW__NO_TASK);
            in.first = first;
            in.count = count;
            uint32_t received = gw__task_append(list, in);
            add = task(GW__TASK_DECODE_ADD, GW__PUSH, r, in.buffer, last);
            add.dep[1] = received;
        }
        add.first = first;
        add.count = count;
        add.opens = r == 0;
        last = gw__task_append(list, add);
    }
    return last;
}

/* Receives the contributions to the own chunk; the task that adds and encodes them comes after. */
static gw__task_t reduce_own(const gw__plan_t *plan, size_t first, size_t count,
                             gw__task_list_t *list)
{
    gw__task_t reduce =
        task(GW__TASK_REDUCE_ENCODE, GW__PULL, -1, pull(plan, plan->rank), list->count);
    for (int r = 0; r < plan->size; r++) {
        if (r == plan->rank)
            continue;
        gw__task_t in = task(GW__TASK_RECV, GW__PUSH, r, push_in(plan, r), GW__NO_TASK);
        in.first = first;
        in.count = count;
        reduce.dep[1] = gw__task_append(list, in);
    }
    reduce.span = true;
    return reduce;
}

/* Adds up the own chunk, encodes the sum, sends it to all, and stores what they will. */
static void pull_own(const gw__plan_t *plan, size_t first, size_t count, gw__task_list_t *list)
{
    gw__task_t encode = plan->reduces
                            ? reduce_own(plan, first, count, list)
                            : task(GW__TASK_SUM_ENCODE, GW__PULL, -1, pull(plan, plan->rank),
                                   sum_own(plan, first, count, list));
    encode.first = first;
    encode.count = count;
    uint32_t encoded = gw__task_append(list, encode);
    for (int j = 1; j < plan->size; j++) {
        gw__task_t send =
            task(GW__TASK_SEND, GW__PULL, (plan->rank + j) % plan->size, encode.buffer, encoded);
        send.first = first;
        send.count = count;
        gw__task_append(list, send);
    }
    gw__task_t store = task(GW__TASK_DECODE_STORE, GW__PULL, plan->rank, encode.buffer, encoded);
    store.first = first;
    store.count = count;
    gw__task_append(list, store);
}

/*
 * The sums of others. One is stored where own elements lie when the call is in place, so after they
 * were encoded: push_others() wrote that task, as the first of two per owner, in the same order.
 */
static void pull_others(const gw__plan_t *plan, uint32_t k, gw__task_list_t *list)
{
    uint32_t encoded = 0;
    for (int j = 1; j < plan->size; j++) {
        int owner = (plan->rank + j) % plan->size;
        gw__task_t in = task(GW__TASK_RECV, GW__PULL, owner, pull(plan, owner), GW__NO_TASK);
        if (!gw__plan_chunk(plan, owner, k, &in.first, &in.count))
            continue;
        gw__task_t store =
            task(GW__TASK_DECODE_STORE, GW__PULL, owner, in.buffer, gw__task_append(list, in));
        store.dep[1] = encoded;
        encoded += 2;
        store.first = in.first;
        store.count = in.count;
        gw__task_append(list, store);
    }
}

uint32_t gw__plan_direct_round(const gw__plan_t *plan, uint32_t k, gw__task_t *out)
{
    gw__task_list_t list = {.tasks = out};
    size_t first, count;
    push_others(plan, k, &list);
    if (gw__plan_chunk(plan, plan->rank, k, &first, &count))
        pull_own(plan, first, count, &list);
    pull_others(plan, k, &list);
    return list.count;
}
