/* SPDX-License-Identifier: Apache-2.0 */
/* Max-min quantisation with AVX2: the bytes of ref/quant_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "fpmode.h"
#include "quant_avx2.h"
#include "ref.h"

/*
 * Whole buckets are done here, 32 elements at a time; a tail bucket and buckets near the limits of
 * binary32 go to the reference. While bucket k is coded, minimum and maximum of bucket k + 1 are
 * taken in the same loop: the long chain from the extremes to the first code (reduction, two
 * divisions) then overlaps with the coding of a bucket, and memory is read without a pause.
 */

/* Bytes from the place in work to the place prefetched, into the second level: the first has too
 * few misses in flight for a stream. */
#define AHEAD 16384

typedef struct extremes {
    __m256 mn0, mn1, mx0, mx1, unordered;
} extremes_t;

typedef struct job {
    const gw_quant_spec_t *spec;
    gw_quant_noise_t noise;
    const float *src;
    float *residual;
} job_t;

/* What the compiler specialises on. */
typedef struct way {
    unsigned bits;
    bool stochastic, ef, shifted;
} way_t;

INLINE extremes_t extremes_start(void)
{
    __m256 inf = _mm256_set1_ps(INFINITY), minus = _mm256_set1_ps(-INFINITY);
    return (extremes_t){inf, inf, minus, minus, _mm256_setzero_ps()};
}

INLINE __m256 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m256 p = _mm256_loadu_ps(src + i);
    return ef ? _mm256_add_ps(p, _mm256_loadu_ps(residual + i)) : p;
}

/* Takes 32 elements into account. */
INLINE void extremes_take(extremes_t *e, const float *src, const float *residual, size_t i, bool ef)
{
    __m256 a = load_p(src, residual, i, ef), b = load_p(src, residual, i + 8, ef);
    __m256 c = load_p(src, residual, i + 16, ef), d = load_p(src, residual, i + 24, ef);
    __m256 bad = _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q), _mm256_cmp_ps(c, d, _CMP_UNORD_Q));
    e->unordered = _mm256_or_ps(e->unordered, bad);
    e->mn0 = _mm256_min_ps(e->mn0, _mm256_min_ps(a, b));
    e->mn1 = _mm256_min_ps(e->mn1, _mm256_min_ps(c, d));
    e->mx0 = _mm256_max_ps(e->mx0, _mm256_max_ps(a, b));
    e->mx1 = _mm256_max_ps(e->mx1, _mm256_max_ps(c, d));
}

INLINE void prefetch(const float *src, const float *residual, size_t i, bool ef)
{
    const char *at = (const char *)(src + i) + AHEAD;
    _mm_prefetch(at, _MM_HINT_T1);
    _mm_prefetch(at + 64, _MM_HINT_T1);
    if (ef) {
        at = (const char *)(residual + i) + AHEAD;
        _mm_prefetch(at, _MM_HINT_T1);
        _mm_prefetch(at + 64, _MM_HINT_T1);
    }
}

INLINE gw_quant_grid_t grid_of(const gw_quant_spec_t *spec, const extremes_t *e)
{
    __m256 low = _mm256_min_ps(e->mn0, e->mn1), high = _mm256_max_ps(e->mx0, e->mx1);
    __m128 mn = _mm_min_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1));
    __m128 mx = _mm_max_ps(_mm256_castps256_ps128(high), _mm256_extractf128_ps(high, 1));
    mn = _mm_min_ps(mn, _mm_movehl_ps(mn, mn));
    mx = _mm_max_ps(mx, _mm_movehl_ps(mx, mx));
    float least = _mm_cvtss_f32(_mm_min_ss(mn, _mm_movehdup_ps(mn)));
    float most = _mm_cvtss_f32(_mm_max_ss(mx, _mm_movehdup_ps(mx)));
    bool finite = !_mm256_movemask_ps(e->unordered) && least >= -FLT_MAX && most <= FLT_MAX;
    return gw__quant_grid(spec, least, most, finite);
}

