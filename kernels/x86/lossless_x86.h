/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work of the x86 kernels of lossless. A tier includes it behind its vectors. */
#ifndef GW_LOSSLESS_X86_H
#define GW_LOSSLESS_X86_H

#include <string.h>

#include "lossless_walk.h"
#include "ref.h"
#include "stream.h"

/*
 * 64 elements at a time, as vectors of their upper 16 bits (tops), which hold sign and exponent in
 * every type; the lower 16 bits of binary32 are split off and joined on the way. Integers
 * throughout: no floating-point mode matters. Exponents that are written out are rare, so they go
 * one by one.
 */
enum { STEP = 64 };

/* From the codes of a block to those of one about 20 blocks on, in bytes. */
#define AHEAD_CODES 15400

/* Exponents that are written out behind a block. */
typedef struct far {
    uint8_t exponent[GW_LOSSLESS_BLOCK];
    size_t count;
} far_t;

/* ---- The tier's part ----------------------------------------------------------------------------
 */

INLINE vector_t vector_start(void);
INLINE vector_t vector_of(uint8_t byte);

/* The greater ones of elements, shifted left by one: of those in 64 bytes and the ones so far. */
INLINE vector_t take_greatest(gw_dtype_t dtype, const uint8_t *src, vector_t greatest);
INLINE unsigned greatest_exponent(gw_dtype_t dtype, vector_t greatest);

INLINE bool is_zero_64(const uint8_t *src);

/* Elements i to i + 63 of a block into its parts. */
INLINE void encode_64(gw_dtype_t dtype, vector_t base, const uint8_t *src, size_t i, uint8_t *block,
                      far_t *far);

/* The far codes in 64 bytes. */
INLINE size_t count_far_64(const uint8_t *codes);

/* Elements i to i + 63 of a block to dst; *far moves behind the exponents that they take. */
INLINE void decode_64(gw_dtype_t dtype, vector_t base, const uint8_t *block, size_t i,
                      const uint8_t **far, uint8_t *dst);

/* ---- Encoding -----------------------------------------------------------------------------------
 */

INLINE unsigned greatest_of(gw_dtype_t dtype, const uint8_t *src)
{
    vector_t greatest = vector_start();
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK * gw__lossless_wide(dtype); i += 64) {
        prefetch(src + i, 64);
        greatest = take_greatest(dtype, src + i, greatest);
    }
    return greatest_exponent(dtype, greatest);
}

/* Whether a block without exponents has no bits at all. */
INLINE bool is_zero(gw_dtype_t dtype, const uint8_t *src)
{
    bool zero = true;
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK * gw__lossless_wide(dtype); i += 64)
        zero &= is_zero_64(src + i);
    return zero;
}

INLINE size_t encode_block(gw_dtype_t dtype, const uint8_t *src, uint8_t *dst)
{
    const gw_lossless_at_t at = gw__lossless_at(dtype, GW_LOSSLESS_BLOCK);
    unsigned greatest = greatest_of(dtype, src);
    if (greatest == 0 && is_zero(dtype, src))
        return gw__lossless_put_zeros(dst);
    vector_t base = vector_of((uint8_t)greatest);
    far_t far;
    far.count = 0;
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK; i += STEP) {
        prefetch(dst + i * at.far / GW_LOSSLESS_BLOCK, at.far * STEP / GW_LOSSLESS_BLOCK);
        encode_64(dtype, base, src + i * gw__lossless_wide(dtype), i, dst, &far);
    }
    if (!gw__lossless_pays(dtype, GW_LOSSLESS_BLOCK, far.count))
        return gw__lossless_put_raw(dtype, src, GW_LOSSLESS_BLOCK, dst);
    dst[0] = (uint8_t)greatest;
    dst[1] = (uint8_t)far.count;
    memcpy(dst + at.far, far.exponent, far.count);
    return at.far + far.count;
}

INLINE size_t encode_blocks(gw_dtype_t dtype, const uint8_t *src, size_t count, uint8_t *dst)
{
    size_t used = 0, i = 0;
    for (; i + GW_LOSSLESS_BLOCK <= count; i += GW_LOSSLESS_BLOCK)
        used += encode_block(dtype, src + i * gw__lossless_wide(dtype), dst + used);
    if (i < count)
        used += gw__lossless_ref_encode_block(dtype, src + i * gw__lossless_wide(dtype), count - i,
                                              dst + used);
    return used;
}

static size_t encode(gw_dtype_t dtype, const void *src, size_t count, uint8_t *dst)
{
    if (dtype == GW_F32)
        return encode_blocks(GW_F32, src, count, dst);
    return dtype == GW_F16 ? encode_blocks(GW_F16, src, count, dst)
                           : encode_blocks(GW_BF16, src, count, dst);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE size_t count_far(const uint8_t *codes)
{
    size_t far = 0;
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK / 2; i += 64) {
        _mm_prefetch((const char *)codes + i + AHEAD_CODES, _MM_HINT_T1);
        far += count_far_64(codes + i);
    }
    return far;
}

static bool valid(gw_dtype_t dtype, const uint8_t *blocks, size_t length, size_t count)
{
    return gw__lossless_walk(dtype, blocks, length, count, count_far);
}

INLINE size_t decode_block(gw_dtype_t dtype, const uint8_t *block, uint8_t *dst)
{
    const gw_lossless_at_t at = gw__lossless_at(dtype, GW_LOSSLESS_BLOCK);
    size_t wide = gw__lossless_wide(dtype);
    const uint8_t *far = block + at.far;
    if (gw__lossless_get_plain(dtype, block, GW_LOSSLESS_BLOCK, dst))
        return gw__lossless_bytes(dtype, GW_LOSSLESS_BLOCK, block);
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK; i += STEP) {
        prefetch(block + i * at.far / GW_LOSSLESS_BLOCK, at.far * STEP / GW_LOSSLESS_BLOCK);
        prefetch(dst + i * wide, STEP * wide);
        decode_64(dtype, vector_of(block[0]), block, i, &far, dst);
    }
    return (size_t)(far - block);
}

INLINE size_t decode_blocks(gw_dtype_t dtype, const uint8_t *blocks, size_t count, uint8_t *dst)
{
    size_t used = 0, i = 0;
    for (; i + GW_LOSSLESS_BLOCK <= count; i += GW_LOSSLESS_BLOCK)
        used += decode_block(dtype, blocks + used, dst + i * gw__lossless_wide(dtype));
    if (i < count)
        used += gw__lossless_ref_decode_block(dtype, blocks + used, count - i,
                                              dst + i * gw__lossless_wide(dtype));
    return used;
}

static size_t decode(gw_dtype_t dtype, const uint8_t *blocks, size_t count, void *dst)
{
    if (dtype == GW_F32)
        return decode_blocks(GW_F32, blocks, count, dst);
    return dtype == GW_F16 ? decode_blocks(GW_F16, blocks, count, dst)
                           : decode_blocks(GW_BF16, blocks, count, dst);
}

#endif
