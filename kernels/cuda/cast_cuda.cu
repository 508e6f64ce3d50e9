/* SPDX-License-Identifier: Apache-2.0 */
/* Casts of device memory between binary32 and the 16-bit formats. */
#include "../half.h"
#include "device.cuh"

/*
 * Four elements a thread where all addresses allow it: 16 bytes of binary32 and 8 of halves. Else
 * one by one, of halves and numbers at any address.
 */
GW_DEVICE bool at_eight(const void *p)
{
    return ((uintptr_t)p & 7) == 0;
}

/* ---- Plain casts --------------------------------------------------------------------------------
 */

GW_DEVICE float4 widen_four(bool bf16, uint2 v)
{
    return make_float4(gw__widen(bf16, (uint16_t)v.x), gw__widen(bf16, (uint16_t)(v.x >> 16)),
                       gw__widen(bf16, (uint16_t)v.y), gw__widen(bf16, (uint16_t)(v.y >> 16)));
}

extern "C" __global__ void gw_cuda_cast_widen(unsigned bf16, const uint8_t *src, uint8_t *dst,
                                              uint64_t count)
{
    uint64_t i = gw_thread();
    if (at_eight(src) && gw_wide(dst)) {
        for (uint64_t j = 4 * i; j + 4 <= count; j += 4 * gw_threads())
            *(float4 *)(dst + 4 * j) = widen_four(bf16 != 0, *(const uint2 *)(src + 2 * j));
        i += count & ~(uint64_t)3;
    }
    for (; i < count; i += gw_threads())
        gw_store_float(dst + 4 * i, gw__widen(bf16 != 0, gw_load_half(src + 2 * i)));
}

GW_DEVICE uint2 two_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return make_uint2(a | b << 16, c | d << 16);
}

extern "C" __global__ void gw_cuda_cast_narrow(unsigned bf16, const uint8_t *src, uint8_t *dst,
                                               uint64_t count)
{
    uint64_t i = gw_thread();
    bool b = bf16 != 0;
    if (gw_wide(src) && at_eight(dst)) {
        for (uint64_t j = 4 * i; j + 4 <= count; j += 4 * gw_threads()) {
            float4 v = *(const float4 *)(src + 4 * j);
            *(uint2 *)(dst + 2 * j) = two_words(gw__narrow(b, v.x), gw__narrow(b, v.y),
                                                gw__narrow(b, v.z), gw__narrow(b, v.w));
        }
        i += count & ~(uint64_t)3;
    }
    for (; i < count; i += gw_threads())
        gw_store_half(dst + 2 * i, gw__narrow(b, gw_load_float(src + 4 * i)));
}

/* Four neighbours that share their random bits are one thread's where `first` is a multiple of 4. */
extern "C" __global__ void gw_cuda_cast_stochastic(const float *src, uint8_t *dst, uint64_t count,
                                                   uint64_t first, uint64_t key)
{
    uint64_t i = gw_thread();
    if (gw_wide(src) && at_eight(dst) && first % 4 == 0) {
        for (uint64_t j = 4 * i; j + 4 <= count; j += 4 * gw_threads()) {
            float4 v = *(const float4 *)(src + j);
            uint64_t noise = gw__half_noise(key, (first + j) / 4);
            uint32_t low = (uint32_t)noise, high = (uint32_t)(noise >> 32);
            *(uint2 *)(dst + 2 * j) =
                two_words(gw__stochastic_bf16(gw__float_bits(v.x), low & 0xFFFF),
                          gw__stochastic_bf16(gw__float_bits(v.y), low >> 16),
                          gw__stochastic_bf16(gw__float_bits(v.z), high & 0xFFFF),
                          gw__stochastic_bf16(gw__float_bits(v.w), high >> 16));
        }
        i += count & ~(uint64_t)3;
    }
    for (; i < count; i += gw_threads()) {
        uint64_t at = first + i, noise = gw__half_noise(key, at / 4);
        gw_store_half(dst + 2 * i,
                      gw__stochastic_bf16(gw__float_bits(src[i]),
                                          (uint32_t)(noise >> 16 * (at % 4)) & 0xFFFF));
    }
}

/* ---- For codec cast -----------------------------------------------------------------------------
 */

/* The half of src + kept; kept becomes what is lost, and stays where the sum is not finite. */
GW_DEVICE uint16_t encode_one(bool bf16, float src, bool ef, float *kept, uint32_t *poisoned)
{
    float p = ef ? src + *kept : src;
    if (!gw__is_finite(p)) {
        ++*poisoned;
        return gw__narrow(bf16, gw__is_finite(src) ? p : src);
    }
    uint16_t half = gw__narrow_finite(bf16, p);
    *kept = p - gw__widen(bf16, half);
    return half;
}

extern "C" __global__ void gw_cuda_cast_encode(unsigned bf16, const float *src, float *residual,
                                               uint64_t count, uint8_t *dst, uint32_t *result)
{
    uint64_t i = gw_thread();
    bool b = bf16 != 0, ef = residual != NULL;
    uint32_t poisoned = 0;
    if (gw_wide(src) && at_eight(dst) && gw_wide(residual)) {
        for (uint64_t j = 4 * i; j + 4 <= count; j += 4 * gw_threads()) {
            float4 v = *(const float4 *)(src + j), r = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (ef)
                r = *(const float4 *)(residual + j);
            uint32_t x = encode_one(b, v.x, ef, &r.x, &poisoned);
            uint32_t y = encode_one(b, v.y, ef, &r.y, &poisoned);
            uint32_t z = encode_one(b, v.z, ef, &r.z, &poisoned);
            uint32_t w = encode_one(b, v.w, ef, &r.w, &poisoned);
            *(uint2 *)(dst + 2 * j) = two_words(x, y, z, w);
            if (ef)
                *(float4 *)(residual + j) = r;
        }
        i += count & ~(uint64_t)3;
    }
    for (; i < count; i += gw_threads()) {
        float kept = ef ? residual[i] : 0.0f;
        gw_store_half(dst + 2 * i, encode_one(b, src[i], ef, &kept, &poisoned));
        if (ef)
            residual[i] = kept;
    }
    gw_report(result + GW_CUDA_POISONED, poisoned);
}

extern "C" __global__ void gw_cuda_cast_add(unsigned bf16, const uint8_t *payload, uint64_t count,
                                            float *dst)
{
    uint64_t i = gw_thread();
    bool b = bf16 != 0;
    if (at_eight(payload) && gw_wide(dst)) {
        for (uint64_t j = 4 * i; j + 4 <= count; j += 4 * gw_threads()) {
            float4 v = widen_four(b, *(const uint2 *)(payload + 2 * j));
            v = gw_quad_sum(*(const float4 *)(dst + j), v);
            *(float4 *)(dst + j) =
                make_float4(gw_one_nan(v.x), gw_one_nan(v.y), gw_one_nan(v.z), gw_one_nan(v.w));
        }
        i += count & ~(uint64_t)3;
    }
    for (; i < count; i += gw_threads())
        dst[i] = gw_one_nan(dst[i] + gw__widen(b, gw_load_half(payload + 2 * i)));
}
