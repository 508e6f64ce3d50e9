/* SPDX-License-Identifier: Apache-2.0 */
/* One bit an element, of device memory: a warp is the 32 lanes that sign_scale.h sums in. */
#include "../sign_scale.h"
#include "device.cuh"

GW_DEVICE float magnitude(float x)
{
    return gw__float_of(gw__float_bits(x) & 0x7FFFFFFFu);
}

GW_DEVICE float sum_of(const float *p, unsigned n, float factor)
{
    float sum = 0.0f;
    for (unsigned i = gw_lane(); i < n; i += GW_LANES)
        sum += magnitude(p[i]) * factor;
    return gw_warp_fold(sum);
}

GW_DEVICE float scale_of(const float *p, unsigned n, unsigned touched)
{
    float sum = sum_of(p, n, 1.0f);
    if (sum <= FLT_MAX)
        return gw__sign_scale(sum, touched, false);
    return gw__sign_scale(sum_of(p, n, GW_SIGN_SMALLER), touched, true);
}

/* A group of 32 elements is what the warp sees at once. */
typedef struct group {
    bool zeros;
    uint32_t signs;
} group_t;

GW_DEVICE group_t group_of(float x, bool inside)
{
    group_t g;
    g.zeros = !__any_sync(GW_ALL, inside && x != 0.0f);
    g.signs = __ballot_sync(GW_ALL, inside && gw__float_bits(x) >> 31);
    if (g.zeros)
        g.signs = 0;
    return g;
}

/* Mask and signs; p becomes what is lost at this scale. */
GW_DEVICE void put_signs(float *p, unsigned n, float scale, uint8_t *out)
{
    uint8_t *mask = out + 4, *signs = out + gw__sign_meta_bytes(n);
    unsigned lane = gw_lane(), row = 0;
    for (unsigned at = 0; at < n; at += GW_LANES) {
        unsigned i = at + lane, g = at / GW_SIGN_GROUP;
        group_t group = group_of(i < n ? p[i] : 0.0f, i < n);
        row |= (unsigned)group.zeros << g % 8;
        if (i / 8 * 8 == i && i < n) /* a lane of eight has their byte */
            signs[i / 8] = (uint8_t)(group.signs >> lane);
        if (i < n) {
            float value = group.zeros ? 0.0f : scale;
            p[i] = p[i] - (group.signs >> lane & 1 ? -value : value);
        }
        if (g % 8 == 7 || at + GW_LANES >= n) {
            if (lane == 0)
                mask[g / 8] = (uint8_t)row;
            row = 0;
        }
    }
}

/* How many elements the groups that hold anything but zeros have; whether all are finite. */
GW_DEVICE unsigned look(const float *p, unsigned n, bool *finite)
{
    unsigned touched = 0;
    bool odd = false;
    for (unsigned at = 0; at < n; at += GW_LANES) {
        unsigned i = at + gw_lane();
        float x = i < n ? p[i] : 0.0f;
        odd |= !(magnitude(x) <= FLT_MAX);
        if (__any_sync(GW_ALL, x != 0.0f))
            touched += n - at < GW_LANES ? n - at : GW_LANES;
    }
    *finite = !__any_sync(GW_ALL, odd);
    return touched;
}

GW_DEVICE bool code_bucket(float *p, unsigned n, uint8_t *out)
{
    bool finite;
    unsigned touched = look(p, n, &finite);
    if (!finite) {
        for (unsigned i = gw_lane(); i < gw__sign_bytes(n); i += GW_LANES)
            out[i] = i < 4 ? (uint8_t)(GW_NAN_BITS >> 8 * i) : 0;
        return false;
    }
    float scale = scale_of(p, n, touched);
    if (gw_lane() == 0)
        gw__store_float(out, scale);
    put_signs(p, n, scale, out);
    return true;
}

