/* SPDX-License-Identifier: Apache-2.0 */
/* Rotated blocks with AVX-512 (F, BW, DQ, VL): the bytes of ref/rotate_ref.c. */
#include "x86.h"

#include "lanes_avx512.h"
#include "quant_avx512.h"

/* What the codes stand for: the first 32 values in registers, sign included. */
typedef struct values {
    __m512 low, high, factor;
} values_t;

#include "rotate_x86.h"

INLINE __m512 negative_where(__m512 x, uint64_t word)
{
    return _mm512_mask_xor_ps(x, (__mmask16)word, x, _mm512_set1_ps(-0.0f));
}

INLINE void load_64(const float *src, const float *residual, uint64_t signs, float *z, lanes_t *sum,
                    bool ef)
{
    for (size_t k = 0; k < 4; k++) {
        __m512 p = load_p(src, residual, 16 * k, ef);
        sum->v[k % 2] = _mm512_add_ps(sum->v[k % 2], _mm512_mul_ps(p, p));
        _mm512_store_ps(z + 16 * k, negative_where(p, signs >> 16 * k));
    }
}

/* ---- The transform ------------------------------------------------------------------------------
 */

/* Butterflies over 1, 2, 4 and 8 elements. A product with 1 or -1 is exact, so that the fused
 * operation rounds as the addition alone. */
INLINE __m512 within(__m512 x)
{
    const float m = -1.0f;
    __m512 one = _mm512_setr_ps(1, m, 1, m, 1, m, 1, m, 1, m, 1, m, 1, m, 1, m);
    __m512 two = _mm512_setr_ps(1, 1, m, m, 1, 1, m, m, 1, 1, m, m, 1, 1, m, m);
    __m512 four = _mm512_setr_ps(1, 1, 1, 1, m, m, m, m, 1, 1, 1, 1, m, m, m, m);
    __m512 eight = _mm512_setr_ps(1, 1, 1, 1, 1, 1, 1, 1, m, m, m, m, m, m, m, m);
    x = _mm512_fmadd_ps(x, one, _mm512_permute_ps(x, 0xB1));
    x = _mm512_fmadd_ps(x, two, _mm512_permute_ps(x, 0x4E));
    x = _mm512_fmadd_ps(x, four, _mm512_shuffle_f32x4(x, x, 0xB1));
    return _mm512_fmadd_ps(x, eight, _mm512_shuffle_f32x4(x, x, 0x4E));
}

INLINE void butterfly(__m512 *a, __m512 *b)
{
    __m512 sum = _mm512_add_ps(*a, *b);
    *b = _mm512_sub_ps(*a, *b);
    *a = sum;
}

/* Unrolled, or the array would lie in memory. */
INLINE void between(__m512 *v, size_t registers, size_t h)
{
#pragma GCC unroll 16
    for (size_t i = 0; i < registers; i++)
        if (!(i & h))
            butterfly(&v[i], &v[i + h]);
}

/* All butterflies inside of 16 * registers elements. */
INLINE void transform(float *z, size_t registers)
{
    __m512 v[16];
#pragma GCC unroll 16
    for (size_t i = 0; i < registers; i++)
        v[i] = within(_mm512_load_ps(z + 16 * i));
    between(v, registers, 1);
    between(v, registers, 2);
    if (registers > 4)
        between(v, registers, 4);
    if (registers > 8)
        between(v, registers, 8);
#pragma GCC unroll 16
    for (size_t i = 0; i < registers; i++)
        _mm512_store_ps(z + 16 * i, v[i]);
}

static void across(float *z, size_t n, size_t h)
{
    for (size_t i = 0; i < n; i += 2 * h)
        for (size_t j = i; j < i + h; j += 16) {
            __m512 a = _mm512_load_ps(z + j), b = _mm512_load_ps(z + j + h);
            _mm512_store_ps(z + j, _mm512_add_ps(a, b));
            _mm512_store_ps(z + j + h, _mm512_sub_ps(a, b));
        }
}

static GW_KERNEL_BODY void hadamard(float *z, size_t n)
{
    if (n == 64) {
        transform(z, 4);
    } else if (n == 128) {
        transform(z, 8);
    } else {
        for (size_t i = 0; i < n; i += 256)
            transform(z + i, 16);
        for (size_t h = 256; h < n; h *= 2)
            across(z, n, h);
    }
}

/* ---- Coding -------------------------------------------------------------------------------------
 */

/* Entries of a table of 16, of 32, or of any size. */
INLINE __m512i pick(const uint32_t *table, __m512i index, size_t entries)
{
    if (entries <= 16)
        return _mm512_permutexvar_epi32(index, _mm512_loadu_si512(table));
    if (entries <= 32)
        return _mm512_permutex2var_epi32(_mm512_loadu_si512(table), index,
                                         _mm512_loadu_si512(table + 16));
    return _mm512_i32gather_epi32(index, table, 4);
}

