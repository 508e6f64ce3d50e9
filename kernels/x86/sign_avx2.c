/* SPDX-License-Identifier: Apache-2.0 */
/* One bit an element with AVX2: the bytes of ref/sign_ref.c. */
#include "x86.h"

#include "lanes_avx2.h"
#include "sign_x86.h"

/* The sign bits of a group, in order. Saturation keeps signs; both packs deal out groups of four.
 */
INLINE uint32_t signs_of(const __m256 p[4])
{
    __m256i low = _mm256_packs_epi32(_mm256_castps_si256(p[0]), _mm256_castps_si256(p[1]));
    __m256i high = _mm256_packs_epi32(_mm256_castps_si256(p[2]), _mm256_castps_si256(p[3]));
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i dealt = _mm256_packs_epi16(low, high);
    return (uint32_t)_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(dealt, order));
}

INLINE uint32_t take_group(const float *src, const float *residual, lanes_t *sum, uint32_t *zero,
                           bool ef)
{
    __m256 p[4], any = _mm256_setzero_ps();
    for (size_t k = 0; k < 4; k++) {
        p[k] = load_p(src, residual, 8 * k, ef);
        __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), p[k]);
        any = _mm256_or_ps(any, magnitude);
        sum->v[k] = _mm256_add_ps(sum->v[k], magnitude);
    }
    __m256i each = _mm256_castps_si256(any);
    *zero = (uint32_t)_mm256_testz_si256(each, each);
    return signs_of(p);
}

INLINE void lose_group(const float *src, float *residual, float scale, uint32_t signs)
{
    __m256 plus = _mm256_set1_ps(scale);
    for (int k = 0; k < 4; k++) {
        __m256 p = load_p(src, residual, 8 * (size_t)k, true);
        _mm256_storeu_ps(residual + 8 * k, _mm256_sub_ps(p, negative_where(plus, signs, k)));
    }
}

INLINE void decode_group(float scale, uint32_t signs, float *dst, seen_t *seen, bool add)
{
    __m256 plus = _mm256_set1_ps(scale);
    for (int k = 0; k < 4; k += 2) {
        float *to = dst + 8 * k;
        __m256 a = negative_where(plus, signs, k), b = negative_where(plus, signs, k + 1);
        if (add) {
            a = _mm256_add_ps(_mm256_loadu_ps(to), a);
            b = _mm256_add_ps(_mm256_loadu_ps(to + 8), b);
            *seen = _mm256_or_ps(*seen, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
        }
        _mm256_storeu_ps(to, a);
        _mm256_storeu_ps(to + 8, b);
    }
}

void gw__sign_avx2_fill(gw_sign_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
