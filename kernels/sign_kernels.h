/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel family sign: one bit an element and a scale per bucket (layout: codecs/README.md). */
#ifndef GW_SIGN_KERNELS_H
#define GW_SIGN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inline.h"

#define GW_SIGN_BUCKET_MAX 4096
#define GW_SIGN_GROUP      32 /* elements that share a bit of the zero mask */

typedef struct gw_sign_spec {
    unsigned bucket; /* elements; a multiple of GW_SIGN_GROUP, at most GW_SIGN_BUCKET_MAX */
} gw_sign_spec_t;

static GW_INLINE size_t gw__sign_groups(size_t n)
{
    return (n + GW_SIGN_GROUP - 1) / GW_SIGN_GROUP;
}

/* Where the signs begin in a bucket of n elements: behind the scale and the zero mask. */
static GW_INLINE size_t gw__sign_meta_bytes(size_t n)
{
    return 4 + (gw__sign_groups(n) + 7) / 8;
}

/* Bytes of a bucket of n elements, n > 0 (n = bucket except in the last one). */
static GW_INLINE size_t gw__sign_bytes(size_t n)
{
    return gw__sign_meta_bytes(n) + (n + 7) / 8;
}

typedef struct gw_sign_kernels {
    /* Encodes count elements; residual (may be NULL) is added first and replaced by what was lost,
     * except in buckets with a NaN or an Inf. Returns how many buckets hold one. */
    size_t (*encode)(const gw_sign_spec_t *spec, const float *src, float *residual, size_t count,
                     uint8_t *dst);
    /* Whether an encoder can have written the scales, and all bits that have no meaning are 0. */
    bool (*valid)(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count);
    /* dst = decoded; dst += decoded. The payload must be valid. */
    void (*store)(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count, float *dst);
    void (*add)(const gw_sign_spec_t *spec, const uint8_t *payload, size_t count, float *dst);
} gw_sign_kernels_t;

#endif
