/* SPDX-License-Identifier: Apache-2.0 */
/* The decision on one call: a pure function of facts that are equal on all ranks. */
#include "policy.h"

#include <stdio.h>

#include "context_internal.h"
#include "factors.h"
#include "frame.h"

/* Below this many bytes sent per rank a second round trip costs more than the bytes that it saves.
 */
enum { GATHER_BYTES = 32 * 1024 };

gw_plan_kind_t gw__policy_plan(const gw__settings_t *settings, const gw_coder_t *coder,
                               gw_dtype_t dtype, int size, size_t encoded_bytes)
{
    if (settings->plan >= GW__PLAN_ONLY_RING && gw__frame_merges(coder, dtype))
        return settings->plan == GW__PLAN_ONLY_RING ? GW_PLAN_RING : GW_PLAN_TREE;
    if (settings->plan == GW__PLAN_ONLY_DIRECT)
        return GW_PLAN_DIRECT;
    if (settings->plan == GW__PLAN_ONLY_GATHER)
        return GW_PLAN_GATHER;
    /* Two ranks send the same bytes either way, and gather takes one round and encodes once. */
    if (size <= 2 || encoded_bytes <= GATHER_BYTES / (size_t)(size - 1))
        return GW_PLAN_GATHER;
    return GW_PLAN_DIRECT;
}

static gw_reason_t check(const gw__settings_t *settings, const gw_call_t *call,
                         const gw_comm_facts_t *facts)
{
    if (settings->disabled)
        return GW_REASON_DISABLED;
    if (facts->intercomm)
        return GW_REASON_INTERCOMM;
    if (facts->size <= 1)
        return GW_REASON_SINGLE_RANK;
    if (call->dtype == GW_DTYPE_USER)
        return GW_REASON_DATATYPE_USER;
    if (call->op == GW_OP_USER)
        return GW_REASON_OP_USER;
    if (call->dtype != GW_F32 && call->dtype != GW_F16 && call->dtype != GW_BF16)
        return GW_REASON_DTYPE;
    if (call->op != GW_SUM && call->op != GW_AVG)
        return GW_REASON_OP;
    if (call->count == 0)
        return GW_REASON_ZERO_COUNT;
    if (call->count > (SIZE_MAX >> 4))
        return GW_REASON_UNSUPPORTED_CALL;
    if (call->count * gw_dtype_size(call->dtype) < settings->min_bytes)
        return GW_REASON_TOO_SMALL;
    if (facts->mismatch)
        return GW_REASON_MISMATCH;
    return GW_REASON_NONE;
}

/* The rule that decides on an eligible call, or NULL: GRADWIRE_CODEC does. */
static const gw__rule_t *rule_of(const gw_context_t *context, const gw_call_t *call,
                                 const gw_comm_facts_t *facts)
{
    return gw__rules_match(&context->rules, call, facts);
}

bool gw__policy_gains(const gw_coder_t *coder, const gw_call_t *call)
{
    gw_factor_sizes_t sizes;
    return !coder->family->factors ||
           gw__factors_serve(coder, call->dtype, call->count, call->rows, &sizes);
}

/* Bytes of one exchange of a call: of all elements, or of the larger one of two factors. */
static size_t exchanged(const gw_coder_t *coder, const gw_call_t *call)
{
    gw_factor_sizes_t s = {.first = 0};
    if (!coder->family->factors)
        return gw_frame_bound(coder, call->dtype, call->count);
    gw__factors_serve(coder, call->dtype, call->count, call->rows, &s);
    return sizeof(float) * (s.first > s.second ? s.first : s.second);
}

gw_plan_kind_t gw__policy_plan_of(const gw__settings_t *settings, const gw_coder_t *coder,
                                  const gw_call_t *call, int size)
{
    const gw_coder_t raw = {.family = gw_codec_by_id(0)}; /* carries factors, and what is plain */
    if (!coder)
        return gw__policy_plan(settings, &raw, call->dtype, size,
                               call->count * gw_dtype_size(call->dtype));
    return coder->family->factors
               ? gw__policy_plan(settings, &raw, GW_F32, size, exchanged(coder, call))
               : gw__policy_plan(settings, coder, call->dtype, size, exchanged(coder, call));
}

/* The codec that a rule (NULL: GRADWIRE_CODEC) gives, or NULL: none. */
static const gw_coder_t *codec_of(const gw_context_t *context, const gw__rule_t *rule)
{
    const gw_coder_t *coder = rule ? &rule->coder : &context->settings.coder;
    return (rule && rule->exclude) || coder->family->id == 0 ? NULL : coder;
}

/* Whether a codec makes a tensor (NULL: elements of none) smaller; all do that are not for
 * matrices.
 */
static bool gains_on(const gw_coder_t *coder, const gw_call_t *call, const gw_tensor_t *tensor)
{
    if (!(coder->family->flags & GW_CODEC_MATRIX))
        return true;
    gw_call_t part = *call;
    part.count = tensor ? gw__tensor_elements(tensor) : 0;
    part.rows = tensor && tensor->ndim >= 2 ? tensor->dim[0] : 0;
    return tensor && gw__policy_gains(coder, &part);
}

