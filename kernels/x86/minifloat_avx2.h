/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of short floating-point numbers with AVX2 and F16C, 8 at a time; for fp8 and fp4. */
#ifndef GW_MINIFLOAT_AVX2_H
#define GW_MINIFLOAT_AVX2_H

#include "minifloat.h"
#include "stream.h"

/* How a magnitude is rounded is told in minifloat_avx512.h; the constants are exact here, so that
 * a code has no bits above it. */
typedef struct rounded {
    __m256i code; /* without sign; its low byte is right, what is above is of no meaning */
    __m256 value; /* its magnitude */
} rounded_t;

INLINE uint32_t least_exponent(gw_minifloat_t f)
{
    return (uint32_t)(128 - f.bias) << 23;
}

INLINE uint32_t code_offset(gw_minifloat_t f)
{
    return (0u - (uint32_t)((128 - f.bias) << f.mantissa)) & 0xFFu;
}

INLINE rounded_t round_to(gw_minifloat_t f, __m256 a)
{
    __m256i e = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7F800000));
    e = _mm256_max_epi32(e, _mm256_set1_epi32((int)least_exponent(f)));
    uint32_t up = (uint32_t)(23 - f.mantissa) << 23;
    __m256 magic =
        _mm256_castsi256_ps(_mm256_add_epi32(e, _mm256_set1_epi32((int)(up + code_offset(f)))));
    __m256 sum = _mm256_add_ps(a, magic);
    __m256i high = _mm256_srli_epi32(e, 23 - f.mantissa);
    return (rounded_t){_mm256_add_epi32(high, _mm256_castps_si256(sum)), _mm256_sub_ps(sum, magic)};
}

INLINE __m256 sign_of(__m256 x)
{
    return _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
}

INLINE __m256 magnitude_of(__m256 x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

/* The code's low `bits` bits, and the sign of x above them; 0 above that. */
INLINE __m256i code_with_sign(__m256i code, __m256 x, int bits)
{
    __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(x), 31 - bits);
    sign = _mm256_and_si256(sign, _mm256_set1_epi32(1 << bits));
    return _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi32((1 << bits) - 1)), sign);
}

/* 32 codes of 32 bits, all below 256, as 32 bytes in order. */
INLINE __m256i pack_32(const __m256i c[4])
{
    __m256i low = _mm256_packs_epi32(c[0], c[1]), high = _mm256_packs_epi32(c[2], c[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE __m256 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m256 p = _mm256_loadu_ps(src + i);
    return ef ? _mm256_add_ps(p, _mm256_loadu_ps(residual + i)) : p;
}

INLINE __m256i magnitude_bits(__m256 p)
{
    return _mm256_castps_si256(magnitude_of(p));
}

INLINE uint32_t greatest(__m256i x)
{
    __m128i y = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_max_epi32(y, _mm_shuffle_epi32(y, 0x4E));
    y = _mm_max_epi32(y, _mm_shuffle_epi32(y, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(y);
}

/* Half precision holds both formats of 8 bits: E5M2 as its upper half, E4M3 as 2^-8 times itself.
 */
INLINE __m256 half_values(__m128i codes, bool e5m2)
{
    __m128i wide = _mm_cvtepi8_epi16(codes);
    wide = e5m2 ? _mm_slli_epi16(wide, 8)
                : _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16((short)0xBF80));
    return _mm256_cvtph_ps(wide);
}

INLINE __m256 one_nan(__m256 x)
{
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)GW_NAN_BITS));
    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

#endif
