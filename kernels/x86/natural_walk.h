/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work of an x86 tier of natural. A tier includes it, then defines its part. */
#ifndef GW_NATURAL_WALK_H
#define GW_NATURAL_WALK_H

#include "fpmode.h"
#include "natural_levels.h"
#include "ref.h"
#include "stream.h"

/*
 * Whole buckets are done by the tier; tails, and buckets whose scale is not ordinary, go to the
 * reference. The sums of bucket k + 1 are taken before bucket k is coded, so that the chain from
 * them to the first code (additions, a root, a division) overlaps with coding.
 */

typedef struct job {
    const gw_natural_spec_t *spec;
    gw_quant_noise_t noise;
    const float *src;
    float *residual;
} job_t;

/* What the compiler specialises on. */
typedef struct way {
    unsigned bits; /* not used for powers of two */
    bool stochastic, ef;
} way_t;

typedef struct sums {
    float squares;
    uint32_t most; /* greatest magnitude, as bits; 7F800000 and more: not finite */
} sums_t;

/* ---- The tier's part ----------------------------------------------------------------------------
 */

/* The sums of a bucket, in the reference's order. */
INLINE sums_t scan(const float *src, const float *residual, size_t n, bool ef);

/* Codes of a bucket with an ordinary scale to dst, and its residual. */
INLINE void code_bucket(const job_t *job, float scale, uint8_t *dst, way_t way);

/* Exponents and signs of a bucket; returns how many elements are not finite. */
INLINE size_t code_powers(const job_t *job, uint8_t *dst, way_t way);

/* Stores or adds a bucket: of levels, whose scale, at src, is not the poison; of powers of two. */
INLINE void decode_levels(const uint8_t *src, size_t n, float *dst, unsigned bits, bool add);
INLINE void decode_powers(const uint8_t *src, size_t n, float *dst, bool add);

/* ---- Prefetching --------------------------------------------------------------------------------
 */

/* While a bucket is coded, which takes longer than its sums: memory is read without a pause. */
INLINE void prefetch_input(const job_t *job, size_t i, bool ef)
{
    prefetch_floats(job->src, job->residual, i, 32, ef);
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

/* A bucket without an ordinary scale: two thirds of those of a gradient with embeddings are zeros.
 * Returns whether it is finite. */
static GW_KERNEL_BODY bool encode_special(const job_t *job, uint8_t *dst)
{
    size_t n = job->spec->bucket;
    uint32_t any = 0;
    for (size_t i = 0; i < n; i += 32)
        prefetch_input(job, i, job->residual != NULL);
    for (size_t i = 0; i < n; i++)
        any |= gw__float_bits(job->residual ? job->src[i] + job->residual[i] : job->src[i]) << 1;
    if (any)
        return gw__natural_ref_bucket(job->spec, job->src, job->residual, n, job->noise, dst);
    memset(dst, 0, gw__natural_bytes(job->spec, n));
    for (size_t i = 0; job->residual && i < n; i++)
        job->residual[i] = job->src[i] + job->residual[i] - 0.0f;
    return true;
}

static GW_KERNEL_BODY sums_t scan_plain(const job_t *job)
{
    return scan(job->src, NULL, job->spec->bucket, false);
}

static GW_KERNEL_BODY sums_t scan_ef(const job_t *job)
{
    return scan(job->src, job->residual, job->spec->bucket, true);
}

static bool is_ordinary(const gw_natural_spec_t *spec, const sums_t *s)
{
    if (spec->rule == GW_NATURAL_MOST)
        return gw__natural_scale_is_ordinary(gw__float_of(s->most)); /* NaN and Inf are not */
    return gw__natural_sum_is_ordinary(s->squares);
}

INLINE job_t next_of(job_t job, bool ef)
{
    job.src += job.spec->bucket;
    job.residual = ef ? job.residual + job.spec->bucket : NULL;
    return job;
}

INLINE size_t encode_levels(job_t job, size_t buckets, uint64_t bucket, uint64_t key, uint8_t *dst,
                            way_t way)
{
    size_t stride = gw__natural_bytes(job.spec, job.spec->bucket), poisoned = 0;
    sums_t sums = way.ef ? scan_ef(&job) : scan_plain(&job);
    for (size_t k = 0; k < buckets; k++, dst += stride) {
        job_t next = next_of(job, way.ef);
        sums_t ahead = sums;
        if (k + 1 < buckets)
            ahead = way.ef ? scan_ef(&next) : scan_plain(&next);
        if (way.stochastic)
            job.noise = gw__quant_noise(key, bucket + k);
        if (__builtin_expect(is_ordinary(job.spec, &sums), 1)) {
            float scale = gw__natural_scale(job.spec, sums.squares, gw__float_of(sums.most),
                                            job.spec->bucket);
            gw__store_float(dst, scale);
            code_bucket(&job, scale, dst + 4, way);
        } else {
            poisoned += !encode_special(&job, dst);
        }
        job = next;
        sums = ahead;
    }
    return poisoned;
}

INLINE size_t encode_powers(job_t job, size_t buckets, uint64_t bucket, uint64_t key, uint8_t *dst,
                            way_t way)
{
    size_t stride = gw__natural_bytes(job.spec, job.spec->bucket), poisoned = 0;
    for (size_t k = 0; k < buckets; k++, dst += stride) {
        if (way.stochastic)
            job.noise = gw__quant_noise(key, bucket + k);
        poisoned += code_powers(&job, dst, way);
        job = next_of(job, way.ef);
    }
    return poisoned;
}

typedef size_t (*encode_fn)(job_t job, size_t buckets, uint64_t bucket, uint64_t key, uint8_t *dst);

#define ENCODER(what, bits, stochastic, ef)                                                        \
    static GW_KERNEL_BODY size_t what##_##bits##_##stochastic##_##ef(                              \
        job_t job, size_t buckets, uint64_t bucket, uint64_t key, uint8_t *dst)                    \
    {                                                                                              \
        return encode_##what(job, buckets, bucket, key, dst, (way_t){bits, stochastic, ef});       \
    }
