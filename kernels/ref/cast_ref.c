/* SPDX-License-Identifier: Apache-2.0 */
/* Casts between binary32 and the 16-bit formats, normative scalar tier: integer arithmetic only. */
#include "ref.h"

static uint32_t widen_f16(uint32_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1Fu, mantissa = half & 0x3FFu;
    if (exponent == 0x1F)
        return sign | 0x7F800000u | mantissa << 13 | (mantissa ? 0x400000u : 0);
    if (exponent)
        return sign | (exponent + 112) << 23 | mantissa << 13;
    if (!mantissa)
        return sign;
    /* A denormal becomes normal: shift its leading 1 to the hidden place. */
    unsigned shift = (unsigned)__builtin_clz(mantissa) - 21;
    return sign | (113 - shift) << 23 | (mantissa << shift & 0x3FFu) << 13;
}

/* Drops `drop` low bits, to nearest even. */
static uint32_t round_off(uint32_t x, unsigned drop)
{
    uint32_t odd = x >> drop & 1;
    return (x + (1u << (drop - 1)) - 1 + odd) >> drop;
}

static uint16_t narrow_f16(uint32_t x)
{
    uint32_t sign = x >> 16 & 0x8000u, magnitude = x & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x1FFu));
    if (magnitude >= 0x47800000u) /* 65536 and more; what rounds up to it is found below */
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude >= 0x38800000u) /* normal: the carry of the rounding may reach the exponent */
        return (uint16_t)(sign | round_off(magnitude - 0x38000000u, 13));
    if (magnitude <= 0x33000000u) /* at most half of the least denormal */
        return (uint16_t)sign;
    uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    return (uint16_t)(sign | round_off(mantissa, 126 - (magnitude >> 23)));
}

static uint32_t widen_bf16(uint32_t half)
{
    uint32_t x = half << 16;
    return (x & 0x7FFFFFFFu) > 0x7F800000u ? x | 0x400000u : x;
}

static uint16_t narrow_bf16(uint32_t x)
{
    if ((x & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(x >> 16 | 0x40u);
    return (uint16_t)((x + 0x7FFFu + (x >> 16 & 1)) >> 16);
}

void gw__cast_ref_f16_to_f32(const void *src, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gw__store32((uint8_t *)dst + 4 * i, widen_f16(gw__load16((const uint8_t *)src + 2 * i)));
}

void gw__cast_ref_f32_to_f16(const void *src, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gw__store16((uint8_t *)dst + 2 * i, narrow_f16(gw__load32((const uint8_t *)src + 4 * i)));
}

void gw__cast_ref_bf16_to_f32(const void *src, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gw__store32((uint8_t *)dst + 4 * i, widen_bf16(gw__load16((const uint8_t *)src + 2 * i)));
}

void gw__cast_ref_f32_to_bf16(const void *src, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gw__store16((uint8_t *)dst + 2 * i, narrow_bf16(gw__load32((const uint8_t *)src + 4 * i)));
}
