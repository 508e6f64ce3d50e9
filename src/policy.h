/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the decision that the communicator uses too. */
#ifndef GW_POLICY_H
#define GW_POLICY_H

#include <gradwire/layout.h>

#include "plan.h"
#include "rules.h"
#include "settings.h"

/* How a call of `size` ranks, whose encoded form takes `encoded_bytes` on each, is split. What
 * cannot be merged is split as by `auto` where ring or tree is set: elements of 16 bits, which
 * travel as they are. */
gw_plan_kind_t gw__policy_plan(const gw__settings_t *settings, const gw_coder_t *coder,
                               gw_dtype_t dtype, int size, size_t encoded_bytes);

/* The plan of a call that goes with this codec (NULL: uncompressed); of its factors where it sums
 * those. */
gw_plan_kind_t gw__policy_plan_of(const gw__settings_t *settings, const gw_coder_t *coder,
                                  const gw_call_t *call, int size);

/* gw_decide with a layout instead of that of GRADWIRE_LAYOUT; NULL: none. */
gw_decision_t gw__policy_decide(const gw_context_t *context, const gw_call_t *call,
                                const gw_comm_facts_t *facts, const gw_layout_t *layout);

/* What a call does with one tensor of its buffer, and why. */
typedef struct gw__choice {
    const gw_coder_t *coder;  /* owned by the context; NULL: exact */
    const gw__rule_t *rule;   /* that named the tensor, or NULL: the default for its shape, */
    bool one_dimension, tiny; /* for which it is exact, or the codec of the call, */
    bool no_gain;             /* unless that is for matrices and would not make it smaller */
} gw__choice_t;

/* tensor NULL: of elements that no tensor describes, which go as the call would without a layout,
 * or exact where that codec is for matrices. Pure. */
gw__choice_t gw__policy_tensor(const gw_context_t *context, const gw_call_t *call,
                               const gw_comm_facts_t *facts, const gw_tensor_t *tensor);

/* The reason of a choice, for people. */
void gw__choice_why(const gw__choice_t *choice, char *out, size_t size);

/* False for a codec that sums factors when the matrix is too small for that to gain. */
bool gw__policy_gains(const gw_coder_t *coder, const gw_call_t *call);

#endif
