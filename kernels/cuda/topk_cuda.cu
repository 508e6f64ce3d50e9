/* SPDX-License-Identifier: Apache-2.0 */
/* The largest elements of every block, of device memory: exact selection, decoding. */
#include "../half.h"
#include "../topk_layout.h"
#include "../topk_values.h"
#include "device.cuh"

/*
 * All threads of a CUDA block work on one block of the codec: any number of them gives the same.
 * The bound is found digit by digit, the highest first (radix select): a pass over the block counts
 * how often each value of a digit occurs among those that share the digits above it. A last pass
 * writes what is above the bound, and the first of what is equal to it, in the order of their
 * indices.
 */

typedef struct block_of {
    gw_topk_layout_t layout;
    uint64_t begin; /* elements */
    uint8_t *at;    /* in the payload */
    unsigned n, slots;
} block_of_t;

GW_DEVICE block_of_t block_at(unsigned log2_block, uint32_t ratio, unsigned values, uint64_t count,
                              uint64_t b, const uint8_t *payload)
{
    block_of_t k;
    k.layout.log2_block = log2_block;
    k.layout.ratio = ratio;
    k.layout.values = (gw_topk_values_t)values;
    k.begin = b << log2_block;
    k.n = gw_part(count, b, 1u << log2_block);
    k.slots = (unsigned)gw__ratio_of(ratio, k.n);
    k.at = (uint8_t *)payload + b * gw__topk_bytes(&k.layout, (size_t)1 << log2_block);
    return k;
}

GW_DEVICE uint64_t blocks_in(unsigned log2_block, uint64_t count)
{
    return (count + ((uint64_t)1 << log2_block) - 1) >> log2_block;
}

/* ---- Selection ----------------------------------------------------------------------------------
 */

/* What the threads of a block share. */
typedef struct pick {
    uint32_t bin[GW_TOPK_BINS];
    uint32_t part[GW_LANES];     /* sums of bins, or of warps */
    uint32_t ties[GW_LANES];     /* of warps */
    uint32_t lost;               /* elements that are not finite */
    uint32_t prefix, above;      /* digits of the bound so far; how many exceed them */
    uint32_t written, ties_left; /* entries; of what is equal to the bound */
} pick_t;
static_assert(sizeof(pick_t) <= GW_CUDA_TOPK_ROOM, "more than a launch gives");

/* An element as it is to be sent. */
GW_DEVICE float element(const float *src, const float *residual, unsigned i)
{
    float x = src[i];
    return residual && gw__topk_magnitude(x) < GW_TOPK_INF ? residual[i] : x;
}

GW_DEVICE void clear_bins(pick_t *p)
{
    for (unsigned i = threadIdx.x; i < GW_TOPK_BINS; i += blockDim.x)
        p->bin[i] = 0;
    __syncthreads();
}

GW_DEVICE void count_digit(pick_t *p, const float *src, const float *residual, unsigned n,
                           unsigned digit)
{
    unsigned shift = gw__topk_shift(digit), bits = gw__topk_digit_bits(digit);
    uint32_t prefix = p->prefix, mask = (1u << bits) - 1;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        uint32_t m = gw__topk_magnitude(element(src, residual, i)) >> shift;
        if (digit == 0 || m >> bits == prefix)
            atomicAdd(&p->bin[m & mask], 1u);
    }
    __syncthreads();
}

/* By the first warp: the value of the digit that the k-th element has. */
GW_DEVICE void choose_digit(pick_t *p, unsigned digit, unsigned k)
{
    unsigned lane = threadIdx.x, bits = gw__topk_digit_bits(digit);
    unsigned each = (1u << bits) / GW_LANES;
    if (lane < GW_LANES) {
        uint32_t sum = 0, above = p->above;
        for (unsigned i = 0; i < each; i++)
            sum += p->bin[lane * each + i];
        p->part[lane] = sum;
        __syncwarp();
        for (unsigned j = lane + 1; j < GW_LANES; j++)
            above += p->part[j];
        if (above < k && above + sum >= k) {
            unsigned d = lane * each + each - 1;
            for (; above + p->bin[d] < k; d--)
                above += p->bin[d];
            p->prefix = p->prefix << bits | d;
            p->above = above;
        }
    }
    __syncthreads();
}

/* Indices and bits of values of what is picked, in order. What is written and what is left of ties
 * is read between the two ranks and changed behind them: their barriers keep these apart. */
