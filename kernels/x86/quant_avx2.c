/* SPDX-License-Identifier: Apache-2.0 */
/* Max-min quantisation with AVX2: the bytes of ref/quant_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "fpmode.h"
#include "quant_code_avx2.h"
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

INLINE extremes_t scan(const float *src, const float *residual, size_t n, bool ef)
{
    extremes_t e = extremes_start();
    for (size_t i = 0; i < n; i += 32)
        extremes_take(&e, src, residual, i, ef);
    return e;
}

/* Codes a bucket and takes the extremes of the next one (`next`, or the same again). */
INLINE extremes_t code_bucket(const job_t *job, const gw_quant_grid_t *g, uint8_t *dst,
                              const job_t *next, way_t way)
{
    size_t n = job->spec->bucket;
    extremes_t e = extremes_start();
    plan_t plan = plan_of(g);
    dst += GW_QUANT_META_BYTES;
    for (size_t i = 0; i < n; i += 32, dst += 4 * way.bits) {
        prefetch(next->src, next->residual, i, way.adds);
        extremes_take(&e, next->src, next->residual, i, way.adds);
        code_group(job, &plan, i, dst, i + 32 == n, way);
    }
    return e;
}

/* A bucket without extent, such as one of zeros: all codes are 0. Two thirds of the buckets of a
 * gradient with embeddings are like that. */
INLINE extremes_t code_flat(const job_t *job, const gw_quant_grid_t *g, uint8_t *dst,
                            const job_t *next, way_t way)
{
    size_t n = job->spec->bucket;
    __m256 min = _mm256_set1_ps(g->min);
    memset(dst + GW_QUANT_META_BYTES, 0, n * way.bits / 8);
    for (size_t i = 0; way.keeps && i < n; i += 8)
        _mm256_storeu_ps(job->residual + i,
                         _mm256_sub_ps(load_p(job->src, job->residual, i, way.adds), min));
    return scan(next->src, next->residual, n, way.adds);
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
        } else if (g.unit == 0.0f) {
            e = code_flat(&job, &g, dst, &next, (way_t){bits, stochastic, ef, ef});
        } else {
            e = code_bucket(&job, &g, dst, &next, (way_t){bits, stochastic, ef, ef});
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
