/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with a layout: one call of the engine for each part, one after the other; parts that lie
 * scattered are gathered into a work buffer and scattered back. */
#include "parts.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "comm_internal.h"
#include "hash.h"
#include "memory.h"
#include "work.h"

/* Work buffers live as long as the communicator: splits that were made before keep theirs. Only one
 * call runs at a time, so all splits may share one. */
typedef struct gw__parts_block {
    struct gw__parts_block *next;
    size_t bytes;
    uint8_t *memory;
} block_t;

void gw__parts_free(gw_comm_t *comm)
{
    gw__parts_t *parts = &comm->parts;
    while (parts->splits) {
        gw__split_t *split = parts->splits;
        parts->splits = split->next;
        gw__split_free(split);
    }
    while (parts->blocks) {
        block_t *block = parts->blocks;
        parts->blocks = block->next;
        gw__memory_unmap(block->memory, block->bytes);
        free(block);
    }
    gw__layouts_free(&parts->layouts);
    free(parts->work);
}

int gw__parts_forget(gw_comm_t *comm, size_t elements)
{
    gw__parts_t *parts = &comm->parts;
    int forgotten = gw__residual_forget(&comm->residuals, elements, 0);
    if (comm->device_calls.gpu.device)
        forgotten += gw__residual_forget(&comm->device_calls.residuals, elements, 0);
    parts->split = NULL;
    for (gw__split_t **at = &parts->splits; *at;) {
        gw__split_t *split = *at;
        if (split->layout->elements != elements) {
            at = &split->next;
            continue;
        }
        forgotten += gw__residual_forget(&comm->residuals, split->residual_floats, split->digest);
        *at = split->next;
        gw__split_free(split);
    }
    return forgotten;
}

/* ---- Before a call ---- */

gw_decision_t gw__parts_decide(const gw_comm_t *comm, const gw_call_t *call,
                               const gw_comm_facts_t *facts)
{
    const gw_layout_t *layout = gw__layouts_find(&comm->parts.layouts, call->count, facts->slot);
    if (!layout)
        return gw_decide(comm->context, call, facts);
    return gw__policy_decide(comm->context, call, facts, layout);
}

/* The place counts where a rule may ask for it. */
static long slot_of(const gw_comm_t *comm, const gw_comm_facts_t *facts)
{
    return gw__rules_facts(&comm->context->rules) & GW_RULE_SLOT ? facts->slot : 0;
}

static gw__split_t *find_split(const gw_comm_t *comm, const gw_layout_t *layout,
                               const gw_call_t *call, long slot)
{
    for (gw__split_t *split = comm->parts.splits; split; split = split->next)
        if (split->layout == layout && split->dtype == call->dtype && split->slot == slot)
            return split;
    return NULL;
}

/* A work buffer of so many bytes, or NULL. */
static uint8_t *find_block(gw__parts_t *parts, size_t bytes)
{
    for (block_t *block = parts->blocks; block; block = block->next)
        if (block->bytes >= bytes)
            return block->memory;
    block_t *block = malloc(sizeof *block);
    uint8_t *memory = block ? gw__memory_map(bytes) : NULL;
    if (!memory) {
        free(block);
        return NULL;
    }
    *block = (block_t){parts->blocks, bytes, memory};
    parts->blocks = block;
    return memory;
}

/* The stats file and the log tell which tensor got which codec, and why. */
static void tell(gw_comm_t *comm, const gw__split_t *split, const gw_call_t *call,
                 const gw_comm_facts_t *facts)
{
    char *text = NULL;
    size_t length = 0, exact = 0;
    for (size_t p = 0; p < split->parts; p++)
        exact += split->part[p].exact ? split->part[p].count : 0;
    gw_context_log(comm->context, GW_LOG_INFO,
                   "communicator %u: calls of %zu elements go by a layout of %zu tensors, in %zu "
                   "parts; %zu elements stay exact",
                   comm->id, call->count, split->layout->count, split->parts, exact);
    FILE *memory = comm->page ? open_memstream(&text, &length) : NULL;
    if (!memory)
        return;
    gw__split_print(comm->context, split->layout, call, facts, memory);
    if (fclose(memory) == 0) {
        pthread_mutex_lock(&comm->context->lock);
        gw__stats_page_layout(comm->page, text);
        pthread_mutex_unlock(&comm->context->lock);
    }
    free(text);
}

