/* SPDX-License-Identifier: Apache-2.0 */
/* What the CUDA kernels share: numbering of warps, copies between device and shared memory. */
#ifndef GW_DEVICE_CUH
#define GW_DEVICE_CUH

#include <stdint.h>

#include "../bytes.h"
#include "../kernels.h"
#include "cuda_rooms.h"

/*
 * A warp does a bucket, alone: kernels meet at __syncwarp only, so that any grid and any block of
 * whole warps gives the same bytes. Warp w of the grid takes the buckets w, w + warps, ...
 * Its part of the dynamic shared memory is a room (cuda_rooms.h), with which every access to device
 * memory is one of neighbouring lanes, of 16 bytes where the address allows.
 */

/* The dynamic shared memory of a block, at most one declaration in a file. */
#ifndef GW_SHARED
#define GW_SHARED(type, name) extern __shared__ __align__(16) type name[]
#endif

#if defined(__CUDACC__)
#define GW_UNROLL(n) _Pragma("unroll")
#else
#define GW_UNROLL(n)
#endif

#define GW_DEVICE static __device__ __forceinline__
#define GW_LANES  32u
#define GW_ALL    0xFFFFFFFFu

GW_DEVICE unsigned gw_lane(void)
{
    return threadIdx.x % GW_LANES;
}

GW_DEVICE uint64_t gw_warp(void)
{
    return (uint64_t)blockIdx.x * (blockDim.x / GW_LANES) + threadIdx.x / GW_LANES;
}

GW_DEVICE uint64_t gw_warps(void)
{
    return (uint64_t)gridDim.x * (blockDim.x / GW_LANES);
}

