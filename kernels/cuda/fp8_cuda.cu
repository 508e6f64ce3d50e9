/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 8 bits with a scale a block, of device memory. */
#include "../minifloat.h"
#include "device.cuh"

GW_DEVICE gw_float_format_t format_of(unsigned e5m2)
{
    return e5m2 ? GW_FLOAT_E5M2 : GW_FLOAT_E4M3;
}

/* The greatest magnitude of n elements in shared memory, as bits, in every lane. */
GW_DEVICE uint32_t most_of(const float *p, unsigned n)
{
    uint32_t most = 0;
    for (unsigned i = gw_lane(); i < n; i += GW_LANES) {
        uint32_t magnitude = gw__float_bits(p[i]) & 0x7FFFFFFFu;
        most = magnitude > most ? magnitude : most;
    }
    return gw_warp_most(most);
}

GW_DEVICE void put_poison(unsigned n, uint8_t *out)
{
    for (unsigned i = gw_lane(); i < GW_FP8_META_BYTES + n; i += GW_LANES)
        out[i] = i < GW_FP8_META_BYTES ? (uint8_t)(GW_NAN_BITS >> 16 >> 8 * i) : 0;
}

/* The block of the n elements in p, into shared memory; p becomes what is lost. Returns whether all
 * were finite, in every lane. */
GW_DEVICE bool code_block(gw_float_format_t format, float *p, unsigned n, uint8_t *out)
{
    uint32_t most = most_of(p, n);
    if (most >= 0x7F800000u) {
        put_poison(n, out);
        return false;
    }
    float scale = gw__fp8_scale(format, gw__float_of(most));
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    if (gw_lane() == 0)
        gw__store16(out, (uint16_t)(gw__float_bits(scale) >> 16));
    for (unsigned i = gw_lane(); i < n; i += GW_LANES) {
        uint32_t code = gw__fp8_code(format, p[i] * inverse);
        out[GW_FP8_META_BYTES + i] = (uint8_t)code;
        p[i] = p[i] - scale * gw__fp8_value(format, code);
    }
    return true;
}

extern "C" __global__ void gw_cuda_fp8_encode(unsigned e5m2, unsigned block, const float *src,
                                              float *residual, uint64_t count, uint8_t *dst,
                                              uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    uint64_t stride = GW_FP8_META_BYTES + block, blocks = (count + block - 1) / block;
    float *p =
        (float *)(shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_fp8_encode_room(block));
    uint32_t poisoned = 0;
    for (uint64_t k = gw_warp(); k < blocks; k += gw_warps()) {
        unsigned n = gw_part(count, k, block);
        float *kept = residual ? residual + k * block : NULL;
        uint8_t *out = gw_like((uint8_t *)(p + block), dst + k * stride);
        gw_load_sum(src + k * block, kept, n, p);
        __syncwarp();
        bool finite = code_block(format_of(e5m2), p, n, out);
        __syncwarp();
        gw_copy_bytes(dst + k * stride, out, GW_FP8_META_BYTES + n);
        if (kept && finite)
            gw_store_floats(kept, p, n);
        poisoned += !finite && gw_lane() == 0;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_POISONED, poisoned);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

GW_DEVICE void decode_block(gw_float_format_t format, const uint8_t *at, unsigned n, bool add,
                            float *dst)
{
    float scale = gw__float_of(gw_shared_word(at) << 16);
    bool wide = gw_wide(dst);
    for (unsigned i = 4 * gw_lane(); i < n; i += 4 * GW_LANES) {
        uint32_t word = gw_shared_word(at + GW_FP8_META_BYTES + i);
        float4 v = make_float4(scale * gw__fp8_value(format, word & 0xFFu),
                               scale * gw__fp8_value(format, word >> 8 & 0xFFu),
                               scale * gw__fp8_value(format, word >> 16 & 0xFFu),
                               scale * gw__fp8_value(format, word >> 24));
        if (add)
            v = gw_quad_sum(gw_quad(dst, i, n, wide), v);
        gw_put_quad(
            dst, i, n, wide,
            make_float4(gw_one_nan(v.x), gw_one_nan(v.y), gw_one_nan(v.z), gw_one_nan(v.w)));
    }
}

extern "C" __global__ void gw_cuda_fp8_decode(unsigned e5m2, unsigned block, unsigned add,
                                              const uint8_t *payload, uint64_t count, float *dst,
                                              uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    uint64_t stride = GW_FP8_META_BYTES + block, blocks = (count + block - 1) / block;
    uint8_t *room = shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_fp8_payload_room(block);
    uint32_t invalid = 0;
    for (uint64_t k = gw_warp(); k < blocks; k += gw_warps()) {
        unsigned n = gw_part(count, k, block);
        uint8_t *at = gw_like(room, payload + k * stride);
        gw_copy_bytes(at, payload + k * stride, GW_FP8_META_BYTES + n);
        __syncwarp();
        if (gw__fp8_scale_valid(format_of(e5m2), gw_shared_word(at) & 0xFFFFu))
            decode_block(format_of(e5m2), at, n, add != 0, dst + k * block);
        else
            invalid += gw_lane() == 0;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_INVALID, invalid);
}