extern "C" __global__ void gw_cuda_sign_encode(unsigned bucket, const float *src, float *residual,
                                               uint64_t count, uint8_t *dst, uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    uint64_t stride = gw__sign_bytes(bucket), buckets = (count + bucket - 1) / bucket;
    float *p =
        (float *)(shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_sign_encode_room(bucket));
    uint32_t poisoned = 0;
    for (uint64_t k = gw_warp(); k < buckets; k += gw_warps()) {
        unsigned n = gw_part(count, k, bucket);
        float *kept = residual ? residual + k * bucket : NULL;
        uint8_t *out = gw_like((uint8_t *)(p + bucket), dst + k * stride);
        gw_load_sum(src + k * bucket, kept, n, p);
        __syncwarp();
        bool finite = code_bucket(p, n, out);
        __syncwarp();
        gw_copy_bytes(dst + k * stride, out, (unsigned)gw__sign_bytes(n));
        if (kept && finite)
            gw_store_floats(kept, p, n);
        poisoned += !finite && gw_lane() == 0;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_POISONED, poisoned);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

GW_DEVICE bool rest_is_zero(const uint8_t *bytes, unsigned used)
{
    return used % 8 == 0 || bytes[used / 8] >> used % 8 == 0;
}

GW_DEVICE bool bucket_valid(const uint8_t *at, unsigned n)
{
    return gw__sign_scale_valid(gw_shared_word(at)) &&
           rest_is_zero(at + 4, (unsigned)gw__sign_groups(n)) &&
           rest_is_zero(at + gw__sign_meta_bytes(n), n);
}

GW_DEVICE float signed_value(float value, uint32_t negative)
{
    return negative & 1 ? -value : value;
}

/* Four elements from a multiple of 4 on: of one group, in one byte of signs. */
GW_DEVICE float4 decode_quad(const uint8_t *at, unsigned n, float scale, unsigned i)
{
    unsigned g = i / GW_SIGN_GROUP;
    float value = at[4 + g / 8] >> g % 8 & 1 ? 0.0f : scale;
    uint32_t signs = (uint32_t)at[gw__sign_meta_bytes(n) + i / 8] >> i % 8;
    return make_float4(signed_value(value, signs), signed_value(value, signs >> 1),
                       signed_value(value, signs >> 2), signed_value(value, signs >> 3));
}

GW_DEVICE void decode_bucket(const uint8_t *at, unsigned n, bool add, float *dst)
{
    float scale = gw__float_of(gw_shared_word(at)), nan = gw__float_of(GW_NAN_BITS);
    bool wide = gw_wide(dst), poisoned = scale != scale;
    for (unsigned i = 4 * gw_lane(); i < n; i += 4 * GW_LANES) {
        float4 v = decode_quad(at, n, scale, i);
        if (add && !poisoned)
            v = gw_quad_sum(gw_quad(dst, i, n, wide), v);
        v = poisoned
                ? make_float4(nan, nan, nan, nan)
                : make_float4(gw_one_nan(v.x), gw_one_nan(v.y), gw_one_nan(v.z), gw_one_nan(v.w));
        gw_put_quad(dst, i, n, wide, v);
    }
}

extern "C" __global__ void gw_cuda_sign_decode(unsigned bucket, unsigned add,
                                               const uint8_t *payload, uint64_t count, float *dst,
                                               uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    uint64_t stride = gw__sign_bytes(bucket), buckets = (count + bucket - 1) / bucket;
    uint8_t *room = shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_sign_payload_room(bucket);
    uint32_t invalid = 0;
    for (uint64_t k = gw_warp(); k < buckets; k += gw_warps()) {
        unsigned n = gw_part(count, k, bucket);
        uint8_t *at = gw_like(room, payload + k * stride);
        gw_copy_bytes(at, payload + k * stride, (unsigned)gw__sign_bytes(n));
        __syncwarp();
        if (bucket_valid(at, n))
            decode_bucket(at, n, add != 0, dst + k * bucket);
        else
            invalid += gw_lane() == 0;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_INVALID, invalid);
}
