/* SPDX-License-Identifier: Apache-2.0 */
/* Encode and decode for families whose payload is a row of independent blocks of fixed
 * size.
 */
#ifndef GW_BLOCKWISE_H
#define GW_BLOCKWISE_H

#include "codecs.h"

/*
 * What such a family tells about itself: the arithmetic on binary32, in whole blocks but for the
 * last one. `spec` is the family's own. Payloads of parts that are multiples of the grain lie one
 * behind the other.
 */
typedef struct gw_blockwise {
    const void *spec;
    size_t grain; /* elements of a block; divides GW_BLOCK or is less than it */
    size_t (*bytes)(const void *spec, size_t count);
    size_t (*encode)(const void *spec, const float *src, float *residual, size_t count,
                     uint64_t first, uint64_t key, uint8_t *dst);
    bool (*valid)(const void *spec, const uint8_t *payload, size_t count);
    void (*store)(const void *spec, const uint8_t *payload, size_t count, uint64_t first,
                  float *dst);
    void (*add)(const void *spec, const uint8_t *payload, size_t count, uint64_t first, float *dst);
} gw_blockwise_t;

/*
 * The members of the contract (include/gradwire/codec.h), with its statuses. 16-bit types go
 * through binary32 in steps of at most GW_BLOCK elements, so that nothing is allocated.
 */
gw_status_t gw__blockwise_encode(const gw_blockwise_t *b, gw_encode_t *in, uint8_t *dst,
                                 size_t capacity, size_t *length);
gw_status_t gw__blockwise_decode(const gw_blockwise_t *b, const gw_decode_t *in);

#endif
