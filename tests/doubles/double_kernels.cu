// SPDX-License-Identifier: Apache-2.0
// Kernels that ask the executor of blocks for everything that cuda_host.h has; test_double.c knows
// the answers.

struct double_list_t {
    uint32_t *at[4];
};

// out = in backwards within each block, through dynamic shared memory.
extern "C" __global__ void double_reverse(const uint32_t *in, uint32_t *out)
{
    GW_SHARED(uint32_t, shared);
    unsigned first = blockIdx.x * blockDim.x;
    shared[threadIdx.x] = in[first + threadIdx.x];
    __syncthreads();
    out[first + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

// The same without the barrier: right in at most one order of threads.
extern "C" __global__ void double_race(const uint32_t *in, uint32_t *out)
{
    GW_SHARED(uint32_t, shared);
    unsigned first = blockIdx.x * blockDim.x;
    shared[threadIdx.x] = in[first + threadIdx.x];
    out[first + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

// Static shared memory: the first word before anyone writes, then what thread 0 wrote.
extern "C" __global__ void __launch_bounds__(1024) double_static(uint32_t *out)
{
    __shared__ uint32_t word[2];
    uint32_t before = word[1];
    __syncthreads();
    if (threadIdx.x == 0)
        word[1] = 7 + blockIdx.x;
    __syncthreads();
    out[2 * (blockIdx.x * blockDim.x + threadIdx.x)] = before;
    out[2 * (blockIdx.x * blockDim.x + threadIdx.x) + 1] = word[1];
}

// Every shuffle and vote, a row of 12 words for each thread.
extern "C" __global__ void double_lanes(uint32_t *out)
{
    unsigned i = threadIdx.x, lane = i % 32, all = 0xFFFFFFFFu;
    uint32_t *row = out + 12 * i;
    row[0] = __shfl_sync(all, i, 3);
    row[1] = __shfl_up_sync(all, i, 5);
    row[2] = __shfl_down_sync(all, i, 5);
    row[3] = __shfl_xor_sync(all, i, 9);
    row[4] = __shfl_sync(all, i, 1, 8);
    row[5] = __ballot_sync(all, lane % 3 == 0);
    row[6] = __any_sync(all, lane == 17) + 2 * __any_sync(all, 0);
    row[7] = __all_sync(all, 1) + 2 * __all_sync(all, lane != 17);
    row[8] = (uint32_t)(__shfl_xor_sync(all, (uint64_t)i << 32 | 5u, 1) >> 32);
    row[9] = __float_as_uint(__shfl_down_sync(all, (float)i, 1, 4));
    row[10] = (uint32_t)__syncthreads_count(i % 2);
    row[11] = (uint32_t)(__syncthreads_or(i == 5) + 2 * __syncthreads_and(i != 5));
}

// Halves of a warp meet by themselves.
extern "C" __global__ void double_halves(uint32_t *out)
{
    unsigned i = threadIdx.x;
    if (i % 32 < 16)
        out[i] = __ballot_sync(0x0000FFFFu, i % 2);
    else
        out[i] = __ballot_sync(0xFFFF0000u, i % 4 == 0);
}

extern "C" __global__ void double_atomics(uint32_t *word, float *sum)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&word[0], 1);
    atomicMax(&word[1], i);
    atomicMin(&word[2], i + 1);
    atomicOr(&word[3], 1u << i % 32);
    atomicAnd(&word[4], ~(1u << i % 16));
    atomicExch(&word[5], i);
    for (uint32_t seen = word[6], was; (was = atomicCAS(&word[6], seen, seen + 2)) != seen;)
        seen = was;
    atomicAdd(sum, 0.5f);
}

// Which thread of which block came when.
extern "C" __global__ void double_order(uint32_t *next, uint32_t *out)
{
    for (int turn = 0; turn < 2; turn++) {
        out[atomicAdd(next, 1)] = blockIdx.x * blockDim.x + threadIdx.x;
        __syncthreads();
    }
}

// A struct by value, and values of several sizes.
extern "C" __global__ void double_args(double_list_t list, uint64_t big, float x, uint8_t small)
{
    *list.at[threadIdx.x % 4] = (uint32_t)(big >> 32) + (uint32_t)x + small;
}

extern "C" __global__ void double_bits(const uint32_t *in, uint32_t *out)
{
    out[0] = (uint32_t)__popc(in[0]);
    out[1] = (uint32_t)__clz((int)in[0]);
    out[2] = (uint32_t)__ffs((int)in[0]);
    out[3] = __brev(in[0]);
    out[4] = __byte_perm(in[0], in[1], 0x1746);
    out[5] = __float_as_uint(__uint_as_float(in[0]));
    out[6] = (uint32_t)(__clz(0) + __ffs(0) + __clzll(1) + __popcll(UINT64_MAX));
    out[7] = __float_as_uint(__fmaf_rn(__fmul_rn(3.0f, 2.0f), 0.5f, __fdiv_rn(1.0f, 4.0f)));
    *(uint4 *)(out + 8) = make_uint4(in[0], in[1], __ldg(in), __ldcs(in + 1));
}

// ---- What must be an error
// ------------------------------------------------------------------------------------------

// Only a part of the block meets.
extern "C" __global__ void double_divergent(uint32_t *out)
{
    if (threadIdx.x < 20)
        __syncthreads();
    out[threadIdx.x] = 1;
}

// All meet, but not at one place.
extern "C" __global__ void double_two_places(uint32_t *out)
{
    if (threadIdx.x < 20)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

extern "C" __global__ void double_lane_left(uint32_t *out)
{
    if (threadIdx.x != 9)
        out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, threadIdx.x, 1);
}

extern "C" __global__ void double_not_named(uint32_t *out)
{
    out[threadIdx.x] = __ballot_sync(0x7FFFFFFFu, 1);
}

extern "C" __global__ void double_reads_other(uint32_t *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(0x0000FFFFu, threadIdx.x, 20);
}

// Writes the word behind its dynamic shared memory.
extern "C" __global__ void double_shared_over(uint32_t words)
{
    GW_SHARED(uint32_t, shared);
    ((volatile uint32_t *)shared)[words] = 1;
}

// Writes one word more than it was given.
extern "C" __global__ void double_global_over(uint32_t *out, uint32_t words)
{
    for (uint32_t i = threadIdx.x; i <= words; i += blockDim.x)
        ((volatile uint32_t *)out)[i] = i;
}
