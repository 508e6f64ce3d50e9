/* SPDX-License-Identifier: Apache-2.0 */
/* The 32 lanes of a sum and what goes with them, with AVX2; for sign and rotate. */
#ifndef GW_LANES_AVX2_H
#define GW_LANES_AVX2_H

#include <stdbool.h>

#include "stream.h"

/* Lane j holds the sum of elements j, j + 32, j + 64 ... */
typedef struct lanes {
    __m256 v[4];
} lanes_t;

INLINE lanes_t lanes_start(void)
{
    __m256 zero = _mm256_setzero_ps();
    return (lanes_t){{zero, zero, zero, zero}};
}

/* The lanes added up as in gw__sign_fold() and gw__rotate_fold(). */
INLINE float fold(const lanes_t *sum)
{
    __m256 lane8 =
        _mm256_add_ps(_mm256_add_ps(sum->v[0], sum->v[2]), _mm256_add_ps(sum->v[1], sum->v[3]));
    __m128 lane = _mm_add_ps(_mm256_castps256_ps128(lane8), _mm256_extractf128_ps(lane8, 1));
    lane = _mm_add_ps(lane, _mm_movehl_ps(lane, lane));
    return _mm_cvtss_f32(_mm_add_ss(lane, _mm_movehdup_ps(lane)));
}

/* Where a sum was NaN. */
typedef __m256 seen_t;

INLINE seen_t seen_start(void)
{
    return _mm256_setzero_ps();
}

INLINE bool is_seen(seen_t seen)
{
    return _mm256_movemask_ps(seen) != 0;
}

INLINE __m256 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m256 p = _mm256_loadu_ps(src + i);
    return ef ? _mm256_add_ps(p, _mm256_loadu_ps(residual + i)) : p;
}

/* Eight elements with the signs of bits 8 k .. 8 k + 7 of a word. */
INLINE __m256 negative_where(__m256 x, uint32_t word, int k)
{
    __m256i left = _mm256_sub_epi32(_mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24),
                                    _mm256_set1_epi32(8 * k));
    __m256 sign = _mm256_castsi256_ps(_mm256_sllv_epi32(_mm256_set1_epi32((int)word), left));
    return _mm256_xor_ps(x, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

#endif
