/* SPDX-License-Identifier: Apache-2.0 */
/* Elements at random places, of device memory: encode, decode, merge. */
#include "../half.h"
#include "../randomk_places.h"
#include "../topk_values.h"
#include "device.cuh"

/*
 * Stages, each a launch: what is to be known of whole blocks is in one word for each (`marks`)
 * when it ends. Slots of all blocks are numbered through; a thread has one at a time.
 */
enum { CLEAN, POISONED, INVALID };

typedef struct shape {
    gw_randomk_spec_t spec;
    uint64_t count, stride, slots; /* bytes and slots of a whole block */
} shape_t;

GW_DEVICE shape_t shape_of(unsigned block, uint32_t ratio, unsigned values, uint64_t count)
{
    shape_t s;
    s.spec.block = block;
    s.spec.ratio = ratio;
    s.spec.values = (gw_dtype_t)values;
    s.spec.seed = 0;
    s.spec.scale = false;
    s.count = count;
    s.stride = gw__randomk_bytes(&s.spec, block);
    s.slots = gw__ratio_of(ratio, block);
    return s;
}

GW_DEVICE uint64_t slots_in_all(const shape_t *s)
{
    uint64_t tail = s->count % s->spec.block;
    return s->count / s->spec.block * s->slots + (tail ? gw__ratio_of(s->spec.ratio, tail) : 0);
}

/* Slot j of the k in block b of n elements. */
typedef struct slot {
    uint64_t b, at; /* at: where its value lies in a payload */
    unsigned n, k, j;
} slot_t;

GW_DEVICE slot_t slot_of(const shape_t *s, uint64_t i)
{
    slot_t slot;
    slot.b = i / s->slots;
    slot.j = (unsigned)(i - slot.b * s->slots);
    slot.n = gw_part(s->count, slot.b, s->spec.block);
    slot.k = (unsigned)gw__ratio_of(s->spec.ratio, slot.n);
    slot.at = slot.b * s->stride + GW_RANDOMK_HEADER +
              (uint64_t)slot.j * gw__randomk_wide(s->spec.values);
    return slot;
}

/* The index of its element. */
GW_DEVICE uint64_t place_of(const shape_t *s, const slot_t *slot, uint32_t draw)
{
    uint64_t low = gw__randomk_stratum(slot->j, slot->n, slot->k);
    uint64_t high = gw__randomk_stratum((size_t)slot->j + 1, slot->n, slot->k);
    return slot->b * s->spec.block +
           gw__randomk_place(gw__randomk_places(draw, slot->n), slot->n, slot->j, low, high);
}

GW_DEVICE float load_value(gw_dtype_t type, const uint8_t *at)
{
    return type == GW_F32 ? gw_load_float(at) : gw__widen(type == GW_BF16, gw_load_half(at));
}

