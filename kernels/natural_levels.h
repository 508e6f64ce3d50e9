/* SPDX-License-Identifier: Apache-2.0 */
/* The normative arithmetic of the family natural: rounding by the exponent, scales, levels. */
#ifndef GW_NATURAL_LEVELS_H
#define GW_NATURAL_LEVELS_H

#include <float.h>
#include <math.h>

#include "inline.h"
#include "quant_grid.h"

/*
 * Between two powers of two the mantissa says how far a number is from the lower one. Adding noise
 * to the bits of its magnitude carries into the exponent with that very probability, so that the
 * exponent of the sum is the rounded number: natural compression (Horvath et al., 2019). It holds
 * below the least normal number as well, where steps are linear. To the nearest one: the same with
 * half a step in place of the noise.
 */

/* ---- Noise --------------------------------------------------------------------------------------
 */

#define GW_NATURAL_HALF 0x400000u /* half a step */

/*
 * 16 random bits for element i of a bucket, at the top of the 23 below the exponent. A word serves
 * elements j and j + 16 of a group of 32: vectors take its halves by shifts alone. The bit below
 * them rounds the mantissa to those 16 bits; a mantissa of 0 never moves.
 */
static GW_INLINE uint32_t gw__natural_noise(gw_quant_noise_t noise, size_t i)
{
    uint32_t word = gw__quant_noise_pair(noise, (uint32_t)(i / 32 * 16 + i % 16));
    return (i / 16 % 2 ? word >> 16 : word & 0xFFFFu) << 7 | 64u;
}

/* What is added to the magnitude of element i. */
static GW_INLINE uint32_t gw__natural_added(bool stochastic, gw_quant_noise_t noise, size_t i)
{
    return stochastic ? gw__natural_noise(noise, i) : GW_NATURAL_HALF;
}

/* ---- Powers of two ------------------------------------------------------------------------------
 */

#define GW_NATURAL_LAST   254u /* the exponent of 2^127 */
#define GW_NATURAL_POISON 255u /* of what is not finite */

/* The exponent that a finite magnitude is rounded to; 0 is the number 0. */
static GW_INLINE uint32_t gw__natural_power(uint32_t magnitude, uint32_t noise)
{
    uint32_t power = (magnitude + noise) >> 23;
    return power < GW_NATURAL_LAST ? power : GW_NATURAL_LAST;
}

static GW_INLINE float gw__natural_power_value(uint32_t power, uint32_t sign)
{
    return gw__float_of(power == GW_NATURAL_POISON ? GW_NAN_BITS : sign << 31 | power << 23);
}

/* ---- Levels of a bucket -------------------------------------------------------------------------
 */

/*
 * With b bits there are L = 2^(b-1) levels: 0, and s 2^(k + 1 - L) for k = 1 ... L - 1, where s is
 * the scale of the bucket. A magnitude is brought to where the least level but 0 is
 * GW_NATURAL_LEAST, whose exponent has b - 1 zero bits at its end. Below it, the number is moved up
 * by it, so that what was linear is a mantissa; above it, it is doubled to make room. The low bits
 * of the exponent, rounded, are k.
 */
#define GW_NATURAL_LEAST 0x1p-31f
#define GW_NATURAL_FIELD 96u /* its exponent */

/* The magnitude of the scale, on the scale of GW_NATURAL_LEAST. */
static GW_INLINE float gw__natural_top(unsigned bits)
{
    return ldexpf(GW_NATURAL_LEAST, (1 << (bits - 1)) - 2);
}

static GW_INLINE uint32_t gw__natural_level(float t, uint32_t noise, unsigned bits)
{
    uint32_t last = (1u << (bits - 1)) - 1;
    float u = t + (t > GW_NATURAL_LEAST ? t : GW_NATURAL_LEAST);
    uint32_t field = (gw__float_bits(u) + noise) >> 23;
    return (field < GW_NATURAL_FIELD + last ? field : GW_NATURAL_FIELD + last) & last;
}

/* By bits - 2 and code, the sign in its upper bit: what the scale is multiplied by. Each product is
 * rounded once, and only where it is denormal. */
