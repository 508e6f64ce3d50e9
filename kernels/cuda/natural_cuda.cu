/* SPDX-License-Identifier: Apache-2.0 */
/* Levels that are powers of two, of device memory. */
#define GW_NATURAL_TABLE static __device__ const
#include "../natural_levels.h"
#include "device.cuh"

GW_DEVICE gw_natural_spec_t spec_of(unsigned rule, unsigned bits, unsigned bucket,
                                    unsigned stochastic, float clip)
{
    gw_natural_spec_t spec;
    spec.rule = (gw_natural_rule_t)rule;
    spec.bits = bits;
    spec.bucket = bucket;
    spec.stochastic = stochastic != 0;
    spec.clip = clip;
    return spec;
}

GW_DEVICE uint32_t magnitude_of(float x)
{
    return gw__float_bits(x) & 0x7FFFFFFFu;
}

/* ---- Scales -------------------------------------------------------------------------------------
 * A lane has the elements l, l + 32 ... of a bucket: those of its sum.
 */

GW_DEVICE uint32_t greatest_of(const float *p, unsigned n)
{
    uint32_t most = 0;
    for (unsigned i = gw_lane(); i < n; i += GW_LANES)
        most = magnitude_of(p[i]) > most ? magnitude_of(p[i]) : most;
    return gw_warp_most(most);
}

GW_DEVICE float sum_of(const float *p, unsigned n)
{
    float sum = 0.0f;
    for (unsigned i = gw_lane(); i < n; i += GW_LANES)
        sum += p[i] * p[i];
    return gw_warp_fold(sum);
}

GW_DEVICE double wide_sum_of(const float *p, unsigned n)
{
    double sum = 0.0;
    for (unsigned i = gw_lane(); i < n; i += GW_LANES)
        sum += (double)p[i] * (double)p[i];
    return gw_warp_fold_wide(sum);
}