#define ENCODERS(what, bits)                                                                       \
    ENCODER(what, bits, 0, 0)                                                                      \
    ENCODER(what, bits, 0, 1)                                                                      \
    ENCODER(what, bits, 1, 0)                                                                      \
    ENCODER(what, bits, 1, 1)
#define ENCODER_ROW(what, bits)                                                                    \
    {                                                                                              \
        {what##_##bits##_0_0, what##_##bits##_0_1},                                                \
        {                                                                                          \
            what##_##bits##_1_0, what##_##bits##_1_1                                               \
        }                                                                                          \
    }

ENCODERS(powers, 0)
ENCODERS(levels, 2)
ENCODERS(levels, 3)
ENCODERS(levels, 4)
ENCODERS(levels, 5)

static const encode_fn powers_encoders[2][2] = ENCODER_ROW(powers, 0);
static const encode_fn levels_encoders[4][2][2] = {ENCODER_ROW(levels, 2), ENCODER_ROW(levels, 3),
                                                   ENCODER_ROW(levels, 4), ENCODER_ROW(levels, 5)};

static size_t encode(const gw_natural_spec_t *spec, const float *src, float *residual, size_t count,
                     uint64_t first, uint64_t key, uint8_t *dst)
{
    size_t n = spec->bucket, buckets = count / n, done = buckets * n, poisoned = 0;
    job_t job = {.spec = spec, .src = src, .residual = residual};
    bool powers = spec->rule == GW_NATURAL_POWERS, ef = residual != NULL;
    encode_fn run = powers
                        ? powers_encoders[spec->stochastic][ef]
                        : levels_encoders[spec->bits - GW_NATURAL_BITS_LEAST][spec->stochastic][ef];
    uint64_t mode = gw__fpmode_enter();
    if (buckets)
        poisoned = run(job, buckets, first / n, key, dst);
    gw__fpmode_leave(mode);
    if (done < count)
        poisoned +=
            gw__natural_ref_encode(spec, src + done, ef ? residual + done : NULL, count - done,
                                   first + done, key, dst + buckets * gw__natural_bytes(spec, n));
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE void decode_buckets(const gw_natural_spec_t *spec, const uint8_t *payload, size_t buckets,
                           float *dst, unsigned bits, bool add)
{
    size_t n = spec->bucket, stride = gw__natural_bytes(spec, n);
    for (size_t k = 0; k < buckets; k++, payload += stride, dst += n) {
        if (!bits)
            decode_powers(payload, n, dst, add);
        else if (gw__load32(payload) == GW_NAN_BITS)
            gw__natural_ref_decode_bucket(spec, payload, n, add, dst);
        else
            decode_levels(payload, n, dst, bits, add);
    }
}

typedef void (*decode_fn)(const gw_natural_spec_t *spec, const uint8_t *payload, size_t buckets,
                          float *dst);

#define DECODER(bits, mode)                                                                        \
    static GW_KERNEL_BODY void decode_##bits##_##mode(                                             \
        const gw_natural_spec_t *spec, const uint8_t *payload, size_t buckets, float *dst)         \
    {                                                                                              \
        decode_buckets(spec, payload, buckets, dst, bits, mode);                                   \
    }
#define DECODERS(bits)                                                                             \
    DECODER(bits, 0)                                                                               \
    DECODER(bits, 1)

DECODERS(0)
DECODERS(2)
DECODERS(3)
DECODERS(4)
DECODERS(5)

/* By bits - 1; powers of two come first. */
static const decode_fn decoders[5][2] = {{decode_0_0, decode_0_1},
                                         {decode_2_0, decode_2_1},
                                         {decode_3_0, decode_3_1},
                                         {decode_4_0, decode_4_1},
                                         {decode_5_0, decode_5_1}};

static void decode(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count, float *dst,
                   bool add)
{
    size_t n = spec->bucket, buckets = count / n, done = buckets * n;
    unsigned row = spec->rule == GW_NATURAL_POWERS ? 0 : spec->bits - 1;
    uint64_t mode = gw__fpmode_enter();
    if (buckets)
        decoders[row][add](spec, payload, buckets, dst);
    gw__fpmode_leave(mode);
    payload += buckets * gw__natural_bytes(spec, n);
    if (done < count && add)
        gw__natural_ref_add(spec, payload, count - done, dst + done);
    else if (done < count)
        gw__natural_ref_store(spec, payload, count - done, dst + done);
}

static void store(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, false);
}

static void add_to(const gw_natural_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, true);
}

#endif
