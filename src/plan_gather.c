/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan `gather`: everybody sends its encoded elements to everybody, and every rank adds all of them
 * in order of rank, its own decoded from its own frame, so that all have the same bits. One round
 * trip and one encoding, at P - 1 times the bytes.
 */
#include "plan.h"

static gw__task_t task(gw__task_kind_t kind, int peer, int buffer, uint32_t after, size_t first,
                       size_t count)
{
    return (gw__task_t){.kind = kind,
                        .stage = GW__PUSH,
                        .peer = peer,
                        .buffer = (uint32_t)buffer,
                        .first = first,
                        .count = count,
                        .dep = {after, GW__NO_TASK}};
}

uint32_t gw__plan_gather_round(const gw__plan_t *plan, uint32_t k, gw__task_t *out)
{
    gw__task_list_t list = {.tasks = out};
    size_t first, count;
    if (!gw__plan_chunk(plan, 0, k, &first, &count))
        return 0;
    /* The frame of rank r lies in buffer r. */
    uint32_t own =
        gw__task_append(&list, task(GW__TASK_ENCODE, -1, plan->rank, GW__NO_TASK, first, count));
    for (int j = 1; j < plan->size; j++)
        gw__task_append(&list, task(GW__TASK_SEND, (plan->rank + j) % plan->size, plan->rank, own,
                                    first, count));
    uint32_t last = GW__NO_TASK;
    for (int r = 0; r < plan->size; r++) {
        uint32_t frame = own;
        if (r != plan->rank)
            frame = gw__task_append(&list, task(GW__TASK_RECV, r, r, GW__NO_TASK, first, count));
        gw__task_t add = task(GW__TASK_DECODE_ADD, r, r, last, first, count);
        add.dep[1] = frame;
        add.opens = r == 0;
        last = gw__task_append(&list, add);
    }
    gw__task_append(&list, task(GW__TASK_SUM_STORE, -1, 0, last, first, count));
    return list.count;
}
