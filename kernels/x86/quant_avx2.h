/* SPDX-License-Identifier: Apache-2.0 */
/* Bit streams with AVX2: 32 codes to 4 * bits bytes, and back to lanes of 32 bits. */
#ifndef GW_QUANT_AVX2_H
#define GW_QUANT_AVX2_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "stream.h"

/*
 * The widths that divide 8 have ways of their own. All others: neighbours are joined by
 * multiply-add, 8 codes to one 64-bit word, and the words' low bytes pushed together.
 */

/* A word of 8 * bits significant bits from each 8 bytes. Codes are below 128. */
INLINE __m256i join8(__m256i bytes, unsigned bits)
{
    __m256i two = _mm256_maddubs_epi16(_mm256_set1_epi16((short)(1 | 1 << (bits + 8))), bytes);
    __m256i four = _mm256_madd_epi16(two, _mm256_set1_epi32(1 | 1 << (2 * bits + 16)));
    __m256i low = _mm256_srli_epi64(_mm256_slli_epi64(four, 32), 32);
    __m256i high = _mm256_slli_epi64(_mm256_srli_epi64(four, 32), (int)(4 * bits));
    return _mm256_or_si256(low, high);
}

/* Where byte i of a pushed-together lane comes from; -128 makes it 0. All of these are constants
 * once `bits` is known, and stay in registers. */
#define FROM(i) (char)((i) < bits ? (i) : (i) < 2 * bits ? 8 + (i)-bits : 0x80)

/* Per 128-bit lane: the low `bits` bytes of both words to the front, 0 behind them. */
INLINE __m256i push_together(__m256i words, unsigned bits)
{
    __m128i lane = _mm_setr_epi8(FROM(0u), FROM(1u), FROM(2u), FROM(3u), FROM(4u), FROM(5u),
                                 FROM(6u), FROM(7u), FROM(8u), FROM(9u), FROM(10u), FROM(11u),
                                 FROM(12u), FROM(13u), FROM(14u), FROM(15u));
    return _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(lane));
}

/* Both stores write 16 bytes, more than they have: what is too much lies in the next group, which
 * is written later, except in the last group of a bucket. */
INLINE void emit_odd(__m256i bytes, uint8_t *dst, bool last, unsigned bits)
{
    uint8_t buffer[32];
    __m256i packed = push_together(join8(bytes, bits), bits);
    uint8_t *to = last ? buffer : dst;
    _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(packed));
    _mm_storeu_si128((__m128i *)(to + 2 * bits), _mm256_extracti128_si256(packed, 1));
    if (last)
        memcpy(dst, buffer, 4 * bits);
}

INLINE void emit_2(__m256i bytes, uint8_t *dst)
{
    __m256i two = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(1 | 4 << 8));
    __m256i four = _mm256_madd_epi16(two, _mm256_set1_epi32(1 | 16 << 16));
    __m256i pick = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0,
                                    4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i packed = _mm256_shuffle_epi8(four, pick);
    __m128i both =
        _mm_unpacklo_epi32(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1));
    _mm_storel_epi64((__m128i *)dst, both);
}

INLINE void emit_4(__m256i bytes, uint8_t *dst)
{
    __m256i two = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(1 | 16 << 8));
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(two, two), 0x08);
    _mm_storeu_si128((__m128i *)dst, _mm256_castsi256_si128(packed));
}

/* 32 codes as _mm256_packus_epi16 of _mm256_packs_epi32 leaves them: groups of four, dealt out to
 * both lanes. */
INLINE void emit(__m256i dealt, uint8_t *dst, bool last, unsigned bits)
{
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i bytes = _mm256_permutevar8x32_epi32(dealt, order);
    if (bits == 8) {
        _mm256_storeu_si256((__m256i *)dst, bytes);
    } else if (bits == 4) {
        emit_4(bytes, dst);
    } else if (bits == 2) {
        emit_2(bytes, dst);
    } else if (bits == 1) {
        int mask = _mm256_movemask_epi8(_mm256_slli_epi16(bytes, 7));
        memcpy(dst, &mask, sizeof mask);
    } else {
        emit_odd(bytes, dst, last, bits);
    }
}

/* Whether take() reads more bytes than the codes have: up to 5 behind a group, never as far as
 * behind the next one. */
INLINE bool over_reads(unsigned bits)
{
    return 8 % bits != 0;
}

/* The two bytes that hold code j, and where in them it begins. */
#define BYTES_OF(j)                                                                                \
    (char)((j)*bits / 8), (char)((j)*bits < 56 ? (j)*bits / 8 + 1 : 0x80), -128, -128
#define SHIFT_OF(j) (int)((j)*bits % 8)

/* Lane j: code j in its low bits, for any width. */
INLINE __m256i spread(const uint8_t *src, unsigned bits)
{
    __m256i index = _mm256_setr_epi8(BYTES_OF(0u), BYTES_OF(1u), BYTES_OF(2u), BYTES_OF(3u),
                                     BYTES_OF(4u), BYTES_OF(5u), BYTES_OF(6u), BYTES_OF(7u));
    __m256i shift = _mm256_setr_epi32(SHIFT_OF(0u), SHIFT_OF(1u), SHIFT_OF(2u), SHIFT_OF(3u),
                                      SHIFT_OF(4u), SHIFT_OF(5u), SHIFT_OF(6u), SHIFT_OF(7u));
    __m256i eight = _mm256_broadcastsi128_si256(_mm_loadl_epi64((const __m128i *)src));
    return _mm256_srlv_epi32(_mm256_shuffle_epi8(eight, index), shift);
}

/* Codes 8 k .. 8 k + 7 of a group of 32. */
INLINE __m256i take(const uint8_t *src, unsigned k, unsigned bits)
{
    src += k * bits;
    if (bits == 8)
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)src));
    __m256i x;
    if (8 % bits == 0) {
        int word = 0;
        memcpy(&word, src, bits < 4 ? bits : 4);
        int b = (int)bits;
        x = _mm256_srlv_epi32(_mm256_set1_epi32(word),
                              _mm256_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b));
    } else {
        x = spread(src, bits);
    }
    return _mm256_and_si256(x, _mm256_set1_epi32((1 << bits) - 1));
}

#endif