INLINE __m512 level_of(__m512i code, unsigned bits)
{
    const float *table = gw__rotate_level[bits - 1];
    if (bits == 1)
        return _mm512_set1_ps(table[0]);
    return _mm512_castsi512_ps(pick((const uint32_t *)(const void *)table, code, 1u << (bits - 1)));
}

/* Codes of magnitudes, by cells. */
INLINE __m512i level_code(__m512 magnitude, unsigned bits)
{
    static const unsigned char cells[9] = {0, 2, 2, 5, 11, 25, 57, 128, 255};
    if (bits == 1)
        return _mm512_setzero_si512();
    __m512 place = _mm512_mul_ps(magnitude, _mm512_set1_ps((float)(1u << bits) / 4));
    place = _mm512_min_ps(place, _mm512_set1_ps(gw__rotate_last_cell[bits - 1]));
    __m512i cell = pick(gw__rotate_cell[bits - 1], _mm512_cvttps_epi32(place), cells[bits]);
    __mmask16 below = _mm512_cmplt_epi32_mask(_mm512_castps_si512(magnitude), cell);
    __m512i next = _mm512_and_si512(cell, _mm512_set1_epi32(255));
    return _mm512_mask_sub_epi32(next, below, next, _mm512_set1_epi32(1));
}

/* The codes of 16 values; takes them into the sums of the scale. */
INLINE __m512i code_16(__m512 t, products_t *sum, size_t lane, unsigned bits)
{
    __m512 magnitude = _mm512_abs_ps(t);
    __m512i code = level_code(magnitude, bits);
    __m512 level = level_of(code, bits);
    sum->ct.v[lane] = _mm512_add_ps(sum->ct.v[lane], _mm512_mul_ps(level, magnitude));
    sum->cc.v[lane] = _mm512_add_ps(sum->cc.v[lane], _mm512_mul_ps(level, level));
    __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(t), 32 - bits);
    return _mm512_or_si512(code, _mm512_and_si512(sign, _mm512_set1_epi32(1 << (bits - 1))));
}

INLINE void code_64(const float *z, float inverse, products_t *sum, uint8_t *dst, bool last,
                    unsigned bits)
{
    __m512 factor = _mm512_set1_ps(inverse);
    __m512i code[4];
    for (size_t k = 0; k < 4; k++)
        code[k] = code_16(_mm512_mul_ps(_mm512_load_ps(z + 16 * k), factor), sum, k % 2, bits);
    __m512i dealt = _mm512_packus_epi16(_mm512_packs_epi32(code[0], code[1]),
                                        _mm512_packs_epi32(code[2], code[3]));
    emit(dealt, dst, 64, last, bits);
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE values_t values_of(float factor, unsigned bits)
{
    float value[32];
    for (unsigned i = 0; i < 32; i++) {
        float level = factor * gw__rotate_level[bits - 1][i & ((1u << (bits - 1)) - 1)];
        value[i] = i >> (bits - 1) & 1 ? -level : level;
    }
    return (values_t){_mm512_loadu_ps(value), _mm512_loadu_ps(value + 16), _mm512_set1_ps(factor)};
}

INLINE __m512 value_16(const uint8_t *src, const values_t *v, unsigned bits)
{
    __m512i x = take(src, bits);
    if (bits <= 4)
        return _mm512_permutexvar_ps(x, v->low);
    if (bits == 5)
        return _mm512_permutex2var_ps(v->low, x, v->high);
    __m512i code = _mm512_and_si512(x, _mm512_set1_epi32((1 << (bits - 1)) - 1));
    __m512i sign = _mm512_and_si512(_mm512_slli_epi32(x, 32 - bits), _mm512_set1_epi32(INT32_MIN));
    __m512 level = _mm512_mul_ps(v->factor, level_of(code, bits));
    return _mm512_xor_ps(level, _mm512_castsi512_ps(sign));
}

INLINE void unpack_64(const uint8_t *src, const values_t *values, float *z, unsigned bits)
{
    for (size_t k = 0; k < 4; k++)
        _mm512_store_ps(z + 16 * k, value_16(src + 2 * k * bits, values, bits));
}

INLINE void finish_64(const float *z, uint64_t signs, const float *src, float *dst, seen_t *seen,
                      finish_t finish)
{
    for (size_t k = 0; k < 64; k += 16) {
        __m512 x = negative_where(_mm512_load_ps(z + k), signs >> k);
        if (finish == ADD) {
            x = _mm512_add_ps(_mm512_loadu_ps(dst + k), x);
            *seen |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        } else if (finish == LOSS) {
            x = _mm512_sub_ps(load_p(src, dst, k, true), x);
        }
        _mm512_storeu_ps(dst + k, x);
    }
}

void gw__rotate_avx512_fill(gw_rotate_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