GW_DEVICE void collect(pick_t *p, const float *src, const float *residual, unsigned n,
                       uint32_t *index, uint32_t *value)
{
    uint32_t bound = p->prefix;
    for (unsigned from = 0; from < n; from += blockDim.x) {
        unsigned i = from + threadIdx.x, ties, found;
        float x = i < n ? element(src, residual, i) : 0.0f;
        bool more = i < n && gw__topk_magnitude(x) > bound;
        bool tie = i < n && gw__topk_magnitude(x) == bound;
        unsigned rank = gw_rank_in_block(p->ties, tie, &ties);
        uint32_t left = p->ties_left, written = p->written;
        tie = tie && rank < left;
        unsigned place = written + gw_rank_in_block(p->part, more || tie, &found);
        if (more || tie) {
            index[place] = i;
            value[place] = gw__float_bits(x);
        }
        if (threadIdx.x == 0) {
            p->written = written + found;
            p->ties_left = left - (ties < left ? ties : left);
        }
    }
    __syncthreads();
}

/* ---- Writing ------------------------------------------------------------------------------------
 */

/* Byte b of indices of `width` bits that follow each other. */
GW_DEVICE uint8_t index_byte(const uint32_t *index, unsigned slots, unsigned width, unsigned b)
{
    unsigned i = 8 * b / width;
    uint32_t byte = 0;
    for (; i < slots && i * width < 8 * b + 8; i++) {
        int at = (int)(i * width) - (int)(8 * b);
        byte |= at < 0 ? index[i] >> -at : index[i] << at;
    }
    return (uint8_t)byte;
}

/* Returns what arrives. */
GW_DEVICE float put_value(gw_topk_values_t values, uint8_t *at, float x)
{
    if (values == GW_TOPK_F32) {
        gw_store_float(at, x);
        return x;
    }
    bool limited = values == GW_TOPK_LIMITED && gw__topk_magnitude(x) < GW_TOPK_INF;
    if (limited && x > 65504.0f)
        x = 65504.0f;
    if (limited && x < -65504.0f)
        x = -65504.0f;
    uint16_t half = gw__narrow(values == GW_TOPK_BF16, x);
    gw_store_half(at, half);
    return gw__widen(values == GW_TOPK_BF16, half);
}

GW_DEVICE void write_block(const block_of_t *k, const uint32_t *index, const uint32_t *value,
                           float *residual)
{
    unsigned bytes = (unsigned)gw__topk_index_bytes(&k->layout, k->slots);
    unsigned wide = gw__topk_value_bytes(&k->layout);
    if (threadIdx.x == 0)
        gw_store_word(k->at, k->slots);
    for (unsigned b = threadIdx.x; b < bytes; b += blockDim.x)
        k->at[GW_TOPK_HEADER + b] = index_byte(index, k->slots, k->layout.log2_block, b);
    for (unsigned j = threadIdx.x; j < k->slots; j += blockDim.x) {
        float x = gw__float_of(value[j]);
        float sent = put_value(k->layout.values, k->at + GW_TOPK_HEADER + bytes + j * wide, x);
        if (residual)
            residual[index[j]] = gw__topk_settled(residual[index[j]], x, sent);
    }
}

GW_DEVICE void write_poison(const block_of_t *k)
{
    unsigned bytes = (unsigned)gw__topk_bytes(&k->layout, k->n);
    for (unsigned b = threadIdx.x; b < bytes; b += blockDim.x)
        k->at[b] = b < GW_TOPK_HEADER ? 0xFF : 0;
}

GW_DEVICE void begin(pick_t *p)
{
    __syncthreads(); /* the block before is done with */
    if (threadIdx.x == 0) {
        p->lost = p->prefix = p->above = p->written = 0;
    }
    __syncthreads();
}

GW_DEVICE void count_lost(pick_t *p, const float *src, unsigned n)
{
    uint32_t lost = 0;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        lost += gw__topk_magnitude(src[i]) >= GW_TOPK_INF;
    if (lost)
        atomicAdd(&p->lost, lost);
    __syncthreads();
}