/* Makes the split of such calls, and all that they will need. */
static gw_status_t add_split(gw_comm_t *comm, const gw_layout_t *layout, const gw_call_t *call,
                             const gw_comm_facts_t *facts, gw__split_t **out)
{
    gw__parts_t *parts = &comm->parts;
    if (!parts->work && !(parts->work = calloc(1, sizeof *parts->work)))
        return GW_ERR_NO_MEMORY;
    gw__split_t *split = gw__split_make(comm->context, layout, call, facts, &comm->engine.raw);
    if (!split)
        return GW_ERR_NO_MEMORY;
    split->slot = slot_of(comm, facts);
    if (split->buffer_bytes > 0 && !(split->buffer = find_block(parts, split->buffer_bytes))) {
        gw__split_free(split);
        return GW_ERR_NO_MEMORY;
    }
    split->next = parts->splits;
    parts->splits = split;
    tell(comm, split, call, facts);
    *out = split;
    return GW_OK;
}

gw_status_t gw__parts_prepare(gw_work_t *work, const gw_comm_facts_t *facts)
{
    gw_comm_t *comm = work->comm;
    const gw_layout_t *layout = work->decision.layout;
    work->split = NULL;
    if (!layout || !facts || !work->decision.compress || layout->elements != work->call.count)
        return GW_OK;
    gw__split_t *split = find_split(comm, layout, &work->call, slot_of(comm, facts));
    gw_status_t status = GW_OK;
    if (!split)
        status = add_split(comm, layout, &work->call, facts, &split);
    work->split = split;
    return status;
}

/* ---- A call ---- */

static const gw__part_t *part_under_way(const gw__parts_t *parts)
{
    return &parts->split->part[parts->at];
}

/* Between the buffers of the call and the work buffer. */
static void gather(const gw__split_t *split, const gw__part_t *part, size_t element,
                   const uint8_t *from)
{
    uint8_t *to = split->buffer;
    for (size_t s = part->stretch; s < part->stretch + part->stretches; s++) {
        const gw__stretch_t *stretch = &split->stretch[s];
        memcpy(to, from + stretch->first * element, stretch->count * element);
        to += stretch->count * element;
    }
}

static void scatter(const gw__split_t *split, const gw__part_t *part, size_t element, uint8_t *to)
{
    const uint8_t *from = split->buffer;
    for (size_t s = part->stretch; s < part->stretch + part->stretches; s++) {
        const gw__stretch_t *stretch = &split->stretch[s];
        memcpy(to + stretch->first * element, from, stretch->count * element);
        from += stretch->count * element;
    }
}

/* The buffers of a part: its place in those of the call, or the work buffer. */
static void place(gw__parts_t *parts, const gw_work_t *work)
{
    const gw__part_t *part = part_under_way(parts);
    gw_call_t *call = &parts->work->call;
    size_t element = gw_dtype_size(call->dtype);
    const uint8_t *send = work->call.send ? work->call.send : work->call.recv;
    uint8_t *recv = work->call.recv;
    call->count = part->count;
    call->rows = part->rows;
    if (part->stretches > 1) {
        int64_t begin = gw__now_ns();
        gather(parts->split, part, element, send);
        parts->figures.encode_us += (uint64_t)(gw__now_ns() - begin) / 1000;
        call->send = NULL;
        call->recv = parts->split->buffer;
        return;
    }
    size_t first = parts->split->stretch[part->stretch].first * element;
    call->send = work->call.send ? send + first : NULL;
    call->recv = recv + first;
}

static void *residual_of(const gw__parts_t *parts, const gw__part_t *part)
{
    size_t width = parts->split->half_residuals ? 2 : sizeof(float);
    uint8_t *residual = (uint8_t *)parts->residual;
    return residual && part->feedback ? residual + width * part->residual : NULL;
}

/*
 * The part as a call of its own. It is one for the engine and for schedules of codecs too; those
 * count calls of the application, and `extra` takes the difference. A timeline goes on over all
 * parts.
 */
