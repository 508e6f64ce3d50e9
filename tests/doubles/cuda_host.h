/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA C for the host's C++ compiler: -include this, and a .cu file runs on gw_double.h. */
#ifndef GW_CUDA_HOST_H
#define GW_CUDA_HOST_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>
#include <utility>

#include "gw_double.h"

#define __global__
#define __device__
#define __host__
#define __constant__    static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
/* The section is what the executor fills at the start of each block. */
#define __shared__            static __attribute__((section("gw_shared"), used))
#define GW_SHARED(type, name) type *name = (type *)gw_double_shared()
#define GW_DOUBLE_HERE        const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define GW_DOUBLE_FN          static inline __attribute__((unused))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* ---- Vectors: aligned as on the device, so that UBSan sees an address that is not --------------
 */

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

GW_DOUBLE_FN uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}

GW_DOUBLE_FN float2 make_float2(float x, float y)
{
    return {x, y};
}

GW_DOUBLE_FN uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

GW_DOUBLE_FN float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

/* ---- Rendezvous ---------------------------------------------------------------------------------
 */

GW_DOUBLE_FN void __syncthreads(GW_DOUBLE_HERE)
{
    gw_double_meet(GW_DOUBLE_BLOCK, 0, 0, 0, file, line);
}

GW_DOUBLE_FN int __syncthreads_count(int value, GW_DOUBLE_HERE)
{
    return (int)gw_double_meet(GW_DOUBLE_BLOCK, 0, value != 0, 0, file, line);
}

GW_DOUBLE_FN int __syncthreads_or(int value, GW_DOUBLE_HERE)
{
    return __syncthreads_count(value, file, line) != 0;
}

GW_DOUBLE_FN int __syncthreads_and(int value, GW_DOUBLE_HERE)
{
    return __syncthreads_count(!value, file, line) == 0;
}

GW_DOUBLE_FN void __syncwarp(unsigned mask = 0xFFFFFFFFu, GW_DOUBLE_HERE)
{
    gw_double_meet(GW_DOUBLE_WARP, mask, 0, 0, file, line);
}

GW_DOUBLE_FN unsigned __ballot_sync(unsigned mask, int value, GW_DOUBLE_HERE)
{
    return (unsigned)gw_double_meet(GW_DOUBLE_BALLOT, mask, value != 0, 0, file, line);
}

GW_DOUBLE_FN int __any_sync(unsigned mask, int value, GW_DOUBLE_HERE)
{
    return __ballot_sync(mask, value, file, line) != 0;
}

GW_DOUBLE_FN int __all_sync(unsigned mask, int value, GW_DOUBLE_HERE)
{
    return __ballot_sync(mask, !value, file, line) == 0;
}

template <class T>
static inline T gw_double_shuffle(unsigned mask, T value, unsigned source, const char *file,
                                  int line)
{
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "shuffles are of 32 and 64 bits");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    word = gw_double_meet(GW_DOUBLE_SHUFFLE, mask, word, source, file, line);
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Whoever has no source in its group of `width` lanes (a power of two) keeps its own value. */
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, GW_DOUBLE_HERE)
{
    unsigned first = gw_double_lane() & ~(unsigned)(width - 1);
    return gw_double_shuffle(mask, value, first | (from & (width - 1)), file, line);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, GW_DOUBLE_HERE)
{
    unsigned lane = gw_double_lane(), place = lane & (width - 1);
    return gw_double_shuffle(mask, value, by > place ? lane : lane - by, file, line);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                                 GW_DOUBLE_HERE)
{
    unsigned lane = gw_double_lane(), rest = width - 1 - (lane & (width - 1));
    return gw_double_shuffle(mask, value, by > rest ? lane : lane + by, file, line);
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, GW_DOUBLE_HERE)
{
    unsigned lane = gw_double_lane(), last = lane | (width - 1), other = lane ^ (unsigned)with;
    return gw_double_shuffle(mask, value, other > last ? lane : other, file, line);
}

/* ---- Atomics: in global memory other blocks and the host may look at the same time -------------
 */

template <class T> struct gw_double_same {
    typedef T type;
};
#define GW_DOUBLE_VALUE(T) typename gw_double_same<T>::type

template <class T> static inline T atomicExch(T *at, GW_DOUBLE_VALUE(T) value)
{
    T before;
    __atomic_exchange(at, &value, &before, __ATOMIC_SEQ_CST);
    return before;
}

