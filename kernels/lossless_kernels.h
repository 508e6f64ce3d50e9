/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of family lossless, and the sizes of its blocks (layout: codecs/README.md). */
#ifndef GW_LOSSLESS_KERNELS_H
#define GW_LOSSLESS_KERNELS_H

#include <gradwire/types.h>

/*
 * Elements are those of GW_F32, GW_F16 or GW_BF16 and are never computed with, only taken apart:
 * every bit pattern comes back. A block is coded (a code of 4 bits for each exponent, the other
 * bits as they are), or raw where that would not be shorter, or only said to be zeros.
 */
enum {
    GW_LOSSLESS_BLOCK = 512,   /* elements, except in the last block */
    GW_LOSSLESS_META = 2,      /* bytes before each block: greatest exponent, far elements */
    GW_LOSSLESS_ZERO = 14,     /* code of exponent 0; codes below it are distances */
    GW_LOSSLESS_FAR = 15,      /* code of an exponent that is written out */
    GW_LOSSLESS_FAR_MAX = 253, /* far elements of a coded block, at most */
    GW_LOSSLESS_ZEROS = 254,   /* in the place of their number: nothing follows, all are +0 */
    GW_LOSSLESS_RAW = 255      /* the same: the elements follow as they are */
};

/* Blocks of a group share one table of Huffman codes. */
#define GW_LOSSLESS_GROUP     4096 /* elements, except in the last group */
#define GW_LOSSLESS_GROUP_MAX (4 * GW_LOSSLESS_GROUP + 8 * GW_LOSSLESS_META)

typedef struct gw_lossless_kernels {
    /* Writes the blocks of count elements; at most gw__lossless_bound() bytes of dst are touched.
     * Returns their length. */
    size_t (*encode)(gw_dtype_t dtype, const void *src, size_t count, uint8_t *dst);
    /* Whether `length` bytes are exactly the blocks of count elements. */
    bool (*valid)(gw_dtype_t dtype, const uint8_t *blocks, size_t length, size_t count);
    /* Writes count elements; the blocks must be valid. Returns their length. */
    size_t (*decode)(gw_dtype_t dtype, const uint8_t *blocks, size_t count, void *dst);
    /* From the blocks of count <= GW_LOSSLESS_GROUP elements to a group; at most one byte longer.
     * Returns its length. */
    size_t (*pack)(gw_dtype_t dtype, const uint8_t *blocks, size_t count, uint8_t *dst);
    /* Back; writes *blocks_length <= gw__lossless_bound() bytes, which need not be valid blocks.
     * Returns how many of the `length` bytes of src are the group, 0 when they do not begin with
     * one. */
    size_t (*unpack)(gw_dtype_t dtype, const uint8_t *src, size_t length, size_t count,
                     uint8_t *blocks, size_t *blocks_length);
} gw_lossless_kernels_t;

static inline size_t gw__lossless_wide(gw_dtype_t dtype)
{
    return dtype == GW_F32 ? 4 : 2;
}

/* Where the parts of a coded block of n elements lie, in bytes from its first. */
typedef struct gw_lossless_at {
    size_t codes, low, bytes, bits, far;
} gw_lossless_at_t;

static inline gw_lossless_at_t gw__lossless_at(gw_dtype_t dtype, size_t n)
{
    gw_lossless_at_t at = {.codes = GW_LOSSLESS_META};
    at.low = at.codes + (n + 1) / 2;
    at.bytes = at.low + (dtype == GW_F32 ? 2 * n : 0);
    at.bits = at.bytes + n;
    at.far = at.bits + (dtype == GW_F16 ? 3 * ((n + 7) / 8) : 0);
    return at;
}

/* Whether a block of n elements with so many far ones is coded. */
static inline bool gw__lossless_pays(gw_dtype_t dtype, size_t n, size_t far)
{
    return far <= GW_LOSSLESS_FAR_MAX &&
           gw__lossless_at(dtype, n).far + far < GW_LOSSLESS_META + n * gw__lossless_wide(dtype);
}

/* Bytes of a block, from its metadata. */
static inline size_t gw__lossless_bytes(gw_dtype_t dtype, size_t n, const uint8_t *block)
{
    if (block[1] == GW_LOSSLESS_RAW)
        return GW_LOSSLESS_META + n * gw__lossless_wide(dtype);
    return block[1] == GW_LOSSLESS_ZEROS ? GW_LOSSLESS_META
                                         : gw__lossless_at(dtype, n).far + block[1];
}

/* Bytes of the codes in a block. */
static inline size_t gw__lossless_codes(size_t n, const uint8_t *block)
{
    return block[1] <= GW_LOSSLESS_FAR_MAX ? (n + 1) / 2 : 0;
}

/* Bytes of the blocks of count elements, at most: all of them raw. */
static inline size_t gw__lossless_bound(gw_dtype_t dtype, size_t count)
{
    return count * gw__lossless_wide(dtype) +
           (count / GW_LOSSLESS_BLOCK + (count % GW_LOSSLESS_BLOCK != 0)) * GW_LOSSLESS_META;
}

#endif
