/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work of an x86 encoder of quant. A tier includes it behind its code header. */
#ifndef GW_QUANT_ENCODE_H
#define GW_QUANT_ENCODE_H

#include "fpmode.h"
#include "ref.h"

/*
 * Whole buckets are done by the tier; a tail bucket and buckets near the limits of binary32 go to
 * the reference. While bucket k is coded, the extremes of bucket k + 2 are taken in the same loop
 * and the grid of bucket k + 1 is made: the long chain from the extremes to the first code
 * (reduction, divisions) overlaps with the coding of a bucket, and memory is read without a pause.
 */

/* The tier's part: codes a bucket to dst, where its metadata begins, and takes the extremes of
 * `ahead`. */
INLINE extremes_t code_bucket(const job_t *job, const gw_quant_grid_t *g, uint8_t *dst,
                              const job_t *ahead, way_t way);

INLINE extremes_t scan(const float *src, const float *residual, size_t n, bool ef)
{
    extremes_t e = extremes_start();
    for (size_t i = 0; i < n; i += 32)
        extremes_take(&e, src, residual, i, ef);
    return e;
}

/* The job `by` buckets on. */
INLINE job_t further(job_t job, size_t by, bool ef)
{
    job.src += by * job.spec->bucket;
    job.residual = ef ? job.residual + by * job.spec->bucket : NULL;
    return job;
}

/* All whole buckets of a call; returns how many were poisoned. Near the end, extremes are taken of
 * the last bucket again, and not used. */
INLINE size_t encode_buckets(job_t job, size_t buckets, uint64_t bucket, uint64_t key, uint8_t *dst,
                             way_t way)
{
    size_t n = job.spec->bucket, poisoned = 0;
    job_t next = further(job, buckets > 1, way.adds);
    extremes_t e = scan(job.src, job.residual, n, way.adds);
    gw_quant_grid_t g = grid_of(&job, &e, way.adds);
    e = scan(next.src, next.residual, n, way.adds);
    for (size_t k = 0; k < buckets; k++, bucket++, dst += gw__quant_bytes(way.bits, n)) {
        gw_quant_grid_t grid = grid_of(&next, &e, way.adds);
        job_t ahead = further(next, k + 2 < buckets, way.adds);
        if (way.stochastic)
            job.noise = gw__quant_noise(key, bucket);
        gw__store_float(dst, g.min);
        gw__store_float(dst + 4, g.unit);
        if (!g.finite || g.wide) {
            poisoned += !g.finite;
            gw__quant_ref_bucket(job.spec, job.src, job.residual, n, job.noise, dst);
            e = scan(ahead.src, ahead.residual, n, way.adds);
        } else {
            e = code_bucket(&job, &g, dst, &ahead, way);
        }
        g = grid;
        job = next;
        next = ahead;
    }
    return poisoned;
}

typedef size_t (*encode_fn)(job_t job, size_t buckets, uint64_t bucket, uint64_t key, uint8_t *dst);

#define ENCODER(bits, stochastic, ef)                                                              \
    static GW_KERNEL_BODY size_t encode_##bits##_##stochastic##_##ef(                              \
        job_t job, size_t buckets, uint64_t bucket, uint64_t key, uint8_t *dst)                    \
    {                                                                                              \
        return encode_buckets(job, buckets, bucket, key, dst, (way_t){bits, stochastic, ef, ef});  \
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

#endif
