/* SPDX-License-Identifier: Apache-2.0 */
/* How functions of the arithmetic headers are declared: inline in C, for host and device in CUDA.
 */
#ifndef GW_INLINE_H
#define GW_INLINE_H

/*
 * A header that ref, x86 and cuda share writes `static GW_INLINE`. The test double compiles the
 * same .cu files by the host's C++ compiler, where the words of CUDA mean nothing.
 */
#if defined(__CUDACC__)
#define GW_INLINE __host__ __device__ __forceinline__
#else
#define GW_INLINE inline
#endif

/* Leading and trailing zeros of a word that is not 0. */
#if defined(__CUDA_ARCH__)
#define GW_LEADING_ZEROS(x)  __clz((int)(x))
#define GW_TRAILING_ZEROS(x) (__ffs((int)(x)) - 1)
#else
#define GW_LEADING_ZEROS(x)  __builtin_clz(x)
#define GW_TRAILING_ZEROS(x) __builtin_ctz(x)
#endif

#endif
