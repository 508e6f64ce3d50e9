/* SPDX-License-Identifier: Apache-2.0 */
/* Exponents in four bits with AVX-512 (F, BW, DQ, VL): the bytes of ref/lossless_ref.c. */
#include "x86.h"

#include <immintrin.h>

typedef __m512i vector_t;

#include "lossless_x86.h"

/* Byte permutations and compressions (VBMI, VBMI2) would save little: exponents that are written
 * out are rare. */

INLINE __m512i load(const void *p)
{
    return _mm512_loadu_si512(p);
}

INLINE void save(void *p, __m512i x)
{
    _mm512_storeu_si512(p, x);
}

INLINE vector_t vector_start(void)
{
    return _mm512_setzero_si512();
}

INLINE vector_t vector_of(uint8_t byte)
{
    return _mm512_set1_epi8((char)byte);
}

/* Two vectors of 16-bit numbers below 256 (32-bit ones below 65536) as one, in order. */
INLINE __m512i join16(__m512i a, __m512i b)
{
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_permutexvar_epi64(order, _mm512_packus_epi16(a, b));
}

INLINE __m512i join32(__m512i a, __m512i b)
{
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_permutexvar_epi64(order, _mm512_packus_epi32(a, b));
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

INLINE vector_t take_greatest(gw_dtype_t dtype, const uint8_t *src, vector_t greatest)
{
    if (dtype == GW_F32)
        return _mm512_max_epu32(greatest, _mm512_slli_epi32(load(src), 1));
    return _mm512_max_epu16(greatest, _mm512_slli_epi16(load(src), 1));
}

INLINE unsigned greatest_exponent(gw_dtype_t dtype, vector_t greatest)
{
    if (dtype == GW_F32)
        greatest = _mm512_srli_epi32(greatest, 16);
    __m256i half =
        _mm256_max_epu16(_mm512_castsi512_si256(greatest), _mm512_extracti64x4_epi64(greatest, 1));
    __m128i last = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    last = _mm_minpos_epu16(_mm_xor_si128(last, _mm_set1_epi8(-1)));
    unsigned top = ~(unsigned)_mm_cvtsi128_si32(last) & 0xFFFF;
    return top >> (dtype == GW_F16 ? 11 : 8);
}

INLINE __m512i load_tops(gw_dtype_t dtype, const uint8_t *src, uint8_t *low)
{
    if (dtype != GW_F32)
        return load(src);
    const __m512i mask = _mm512_set1_epi32(0xFFFF);
    __m512i a = load(src), b = load(src + 64);
    save(low, join32(_mm512_and_si512(a, mask), _mm512_and_si512(b, mask)));
    return join32(_mm512_srli_epi32(a, 16), _mm512_srli_epi32(b, 16));
}

INLINE __m512i exponents(gw_dtype_t dtype, __m512i a, __m512i b)
{
    unsigned drop = dtype == GW_F16 ? 11 : 8;
    return join16(_mm512_srli_epi16(_mm512_slli_epi16(a, 1), drop),
                  _mm512_srli_epi16(_mm512_slli_epi16(b, 1), drop));
}

/* The byte of a top that does not hold exponent bits: its low one, or sign and mantissa (0xD8: the
 * third operand chooses the second where it is set, else the first). */
INLINE __m512i rest(gw_dtype_t dtype, __m512i top)
{
    if (dtype == GW_F16)
        return _mm512_and_si512(top, _mm512_set1_epi16(0xFF));
    return _mm512_ternarylogic_epi32(_mm512_srli_epi16(top, 8), top, _mm512_set1_epi16(0x7F), 0xD8);
}

/* The codes of 64 exponents, two to a byte. */
INLINE __m256i codes_of(__m512i base, __m512i exponent, far_t *far)
{
    const __m512i limit = _mm512_set1_epi8(GW_LOSSLESS_ZERO);
    __m512i distance = _mm512_sub_epi8(base, exponent);
    __mmask64 is_zero = _mm512_testn_epi8_mask(exponent, exponent);
    __mmask64 is_far = _mm512_cmpge_epu8_mask(distance, limit);
    __m512i code = _mm512_mask_mov_epi8(distance, is_far, _mm512_set1_epi8(GW_LOSSLESS_FAR));
    code = _mm512_mask_mov_epi8(code, is_zero, limit);
    uint64_t written = is_far & ~is_zero;
    if (written) {
        uint8_t of[64];
        save(of, exponent);
        for (; written; written &= written - 1)
            far->exponent[far->count++] = of[__builtin_ctzll(written)];
    }
    return _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(code, _mm512_set1_epi16(0x1001)));
}

INLINE void save_bits(__m512i a, __m512i b, unsigned up, uint8_t *out)
{
    gw__store32(out, _mm512_movepi16_mask(_mm512_slli_epi16(a, up)));
    gw__store32(out + 4, _mm512_movepi16_mask(_mm512_slli_epi16(b, up)));
}

INLINE bool is_zero_64(const uint8_t *src)
{
    __m512i any = load(src);
    return !_mm512_test_epi8_mask(any, any);
}

