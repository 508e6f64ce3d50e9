/* SPDX-License-Identifier: Apache-2.0 */
/* The codec contract as a check that any family can be put through, and what it is put through
 * with. */
#ifndef CONTRACT_H
#define CONTRACT_H

#include <gradwire/codec.h>

#include "quant_fill.h"

/* One input: elements as the wire's type can hold them. */
typedef struct contract_data {
    gw_dtype_t src_dtype, wire_dtype;
    size_t count;
    const char *fill;
    bool finite;
    float *x;        /* the elements in binary32 */
    void *src;       /* the elements in src_dtype */
    float *residual; /* what a call before left */
} contract_data_t;

/* The first thing that was broken: one of the words of contract_properties, and a sentence. */
typedef struct contract_report {
    const char *property;
    char text[512];
} contract_report_t;

extern const char *const contract_properties[]; /* ended by NULL */

/* The i-th kind of data, NULL behind the last one. */
const char *contract_fill_name(size_t i);

/* Makes data of kind `fill` to be released by contract_release. */
contract_data_t contract_make(gw_dtype_t src_dtype, gw_dtype_t wire_dtype, size_t count,
                              size_t fill, uint64_t seed);
void contract_release(contract_data_t *data);

/* Puts a coder through the whole contract on every tier; the best tier is in use afterwards. True:
 * nothing is broken. */
bool contract_check(const gw_coder_t *coder, const contract_data_t *data,
                    contract_report_t *report);

/* The names of a family, each with its defaults and with every parameter changed, one at a time;
 * what check() refuses is tried with force=1. Returns how many, at most `room`. */
size_t contract_variants(const gw_codec_t *family, gw_coder_t *out, size_t room);

#endif
