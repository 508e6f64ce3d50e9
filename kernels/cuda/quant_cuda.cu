/* SPDX-License-Identifier: Apache-2.0 */
/* Max-min quantisation of device memory: encode, decode, and the sum of payloads encoded. */
#include "../quant_grid.h"
#include "device.cuh"

/* ---- Encoding -----------------------------------------------------------------------------------
 */

GW_DEVICE gw_quant_spec_t spec_of(unsigned bits, unsigned bucket, unsigned stochastic,
                                  unsigned zero)
{
    gw_quant_spec_t spec;
    spec.bits = bits;
    spec.bucket = bucket;
    spec.stochastic = stochastic != 0;
    spec.zero = zero != 0;
    return spec;
}

/* The grid of the n elements in shared memory, in every lane. Extremes without NaN: comparing lets
 * them out, and such a bucket has no grid. */
GW_DEVICE gw_quant_grid_t find_grid(const gw_quant_spec_t *spec, const float *p, unsigned n)
{
    float mn = gw__float_of(0x7F800000u), mx = gw__float_of(0xFF800000u);
    bool odd = false;
    for (unsigned i = 4 * gw_lane(); i < n; i += 4 * GW_LANES) {
        float4 v = *(const float4 *)(p + i);
        float x[4] = {v.x, v.y, v.z, v.w};
        GW_UNROLL(4)
        for (unsigned j = 0; j < 4; j++) {
            bool inside = i + j < n;
            odd |= inside && (gw__float_bits(x[j]) & 0x7FFFFFFFu) >= 0x7F800000u;
            mn = inside && x[j] < mn ? x[j] : mn;
            mx = inside && x[j] > mx ? x[j] : mx;
        }
    }
    bool finite = !__any_sync(GW_ALL, odd);
    return gw__quant_grid(spec, gw_warp_min(mn), gw_warp_max(mx), finite);
}

/* Codes the elements 8 o to 8 o + 7, and leaves in p what is lost of them. */
GW_DEVICE uint64_t code_octet(const gw_quant_spec_t *spec, const gw_quant_grid_t *g, float *p,
                              unsigned o, unsigned n, gw_quant_noise_t noise)
{
    float4 low = *(const float4 *)(p + 8 * o), high = *(const float4 *)(p + 8 * o + 4);
    float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    int32_t top = (int32_t)(1u << spec->bits) - 1;
    uint64_t codes = 0;
    GW_UNROLL(8)
    for (unsigned j = 0; j < 8; j++) {
        uint32_t code = 0;
        if (8 * o + j < n) {
            if (spec->stochastic) {
                uint32_t pair = gw__quant_noise_pair(noise, 4 * o + j / 2);
                code = gw__quant_code_stochastic(g, x[j], top, j % 2 ? pair >> 16 : pair & 0xFFFFu);
            } else {
                code = gw__quant_code_nearest(g, x[j], top);
            }
            x[j] = gw__quant_loss(g, x[j], code);
        }
        codes |= (uint64_t)code << j * spec->bits;
    }
    *(float4 *)(p + 8 * o) = make_float4(x[0], x[1], x[2], x[3]);
    *(float4 *)(p + 8 * o + 4) = make_float4(x[4], x[5], x[6], x[7]);
    return codes;
}

/* The bucket of the n elements in p, into shared memory; p becomes what is lost. Returns whether
 * all were finite, in every lane. */
GW_DEVICE bool code_bucket(const gw_quant_spec_t *spec, float *p, unsigned n,
                           gw_quant_noise_t noise, uint8_t *out)
{
    gw_quant_grid_t g = find_grid(spec, p, n);
    if (gw_lane() == 0) {
        gw__store_float(out, g.min);
        gw__store_float(out + 4, g.unit);
    }
    for (unsigned o = gw_lane(); 8 * o < n; o += GW_LANES) {
        uint64_t codes = g.finite ? code_octet(spec, &g, p, o, n, noise) : 0;
        unsigned rest = n - 8 * o;
        gw_put_octet(out + GW_QUANT_META_BYTES + o * spec->bits, codes,
                     rest < 8 ? (rest * spec->bits + 7) / 8 : spec->bits);
    }
    return g.finite;
}

