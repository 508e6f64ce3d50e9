/* SPDX-License-Identifier: Apache-2.0 */
/* One bit an element with AVX-512 (F, BW, DQ, VL): the bytes of ref/sign_ref.c. */
#include "x86.h"

#include "lanes_avx512.h"
#include "sign_x86.h"

INLINE uint32_t take_group(const float *src, const float *residual, lanes_t *sum, uint32_t *zero,
                           bool ef)
{
    __m512 a = load_p(src, residual, 0, ef), b = load_p(src, residual, 16, ef);
    uint32_t word = _mm512_movepi32_mask(_mm512_castps_si512(a)) |
                    (uint32_t)_mm512_movepi32_mask(_mm512_castps_si512(b)) << 16;
    a = _mm512_abs_ps(a);
    b = _mm512_abs_ps(b);
    __m512i any = _mm512_castps_si512(_mm512_or_ps(a, b));
    *zero = _mm512_test_epi32_mask(any, any) == 0;
    sum->v[0] = _mm512_add_ps(sum->v[0], a);
    sum->v[1] = _mm512_add_ps(sum->v[1], b);
    return word;
}

/* `scale` with the low 16 signs. */
INLINE __m512 pick(float scale, uint32_t signs)
{
    return _mm512_mask_blend_ps((__mmask16)signs, _mm512_set1_ps(scale), _mm512_set1_ps(-scale));
}

INLINE void lose_group(const float *src, float *residual, float scale, uint32_t signs)
{
    __m512 a = _mm512_sub_ps(load_p(src, residual, 0, true), pick(scale, signs));
    __m512 b = _mm512_sub_ps(load_p(src, residual, 16, true), pick(scale, signs >> 16));
    _mm512_storeu_ps(residual, a);
    _mm512_storeu_ps(residual + 16, b);
}

INLINE void decode_group(float scale, uint32_t signs, float *dst, seen_t *seen, bool add)
{
    __m512 a = pick(scale, signs), b = pick(scale, signs >> 16);
    if (add) {
        a = _mm512_add_ps(_mm512_loadu_ps(dst), a);
        b = _mm512_add_ps(_mm512_loadu_ps(dst + 16), b);
        *seen |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    }
    _mm512_storeu_ps(dst, a);
    _mm512_storeu_ps(dst + 16, b);
}

void gw__sign_avx512_fill(gw_sign_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