static void begin_part(gw_work_t *work)
{
    gw_comm_t *comm = work->comm;
    gw__parts_t *parts = &comm->parts;
    const gw__part_t *part = part_under_way(parts);
    gw_work_t *own = parts->work;
    gw__timeline_t *timeline = comm->engine.timeline, before = {0};
    own->comm = comm;
    own->call = work->call;
    own->decision = (gw_decision_t){.compress = true, .plan = part->plan, .coder = &part->coder};
    own->part = part->key;
    own->half = parts->split->half_residuals;
    own->residual = residual_of(parts, part);
    place(parts, work);
    if (timeline)
        before = *timeline;
    parts->extra += parts->at > 0;
    gw__call_begin(own);
    if (timeline && parts->at > 0) {
        timeline->count = before.count;
        timeline->dropped = before.dropped;
        timeline->begin_ns = before.begin_ns;
    }
}

/* One residual for the call, in which each part has its place: so it is found again as that of any
 * call is. */
static float *acquire_residual(gw_work_t *work)
{
    const gw_call_t *call = &work->call;
    const gw__split_t *split = work->split;
    gw__residual_key_t key = {.collective = call->collective,
                              .op = call->op,
                              .dtype = call->dtype,
                              .plan = work->decision.plan,
                              .count = split->residual_floats,
                              .coder = split->digest,
                              .half = split->half_residuals};
    if (split->residual_floats == 0)
        return NULL;
    return gw__residual_acquire(&work->comm->residuals, &key, gw__work_place(work), &work->slot);
}

void gw__parts_begin(gw_work_t *work)
{
    gw__parts_t *parts = &work->comm->parts;
    const gw__split_t *split = work->split;
    memset(&parts->figures, 0, sizeof parts->figures);
    parts->split = split;
    parts->at = 0;
    parts->began = gw__now_ns();
    parts->residual = acquire_residual(work);
    begin_part(work);
}

static void add_figures(gw__parts_t *parts, const gw__engine_figures_t *f)
{
    gw__engine_figures_t *sum = &parts->figures;
    sum->wire_bytes += f->wire_bytes;
    sum->encode_us += f->encode_us;
    sum->decode_us += f->decode_us;
    sum->wait_us += f->wait_us;
    sum->wire_us += f->wire_us;
    sum->time_us = (uint64_t)(gw__now_ns() - parts->began) / 1000;
    sum->poisoned += f->poisoned;
    parts->split->time[parts->at] = (gw__part_time_t){f->wire_bytes, f->time_us};
}

gw_status_t gw__parts_step(gw_work_t *work)
{
    gw_comm_t *comm = work->comm;
    gw__parts_t *parts = &comm->parts;
    const gw__part_t *part = part_under_way(parts);
    gw_status_t status = gw__call_step(parts->work);
    if (status == GW_IN_PROGRESS)
        return status;
    int64_t begin = gw__now_ns();
    if (status == GW_OK && part->stretches > 1) {
        scatter(parts->split, part, gw_dtype_size(work->call.dtype), work->call.recv);
        parts->figures.decode_us += (uint64_t)(gw__now_ns() - begin) / 1000;
    }
    add_figures(parts, &comm->engine.figures);
    if (status != GW_OK) {
        gw__residual_reset(&comm->residuals, work->slot);
        return status;
    }
    if (++parts->at == parts->split->parts)
        return GW_OK;
    begin_part(work);
    return GW_IN_PROGRESS;
}

void gw__parts_print(const gw_comm_t *comm, FILE *out)
{
    const gw__parts_t *parts = &comm->parts;
    if (!parts->split || parts->at < parts->split->parts)
        return;
    for (size_t p = 0; p < parts->split->parts; p++) {
        const gw__part_t *part = &parts->split->part[p];
        fprintf(out, "part %zu: %s, %zu tensors, %zu elements in %zu stretches", p + 1,
                part->coder.spec, part->tensors, part->count, part->stretches);
        if (part->rows > 0)
            fprintf(out, ", %zu rows", part->rows);
        fprintf(out, "; %llu bytes sent, %.3f ms\n",
                (unsigned long long)parts->split->time[p].wire_bytes,
                (double)parts->split->time[p].time_us * 1e-3);
    }
}
