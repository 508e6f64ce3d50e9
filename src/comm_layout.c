/* SPDX-License-Identifier: Apache-2.0 */
/* Giving a communicator a layout: all ranks compare what they give before any of them uses it. */
#include <stdio.h>
#include <stdlib.h>

#include "comm_internal.h"
#include "hash.h"

/*
 * What a rank tells the others, in pieces that a binary32 holds exactly. All ranks' pieces are
 * gathered by a sum: each rank adds its own to zeros.
 */
enum { PIECES = 4, VALUES = PIECES + 1 /* and how it fares */ };

static void put(float *out, uint64_t digest, gw_status_t status)
{
    for (int i = 0; i < PIECES; i++)
        out[i] = (float)(digest >> 16 * i & 0xFFFF);
    out[PIECES] = (float)status;
}

/* What is wrong, if anything: the first rank that cannot take the layout, or gives another one than
 * rank 0. */
static gw_status_t compare(gw_comm_t *comm, const float *all, size_t elements)
{
    for (int r = 0; r < comm->size; r++) {
        const float *values = all + (size_t)r * VALUES;
        bool same = true;
        for (int i = 0; i < PIECES; i++)
            same = same && values[i] == all[i];
        if (values[PIECES] != 0.0f)
            snprintf(comm->error, sizeof comm->error, "rank %d cannot use its layout: %s", r,
                     gw_status_text((gw_status_t)values[PIECES]));
        else if (!same)
            snprintf(comm->error, sizeof comm->error,
                     "rank %d gives another layout than rank 0 (%zu elements here)", r, elements);
        else
            continue;
        return GW_ERR_SETTINGS_DIFFER;
    }
    return GW_OK;
}

/* A small all-reduce of its own, which is not the application's and not counted. */
static gw_status_t agree(gw_comm_t *comm, uint64_t digest, size_t elements, gw_status_t mine)
{
    size_t count = (size_t)comm->size * VALUES;
    float *all = calloc(count, sizeof *all);
    if (!all)
        return GW_ERR_NO_MEMORY;
    put(all + (size_t)comm->rank * VALUES, digest, mine);
    gw_work_t work = {
        .comm = comm,
        .call = {GW_ALLREDUCE, GW_F32, GW_SUM, count, NULL, all},
        .decision = {.compress = true, .plan = GW_PLAN_GATHER, .coder = &comm->engine.raw},
        .part = 1};
    gw_status_t status = gw__work_run(&work);
    comm->parts.extra++;
    if (status == GW_OK)
        status = compare(comm, all, elements);
    free(all);
    return status;
}

static gw_status_t check(gw_comm_t *comm, size_t elements, long slot, const gw_layout_t *layout)
{
    if (elements == 0 || slot < 0 || slot > 1024 || (layout && layout->elements != elements))
        return GW_ERR_INVALID;
    /* Places are counted from here on, by all ranks. */
    return slot > 0 && !comm->order ? gw_call_order_create(&comm->order) : GW_OK;
}

/* The room for it is there before the ranks agree, so that none of them fails behind that. */
static gw_status_t reserve(gw__layouts_t *layouts)
{
    size_t size = ((size_t)layouts->count + 1) * sizeof *layouts->entry;
    gw__layout_entry_t *more = realloc(layouts->entry, size);
    if (!more)
        return GW_ERR_NO_MEMORY;
    layouts->entry = more;
    return GW_OK;
}

gw_status_t gw_comm_set_layout(gw_comm_t *comm, size_t elements, long slot, gw_layout_t *layout)
{
    if (!comm)
        return GW_ERR_INVALID;
    if (comm->failed != GW_OK)
        return comm->failed;
    gw__layouts_t *layouts = &comm->parts.layouts;
    bool counted = comm->order != NULL;
    gw_status_t mine = check(comm, elements, slot, layout);
    if (mine == GW_OK)
        mine = reserve(layouts);
    uint64_t digest =
        gw__mix64(elements ^ gw__mix64((uint64_t)slot ^ (layout ? layout->digest : 0)));
    gw_status_t status = comm->size > 1 ? agree(comm, digest, elements, mine) : mine;
    if (status != GW_OK) {
        if (!counted) { /* else ranks would count from different calls on */
            gw_call_order_free(comm->order);
            comm->order = NULL;
        }
        if (status == GW_ERR_SETTINGS_DIFFER)
            gw__context_warn_once(comm->context, comm->error);
        return mine != GW_OK ? mine : status;
    }
    const gw_layout_t *before = gw__layouts_find(layouts, elements, slot);
    int forgotten = gw__parts_forget(comm, elements);
    if (before || forgotten > 0)
        gw_context_log(comm->context, GW_LOG_INFO,
                       "communicator %u: another layout of calls of %zu elements; %d residuals "
                       "start anew",
                       comm->id, elements, forgotten);
    return gw__layouts_set(layouts, elements, slot, layout ? gw__layout_hold(layout) : NULL);
}