/* Threads of elementwise kernels: thread t takes the elements t, t + threads, ... */
GW_DEVICE uint64_t gw_thread(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

GW_DEVICE uint64_t gw_threads(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* How many elements unit i of `size` elements has. */
GW_DEVICE unsigned gw_part(uint64_t count, uint64_t i, unsigned size)
{
    uint64_t rest = count - i * size;
    return rest < size ? (unsigned)rest : size;
}

GW_DEVICE bool gw_wide(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

GW_DEVICE float gw_one_nan(float x)
{
    return x != x ? gw__float_of(GW_NAN_BITS) : x;
}

/* ---- At any address -----------------------------------------------------------------------------
 */

GW_DEVICE uint16_t gw_load_half(const uint8_t *p)
{
    return ((uintptr_t)p & 1) == 0 ? *(const uint16_t *)p : gw__load16(p);
}

GW_DEVICE void gw_store_half(uint8_t *p, uint16_t half)
{
    if (((uintptr_t)p & 1) == 0)
        *(uint16_t *)p = half;
    else
        gw__store16(p, half);
}

GW_DEVICE uint32_t gw_load_word(const uint8_t *p)
{
    return ((uintptr_t)p & 3) == 0 ? *(const uint32_t *)p : gw__load32(p);
}

GW_DEVICE void gw_store_word(uint8_t *p, uint32_t x)
{
    if (((uintptr_t)p & 3) == 0)
        *(uint32_t *)p = x;
    else
        gw__store32(p, x);
}

GW_DEVICE float gw_load_float(const uint8_t *p)
{
    return gw__float_of(gw_load_word(p));
}

GW_DEVICE void gw_store_float(uint8_t *p, float x)
{
    gw_store_word(p, gw__float_bits(x));
}

/* ---- Over the lanes of a warp -------------------------------------------------------------------
 */

GW_DEVICE float gw_warp_min(float x)
{
    GW_UNROLL(5)
    for (int half = 16; half; half /= 2) {
        float other = __shfl_xor_sync(GW_ALL, x, half);
        x = other < x ? other : x;
    }
    return x;
}

GW_DEVICE float gw_warp_max(float x)
{
    GW_UNROLL(5)
    for (int half = 16; half; half /= 2) {
        float other = __shfl_xor_sync(GW_ALL, x, half);
        x = other > x ? other : x;
    }
    return x;
}

GW_DEVICE uint32_t gw_warp_most(uint32_t x)
{
    GW_UNROLL(5)
    for (int half = 16; half; half /= 2) {
        uint32_t other = __shfl_xor_sync(GW_ALL, x, half);
        x = other > x ? other : x;
    }
    return x;
}

GW_DEVICE uint32_t gw_warp_count(uint32_t x)
{
    GW_UNROLL(5)
    for (int half = 16; half; half /= 2)
        x += __shfl_xor_sync(GW_ALL, x, half);
    return x;
}

/* Lane 0 gets the sum in the order of sign_scale.h: lane j takes j + 16, j + 8, ... */
GW_DEVICE float gw_warp_fold(float x)
{
    GW_UNROLL(5)
    for (int half = 16; half; half /= 2)
        x = x + __shfl_down_sync(GW_ALL, x, half);
    return __shfl_sync(GW_ALL, x, 0);
}

GW_DEVICE double gw_warp_fold_wide(double x)
{
    GW_UNROLL(5)
    for (int half = 16; half; half /= 2)
        x = x + __shfl_down_sync(GW_ALL, x, half);
    return __shfl_sync(GW_ALL, x, 0);
}

/* ---- Four elements ------------------------------------------------------------------------------
 */

/* Elements i to i + 3 of n; those behind the end are 0. `wide`: x is at a multiple of 16. */
GW_DEVICE float4 gw_quad(const float *x, unsigned i, unsigned n, bool wide)
{
    if (wide && i + 4 <= n)
        return *(const float4 *)(x + i);
    return make_float4(x[i], i + 1 < n ? x[i + 1] : 0.0f, i + 2 < n ? x[i + 2] : 0.0f,
                       i + 3 < n ? x[i + 3] : 0.0f);
}

GW_DEVICE void gw_put_quad(float *x, unsigned i, unsigned n, bool wide, float4 v)
{
    if (wide && i + 4 <= n) {
        *(float4 *)(x + i) = v;
        return;
    }
    x[i] = v.x;
    if (i + 1 < n)
        x[i + 1] = v.y;
    if (i + 2 < n)
        x[i + 2] = v.z;
    if (i + 3 < n)
        x[i + 3] = v.w;
}

GW_DEVICE float4 gw_quad_sum(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* ---- A warp copies ------------------------------------------------------------------------------
 */

/* p = src + residual (may be NULL): n elements into shared memory, by a warp. */
GW_DEVICE void gw_load_sum(const float *src, const float *residual, unsigned n, float *p)
{
    unsigned i = gw_lane();
    if (gw_wide(src) && (!residual || gw_wide(residual))) {
        for (unsigned j = 4 * i; j + 4 <= n; j += 4 * GW_LANES) {
            float4 v = *(const float4 *)(src + j);
            if (residual)
                v = gw_quad_sum(v, *(const float4 *)(residual + j));
            *(float4 *)(p + j) = v;
        }
        i += n & ~3u;
    }
    for (; i < n; i += GW_LANES)
        p[i] = residual ? src[i] + residual[i] : src[i];
}

/* dst = p, out of shared memory. */
GW_DEVICE void gw_store_floats(float *dst, const float *p, unsigned n)
{
    unsigned i = gw_lane();
    if (gw_wide(dst)) {
        for (unsigned j = 4 * i; j + 4 <= n; j += 4 * GW_LANES)
            *(float4 *)(dst + j) = *(const float4 *)(p + j);
        i += n & ~3u;
    }
    for (; i < n; i += GW_LANES)
        dst[i] = p[i];
}

/* Where in a room, 16 bytes longer than what goes there, bytes lie as they do at `global`: at the
 * same distance from a multiple of 16. */
GW_DEVICE uint8_t *gw_like(uint8_t *room, const void *global)
{
    return room + ((uintptr_t)global & 15);
}

/* n bytes, between two places at the same distance from a multiple of 16. */
GW_DEVICE void gw_copy_bytes(uint8_t *dst, const uint8_t *src, unsigned n)
{
    unsigned lane = gw_lane(), head = (unsigned)(-(uintptr_t)dst & 15);
    head = head < n ? head : n;
    unsigned body = (n - head) / 16, tail = (n - head) % 16;
    if (lane < head)
        dst[lane] = src[lane];
    for (unsigned i = lane; i < body; i += GW_LANES)
        *(uint4 *)(dst + head + 16 * i) = *(const uint4 *)(src + head + 16 * i);
    if (lane < tail)
        dst[head + 16 * body + lane] = src[head + 16 * body + lane];
}

/* The four bytes at an address of shared memory. Reads the words that they lie in, and the next
 * one: rooms end with 8 bytes more. */
GW_DEVICE uint32_t gw_shared_word(const uint8_t *at)
{
    unsigned shift = (unsigned)((uintptr_t)at & 3) * 8;
    const uint32_t *word = (const uint32_t *)(at - ((uintptr_t)at & 3));
    uint64_t both = (uint64_t)word[1] << 32 | word[0];
    return (uint32_t)(both >> shift);
}

/* 8 codes are as many bytes as a code has bits; into shared memory. */
GW_DEVICE void gw_put_octet(uint8_t *at, uint64_t codes, unsigned bytes)
{
    if (bytes % 4 == 0 && ((uintptr_t)at & 3) == 0) {
        for (unsigned i = 0; i < bytes; i += 4)
            *(uint32_t *)(at + i) = (uint32_t)(codes >> 8 * i);
    } else {
        for (unsigned i = 0; i < bytes; i++)
            at[i] = (uint8_t)(codes >> 8 * i);
    }
}

/* ---- Over the threads of a block ----------------------------------------------------------------
 */

/* How many threads before this one have it; *all: in the block. `of_warps` has a word for each
 * warp; whoever uses it again puts a barrier before that. Every thread comes here. */
GW_DEVICE unsigned gw_rank_in_block(uint32_t *of_warps, bool has, unsigned *all)
{
    uint32_t votes = __ballot_sync(GW_ALL, has);
    unsigned before = (unsigned)__popc(votes & ((1u << gw_lane()) - 1)), total = 0;
    unsigned warp = threadIdx.x / GW_LANES;
    if (gw_lane() == 0)
        of_warps[warp] = (uint32_t)__popc(votes);
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / GW_LANES; w++) {
        before += w < warp ? of_warps[w] : 0;
        total += of_warps[w];
    }
    *all = total;
    return before;
}

/* ---- Counts -------------------------------------------------------------------------------------
 */

/* Adds what each lane counted; atomics, as warps end in any order. */
GW_DEVICE void gw_report(uint32_t *word, uint32_t count)
{
    count = gw_warp_count(count);
    if (gw_lane() == 0 && count)
        atomicAdd(word, count);
}

#endif
