/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the codec families cast, fp8 and fp4: shorter floating-point numbers. */
#ifndef GW_FLOAT_KERNELS_H
#define GW_FLOAT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inline.h"

typedef enum gw_float_format {
    GW_FLOAT_FP16,
    GW_FLOAT_BF16,
    GW_FLOAT_E4M3,
    GW_FLOAT_E5M2,
    GW_FLOAT_MXFP4,
    GW_FLOAT_NVFP4
} gw_float_format_t;

enum {
    GW_FLOAT_BLOCK_MAX = 4096,
    GW_FP8_META_BYTES = 2, /* scale of a block, bfloat16 */
    GW_MXFP4_BLOCK = 32,   /* elements that share a scale of one byte */
    GW_NVFP4_BLOCK = 16,
    GW_NVFP4_META_BYTES = 4 /* scale of a group, binary32 */
};

/* What a call codes with. Layouts: codecs/README.md. */
typedef struct gw_float_spec {
    gw_float_format_t format;
    unsigned block; /* fp8: elements that share a scale, a multiple of 32; fp4: elements whose
                       scales lie together before their codes, a multiple of 512; cast: not used.
                       At most GW_FLOAT_BLOCK_MAX. */
} gw_float_spec_t;

/* Bytes of n elements of one block: n = spec->block except in the last one. */
static GW_INLINE size_t gw__float_bytes(const gw_float_spec_t *spec, size_t n)
{
    switch (spec->format) {
    case GW_FLOAT_FP16:
    case GW_FLOAT_BF16:
        return 2 * n;
    case GW_FLOAT_E4M3:
    case GW_FLOAT_E5M2:
        return GW_FP8_META_BYTES + n;
    case GW_FLOAT_MXFP4:
        return (n + GW_MXFP4_BLOCK - 1) / GW_MXFP4_BLOCK + (n + 1) / 2;
    default:
        return GW_NVFP4_META_BYTES + (n + GW_NVFP4_BLOCK - 1) / GW_NVFP4_BLOCK + (n + 1) / 2;
    }
}

typedef size_t (*gw_float_encode_fn)(const gw_float_spec_t *spec, const float *src, float *residual,
                                     size_t count, uint8_t *dst);
typedef bool (*gw_float_valid_fn)(const gw_float_spec_t *spec, const uint8_t *payload,
                                  size_t count);
typedef void (*gw_float_decode_fn)(const gw_float_spec_t *spec, const uint8_t *payload,
                                   size_t count, float *dst);

typedef struct gw_float_kernels {
    /* Encodes count elements; residual (may be NULL) is added first and replaced by what was lost,
     * except in blocks with a NaN or an Inf. Returns how many blocks hold a NaN or an Inf. */
    gw_float_encode_fn encode;
    /* Whether an encoder can have written these scales and this padding, for all blocks. */
    gw_float_valid_fn valid;
    /* dst = decoded; dst += decoded. The payload must be valid. */
    gw_float_decode_fn store, add;
} gw_float_kernels_t;

#endif
