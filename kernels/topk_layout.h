/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of a block of topk whose values are no buckets: count, packed indices, values. */
#ifndef GW_TOPK_LAYOUT_H
#define GW_TOPK_LAYOUT_H

#include "inline.h"
#include "sparse_ratio.h"

enum { GW_TOPK_HEADER = 4 };
#define GW_TOPK_POISON 0xFFFFFFFFu /* the count of a block that decodes to NaN */

/* How values travel. */
typedef enum gw_topk_values {
    GW_TOPK_F32,
    GW_TOPK_F16,
    GW_TOPK_BF16,
    GW_TOPK_LIMITED /* binary16, what is too large limited to its range */
} gw_topk_values_t;

typedef struct gw_topk_layout {
    unsigned log2_block;
    uint32_t ratio; /* in 2^-32 */
    gw_topk_values_t values;
} gw_topk_layout_t;

/* Bytes of the indices of so many slots. */
static GW_INLINE size_t gw__topk_index_bytes(const gw_topk_layout_t *layout, size_t slots)
{
    return (slots * layout->log2_block + 7) / 8;
}

static GW_INLINE unsigned gw__topk_value_bytes(const gw_topk_layout_t *layout)
{
    return layout->values == GW_TOPK_F32 ? 4 : 2;
}

/* Bytes of a block of n elements. */
static GW_INLINE size_t gw__topk_bytes(const gw_topk_layout_t *layout, size_t n)
{
    size_t slots = gw__ratio_of(layout->ratio, n);
    return GW_TOPK_HEADER + gw__topk_index_bytes(layout, slots) +
           slots * gw__topk_value_bytes(layout);
}

/* Index i of a stream of so many bytes. */
static GW_INLINE uint32_t gw__topk_index(const uint8_t *at, size_t bytes, unsigned width, size_t i)
{
    size_t bit = i * width, byte = bit / 8;
    uint64_t word = 0;
    for (size_t b = 0; b < 5 && byte + b < bytes; b++)
        word |= (uint64_t)at[byte + b] << 8 * b;
    return (uint32_t)(word >> bit % 8) & (uint32_t)((UINT64_C(1) << width) - 1);
}

#endif
