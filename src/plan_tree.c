/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan `tree`: a binomial tree with rank 0 at its root; for frames that can be summed without
 * decoding. Push: every rank merges the frames of its children into its own, the smallest subtree
 * first, and sends the sum to its parent, whose rank is its own without the lowest bit. Pull: the
 * root's frame goes down the same way as it is. So the tree alone, which the number of ranks makes,
 * says in what order is added: with four, (x0 + x1) + (x2 + x3). Twice the logarithm of the ranks
 * are the steps of a message, where a ring takes 2 (P-1).
 */
#include "plan.h"

enum { OWN = 0, CHILDREN = 1 }; /* frame buffers; behind the children's the one of the sum */

typedef struct node {
    gw__task_list_t list;
    size_t first, count;
} node_t;

static uint32_t append(node_t *n, gw__task_t task, uint32_t after, uint32_t and_after)
{
    task.first = n->first;
    task.count = n->count;
    task.dep[0] = after;
    task.dep[1] = and_after;
    return gw__task_append(&n->list, task);
}

/* Children of a rank: each at a distance of a power of two below its lowest bit. */
static uint32_t children(const gw__plan_t *plan)
{
    uint32_t c = 0;
    while (plan->rank + ((int64_t)1 << c) < plan->size && !(plan->rank >> c & 1))
        c++;
    return c;
}

static uint32_t merge_child(node_t *n, const gw__plan_t *plan, uint32_t c, uint32_t last)
{
    gw__task_t task = {
        .kind = GW__TASK_RECV, .peer = plan->rank + (1 << c), .buffer = CHILDREN + c};
    uint32_t received = append(n, task, GW__NO_TASK, GW__NO_TASK);
    task.kind = GW__TASK_MERGE;
    task.from = task.buffer;
    task.buffer = OWN;
    return append(n, task, last, received);
}

/* The sum to its output, and to the children, the largest subtree first. What came is passed on
 * when it was decoded: whoever passed a damaged frame on would be blamed for it. */
static void pass_down(node_t *n, const gw__plan_t *plan, gw__task_t task, uint32_t there,
                      uint32_t encoded)
{
    task.kind = GW__TASK_MERGED_STORE;
    uint32_t stored = append(n, task, there, encoded);
    task.kind = GW__TASK_SEND;
    for (uint32_t c = children(plan); c-- > 0;) {
        task.peer = plan->rank + (1 << c);
        append(n, task, plan->rank == 0 ? there : stored, GW__NO_TASK);
    }
}

uint32_t gw__plan_tree_round(const gw__plan_t *plan, uint32_t k, gw__task_t *out)
{
    node_t n = {.list = {.tasks = out}};
    if (!gw__plan_chunk(plan, 0, k, &n.first, &n.count))
        return 0;
    gw__task_t task = {.kind = GW__TASK_ENCODE, .peer = -1, .buffer = OWN};
    uint32_t encoded = append(&n, task, GW__NO_TASK, GW__NO_TASK), last = encoded;
    for (uint32_t c = 0; c < children(plan); c++)
        last = merge_child(&n, plan, c, last);
    if (plan->rank == 0) {
        pass_down(&n, plan, (gw__task_t){.stage = GW__PULL, .buffer = OWN}, last, encoded);
        return n.list.count;
    }
    int parent = plan->rank & (plan->rank - 1);
    append(&n, (gw__task_t){.kind = GW__TASK_SEND, .peer = parent, .buffer = OWN}, last,
           GW__NO_TASK);
    task = (gw__task_t){.kind = GW__TASK_RECV,
                        .stage = GW__PULL,
                        .peer = parent,
                        .buffer = CHILDREN + gw__plan_levels(plan->size)};
    pass_down(&n, plan, task, append(&n, task, GW__NO_TASK, GW__NO_TASK), encoded);
    return n.list.count;
}
