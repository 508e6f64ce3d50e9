/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the decision that the communicator uses too. */
#ifndef GW_POLICY_H
#define GW_POLICY_H

#include "plan.h"
#include "settings.h"

/* How a call of `size` ranks, whose encoded form takes `encoded_bytes` on each, is split. */
gw_plan_kind_t gw__policy_plan(const gw__settings_t *settings, int size, size_t encoded_bytes);

/* False for a codec that sums factors when the matrix is too small for that to gain. */
bool gw__policy_gains(const gw_coder_t *coder, const gw_call_t *call);

#endif
