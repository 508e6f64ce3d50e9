/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the decision that the communicator uses too. */
#ifndef GW_POLICY_H
#define GW_POLICY_H

#include "plan.h"
#include "settings.h"

/* How a call of `size` ranks, whose encoded form takes `encoded_bytes` on each, is split. What
 * cannot be merged is split as by `auto` where ring or tree is set: elements of 16 bits, which
 * travel as they are. */
gw_plan_kind_t gw__policy_plan(const gw__settings_t *settings, const gw_coder_t *coder,
                               gw_dtype_t dtype, int size, size_t encoded_bytes);

#endif
