/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 4 bits with a scale for 32 (MXFP4) or 16 (NVFP4) elements, of device memory. */
#include "../minifloat.h"
#include "device.cuh"

/* A group: n elements whose scales lie together, before their codes. A warp does one. */
typedef struct group {
    gw_float_format_t format;
    unsigned n, block, scales, meta; /* meta: bytes before the scales */
} group_t;

GW_DEVICE group_t group_of(unsigned nv, unsigned n)
{
    group_t g;
    g.format = nv ? GW_FLOAT_NVFP4 : GW_FLOAT_MXFP4;
    g.n = n;
    g.block = nv ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK;
    g.scales = (n + g.block - 1) / g.block;
    g.meta = nv ? GW_NVFP4_META_BYTES : 0;
    return g;
}

GW_DEVICE unsigned group_bytes(const group_t *g)
{
    return g->meta + g->scales + (g->n + 1) / 2;
}

GW_DEVICE gw_float_spec_t spec_of(unsigned nv, unsigned group)
{
    gw_float_spec_t spec;
    spec.format = nv ? GW_FLOAT_NVFP4 : GW_FLOAT_MXFP4;
    spec.block = group;
    return spec;
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

/* The greatest magnitude of block k, as bits. A lane has a block: its elements are taken from
 * another one on, so that lanes do not meet in a bank of shared memory. */
GW_DEVICE uint32_t most_of(const group_t *g, const float *p, unsigned k)
{
    uint32_t most = 0;
    unsigned at = k * g->block, n = g->n - at < g->block ? g->n - at : g->block;
    for (unsigned i = 0; i < g->block; i++) {
        unsigned j = (i + gw_lane()) % g->block;
        uint32_t magnitude = j < n ? gw__float_bits(p[at + j]) & 0x7FFFFFFFu : 0;
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

/* The greatest finite one of those, in every lane; how many blocks of this lane are not finite. */
GW_DEVICE float top_of(const group_t *g, const float *p, uint32_t *poisoned)
{
    uint32_t top = 0;
    for (unsigned k = gw_lane(); k < g->scales; k += GW_LANES) {
        uint32_t most = most_of(g, p, k);
        *poisoned += most >= 0x7F800000u;
        top = most < 0x7F800000u && most > top ? most : top;
    }
    return gw__float_of(gw_warp_most(top));
}

GW_DEVICE uint32_t scale_code(const group_t *g, uint32_t most, float inverse)
{
    bool nv = g->format == GW_FLOAT_NVFP4;
    if (most >= 0x7F800000u)
        return nv ? GW_FP4_POISON_NV : GW_FP4_POISON_MX;
    return nv ? gw__nvfp4_scale_code(gw__float_of(most), inverse)
              : gw__mxfp4_scale_code(gw__float_of(most));
}

/* Codes an element, and leaves in p what is lost of it. */
GW_DEVICE uint32_t code_one(float scale, float *p)
{
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    uint32_t code = gw__fp4_code(*p * inverse);
    *p = *p - scale * gw__fp4_value(code);
    return code;
}

/* The codes of two elements are a byte. Scales are in shared memory. */
GW_DEVICE void put_codes(const group_t *g, float group, float *p, uint8_t *out)
{
    const uint8_t *scales = out + g->meta;
    uint8_t *codes = out + g->meta + g->scales;
    for (unsigned i = 2 * gw_lane(); i < g->n; i += 2 * GW_LANES) {
        float scale = gw__fp4_scale(g->format, scales[i / g->block], group);
        uint32_t code = 0;
        if (scale == scale) {
            code = code_one(scale, p + i);
            if (i + 1 < g->n)
                code |= code_one(scale, p + i + 1) << 4;
        }
        codes[i / 2] = (uint8_t)code;
    }
}

/* What is lost into the residual, but for blocks that are poisoned. */
GW_DEVICE void keep_loss(const group_t *g, const float *p, const uint8_t *out, bool poisoned,
                         float *residual)
{
    if (!__any_sync(GW_ALL, poisoned)) {
        gw_store_floats(residual, p, g->n);
        return;
    }
    for (unsigned i = gw_lane(); i < g->n; i += GW_LANES) {
        float scale = gw__fp4_scale(g->format, out[g->meta + i / g->block], 1.0f);
        if (scale == scale)
            residual[i] = p[i];
    }
}

/* Returns how many blocks of this lane are not finite. */
GW_DEVICE uint32_t code_group(const group_t *g, float *p, uint8_t *out)
{
    uint32_t poisoned = 0;
    float group = gw__nvfp4_group_scale(top_of(g, p, &poisoned)), inverse = 1.0f / (6.0f * group);
    if (gw_lane() == 0 && g->meta)
        gw__store_float(out, group);
    for (unsigned k = gw_lane(); k < g->scales; k += GW_LANES)
        out[g->meta + k] = (uint8_t)scale_code(g, most_of(g, p, k), inverse);
    __syncwarp();
    put_codes(g, group, p, out);
    return poisoned;
}

extern "C" __global__ void gw_cuda_fp4_encode(unsigned nv, unsigned size, const float *src,
                                              float *residual, uint64_t count, uint8_t *dst,
                                              uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    gw_float_spec_t spec = spec_of(nv, size);
    uint64_t stride = gw__float_bytes(&spec, size), groups = (count + size - 1) / size;
    float *p =
        (float *)(shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_fp4_encode_room(nv, size));
    uint32_t poisoned = 0;
    for (uint64_t k = gw_warp(); k < groups; k += gw_warps()) {
        group_t g = group_of(nv, gw_part(count, k, size));
        float *kept = residual ? residual + k * size : NULL;
        uint8_t *out = gw_like((uint8_t *)(p + size), dst + k * stride);
        gw_load_sum(src + k * size, kept, g.n, p);
        __syncwarp();
        uint32_t odd = code_group(&g, p, out);
        __syncwarp();
        gw_copy_bytes(dst + k * stride, out, group_bytes(&g));
        if (kept)
            keep_loss(&g, p, out, odd > 0, kept);
        poisoned += odd;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_POISONED, poisoned);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

GW_DEVICE bool group_valid(const group_t *g, const uint8_t *at)
{
    bool wrong = g->meta && !gw__nvfp4_group_valid(gw_shared_word(at));
    for (unsigned k = gw_lane(); k < g->scales; k += GW_LANES)
        wrong |= !gw__fp4_scale_valid(g->format, at[g->meta + k]);
    wrong |= g->n % 2 && at[group_bytes(g) - 1] >> 4;
    return !__any_sync(GW_ALL, wrong);
}

GW_DEVICE void decode_group(const group_t *g, const uint8_t *at, bool add, float *dst)
{
    float group = g->meta ? gw__float_of(gw_shared_word(at)) : 0.0f;
    const uint8_t *scales = at + g->meta, *codes = scales + g->scales;
    bool wide = gw_wide(dst);
    for (unsigned i = 4 * gw_lane(); i < g->n; i += 4 * GW_LANES) {
        float scale = gw__fp4_scale(g->format, scales[i / g->block], group);
        uint32_t word = gw_shared_word(codes + i / 2);
        float4 v = make_float4(
            scale * gw__fp4_value(word & 15u), scale * gw__fp4_value(word >> 4 & 15u),
            scale * gw__fp4_value(word >> 8 & 15u), scale * gw__fp4_value(word >> 12 & 15u));
        if (add)
            v = gw_quad_sum(gw_quad(dst, i, g->n, wide), v);
        gw_put_quad(
            dst, i, g->n, wide,
            make_float4(gw_one_nan(v.x), gw_one_nan(v.y), gw_one_nan(v.z), gw_one_nan(v.w)));
    }
}

extern "C" __global__ void gw_cuda_fp4_decode(unsigned nv, unsigned size, unsigned add,
                                              const uint8_t *payload, uint64_t count, float *dst,
                                              uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    gw_float_spec_t spec = spec_of(nv, size);
    uint64_t stride = gw__float_bytes(&spec, size), groups = (count + size - 1) / size;
    uint8_t *room = shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_fp4_payload_room(nv, size);
    uint32_t invalid = 0;
    for (uint64_t k = gw_warp(); k < groups; k += gw_warps()) {
        group_t g = group_of(nv, gw_part(count, k, size));
        uint8_t *at = gw_like(room, payload + k * stride);
        gw_copy_bytes(at, payload + k * stride, group_bytes(&g));
        __syncwarp();
        if (group_valid(&g, at))
            decode_group(&g, at, add != 0, dst + k * size);
        else
            invalid += gw_lane() == 0;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_INVALID, invalid);
}
