/* SPDX-License-Identifier: Apache-2.0 */
/* The normative arithmetic of one quant bucket: its grid, its metadata, its random numbers. */
#ifndef GW_QUANT_GRID_H
#define GW_QUANT_GRID_H

#include <float.h>
#include <math.h>

#include "bytes.h"
#include "inline.h"
#include "kernels.h"
#include "splitmix.h"

/* Buckets that reach this magnitude take the plain grid. */
#define GW_QUANT_HUGE 0x1p125f

/*
 * Codes are made in binary64: code = rne((p - offset) * inverse) + zero, limited to the levels.
 * There nothing overflows, no reciprocal of a denormal is infinite, and the encoder's own rounding
 * is negligible: the error bound is left to the decoder's few roundings. (In binary32 the bound of
 * 2 ulp(max|x|) beyond half a unit breaks: up to 2.98 ulp were seen by division, 4.7 by
 * reciprocal.) A tier may code in binary32 where it can tell that the result is the same.
 */
typedef struct gw_quant_grid {
    float min, unit;        /* the metadata: code q decodes to min + unit * q */
    double offset, inverse; /* inverse is 0 for a bucket without extent: all codes 0 */
    int32_t zero;           /* the code of 0 where the grid was shifted onto it, else 0 */
    bool finite;            /* false: a NaN or an Inf; all codes 0, decodes to NaN */
    bool shifted;           /* 0 is a grid point and offset is 0 */
    bool wide;              /* decode in binary64 and clamp */
} gw_quant_grid_t;

/*
 * Whether min + unit * q can overflow in binary32. It is decided from the metadata alone, so that
 * encoder (for the residual) and decoder agree.
 */
static GW_INLINE bool gw__quant_is_wide(float min, float unit, float levels)
{
    return fabsf(min) >= 0x1p126f || unit >= 0x1p127f / levels;
}

static GW_INLINE float gw__quant_clamp(double x)
{
    return x > (double)FLT_MAX ? FLT_MAX : x < -(double)FLT_MAX ? -FLT_MAX : (float)x;
}

/* A decoded value. The product and the sum are rounded one after the other, never fused. */
static GW_INLINE float gw__quant_value(float min, float unit, bool wide, uint32_t code)
{
    if (wide)
        return gw__quant_clamp((double)min + (double)unit * (double)code);
    float step = unit * (float)code;
    return min + step;
}

/* Ordinary units: neither their reciprocal nor small multiples of both leave the normal range. */
#define GW_QUANT_LEAST_UNIT 0x1p-100f
#define GW_QUANT_GREAT_UNIT 0x1p100f

static GW_INLINE bool gw__quant_unit_is_ordinary(float unit)
{
    return unit >= GW_QUANT_LEAST_UNIT && unit < GW_QUANT_GREAT_UNIT;
}

/*
 * The next unit whose low `bits` bits are 0. Its product with any code is exact, so that a decoder
 * may fuse product and sum: one rounding instead of two, with the same result. The grid grows by
 * less than 2^(bits - 23) of itself.
 */
static GW_INLINE float gw__quant_short_unit(float unit, unsigned bits)
{
    uint32_t low = (1u << bits) - 1;
    if (!gw__quant_unit_is_ordinary(unit))
        return unit;
    return gw__float_of((gw__float_bits(unit) + low) & ~low);
}

static GW_INLINE int32_t gw__quant_limit(long x, int32_t levels)
{
    return x < 0 ? 0 : x > levels ? levels : (int32_t)x;
}

/*
 * The grid of a bucket with least value mn and greatest value mx (of p = src + residual), both
 * finite unless `finite` is false. -0 and +0 count as equal: adding +0 makes them so, whatever
 * order the minimum was taken in.
 */
