/* SPDX-License-Identifier: Apache-2.0 */
/* Casts between binary32 and the 16-bit formats, normative scalar tier. */
#include "ref.h"

#include "fpmode.h"
#include "half.h"

void gw__cast_ref_f16_to_f32(const void *src, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gw__store32((uint8_t *)dst + 4 * i,
                    gw__widen_f16(gw__load16((const uint8_t *)src + 2 * i)));
}

void gw__cast_ref_f32_to_f16(const void *src, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gw__store16((uint8_t *)dst + 2 * i,
                    gw__narrow_f16(gw__load32((const uint8_t *)src + 4 * i)));
}

void gw__cast_ref_bf16_to_f32(const void *src, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gw__store32((uint8_t *)dst + 4 * i,
                    gw__widen_bf16(gw__load16((const uint8_t *)src + 2 * i)));
}

void gw__cast_ref_f32_to_bf16(const void *src, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gw__store16((uint8_t *)dst + 2 * i,
                    gw__narrow_bf16(gw__load32((const uint8_t *)src + 4 * i)));
}

void gw__cast_ref_bf16_stochastic(const float *src, void *dst, size_t count, uint64_t first,
                                  uint64_t key)
{
    uint64_t noise = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = first + i;
        if (i == 0 || at % 4 == 0)
            noise = gw__half_noise(key, at / 4);
        gw__store16((uint8_t *)dst + 2 * i,
                    gw__stochastic_bf16(gw__float_bits(src[i]),
                                        (uint32_t)(noise >> 16 * (at % 4)) & 0xFFFF));
    }
}

/* ---- For codec cast -----------------------------------------------------------------------------
 */

static GW_KERNEL_BODY size_t encode(bool bf16, const float *src, float *residual, size_t count,
                                    uint8_t *dst)
{
    size_t poisoned = 0;
    for (size_t i = 0; i < count; i++) {
        float p = residual ? src[i] + residual[i] : src[i];
        uint16_t half;
        if (gw__is_finite(p)) {
            half = gw__narrow_finite(bf16, p);
            if (residual)
                residual[i] = p - gw__widen(bf16, half);
        } else { /* the pattern of a NaN is that of the source, whatever the sum made of it */
            half = gw__narrow(bf16, gw__is_finite(src[i]) ? p : src[i]);
            poisoned++;
        }
        gw__store16(dst + 2 * i, half);
    }
    return poisoned;
}

static GW_KERNEL_BODY void add(bool bf16, const uint8_t *payload, size_t count, float *dst)
{
    for (size_t i = 0; i < count; i++) {
        float sum = dst[i] + gw__widen(bf16, gw__load16(payload + 2 * i));
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
