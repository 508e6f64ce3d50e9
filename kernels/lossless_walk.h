/* SPDX-License-Identifier: Apache-2.0 */
/* What all tiers of lossless share: the walk over blocks that nobody has checked yet. */
#ifndef GW_LOSSLESS_WALK_H
#define GW_LOSSLESS_WALK_H

#include <string.h>

#include "lossless_kernels.h"

/* Elements of the block that begins at element i. */
static inline size_t gw__lossless_elements(size_t i, size_t count)
{
    return count - i < GW_LOSSLESS_BLOCK ? count - i : GW_LOSSLESS_BLOCK;
}

/* A block of n elements without codes; returns its bytes. */
static inline size_t gw__lossless_put_zeros(uint8_t *block)
{
    block[0] = 0;
    block[1] = GW_LOSSLESS_ZEROS;
    return GW_LOSSLESS_META;
}

static inline size_t gw__lossless_put_raw(gw_dtype_t dtype, const uint8_t *src, size_t n,
                                          uint8_t *block)
{
    block[0] = 0;
    block[1] = GW_LOSSLESS_RAW;
    memcpy(block + GW_LOSSLESS_META, src, n * gw__lossless_wide(dtype));
    return GW_LOSSLESS_META + n * gw__lossless_wide(dtype);
}

/* Decodes a block that has no codes; false when it has. */
static inline bool gw__lossless_get_plain(gw_dtype_t dtype, const uint8_t *block, size_t n,
                                          uint8_t *dst)
{
    if (block[1] == GW_LOSSLESS_ZEROS)
        memset(dst, 0, n * gw__lossless_wide(dtype));
    else if (block[1] == GW_LOSSLESS_RAW)
        memcpy(dst, block + GW_LOSSLESS_META, n * gw__lossless_wide(dtype));
    return block[1] > GW_LOSSLESS_FAR_MAX;
}

/* Far codes of a short block; SIZE_MAX when bits behind its last element are set. */
static inline size_t gw__lossless_tail_far(gw_dtype_t dtype, const uint8_t *block, size_t n)
{
    gw_lossless_at_t at = gw__lossless_at(dtype, n);
    size_t far = 0, plane = (n + 7) / 8;
    if (n % 2 && block[at.low - 1] >> 4)
        return SIZE_MAX;
    for (size_t k = 0; k < 3 && dtype == GW_F16 && n % 8; k++)
        if (block[at.bits + (k + 1) * plane - 1] >> n % 8)
            return SIZE_MAX;
    for (size_t i = 0; i < n; i++)
        far += (block[at.codes + i / 2] >> i % 2 * 4 & 0xF) == GW_LOSSLESS_FAR;
    return far;
}

/*
 * Whether `length` bytes are exactly the blocks of count elements: every block inside, with as many
 * exponents written out as it has codes that say so, and coded only where an encoder does. A tier
 * gives the function that counts far codes in the GW_LOSSLESS_BLOCK / 2 bytes of a whole block.
 */
static inline __attribute__((always_inline)) bool
gw__lossless_walk(gw_dtype_t dtype, const uint8_t *blocks, size_t length, size_t count,
                  size_t (*count_far)(const uint8_t *codes))
{
    for (size_t i = 0; i < count; i += GW_LOSSLESS_BLOCK) {
        size_t n = gw__lossless_elements(i, count), far;
        if (length < GW_LOSSLESS_META)
            return false;
        size_t bytes = gw__lossless_bytes(dtype, n, blocks);
        if (length < bytes)
            return false;
        if (blocks[1] > GW_LOSSLESS_FAR_MAX) {
            if (blocks[0])
                return false;
        } else {
            far = n == GW_LOSSLESS_BLOCK ? count_far(blocks + GW_LOSSLESS_META)
                                         : gw__lossless_tail_far(dtype, blocks, n);
            if (far != blocks[1] || !gw__lossless_pays(dtype, n, far))
                return false;
        }
        blocks += bytes;
        length -= bytes;
    }
    return length == 0;
}

#endif
