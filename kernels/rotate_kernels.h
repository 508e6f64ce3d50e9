/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel family rotate: rotated blocks at Lloyd-Max levels (layout: codecs/README.md). */
#ifndef GW_ROTATE_KERNELS_H
#define GW_ROTATE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inline.h"

#define GW_ROTATE_BLOCK_MIN  64
#define GW_ROTATE_BLOCK_MAX  4096
#define GW_ROTATE_TAIL_MIN   8 /* elements that the last block is filled up to at least */
#define GW_ROTATE_META_BYTES 4

typedef struct gw_rotate_spec {
    unsigned bits;  /* 1 to 8 */
    unsigned block; /* elements; a power of two, GW_ROTATE_BLOCK_MIN to GW_ROTATE_BLOCK_MAX */
    uint32_t seed;  /* of the signs */
    bool unbiased;  /* the scale: unbiased over the signs, or of least squared error */
} gw_rotate_spec_t;

/* Elements of a block of n once it is filled up with zeros: a power of two. */
static GW_INLINE size_t gw__rotate_padded(size_t n)
{
    size_t m = GW_ROTATE_TAIL_MIN;
    while (m < n)
        m *= 2;
    return m;
}

/* Bytes of a block of n elements, n > 0 (n = block except in the last one). */
static GW_INLINE size_t gw__rotate_bytes(unsigned bits, size_t n)
{
    return GW_ROTATE_META_BYTES + gw__rotate_padded(n) * bits / 8;
}

typedef struct gw_rotate_kernels {
    /* Encodes count elements; residual (may be NULL) is added first and replaced by what was lost,
     * except in blocks with a NaN or an Inf. Returns how many blocks hold one. */
    size_t (*encode)(const gw_rotate_spec_t *spec, const float *src, float *residual, size_t count,
                     uint8_t *dst);
    /* Whether an encoder can have written the scales. */
    bool (*valid)(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count);
    /* dst = decoded; dst += decoded. The payload must be valid. */
    void (*store)(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count, float *dst);
    void (*add)(const gw_rotate_spec_t *spec, const uint8_t *payload, size_t count, float *dst);
} gw_rotate_kernels_t;

#endif
