/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: shards, chunks and rounds; what the plan kinds share. */
#include "plan.h"

#include <stdlib.h>

/* Whether every rank owns a part of the elements. */
static bool has_shards(gw_plan_kind_t kind)
{
    return kind == GW_PLAN_DIRECT || kind == GW_PLAN_RING;
}

bool gw__plan_merges(gw_plan_kind_t kind)
{
    return kind == GW_PLAN_RING || kind == GW_PLAN_TREE;
}

bool gw__plan_relays(gw_plan_kind_t kind)
{
    return kind == GW_PLAN_RING || kind == GW_PLAN_TREE;
}

uint32_t gw__plan_levels(int size)
{
    uint32_t levels = 0;
    while ((int64_t)1 << levels < size)
        levels++;
    return levels;
}

void gw__plan_init(gw__plan_t *plan, gw_plan_kind_t kind, int rank, int size, size_t count,
                   size_t grain, size_t chunk)
{
    size_t shards = has_shards(kind) ? (size_t)size : 1;
    size_t grains = count / grain + (count % grain != 0);
    *plan = (gw__plan_t){.kind = kind,
                         .rank = rank,
                         .size = size,
                         .count = count,
                         .grain = grain,
                         .channels = kind == GW_PLAN_RING ? (uint32_t)size : 1};
    size_t most = GW__PLAN_MAX_ROUNDS / plan->channels;
    plan->per_shard = grains / shards;
    plan->extra = grains % shards;
    size_t longest = plan->per_shard + (plan->extra > 0);
    size_t per_chunk = chunk / grain > 0 ? chunk / grain : 1;
    if ((longest - 1) / per_chunk + 1 >= most)
        per_chunk = longest / (most - 1) + 1;
    if (per_chunk > longest)
        per_chunk = longest;
    plan->chunk = per_chunk * grain;
    plan->rounds = (uint32_t)(longest / per_chunk + (longest % per_chunk != 0));
}

size_t gw__plan_shard(const gw__plan_t *plan, int shard)
{
    size_t s = (size_t)shard;
    size_t first = (s * plan->per_shard + (s < plan->extra ? s : plan->extra)) * plan->grain;
    return first < plan->count ? first : plan->count;
}

bool gw__plan_chunk(const gw__plan_t *plan, int shard, uint32_t k, size_t *first, size_t *count)
{
    size_t begin = 0, end = plan->count;
    if (has_shards(plan->kind)) {
        begin = gw__plan_shard(plan, shard);
        end = gw__plan_shard(plan, shard + 1);
    }
    if (k >= plan->rounds || (end - begin) / plan->chunk < k || begin + k * plan->chunk >= end)
        return false;
    *first = begin + k * plan->chunk;
    *count = end - *first < plan->chunk ? end - *first : plan->chunk;
    return true;
}

uint32_t gw__task_append(gw__task_list_t *list, gw__task_t task)
{
    list->tasks[list->count] = task;
    return list->count++;
}

uint32_t gw__plan_max_tasks(gw_plan_kind_t kind, int size)
{
    uint32_t p = (uint32_t)size;
    /* direct: encode, send, recv, add, send the sum, recv a sum, store it: 7 per peer, 3 of its
     * own; gather: send, recv, add per peer, encode, add, store of its own; ring: encode, recv,
     * merge, send, recv a sum, store and send it per shard; tree: recv, merge, send the sum per
     * child, encode, send, recv the sum, store of its own. */
    switch (kind) {
    case GW_PLAN_DIRECT:
        return 7 * p + 3;
    case GW_PLAN_RING:
        return 7 * p;
    case GW_PLAN_TREE:
        return 3 * gw__plan_levels(size) + 4;
    case GW_PLAN_GATHER:
        break;
    }
    return 3 * p + 3;
}

uint32_t gw__plan_max_buffers(gw_plan_kind_t kind, int size)
{
    uint32_t p = (uint32_t)size;
    if (kind == GW_PLAN_TREE)
        return gw__plan_levels(size) + 2;
    return has_shards(kind) ? 3 * p : p;
}

/* The sums of a ring are made by merging; what needs room is to scale and narrow them. */
uint32_t gw__plan_max_sums(gw_plan_kind_t kind, int size)
{
    return kind == GW_PLAN_RING ? (uint32_t)size : 1;
}

uint32_t gw__plan_round(const gw__plan_t *plan, uint32_t k, gw__task_t *out)
{
    switch (plan->kind) {
    case GW_PLAN_DIRECT:
        return gw__plan_direct_round(plan, k, out);
    case GW_PLAN_RING:
        return gw__plan_ring_round(plan, k, out);
    case GW_PLAN_TREE:
        return gw__plan_tree_round(plan, k, out);
    case GW_PLAN_GATHER:
        break;
    }
    return gw__plan_gather_round(plan, k, out);
}

/* The owner of a shard exchanges with everybody; `gather` has one shard, which all own. */
bool gw__plan_exchanges(const gw__plan_t *plan, int peer)
{
    size_t first, count;
    return gw__plan_relays(plan->kind) || gw__plan_chunk(plan, plan->rank, 0, &first, &count) ||
           gw__plan_chunk(plan, peer, 0, &first, &count);
}

const char *gw_plan_name(gw_plan_kind_t kind)
{
    static const char *const names[] = {"direct", "gather", "ring", "tree"};
    return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

const char *gw__task_kind_name(gw__task_kind_t kind)
{
    static const char *const names[GW__TASK_KINDS] = {
        "ENCODE",        "SEND",      "RECV",         "COPY",  "DECODE_ADD",  "SUM_ENCODE",
        "REDUCE_ENCODE", "SUM_STORE", "DECODE_STORE", "MERGE", "MERGED_STORE"};
    return names[kind];
}

static void print_task(const gw__task_t *t, uint32_t round, uint32_t id, FILE *out)
{
    fprintf(out, "%u.%u %s %s [%zu,%zu) buffer %u", round, id, gw__task_kind_name(t->kind),
            t->stage == GW__PUSH ? "push" : "pull", t->first, t->first + t->count, t->buffer);
    if (t->kind == GW__TASK_MERGE)
        fprintf(out, " from %u", t->from);
    if (t->peer >= 0)
        fprintf(out, " peer %d", t->peer);
    if (t->span)
        fprintf(out, " after %u.%u to %u.%u", round, t->dep[0], round, t->dep[1]);
    for (int d = 0; d < 2 && !t->span; d++)
        if (t->dep[d] != GW__NO_TASK)
            fprintf(out, " after %u.%u", round, t->dep[d]);
    fputs(t->opens ? " opens\n" : "\n", out);
}

void gw__plan_print(const gw__plan_t *plan, FILE *out)
{
    fprintf(out, "%s rank %d of %d: %zu elements, chunks of %zu, %u rounds\n",
            gw_plan_name(plan->kind), plan->rank, plan->size, plan->count, plan->chunk,
            plan->rounds);
    gw__task_t *tasks = calloc(gw__plan_max_tasks(plan->kind, plan->size), sizeof *tasks);
    for (uint32_t k = 0; tasks && k < plan->rounds; k++) {
        uint32_t n = gw__plan_round(plan, k, tasks);
        for (uint32_t i = 0; i < n; i++)
            print_task(&tasks[i], k, i, out);
    }
    free(tasks);
}
