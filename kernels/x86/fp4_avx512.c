/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 4 bits with AVX-512 (F, BW, DQ, VL): the bytes of ref/fp4_ref.c. */
#include "x86.h"

#include "fpmode.h"
#include "minifloat_avx512.h"
#include "ref.h"

/* Whole groups are done here; a tail group and groups with a NaN or an Inf go to the reference. A
 * group is read twice: the greatest magnitudes of 16 blocks at a time, then all scales, then the
 * codes. */

enum { LANES = 16, SCALES_MAX = GW_FLOAT_BLOCK_MAX / GW_NVFP4_BLOCK };

typedef struct job {
    const gw_float_spec_t *spec;
    const float *src;
    float *residual;
} job_t;

/* Magnitudes, then what each block's codes are multiplied by, and its inverse. */
typedef struct scales {
    float most[SCALES_MAX], scale[SCALES_MAX], inverse[SCALES_MAX];
} scales_t;

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

/* Magnitudes of all blocks; returns the bits of the greatest one. */
INLINE uint32_t find_most(const job_t *job, float *most, size_t block, bool ef)
{
    __m512i top = _mm512_setzero_si512();
    size_t blocks = job->spec->block / block;
    for (size_t k = 0; k < blocks; k += LANES) {
        __m512i v[LANES];
        for (size_t j = 0; j < LANES; j++) {
            size_t at = (k + j) * block;
            prefetch_floats(job->src, job->residual, at, ef);
            v[j] = magnitude_bits(load_p(job->src, job->residual, at, ef));
            if (block == 32) {
                prefetch_floats(job->src, job->residual, at + 16, ef);
                v[j] = _mm512_max_epi32(
                    v[j], magnitude_bits(load_p(job->src, job->residual, at + 16, ef)));
            }
        }
        v[0] = greatest_of_each(v);
        top = _mm512_max_epi32(top, v[0]);
        _mm512_storeu_si512(most + k, v[0]);
    }
    return (uint32_t)_mm512_reduce_max_epi32(top);
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

INLINE void make_scales(scales_t *s, size_t blocks, float group, uint8_t *dst, bool nv)
{
    __m512 one_group = _mm512_set1_ps(group), inverse = _mm512_set1_ps(1.0f / (6.0f * group));
    for (size_t k = 0; k < blocks; k += LANES) {
        __m512 most = _mm512_loadu_ps(s->most + k);
        __m512i code;
        if (nv) {
            __m512 scale = _mm512_min_ps(_mm512_mul_ps(most, inverse), _mm512_set1_ps(448.0f));
            code = round_to(gw__e4m3, scale).code;
            code = _mm512_and_si512(code, _mm512_set1_epi32(0x7F));
        } else {
            code = _mm512_srli_epi32(_mm512_castps_si512(most), 23);
            code = _mm512_sub_epi32(code, _mm512_set1_epi32(2));
            code = _mm512_max_epi32(code, _mm512_setzero_si512());
        }
        __m128i bytes = _mm512_cvtepi32_epi8(code);
        __m512 scale = factors(bytes, one_group, nv);
        __mmask16 some = _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_GT_OQ);
        _mm_storeu_si128((__m128i *)(dst + k), bytes);
        _mm512_storeu_ps(s->scale + k, scale);
        _mm512_storeu_ps(s->inverse + k, _mm512_maskz_div_ps(some, _mm512_set1_ps(1.0f), scale));
    }
}

/* 16 elements to 8 bytes; the even one in the low half. */
INLINE void code_16(const job_t *job, size_t i, __m512 scale, __m512 inverse, uint8_t *dst, bool ef)
{
    __m512 p = load_p(job->src, job->residual, i, ef), t = _mm512_mul_ps(p, inverse);
    rounded_t r = round_to(gw__e2m1, _mm512_min_ps(magnitude_of(t), _mm512_set1_ps(6.0f)));
    __m512i code = code_with_sign(r.code, t, 3);
    code = _mm512_or_si512(code, _mm512_srli_epi64(code, 28));
    _mm_storel_epi64((__m128i *)dst, _mm512_cvtepi64_epi8(code));
    if (ef) {
        __m512 value = _mm512_mul_ps(scale, signed_as(r.value, t));
        _mm512_storeu_ps(job->residual + i, _mm512_sub_ps(p, value));
    }
}

INLINE void encode_group(const job_t *job, scales_t *s, float top, uint8_t *dst, bool nv, bool ef)
{
    size_t block = nv ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK, blocks = job->spec->block / block;
    float group = nv ? gw__nvfp4_group_scale(top) : 1.0f;
    if (nv) {
        gw__store_float(dst, group);
        dst += GW_NVFP4_META_BYTES;
    }
    make_scales(s, blocks, group, dst, nv);
    dst += blocks;
    for (size_t k = 0; k < blocks; k++) {
        __m512 scale = _mm512_set1_ps(s->scale[k]), inverse = _mm512_set1_ps(s->inverse[k]);
        for (size_t i = 0; i < block; i += 16, dst += 8)
            code_16(job, k * block + i, scale, inverse, dst, ef);
    }
}