extern "C" __global__ void gw_cuda_quant_encode(unsigned bits, unsigned bucket, unsigned stochastic,
                                                unsigned zero, const float *src, float *residual,
                                                uint64_t count, uint64_t first, uint64_t key,
                                                uint8_t *dst, uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    gw_quant_spec_t spec = spec_of(bits, bucket, stochastic, zero);
    uint64_t stride = gw__quant_bytes(bits, bucket), buckets = (count + bucket - 1) / bucket;
    float *p = (float *)(shared + (size_t)(threadIdx.x / GW_LANES) *
                                      gw__cuda_quant_encode_room(bits, bucket, 0));
    uint32_t poisoned = 0;
    for (uint64_t k = gw_warp(); k < buckets; k += gw_warps()) {
        unsigned n = gw_part(count, k, bucket);
        float *kept = residual ? residual + k * bucket : NULL;
        uint8_t *out = gw_like((uint8_t *)(p + bucket), dst + k * stride);
        gw_load_sum(src + k * bucket, kept, n, p);
        __syncwarp();
        bool finite = code_bucket(&spec, p, n, gw__quant_noise(key, first / bucket + k), out);
        __syncwarp();
        gw_copy_bytes(dst + k * stride, out, (unsigned)gw__quant_bytes(bits, n));
        if (kept && finite)
            gw_store_floats(kept, p, n);
        poisoned += !finite && gw_lane() == 0;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_POISONED, poisoned);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* A bucket of n elements in shared memory. Nothing in it leads to an address: any bytes decode. */
typedef struct source {
    const uint8_t *codes;
    unsigned bits;
    float min, unit;
    bool wide;
} source_t;

GW_DEVICE source_t source_of(const uint8_t *at, unsigned bits)
{
    source_t s;
    s.codes = at + GW_QUANT_META_BYTES;
    s.bits = bits;
    s.min = gw__float_of(gw_shared_word(at));
    s.unit = gw__float_of(gw_shared_word(at + 4));
    s.wide = gw__quant_is_wide(s.min, s.unit, (float)((1u << bits) - 1));
    return s;
}

/* Whether an encoder can have written this bucket: metadata, and the bits behind the last code. */
GW_DEVICE bool bucket_valid(const uint8_t *at, unsigned bits, unsigned n)
{
    unsigned used = n * bits;
    return gw__quant_meta_valid(gw_shared_word(at), gw_shared_word(at + 4)) &&
           (used % 8 == 0 || at[GW_QUANT_META_BYTES + used / 8] >> used % 8 == 0);
}

/* The elements i to i + 3, i a multiple of 4: they lie within four bytes. */
GW_DEVICE float4 decode_quad(const source_t *s, unsigned i)
{
    uint32_t word = gw_shared_word(s->codes + i * s->bits / 8) >> i * s->bits % 8;
    uint32_t mask = (1u << s->bits) - 1;
    return make_float4(gw__quant_value(s->min, s->unit, s->wide, word & mask),
                       gw__quant_value(s->min, s->unit, s->wide, word >> s->bits & mask),
                       gw__quant_value(s->min, s->unit, s->wide, word >> 2 * s->bits & mask),
                       gw__quant_value(s->min, s->unit, s->wide, word >> 3 * s->bits & mask));
}

GW_DEVICE void decode_bucket(const source_t *s, unsigned n, bool add, float *dst)
{
    bool wide = gw_wide(dst);
    for (unsigned i = 4 * gw_lane(); i < n; i += 4 * GW_LANES) {
        float4 v = decode_quad(s, i);
        if (add)
            v = gw_quad_sum(gw_quad(dst, i, n, wide), v);
        gw_put_quad(
            dst, i, n, wide,
            make_float4(gw_one_nan(v.x), gw_one_nan(v.y), gw_one_nan(v.z), gw_one_nan(v.w)));
    }
}

extern "C" __global__ void gw_cuda_quant_decode(unsigned bits, unsigned bucket, unsigned add,
                                                const uint8_t *payload, uint64_t count, float *dst,
                                                uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    uint64_t stride = gw__quant_bytes(bits, bucket), buckets = (count + bucket - 1) / bucket;
    uint8_t *room =
        shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_quant_payload_room(bits, bucket);
    uint32_t invalid = 0;
    for (uint64_t k = gw_warp(); k < buckets; k += gw_warps()) {
        unsigned n = gw_part(count, k, bucket);
        uint8_t *at = gw_like(room, payload + k * stride);
        gw_copy_bytes(at, payload + k * stride, (unsigned)gw__quant_bytes(bits, n));
        __syncwarp();
        source_t s = source_of(at, bits);
        if (bucket_valid(at, bits, n))
            decode_bucket(&s, n, add != 0, dst + k * bucket);
        else
            invalid += gw_lane() == 0;
        __syncwarp();
    }
    gw_report(result + GW_CUDA_INVALID, invalid);
}

/* ---- Sum and encode -----------------------------------------------------------------------------
 */

/* What is summed, at one bucket of it. */
typedef struct addends {
    const float *own;
    unsigned own_at, payloads, batch, room, bits;
    float scale;
} addends_t;

/* Brings payloads from `base` on into shared memory; all loads are under way before one is waited
 * for. */
GW_DEVICE void stage_payloads(const gw_cuda_list_t *list, const addends_t *a, unsigned base,
                              uint64_t skip, unsigned n, uint8_t *rooms)
{
    for (unsigned k = 0; k < a->batch && base + k < a->payloads; k++) {
        const uint8_t *from = list->payload[base + k] + skip;
        gw_copy_bytes(gw_like(rooms + k * a->room, from), from,
                      (unsigned)gw__quant_bytes(a->bits, n));
    }
}

/* The first of the staged payloads that is not valid, or their number. */
GW_DEVICE unsigned refused_of(const gw_cuda_list_t *list, const addends_t *a, unsigned base,
                              uint64_t skip, unsigned n, const uint8_t *rooms)
{
    unsigned lane = gw_lane(), have = a->payloads - base < a->batch ? a->payloads - base : a->batch;
    bool bad = false;
    if (lane < have) {
        const uint8_t *at =
            rooms + lane * a->room + ((uintptr_t)(list->payload[base + lane] + skip) & 15);
        bad = !bucket_valid(at, a->bits, n);
    }
    unsigned ballot = __ballot_sync(GW_ALL, bad);
    return ballot ? (unsigned)__ffs((int)ballot) - 1 : have;
}

/* sum becomes the next partial sum of four elements, in order of rank. */
GW_DEVICE float4 add_staged(const gw_cuda_list_t *list, const addends_t *a, unsigned base,
                            uint64_t skip, unsigned i, unsigned n, uint8_t *rooms, float4 sum)
{
    for (unsigned k = base; k < a->payloads && k < base + a->batch; k++) {
        if (k == a->own_at) {
            float4 own = gw_quad(a->own, i, n, gw_wide(a->own));
            sum = k ? gw_quad_sum(sum, own) : own;
        }
        source_t s =
            source_of(gw_like(rooms + (k - base) * a->room, list->payload[k] + skip), a->bits);
        float4 v = decode_quad(&s, i);
        sum = k || a->own_at == 0 ? gw_quad_sum(sum, v) : v;
    }
    return sum;
}

/* What comes behind the last payload: own elements, if they are the last, scale and residual. */
GW_DEVICE float4 finish_sum(const addends_t *a, const float *residual, unsigned i, unsigned n,
                            float4 sum)
{
    if (a->own_at == a->payloads) {
        float4 own = gw_quad(a->own, i, n, gw_wide(a->own));
        sum = a->payloads ? gw_quad_sum(sum, own) : own;
    }
    if (a->scale != 1.0f)
        sum = make_float4(sum.x * a->scale, sum.y * a->scale, sum.z * a->scale, sum.w * a->scale);
    if (residual)
        sum = gw_quad_sum(sum, gw_quad(residual, i, n, gw_wide(residual)));
    return sum;
}

/* The sum and the residual in p. Returns the first payload that is not valid, or their number. */
GW_DEVICE unsigned sum_bucket(const gw_cuda_list_t *list, const addends_t *a, uint64_t skip,
                              const float *residual, unsigned n, float *p, uint8_t *rooms)
{
    unsigned base = 0;
    do {
        stage_payloads(list, a, base, skip, n, rooms);
        __syncwarp();
        unsigned refused = a->payloads ? refused_of(list, a, base, skip, n, rooms) : 0;
        if (base + refused < a->payloads && refused < a->batch)
            return base + refused;
        for (unsigned i = 4 * gw_lane(); i < n; i += 4 * GW_LANES) {
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (base)
                sum = *(const float4 *)(p + i);
            sum = add_staged(list, a, base, skip, i, n, rooms, sum);
            if (base + a->batch >= a->payloads)
                sum = finish_sum(a, residual, i, n, sum);
            *(float4 *)(p + i) = sum;
        }
        __syncwarp();
        base += a->batch;
    } while (base < a->payloads);
    return a->payloads;
}

/* A bucket with a payload that is not valid: written as poisoned, which any reader understands. */
GW_DEVICE void refuse_bucket(unsigned bits, unsigned n, uint8_t *out)
{
    unsigned bytes = (unsigned)gw__quant_bytes(bits, n);
    for (unsigned i = gw_lane(); i < bytes; i += GW_LANES)
        out[i] = i < 4 ? (uint8_t)(GW_NAN_BITS >> 8 * i) : 0;
}

extern "C" __global__ void gw_cuda_quant_reduce(unsigned bits, unsigned bucket, unsigned stochastic,
                                                unsigned zero, gw_cuda_list_t list,
                                                unsigned payloads, unsigned own_at, unsigned batch,
                                                uint64_t skip, const float *own, float scale,
                                                float *residual, uint64_t count, uint64_t first,
                                                uint64_t key, uint8_t *dst, uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    gw_quant_spec_t spec = spec_of(bits, bucket, stochastic, zero);
    uint64_t stride = gw__quant_bytes(bits, bucket), buckets = (count + bucket - 1) / bucket;
    unsigned room = gw__cuda_quant_payload_room(bits, bucket);
    float *p = (float *)(shared + (size_t)(threadIdx.x / GW_LANES) *
                                      gw__cuda_quant_encode_room(bits, bucket, batch));
    uint8_t *rooms = (uint8_t *)(p + bucket) + room;
    uint32_t poisoned = 0;
    for (uint64_t k = gw_warp(); k < buckets; k += gw_warps()) {
        unsigned n = gw_part(count, k, bucket);
        float *kept = residual ? residual + k * bucket : NULL;
        uint8_t *out = gw_like((uint8_t *)(p + bucket), dst + k * stride);
        addends_t a = {own + k * bucket, own_at, payloads, batch, room, bits, scale};
        unsigned refused = sum_bucket(&list, &a, skip + k * stride, kept, n, p, rooms);
        bool finite = false;
        if (refused < payloads)
            refuse_bucket(bits, n, out);
        else
            finite = code_bucket(&spec, p, n, gw__quant_noise(key, first / bucket + k), out);
        __syncwarp();
        gw_copy_bytes(dst + k * stride, out, (unsigned)gw__quant_bytes(bits, n));
        if (kept && finite)
            gw_store_floats(kept, p, n);
        if (refused < payloads && gw_lane() == 0)
            atomicMax(result + GW_CUDA_INVALID, payloads - refused);
        poisoned += refused == payloads && !finite && gw_lane() == 0;
    } /* the next bucket's payloads do not lie where this one was written from */
    gw_report(result + GW_CUDA_POISONED, poisoned);
}
