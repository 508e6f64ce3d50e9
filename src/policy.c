/* SPDX-License-Identifier: Apache-2.0 */
/* The decision on one call: a pure function of facts that are equal on all ranks. */
#include "policy.h"

#include <stdio.h>

#include "context_internal.h"
#include "factors.h"

/* Below this many bytes sent per rank a second round trip costs more than the bytes that it saves.
 */
enum { GATHER_BYTES = 32 * 1024 };

gw_plan_kind_t gw__policy_plan(const gw__settings_t *settings, int size, size_t encoded_bytes)
{
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
    gw_factor_sizes_t s;
    if (!coder->family->factors)
        return gw_frame_bound(coder, call->dtype, call->count);
    gw__factors_serve(coder, call->dtype, call->count, call->rows, &s);
    return sizeof(float) * (s.first > s.second ? s.first : s.second);
}

gw_decision_t gw_decide(const gw_context_t *context, const gw_call_t *call,
                        const gw_comm_facts_t *facts)
{
    const gw__settings_t *settings = &context->settings;
    const gw_coder_t *coder = &settings->coder;
    gw_decision_t decision = {.reason = check(settings, call, facts)};
    if (decision.reason == GW_REASON_NONE) {
        const gw__rule_t *rule = rule_of(context, call, facts);
        if (rule)
            coder = &rule->coder;
        if ((rule && rule->exclude) || coder->family->id == 0)
            decision.reason = GW_REASON_EXCLUDED;
        else if (!gw__policy_gains(coder, call))
            decision.reason = GW_REASON_TOO_SMALL;
    }
    decision.compress = decision.reason == GW_REASON_NONE;
    decision.coder = decision.compress ? coder : NULL;
    size_t bytes =
        decision.compress ? exchanged(coder, call) : call->count * gw_dtype_size(call->dtype);
    decision.plan = gw__policy_plan(settings, facts->size, bytes);
    return decision;
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
    if (decision->compress)
        snprintf(out + used, size - (size_t)used, "%s %s%s", decision->coder->spec,
                 gw__plan_kind_name(decision->plan), rule);
    else
        snprintf(out + used, size - (size_t)used, "passed (%s)%s", gw_reason_name(decision->reason),
                 rule);
}
