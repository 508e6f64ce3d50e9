/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of gw_factor_ops_t as a check. */
#ifndef CONTRACT_FACTORS_H
#define CONTRACT_FACTORS_H

#include "contract.h"

/*
 * Plays three ranks by hand, on every tier: one has the data, one what lay in the residual, one
 * rows of both, each with a residual and warm state of its own or none. True: nothing is broken.
 * Otherwise *property is one of the words of contract_properties, and `text` says what.
 */
bool contract_factors(const gw_coder_t *coder, const contract_data_t *data, const char **property,
                      char *text, size_t size);

#endif
