/* SPDX-License-Identifier: Apache-2.0 */
/* Rotated blocks with AVX2: the bytes of ref/rotate_ref.c. */
#include "x86.h"

#include "lanes_avx2.h"
#include "quant_avx2.h"

typedef __m256 values_t; /* the factor alone */

#include "rotate_x86.h"

INLINE void load_64(const float *src, const float *residual, uint64_t signs, float *z, lanes_t *sum,
                    bool ef)
{
    for (size_t i = 0; i < 64; i += 32, signs >>= 32)
        for (int k = 0; k < 4; k++) {
            size_t at = i + 8 * (size_t)k;
            __m256 p = load_p(src, residual, at, ef);
            sum->v[k] = _mm256_add_ps(sum->v[k], _mm256_mul_ps(p, p));
            _mm256_store_ps(z + at, negative_where(p, (uint32_t)signs, k));
        }
}

/* ---- The transform ------------------------------------------------------------------------------
 */

/* Butterflies over 1, 2 and 4 elements. */
INLINE __m256 within(__m256 x)
{
    const float m = -0.0f;
    __m256 one = _mm256_setr_ps(0, m, 0, m, 0, m, 0, m);
    __m256 two = _mm256_setr_ps(0, 0, m, m, 0, 0, m, m);
    __m256 four = _mm256_setr_ps(0, 0, 0, 0, m, m, m, m);
    x = _mm256_add_ps(_mm256_permute_ps(x, 0xB1), _mm256_xor_ps(x, one));
    x = _mm256_add_ps(_mm256_permute_ps(x, 0x4E), _mm256_xor_ps(x, two));
    return _mm256_add_ps(_mm256_permute2f128_ps(x, x, 0x01), _mm256_xor_ps(x, four));
}

INLINE void butterfly(__m256 *a, __m256 *b)
{
    __m256 sum = _mm256_add_ps(*a, *b);
    *b = _mm256_sub_ps(*a, *b);
    *a = sum;
}

/* Unrolled, or the array would lie in memory. */
INLINE void between(__m256 *v, size_t h)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        if (!(i & h))
            butterfly(&v[i], &v[i + h]);
}

/* Butterflies over h, 2 h and 4 h elements between eight registers. */
INLINE void eight(float *z, size_t h, bool first)
{
    __m256 v[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        v[i] = _mm256_load_ps(z + h * i);
        v[i] = first ? within(v[i]) : v[i];
    }
    between(v, 1);
    between(v, 2);
    between(v, 4);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        _mm256_store_ps(z + h * i, v[i]);
}

static void across(float *z, size_t n, size_t h)
{
    for (size_t i = 0; i < n; i += 2 * h)
        for (size_t j = i; j < i + h; j += 8) {
            __m256 a = _mm256_load_ps(z + j), b = _mm256_load_ps(z + j + h);
            _mm256_store_ps(z + j, _mm256_add_ps(a, b));
            _mm256_store_ps(z + j + h, _mm256_sub_ps(a, b));
        }
}

static GW_KERNEL_BODY void hadamard(float *z, size_t n)
{
    size_t h = 64;
    for (size_t i = 0; i < n; i += 64)
        eight(z + i, 8, true);
    for (; 8 * h <= n; h *= 8)
        for (size_t i = 0; i < n; i += 8 * h)
            for (size_t j = i; j < i + h; j += 8)
                eight(z + j, h, false);
    for (; h < n; h *= 2)
        across(z, n, h);
}

/* ---- Coding -------------------------------------------------------------------------------------
 */

/* Eight entries of a table by loads of one: a gather is no faster on many processors, and QEMU 7.2
 * forgets the index when the compiler keeps it in ymm4. */
INLINE __m256i look_up(const void *table, __m256i index)
{
    uint32_t at[8];
    const uint32_t *t = table;
    _mm256_storeu_si256((__m256i *)(void *)at, index);
    return _mm256_setr_epi32((int)t[at[0]], (int)t[at[1]], (int)t[at[2]], (int)t[at[3]],
                             (int)t[at[4]], (int)t[at[5]], (int)t[at[6]], (int)t[at[7]]);
}

/* Levels of codes below 2^(bits - 1); 8 of them fit a register. */
INLINE __m256 level_of(__m256i code, unsigned bits)
{
    const float *table = gw__rotate_level[bits - 1];
    if (bits == 1)
        return _mm256_set1_ps(table[0]);
    if (bits <= 4)
        return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), code);
    return _mm256_castsi256_ps(look_up(table, code));
}

