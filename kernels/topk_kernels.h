/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the family topk: selection by magnitude and sparse vectors. */
#ifndef GW_TOPK_KERNELS_H
#define GW_TOPK_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inline.h"

/*
 * A magnitude is the bits of a binary32 without its sign: as integers they order numbers by size,
 * with NaN above Inf above all that is finite. A magnitude of GW_TOPK_INF or more is not finite.
 */
#define GW_TOPK_INF 0x7F800000u

/* A magnitude as three digits, the highest first: 11, 11 and 9 bits. */
enum { GW_TOPK_DIGITS = 3, GW_TOPK_BINS = 2048 };

static GW_INLINE unsigned gw__topk_shift(unsigned digit)
{
    return digit == 0 ? 20 : digit == 1 ? 9 : 0;
}

static GW_INLINE unsigned gw__topk_digit_bits(unsigned digit)
{
    return digit == 2 ? 9 : 11;
}

typedef struct gw_topk_kernels {
    /* residual = src + residual, limited to +-FLT_MAX; where src is not finite it stays. */
    void (*fold)(const float *src, float *residual, size_t count);
    /* Momentum correction: momentum = factor * momentum + src, then residual = residual + momentum,
     * each rounded once and limited to +-FLT_MAX; where src is not finite both stay. Without
     * residual (NULL) the momentum alone. */
    void (*correct)(const float *src, float factor, float *momentum, float *residual, size_t count);
    /* How many have a magnitude of at least `least` < 2^31. */
    size_t (*count)(const float *x, size_t count, uint32_t least);
    /* Writes base + i for each such x[i], ascending, and no more than `room`; returns how many
     * there are in all. Entries behind the last one, up to `room`, may be overwritten. */
    size_t (*find)(const float *x, size_t count, uint32_t least, uint32_t base, uint32_t *index,
                   size_t room);
    /* Adds to bin[d] the number of elements with value d of this digit whose higher digits are
     * `prefix`. */
    void (*histogram)(const float *x, size_t count, unsigned digit, uint32_t prefix, uint32_t *bin);
    /* dst[index[i]] = value[i]; dst[index[i]] += value[i], a NaN becomes GW_NAN_BITS. */
    void (*store)(float *dst, const uint32_t *index, const float *value, size_t count);
    void (*add)(float *dst, const uint32_t *index, const float *value, size_t count);
    /* What sending left of value[i], which arrives as sent[i], to residual[index[i]]: the
     * difference; 0 when it arrives as Inf; unchanged when it arrives as NaN or was not finite. */
    void (*settle)(float *residual, const uint32_t *index, const float *value, const float *sent,
                   size_t count);
} gw_topk_kernels_t;

#endif
