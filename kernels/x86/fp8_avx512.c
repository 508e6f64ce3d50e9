/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 8 bits with AVX-512 (F, BW, DQ, VL): the bytes of ref/fp8_ref.c. */
#include "x86.h"

#include "fpmode.h"
#include "minifloat_avx512.h"
#include "ref.h"

/* Whole blocks are done here; a tail block and blocks with a NaN or an Inf go to the reference. A
 * block is read twice, the second time from the nearest cache; the processor overlaps the blocks by
 * itself. */

typedef struct job {
    const gw_float_spec_t *spec;
    const float *src;
    float *residual;
} job_t;

INLINE uint32_t most_of(const job_t *job, bool ef)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    for (size_t i = 0; i < job->spec->block; i += 32) {
        prefetch_floats(job->src, job->residual, i, ef);
        prefetch_floats(job->src, job->residual, i + 16, ef);
        a = _mm512_max_epi32(a, magnitude_bits(load_p(job->src, job->residual, i, ef)));
        b = _mm512_max_epi32(b, magnitude_bits(load_p(job->src, job->residual, i + 16, ef)));
    }
    return (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(a, b));
}

INLINE __m512i code_16(const job_t *job, size_t i, __m512 scale, __m512 inverse, bool e5m2, bool ef)
{
    __m512 p = load_p(job->src, job->residual, i, ef), t = _mm512_mul_ps(p, inverse);
    rounded_t r = round_to(e5m2 ? gw__e5m2 : gw__e4m3, magnitude_of(t));
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

INLINE void code_block(const job_t *job, __m512 scale, __m512 inverse, uint8_t *dst, bool e5m2,
                       bool ef)
{
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

INLINE size_t encode_blocks(job_t job, size_t blocks, uint8_t *dst, bool e5m2, bool ef)
{
    size_t n = job.spec->block, poisoned = 0;
    for (size_t k = 0; k < blocks; k++, dst += GW_FP8_META_BYTES + n) {
        uint32_t most = most_of(&job, ef);
        if (__builtin_expect(most >= 0x7F800000u, 0)) {
            poisoned += gw__fp8_ref_encode(job.spec, job.src, ef ? job.residual : NULL, n, dst);
        } else {
            float one = gw__fp8_scale(job.spec->format, gw__float_of(most));
            __m512 scale = _mm512_set1_ps(one);
            __m512 inverse = _mm512_set1_ps(one > 0.0f ? 1.0f / one : 0.0f);
            gw__store16(dst, (uint16_t)(gw__float_bits(one) >> 16));
            code_block(&job, scale, inverse, dst + GW_FP8_META_BYTES, e5m2, ef);
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

INLINE void decode_blocks(size_t n, const uint8_t *payload, size_t blocks, float *dst, bool e5m2,
                          bool add)
{
    for (size_t k = 0; k < blocks; k++, payload += GW_FP8_META_BYTES + n, dst += n) {
        float one = gw__float_of((uint32_t)gw__load16(payload) << 16);
        __m512 scale = _mm512_set1_ps(e5m2 ? one : one * 256.0f);
        for (size_t i = 0; i < n; i += 16)
            decode_16(payload + GW_FP8_META_BYTES + i, scale, dst + i, e5m2, add);
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

void gw__fp8_avx512_fill(gw_float_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
