/* SPDX-License-Identifier: Apache-2.0 */
/* Codec block in device memory: dense blocks that are not zero, or the largest ones. */
#include "device.cuh"

#include "../block_layout.h"
#include "../half.h"
#include "../sparse_ratio.h"
#include "../topk_values.h"

/*
 * Encoding is three launches: the blocks of each domain are weighed and chosen, by a CUDA block,
 * which leaves a bitmap and the domain's length; lengths become places (gw_cuda_sum_offsets); a
 * warp for each block writes it where the bitmap says. Decoding is the last of these backwards.
 */

/* A domain, and the elements that it is about. */
typedef struct view {
    gw_block_domain_t d;
    unsigned from;   /* type of the elements */
    const void *src; /* from the domain's first one */
    float *kept;     /* residual, likewise; NULL: none */
    bool mixed;      /* some elements may not be finite: they are in the source alone */
} view_t;

GW_DEVICE gw_block_layout_t layout_of(unsigned log2_size, unsigned log2_domain, unsigned wire)
{
    gw_block_layout_t layout;
    layout.log2_size = log2_size;
    layout.log2_domain = log2_domain;
    layout.ratio = 0;
    layout.wire = (gw_dtype_t)wire;
    return layout;
}

GW_DEVICE gw_block_domain_t domain_at(const gw_block_layout_t *layout, uint64_t count, uint64_t i)
{
    return gw__block_domain(layout, gw_part(count, i, 1u << layout->log2_domain));
}

GW_DEVICE const void *elements_at(unsigned from, const void *src, uint64_t i)
{
    return (const uint8_t *)src + i * (from == GW_F32 ? 4 : 2);
}

GW_DEVICE float element(unsigned from, const void *src, unsigned i)
{
    if (from == GW_F32)
        return ((const float *)src)[i];
    return gw__widen(from == GW_BF16, ((const uint16_t *)src)[i]);
}

/* An element as it is to be sent. */
GW_DEVICE float look(const view_t *v, unsigned i)
{
    if (v->kept && !v->mixed)
        return v->kept[i];
    float x = element(v->from, v->src, i);
    return v->kept && gw__topk_magnitude(x) < GW_TOPK_INF ? v->kept[i] : x;
}

/* ---- Choosing -----------------------------------------------------------------------------------
 */

/* What the threads of a block share. */
typedef struct choice {
    uint32_t ties[GW_LANES]; /* of warps */
    uint32_t lost;           /* elements that are not finite */
    uint32_t sent, last;     /* blocks; whether the last one is among them */
    float weight[1];         /* of every block of the domain */
} choice_t;
static_assert(sizeof(choice_t) <= GW_CUDA_BLOCK_SHARED, "more than a launch gives");

/* The residual takes up the source. */
GW_DEVICE void take_up(choice_t *c, view_t *v)
{
    uint32_t lost = 0;
    for (unsigned i = threadIdx.x; i < v->d.n; i += blockDim.x) {
        float x = element(v->from, v->src, i);
        lost += gw__topk_magnitude(x) >= GW_TOPK_INF;
        if (v->kept)
            v->kept[i] = gw__topk_folded(x, v->kept[i]);
    }
    if (lost)
        atomicAdd(&c->lost, lost);
    __syncthreads();
    v->mixed = c->lost != 0;
}

/* Whether a bit is set in `bytes` bytes, an even number, that the mask has: by a warp. */
GW_DEVICE bool any_bit(const uint8_t *at, unsigned bytes, uint32_t mask)
{
    uint32_t bits = 0;
    unsigned done = gw_wide(at) ? bytes & ~15u : 0;
    for (unsigned i = 16 * gw_lane(); i < done; i += 16 * GW_LANES) {
        uint4 x = *(const uint4 *)(at + i);
        bits |= (x.x | x.y | x.z | x.w) & mask;
    }
    for (unsigned i = done + 2 * gw_lane(); i < bytes; i += 2 * GW_LANES)
        bits |= *(const uint16_t *)(at + i) & (i % 4 ? mask >> 16 : mask);
    return __any_sync(GW_ALL, bits != 0);
}

GW_DEVICE bool any_element(const view_t *v, unsigned first, unsigned n)
{
    if (v->kept && !v->mixed)
        return any_bit((const uint8_t *)(v->kept + first), 4 * n, 0x7FFFFFFFu);
    if (!v->kept && v->from == GW_F32)
        return any_bit((const uint8_t *)elements_at(v->from, v->src, first), 4 * n, 0x7FFFFFFFu);
    if (!v->kept)
        return any_bit((const uint8_t *)elements_at(v->from, v->src, first), 2 * n, 0x7FFF7FFFu);
    bool any = false;
    for (unsigned i = gw_lane(); i < n; i += GW_LANES)
        any |= gw__topk_magnitude(look(v, first + i)) != 0;
    return __any_sync(GW_ALL, any);
}

