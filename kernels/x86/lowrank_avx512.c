/* SPDX-License-Identifier: Apache-2.0 */
/* Products with low-rank factors with AVX-512 (F, DQ): the bytes of ref/lowrank_ref.c. */
#include "x86.h"

#include <float.h>
#include <immintrin.h>

#include "bytes.h"
#include "fpmode.h"

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = 4 };
typedef __m512 wide_t;
typedef __m512 one_t;

#include "lowrank_walk.h"

INLINE __mmask16 mask_of(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

INLINE wide_t wide_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE wide_t wide_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

INLINE wide_t wide_load_part(const float *from, size_t n)
{
    return _mm512_maskz_loadu_ps(mask_of(n), from);
}

INLINE void wide_store(float *to, wide_t x)
{
    _mm512_storeu_ps(to, x);
}

INLINE void wide_store_part(float *to, wide_t x, size_t n)
{
    _mm512_mask_storeu_ps(to, mask_of(n), x);
}

INLINE one_t one_of(float x)
{
    return _mm512_set1_ps(x);
}

INLINE wide_t wide_add(wide_t a, wide_t b)
{
    return _mm512_add_ps(a, b);
}

INLINE wide_t wide_sub(wide_t a, wide_t b)
{
    return _mm512_sub_ps(a, b);
}

INLINE wide_t wide_mul(wide_t a, wide_t b)
{
    return _mm512_mul_ps(a, b);
}

INLINE wide_t wide_times(wide_t a, one_t b)
{
    return _mm512_mul_ps(a, b);
}

INLINE wide_t wide_limit(wide_t x)
{
    x = _mm512_min_ps(x, _mm512_set1_ps(FLT_MAX));
    return _mm512_max_ps(x, _mm512_set1_ps(-FLT_MAX));
}

INLINE wide_t wide_clean(wide_t x)
{
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(x, nan, _mm512_castsi512_ps(_mm512_set1_epi32(GW_NAN_BITS)));
}

INLINE float wide_sum(wide_t x)
{
    __m256 lane8 = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 lane = _mm_add_ps(_mm256_castps256_ps128(lane8), _mm256_extractf128_ps(lane8, 1));
    lane = _mm_add_ps(lane, _mm_movehl_ps(lane, lane));
    return _mm_cvtss_f32(_mm_add_ss(lane, _mm_movehdup_ps(lane)));
}

void gw__lowrank_avx512_fill(gw_lowrank_kernels_t *table)
{
    *table = (gw_lowrank_kernels_t){project, collect, store, add, keep};
}
