/* SPDX-License-Identifier: Apache-2.0 */
/* Exponents in four bits with AVX2: the bytes of ref/lossless_ref.c. */
#include "x86.h"

#include <immintrin.h>

typedef __m256i vector_t;

#include "lossless_x86.h"

enum { TOPS = 4 }; /* vectors of 64 tops */

INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE void save(void *p, __m256i x)
{
    _mm256_storeu_si256((__m256i *)p, x);
}

INLINE vector_t vector_start(void)
{
    return _mm256_setzero_si256();
}

INLINE vector_t vector_of(uint8_t byte)
{
    return _mm256_set1_epi8((char)byte);
}

/* Two vectors of 16-bit numbers below 256 (32-bit ones below 65536) as one, in order. */
INLINE __m256i join16(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xD8);
}

INLINE __m256i join32(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

INLINE vector_t take_greatest(gw_dtype_t dtype, const uint8_t *src, vector_t greatest)
{
    __m256i a = load(src), b = load(src + 32);
    if (dtype == GW_F32)
        a = _mm256_max_epu32(_mm256_slli_epi32(a, 1), _mm256_slli_epi32(b, 1));
    else
        a = _mm256_max_epu16(_mm256_slli_epi16(a, 1), _mm256_slli_epi16(b, 1));
    return dtype == GW_F32 ? _mm256_max_epu32(greatest, a) : _mm256_max_epu16(greatest, a);
}

INLINE unsigned greatest_exponent(gw_dtype_t dtype, vector_t greatest)
{
    if (dtype == GW_F32)
        greatest = _mm256_packus_epi32(_mm256_srli_epi32(greatest, 16), _mm256_setzero_si256());
    __m128i half =
        _mm_max_epu16(_mm256_castsi256_si128(greatest), _mm256_extracti128_si256(greatest, 1));
    half = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi8(-1)));
    unsigned top = ~(unsigned)_mm_cvtsi128_si32(half) & 0xFFFF;
    return top >> (dtype == GW_F16 ? 11 : 8);
}

INLINE void load_tops(gw_dtype_t dtype, const uint8_t *src, __m256i top[TOPS], uint8_t *low)
{
    for (int k = 0; k < TOPS; k++) {
        if (dtype != GW_F32) {
            top[k] = load(src + 32 * k);
            continue;
        }
        __m256i a = load(src + 64 * k), b = load(src + 64 * k + 32), zero = _mm256_setzero_si256();
        top[k] = join32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
        save(low + 32 * k,
             join32(_mm256_blend_epi16(a, zero, 0xAA), _mm256_blend_epi16(b, zero, 0xAA)));
    }
}

INLINE __m256i exponents(gw_dtype_t dtype, __m256i a, __m256i b)
{
    int drop = dtype == GW_F16 ? 11 : 8;
    return join16(_mm256_srli_epi16(_mm256_slli_epi16(a, 1), drop),
                  _mm256_srli_epi16(_mm256_slli_epi16(b, 1), drop));
}

/* The byte of a top that does not hold exponent bits: its low one, or sign and mantissa. */
INLINE __m256i rest(gw_dtype_t dtype, __m256i top)
{
    if (dtype == GW_F16)
        return _mm256_and_si256(top, _mm256_set1_epi16(0xFF));
    __m256i sign = _mm256_and_si256(_mm256_srli_epi16(top, 8), _mm256_set1_epi16(0x80));
    return _mm256_or_si256(sign, _mm256_and_si256(top, _mm256_set1_epi16(0x7F)));
}

/* Bit 15 - up of 32 tops. Saturation keeps a sign. */
INLINE void save_bits(__m256i a, __m256i b, int up, uint8_t *out)
{
    __m256i signs = _mm256_packs_epi16(_mm256_slli_epi16(a, up), _mm256_slli_epi16(b, up));
    gw__store32(out, (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(signs, 0xD8)));
}

/* The codes of 32 exponents, a byte each. */
INLINE __m256i codes_of(__m256i base, __m256i exponent, far_t *far)
{
    const __m256i limit = _mm256_set1_epi8(GW_LOSSLESS_ZERO);
    __m256i distance = _mm256_sub_epi8(base, exponent);
    __m256i is_far = _mm256_cmpeq_epi8(_mm256_max_epu8(distance, limit), distance);
    __m256i is_zero = _mm256_cmpeq_epi8(exponent, _mm256_setzero_si256());
    __m256i code = _mm256_blendv_epi8(distance, _mm256_set1_epi8(GW_LOSSLESS_FAR), is_far);
    uint32_t written = (uint32_t)_mm256_movemask_epi8(_mm256_andnot_si256(is_zero, is_far));
    if (written) {
        uint8_t of[32];
        save(of, exponent);
        for (; written; written &= written - 1)
            far->exponent[far->count++] = of[__builtin_ctz(written)];
    }
    return _mm256_blendv_epi8(code, limit, is_zero);
}

/* Two codes to a byte. */
INLINE __m256i pack_codes(__m256i a, __m256i b)
{
    const __m256i weights = _mm256_set1_epi16(0x1001);
    return join16(_mm256_maddubs_epi16(a, weights), _mm256_maddubs_epi16(b, weights));
}

INLINE bool is_zero_64(const uint8_t *src)
{
    __m256i any = _mm256_or_si256(load(src), load(src + 32));
    return _mm256_testz_si256(any, any);
}

