/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 8 bits with AVX2 and F16C: the bytes of ref/fp8_ref.c. */
#include "x86.h"

#include "minifloat_avx2.h"

typedef struct most {
    __m256i a, b;
} most_t;

#include "fp8_x86.h"

INLINE most_t most_start(void)
{
    return (most_t){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

INLINE void take_most_32(const job_t *job, size_t i, most_t *most, bool ef)
{
    for (size_t k = 0; k < 32; k += 16) {
        __m256 p = load_p(job->src, job->residual, i + k, ef);
        __m256 q = load_p(job->src, job->residual, i + k + 8, ef);
        most->a = _mm256_max_epi32(most->a, magnitude_bits(p));
        most->b = _mm256_max_epi32(most->b, magnitude_bits(q));
    }
}

INLINE uint32_t most_bits(most_t most)
{
    return greatest(_mm256_max_epi32(most.a, most.b));
}

INLINE void code_32(const job_t *job, size_t i, __m256 scale, __m256 inverse, uint8_t *dst,
                    bool e5m2, bool ef)
{
    __m256i code[4];
    for (size_t k = 0; k < 4; k++) {
        __m256 p = load_p(job->src, job->residual, i + 8 * k, ef), t = _mm256_mul_ps(p, inverse);
        rounded_t r = round_to(e5m2 ? gw__e5m2() : gw__e4m3(), magnitude_of(t));
        code[k] = code_with_sign(r.code, t, 7);
        if (ef) {
            __m256 value = _mm256_mul_ps(scale, _mm256_or_ps(r.value, sign_of(t)));
            _mm256_storeu_ps(job->residual + i + 8 * k, _mm256_sub_ps(p, value));
        }
    }
    _mm256_storeu_si256((__m256i *)dst, pack_32(code));
}

INLINE void code_block(const job_t *job, float scale, float inverse, uint8_t *dst, bool e5m2,
                       bool ef)
{
    __m256 scales = _mm256_set1_ps(scale), inverses = _mm256_set1_ps(inverse);
    for (size_t i = 0; i < job->spec->block; i += 32)
        code_32(job, i, scales, inverses, dst + i, e5m2, ef);
}

INLINE void decode_32(const uint8_t *src, float one, float *dst, bool e5m2, bool add)
{
    __m256 scale = _mm256_set1_ps(one);
    for (size_t k = 0; k < 32; k += 8) {
        __m128i codes = _mm_loadl_epi64((const __m128i *)(src + k)), all = _mm_set1_epi8(0x7F);
        __m256 v = _mm256_mul_ps(scale, half_values(codes, e5m2));
        if (!e5m2) { /* its one NaN is a number of half precision */
            __m128i nan = _mm_cmpeq_epi8(_mm_and_si128(codes, all), all);
            v = _mm256_or_ps(v, _mm256_castsi256_ps(_mm256_cvtepi8_epi32(nan)));
        }
        if (add)
            v = _mm256_add_ps(_mm256_loadu_ps(dst + k), v);
        _mm256_storeu_ps(dst + k, one_nan(v));
    }
}

void gw__fp8_avx2_fill(gw_float_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