GW_DEVICE void weigh_nonzero(choice_t *c, const view_t *v)
{
    for (unsigned b = threadIdx.x / GW_LANES; b < v->d.blocks; b += blockDim.x / GW_LANES) {
        unsigned n = (unsigned)gw__block_elements(&v->d, b);
        bool any = any_element(v, b * (unsigned)v->d.size, n);
        if (gw_lane() == 0)
            c->weight[b] = any;
    }
}

/* The mean square of block_rms.h: half a warp does a block, a lane each of the 16 sums. */
GW_DEVICE void weigh_largest(choice_t *c, const view_t *v)
{
    enum { SUMS = 16 };
    unsigned half = threadIdx.x / SUMS, halves = blockDim.x / SUMS, sum_of = threadIdx.x % SUMS;
    for (unsigned b = half; b - half % 2 < v->d.blocks; b += halves) {
        unsigned first = b * (unsigned)v->d.size;
        unsigned n = b < v->d.blocks ? (unsigned)gw__block_elements(&v->d, b) : 0;
        double sum = 0.0;
        for (unsigned i = sum_of; i < n; i += SUMS) {
            double x = look(v, first + i);
            sum += x * x;
        }
        GW_UNROLL(4)
        for (unsigned by = SUMS / 2; by; by /= 2)
            sum += __shfl_down_sync(GW_ALL, sum, by, SUMS);
        if (sum_of == 0 && n)
            c->weight[b] = gw_one_nan((float)sqrt(sum / (double)n));
    }
}

/* How many blocks weigh this or more; weights are compared by their bits. Every thread comes here.
 */
GW_DEVICE unsigned count_least(const choice_t *c, unsigned blocks, uint32_t least)
{
    unsigned found = 0;
    for (unsigned from = 0; from < blocks; from += blockDim.x) {
        unsigned b = from + threadIdx.x;
        found +=
            (unsigned)__syncthreads_count(b < blocks && gw__topk_magnitude(c->weight[b]) >= least);
    }
    return found;
}

/* The greatest weight that `most` blocks reach, but a finite one. */
GW_DEVICE uint32_t find_bound(const choice_t *c, unsigned blocks, unsigned most)
{
    uint32_t bound = 0;
    for (uint32_t bit = 1u << 30; bit; bit /= 2)
        if (count_least(c, blocks, bound | bit) >= most)
            bound |= bit;
    return bound < GW_TOPK_INF ? bound : GW_TOPK_INF - 1;
}

/* What weighs more than the bound, the first `ties` of what weighs as much, and nothing that is
 * zero: into the bitmap, and counted. */
GW_DEVICE void choose(choice_t *c, const view_t *v, uint32_t bound, unsigned ties, uint32_t *map)
{
    unsigned blocks = (unsigned)v->d.blocks, seen = 0, found;
    for (unsigned from = 0; from < blocks; from += blockDim.x) {
        unsigned b = from + threadIdx.x;
        uint32_t weight = b < blocks ? gw__topk_magnitude(c->weight[b]) : 0;
        bool tie = weight != 0 && weight == bound;
        unsigned rank = seen + gw_rank_in_block(c->ties, tie, &found);
        uint32_t sent = __ballot_sync(GW_ALL, weight > bound || (tie && rank < ties));
        seen += found;
        if (gw_lane() == 0 && b < blocks) {
            map[b / 32] = sent;
            atomicAdd(&c->sent, (uint32_t)__popc(sent));
            if (b + 32 >= blocks)
                c->last = sent >> (blocks - 1 - b) & 1;
        }
        __syncthreads(); /* the next ones' ties */
    }
}

GW_DEVICE void begin(choice_t *c)
{
    if (threadIdx.x == 0)
        c->lost = c->sent = c->last = 0;
    __syncthreads();
}