#define GW_NATURAL_STEPS 32
#ifndef GW_NATURAL_TABLE /* device code has one of its own: natural_cuda.cu */
#define GW_NATURAL_TABLE static const
#endif
GW_NATURAL_TABLE float gw__natural_step[4][GW_NATURAL_STEPS] = {
    {0, 1, -0.0f, -1},
    {0, 0x1p-2f, 0x1p-1f, 1, -0.0f, -0x1p-2f, -0x1p-1f, -1},
    {0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1, -0.0f, -0x1p-6f, -0x1p-5f,
     -0x1p-4f, -0x1p-3f, -0x1p-2f, -0x1p-1f, -1},
    {0,        0x1p-14f,  0x1p-13f,  0x1p-12f,  0x1p-11f,  0x1p-10f,  0x1p-9f,  0x1p-8f,
     0x1p-7f,  0x1p-6f,   0x1p-5f,   0x1p-4f,   0x1p-3f,   0x1p-2f,   0x1p-1f,  1,
     -0.0f,    -0x1p-14f, -0x1p-13f, -0x1p-12f, -0x1p-11f, -0x1p-10f, -0x1p-9f, -0x1p-8f,
     -0x1p-7f, -0x1p-6f,  -0x1p-5f,  -0x1p-4f,  -0x1p-3f,  -0x1p-2f,  -0x1p-1f, -1},
};

/* ---- Scales -------------------------------------------------------------------------------------
 */

/*
 * The sum of squares is taken in binary32 in 32 lanes, as `sign` sums magnitudes: lane j adds the
 * squares of the elements j, j + 32 ... beginning with 0; then lane j takes lane j + 16, j + 8,
 * j + 4, j + 2 and j + 1. Outside of these limits it is taken again in binary64, where squares are
 * exact, in the same order.
 */
enum { GW_NATURAL_LANES = 32 };

static GW_INLINE bool gw__natural_sum_is_ordinary(float sum)
{
    return sum >= 0x1p-80f && sum <= 0x1p100f;
}

/* The scale from an ordinary sum and the greatest magnitude of n elements. */
static GW_INLINE float gw__natural_scale(const gw_natural_spec_t *spec, float sum, float most,
                                         size_t n)
{
    if (spec->rule == GW_NATURAL_MOST)
        return most;
    if (spec->rule == GW_NATURAL_NORM)
        return sqrtf(sum);
    float limit = spec->clip * sqrtf(sum / (float)n);
    return most < limit ? most : limit;
}

/* The same from the sum in binary64; not for GW_NATURAL_MOST. */
static GW_INLINE float gw__natural_wide_scale(const gw_natural_spec_t *spec, double sum, float most,
                                              size_t n)
{
    bool norm = spec->rule == GW_NATURAL_NORM;
    double limit = (double)(norm ? FLT_MAX : most);
    double scale = norm ? sqrt(sum) : (double)spec->clip * sqrt(sum / (double)n);
    return (float)(scale < limit ? scale : limit);
}

/* Beyond these, magnitudes are divided in binary64: no reciprocal overflows or loses bits. */
static GW_INLINE bool gw__natural_scale_is_ordinary(float scale)
{
    return scale >= 0x1p-60f && scale <= 0x1p60f;
}

/* A magnitude, on the scale of GW_NATURAL_LEAST. */
static GW_INLINE float gw__natural_place(float magnitude, float scale, unsigned bits)
{
    float top = gw__natural_top(bits);
    if (gw__natural_scale_is_ordinary(scale))
        return magnitude * (top / scale);
    return (float)((double)magnitude * (double)top / (double)scale);
}

static GW_INLINE uint32_t gw__natural_code(float p, float scale, uint32_t added, unsigned bits)
{
    if (scale == 0.0f)
        return 0;
    float t = gw__natural_place(fabsf(p), scale, bits);
    return gw__natural_level(t, added, bits) | gw__float_bits(p) >> 31 << (bits - 1);
}

/* Whether an encoder can have written this scale: finite and not negative, or the poison. */
static GW_INLINE bool gw__natural_scale_valid(uint32_t bits)
{
    return bits < 0x7F800000u || bits == GW_NAN_BITS;
}

#endif
