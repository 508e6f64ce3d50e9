/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 8 bits with AVX-512 (F, BW, DQ, VL): the bytes of ref/fp8_ref.c. */
#include "x86.h"

#include "minifloat_avx512.h"

typedef struct most {
    __m512i a, b;
} most_t;

#include "fp8_x86.h"

INLINE most_t most_start(void)
{
    return (most_t){_mm512_setzero_si512(), _mm512_setzero_si512()};
}

INLINE void take_most_32(const job_t *job, size_t i, most_t *most, bool ef)
{
    most->a = _mm512_max_epi32(most->a, magnitude_bits(load_p(job->src, job->residual, i, ef)));
    most->b =
        _mm512_max_epi32(most->b, magnitude_bits(load_p(job->src, job->residual, i + 16, ef)));
}

INLINE uint32_t most_bits(most_t most)
{
    return (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(most.a, most.b));
}

INLINE __m512i code_16(const job_t *job, size_t i, __m512 scale, __m512 inverse, bool e5m2, bool ef)
{
    __m512 p = load_p(job->src, job->residual, i, ef), t = _mm512_mul_ps(p, inverse);
    rounded_t r = round_to(e5m2 ? gw__e5m2() : gw__e4m3(), magnitude_of(t));
    if (ef) {
        __m512 value = _mm512_mul_ps(scale, signed_as(r.value, t));
        _mm512_storeu_ps(job->residual + i, _mm512_sub_ps(p, value));
    }
    return code_with_sign(r.code, t, 7);
}

/* 64 codes of 32 bits as bytes in order: one permutation instead of four narrowings. */
INLINE __m512i pack_64(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i bytes = _mm512_packus_epi16(_mm512_packus_epi32(a, b), _mm512_packus_epi32(c, d));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes);
}

INLINE void code_block(const job_t *job, float one, float inverse_one, uint8_t *dst, bool e5m2,
                       bool ef)
{
    __m512 scale = _mm512_set1_ps(one), inverse = _mm512_set1_ps(inverse_one);
    size_t n = job->spec->block, i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i a = code_16(job, i, scale, inverse, e5m2, ef);
        __m512i b = code_16(job, i + 16, scale, inverse, e5m2, ef);
        __m512i c = code_16(job, i + 32, scale, inverse, e5m2, ef);
        __m512i d = code_16(job, i + 48, scale, inverse, e5m2, ef);
        _mm512_storeu_si512(dst + i, pack_64(a, b, c, d));
    }
    for (; i < n; i += 16) /* 32 at the end of an odd multiple of 32 */
        _mm_storeu_si128((__m128i *)(dst + i),
                         _mm512_cvtepi32_epi8(code_16(job, i, scale, inverse, e5m2, ef)));
}

INLINE void decode_16(const uint8_t *src, __m512 scale, float *dst, bool e5m2, bool add)
{
    __m128i codes = _mm_loadu_si128((const __m128i *)src), all = _mm_set1_epi8(0x7F);
    __m512 v = _mm512_mul_ps(scale, half_values(codes, e5m2));
    if (!e5m2) /* its one NaN is a number of half precision */
        v = _mm512_mask_mov_ps(v, _mm_cmpeq_epi8_mask(_mm_and_si128(codes, all), all),
                               _mm512_set1_ps(NAN));
    if (add)
        v = _mm512_add_ps(_mm512_loadu_ps(dst), v);
    _mm512_storeu_ps(dst, one_nan(v));
}

INLINE void decode_32(const uint8_t *src, float scale, float *dst, bool e5m2, bool add)
{
    decode_16(src, _mm512_set1_ps(scale), dst, e5m2, add);
    decode_16(src + 16, _mm512_set1_ps(scale), dst + 16, e5m2, add);
}

void gw__fp8_avx512_fill(gw_float_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