extern "C" __global__ void gw_cuda_block_choose(unsigned log2_size, unsigned log2_domain,
                                                uint32_t ratio, unsigned wire, unsigned from,
                                                const void *src, float *residual, uint64_t count,
                                                uint32_t *maps, uint32_t *lengths, uint32_t *result)
{
    GW_SHARED(uint8_t, shared);
    choice_t *c = (choice_t *)shared;
    gw_block_layout_t layout = layout_of(log2_size, log2_domain, wire);
    uint64_t domains = (count + ((uint64_t)1 << log2_domain) - 1) >> log2_domain;
    for (uint64_t i = blockIdx.x; i < domains; i += gridDim.x) {
        uint64_t first = i << log2_domain;
        view_t v = {domain_at(&layout, count, i), from, elements_at(from, src, first),
                    residual ? residual + first : NULL, false};
        uint32_t *map = maps + i * gw__cuda_block_words(log2_size, log2_domain);
        uint32_t bound = 0;
        unsigned ties = 0;
        begin(c);
        if (residual || ratio)
            take_up(c, &v);
        if (ratio) {
            unsigned most = (unsigned)gw__ratio_of(ratio, v.d.blocks);
            weigh_largest(c, &v);
            __syncthreads();
            bound = find_bound(c, (unsigned)v.d.blocks, most);
            unsigned above = count_least(c, (unsigned)v.d.blocks, bound + 1);
            ties = above < most ? most - above : 0;
        } else {
            weigh_nonzero(c, &v);
            __syncthreads();
        }
        choose(c, &v, bound, ties, map);
        if (threadIdx.x == 0) {
            size_t bytes = gw__block_bytes(&v.d, c->sent, c->last != 0);
            lengths[i] = (uint32_t)gw__block_whole(&v.d, gw__block_form(&v.d, bytes), bytes);
            if (c->lost)
                atomicAdd(result + GW_CUDA_POISONED, 1u);
        }
    }
}

/* ---- Writing ------------------------------------------------------------------------------------
 */

/* A block of a domain that is kept in a way: by a warp. */
typedef struct place {
    gw_block_form_t form;
    bool sent;
    size_t at; /* its elements, in bytes from the domain's first */
} place_t;

GW_DEVICE place_t place_of(const gw_block_domain_t *d, unsigned block, gw_block_form_t form,
                           bool sent, unsigned before)
{
    place_t p;
    p.form = form;
    p.sent = form == GW_BLOCK_DENSE || (form == GW_BLOCK_SOME && sent);
    p.at = gw__block_data(d, form) +
           (size_t)(form == GW_BLOCK_DENSE ? block : before) * d->size * d->wide;
    return p;
}

/* By the bitmap of an encoder. */
GW_DEVICE place_t place_in_words(const gw_block_domain_t *d, const uint32_t *map, unsigned block)
{
    unsigned words = ((unsigned)d->blocks + 31) / 32, last = (unsigned)d->blocks - 1;
    uint32_t sent = 0, before = 0;
    for (unsigned i = gw_lane(); i < words; i += GW_LANES) {
        uint32_t word = map[i];
        sent += (uint32_t)__popc(word);
        if (i <= block / 32)
            before += (uint32_t)__popc(i < block / 32 ? word : word & ((1u << block % 32) - 1));
    }
    sent = gw_warp_count(sent);
    before = gw_warp_count(before);
    bool has_last = map[last / 32] >> last % 32 & 1;
    gw_block_form_t form = gw__block_form(d, gw__block_bytes(d, sent, has_last));
    return place_of(d, block, form, map[block / 32] >> block % 32 & 1, before);
}

/* How the domain is kept, and its bitmap. */
GW_DEVICE void write_head(const gw_block_domain_t *d, gw_block_form_t form, const uint32_t *map,
                          uint8_t *dst)
{
    if (gw_lane() == 0)
        dst[0] = (uint8_t)form;
    for (unsigned i = gw_lane(); form == GW_BLOCK_SOME && i < d->map_bytes; i += GW_LANES)
        dst[1 + i] = (uint8_t)(map[i / 4] >> 8 * (i % 4));
}

/* An element in the type of the wire; what that loses of it stays in the residual. */
GW_DEVICE void write_element(const view_t *v, unsigned wire, unsigned i, uint8_t *at)
{
    if (!v->kept && v->from == wire && wire != GW_F32) {
        gw_store_half(at, ((const uint16_t *)v->src)[i]);
        return;
    }
    float x = look(v, i), sent = x;
    if (wire == GW_F32) {
        gw_store_float(at, x);
    } else {
        uint16_t half = gw__narrow(wire == GW_BF16, x);
        gw_store_half(at, half);
        sent = gw__widen(wire == GW_BF16, half);
    }
    if (v->kept)
        v->kept[i] = gw__topk_settled(v->kept[i], x, sent);
}