GW_DEVICE float scale_of(const gw_natural_spec_t *spec, const float *p, unsigned n, float most)
{
    float sum = sum_of(p, n);
    if (spec->rule == GW_NATURAL_MOST || gw__natural_sum_is_ordinary(sum))
        return gw__natural_scale(spec, sum, most, n);
    return gw__natural_wide_scale(spec, wide_sum_of(p, n), most, n);
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

/* The codes of the elements 8 o to 8 o + 7 of n; p becomes what is lost of them. */
GW_DEVICE uint64_t code_octet(const gw_natural_spec_t *spec, float scale, float *p, unsigned o,
                              unsigned n, gw_quant_noise_t noise)
{
    const float *step = gw__natural_step[spec->bits - GW_NATURAL_BITS_LEAST];
    uint64_t codes = 0;
    GW_UNROLL(8)
    for (unsigned j = 0; j < 8; j++) {
        unsigned i = 8 * o + j;
        if (i < n) {
            uint32_t added = gw__natural_added(spec->stochastic, noise, i);
            uint32_t code = gw__natural_code(p[i], scale, added, spec->bits);
            p[i] = p[i] - scale * step[code];
            codes |= (uint64_t)code << j * spec->bits;
        }
    }
    return codes;
}

GW_DEVICE void poison(unsigned bytes, uint8_t *out)
{
    for (unsigned i = gw_lane(); i < bytes; i += GW_LANES)
        out[i] = i < 4 ? (uint8_t)(GW_NAN_BITS >> 8 * i) : 0;
}

/* The bucket of the n elements in p, into shared memory; p becomes what is lost. Returns whether
 * all were finite, in every lane. */
GW_DEVICE bool code_levels(const gw_natural_spec_t *spec, float *p, unsigned n,
                           gw_quant_noise_t noise, uint8_t *out)
{
    uint32_t most = greatest_of(p, n);
    if (most >= 0x7F800000u) {
        poison((unsigned)gw__natural_bytes(spec, n), out);
        return false;
    }
    float scale = scale_of(spec, p, n, gw__float_of(most));
    if (gw_lane() == 0)
        gw__store_float(out, scale);
    for (unsigned o = gw_lane(); 8 * o < n; o += GW_LANES) {
        unsigned rest = n - 8 * o;
        gw_put_octet(out + 4 + o * spec->bits, code_octet(spec, scale, p, o, n, noise),
                     rest < 8 ? (rest * spec->bits + 7) / 8 : spec->bits);
    }
    return true;
}

/* The exponent of an element; p becomes what is lost of it, or what was lost before where it is not
 * finite. */
GW_DEVICE uint32_t code_power(float *p, uint32_t added, const float *kept, uint32_t *poisoned)
{
    if (magnitude_of(*p) >= 0x7F800000u) {
        ++*poisoned;
        *p = kept ? *kept : 0.0f;
        return GW_NATURAL_POISON;
    }
    uint32_t power = gw__natural_power(magnitude_of(*p), added);
    *p = *p - gw__natural_power_value(power, gw__float_bits(*p) >> 31);
    return power;
}

/* Exponents, then signs. Returns how many elements of this lane are not finite. */
GW_DEVICE uint32_t code_powers(const gw_natural_spec_t *spec, float *p, const float *kept,
                               unsigned n, gw_quant_noise_t noise, uint8_t *out)
{
    uint32_t poisoned = 0;
    for (unsigned o = gw_lane(); 8 * o < n; o += GW_LANES) {
        uint32_t signs = 0;
        uint64_t powers = 0;
        GW_UNROLL(8)
        for (unsigned j = 0; j < 8; j++) {
            unsigned i = 8 * o + j;
            if (i < n) {
                uint32_t sign = gw__float_bits(p[i]) >> 31;
                uint32_t power = code_power(p + i, gw__natural_added(spec->stochastic, noise, i),
                                            kept ? kept + i : NULL, &poisoned);
                signs |= (power == GW_NATURAL_POISON ? 0 : sign) << j;
                powers |= (uint64_t)power << 8 * j;
            }
        }
        gw_put_octet(out + 8 * o, powers, n - 8 * o < 8 ? n - 8 * o : 8);
        out[n + o] = (uint8_t)signs;
    }
    return poisoned;
}

extern "C" __global__ void gw_cuda_natural_encode(unsigned rule, unsigned bits, unsigned bucket,
                                                  unsigned stochastic, float clip, const float *src,
                                                  float *residual, uint64_t count, uint64_t first,
                                                  uint64_t key, uint8_t *dst, uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    gw_natural_spec_t spec = spec_of(rule, bits, bucket, stochastic, clip);
    uint64_t stride = gw__natural_bytes(&spec, bucket), buckets = (count + bucket - 1) / bucket;
    float *p =
        (float *)(shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_natural_encode_room(&spec));
    uint32_t poisoned = 0;
    for (uint64_t k = gw_warp(); k < buckets; k += gw_warps()) {
        unsigned n = gw_part(count, k, bucket);
        float *kept = residual ? residual + k * bucket : NULL;
        uint8_t *out = gw_like((uint8_t *)(p + bucket), dst + k * stride);
        gw_quant_noise_t noise = gw__quant_noise(key, first / bucket + k);
        bool finite = true;
        gw_load_sum(src + k * bucket, kept, n, p);
        __syncwarp();
        if (spec.rule == GW_NATURAL_POWERS) {
            poisoned += code_powers(&spec, p, kept, n, noise, out);
        } else {
            finite = code_levels(&spec, p, n, noise, out);
            poisoned += !finite && gw_lane() == 0;
        }
        __syncwarp();
        gw_copy_bytes(dst + k * stride, out, (unsigned)gw__natural_bytes(&spec, n));
        if (kept && finite)
            gw_store_floats(kept, p, n);
        __syncwarp();
    }
    gw_report(result + GW_CUDA_POISONED, poisoned);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* Whether an encoder can have written this bucket: its scale, and the bits behind the last one. */
GW_DEVICE bool bucket_valid(const gw_natural_spec_t *spec, const uint8_t *at, unsigned n)
{
    bool powers = spec->rule == GW_NATURAL_POWERS;
    unsigned used = powers ? n : n * spec->bits;
    return (powers || gw__natural_scale_valid(gw_shared_word(at))) &&
           (used % 8 == 0 || at[gw__natural_bytes(spec, n) - 1] >> used % 8 == 0);
}

/* Four elements from a multiple of 4 on. */
GW_DEVICE float4 level_quad(const gw_natural_spec_t *spec, const uint8_t *at, unsigned i)
{
    const float *step = gw__natural_step[spec->bits - GW_NATURAL_BITS_LEAST];
    float scale = gw__float_of(gw_shared_word(at));
    unsigned bits = spec->bits, bit = i * bits;
    uint32_t word = gw_shared_word(at + 4 + bit / 8) >> bit % 8, mask = (1u << bits) - 1;
    return make_float4(scale * step[word & mask], scale * step[word >> bits & mask],
                       scale * step[word >> 2 * bits & mask],
                       scale * step[word >> 3 * bits & mask]);
}

GW_DEVICE float4 power_quad(const uint8_t *at, unsigned i, unsigned n)
{
    uint32_t powers = gw_shared_word(at + i), signs = (uint32_t)at[n + i / 8] >> i % 8;
    return make_float4(gw__natural_power_value(powers & 0xFF, signs & 1),
                       gw__natural_power_value(powers >> 8 & 0xFF, signs >> 1 & 1),
                       gw__natural_power_value(powers >> 16 & 0xFF, signs >> 2 & 1),
                       gw__natural_power_value(powers >> 24, signs >> 3 & 1));
}

GW_DEVICE void decode_bucket(const gw_natural_spec_t *spec, const uint8_t *at, unsigned n, bool add,
                             float *dst)
{
    bool wide = gw_wide(dst);
    for (unsigned i = 4 * gw_lane(); i < n; i += 4 * GW_LANES) {
        float4 v = spec->rule == GW_NATURAL_POWERS ? power_quad(at, i, n) : level_quad(spec, at, i);
        if (add)
            v = gw_quad_sum(gw_quad(dst, i, n, wide), v);
        gw_put_quad(
            dst, i, n, wide,
            make_float4(gw_one_nan(v.x), gw_one_nan(v.y), gw_one_nan(v.z), gw_one_nan(v.w)));
    }
}

extern "C" __global__ void gw_cuda_natural_decode(unsigned rule, unsigned bits, unsigned bucket,
                                                  unsigned add, const uint8_t *payload,
                                                  uint64_t count, float *dst, uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    gw_natural_spec_t spec = spec_of(rule, bits, bucket, 0, 0.0f);
    uint64_t stride = gw__natural_bytes(&spec, bucket), buckets = (count + bucket - 1) / bucket;
    uint8_t *room =
        shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_natural_payload_room(&spec);
    uint32_t invalid = 0;
    for (uint64_t k = gw_warp(); k < buckets; k += gw_warps()) {
        unsigned n = gw_part(count, k, bucket);
        uint8_t *at = gw_like(room, payload + k * stride);
        gw_copy_bytes(at, payload + k * stride, (unsigned)gw__natural_bytes(&spec, n));
        __syncwarp();
        if (bucket_valid(&spec, at, n))
            decode_bucket(&spec, at, n, add != 0, dst + k * bucket);
        else
            invalid += gw_lane() == 0;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_INVALID, invalid);
}