INLINE size_t encode_groups(job_t job, size_t groups, uint8_t *dst, bool nv, bool ef)
{
    scales_t s;
    size_t n = job.spec->block, poisoned = 0;
    for (size_t k = 0; k < groups; k++, dst += gw__float_bytes(job.spec, n)) {
        uint32_t top = find_most(&job, s.most, nv ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK, ef);
        if (__builtin_expect(top >= 0x7F800000u, 0))
            poisoned += gw__fp4_ref_encode(job.spec, job.src, ef ? job.residual : NULL, n, dst);
        else
            encode_group(&job, &s, gw__float_of(top), dst, nv, ef);
        job.src += n;
        job.residual += ef ? n : 0;
    }
    return poisoned;
}

#define ENCODER(nv, ef)                                                                            \
    static GW_KERNEL_BODY size_t encode_##nv##_##ef(job_t job, size_t groups, uint8_t *dst)        \
    {                                                                                              \
        return encode_groups(job, groups, dst, nv, ef);                                            \
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
    size_t groups = count / spec->block, done = groups * spec->block;
    job_t job = {spec, src, residual};
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encoders[spec->format == GW_FLOAT_NVFP4][residual != NULL](job, groups, dst);
    gw__fpmode_leave(mode);
    if (done < count)
        poisoned +=
            gw__fp4_ref_encode(spec, src + done, residual ? residual + done : NULL, count - done,
                               dst + groups * gw__float_bytes(spec, spec->block));
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* 16 elements from 8 bytes: each byte into both halves of a word of 64 bits, the low bits of which
 * are an index. */
INLINE void decode_16(const uint8_t *src, __m512 scale, float *dst, bool add)
{
    __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                   -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    __m512i code = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)src));
    code = _mm512_or_si512(code, _mm512_slli_epi64(code, 28));
    __m512 v = _mm512_mul_ps(scale, _mm512_permutexvar_ps(code, values));
    if (add)
        v = one_nan(_mm512_add_ps(_mm512_loadu_ps(dst), v));
    _mm512_storeu_ps(dst, v);
}

INLINE void decode_groups(const gw_float_spec_t *spec, const uint8_t *payload, size_t groups,
                          float *dst, bool nv, bool add)
{
    size_t block = nv ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK, blocks = spec->block / block;
    for (size_t g = 0; g < groups; g++, payload += gw__float_bytes(spec, spec->block)) {
        __m512 group = _mm512_set1_ps(nv ? gw__load_float(payload) : 1.0f);
        const uint8_t *scale = payload + (nv ? GW_NVFP4_META_BYTES : 0), *src = scale + blocks;
        for (size_t k = 0; k < blocks; k += LANES) {
            float factor[LANES];
            _mm512_storeu_ps(factor,
                             factors(_mm_loadu_si128((const __m128i *)(scale + k)), group, nv));
            for (size_t j = 0; j < LANES; j++)
                for (size_t i = 0; i < block; i += 16, src += 8, dst += 16)
                    decode_16(src, _mm512_set1_ps(factor[j]), dst, add);
        }
    }
}

#define DECODER(nv, add)                                                                           \
    static GW_KERNEL_BODY void decode_##nv##_##add(                                                \
        const gw_float_spec_t *spec, const uint8_t *payload, size_t groups, float *dst)            \
    {                                                                                              \
        decode_groups(spec, payload, groups, dst, nv, add);                                        \
    }
DECODER(0, 0)
DECODER(0, 1)
DECODER(1, 0)
DECODER(1, 1)

static void decode(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst,
                   bool add)
{
    static void (*const decoders[2][2])(const gw_float_spec_t *, const uint8_t *, size_t,
                                        float *) = {{decode_0_0, decode_0_1},
                                                    {decode_1_0, decode_1_1}};
    size_t groups = count / spec->block, done = groups * spec->block;
    uint64_t mode = gw__fpmode_enter();
    decoders[spec->format == GW_FLOAT_NVFP4][add](spec, payload, groups, dst);
    gw__fpmode_leave(mode);
    payload += groups * gw__float_bytes(spec, spec->block);
    if (done < count)
        (add ? gw__fp4_ref_add : gw__fp4_ref_store)(spec, payload, count - done, dst + done);
}

static void store(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, false);
}

static void add_to(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, true);
}

void gw__fp4_avx512_fill(gw_float_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
