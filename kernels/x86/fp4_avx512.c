/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 4 bits with AVX-512 (F, BW, DQ, VL): the bytes of ref/fp4_ref.c. */
#include "x86.h"

#include "minifloat_avx512.h"

enum { LANES = 16 };

typedef __m512i words_t;

#include "fp4_x86.h"

INLINE words_t words_start(void)
{
    return _mm512_setzero_si512();
}

INLINE uint32_t greatest_word(words_t words)
{
    return (uint32_t)_mm512_reduce_max_epi32(words);
}

/* Lanes of a and b pairwise: half as many candidates of each. */
INLINE __m512i fold_32(__m512i a, __m512i b)
{
    return _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

INLINE __m512i fold_64(__m512i a, __m512i b)
{
    return _mm512_max_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* Lane j: the greatest of v[j]; a transposition that takes the maximum on the way. */
INLINE __m512i greatest_of_each(__m512i v[LANES])
{
    for (int k = 0; k < LANES; k += 4)
        v[k / 4] = fold_64(fold_32(v[k], v[k + 1]), fold_32(v[k + 2], v[k + 3]));
    __m512i a = _mm512_max_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44),
                                 _mm512_shuffle_i32x4(v[0], v[1], 0xEE));
    __m512i b = _mm512_max_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x44),
                                 _mm512_shuffle_i32x4(v[2], v[3], 0xEE));
    return _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}

INLINE void find_most(const job_t *job, size_t at, size_t block, float *most, words_t *top, bool ef)
{
    __m512i v[LANES];
    for (size_t j = 0; j < LANES; j++, at += block) {
        prefetch_floats(job->src, job->residual, at, block, ef);
        v[j] = magnitude_bits(load_p(job->src, job->residual, at, ef));
        if (block == 32)
            v[j] = _mm512_max_epi32(v[j],
                                    magnitude_bits(load_p(job->src, job->residual, at + 16, ef)));
    }
    v[0] = greatest_of_each(v);
    *top = _mm512_max_epi32(*top, v[0]);
    _mm512_storeu_si512(most, v[0]);
}

/* Factors of 16 blocks. The bytes of MXFP4 are exponents; those of NVFP4 are numbers of their own.
 */
INLINE __m512 factors(__m128i codes, __m512 group, bool nv)
{
    __m512i wide = _mm512_cvtepu8_epi32(codes);
    if (nv) {
        __m512 value = _mm512_mul_ps(half_values(codes, false), _mm512_set1_ps(256.0f));
        __mmask16 nan = _mm512_cmpeq_epi32_mask(wide, _mm512_set1_epi32(GW_FP4_POISON_NV));
        return _mm512_mask_mov_ps(_mm512_mul_ps(group, value), nan, _mm512_set1_ps(NAN));
    }
    __m512i bits = _mm512_slli_epi32(wide, 23);
    __mmask16 ends = _mm512_cmpeq_epi32_mask(bits, _mm512_setzero_si512()) |
                     _mm512_cmpeq_epi32_mask(bits, _mm512_set1_epi32(0x7F800000));
    return _mm512_castsi512_ps(_mm512_mask_or_epi32(bits, ends, bits, _mm512_set1_epi32(0x400000)));
}

INLINE void make_scales(scales_t *s, size_t k, float group, float inverse, uint8_t *dst, bool nv)
{
    __m512 most = _mm512_loadu_ps(s->most + k), one = _mm512_set1_ps(1.0f);
    __m512i code;
    if (nv) {
        __m512 scale = _mm512_mul_ps(most, _mm512_set1_ps(inverse));
        code = round_to(gw__e4m3(), _mm512_min_ps(scale, _mm512_set1_ps(448.0f))).code;
        code = _mm512_and_si512(code, _mm512_set1_epi32(0x7F));
    } else {
        code = _mm512_srli_epi32(_mm512_castps_si512(most), 23);
        code = _mm512_sub_epi32(code, _mm512_set1_epi32(2));
        code = _mm512_max_epi32(code, _mm512_setzero_si512());
    }
    __m128i bytes = _mm512_cvtepi32_epi8(code);
    __m512 scale = factors(bytes, _mm512_set1_ps(group), nv);
    __mmask16 some = _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_GT_OQ);
    _mm_storeu_si128((__m128i *)dst, bytes);
    _mm512_storeu_ps(s->scale + k, scale);
    _mm512_storeu_ps(s->inverse + k, _mm512_maskz_div_ps(some, one, scale));
}

/* 16 elements to 8 bytes. */
INLINE void code_16(const job_t *job, size_t i, __m512 scale, __m512 inverse, uint8_t *dst, bool ef)
{
    __m512 p = load_p(job->src, job->residual, i, ef), t = _mm512_mul_ps(p, inverse);
    rounded_t r = round_to(gw__e2m1(), _mm512_min_ps(magnitude_of(t), _mm512_set1_ps(6.0f)));
    __m512i code = code_with_sign(r.code, t, 3);
    code = _mm512_or_si512(code, _mm512_srli_epi64(code, 28));
    _mm_storel_epi64((__m128i *)dst, _mm512_cvtepi64_epi8(code));
    if (ef) {
        __m512 value = _mm512_mul_ps(scale, signed_as(r.value, t));
        _mm512_storeu_ps(job->residual + i, _mm512_sub_ps(p, value));
    }
}

INLINE void code_32(const job_t *job, size_t i, const float *scale, const float *inverse,
                    uint8_t *dst, bool nv, bool ef)
{
    for (size_t k = 0; k < 2; k++) {
        size_t b = nv ? k : 0;
        code_16(job, i + 16 * k, _mm512_set1_ps(scale[b]), _mm512_set1_ps(inverse[b]), dst + 8 * k,
                ef);
    }
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE void read_scales(const uint8_t *src, float group, float *factor, bool nv)
{
    __m128i codes = _mm_loadu_si128((const __m128i *)src);
    _mm512_storeu_ps(factor, factors(codes, _mm512_set1_ps(group), nv));
}

/* Each byte goes into both halves of a word of 64 bits, the low bits of which are an index. */
INLINE void decode_16(const uint8_t *src, float scale, float *dst, bool add)
{
    __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                   -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    __m512i code = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)src));
    code = _mm512_or_si512(code, _mm512_slli_epi64(code, 28));
    __m512 v = _mm512_mul_ps(_mm512_set1_ps(scale), _mm512_permutexvar_ps(code, values));
    if (add)
        v = one_nan(_mm512_add_ps(_mm512_loadu_ps(dst), v));
    _mm512_storeu_ps(dst, v);
}

void gw__fp4_avx512_fill(gw_float_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