static GW_INLINE gw_quant_grid_t gw__quant_grid(const gw_quant_spec_t *spec, float mn, float mx,
                                                bool finite)
{
    gw_quant_grid_t g = {0};
    g.min = gw__float_of(GW_NAN_BITS);
    g.finite = finite;
    if (!finite)
        return g;
    mn += 0.0f;
    mx += 0.0f;
    int32_t top = (int32_t)(1u << spec->bits) - 1;
    float levels = (float)top;
    bool spans = spec->zero && mn <= 0.0f && mx >= 0.0f;
    g.unit = mx / levels - mn / levels;
    if (g.unit > FLT_MAX) /* 1 bit over more than FLT_MAX: half of the range is within the bound */
        g.unit = FLT_MAX;
    g.unit = gw__quant_short_unit(g.unit, spec->bits);
    g.inverse = g.unit > 0.0f ? 1.0 / (double)g.unit : 0.0;
    g.shifted = spans && mn > -GW_QUANT_HUGE && mx < GW_QUANT_HUGE;
    if (g.shifted) {
        g.zero = gw__quant_limit(lrint(-(double)mn * g.inverse), top);
        g.min = 0.0f - g.unit * (float)g.zero;
    } else {
        g.min = mn;
        g.offset = mn;
    }
    g.wide = gw__quant_is_wide(g.min, g.unit, levels);
    return g;
}

static GW_INLINE uint32_t gw__quant_code_nearest(const gw_quant_grid_t *g, float p, int32_t top)
{
    double t = ((double)p - g->offset) * g->inverse;
    return (uint32_t)gw__quant_limit(lrint(t) + g->zero, top);
}

/* The place on the grid in 1/65536 of a step, then up with the probability of its fraction: a value
 * on the grid never moves. */
static GW_INLINE uint32_t gw__quant_code_stochastic(const gw_quant_grid_t *g, float p, int32_t top,
                                                    uint32_t noise)
{
    double t = ((double)p - g->offset) * g->inverse * 65536.0;
    long place = lrint(t) + (long)g->zero * 65536;
    return ((uint32_t)gw__quant_limit(place, top * 65536) + noise) >> 16;
}

/* What is lost of p by its code. It stays finite also where it exceeds FLT_MAX. */
static GW_INLINE float gw__quant_loss(const gw_quant_grid_t *g, float p, uint32_t code)
{
    float value = gw__quant_value(g->min, g->unit, g->wide, code);
    return g->wide ? gw__quant_clamp((double)p - (double)value) : p - value;
}

/* Whether an encoder can have written this metadata. */
static GW_INLINE bool gw__quant_meta_valid(uint32_t min_bits, uint32_t unit_bits)
{
    bool finite = (min_bits & 0x7F800000u) != 0x7F800000u && unit_bits < 0x7F800000u;
    return finite || (min_bits == GW_NAN_BITS && unit_bits == 0);
}

/* ---- Random numbers: a hash of (key, bucket, pair of elements), without state -------------------
 */

typedef struct gw_quant_noise {
    uint32_t base, twist;
} gw_quant_noise_t;

#define GW_QUANT_NOISE_STEP 0x9E3779B9u
#define GW_QUANT_NOISE_MUL1 0x85EBCA6Bu
#define GW_QUANT_NOISE_MUL2 0xC2B2AE35u

/* Per bucket: two words out of a 64-bit finaliser. `bucket` counts from the start of the call. The
 * key is mixed first: keys that differ by a multiple of the step would else give shifted sequences.
 */
static GW_INLINE gw_quant_noise_t gw__quant_noise(uint64_t key, uint64_t bucket)
{
    uint64_t start = gw__splitmix(key + GW_SPLITMIX_STEP);
    uint64_t h = gw__splitmix(start + (bucket + 1) * GW_SPLITMIX_STEP);
    gw_quant_noise_t noise = {(uint32_t)h, (uint32_t)(h >> 32)};
    return noise;
}

/* Per pair of elements: the low half is for the even one, the high half for the odd one. */
static GW_INLINE uint32_t gw__quant_noise_pair(gw_quant_noise_t noise, uint32_t pair)
{
    uint32_t x = noise.base + pair * GW_QUANT_NOISE_STEP;
    x = (x ^ (x >> 16)) * GW_QUANT_NOISE_MUL1;
    x ^= noise.twist;
    x = (x ^ (x >> 13)) * GW_QUANT_NOISE_MUL2;
    return x ^ (x >> 16);
}

#endif
