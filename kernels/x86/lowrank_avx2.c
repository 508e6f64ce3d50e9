/* SPDX-License-Identifier: Apache-2.0 */
/* Products with low-rank factors with AVX2: the bytes of ref/lowrank_ref.c. */
#include "x86.h"

#include <float.h>
#include <immintrin.h>
#include <string.h>

#include "bytes.h"
#include "fpmode.h"

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = 2 };
typedef struct wide {
    __m256 low, high;
} wide_t;
typedef __m256 one_t;

#include "lowrank_walk.h"

INLINE wide_t wide_zero(void)
{
    return (wide_t){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

INLINE wide_t wide_load(const float *from)
{
    return (wide_t){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

/* By way of a copy: where a page ends behind the elements, masked access depends on the processor
 * to forgive what it does not touch, which costs some of them thousands of cycles and emulators a
 * fault.
 */
INLINE wide_t wide_load_part(const float *from, size_t n)
{
    float part[LANES] = {0};
    memcpy(part, from, n * sizeof *part);
    return wide_load(part);
}

INLINE void wide_store(float *to, wide_t x)
{
    _mm256_storeu_ps(to, x.low);
    _mm256_storeu_ps(to + 8, x.high);
}

INLINE void wide_store_part(float *to, wide_t x, size_t n)
{
    float part[LANES];
    wide_store(part, x);
    memcpy(to, part, n * sizeof *part);
}

INLINE one_t one_of(float x)
{
    return _mm256_set1_ps(x);
}

INLINE wide_t wide_add(wide_t a, wide_t b)
{
    return (wide_t){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

INLINE wide_t wide_sub(wide_t a, wide_t b)
{
    return (wide_t){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

INLINE wide_t wide_mul(wide_t a, wide_t b)
{
    return (wide_t){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

INLINE wide_t wide_times(wide_t a, one_t b)
{
    return (wide_t){_mm256_mul_ps(a.low, b), _mm256_mul_ps(a.high, b)};
}

INLINE __m256 limit(__m256 x)
{
    x = _mm256_min_ps(x, _mm256_set1_ps(FLT_MAX));
    return _mm256_max_ps(x, _mm256_set1_ps(-FLT_MAX));
}

INLINE wide_t wide_limit(wide_t x)
{
    return (wide_t){limit(x.low), limit(x.high)};
}

INLINE __m256 clean(__m256 x)
{
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(GW_NAN_BITS));
    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

INLINE wide_t wide_clean(wide_t x)
{
    return (wide_t){clean(x.low), clean(x.high)};
}

INLINE float wide_sum(wide_t x)
{
    __m256 lane8 = _mm256_add_ps(x.low, x.high);
    __m128 lane = _mm_add_ps(_mm256_castps256_ps128(lane8), _mm256_extractf128_ps(lane8, 1));
    lane = _mm_add_ps(lane, _mm_movehl_ps(lane, lane));
    return _mm_cvtss_f32(_mm_add_ss(lane, _mm_movehdup_ps(lane)));
}

void gw__lowrank_avx2_fill(gw_lowrank_kernels_t *table)
{
    *table = (gw_lowrank_kernels_t){project, collect, store, add, keep};
}