template <class T>
static inline T atomicCAS(T *at, GW_DOUBLE_VALUE(T) expected, GW_DOUBLE_VALUE(T) value)
{
    static_assert(std::is_integral<T>::value, "atomicCAS is of integers");
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

#define GW_DOUBLE_ATOMIC(name, result)                                                             \
    template <class T> static inline T name(T *at, GW_DOUBLE_VALUE(T) value)                       \
    {                                                                                              \
        T before, after;                                                                           \
        __atomic_load(at, &before, __ATOMIC_SEQ_CST);                                              \
        do {                                                                                       \
            after = (T)(result);                                                                   \
        } while (!__atomic_compare_exchange(at, &before, &after, false, __ATOMIC_SEQ_CST,          \
                                            __ATOMIC_SEQ_CST));                                    \
        return before;                                                                             \
    }
GW_DOUBLE_ATOMIC(atomicAdd, before + value)
GW_DOUBLE_ATOMIC(atomicMax, before > value ? before : value)
GW_DOUBLE_ATOMIC(atomicMin, before < value ? before : value)
GW_DOUBLE_ATOMIC(atomicOr, before | value)
GW_DOUBLE_ATOMIC(atomicAnd, before &value)

GW_DOUBLE_FN void __threadfence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

GW_DOUBLE_FN void __threadfence_block(void)
{
}

/* ---- Bits ---------------------------------------------------------------------------------------
 */

GW_DOUBLE_FN int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

GW_DOUBLE_FN int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

GW_DOUBLE_FN int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

GW_DOUBLE_FN int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}

GW_DOUBLE_FN int __ffs(int x)
{
    return __builtin_ffs(x);
}

GW_DOUBLE_FN unsigned __brev(unsigned x)
{
    unsigned y = 0;
    for (int i = 0; i < 32; i++)
        y |= (x >> i & 1) << (31 - i);
    return y;
}

/* The mode that repeats the sign (bit 3 of a selector) is not here: the device layer needs none. */
GW_DOUBLE_FN unsigned __byte_perm(unsigned x, unsigned y, unsigned selectors)
{
    uint64_t both = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= (unsigned)(both >> 8 * (selectors >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

template <class To, class From> static inline To gw_double_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

GW_DOUBLE_FN unsigned __float_as_uint(float x)
{
    return gw_double_bits<unsigned>(x);
}

GW_DOUBLE_FN int __float_as_int(float x)
{
    return gw_double_bits<int>(x);
}

GW_DOUBLE_FN float __uint_as_float(unsigned x)
{
    return gw_double_bits<float>(x);
}

GW_DOUBLE_FN float __int_as_float(int x)
{
    return gw_double_bits<float>(x);
}

GW_DOUBLE_FN long long __double_as_longlong(double x)
{
    return gw_double_bits<long long>(x);
}

GW_DOUBLE_FN double __longlong_as_double(long long x)
{
    return gw_double_bits<double>(x);
}

/* ---- Loads and stores with a hint; arithmetic that is never contracted --------------------------
 */

template <class T> static inline T __ldg(const T *at)
{
    return *at;
}

template <class T> static inline T __ldcs(const T *at)
{
    return *at;
}

template <class T> static inline void __stcs(T *at, GW_DOUBLE_VALUE(T) value)
{
    *at = value;
}

#define GW_DOUBLE_RN(type, name, result)                                                           \
    GW_DOUBLE_FN type name(type x, type y)                                                         \
    {                                                                                              \
        return result;                                                                             \
    }
GW_DOUBLE_RN(float, __fadd_rn, x + y)
GW_DOUBLE_RN(float, __fsub_rn, x - y)
GW_DOUBLE_RN(float, __fmul_rn, x *y)
GW_DOUBLE_RN(float, __fdiv_rn, x / y)
GW_DOUBLE_RN(double, __dadd_rn, x + y)
GW_DOUBLE_RN(double, __dsub_rn, x - y)
GW_DOUBLE_RN(double, __dmul_rn, x *y)
GW_DOUBLE_RN(double, __ddiv_rn, x / y)

GW_DOUBLE_FN float __fsqrt_rn(float x)
{
    return __builtin_sqrtf(x);
}

GW_DOUBLE_FN float __fmaf_rn(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}

GW_DOUBLE_FN double __dsqrt_rn(double x)
{
    return __builtin_sqrt(x);
}

GW_DOUBLE_FN double __fma_rn(double x, double y, double z)
{
    return __builtin_fma(x, y, z);
}

/* ---- The entry of a kernel ----------------------------------------------------------------------
 */

template <auto fn> struct gw_double_entry;

/* One more parameter than there are, as arrays have at least one element. */
template <class... A, void (*fn)(A...)> struct gw_double_entry<fn> {
    static constexpr unsigned count = sizeof...(A);
    static constexpr gw_double_param_t params[count + 1] = {
        {sizeof(A), std::is_pointer<A>::value}..., {0, false}};

    template <size_t... i> static void call_with(void *const *args, std::index_sequence<i...>)
    {
        fn(*(const std::remove_const_t<A> *)args[i]...);
    }

    static void call(void *const *args)
    {
        call_with(args, std::index_sequence_for<A...>());
    }
};

#define GW_DOUBLE_KERNEL(fn)                                                                       \
    static gw_double_kernel_t fn##_double = {#fn, gw_double_entry<fn>::call,                       \
                                             gw_double_entry<fn>::params,                          \
                                             gw_double_entry<fn>::count, NULL};                    \
    __attribute__((constructor)) static void fn##_register(void)                                   \
    {                                                                                              \
        gw_double_register(&fn##_double);                                                          \
    }

#endif