INLINE extremes_t scan(const float *src, const float *residual, size_t n, bool ef)
{
    extremes_t e = extremes_start();
    for (size_t i = 0; i < n; i += 32)
        extremes_take(&e, src, residual, i, ef);
    return e;
}

/* ---- Coding -------------------------------------------------------------------------------------
 */

/* The noise of elements i .. i + 15 as 16 words in order. */
INLINE __m256i noise_at(gw_quant_noise_t noise, size_t i)
{
    __m256i pair = _mm256_add_epi32(_mm256_set1_epi32((int)(i / 2)),
                                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i x = _mm256_mullo_epi32(pair, _mm256_set1_epi32((int)GW_QUANT_NOISE_STEP));
    x = _mm256_add_epi32(x, _mm256_set1_epi32((int)noise.base));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)GW_QUANT_NOISE_MUL1));
    x = _mm256_xor_si256(x, _mm256_set1_epi32((int)noise.twist));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 13));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)GW_QUANT_NOISE_MUL2));
    return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

INLINE __m256i limit(__m256i x, int top)
{
    return _mm256_min_epi32(_mm256_max_epi32(x, _mm256_setzero_si256()), _mm256_set1_epi32(top));
}

INLINE __m128i round_4(const gw_quant_grid_t *g, __m128 p, double scale)
{
    __m256d t = _mm256_sub_pd(_mm256_cvtps_pd(p), _mm256_set1_pd(g->offset));
    t = _mm256_mul_pd(t, _mm256_set1_pd(g->inverse));
    if (scale != 1.0)
        t = _mm256_mul_pd(t, _mm256_set1_pd(scale));
    return _mm256_cvtpd_epi32(t);
}

/* rne((p - offset) * inverse * scale), as the reference has it. */
INLINE __m256i round_exactly(const gw_quant_grid_t *g, __m256 p, double scale)
{
    return _mm256_set_m128i(round_4(g, _mm256_extractf128_ps(p, 1), scale),
                            round_4(g, _mm256_castps256_ps128(p), scale));
}

/*
 * The same with scale 1 on a shifted grid, in binary32 where that is certain. The product's
 * relative error is at most 2^-23 and |t| < 2^bits + 1: unless t is as near as 2^(bits - 22) to the
 * middle between two integers, both arithmetics round to the same one. Else the group is done
 * exactly.
 */
INLINE void round_group(const gw_quant_grid_t *g, const __m256 p[4], __m256i q[4], unsigned bits)
{
    __m256 inverse = _mm256_set1_ps((float)g->inverse), sign = _mm256_set1_ps(-0.0f);
    __m256 far = _mm256_setzero_ps();
    for (int k = 0; k < 4; k++) {
        __m256 t = _mm256_mul_ps(p[k], inverse);
        q[k] = _mm256_cvtps_epi32(t);
        __m256 off = _mm256_sub_ps(t, _mm256_cvtepi32_ps(q[k]));
        far = _mm256_max_ps(far, _mm256_andnot_ps(sign, off));
    }
    __m256 sure = _mm256_set1_ps(0.5f - 0x1p-22f * (float)(1 << bits));
    if (__builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps(far, sure, _CMP_GE_OQ)), 0))
        for (int k = 0; k < 4; k++)
            q[k] = round_exactly(g, p[k], 1.0);
}

/* Codes of 32 elements, at random between their two neighbours on the grid. */
INLINE void round_at_random(const job_t *job, const gw_quant_grid_t *g, size_t i, const __m256 p[4],
                            __m256i q[4], unsigned bits)
{
    int top = (1 << bits) - 1;
    __m256i zero = _mm256_set1_epi32(g->zero * 65536);
    for (size_t k = 0; k < 4; k += 2) {
        __m256i noise = noise_at(job->noise, i + 8 * k);
        __m256i low = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(noise));
        __m256i high = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(noise, 1));
        __m256i a = _mm256_add_epi32(round_exactly(g, p[k], 65536.0), zero);
        __m256i b = _mm256_add_epi32(round_exactly(g, p[k + 1], 65536.0), zero);
        q[k] = _mm256_srli_epi32(_mm256_add_epi32(limit(a, top * 65536), low), 16);
        q[k + 1] = _mm256_srli_epi32(_mm256_add_epi32(limit(b, top * 65536), high), 16);
    }
}

