/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 4 bits with AVX2 and F16C: the bytes of ref/fp4_ref.c. */
#include "x86.h"

#include "fpmode.h"
#include "minifloat_avx2.h"
#include "ref.h"

/* The plan is that of fp4_avx512.c, with 8 blocks at a time. */

enum { LANES = 8, SCALES_MAX = GW_FLOAT_BLOCK_MAX / GW_NVFP4_BLOCK };

typedef struct job {
    const gw_float_spec_t *spec;
    const float *src;
    float *residual;
} job_t;

/* Magnitudes, then what each block's codes are multiplied by, and its inverse. */
typedef struct scales {
    float most[SCALES_MAX], scale[SCALES_MAX], inverse[SCALES_MAX];
} scales_t;

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

/* Magnitudes of all blocks; returns the bits of the greatest one. */
INLINE uint32_t find_most(const job_t *job, float *most, size_t block, bool ef)
{
    __m256i top = _mm256_setzero_si256();
    size_t blocks = job->spec->block / block;
    for (size_t k = 0; k < blocks; k += LANES) {
        __m256i v[LANES];
        for (size_t j = 0; j < LANES; j++) {
            size_t at = (k + j) * block;
            if (at % 32 == 0)
                prefetch_floats(job->src, job->residual, at, ef);
            v[j] = fold_block(job, at, block, ef);
        }
        __m256i each = greatest_of_each(v);
        top = _mm256_max_epi32(top, each);
        _mm256_storeu_si256((__m256i *)(void *)(most + k), each);
    }
    return greatest(top);
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

INLINE void make_scales(scales_t *s, size_t blocks, float group, uint8_t *dst, bool nv)
{
    __m256 one_group = _mm256_set1_ps(group), inverse = _mm256_set1_ps(1.0f / (6.0f * group));
    for (size_t k = 0; k < blocks; k += LANES) {
        __m256 most = _mm256_loadu_ps(s->most + k);
        __m256i code;
        if (nv) {
            __m256 scale = _mm256_min_ps(_mm256_mul_ps(most, inverse), _mm256_set1_ps(448.0f));
            code = round_to(gw__e4m3, scale).code;
            code = _mm256_and_si256(code, _mm256_set1_epi32(0x7F));
        } else {
            code = _mm256_srli_epi32(_mm256_castps_si256(most), 23);
            code = _mm256_sub_epi32(code, _mm256_set1_epi32(2));
            code = _mm256_max_epi32(code, _mm256_setzero_si256());
        }
        __m128i bytes = pack_8(code);
        __m256 scale = factors(bytes, one_group, nv);
        __m256 some = _mm256_cmp_ps(scale, _mm256_setzero_ps(), _CMP_GT_OQ);
        _mm_storel_epi64((__m128i *)(dst + k), bytes);
        _mm256_storeu_ps(s->scale + k, scale);
        _mm256_storeu_ps(s->inverse + k,
                         _mm256_and_ps(some, _mm256_div_ps(_mm256_set1_ps(1.0f), scale)));
    }
}

/* 32 elements, which are one block or two, to 16 bytes; the even one in the low half. */
INLINE void code_32(const job_t *job, size_t i, const float *scale, const float *inverse,
                    uint8_t *dst, bool nv, bool ef)
{
    __m256i code[4];
    for (size_t k = 0; k < 4; k++) {
        size_t b = nv ? k / 2 : 0;
        __m256 p = load_p(job->src, job->residual, i + 8 * k, ef);
        __m256 t = _mm256_mul_ps(p, _mm256_broadcast_ss(inverse + b));
        rounded_t r = round_to(gw__e2m1, _mm256_min_ps(magnitude_of(t), _mm256_set1_ps(6.0f)));
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

INLINE void encode_group(const job_t *job, scales_t *s, float top, uint8_t *dst, bool nv, bool ef)
{
    size_t block = nv ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK, n = job->spec->block;
    float group = nv ? gw__nvfp4_group_scale(top) : 1.0f;
    if (nv) {
        gw__store_float(dst, group);
        dst += GW_NVFP4_META_BYTES;
    }
    make_scales(s, n / block, group, dst, nv);
    dst += n / block;
    for (size_t i = 0; i < n; i += 32, dst += 16)
        code_32(job, i, s->scale + i / block, s->inverse + i / block, dst, nv, ef);
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

INLINE void decode_groups(const gw_float_spec_t *spec, const uint8_t *payload, size_t groups,
                          float *dst, bool nv, bool add)
{
    size_t block = nv ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK, blocks = spec->block / block;
    for (size_t g = 0; g < groups; g++, payload += gw__float_bytes(spec, spec->block)) {
        __m256 group = _mm256_set1_ps(nv ? gw__load_float(payload) : 1.0f);
        const uint8_t *scale = payload + (nv ? GW_NVFP4_META_BYTES : 0), *src = scale + blocks;
        for (size_t k = 0; k < blocks; k += LANES) {
            float factor[LANES];
            _mm256_storeu_ps(factor,
                             factors(_mm_loadl_epi64((const __m128i *)(scale + k)), group, nv));
            for (size_t j = 0; j < LANES; j++)
                for (size_t i = 0; i < block; i += 8, src += 4, dst += 8)
                    decode_8(src, _mm256_set1_ps(factor[j]), dst, add);
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

void gw__fp4_avx2_fill(gw_float_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
