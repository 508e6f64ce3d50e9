/* SPDX-License-Identifier: Apache-2.0 */
/* What x86 kernels that pass through memory once have in common: prefetching, NaN in sums. */
#ifndef GW_STREAM_H
#define GW_STREAM_H

#include <immintrin.h>
#include <stddef.h>

#include "bytes.h"
#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))

/* Bytes from the place in work to the place prefetched, into the second level: the first has too
 * few misses in flight for a stream. */
#define AHEAD 16384

/* For `bytes` that are read soon, or written: a line is read before it is changed. */
INLINE void prefetch(const void *at, size_t bytes)
{
#pragma GCC unroll 8
    for (size_t line = 0; line < bytes; line += 64)
        _mm_prefetch((const char *)at + AHEAD + line, _MM_HINT_T1);
}

/* For elements i to i + count - 1 that are encoded soon. */
INLINE void prefetch_floats(const float *src, const float *residual, size_t i, size_t count,
                            bool ef)
{
    prefetch(src + i, count * sizeof *src);
    if (ef)
        prefetch(residual + i, count * sizeof *residual);
}

/* NaN in dst keeps no payload: the sum of a block is cleaned when one was seen. */
static inline void clean_nan(float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (dst[i] != dst[i])
            dst[i] = gw__float_of(GW_NAN_BITS);
}

#endif
