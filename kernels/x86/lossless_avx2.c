/* SPDX-License-Identifier: Apache-2.0 */
/* Exponents in four bits with AVX2: the bytes of ref/lossless_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "bytes.h"
#include "lossless_walk.h"
#include "ref.h"

/*
 * 64 elements at a time, as four vectors of their upper 16 bits (tops), which hold sign and
 * exponent in every type; the lower 16 bits of binary32 are split off and joined on the way.
 * Integers throughout: no floating-point mode matters. Exponents that are written out are rare, so
 * they go one by one.
 */
enum { STEP = 64, TOPS = 4 };

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE void save(void *p, __m256i x)
{
    _mm256_storeu_si256((__m256i *)p, x);
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

INLINE unsigned greatest_of(gw_dtype_t dtype, const uint8_t *src)
{
    __m256i greatest = _mm256_setzero_si256();
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK * gw__lossless_wide(dtype); i += 32) {
        __m256i x = load(src + i);
        greatest = dtype == GW_F32 ? _mm256_max_epu32(greatest, _mm256_slli_epi32(x, 1))
                                   : _mm256_max_epu16(greatest, _mm256_slli_epi16(x, 1));
    }
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

typedef struct far {
    uint8_t exponent[GW_LOSSLESS_BLOCK];
    size_t count;
} far_t;

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

/* Whether a block without exponents has no bits at all. */
INLINE bool is_zero(gw_dtype_t dtype, const uint8_t *src)
{
    __m256i any = load(src);
    for (size_t i = 32; i < GW_LOSSLESS_BLOCK * gw__lossless_wide(dtype); i += 32)
        any = _mm256_or_si256(any, load(src + i));
    return _mm256_testz_si256(any, any);
}

INLINE size_t encode_block(gw_dtype_t dtype, const uint8_t *src, uint8_t *dst)
{
    const gw_lossless_at_t at = gw__lossless_at(dtype, GW_LOSSLESS_BLOCK);
    unsigned greatest = greatest_of(dtype, src);
    if (greatest == 0 && is_zero(dtype, src))
        return gw__lossless_put_zeros(dst);
    const __m256i base = _mm256_set1_epi8((char)greatest);
    far_t far;
    far.count = 0;
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK; i += STEP) {
        __m256i top[TOPS], code[2];
        load_tops(dtype, src + i * gw__lossless_wide(dtype), top, dst + at.low + 2 * i);
        for (int k = 0; k < 2; k++) {
            __m256i a = top[2 * k], b = top[2 * k + 1];
            size_t to = i + 32 * (size_t)k;
            code[k] = codes_of(base, exponents(dtype, a, b), &far);
            save(dst + at.bytes + to, join16(rest(dtype, a), rest(dtype, b)));
            if (dtype != GW_F16)
                continue;
            save_bits(a, b, 0, dst + at.bits + to / 8);
            save_bits(a, b, 6, dst + at.bits + 64 + to / 8);
            save_bits(a, b, 7, dst + at.bits + 128 + to / 8);
        }
        save(dst + at.codes + i / 2, pack_codes(code[0], code[1]));
    }
    if (!gw__lossless_pays(dtype, GW_LOSSLESS_BLOCK, far.count))
        return gw__lossless_put_raw(dtype, src, GW_LOSSLESS_BLOCK, dst);
    dst[0] = (uint8_t)greatest;
    dst[1] = (uint8_t)far.count;
    memcpy(dst + at.far, far.exponent, far.count);
    return at.far + far.count;
}

INLINE size_t encode_blocks(gw_dtype_t dtype, const uint8_t *src, size_t count, uint8_t *dst)
{
    size_t used = 0, i = 0;
    for (; i + GW_LOSSLESS_BLOCK <= count; i += GW_LOSSLESS_BLOCK)
        used += encode_block(dtype, src + i * gw__lossless_wide(dtype), dst + used);
    if (i < count)
        used += gw__lossless_ref_encode_block(dtype, src + i * gw__lossless_wide(dtype), count - i,
                                              dst + used);
    return used;
}

static size_t encode(gw_dtype_t dtype, const void *src, size_t count, uint8_t *dst)
{
    if (dtype == GW_F32)
        return encode_blocks(GW_F32, src, count, dst);
    return dtype == GW_F16 ? encode_blocks(GW_F16, src, count, dst)
                           : encode_blocks(GW_BF16, src, count, dst);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE size_t count_far(const uint8_t *codes)
{
    const __m256i low = _mm256_set1_epi8(0x0F), high = _mm256_set1_epi8((char)0xF0);
    __m256i sum = _mm256_setzero_si256();
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK / 2; i += 32) {
        __m256i x = load(codes + i);
        sum = _mm256_sub_epi8(sum, _mm256_cmpeq_epi8(_mm256_and_si256(x, low), low));
        sum = _mm256_sub_epi8(sum, _mm256_cmpeq_epi8(_mm256_and_si256(x, high), high));
    }
    sum = _mm256_sad_epu8(sum, _mm256_setzero_si256());
    __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return (size_t)(_mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1));
}

static bool valid(gw_dtype_t dtype, const uint8_t *blocks, size_t length, size_t count)
{
    return gw__lossless_walk(dtype, blocks, length, count, count_far);
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

INLINE size_t decode_block(gw_dtype_t dtype, const uint8_t *block, uint8_t *dst)
{
    const gw_lossless_at_t at = gw__lossless_at(dtype, GW_LOSSLESS_BLOCK);
    const __m256i base = _mm256_set1_epi8((char)block[0]);
    const uint8_t *far = block + at.far;
    if (gw__lossless_get_plain(dtype, block, GW_LOSSLESS_BLOCK, dst))
        return gw__lossless_bytes(dtype, GW_LOSSLESS_BLOCK, block);
    for (size_t i = 0; i < GW_LOSSLESS_BLOCK; i += 32) {
        __m256i exponent = exponents_of(base, block + at.codes + i / 2, &far);
        join_elements(dtype, block, i, _mm256_castsi256_si128(exponent), dst);
        join_elements(dtype, block, i + 16, _mm256_extracti128_si256(exponent, 1), dst);
    }
    return (size_t)(far - block);
}

INLINE size_t decode_blocks(gw_dtype_t dtype, const uint8_t *blocks, size_t count, uint8_t *dst)
{
    size_t used = 0, i = 0;
    for (; i + GW_LOSSLESS_BLOCK <= count; i += GW_LOSSLESS_BLOCK)
        used += decode_block(dtype, blocks + used, dst + i * gw__lossless_wide(dtype));
    if (i < count)
        used += gw__lossless_ref_decode_block(dtype, blocks + used, count - i,
                                              dst + i * gw__lossless_wide(dtype));
    return used;
}

static size_t decode(gw_dtype_t dtype, const uint8_t *blocks, size_t count, void *dst)
{
    if (dtype == GW_F32)
        return decode_blocks(GW_F32, blocks, count, dst);
    return dtype == GW_F16 ? decode_blocks(GW_F16, blocks, count, dst)
                           : decode_blocks(GW_BF16, blocks, count, dst);
}

void gw__lossless_avx2_fill(gw_lossless_kernels_t *table)
{
    table->encode = encode;
    table->valid = valid;
    table->decode = decode;
}