/* Returns what arrives. */
GW_DEVICE float store_value(gw_dtype_t type, uint8_t *at, float x)
{
    if (type == GW_F32) {
        gw_store_float(at, x);
        return x;
    }
    uint16_t half = gw__narrow(type == GW_BF16, x);
    gw_store_half(at, half);
    return gw__widen(type == GW_BF16, half);
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

GW_DEVICE bool odd(float x)
{
    return gw__topk_magnitude(x) >= GW_TOPK_INF;
}

/* Marks the blocks that hold a NaN or an Inf; all marks have been 0. */
extern "C" __global__ void gw_cuda_randomk_scan(const float *src, uint64_t count, unsigned block,
                                                uint32_t *marks)
{
    uint64_t i = gw_thread();
    if (gw_wide(src)) {
        for (uint64_t j = 4 * i; j + 4 <= count; j += 4 * gw_threads()) {
            float4 v = *(const float4 *)(src + j);
            if (odd(v.x) || odd(v.y) || odd(v.z) || odd(v.w))
                marks[j / block] = POISONED;
        }
        i += count & ~(uint64_t)3;
    }
    for (; i < count; i += gw_threads())
        if (odd(src[i]))
            marks[i / block] = POISONED;
}

/* The residual of the other blocks takes up the source. */
extern "C" __global__ void gw_cuda_randomk_fold(const float *src, float *residual, uint64_t count,
                                                unsigned block, const uint32_t *marks)
{
    uint64_t i = gw_thread();
    if (gw_wide(src) && gw_wide(residual)) {
        for (uint64_t j = 4 * i; j + 4 <= count; j += 4 * gw_threads()) {
            if (marks[j / block])
                continue;
            float4 v = *(const float4 *)(src + j), r = *(const float4 *)(residual + j);
            *(float4 *)(residual + j) =
                make_float4(gw__topk_folded(v.x, r.x), gw__topk_folded(v.y, r.y),
                            gw__topk_folded(v.z, r.z), gw__topk_folded(v.w, r.w));
        }
        i += count & ~(uint64_t)3;
    }
    for (; i < count; i += gw_threads())
        if (!marks[i / block])
            residual[i] = gw__topk_folded(src[i], residual[i]);
}

/* The value of a slot; the residual keeps what is lost of it. */
GW_DEVICE void send(const shape_t *s, const slot_t *slot, bool scale, const float *src,
                    float *residual, uint64_t place, uint8_t *at)
{
    float value = residual ? residual[place] : src[place], out = value;
    if (scale) {
        out = gw_one_nan(value * gw__randomk_factor(slot->n, slot->k));
        out = gw__randomk_limited(value, out, s->spec.values);
    }
    float sent = store_value(s->spec.values, at, out);
    if (residual)
        residual[place] = gw__topk_settled(value, value, sent);
}

/* Headers and values: what is sent is in the residual, or in src without one. */
extern "C" __global__ void gw_cuda_randomk_send(unsigned block, uint32_t ratio, unsigned values,
                                                uint32_t seed, unsigned scale, const float *src,
                                                float *residual, uint64_t count, uint64_t first,
                                                uint64_t shared_key, uint8_t *dst,
                                                const uint32_t *marks, uint32_t *result)
{
    shape_t s = shape_of(block, ratio, values, count);
    uint64_t slots = slots_in_all(&s);
    uint32_t poisoned = 0;
    for (uint64_t i = gw_thread(); i < slots; i += gw_threads()) {
        slot_t slot = slot_of(&s, i);
        uint32_t draw = gw__randomk_draw(seed, shared_key, first / block + slot.b);
        bool bad = marks[slot.b] != CLEAN;
        if (slot.j == 0) {
            gw_store_word(dst + slot.b * s.stride, bad ? draw | GW_RANDOMK_POISON : draw);
            poisoned += bad;
        }
        if (bad)
            store_value(s.spec.values, dst + slot.at, 0.0f);
        else
            send(&s, &slot, scale != 0, src, residual, place_of(&s, &slot, draw), dst + slot.at);
    }
    gw_report(result + GW_CUDA_POISONED, poisoned);
}

/* ---- Decoding and merging -----------------------------------------------------------------------
 */

/* Behind a poisoned header there is nothing. In every lane. */
GW_DEVICE unsigned mark_of(const uint8_t *block, uint64_t bytes)
{
    if (!(gw_load_word(block) & GW_RANDOMK_POISON))
        return CLEAN;
    bool wrong = false;
    for (uint64_t i = GW_RANDOMK_HEADER + gw_lane(); i < bytes; i += GW_LANES)
        wrong |= block[i] != 0;
    return __any_sync(GW_ALL, wrong) ? INVALID : POISONED;
}

/* A warp marks a block: of payload, and of `other` where there is one, which must have drawn the
 * same places. */
extern "C" __global__ void gw_cuda_randomk_mark(unsigned block, uint32_t ratio, unsigned values,
                                                const uint8_t *payload, const uint8_t *other,
                                                uint64_t count, uint32_t *marks, uint32_t *result)
{
    shape_t s = shape_of(block, ratio, values, count);
    uint64_t blocks = (count + block - 1) / block;
    uint32_t invalid = 0;
    for (uint64_t b = gw_warp(); b < blocks; b += gw_warps()) {
        const uint8_t *at = payload + b * s.stride;
        uint64_t bytes = gw__randomk_bytes(&s.spec, gw_part(count, b, block));
        unsigned mark = mark_of(at, bytes);
        if (other) {
            unsigned second = mark_of(other + b * s.stride, bytes);
            uint32_t differ = gw_load_word(at) ^ gw_load_word(other + b * s.stride);
            mark = second > mark ? second : mark;
            if (differ & ~GW_RANDOMK_POISON)
                mark = INVALID;
        }
        if (gw_lane() == 0) {
            marks[b] = mark;
            invalid += mark == INVALID;
        }
    }
    gw_report(result + GW_CUDA_INVALID, invalid);
}

/* What lies between the places, or all NaN. Adding leaves the former as it is. */
extern "C" __global__ void gw_cuda_randomk_fill(unsigned block, unsigned add, uint64_t count,
                                                const uint32_t *marks, float *dst)
{
    uint64_t i = gw_thread();
    float nan = gw__float_of(GW_NAN_BITS);
    if (gw_wide(dst)) {
        for (uint64_t j = 4 * i; j + 4 <= count; j += 4 * gw_threads()) {
            unsigned mark = marks[j / block];
            float x = mark == POISONED ? nan : 0.0f;
            if (mark == POISONED || (mark == CLEAN && !add))
                *(float4 *)(dst + j) = make_float4(x, x, x, x);
        }
        i += count & ~(uint64_t)3;
    }
    for (; i < count; i += gw_threads()) {
        unsigned mark = marks[i / block];
        if (mark == POISONED || (mark == CLEAN && !add))
            dst[i] = mark == POISONED ? nan : 0.0f;
    }
}

extern "C" __global__ void gw_cuda_randomk_scatter(unsigned block, uint32_t ratio, unsigned values,
                                                   unsigned add, const uint8_t *payload,
                                                   uint64_t count, const uint32_t *marks,
                                                   float *dst)
{
    shape_t s = shape_of(block, ratio, values, count);
    uint64_t slots = slots_in_all(&s);
    for (uint64_t i = gw_thread(); i < slots; i += gw_threads()) {
        slot_t slot = slot_of(&s, i);
        if (marks[slot.b] != CLEAN)
            continue;
        uint64_t place = place_of(&s, &slot, gw_load_word(payload + slot.b * s.stride));
        float value = load_value(s.spec.values, payload + slot.at);
        dst[place] = add ? gw_one_nan(dst[place] + value) : value;
    }
}

/* into = into + from, of binary32 values; poisoned where either is. */
extern "C" __global__ void gw_cuda_randomk_merge(unsigned block, uint32_t ratio,
                                                 const uint8_t *from, uint8_t *into, uint64_t count,
                                                 const uint32_t *marks)
{
    shape_t s = shape_of(block, ratio, GW_F32, count);
    uint64_t slots = slots_in_all(&s);
    for (uint64_t i = gw_thread(); i < slots; i += gw_threads()) {
        slot_t slot = slot_of(&s, i);
        unsigned mark = marks[slot.b];
        uint8_t *header = into + slot.b * s.stride;
        if (mark == INVALID)
            continue;
        if (mark == POISONED && slot.j == 0)
            gw_store_word(header, gw_load_word(header) | GW_RANDOMK_POISON);
        float sum = gw_load_float(into + slot.at) + gw_load_float(from + slot.at);
        gw_store_float(into + slot.at, mark == POISONED ? 0.0f : gw_one_nan(sum));
    }
}