INLINE void encode_64(gw_dtype_t dtype, vector_t base, const uint8_t *src, size_t i, uint8_t *block,
                      far_t *far)
{
    const gw_lossless_at_t at = gw__lossless_at(dtype, GW_LOSSLESS_BLOCK);
    __m256i top[TOPS], code[2];
    load_tops(dtype, src, top, block + at.low + 2 * i);
    for (int k = 0; k < 2; k++) {
        __m256i a = top[2 * k], b = top[2 * k + 1];
        size_t to = i + 32 * (size_t)k;
        code[k] = codes_of(base, exponents(dtype, a, b), far);
        save(block + at.bytes + to, join16(rest(dtype, a), rest(dtype, b)));
        if (dtype != GW_F16)
            continue;
        save_bits(a, b, 0, block + at.bits + to / 8);
        save_bits(a, b, 6, block + at.bits + 64 + to / 8);
        save_bits(a, b, 7, block + at.bits + 128 + to / 8);
    }
    save(block + at.codes + i / 2, pack_codes(code[0], code[1]));
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE size_t count_far_64(const uint8_t *codes)
{
    const __m256i low = _mm256_set1_epi8(0x0F), high = _mm256_set1_epi8((char)0xF0);
    __m256i sum = _mm256_setzero_si256();
    for (size_t i = 0; i < 64; i += 32) {
        __m256i x = load(codes + i);
        sum = _mm256_sub_epi8(sum, _mm256_cmpeq_epi8(_mm256_and_si256(x, low), low));
        sum = _mm256_sub_epi8(sum, _mm256_cmpeq_epi8(_mm256_and_si256(x, high), high));
    }
    sum = _mm256_sad_epu8(sum, _mm256_setzero_si256());
    __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return (size_t)(_mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1));
}

/* The exponents of the 32 codes in 16 bytes. */
INLINE __m256i exponents_of(__m256i base, const uint8_t *codes, const uint8_t **far)
{
    __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)codes));
    code =
        _mm256_and_si256(_mm256_or_si256(code, _mm256_slli_epi16(code, 4)), _mm256_set1_epi8(0x0F));
    __m256i is_zero = _mm256_cmpeq_epi8(code, _mm256_set1_epi8(GW_LOSSLESS_ZERO));
    __m256i is_far = _mm256_cmpeq_epi8(code, _mm256_set1_epi8(GW_LOSSLESS_FAR));
    __m256i exponent = _mm256_andnot_si256(is_zero, _mm256_sub_epi8(base, code));
    uint32_t written = (uint32_t)_mm256_movemask_epi8(is_far);
    if (written) {
        uint8_t of[32];
        save(of, exponent);
        for (; written; written &= written - 1)
            of[__builtin_ctz(written)] = *(*far)++;
        exponent = load(of);
    }
    return exponent;
}

/* `bit` in the elements whose bit is set in 16. */
INLINE __m256i spread_bits(const uint8_t *bits, int bit)
{
    const __m256i each = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                           8192, 16384, -32768);
    __m256i all = _mm256_set1_epi16((short)gw__load16(bits));
    __m256i set = _mm256_cmpeq_epi16(_mm256_and_si256(all, each), each);
    return _mm256_and_si256(set, _mm256_set1_epi16((short)bit));
}

/* Elements i to i + 15. */
INLINE void join_elements(gw_dtype_t dtype, const uint8_t *block, size_t i, __m128i exponent,
                          uint8_t *dst)
{
    const gw_lossless_at_t at = gw__lossless_at(dtype, GW_LOSSLESS_BLOCK);
    const uint8_t *bytes = block + at.bytes + i, *bits = block + at.bits + i / 8;
    __m256i e = _mm256_cvtepu8_epi16(exponent);
    __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)bytes));
    if (dtype == GW_F16) {
        e = _mm256_slli_epi16(_mm256_and_si256(e, _mm256_set1_epi16(0x1F)), 10);
        x = _mm256_or_si256(_mm256_or_si256(x, e), spread_bits(bits, 0x8000));
        x = _mm256_or_si256(x, spread_bits(bits + 64, 0x200));
        save(dst + 2 * i, _mm256_or_si256(x, spread_bits(bits + 128, 0x100)));
        return;
    }
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
    x = _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi16(0x7F)), _mm256_slli_epi16(e, 7));
    x = _mm256_or_si256(x, sign);
    if (dtype == GW_BF16) {
        save(dst + 2 * i, x);
        return;
    }
    __m256i low = load(block + at.low + 2 * i);
    __m256i a = _mm256_unpacklo_epi16(low, x), b = _mm256_unpackhi_epi16(low, x);
    save(dst + 4 * i, _mm256_permute2x128_si256(a, b, 0x20));
    save(dst + 4 * i + 32, _mm256_permute2x128_si256(a, b, 0x31));
}

INLINE void decode_64(gw_dtype_t dtype, vector_t base, const uint8_t *block, size_t i,
                      const uint8_t **far, uint8_t *dst)
{
    const gw_lossless_at_t at = gw__lossless_at(dtype, GW_LOSSLESS_BLOCK);
    for (size_t end = i + 64; i < end; i += 32) {
        __m256i exponent = exponents_of(base, block + at.codes + i / 2, far);
        join_elements(dtype, block, i, _mm256_castsi256_si128(exponent), dst);
        join_elements(dtype, block, i + 16, _mm256_extracti128_si256(exponent, 1), dst);
    }
}

void gw__lossless_avx2_fill(gw_lossless_kernels_t *table)
{
    table->encode = encode;
    table->valid = valid;
    table->decode = decode;
}
