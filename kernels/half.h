/* SPDX-License-Identifier: Apache-2.0 */
/* The normative casts between binary32 and the 16-bit formats: integer arithmetic only. */
#ifndef GW_HALF_H
#define GW_HALF_H

#include <stdbool.h>

#include "bytes.h"
#include "inline.h"
#include "splitmix.h"

static GW_INLINE uint32_t gw__widen_f16(uint32_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1Fu, mantissa = half & 0x3FFu;
    if (exponent == 0x1F)
        return sign | 0x7F800000u | mantissa << 13 | (mantissa ? 0x400000u : 0);
    if (exponent)
        return sign | (exponent + 112) << 23 | mantissa << 13;
    if (!mantissa)
        return sign;
    /* A denormal becomes normal: shift its leading 1 to the hidden place. */
    unsigned shift = (unsigned)GW_LEADING_ZEROS(mantissa) - 21;
    return sign | (113 - shift) << 23 | (mantissa << shift & 0x3FFu) << 13;
}

/* Drops `drop` low bits, to nearest even. */
static GW_INLINE uint32_t gw__round_off(uint32_t x, unsigned drop)
{
    uint32_t odd = x >> drop & 1;
    return (x + (1u << (drop - 1)) - 1 + odd) >> drop;
}

static GW_INLINE uint16_t gw__narrow_f16(uint32_t x)
{
    uint32_t sign = x >> 16 & 0x8000u, magnitude = x & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x1FFu));
    if (magnitude >= 0x47800000u) /* 65536 and more; what rounds up to it is found below */
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude >= 0x38800000u) /* normal: the carry of the rounding may reach the exponent */
        return (uint16_t)(sign | gw__round_off(magnitude - 0x38000000u, 13));
    if (magnitude <= 0x33000000u) /* at most half of the least denormal */
        return (uint16_t)sign;
    uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    return (uint16_t)(sign | gw__round_off(mantissa, 126 - (magnitude >> 23)));
}

static GW_INLINE uint32_t gw__widen_bf16(uint32_t half)
{
    uint32_t x = half << 16;
    return (x & 0x7FFFFFFFu) > 0x7F800000u ? x | 0x400000u : x;
}

static GW_INLINE uint16_t gw__narrow_bf16(uint32_t x)
{
    if ((x & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(x >> 16 | 0x40u);
    return (uint16_t)((x + 0x7FFFu + (x >> 16 & 1)) >> 16);
}

/* Random bits for elements 4 * quad to 4 * quad + 3 of a call, 16 each, the lowest first. */
static GW_INLINE uint64_t gw__half_noise(uint64_t key, uint64_t quad)
{
    return gw__splitmix(key + (quad + 1) * GW_SPLITMIX_STEP);
}

/* Away from 0 with the probability of what is cut off; `noise` < 2^16. Exact numbers stay, and
 * finite ones finite. */
static GW_INLINE uint16_t gw__stochastic_bf16(uint32_t x, uint32_t noise)
{
    if ((x & 0x7F800000u) == 0x7F800000u)
        return gw__narrow_bf16(x);
    uint32_t up = x + noise;
    return (uint16_t)(((up & 0x7F800000u) == 0x7F800000u ? x : up) >> 16);
}

/* ---- For codec cast -----------------------------------------------------------------------------
 */

static GW_INLINE bool gw__is_finite(float x)
{
    return (gw__float_bits(x) & 0x7F800000u) != 0x7F800000u;
}

static GW_INLINE uint16_t gw__narrow(bool bf16, float x)
{
    return bf16 ? gw__narrow_bf16(gw__float_bits(x)) : gw__narrow_f16(gw__float_bits(x));
}

static GW_INLINE float gw__widen(bool bf16, uint16_t half)
{
    return gw__float_of(bf16 ? gw__widen_bf16(half) : gw__widen_f16(half));
}

/* Of a finite number: what would become an Inf becomes the greatest number before it. */
static GW_INLINE uint16_t gw__narrow_finite(bool bf16, float x)
{
    uint16_t half = gw__narrow(bf16, x), infinity = bf16 ? 0x7F80 : 0x7C00;
    return (half & 0x7FFF) == infinity ? (uint16_t)(half - 1) : half;
}

#endif
