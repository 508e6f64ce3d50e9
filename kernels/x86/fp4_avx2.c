/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 4 bits with AVX2 and F16C: the bytes of ref/fp4_ref.c. */
#include "x86.h"

#include "minifloat_avx2.h"

enum { LANES = 8 };

typedef __m256i words_t;

#include "fp4_x86.h"

INLINE words_t words_start(void)
{
    return _mm256_setzero_si256();
}

INLINE uint32_t greatest_word(words_t words)
{
    return greatest(words);
}

INLINE __m256i fold_32(__m256i a, __m256i b)
{
    return _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

INLINE __m256i fold_64(__m256i a, __m256i b)
{
    return _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* Lane j: the greatest of v[j]; a transposition that takes the maximum on the way. */
INLINE __m256i greatest_of_each(const __m256i v[LANES])
{
    __m256i a = fold_64(fold_32(v[0], v[1]), fold_32(v[2], v[3]));
    __m256i b = fold_64(fold_32(v[4], v[5]), fold_32(v[6], v[7]));
    return _mm256_max_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

/* The candidates of one block. */
INLINE __m256i fold_block(const job_t *job, size_t at, size_t block, bool ef)
{
    __m256i v = magnitude_bits(load_p(job->src, job->residual, at, ef));
    for (size_t i = 8; i < block; i += 8)
        v = _mm256_max_epi32(v, magnitude_bits(load_p(job->src, job->residual, at + i, ef)));
    return v;
}

INLINE void find_most(const job_t *job, size_t at, size_t block, float *most, words_t *top, bool ef)
{
    __m256i v[LANES];
    for (size_t j = 0; j < LANES; j++, at += block) {
        prefetch_floats(job->src, job->residual, at, block, ef);
        v[j] = fold_block(job, at, block, ef);
    }
    __m256i each = greatest_of_each(v);
    *top = _mm256_max_epi32(*top, each);
    _mm256_storeu_si256((__m256i *)(void *)most, each);
}

/* Factors of 8 blocks. */
INLINE __m256 factors(__m128i codes, __m256 group, bool nv)
{
    __m256i wide = _mm256_cvtepu8_epi32(codes);
    if (nv) {
        __m256 value = _mm256_mul_ps(half_values(codes, false), _mm256_set1_ps(256.0f));
        __m256i nan = _mm256_cmpeq_epi32(wide, _mm256_set1_epi32(GW_FP4_POISON_NV));
        return _mm256_blendv_ps(_mm256_mul_ps(group, value), _mm256_set1_ps(NAN),
                                _mm256_castsi256_ps(nan));
    }
    __m256i bits = _mm256_slli_epi32(wide, 23);
    __m256i ends = _mm256_or_si256(_mm256_cmpeq_epi32(bits, _mm256_setzero_si256()),
                                   _mm256_cmpeq_epi32(bits, _mm256_set1_epi32(0x7F800000)));
    ends = _mm256_and_si256(ends, _mm256_set1_epi32(0x400000));
    return _mm256_castsi256_ps(_mm256_or_si256(bits, ends));
}

/* 8 codes of 32 bits, all below 256, to 8 bytes. */
INLINE __m128i pack_8(__m256i code)
{
    __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    return _mm_packus_epi16(half, half);
}

INLINE void make_scales(scales_t *s, size_t k, float group, float inverse, uint8_t *dst, bool nv)
{
    __m256 most = _mm256_loadu_ps(s->most + k), one = _mm256_set1_ps(1.0f);
    __m256i code;
    if (nv) {
        __m256 scale = _mm256_mul_ps(most, _mm256_set1_ps(inverse));
        code = round_to(gw__e4m3(), _mm256_min_ps(scale, _mm256_set1_ps(448.0f))).code;
        code = _mm256_and_si256(code, _mm256_set1_epi32(0x7F));
    } else {
        code = _mm256_srli_epi32(_mm256_castps_si256(most), 23);
        code = _mm256_sub_epi32(code, _mm256_set1_epi32(2));
        code = _mm256_max_epi32(code, _mm256_setzero_si256());
    }
    __m128i bytes = pack_8(code);
    __m256 scale = factors(bytes, _mm256_set1_ps(group), nv);
    __m256 some = _mm256_cmp_ps(scale, _mm256_setzero_ps(), _CMP_GT_OQ);
    _mm_storel_epi64((__m128i *)dst, bytes);
    _mm256_storeu_ps(s->scale + k, scale);
    _mm256_storeu_ps(s->inverse + k, _mm256_and_ps(some, _mm256_div_ps(one, scale)));
}

INLINE void code_32(const job_t *job, size_t i, const float *scale, const float *inverse,
                    uint8_t *dst, bool nv, bool ef)
{
    __m256i code[4];
    for (size_t k = 0; k < 4; k++) {
        size_t b = nv ? k / 2 : 0;
        __m256 p = load_p(job->src, job->residual, i + 8 * k, ef);
        __m256 t = _mm256_mul_ps(p, _mm256_broadcast_ss(inverse + b));
        rounded_t r = round_to(gw__e2m1(), _mm256_min_ps(magnitude_of(t), _mm256_set1_ps(6.0f)));
        code[k] = code_with_sign(r.code, t, 3);
        if (ef) {
            __m256 value = _mm256_or_ps(r.value, sign_of(t));
            value = _mm256_mul_ps(_mm256_broadcast_ss(scale + b), value);
            _mm256_storeu_ps(job->residual + i + 8 * k, _mm256_sub_ps(p, value));
        }
    }
    __m256i pairs = _mm256_maddubs_epi16(pack_32(code), _mm256_set1_epi16(0x1001));
    __m128i low = _mm256_castsi256_si128(pairs), high = _mm256_extracti128_si256(pairs, 1);
    _mm_storeu_si128((__m128i *)dst, _mm_packus_epi16(low, high));
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE void read_scales(const uint8_t *src, float group, float *factor, bool nv)
{
    __m128i codes = _mm_loadl_epi64((const __m128i *)src);
    _mm256_storeu_ps(factor, factors(codes, _mm256_set1_ps(group), nv));
}

/* 8 elements from 4 bytes: each byte into both halves of a word of 64 bits; three low bits are an
 * index, the fourth the sign. */
INLINE void decode_8(const uint8_t *src, __m256 scale, float *dst, bool add)
{
    __m256 values = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    __m256i code = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128((int)gw__load32(src)));
    code = _mm256_or_si256(code, _mm256_slli_epi64(code, 28));
    __m256 sign = sign_of(_mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
    __m256 v = _mm256_or_ps(_mm256_permutevar8x32_ps(values, code), sign);
    v = _mm256_mul_ps(scale, v);
    if (add)
        v = one_nan(_mm256_add_ps(_mm256_loadu_ps(dst), v));
    _mm256_storeu_ps(dst, v);
}

INLINE void decode_16(const uint8_t *src, float scale, float *dst, bool add)
{
    decode_8(src, _mm256_set1_ps(scale), dst, add);
    decode_8(src + 4, _mm256_set1_ps(scale), dst + 8, add);
}

void gw__fp4_avx2_fill(gw_float_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