extern "C" __global__ void gw_cuda_block_write(unsigned log2_size, unsigned log2_domain,
                                               unsigned wire, unsigned from, const void *src,
                                               float *residual, uint64_t count,
                                               const uint32_t *maps, const uint32_t *starts,
                                               uint8_t *dst)
{
    GW_SHARED(uint8_t, shared);
    uint8_t *room = shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_block_room();
    gw_block_layout_t layout = layout_of(log2_size, log2_domain, wire);
    uint64_t blocks = (count + ((uint64_t)1 << log2_size) - 1) >> log2_size;
    for (uint64_t b = gw_warp(); b < blocks; b += gw_warps()) {
        uint64_t i = b >> (log2_domain - log2_size), first = i << log2_domain;
        unsigned block = (unsigned)(b - (i << (log2_domain - log2_size)));
        const uint32_t *map = maps + i * gw__cuda_block_words(log2_size, log2_domain);
        view_t v = {domain_at(&layout, count, i), from, elements_at(from, src, first),
                    residual ? residual + first : NULL, true};
        place_t p = place_in_words(&v.d, map, block);
        uint8_t *to = dst + starts[i];
        if (block == 0)
            write_head(&v.d, p.form, map, to);
        unsigned n = p.sent ? (unsigned)gw__block_elements(&v.d, block) : 0;
        unsigned wide = (unsigned)v.d.wide;
        for (unsigned at = 0; at < n; at += GW_CUDA_BLOCK_SEGMENT) {
            unsigned part = gw_part(n, at / GW_CUDA_BLOCK_SEGMENT, GW_CUDA_BLOCK_SEGMENT);
            uint8_t *out = to + p.at + (size_t)at * wide, *staged = gw_like(room, out);
            for (unsigned j = gw_lane(); j < part; j += GW_LANES)
                write_element(&v, wire, block * (1u << log2_size) + at + j, staged + j * wide);
            __syncwarp();
            gw_copy_bytes(out, staged, part * wide);
            __syncwarp();
        }
    }
}

/* ---- Reading ------------------------------------------------------------------------------------
 */

/* By the bitmap in a payload. */
GW_DEVICE place_t place_in_bytes(const gw_block_domain_t *d, const uint8_t *domain, unsigned block)
{
    gw_block_form_t form = (gw_block_form_t)domain[0];
    uint32_t before = 0;
    bool sent = false;
    if (form == GW_BLOCK_SOME) {
        const uint8_t *map = domain + 1;
        for (unsigned i = gw_lane(); i <= block / 8; i += GW_LANES)
            before += (uint32_t)__popc(i < block / 8 ? map[i] : map[i] & ((1u << block % 8) - 1));
        before = gw_warp_count(before);
        sent = map[block / 8] >> block % 8 & 1;
    }
    return place_of(d, block, form, sent, before);
}

/* Element i of what is staged, NULL: zeros; into element `to` of dst. */
GW_DEVICE void put_element(unsigned wire, unsigned to_type, bool add, const uint8_t *staged,
                           unsigned i, void *dst, uint64_t to)
{
    if (to_type != GW_F32) {
        ((uint16_t *)dst)[to] = staged ? gw_load_half(staged + 2 * i) : 0;
        return;
    }
    float x = 0.0f, *at = (float *)dst + to;
    if (staged)
        x = wire == GW_F32 ? gw__float_of(gw_shared_word(staged + 4 * i))
                           : gw__widen(wire == GW_BF16, gw_load_half(staged + 2 * i));
    *at = add ? gw_one_nan(*at + x) : x;
}

extern "C" __global__ void gw_cuda_block_decode(unsigned log2_size, unsigned log2_domain,
                                                unsigned wire, unsigned to, unsigned add,
                                                const uint8_t *payload, const uint32_t *starts,
                                                uint64_t count, void *dst)
{
    GW_SHARED(uint8_t, shared);
    uint8_t *room = shared + (size_t)(threadIdx.x / GW_LANES) * gw__cuda_block_room();
    gw_block_layout_t layout = layout_of(log2_size, log2_domain, wire);
    uint64_t blocks = (count + ((uint64_t)1 << log2_size) - 1) >> log2_size;
    for (uint64_t b = gw_warp(); b < blocks; b += gw_warps()) {
        uint64_t i = b >> (log2_domain - log2_size), first = b << log2_size;
        gw_block_domain_t d = domain_at(&layout, count, i);
        unsigned block = (unsigned)(b - (i << (log2_domain - log2_size)));
        const uint8_t *domain = payload + starts[i];
        place_t p = place_in_bytes(&d, domain, block);
        unsigned n = p.sent || !add ? (unsigned)gw__block_elements(&d, block) : 0;
        unsigned wide = (unsigned)d.wide;
        for (unsigned at = 0; at < n; at += GW_CUDA_BLOCK_SEGMENT) {
            unsigned part = gw_part(n, at / GW_CUDA_BLOCK_SEGMENT, GW_CUDA_BLOCK_SEGMENT);
            const uint8_t *in = domain + p.at + (size_t)at * wide;
            uint8_t *staged = p.sent ? gw_like(room, in) : NULL;
            if (staged)
                gw_copy_bytes(staged, in, part * wide);
            __syncwarp();
            for (unsigned j = gw_lane(); j < part; j += GW_LANES)
                put_element(wire, to, add != 0, staged, j, dst, first + at + j);
            __syncwarp();
        }
    }
}