INLINE void encode_64(gw_dtype_t dtype, vector_t base, const uint8_t *src, size_t i, uint8_t *block,
                      far_t *far)
{
    const gw_lossless_at_t at = gw__lossless_at(dtype, GW_LOSSLESS_BLOCK);
    __m512i a = load_tops(dtype, src, block + at.low + 2 * i);
    __m512i b = load_tops(dtype, src + 32 * gw__lossless_wide(dtype), block + at.low + 2 * i + 64);
    _mm256_storeu_si256((__m256i *)(void *)(block + at.codes + i / 2),
                        codes_of(base, exponents(dtype, a, b), far));
    save(block + at.bytes + i, join16(rest(dtype, a), rest(dtype, b)));
    if (dtype != GW_F16)
        return;
    save_bits(a, b, 0, block + at.bits + i / 8);
    save_bits(a, b, 6, block + at.bits + 64 + i / 8);
    save_bits(a, b, 7, block + at.bits + 128 + i / 8);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE size_t count_far_64(const uint8_t *codes)
{
    const __m512i low = _mm512_set1_epi8(0x0F), high = _mm512_set1_epi8((char)0xF0);
    __m512i x = load(codes);
    return (size_t)__builtin_popcountll(_mm512_cmpeq_epi8_mask(_mm512_and_si512(x, low), low)) +
           (size_t)__builtin_popcountll(_mm512_cmpge_epu8_mask(x, high));
}

/* The exponents of the 64 codes in 32 bytes. */
INLINE __m512i exponents_of(__m512i base, const uint8_t *codes, const uint8_t **far)
{
    const __m512i low = _mm512_set1_epi8(0x0F);
    __m512i code = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)codes));
    code = _mm512_and_si512(_mm512_or_si512(code, _mm512_slli_epi16(code, 4)), low);
    __mmask64 other = _mm512_cmpneq_epi8_mask(code, _mm512_set1_epi8(GW_LOSSLESS_ZERO));
    __m512i exponent = _mm512_maskz_sub_epi8(other, base, code);
    uint64_t written = _mm512_cmpeq_epi8_mask(code, low);
    if (written) {
        uint8_t of[64];
        save(of, exponent);
        for (; written; written &= written - 1)
            of[__builtin_ctzll(written)] = *(*far)++;
        exponent = load(of);
    }
    return exponent;
}

INLINE __m512i set_bits(__m512i x, const uint8_t *bits, int bit)
{
    __mmask32 set = gw__load32(bits);
    return _mm512_or_si512(x, _mm512_maskz_mov_epi16(set, _mm512_set1_epi16((short)bit)));
}

/* Elements i to i + 31. */
INLINE void join_elements(gw_dtype_t dtype, const uint8_t *block, size_t i, __m256i exponent,
                          uint8_t *dst)
{
    const gw_lossless_at_t at = gw__lossless_at(dtype, GW_LOSSLESS_BLOCK);
    const uint8_t *bytes = block + at.bytes + i, *bits = block + at.bits + i / 8;
    __m512i e = _mm512_cvtepu8_epi16(exponent);
    __m512i x = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)bytes));
    if (dtype == GW_F16) {
        e = _mm512_slli_epi16(_mm512_and_si512(e, _mm512_set1_epi16(0x1F)), 10);
        x = set_bits(_mm512_or_si512(x, e), bits, 0x8000);
        save(dst + 2 * i, set_bits(set_bits(x, bits + 64, 0x200), bits + 128, 0x100));
        return;
    }
    /* The sign from the byte shifted up, the mantissa from it as it is, the exponent between. */
    __m512i sign = _mm512_slli_epi16(x, 8);
    __m512i upper =
        _mm512_ternarylogic_epi32(_mm512_slli_epi16(e, 7), sign, _mm512_set1_epi16(-32768), 0xD8);
    x = _mm512_ternarylogic_epi32(upper, x, _mm512_set1_epi16(0x7F), 0xD8);
    if (dtype == GW_BF16) {
        save(dst + 2 * i, x);
        return;
    }
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i low = load(block + at.low + 2 * i);
    __m512i a = _mm512_unpacklo_epi16(low, x), b = _mm512_unpackhi_epi16(low, x);
    save(dst + 4 * i, _mm512_permutex2var_epi64(a, first, b));
    save(dst + 4 * i + 64, _mm512_permutex2var_epi64(a, second, b));
}

INLINE void decode_64(gw_dtype_t dtype, vector_t base, const uint8_t *block, size_t i,
                      const uint8_t **far, uint8_t *dst)
{
    const gw_lossless_at_t at = gw__lossless_at(dtype, GW_LOSSLESS_BLOCK);
    __m512i exponent = exponents_of(base, block + at.codes + i / 2, far);
    join_elements(dtype, block, i, _mm512_castsi512_si256(exponent), dst);
    join_elements(dtype, block, i + 32, _mm512_extracti64x4_epi64(exponent, 1), dst);
}

void gw__lossless_avx512_fill(gw_lossless_kernels_t *table)
{
    table->encode = encode;
    table->valid = valid;
    table->decode = decode;
}
