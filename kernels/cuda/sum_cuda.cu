/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of binary32 arrays in device memory; copies of anything, and zeros; where things begin. */
#include "device.cuh"

/* src needs no alignment; where both lie at multiples of 16 a thread takes four elements. */
extern "C" __global__ void gw_cuda_sum_add(float *dst, const uint8_t *src, uint64_t count)
{
    uint64_t i = gw_thread();
    if (gw_wide(dst) && gw_wide(src)) {
        for (uint64_t j = 4 * i; j + 4 <= count; j += 4 * gw_threads()) {
            float4 v = gw_quad_sum(*(float4 *)(dst + j), *(const float4 *)(src + 4 * j));
            *(float4 *)(dst + j) =
                make_float4(gw_one_nan(v.x), gw_one_nan(v.y), gw_one_nan(v.z), gw_one_nan(v.w));
        }
        i += count & ~(uint64_t)3;
    }
    for (; i < count; i += gw_threads())
        dst[i] = gw_one_nan(dst[i] + gw_load_float(src + 4 * i));
}

extern "C" __global__ void gw_cuda_sum_scale(float *dst, float factor, uint64_t count)
{
    uint64_t i = gw_thread();
    if (gw_wide(dst)) {
        for (uint64_t j = 4 * i; j + 4 <= count; j += 4 * gw_threads()) {
            float4 v = *(float4 *)(dst + j);
            *(float4 *)(dst + j) = make_float4(gw_one_nan(v.x * factor), gw_one_nan(v.y * factor),
                                               gw_one_nan(v.z * factor), gw_one_nan(v.w * factor));
        }
        i += count & ~(uint64_t)3;
    }
    for (; i < count; i += gw_threads())
        dst[i] = gw_one_nan(dst[i] * factor);
}

/* Bytes as they are, at any addresses; 16 a thread where both lie at multiples of 16, else 4. */
extern "C" __global__ void gw_cuda_sum_copy(uint8_t *dst, const uint8_t *src, uint64_t bytes)
{
    uint64_t i = gw_thread(), done = 0;
    if (gw_wide(dst) && gw_wide(src)) {
        for (uint64_t j = 16 * i; j + 16 <= bytes; j += 16 * gw_threads())
            *(uint4 *)(dst + j) = *(const uint4 *)(src + j);
        done = bytes & ~(uint64_t)15;
    }
    for (uint64_t j = done + 4 * i; j + 4 <= bytes; j += 4 * gw_threads())
        gw_store_word(dst + j, gw_load_word(src + j));
    for (uint64_t j = (bytes & ~(uint64_t)3) + i; j < bytes; j += gw_threads())
        dst[j] = src[j];
}

extern "C" __global__ void gw_cuda_sum_zero(uint8_t *dst, uint64_t bytes)
{
    uint64_t i = gw_thread(), done = 0;
    if (gw_wide(dst)) {
        for (uint64_t j = 16 * i; j + 16 <= bytes; j += 16 * gw_threads())
            *(uint4 *)(dst + j) = make_uint4(0, 0, 0, 0);
        done = bytes & ~(uint64_t)15;
    }
    for (uint64_t j = done + i; j < bytes; j += gw_threads())
        dst[j] = 0;
}

/* Each word becomes the sum of those before it, and *total that of all. By one block; `of_warps`
 * has a word for each of its warps. */
extern "C" __global__ void gw_cuda_sum_offsets(uint32_t *words, uint64_t count, uint32_t *total)
{
    GW_SHARED(uint32_t, of_warps);
    unsigned warp = threadIdx.x / GW_LANES, warps = blockDim.x / GW_LANES;
    uint32_t before = 0;
    for (uint64_t from = 0; from < count; from += blockDim.x) {
        uint64_t i = from + threadIdx.x;
        uint32_t own = i < count ? words[i] : 0, sum = own, at = before;
        GW_UNROLL(5)
        for (unsigned by = 1; by < GW_LANES; by *= 2) {
            uint32_t other = __shfl_up_sync(GW_ALL, sum, by);
            sum += gw_lane() >= by ? other : 0;
        }
        if (gw_lane() == GW_LANES - 1)
            of_warps[warp] = sum;
        __syncthreads();
        for (unsigned w = 0; w < warps; w++) {
            at += w < warp ? of_warps[w] : 0;
            before += of_warps[w];
        }
        if (i < count)
            words[i] = at + sum - own;
        __syncthreads(); /* the next ones' sums */
    }
    if (threadIdx.x == 0)
        *total = before;
}
