/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel family natural: levels that are powers of two (layout: codecs/README.md). */
#ifndef GW_NATURAL_KERNELS_H
#define GW_NATURAL_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inline.h"

#define GW_NATURAL_BUCKET_MAX 4096
#define GW_NATURAL_GROUP      32 /* buckets are multiples of it */
#define GW_NATURAL_BITS_LEAST 2
#define GW_NATURAL_BITS_MOST  5

/* What the greatest level of a bucket is. */
typedef enum gw_natural_rule {
    GW_NATURAL_POWERS, /* there is none: every power of two is a level */
    GW_NATURAL_NORM,   /* the L2 norm of the bucket */
    GW_NATURAL_MOST,   /* its greatest magnitude */
    GW_NATURAL_CLIP    /* that, but at most `clip` times the root of its mean square */
} gw_natural_rule_t;

typedef struct gw_natural_spec {
    gw_natural_rule_t rule; /* decoders only ask whether it is GW_NATURAL_POWERS */
    unsigned bits;          /* 2 to 5, sign included; not used by GW_NATURAL_POWERS */
    unsigned bucket;        /* elements; a multiple of 32, at most GW_NATURAL_BUCKET_MAX */
    bool stochastic;        /* else to the nearest level, ties away from 0 */
    float clip;
} gw_natural_spec_t;

/* Bytes of a bucket of n elements, n > 0 (n = bucket except in the last one). */
static GW_INLINE size_t gw__natural_bytes(const gw_natural_spec_t *spec, size_t n)
{
    return spec->rule == GW_NATURAL_POWERS ? n + (n + 7) / 8 : 4 + (n * spec->bits + 7) / 8;
}

typedef struct gw_natural_kernels {
    /* Encodes count elements; residual (may be NULL) is added first and replaced by what was lost,
     * except in buckets with a NaN or an Inf; with GW_NATURAL_POWERS, except where one is. `first`
     * is the index of src[0] in the call, a multiple of the bucket. Returns how many buckets (with
     * GW_NATURAL_POWERS: elements) are not finite. */
    size_t (*encode)(const gw_natural_spec_t *spec, const float *src, float *residual, size_t count,
                     uint64_t first, uint64_t key, uint8_t *dst);
    /* Whether an encoder can have written the scales, and all bits that have no meaning are 0. */
    bool (*valid)(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count);
    /* dst = decoded; dst += decoded. The payload must be valid. */
    void (*store)(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count, float *dst);
    void (*add)(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count, float *dst);
} gw_natural_kernels_t;

#endif
