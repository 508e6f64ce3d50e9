/* SPDX-License-Identifier: Apache-2.0 */
/* Sum and encode for every family of fixed payload size, out of its decode() and encode(). */
#ifndef GW_REDUCE_H
#define GW_REDUCE_H

#include "codecs.h"

/*
 * Work goes in slices of whole grains, so that what has been summed stays near: each contribution
 * is decoded into the sum of a slice, and the slice is encoded. A slice of a payload is the payload
 * of the slice, wherever the size follows from the count (GW_CODEC_FIXED). A payload is checked
 * slice by slice, each before it is added.
 */

/* Whether that is possible, and elements of a slice then. */
bool gw__reduce_cuts(const gw_coder_t *coder);
size_t gw__reduce_slice(const gw_coder_t *coder);

/* reduce() of the contract; `sum` has room for a slice. */
gw_status_t gw__reduce_slices(const gw_coder_t *coder, gw_reduce_t *in, float *sum, uint8_t *dst,
                              size_t capacity, size_t *length);

/* The same as a member of the contract, for grains of at most GW_BLOCK: the sum is on the stack. */
gw_status_t gw__reduce_small(const gw_coder_t *coder, gw_reduce_t *in, uint8_t *dst,
                             size_t capacity, size_t *length);

#endif