/* What was lost of 8 elements, to the residual. */
INLINE void keep_loss(float *residual, const gw_quant_grid_t *g, __m256 p, __m256i code)
{
    __m256 step = _mm256_mul_ps(_mm256_set1_ps(g->unit), _mm256_cvtepi32_ps(code));
    __m256 value = _mm256_add_ps(_mm256_set1_ps(g->min), step);
    _mm256_storeu_ps(residual, _mm256_sub_ps(p, value));
}

/* The zero point and the limits in 16 bits, where saturation does half of the work. Places on the
 * grid are below 2^10 in magnitude: nothing is lost in the first pack. */
INLINE __m256i pack_places(const __m256i q[4], int zero, unsigned bits)
{
    __m256i shift = _mm256_set1_epi16((short)zero);
    __m256i low = _mm256_add_epi16(_mm256_packs_epi32(q[0], q[1]), shift);
    __m256i high = _mm256_add_epi16(_mm256_packs_epi32(q[2], q[3]), shift);
    __m256i bytes = _mm256_packus_epi16(low, high);
    if (bits == 8)
        return bytes;
    return _mm256_min_epu8(bytes, _mm256_set1_epi8((char)((1 << bits) - 1)));
}

INLINE __m256i pack_codes(const __m256i q[4])
{
    return _mm256_packus_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
}

/* 32 elements: codes to dst, what was lost to the residual. */
INLINE void code_group(const job_t *job, const gw_quant_grid_t *g, size_t i, uint8_t *dst,
                       bool last, way_t way)
{
    __m256 p[4];
    __m256i q[4];
    for (size_t k = 0; k < 4; k++)
        p[k] = load_p(job->src, job->residual, i + 8 * k, way.ef);
    if (way.stochastic)
        round_at_random(job, g, i, p, q, way.bits);
    else if (way.shifted)
        round_group(g, p, q, way.bits);
    else
        for (int k = 0; k < 4; k++)
            q[k] = round_exactly(g, p[k], 1.0);
    if (!way.ef && !way.stochastic) {
        emit(pack_places(q, g->zero, way.bits), dst, last, way.bits);
        return;
    }
    for (int k = 0; k < 4; k++) {
        if (!way.stochastic)
            q[k] = limit(_mm256_add_epi32(q[k], _mm256_set1_epi32(g->zero)), (1 << way.bits) - 1);
        if (way.ef)
            keep_loss(job->residual + i + 8 * k, g, p[k], q[k]);
    }
    emit(pack_codes(q), dst, last, way.bits);
}

/* Codes a bucket and takes the extremes of the next one (`next`, or the same again). */
INLINE extremes_t code_bucket(const job_t *job, const gw_quant_grid_t *g, uint8_t *dst,
                              const job_t *next, way_t way)
{
    size_t n = job->spec->bucket;
    extremes_t e = extremes_start();
    dst += GW_QUANT_META_BYTES;
    for (size_t i = 0; i < n; i += 32, dst += 4 * way.bits) {
        prefetch(next->src, next->residual, i, way.ef);
        extremes_take(&e, next->src, next->residual, i, way.ef);
        code_group(job, g, i, dst, i + 32 == n, way);
    }
    return e;
}