gw__choice_t gw__policy_tensor(const gw_context_t *context, const gw_call_t *call,
                               const gw_comm_facts_t *facts, const gw_tensor_t *tensor)
{
    gw__choice_t choice = {0};
    const gw__rule_t *rule = tensor ? gw__rules_match_tensor(&context->rules, call, facts, tensor)
                                    : rule_of(context, call, facts);
    if (rule && gw__rule_names_tensors(rule)) {
        choice.rule = rule;
    } else if (tensor) {
        choice.one_dimension = tensor->ndim <= 1;
        choice.tiny = gw__tensor_elements(tensor) < GW_LAYOUT_TINY;
    }
    choice.coder = choice.one_dimension || choice.tiny ? NULL : codec_of(context, rule);
    choice.no_gain = choice.coder && !gains_on(choice.coder, call, tensor);
    if (choice.no_gain)
        choice.coder = NULL;
    return choice;
}

void gw__choice_why(const gw__choice_t *choice, char *out, size_t size)
{
    if (choice->no_gain)
        snprintf(out, size, "no matrix that factors would make smaller");
    else if (choice->rule)
        snprintf(out, size, "line %d of GRADWIRE_CONFIG", choice->rule->line);
    else if (choice->one_dimension)
        snprintf(out, size, "one dimension");
    else if (choice->tiny)
        snprintf(out, size, "fewer than %d elements", GW_LAYOUT_TINY);
    else
        snprintf(out, size, "codec of the call");
}

gw_status_t gw_layout_choice(const gw_context_t *context, const gw_layout_t *layout,
                             const gw_call_t *call, const gw_comm_facts_t *facts, size_t i,
                             gw_tensor_choice_t *out)
{
    gw_tensor_t tensor;
    if (!context || !call || !facts || gw_layout_tensor(layout, i, &tensor) != GW_OK)
        return GW_ERR_NOT_FOUND;
    gw__choice_t choice = gw__policy_tensor(context, call, facts, &tensor);
    out->coder = choice.coder;
    gw__choice_why(&choice, out->why, sizeof out->why);
    return GW_OK;
}

/* The codec of the first part of the buffer that is not exact, or NULL: all of it is. */
static const gw_coder_t *first_codec(const gw_context_t *context, const gw_call_t *call,
                                     const gw_comm_facts_t *facts, const gw_layout_t *layout)
{
    size_t end = 0;
    const gw_coder_t *coder = NULL;
    for (size_t i = 0; i < layout->count && !coder; i++) {
        const gw_tensor_t *tensor = &layout->tensor[i];
        if (tensor->offset > end)
            coder = gw__policy_tensor(context, call, facts, NULL).coder;
        if (!coder)
            coder = gw__policy_tensor(context, call, facts, tensor).coder;
        end = tensor->offset + gw__tensor_elements(tensor);
    }
    return coder || end == layout->elements ? coder
                                            : gw__policy_tensor(context, call, facts, NULL).coder;
}

gw_decision_t gw__policy_decide(const gw_context_t *context, const gw_call_t *call,
                                const gw_comm_facts_t *facts, const gw_layout_t *layout)
{
    const gw__settings_t *settings = &context->settings;
    const gw_coder_t *coder = NULL;
    gw_decision_t decision = {.reason = check(settings, call, facts)};
    if (decision.reason == GW_REASON_NONE) {
        coder = layout ? first_codec(context, call, facts, layout)
                       : codec_of(context, rule_of(context, call, facts));
        if (!coder)
            decision.reason = GW_REASON_EXCLUDED;
        else if (!layout && !gw__policy_gains(coder, call))
            decision.reason = GW_REASON_TOO_SMALL;
    }
    decision.compress = decision.reason == GW_REASON_NONE;
    decision.layout = decision.compress ? layout : NULL;
    decision.coder = decision.compress ? coder : NULL;
    decision.plan = gw__policy_plan_of(settings, decision.coder, call, facts->size);
    return decision;
}

gw_decision_t gw_decide(const gw_context_t *context, const gw_call_t *call,
                        const gw_comm_facts_t *facts)
{
    return gw__policy_decide(context, call, facts,
                             gw__layouts_find(&context->layouts, call->count, facts->slot));
}

void gw_decision_print(const gw_context_t *context, const gw_call_t *call,
                       const gw_comm_facts_t *facts, const gw_decision_t *decision, char *out,
                       size_t size)
{
    static const char *const ops[] = {"sum", "avg"};
    const char *op = call->op == GW_OP_USER ? "user op"
                     : call->op <= GW_AVG   ? ops[call->op]
                                            : "other op";
    int used = snprintf(out, size, "allreduce %s %s %zu x %d ranks: ", gw_dtype_name(call->dtype),
                        op, call->count, facts->size);
    if (used < 0 || (size_t)used >= size)
        return;
    char rule[48] = "";
    if (decision->compress || decision->reason == GW_REASON_EXCLUDED) {
        const gw__rule_t *found = rule_of(context, call, facts);
        if (found)
            snprintf(rule, sizeof rule, " (line %d of GRADWIRE_CONFIG)", found->line);
    }
    if (decision->layout)
        snprintf(out + used, size - (size_t)used, "%zu tensors, %s and others",
                 decision->layout->count, decision->coder->spec);
    else if (decision->compress)
        snprintf(out + used, size - (size_t)used, "%s %s%s", decision->coder->spec,
                 gw_plan_name(decision->plan), rule);
    else
        snprintf(out + used, size - (size_t)used, "passed (%s)%s", gw_reason_name(decision->reason),
                 rule);
}