/* Codes of magnitudes: by counting thresholds, or by cells. */
INLINE __m256i level_code(__m256 magnitude, unsigned bits)
{
    __m256i word = _mm256_castps_si256(magnitude), one = _mm256_set1_epi32(1);
    if (bits <= 4) {
        __m256i code = _mm256_setzero_si256();
        for (unsigned k = 1; k < 1u << (bits - 1); k++) {
            int below = (int)gw__rotate_threshold[bits - 1][k] - 1;
            code = _mm256_sub_epi32(code, _mm256_cmpgt_epi32(word, _mm256_set1_epi32(below)));
        }
        return code;
    }
    __m256 place = _mm256_mul_ps(magnitude, _mm256_set1_ps((float)(1u << bits) / 4));
    place = _mm256_min_ps(place, _mm256_set1_ps(gw__rotate_last_cell[bits - 1]));
    __m256i cell = look_up(gw__rotate_cell[bits - 1], _mm256_cvttps_epi32(place));
    __m256i below = _mm256_and_si256(_mm256_cmpgt_epi32(cell, word), one);
    return _mm256_sub_epi32(_mm256_and_si256(cell, _mm256_set1_epi32(255)), below);
}

/* The codes of 8 values; takes them into the sums of the scale. */
INLINE __m256i code_8(__m256 t, products_t *sum, size_t lane, unsigned bits)
{
    __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), t);
    __m256i code = level_code(magnitude, bits);
    __m256 level = level_of(code, bits);
    sum->ct.v[lane] = _mm256_add_ps(sum->ct.v[lane], _mm256_mul_ps(level, magnitude));
    sum->cc.v[lane] = _mm256_add_ps(sum->cc.v[lane], _mm256_mul_ps(level, level));
    __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(t), (int)(32 - bits));
    return _mm256_or_si256(code, _mm256_and_si256(sign, _mm256_set1_epi32(1 << (bits - 1))));
}

INLINE void code_64(const float *z, float inverse, products_t *sum, uint8_t *dst, bool last,
                    unsigned bits)
{
    __m256 factor = _mm256_set1_ps(inverse);
    for (size_t i = 0; i < 64; i += 32, dst += 4 * bits) {
        __m256i code[4];
        for (size_t k = 0; k < 4; k++)
            code[k] = code_8(_mm256_mul_ps(_mm256_load_ps(z + i + 8 * k), factor), sum, k, bits);
        __m256i dealt = _mm256_packus_epi16(_mm256_packs_epi32(code[0], code[1]),
                                            _mm256_packs_epi32(code[2], code[3]));
        emit(dealt, dst, last && i == 32, bits);
    }
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE values_t values_of(float factor, unsigned bits)
{
    return _mm256_set1_ps(factor);
}

/* What 8 codes stand for. */
INLINE __m256 value_8(__m256i x, __m256 factor, unsigned bits)
{
    __m256i code = _mm256_and_si256(x, _mm256_set1_epi32((1 << (bits - 1)) - 1));
    __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(x, (int)bits - 1), 31);
    return _mm256_xor_ps(_mm256_mul_ps(factor, level_of(code, bits)), _mm256_castsi256_ps(sign));
}

INLINE void unpack_64(const uint8_t *src, const values_t *values, float *z, unsigned bits)
{
    for (size_t i = 0; i < 64; i += 32, src += 4 * bits)
        for (unsigned k = 0; k < 4; k++)
            _mm256_store_ps(z + i + 8 * k, value_8(take(src, k, bits), *values, bits));
}

INLINE void finish_64(const float *z, uint64_t signs, const float *src, float *dst, seen_t *seen,
                      finish_t finish)
{
    for (size_t i = 0; i < 64; i += 32, signs >>= 32)
        for (int k = 0; k < 4; k++) {
            size_t at = i + 8 * (size_t)k;
            __m256 x = negative_where(_mm256_load_ps(z + at), (uint32_t)signs, k);
            if (finish == ADD) {
                x = _mm256_add_ps(_mm256_loadu_ps(dst + at), x);
                *seen = _mm256_or_ps(*seen, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
            } else if (finish == LOSS) {
                x = _mm256_sub_ps(load_p(src, dst, at, true), x);
            }
            _mm256_storeu_ps(dst + at, x);
        }
}

void gw__rotate_avx2_fill(gw_rotate_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