/* All whole buckets of a call; returns how many were poisoned. */
INLINE size_t encode_buckets(job_t job, size_t buckets, uint64_t bucket, uint64_t key, uint8_t *dst,
                             unsigned bits, bool stochastic, bool ef)
{
    size_t n = job.spec->bucket, poisoned = 0;
    extremes_t e = scan(job.src, job.residual, n, ef);
    for (size_t k = 0; k < buckets; k++, bucket++, dst += gw__quant_bytes(bits, n)) {
        gw_quant_grid_t g = grid_of(job.spec, &e);
        job_t next = job;
        if (k + 1 < buckets) {
            next.src += n;
            next.residual = ef ? next.residual + n : NULL;
        }
        job.noise = gw__quant_noise(key, bucket);
        gw__store_float(dst, g.min);
        gw__store_float(dst + 4, g.unit);
        if (!g.finite || g.wide) {
            poisoned += !g.finite;
            gw__quant_ref_bucket(job.spec, job.src, job.residual, n, job.noise, dst);
            e = scan(next.src, next.residual, n, ef);
        } else if (g.shifted && g.unit >= FLT_MIN) {
            e = code_bucket(&job, &g, dst, &next, (way_t){bits, stochastic, ef, true});
        } else {
            e = code_bucket(&job, &g, dst, &next, (way_t){bits, stochastic, ef, false});
        }
        job = next;
    }
    return poisoned;
}

typedef size_t (*encode_fn)(job_t job, size_t buckets, uint64_t bucket, uint64_t key, uint8_t *dst);

#define ENCODER(bits, stochastic, ef)                                                              \
    static GW_KERNEL_BODY size_t encode_##bits##_##stochastic##_##ef(                              \
        job_t job, size_t buckets, uint64_t bucket, uint64_t key, uint8_t *dst)                    \
    {                                                                                              \
        return encode_buckets(job, buckets, bucket, key, dst, bits, stochastic, ef);               \
    }
#define ENCODERS(bits)                                                                             \
    ENCODER(bits, 0, 0)                                                                            \
    ENCODER(bits, 0, 1)                                                                            \
    ENCODER(bits, 1, 0)                                                                            \
    ENCODER(bits, 1, 1)
