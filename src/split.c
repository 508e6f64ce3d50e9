/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting a call by codec: which elements go together, as pure data. */
#include <stdlib.h>
#include <string.h>

#include "context_internal.h"
#include "factors.h"
#include "half_residual.h"
#include "hash.h"
#include "parts.h"

/* The buffer from its beginning to its end: tensors, and what lies between them. */
typedef struct walk {
    const gw_layout_t *layout;
    size_t next, at;           /* tensor; element */
    const gw_tensor_t *tensor; /* of this stop; NULL: of none */
    size_t first, count;
} walk_t;

static bool walk(walk_t *w)
{
    const gw_layout_t *layout = w->layout;
    if (w->at == layout->elements)
        return false;
    const gw_tensor_t *tensor = w->next < layout->count ? &layout->tensor[w->next] : NULL;
    size_t begin = tensor ? tensor->offset : layout->elements;
    w->first = w->at;
    if (begin > w->at) {
        w->tensor = NULL;
        w->count = begin - w->at;
    } else {
        w->tensor = tensor;
        w->count = gw__tensor_elements(tensor);
        w->next++;
    }
    w->at += w->count;
    return true;
}

/* A stop of the walk, and the part that it belongs to. */
typedef struct stop {
    gw__stretch_t stretch;
    size_t part;
} stop_t;

/* What a split is made of, on the way. */
typedef struct maker {
    const gw_context_t *context;
    const gw_call_t *call;
    const gw_comm_facts_t *facts;
    const gw_coder_t *raw;
    gw__split_t *split;
    stop_t *stop;
    size_t stops;
} maker_t;

static bool wants_matrices(const gw_coder_t *coder)
{
    return coder->family->flags & GW_CODEC_MATRIX;
}

static bool keeps_residual(const gw_coder_t *coder)
{
    return (coder->family->flags & GW_CODEC_FEEDBACK) && gw_coder_get(coder, "ef", 0.0) != 0.0;
}

/* The part that takes elements of this codec: one that is there, or a new one. */
static size_t part_of(maker_t *m, const gw_coder_t *coder)
{
    gw__split_t *split = m->split;
    for (size_t i = 0; i < split->parts && !wants_matrices(coder); i++)
        if (strcmp(split->part[i].coder.spec, coder->spec) == 0)
            return i;
    split->part[split->parts] = (gw__part_t){.coder = *coder, .exact = coder == m->raw};
    return split->parts++;
}

/* One stop; grows the last stretch where it goes on in the same part. */
static void take(maker_t *m, const walk_t *w)
{
    gw__choice_t choice = gw__policy_tensor(m->context, m->call, m->facts, w->tensor);
    size_t p = part_of(m, choice.coder ? choice.coder : m->raw);
    gw__part_t *part = &m->split->part[p];
    stop_t *last = m->stops > 0 ? &m->stop[m->stops - 1] : NULL;
    part->tensors += w->tensor != NULL;
    part->count += w->count;
    /* Of a matrix, until something else joins it. */
    bool alone = part->count == w->count && w->tensor && w->tensor->ndim >= 2;
    part->rows = alone ? w->tensor->dim[0] : 0;
    if (last && last->part == p)
        last->stretch.count += w->count;
    else
        m->stop[m->stops++] = (stop_t){{w->first, w->count}, p};
}

/* Brings the stretches into the order of the parts. */
static void sort_stretches(maker_t *m)
{
    gw__split_t *split = m->split;
    size_t at = 0;
    for (size_t i = 0; i < m->stops; i++)
        split->part[m->stop[i].part].stretches++;
    for (size_t p = 0; p < split->parts; p++) {
        split->part[p].stretch = at;
        at += split->part[p].stretches;
        split->part[p].stretches = 0;
    }
    for (size_t i = 0; i < m->stops; i++) {
        gw__part_t *part = &split->part[m->stop[i].part];
        split->stretch[part->stretch + part->stretches++] = m->stop[i].stretch;
    }
    split->stretches = m->stops;
}

/* Floats that a part keeps from call to call: its residual, and what the codec has beside it. */
static size_t kept_floats(const gw__part_t *part, const gw_call_t *call)
{
    gw_factor_sizes_t factors = {.warm = 0};
    gw__factors_serve(&part->coder, call->dtype, call->count, call->rows, &factors);
    bool momentum = gw__keeps_momentum(&part->coder);
    return (momentum ? 2 : 1) * call->count + factors.warm;
}

