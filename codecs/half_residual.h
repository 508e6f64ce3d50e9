/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding with a residual that is kept in 16 bits. */
#ifndef GW_HALF_RESIDUAL_H
#define GW_HALF_RESIDUAL_H

#include "codecs.h"

/*
 * A residual in bfloat16 takes half the memory. What is added is what is kept, exactly; what is
 * lost is rounded by chance (stochastic rounding), so that the mean of it is right: to the nearest,
 * a residual would stop growing once what is added to it is below half of its last digit. Work goes
 * in slices of whole grains by way of binary32, so families with GW_CODEC_FIXED are served, whose
 * grain is at most 2 * GW_BLOCK, and which keep nothing beside the residual.
 */
bool gw__half_residual_serves(const gw_coder_t *coder);

/*
 * gw__frame_encode and gw__frame_reduce (frame.h) with `residual`, in->count numbers of bfloat16 at
 * any address; in->residual must be NULL. For coders that are served. `lengths` is what in->length
 * points to, and is anything afterwards. After GW_ERR_FRAME_PAYLOAD a part of the residual is new.
 */
gw_status_t gw__frame_encode_half(const gw_coder_t *coder, gw_encode_t *in, void *residual,
                                  bool checksum, uint8_t *dst, size_t capacity, size_t *length);
gw_status_t gw__frame_reduce_half(const gw_coder_t *coder, gw_reduce_t *in, size_t *lengths,
                                  void *residual, bool checksum, float *sum, uint8_t *dst,
                                  size_t capacity, size_t *length);

/* Of the rounding, from that of the encoding. */
static inline uint64_t gw__half_residual_key(uint64_t key)
{
    return key ^ UINT64_C(0x6C6F73742D312D36);
}

#endif
