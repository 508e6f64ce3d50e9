/* SPDX-License-Identifier: Apache-2.0 */
/* The 32 lanes of a sum and what goes with them, with AVX-512; for sign and rotate. */
#ifndef GW_LANES_AVX512_H
#define GW_LANES_AVX512_H

#include <stdbool.h>

#include "stream.h"

/* Lane j holds the sum of elements j, j + 32, j + 64 ... */
typedef struct lanes {
    __m512 v[2];
} lanes_t;

INLINE lanes_t lanes_start(void)
{
    return (lanes_t){{_mm512_setzero_ps(), _mm512_setzero_ps()}};
}

/* The lanes added up as in gw__sign_fold() and gw__rotate_fold(). */
INLINE float fold(const lanes_t *sum)
{
    __m512 lane16 = _mm512_add_ps(sum->v[0], sum->v[1]);
    __m256 lane8 = _mm256_add_ps(_mm512_castps512_ps256(lane16), _mm512_extractf32x8_ps(lane16, 1));
    __m128 lane = _mm_add_ps(_mm256_castps256_ps128(lane8), _mm256_extractf128_ps(lane8, 1));
    lane = _mm_add_ps(lane, _mm_movehl_ps(lane, lane));
    return _mm_cvtss_f32(_mm_add_ss(lane, _mm_movehdup_ps(lane)));
}

/* Where a sum was NaN. */
typedef __mmask16 seen_t;

INLINE seen_t seen_start(void)
{
    return 0;
}

INLINE bool is_seen(seen_t seen)
{
    return seen != 0;
}

INLINE __m512 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m512 p = _mm512_loadu_ps(src + i);
    return ef ? _mm512_add_ps(p, _mm512_loadu_ps(residual + i)) : p;
}

#endif