/* `picked`: two words for each slot of all blocks. */
extern "C" __global__ void gw_cuda_topk_encode(unsigned log2_block, uint32_t ratio, unsigned values,
                                               const float *src, float *residual, uint64_t count,
                                               uint8_t *dst, uint32_t *picked, uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    pick_t *p = (pick_t *)shared;
    uint64_t room = gw__ratio_of(ratio, (size_t)1 << log2_block);
    for (uint64_t b = blockIdx.x; b < blocks_in(log2_block, count); b += gridDim.x) {
        block_of_t k = block_at(log2_block, ratio, values, count, b, dst);
        const float *x = src + k.begin;
        float *kept = residual ? residual + k.begin : NULL;
        uint32_t *index = picked + 2 * b * room, *value = index + k.slots;
        begin(p);
        count_lost(p, x, k.n);
        if (p->lost && threadIdx.x == 0)
            atomicAdd(result + GW_CUDA_POISONED, 1u);
        if (p->lost > k.slots) {
            write_poison(&k);
            continue;
        }
        for (unsigned i = threadIdx.x; kept && i < k.n; i += blockDim.x)
            kept[i] = gw__topk_folded(x[i], kept[i]);
        for (unsigned digit = 0; digit < GW_TOPK_DIGITS; digit++) {
            clear_bins(p); /* and the residual is there */
            count_digit(p, x, kept, k.n, digit);
            choose_digit(p, digit, k.slots);
        }
        if (threadIdx.x == 0)
            p->ties_left = k.slots - p->above;
        collect(p, x, kept, k.n, index, value);
        write_block(&k, index, value, kept);
    }
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

GW_DEVICE bool zeros(const uint8_t *at, unsigned from, unsigned to)
{
    uint8_t any = 0;
    for (unsigned b = from + threadIdx.x; b < to; b += blockDim.x)
        any |= at[b];
    return !any;
}

GW_DEVICE uint32_t index_of(const block_of_t *k, unsigned bytes, unsigned i)
{
    return gw__topk_index(k->at + GW_TOPK_HEADER, bytes, k->layout.log2_block, i);
}

/* Whether this thread's part of a block can have been written by an encoder. */
GW_DEVICE bool right(const block_of_t *k, uint32_t entries, unsigned bytes)
{
    unsigned all = (unsigned)gw__topk_bytes(&k->layout, k->n), width = k->layout.log2_block;
    if (entries == GW_TOPK_POISON)
        return zeros(k->at, GW_TOPK_HEADER, all);
    if (entries > k->slots)
        return false;
    bool good = true;
    for (unsigned i = threadIdx.x; i < entries; i += blockDim.x) {
        uint32_t own = index_of(k, bytes, i);
        good &= own < k->n && (i == 0 || index_of(k, bytes, i - 1) < own);
    }
    unsigned bits = entries * width, behind = (bits + 7) / 8, data = GW_TOPK_HEADER + bytes;
    if (bits % 8)
        good &= k->at[GW_TOPK_HEADER + bits / 8] >> bits % 8 == 0;
    good &= zeros(k->at, GW_TOPK_HEADER + behind, data);
    return good & zeros(k->at, data + entries * gw__topk_value_bytes(&k->layout), all);
}

GW_DEVICE float get_value(gw_topk_values_t values, const uint8_t *at)
{
    return values == GW_TOPK_F32 ? gw_load_float(at)
                                 : gw__widen(values == GW_TOPK_BF16, gw_load_half(at));
}

GW_DEVICE void scatter(const block_of_t *k, uint32_t entries, unsigned bytes, bool add, float *dst)
{
    unsigned wide = gw__topk_value_bytes(&k->layout);
    for (unsigned j = threadIdx.x; j < entries; j += blockDim.x) {
        float *to = dst + index_of(k, bytes, j);
        float x = get_value(k->layout.values, k->at + GW_TOPK_HEADER + bytes + j * wide);
        *to = add ? gw_one_nan(*to + x) : x;
    }
}

extern "C" __global__ void gw_cuda_topk_decode(unsigned log2_block, uint32_t ratio, unsigned values,
                                               unsigned add, const uint8_t *payload, uint64_t count,
                                               float *dst, uint32_t *result)
{
    for (uint64_t b = blockIdx.x; b < blocks_in(log2_block, count); b += gridDim.x) {
        block_of_t k = block_at(log2_block, ratio, values, count, b, payload);
        float *to = dst + k.begin;
        uint32_t entries = gw_load_word(k.at);
        unsigned bytes = (unsigned)gw__topk_index_bytes(&k.layout, k.slots);
        bool poisoned = entries == GW_TOPK_POISON;
        if (__syncthreads_or(!right(&k, entries, bytes))) {
            if (threadIdx.x == 0)
                atomicAdd(result + GW_CUDA_INVALID, 1u);
            continue;
        }
        for (unsigned i = threadIdx.x; (poisoned || !add) && i < k.n; i += blockDim.x)
            to[i] = poisoned ? gw__float_of(GW_NAN_BITS) : 0.0f;
        __syncthreads();
        if (!poisoned)
            scatter(&k, entries, bytes, add != 0, to);
    }
}
