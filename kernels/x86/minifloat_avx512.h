/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of short floating-point numbers with AVX-512, 16 at a time; for fp8 and fp4. */
#ifndef GW_MINIFLOAT_AVX512_H
#define GW_MINIFLOAT_AVX512_H

#include "minifloat.h"
#include "stream.h"

/*
 * Rounding to nearest even by one addition: to a magnitude in [2^e, 2^(e+1)) 2^(e + 23 - m) is
 * added, whose last place is worth 2^(e-m), a step of the format; below the least normal number e
 * stays at its exponent. The low bits of the sum are then the steps, and the code is steps +
 * (e + bias - 1) * 2^m. All constants of that but e * 2^m are put into the low bits of what is
 * added; only as many low bits of the result count as the code has.
 */
typedef struct rounded {
    __m512i code; /* in the low bits, without sign; what is above is of no meaning */
    __m512 value; /* its magnitude */
} rounded_t;

INLINE uint32_t least_exponent(gw_minifloat_t f)
{
    return (uint32_t)(128 - f.bias) << 23;
}

/* -(((127 - bias) << m) + 2^m), which is to be added, in 8 bits. */
INLINE uint32_t code_offset(gw_minifloat_t f)
{
    return (0u - (uint32_t)((128 - f.bias) << f.mantissa)) & 0xFFu;
}

INLINE rounded_t round_to(gw_minifloat_t f, __m512 a)
{
    __m512i e = _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7F800000));
    e = _mm512_max_epi32(e, _mm512_set1_epi32((int)least_exponent(f)));
    uint32_t up = (uint32_t)(23 - f.mantissa) << 23;
    __m512 magic =
        _mm512_castsi512_ps(_mm512_add_epi32(e, _mm512_set1_epi32((int)(up + code_offset(f)))));
    __m512 sum = _mm512_add_ps(a, magic);
    __m512i high = _mm512_srli_epi32(e, (unsigned)(23 - f.mantissa));
    return (rounded_t){_mm512_add_epi32(high, _mm512_castps_si512(sum)), _mm512_sub_ps(sum, magic)};
}

INLINE __m512 magnitude_of(__m512 x)
{
    return _mm512_abs_ps(x);
}

/* The magnitude with the sign of x. */
INLINE __m512 signed_as(__m512 magnitude, __m512 x)
{
    __m512i sign = _mm512_set1_epi32(INT32_MIN);
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(sign, _mm512_castps_si512(x),
                                                         _mm512_castps_si512(magnitude), 0xCA));
}

/* The code's low `bits` bits, and the sign of x above them. */
INLINE __m512i code_with_sign(__m512i code, __m512 x, unsigned bits)
{
    __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(x), 31 - bits);
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32((1 << bits) - 1), code, sign, 0xCA);
}

INLINE __m512 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m512 p = _mm512_loadu_ps(src + i);
    return ef ? _mm512_add_ps(p, _mm512_loadu_ps(residual + i)) : p;
}

INLINE __m512i magnitude_bits(__m512 p)
{
    return _mm512_and_si512(_mm512_castps_si512(p), _mm512_set1_epi32(INT32_MAX));
}

/* Half precision holds both formats of 8 bits: E5M2 as its upper half, E4M3 as 2^-8 times itself.
 */
INLINE __m512 half_values(__m128i codes, bool e5m2)
{
    __m256i wide = _mm256_cvtepi8_epi16(codes);
    wide = e5m2 ? _mm256_slli_epi16(wide, 8)
                : _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xBF80));
    return _mm512_cvtph_ps(wide);
}

INLINE __m512 one_nan(__m512 x)
{
    __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)GW_NAN_BITS));
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
}

#endif
