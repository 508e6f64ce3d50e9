/* SPDX-License-Identifier: Apache-2.0 */
/* Casts between binary32 and the 16-bit formats, normative scalar tier: integer arithmetic only,
 * but for residuals and sums. */
#include "ref.h"

#include "fpmode.h"

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

/* ---- For codec cast -----------------------------------------------------------------------------
 */

static bool is_finite(float x)
{
    return (gw__float_bits(x) & 0x7F800000u) != 0x7F800000u;
}

static uint16_t narrow(bool bf16, float x)
{
    return bf16 ? narrow_bf16(gw__float_bits(x)) : narrow_f16(gw__float_bits(x));
}

static float widen(bool bf16, uint16_t half)
{
    return gw__float_of(bf16 ? widen_bf16(half) : widen_f16(half));
}

/* Of a finite number: what would become an Inf becomes the greatest number before it. */
static uint16_t narrow_finite(bool bf16, float x)
{
    uint16_t half = narrow(bf16, x), infinity = bf16 ? 0x7F80 : 0x7C00;
    return (half & 0x7FFF) == infinity ? (uint16_t)(half - 1) : half;
}

static GW_KERNEL_BODY size_t encode(bool bf16, const float *src, float *residual, size_t count,
                                    uint8_t *dst)
{
    size_t poisoned = 0;
    for (size_t i = 0; i < count; i++) {
        float p = residual ? src[i] + residual[i] : src[i];
        uint16_t half;
        if (is_finite(p)) {
            half = narrow_finite(bf16, p);
            if (residual)
                residual[i] = p - widen(bf16, half);
        } else { /* the pattern of a NaN is that of the source, whatever the sum made of it */
            half = narrow(bf16, is_finite(src[i]) ? p : src[i]);
            poisoned++;
        }
        gw__store16(dst + 2 * i, half);
    }
    return poisoned;
}

static GW_KERNEL_BODY void add(bool bf16, const uint8_t *payload, size_t count, float *dst)
{
    for (size_t i = 0; i < count; i++) {
        float sum = dst[i] + widen(bf16, gw__load16(payload + 2 * i));
        dst[i] = sum != sum ? gw__float_of(GW_NAN_BITS) : sum;
    }
}

size_t gw__cast_ref_encode(const gw_float_spec_t *spec, const float *src, float *residual,
                           size_t count, uint8_t *dst)
{
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encode(spec->format == GW_FLOAT_BF16, src, residual, count, dst);
    gw__fpmode_leave(mode);
    return poisoned;
}

void gw__cast_ref_add(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    add(spec->format == GW_FLOAT_BF16, payload, count, dst);
    gw__fpmode_leave(mode);
}
