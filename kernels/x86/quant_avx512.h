/* SPDX-License-Identifier: Apache-2.0 */
/* Bit streams with AVX-512: up to 64 codes to bytes, and back to lanes of 32 bits. */
#ifndef GW_QUANT_AVX512_H
#define GW_QUANT_AVX512_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "stream.h"

/* A word of 8 * bits significant bits from each 8 bytes. Codes are below 128. */
INLINE __m512i join8(__m512i bytes, unsigned bits)
{
    __m512i two = _mm512_maddubs_epi16(_mm512_set1_epi16((short)(1 | 1 << (bits + 8))), bytes);
    __m512i four = _mm512_madd_epi16(two, _mm512_set1_epi32(1 | 1 << (2 * bits + 16)));
    __m512i low = _mm512_maskz_mov_epi32(0x5555, four);
    __m512i high = _mm512_slli_epi64(_mm512_srli_epi64(four, 32), 4 * bits);
    return _mm512_or_si512(low, high);
}

/* Where byte i of a pushed-together lane comes from; -128 makes it 0. */
#define FROM(i) (char)((i) < bits ? (i) : (i) < 2 * bits ? 8 + (i)-bits : 0x80)

/* Per 128-bit lane: the low `bits` bytes of both words to the front, 0 behind them. */
INLINE __m512i push_together(__m512i words, unsigned bits)
{
    __m128i lane = _mm_setr_epi8(FROM(0u), FROM(1u), FROM(2u), FROM(3u), FROM(4u), FROM(5u),
                                 FROM(6u), FROM(7u), FROM(8u), FROM(9u), FROM(10u), FROM(11u),
                                 FROM(12u), FROM(13u), FROM(14u), FROM(15u));
    return _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(lane));
}

/* The widths that do not divide 8. Every store writes 16 bytes, more than it has: what is too much
 * is written again, here or by the next group. */
INLINE void emit_odd(__m512i bytes, uint8_t *dst, unsigned bits)
{
    __m512i packed = push_together(join8(bytes, bits), bits);
    _mm_storeu_si128((__m128i *)dst, _mm512_castsi512_si128(packed));
    _mm_storeu_si128((__m128i *)(dst + 2 * bits), _mm512_extracti32x4_epi32(packed, 1));
    _mm_storeu_si128((__m128i *)(dst + 4 * bits), _mm512_extracti32x4_epi32(packed, 2));
    _mm_storeu_si128((__m128i *)(dst + 6 * bits), _mm512_extracti32x4_epi32(packed, 3));
}

/* 64 codes in order. */
INLINE void emit_bytes(__m512i bytes, uint8_t *dst, unsigned bits)
{
    if (bits == 8) {
        _mm512_storeu_si512(dst, bytes);
    } else if (bits == 4) {
        __m512i two = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16(1 | 16 << 8));
        _mm256_storeu_si256((__m256i *)dst, _mm512_cvtepi16_epi8(two));
    } else if (bits == 2) {
        __m512i two = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16(1 | 4 << 8));
        __m512i four = _mm512_madd_epi16(two, _mm512_set1_epi32(1 | 16 << 16));
        _mm_storeu_si128((__m128i *)dst, _mm512_cvtepi32_epi8(four));
    } else if (bits == 1) {
        uint64_t mask = _mm512_test_epi8_mask(bytes, _mm512_set1_epi8(1));
        memcpy(dst, &mask, sizeof mask);
    } else {
        emit_odd(bytes, dst, bits);
    }
}

/* The first `count` (32 or 64) of 64 codes, as _mm512_packus_epi16 of _mm512_packs_epi32 leaves
 * them: groups of four, dealt out to the lanes. */
INLINE void emit(__m512i dealt, uint8_t *dst, size_t count, bool last, unsigned bits)
{
    __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i bytes = _mm512_permutexvar_epi32(order, dealt);
    if (count == 64 && (!last || 8 % bits == 0)) {
        emit_bytes(bytes, dst, bits);
    } else {
        uint8_t buffer[80];
        emit_bytes(bytes, buffer, bits);
        memcpy(dst, buffer, count / 8 * bits);
    }
}

/* Whether take() reads more bytes than the codes have: up to 10 behind 16 codes. */
INLINE bool over_reads(unsigned bits)
{
    return 8 % bits != 0;
}

/* The two bytes that hold code j, and where in them it begins. */
#define BYTES_OF(j)                                                                                \
    (char)((j)*bits / 8), (char)((j)*bits / 8 < 15 ? (j)*bits / 8 + 1 : 0x80), -1, -1
#define SHIFT_OF(j) (int)((j)*bits % 8)

/* 16 bytes or the 2 * bits that there are, in every 128-bit lane. */
INLINE __m512i broadcast(const uint8_t *src, unsigned bits)
{
    uint64_t word = 0;
    if (bits > 4)
        return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)src));
    memcpy(&word, src, bits == 3 ? 8 : 2 * bits);
    return _mm512_set1_epi64((long long)word);
}

/* Lane j: code j of 16 in its low bits, and anything above them. */
INLINE __m512i take(const uint8_t *src, unsigned bits)
{
    if (bits == 8)
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)src));
    __m512i index = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_setr_epi8(BYTES_OF(0u), BYTES_OF(1u), BYTES_OF(2u),
                                                BYTES_OF(3u), BYTES_OF(4u), BYTES_OF(5u),
                                                BYTES_OF(6u), BYTES_OF(7u))),
        _mm256_setr_epi8(BYTES_OF(8u), BYTES_OF(9u), BYTES_OF(10u), BYTES_OF(11u), BYTES_OF(12u),
                         BYTES_OF(13u), BYTES_OF(14u), BYTES_OF(15u)),
        1);
    __m512i shift = _mm512_setr_epi32(SHIFT_OF(0u), SHIFT_OF(1u), SHIFT_OF(2u), SHIFT_OF(3u),
                                      SHIFT_OF(4u), SHIFT_OF(5u), SHIFT_OF(6u), SHIFT_OF(7u),
                                      SHIFT_OF(8u), SHIFT_OF(9u), SHIFT_OF(10u), SHIFT_OF(11u),
                                      SHIFT_OF(12u), SHIFT_OF(13u), SHIFT_OF(14u), SHIFT_OF(15u));
    return _mm512_srlv_epi32(_mm512_shuffle_epi8(broadcast(src, bits), index), shift);
}

#endif
