/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU and devices must agree on for codec randomk: places, sizes, scaled values. */
#ifndef GW_RANDOMK_PLACES_H
#define GW_RANDOMK_PLACES_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include <gradwire/types.h>

#include "inline.h"
#include "sparse_ratio.h"
#include "splitmix.h"

#define GW_RANDOMK_HEADER 4
#define GW_RANDOMK_POISON 0x80000000u /* in the header: every element is NaN */

typedef struct gw_randomk_spec {
    unsigned block;    /* elements among which places are drawn: a power of two, 64 to 2^24 */
    uint32_t ratio;    /* what is sent, in 2^-32 */
    gw_dtype_t values; /* GW_F32, GW_F16 or GW_BF16 */
    uint32_t seed;
    bool scale; /* n/k times the value is sent */
} gw_randomk_spec_t;

static GW_INLINE unsigned gw__randomk_wide(gw_dtype_t values)
{
    return values == GW_F32 ? 4 : 2;
}

/* Bytes of a block of n elements. */
static GW_INLINE size_t gw__randomk_bytes(const gw_randomk_spec_t *spec, size_t n)
{
    return GW_RANDOMK_HEADER + gw__ratio_of(spec->ratio, n) * gw__randomk_wide(spec->values);
}

/* What all places of a block follow from; it travels, so that a decoder needs no key. */
static GW_INLINE uint32_t gw__randomk_draw(uint64_t seed, uint64_t shared_key, uint64_t block)
{
    uint64_t key =
        gw__splitmix(shared_key + GW_SPLITMIX_STEP) ^ gw__splitmix(seed + 2 * GW_SPLITMIX_STEP);
    return (uint32_t)(gw__splitmix(key + (block + 1) * GW_SPLITMIX_STEP) >> 33);
}

/*
 * k places in a block of n: one in each of k strata, turned by a random distance. So no place is
 * drawn twice, nothing has to be remembered, and every element is chosen with probability k/n.
 */
typedef struct gw_randomk_places {
    uint64_t key, turn;
} gw_randomk_places_t;

static GW_INLINE gw_randomk_places_t gw__randomk_places(uint32_t draw, size_t n)
{
    gw_randomk_places_t p;
    p.key = gw__splitmix(draw);
    p.turn = (p.key >> 32) * n >> 32;
    return p;
}

/* Where stratum j of k begins. */
static GW_INLINE uint64_t gw__randomk_stratum(size_t j, size_t n, size_t k)
{
    return (uint64_t)j * n / k;
}

/* The place in stratum j, from its begin and its end. */
static GW_INLINE uint32_t gw__randomk_place(gw_randomk_places_t p, size_t n, size_t j, uint64_t low,
                                            uint64_t high)
{
    uint64_t dice = gw__splitmix(p.key + j) >> 32;
    uint64_t place = low + (dice * (high - low) >> 32) + p.turn;
    return (uint32_t)(place < n ? place : place - n);
}

static GW_INLINE float gw__randomk_factor(size_t n, size_t k)
{
    return (float)((double)n / (double)k);
}

/* The value that was scaled: what the type of the values holds before, it holds afterwards. */
static GW_INLINE float gw__randomk_limited(float value, float scaled, gw_dtype_t values)
{
    const float most = values == GW_F16 ? 65504.0f : values == GW_BF16 ? 0x1.FEp127f : FLT_MAX;
    return fabsf(value) <= most ? fmaxf(-most, fminf(most, scaled)) : scaled;
}

#endif