#define ENCODER_ROW(bits)                                                                          \
    {                                                                                              \
        {encode_##bits##_0_0, encode_##bits##_0_1},                                                \
        {                                                                                          \
            encode_##bits##_1_0, encode_##bits##_1_1                                               \
        }                                                                                          \
    }

ENCODERS(1)
ENCODERS(2)
ENCODERS(3)
ENCODERS(4)
ENCODERS(5)
ENCODERS(6)
ENCODERS(7)
ENCODERS(8)

static const encode_fn encoders[8][2][2] = {ENCODER_ROW(1), ENCODER_ROW(2), ENCODER_ROW(3),
                                            ENCODER_ROW(4), ENCODER_ROW(5), ENCODER_ROW(6),
                                            ENCODER_ROW(7), ENCODER_ROW(8)};

static size_t encode(const gw_quant_spec_t *spec, const float *src, float *residual, size_t count,
                     uint64_t first, uint64_t key, uint8_t *dst)
{
    size_t buckets = count / spec->bucket, done = buckets * spec->bucket, poisoned = 0;
    job_t job = {.spec = spec, .src = src, .residual = residual};
    uint64_t mode = gw__fpmode_enter();
    if (buckets)
        poisoned = encoders[spec->bits - 1][spec->stochastic][residual != NULL](
            job, buckets, first / spec->bucket, key, dst);
    gw__fpmode_leave(mode);
    if (done < count)
        poisoned += gw__quant_ref_encode(spec, src + done, residual ? residual + done : NULL,
                                         count - done, first + done, key,
                                         dst + buckets * gw__quant_bytes(spec->bits, spec->bucket));
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* NaN in dst keeps no payload: the sum of a bucket is cleaned when one was seen. */
static void clean_nan(float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (dst[i] != dst[i])
            dst[i] = gw__float_of(GW_NAN_BITS);
}

INLINE __m256 decode_vector(const uint8_t *src, unsigned k, __m256 min, __m256 unit, unsigned bits)
{
    __m256 step = _mm256_mul_ps(unit, _mm256_cvtepi32_ps(take(src, k, bits)));
    return _mm256_add_ps(min, step);
}

INLINE void decode_bucket(const uint8_t *src, size_t n, float *dst, unsigned bits, bool add)
{
    __m256 min = _mm256_set1_ps(gw__load_float(src)),
           unit = _mm256_set1_ps(gw__load_float(src + 4));
    __m256 unordered = _mm256_setzero_ps();
    uint8_t end[32 + 8] = {0}; /* the last group, so that nothing behind the payload is read */
    src += GW_QUANT_META_BYTES;
    for (size_t i = 0; i < n; i += 32, src += 4 * bits) {
        const uint8_t *at = src;
        if (over_reads(bits) && i + 32 == n)
            at = memcpy(end, src, 4 * bits);
        for (unsigned k = 0; k < 4; k += 2) {
            float *to = dst + i + 8 * k;
            __m256 a = decode_vector(at, k, min, unit, bits);
            __m256 b = decode_vector(at, k + 1, min, unit, bits);
            if (add) {
                a = _mm256_add_ps(_mm256_loadu_ps(to), a);
                b = _mm256_add_ps(_mm256_loadu_ps(to + 8), b);
                unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
            }
            _mm256_storeu_ps(to, a);
            _mm256_storeu_ps(to + 8, b);
        }
    }
    if (add && _mm256_movemask_ps(unordered))
        clean_nan(dst, n);
}

INLINE void decode_buckets(const gw_quant_spec_t *spec, const uint8_t *payload, size_t buckets,
                           float *dst, unsigned bits, bool add)
{
    size_t n = spec->bucket, stride = gw__quant_bytes(bits, n);
    float levels = (float)((1 << bits) - 1);
    for (size_t k = 0; k < buckets; k++, payload += stride, dst += n) {
        float min = gw__load_float(payload), unit = gw__load_float(payload + 4);
        if (min != min || gw__quant_is_wide(min, unit, levels))
            gw__quant_ref_decode_bucket(spec, payload, n, add, dst);
        else
            decode_bucket(payload, n, dst, bits, add);
    }
}

typedef void (*decode_fn)(const gw_quant_spec_t *spec, const uint8_t *payload, size_t buckets,
                          float *dst);

#define DECODER(bits, mode)                                                                        \
    static GW_KERNEL_BODY void decode_##bits##_##mode(                                             \
        const gw_quant_spec_t *spec, const uint8_t *payload, size_t buckets, float *dst)           \
    {                                                                                              \
        decode_buckets(spec, payload, buckets, dst, bits, mode);                                   \
    }
#define DECODERS(bits)                                                                             \
    DECODER(bits, 0)                                                                               \
    DECODER(bits, 1)
#define DECODER_ROW(bits)                                                                          \
    {                                                                                              \
        decode_##bits##_0, decode_##bits##_1                                                       \
    }

DECODERS(1)
DECODERS(2)
DECODERS(3)
DECODERS(4)
DECODERS(5)
DECODERS(6)
DECODERS(7)
DECODERS(8)

static const decode_fn decoders[8][2] = {DECODER_ROW(1), DECODER_ROW(2), DECODER_ROW(3),
                                         DECODER_ROW(4), DECODER_ROW(5), DECODER_ROW(6),
                                         DECODER_ROW(7), DECODER_ROW(8)};

static void decode(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst,
                   bool add)
{
    size_t buckets = count / spec->bucket, done = buckets * spec->bucket;
    uint64_t mode = gw__fpmode_enter();
    if (buckets)
        decoders[spec->bits - 1][add](spec, payload, buckets, dst);
    gw__fpmode_leave(mode);
    payload += buckets * gw__quant_bytes(spec->bits, spec->bucket);
    if (done < count && add)
        gw__quant_ref_add(spec, payload, count - done, dst + done);
    else if (done < count)
        gw__quant_ref_store(spec, payload, count - done, dst + done);
}

static void store(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, false);
}

static void add_to(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, true);
}

void gw__quant_avx2_fill(gw_quant_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
