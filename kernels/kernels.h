/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel families and their dispatch: one table of functions, filled tier by tier. */
#ifndef GW_KERNELS_H
#define GW_KERNELS_H

#include <gradwire/types.h>

#include "block_kernels.h"
#include "float_kernels.h"
#include "inline.h"
#include "lossless_kernels.h"
#include "lowrank_kernels.h"
#include "natural_kernels.h"
#include "rotate_kernels.h"
#include "sign_kernels.h"
#include "topk_kernels.h"

/*
 * All kernels: no state, no allocation, no log; any thread. Every tier gives the same bytes as
 * ref/, whatever rounding or flush-to-zero mode the calling thread has set (they set the default
 * mode for their own time and restore the caller's). Pointers to `void` and `uint8_t` need no
 * alignment, pointers to float need that of float. Counts are elements and may be 0.
 */

/* ---- quant: max-min quantisation in buckets (layout: codecs/README.md) ------------------------
 */

#define GW_QUANT_BUCKET_MAX 4096
#define GW_QUANT_META_BYTES 8

typedef struct gw_quant_spec {
    unsigned bits;   /* 1 to 8 */
    unsigned bucket; /* elements; a multiple of 32, at most GW_QUANT_BUCKET_MAX */
    bool stochastic;
    bool zero; /* shift the grid so that 0 is one of its points, where the bucket spans 0 */
} gw_quant_spec_t;

/* Bytes of a bucket of n elements (n = bucket except in the last one). */
static GW_INLINE size_t gw__quant_bytes(unsigned bits, size_t n)
{
    return GW_QUANT_META_BYTES + (n * bits + 7) / 8;
}

/* Contributions to the same elements, in order of rank: payloads, and between them own elements. */
typedef struct gw_quant_sum {
    const float *own;
    size_t own_at;                 /* how many payloads come before `own` */
    const uint8_t *const *payload; /* behind `skip` bytes; trust nothing in them */
    size_t payloads, skip;
    float scale; /* of the sum; 1: none */
} gw_quant_sum_t;

typedef struct gw_quant_kernels {
    /* Encodes count elements; residual (may be NULL) is added first and replaced by what was lost,
     * except in buckets with a NaN or an Inf. `first` is the index of src[0] in the call, a
     * multiple of the bucket. Returns how many buckets hold a NaN or an Inf. */
    size_t (*encode)(const gw_quant_spec_t *spec, const float *src, float *residual, size_t count,
                     uint64_t first, uint64_t key, uint8_t *dst);
    /* Whether an encoder can have written this metadata and padding, for all buckets. */
    bool (*valid)(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count);
    /* dst = decoded; dst += decoded. The payload must be valid. */
    void (*store)(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst);
    void (*add)(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst);
    /* Encodes the sum of all contributions, bucket by bucket: the bytes, the residual and the count
     * that store or a copy for the first, add for the rest, scale and encode would give. dst may
     * not overlap a payload. *refused is the index of the first payload that is not valid, or the
     * number of payloads; at the first such bucket the work ends, with what is before it done. */
    size_t (*reduce)(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum, float *residual,
                     size_t count, uint64_t first, uint64_t key, uint8_t *dst, size_t *refused);
} gw_quant_kernels_t;

/* ---- cast: between binary32 and the 16-bit formats, to nearest even ----------------------------
 */

typedef struct gw_cast_kernels {
    void (*f16_to_f32)(const void *src, void *dst, size_t count);
    void (*f32_to_f16)(const void *src, void *dst, size_t count);
    void (*bf16_to_f32)(const void *src, void *dst, size_t count);
    void (*f32_to_bf16)(const void *src, void *dst, size_t count);
    /* For codec cast: a finite number stays finite (the greatest one of its sign). Every element is
     * a block of its own: NaN and Inf are cast where they are. Any payload is valid; store is a
     * cast. */
    gw_float_encode_fn encode;
    gw_float_decode_fn add;
    /* For residuals that are kept as bfloat16: to one of the two neighbours by chance, so that the
     * mean is right (gw__stochastic_bf16). `first`: index of src[0] in the call. */
    void (*bf16_stochastic)(const float *src, void *dst, size_t count, uint64_t first,
                            uint64_t key);
} gw_cast_kernels_t;

/* ---- sum: of binary32 arrays; a result that is NaN is GW_NAN_BITS ------------------------------
 */

typedef struct gw_sum_kernels {
    void (*add)(float *dst, const void *src, size_t count); /* dst = dst + src */
    void (*scale)(float *dst, float factor, size_t count);  /* dst = dst * factor */
} gw_sum_kernels_t;

/* The one quiet NaN that kernels make. */
#define GW_NAN_BITS 0x7FC00000u

typedef struct gw_kernels {
    const char *tier; /* "ref", "avx2", "avx512" */
    gw_quant_kernels_t quant;
    gw_cast_kernels_t cast;
    gw_sum_kernels_t sum;
    gw_float_kernels_t fp8; /* GW_FLOAT_E4M3, GW_FLOAT_E5M2 */
    gw_float_kernels_t fp4; /* GW_FLOAT_MXFP4, GW_FLOAT_NVFP4 */
    gw_lossless_kernels_t lossless;
    gw_topk_kernels_t topk;
    gw_block_kernels_t block;
    gw_sign_kernels_t sign;
    gw_rotate_kernels_t rotate;
    gw_natural_kernels_t natural;
    gw_lowrank_kernels_t lowrank;
} gw_kernels_t;

/* ---- Dispatch -----------------------------------------------------------------------------------
 */

/* The table in use: the best one until gw__kernels_select() says otherwise. Never NULL. */
const gw_kernels_t *gw__kernels(void);

/*
 * Chooses the tier of this process by name; NULL or "best": the fastest that this CPU can run. On
 * an error nothing changes and `why` (may be NULL) tells the reason: GW_ERR_NOT_FOUND for a name
 * that no tier has, GW_ERR_UNSUPPORTED for a tier that this CPU or build lacks. Any thread; calls
 * under way finish on the table they began with, which gives the same bytes.
 */
gw_status_t gw__kernels_select(const char *tier, char *why, size_t why_size);

/* Name of the tier in use. */
const char *gw__kernels_tier(void);

/* The i-th tier that can run here, in order of speed, "ref" first; NULL behind the last one. */
const char *gw__kernels_available(size_t i);

/* The i-th tier that Gradwire knows on any machine, in the same order; NULL behind the last one. */
const char *gw__kernels_known(size_t i);

/* The table of a tier without selecting it; NULL when it cannot run here. */
const gw_kernels_t *gw__kernels_of(const char *tier);

/* Each tier overwrites what it does better and returns true, or leaves the table when the CPU lacks
 * a feature. */
void gw__kernels_fill_ref(gw_kernels_t *table);
bool gw__kernels_fill_avx2(gw_kernels_t *table);
bool gw__kernels_fill_avx512(gw_kernels_t *table);

#endif
