/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 8 bits with AVX2 and F16C: the bytes of ref/fp8_ref.c. */
#include "x86.h"

#include "fpmode.h"
#include "minifloat_avx2.h"
#include "ref.h"

/* The plan is that of fp8_avx512.c, 32 elements at a time. */

typedef struct job {
    const gw_float_spec_t *spec;
    const float *src;
    float *residual;
} job_t;

INLINE uint32_t most_of(const job_t *job, bool ef)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    for (size_t i = 0; i < job->spec->block; i += 32) {
        prefetch_floats(job->src, job->residual, i, ef);
        for (size_t k = 0; k < 32; k += 16) {
            __m256 p = load_p(job->src, job->residual, i + k, ef);
            __m256 q = load_p(job->src, job->residual, i + k + 8, ef);
            a = _mm256_max_epi32(a, magnitude_bits(p));
            b = _mm256_max_epi32(b, magnitude_bits(q));
        }
    }
    return greatest(_mm256_max_epi32(a, b));
}

INLINE void code_32(const job_t *job, size_t i, __m256 scale, __m256 inverse, uint8_t *dst,
                    bool e5m2, bool ef)
{
    __m256i code[4];
    for (size_t k = 0; k < 4; k++) {
        __m256 p = load_p(job->src, job->residual, i + 8 * k, ef), t = _mm256_mul_ps(p, inverse);
        rounded_t r = round_to(e5m2 ? gw__e5m2 : gw__e4m3, magnitude_of(t));
        code[k] = code_with_sign(r.code, t, 7);
        if (ef) {
            __m256 value = _mm256_mul_ps(scale, _mm256_or_ps(r.value, sign_of(t)));
            _mm256_storeu_ps(job->residual + i + 8 * k, _mm256_sub_ps(p, value));
        }
    }
    _mm256_storeu_si256((__m256i *)dst, pack_32(code));
}

INLINE size_t encode_blocks(job_t job, size_t blocks, uint8_t *dst, bool e5m2, bool ef)
{
    size_t n = job.spec->block, poisoned = 0;
    for (size_t k = 0; k < blocks; k++, dst += GW_FP8_META_BYTES + n) {
        uint32_t most = most_of(&job, ef);
        if (__builtin_expect(most >= 0x7F800000u, 0)) {
            poisoned += gw__fp8_ref_encode(job.spec, job.src, ef ? job.residual : NULL, n, dst);
        } else {
            float one = gw__fp8_scale(job.spec->format, gw__float_of(most));
            __m256 scale = _mm256_set1_ps(one);
            __m256 inverse = _mm256_set1_ps(one > 0.0f ? 1.0f / one : 0.0f);
            gw__store16(dst, (uint16_t)(gw__float_bits(one) >> 16));
            for (size_t i = 0; i < n; i += 32)
                code_32(&job, i, scale, inverse, dst + GW_FP8_META_BYTES + i, e5m2, ef);
        }
        job.src += n;
        job.residual += ef ? n : 0;
    }
    return poisoned;
}

#define ENCODER(e5m2, ef)                                                                          \
    static GW_KERNEL_BODY size_t encode_##e5m2##_##ef(job_t job, size_t blocks, uint8_t *dst)      \
    {                                                                                              \
        return encode_blocks(job, blocks, dst, e5m2, ef);                                          \
    }
ENCODER(0, 0)
ENCODER(0, 1)
ENCODER(1, 0)
ENCODER(1, 1)

static size_t encode(const gw_float_spec_t *spec, const float *src, float *residual, size_t count,
                     uint8_t *dst)
{
    static size_t (*const encoders[2][2])(job_t, size_t, uint8_t *) = {{encode_0_0, encode_0_1},
                                                                       {encode_1_0, encode_1_1}};
    size_t blocks = count / spec->block, done = blocks * spec->block;
    job_t job = {spec, src, residual};
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encoders[spec->format == GW_FLOAT_E5M2][residual != NULL](job, blocks, dst);
    gw__fpmode_leave(mode);
    if (done < count)
        poisoned +=
            gw__fp8_ref_encode(spec, src + done, residual ? residual + done : NULL, count - done,
                               dst + blocks * gw__float_bytes(spec, spec->block));
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE void decode_32(const uint8_t *src, __m256 scale, float *dst, bool e5m2, bool add)
{
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

INLINE void decode_blocks(size_t n, const uint8_t *payload, size_t blocks, float *dst, bool e5m2,
                          bool add)
{
    for (size_t k = 0; k < blocks; k++, payload += GW_FP8_META_BYTES + n, dst += n) {
        float one = gw__float_of((uint32_t)gw__load16(payload) << 16);
        __m256 scale = _mm256_set1_ps(e5m2 ? one : one * 256.0f);
        for (size_t i = 0; i < n; i += 32)
            decode_32(payload + GW_FP8_META_BYTES + i, scale, dst + i, e5m2, add);
    }
}

#define DECODER(e5m2, add)                                                                         \
    static GW_KERNEL_BODY void decode_##e5m2##_##add(size_t n, const uint8_t *payload,             \
                                                     size_t blocks, float *dst)                    \
    {                                                                                              \
        decode_blocks(n, payload, blocks, dst, e5m2, add);                                         \
    }
DECODER(0, 0)
DECODER(0, 1)
DECODER(1, 0)
DECODER(1, 1)

static void decode(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst,
                   bool add)
{
    static void (*const decoders[2][2])(size_t, const uint8_t *, size_t, float *) = {
        {decode_0_0, decode_0_1}, {decode_1_0, decode_1_1}};
    size_t blocks = count / spec->block, done = blocks * spec->block;
    uint64_t mode = gw__fpmode_enter();
    decoders[spec->format == GW_FLOAT_E5M2][add](spec->block, payload, blocks, dst);
    gw__fpmode_leave(mode);
    payload += blocks * gw__float_bytes(spec, spec->block);
    if (done < count)
        (add ? gw__fp8_ref_add : gw__fp8_ref_store)(spec, payload, count - done, dst + done);
}

static void store(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, false);
}

static void add_to(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, true);
}

void gw__fp8_avx2_fill(gw_float_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