/* Plans, residuals, keys, and how much has to be gathered. */
static void finish(maker_t *m)
{
    gw__split_t *split = m->split;
    size_t element = gw_dtype_size(m->call->dtype);
    split->half_residuals = m->context->settings.residuals == GW__RESIDUALS_BF16;
    split->digest = gw__mix64(split->layout->digest ^ (uint64_t)m->call->dtype);
    for (size_t p = 0; p < split->parts; p++) {
        gw__part_t *part = &split->part[p];
        gw_call_t call = *m->call;
        call.count = part->count;
        call.rows = part->rows;
        part->plan = gw__policy_plan_of(&m->context->settings, part->exact ? NULL : &part->coder,
                                        &call, m->facts->size);
        part->feedback = keeps_residual(&part->coder);
        part->residual = split->residual_floats;
        if (part->feedback)
            split->half_residuals &= gw__half_residual_serves(&part->coder);
        if (part->feedback)
            split->residual_floats += kept_floats(part, &call);
        split->digest = gw__mix64(split->digest ^ gw__hash_text(part->coder.spec));
        split->digest = gw__mix64(split->digest ^ (uint64_t)part->plan);
        for (size_t s = part->stretch; s < part->stretch + part->stretches; s++) {
            split->digest = gw__mix64(split->digest ^ split->stretch[s].first);
            split->digest = gw__mix64(split->digest ^ split->stretch[s].count);
        }
        part->key = split->digest | 1;
        if (part->stretches > 1 && part->count * element > split->buffer_bytes)
            split->buffer_bytes = part->count * element;
    }
}

gw__split_t *gw__split_make(const gw_context_t *context, const gw_layout_t *layout,
                            const gw_call_t *call, const gw_comm_facts_t *facts,
                            const gw_coder_t *raw)
{
    maker_t m = {.context = context, .call = call, .facts = facts, .raw = raw};
    size_t most = 2 * layout->count + 1;
    walk_t w = {.layout = layout};
    m.split = calloc(1, sizeof *m.split);
    m.stop = malloc(most * sizeof *m.stop);
    if (m.split && m.stop) {
        m.split->part = malloc(most * sizeof *m.split->part);
        m.split->stretch = malloc(most * sizeof *m.split->stretch);
    }
    if (!m.split || !m.stop || !m.split->part || !m.split->stretch) {
        gw__split_free(m.split);
        free(m.stop);
        return NULL;
    }
    m.split->layout = layout;
    m.split->dtype = call->dtype;
    while (walk(&w))
        take(&m, &w);
    sort_stretches(&m);
    finish(&m);
    free(m.stop);
    /* Most buffers have few parts; a part is large. */
    gw__part_t *fewer = realloc(m.split->part, m.split->parts * sizeof *fewer);
    if (fewer)
        m.split->part = fewer;
    m.split->time = calloc(m.split->parts, sizeof *m.split->time);
    if (m.split->time)
        return m.split;
    gw__split_free(m.split);
    return NULL;
}

void gw__split_free(gw__split_t *split)
{
    if (!split)
        return;
    free(split->time);
    free(split->part);
    free(split->stretch);
    free(split);
}

void gw__split_print(const gw_context_t *context, const gw_layout_t *layout, const gw_call_t *call,
                     const gw_comm_facts_t *facts, FILE *out)
{
    fprintf(out, "{\"elements\": %zu, \"slot\": %ld, \"dtype\": \"%s\", \"tensors\": [",
            layout->elements, facts->slot, gw_dtype_name(call->dtype));
    for (size_t i = 0; i < layout->count; i++) {
        const gw_tensor_t *tensor = &layout->tensor[i];
        gw__choice_t choice = gw__policy_tensor(context, call, facts, tensor);
        char why[64];
        gw__choice_why(&choice, why, sizeof why);
        fprintf(out, "%s{\"name\": ", i ? ", " : "");
        gw_json_string(out, tensor->name);
        fprintf(out, ", \"offset\": %zu, \"shape\": [", tensor->offset);
        for (int d = 0; d < tensor->ndim; d++)
            fprintf(out, d ? ", %zu" : "%zu", tensor->dim[d]);
        fprintf(out, "], \"codec\": \"%s\", \"why\": \"%s\"}",
                choice.coder ? choice.coder->spec : "raw", why);
    }
    fputs("]}", out);
}
