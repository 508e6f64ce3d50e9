/* SPDX-License-Identifier: Apache-2.0 */
/* The normative arithmetic of one rotated block: signs, levels, scale, ranges. */
#ifndef GW_ROTATE_BLOCK_H
#define GW_ROTATE_BLOCK_H

#include <float.h>
#include <math.h>

#include "bytes.h"
#include "inline.h"
#include "kernels.h"
#include "splitmix.h"

/*
 * A block x of m = 2^k elements is rotated: z = H D x, where D has random signs and H is the
 * Walsh-Hadamard matrix, not normalised: its butterflies (a, b) -> (a + b, a - b) in binary32 over
 * distances 1, 2, 4 ... m / 2 in this order. With r = |x| the elements of t = z / r have a mean
 * square of 1 and are close to normal, whatever x is; they are coded at the Lloyd-Max levels of
 * N(0, 1). Scales after EDEN (Vargaftik et al., 2022; DRIVE, 2021, is its case of one bit).
 */

/* ---- Signs --------------------------------------------------------------------------------------
 */

/* What gw__rotate_signs() takes for a seed; all ranks must have the same one. */
static GW_INLINE uint64_t gw__rotate_start(uint32_t seed)
{
    return gw__splitmix(seed + GW_SPLITMIX_STEP);
}

/* The signs of the elements 64 * index to 64 * index + 63 of a block, low bits first, 1 is minus:
 * SplitMix64 (Steele et al., 2014). All blocks have the same ones, so that the error bound of a
 * piece does not depend on its place in the call. */
static GW_INLINE uint64_t gw__rotate_signs(uint64_t start, uint64_t index)
{
    return gw__splitmix(start + (index + 1) * GW_SPLITMIX_STEP);
}

/* ---- Levels -------------------------------------------------------------------------------------
 */

enum { GW_ROTATE_HALF = 128, GW_ROTATE_CELLS = 288 };

/*
 * rotate_levels.c, by bits - 1. The magnitude of a value has code q when q thresholds 1, 2 ... are
 * not above it; a code is q, with the sign in the bit above. To find q without a search there are
 * cells of 2^(2 - bits), each with at most one threshold: the word of a cell is that threshold, or
 * the next one; its low byte is its number.
 */
#ifndef GW_ROTATE_TABLE /* device code has tables of its own: rotate_cuda.cu */
#define GW_ROTATE_TABLE const
extern const float gw__rotate_level[8][GW_ROTATE_HALF];
extern const uint32_t gw__rotate_threshold[8][GW_ROTATE_HALF];
extern const uint32_t gw__rotate_cell[8][GW_ROTATE_CELLS];
extern const float gw__rotate_last_cell[8]; /* cells behind it are it */
#endif

/* ---- Ranges and scale ---------------------------------------------------------------------------
 */

/* Sums over a block are taken in 32 lanes as in sign_scale.h. */
enum { GW_ROTATE_LANES = 32 };

static GW_INLINE float gw__rotate_fold(float lane[GW_ROTATE_LANES])
{
    for (int half = GW_ROTATE_LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] = lane[j] + lane[j + half];
    return lane[0];
}

/* Whether a block with this sum of squares can be done as it is: nothing overflows, nothing that
 * matters is lost below. Else the reference makes it larger or smaller by a power of two. */
static GW_INLINE bool gw__rotate_is_ordinary(float squares)
{
    return squares >= 0x1p-80f && squares <= 0x1p100f;
}

/* Whether a decoder can work with this scale as it is. Blocks that the encoder does as they are
 * have such a one: |x| lies between 2^-40 and 2^50 there. */
static GW_INLINE bool gw__rotate_is_plain(float scale)
{
    return scale >= 0x1p-60f && scale <= 0x1p60f;
}

static GW_INLINE float gw__rotate_power(int exponent)
{
    return gw__float_of((uint32_t)(127 + exponent) << 23);
}

/* In binary64, where a product of any binary32 number with it is exact. */
static GW_INLINE double gw__rotate_wide_power(int exponent)
{
    uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* log2 of the magnitude with these bits, finite and not 0, rounded down. */
static GW_INLINE int gw__rotate_exponent(uint32_t magnitude)
{
    if (magnitude >= 0x800000u)
        return (int)(magnitude >> 23) - 127;
    return -118 - (int)GW_LEADING_ZEROS(magnitude);
}

/* log2 of a power of two. */
static GW_INLINE int gw__rotate_log2(size_t m)
{
    return (int)GW_TRAILING_ZEROS((uint32_t)m);
}

static GW_INLINE float gw__rotate_limited(float x)
{
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

/* The code of a magnitude, from the cells of this width and the last one's number. */
static GW_INLINE uint32_t gw__rotate_code(const uint32_t *cells, float last, unsigned bits,
                                          float magnitude)
{
    float place = magnitude * gw__rotate_power((int)bits - 2);
    uint32_t cell = cells[(int)(place < last ? place : last)];
    return (cell & 0xFF) - (gw__float_bits(magnitude) < cell);
}

/*
 * The scale of a block of m elements with norm r, ct = <c, t> and cc = <c, c> over magnitudes. z is
 * taken as (r * a) c; a = ct / cc has the least squared error, a = m / ct no bias over the signs.
 * Of r * a the frame carries 2^-ceil(k / 2) as much, which is about the size of an element.
 */
static GW_INLINE float gw__rotate_scale(float r, float ct, float cc, size_t m, bool unbiased)
{
    float a = unbiased ? (float)m / ct : ct / cc;
    return r * a * gw__rotate_power(-(gw__rotate_log2(m) + 1) / 2);
}

/* What a level is multiplied by, so that H D (factor * c) is the block: z / m, for H H = m. */
static GW_INLINE float gw__rotate_factor(float scale, size_t m)
{
    return scale * gw__rotate_power(-gw__rotate_log2(m) / 2);
}

/* The scale of a block that was made smaller by this power of two: rounded once, limited. */
static GW_INLINE float gw__rotate_scale_times(float scale, int exponent)
{
    double x = (double)scale * gw__rotate_wide_power(exponent);
    return x > (double)FLT_MAX ? FLT_MAX : (float)x;
}

/* How a block with this scale, above 0, is decoded. A scale that is not plain is made smaller or
 * larger by 2^64, and the values larger or smaller again (unless `back` is 1): rounded once,
 * limited to FLT_MAX. */
typedef struct gw_rotate_decoding {
    float factor, back;
} gw_rotate_decoding_t;

static GW_INLINE gw_rotate_decoding_t gw__rotate_decoding(float scale, size_t m)
{
    gw_rotate_decoding_t d;
    d.back = 1.0f;
    if (!gw__rotate_is_plain(scale)) {
        d.back = scale > 1.0f ? 0x1p64f : 0x1p-64f;
        scale *= 1.0f / d.back;
    }
    d.factor = gw__rotate_factor(scale, m);
    return d;
}

/* What a code stands for in the rotated block, from the levels of this width. */
static GW_INLINE float gw__rotate_value(const float *levels, float factor, unsigned bits,
                                        uint32_t code)
{
    float value = factor * levels[code & ((1u << (bits - 1)) - 1)];
    return code >> (bits - 1) ? -value : value;
}

/* Whether an encoder can have written this scale: finite and not negative, or the poison. */
static GW_INLINE bool gw__rotate_scale_valid(uint32_t bits)
{
    return bits < 0x7F800000u || bits == GW_NAN_BITS;
}

#endif
