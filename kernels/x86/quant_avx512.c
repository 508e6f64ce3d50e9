/* SPDX-License-Identifier: Apache-2.0 */
/* Max-min quantisation with AVX-512 (F, BW, DQ, VL): the bytes of ref/quant_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "fpmode.h"
#include "quant_avx512.h"
#include "ref.h"

/*
 * The plan is that of quant_avx2.c, one step deeper: while bucket k is coded, the extremes of
 * bucket k + 2 are taken and the grid of bucket k + 1 is made. Groups have 64 elements; a bucket
 * that is an odd multiple of 32 ends with one of 32. Both roundings work in binary32 and tell when
 * that is not certain; then, and in buckets whose unit is tiny, the group is done again in
 * binary64.
 */

/* Bytes from the place in work to the place prefetched, into the second level: the first has too
 * few misses in flight for a stream. */
#define AHEAD 16384

/* Below this unit a reciprocal, or its multiples, could leave binary32. */
#define LEAST_UNIT 0x1p-100f

/*
 * Extremes are taken on the bits, where they cost less than on floats: the greatest as signed
 * numbers is the maximum when there is a positive sign, the greatest as unsigned ones the minimum
 * when there is a negative one, and a NaN or an Inf wins over all else.
 */
typedef struct extremes {
    __m512i most0, most1;   /* signed */
    __m512i least0, least1; /* unsigned */
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
    bool stochastic, ef;
} way_t;

/* A bucket's grid as its groups use it. */
typedef struct plan {
    const gw_quant_grid_t *grid;
    __m512 offset, inverse, min, unit;
    __m512 whole;  /* added to a place, rounds it to an integer and moves it by the zero point */
    __m512 values; /* of codes 0 to 15 */
    bool quick;    /* binary32 may be enough */
} plan_t;

INLINE extremes_t extremes_start(void)
{
    __m512i most = _mm512_set1_epi32(INT32_MIN), least = _mm512_setzero_si512();
    return (extremes_t){most, most, least, least};
}

INLINE __m512 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m512 p = _mm512_loadu_ps(src + i);
    return ef ? _mm512_add_ps(p, _mm512_loadu_ps(residual + i)) : p;
}

/* Takes 32 elements into account. */
INLINE void extremes_take(extremes_t *e, const float *src, const float *residual, size_t i, bool ef)
{
    __m512i a = _mm512_castps_si512(load_p(src, residual, i, ef));
    __m512i b = _mm512_castps_si512(load_p(src, residual, i + 16, ef));
    e->most0 = _mm512_max_epi32(e->most0, a);
    e->most1 = _mm512_max_epi32(e->most1, b);
    e->least0 = _mm512_max_epu32(e->least0, a);
    e->least1 = _mm512_max_epu32(e->least1, b);
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

/* The grid of a finite bucket whose values all have the same sign. */
static GW_KERNEL_BODY gw_quant_grid_t grid_of_one_sign(const job_t *job, bool ef)
{
    __m512 mn = _mm512_set1_ps(INFINITY), mx = _mm512_set1_ps(-INFINITY);
    for (size_t i = 0; i < job->spec->bucket; i += 16) {
        __m512 p = load_p(job->src, job->residual, i, ef);
        mn = _mm512_min_ps(mn, p);
        mx = _mm512_max_ps(mx, p);
    }
    return gw__quant_grid(job->spec, _mm512_reduce_min_ps(mn), _mm512_reduce_max_ps(mx), true);
}

INLINE gw_quant_grid_t grid_of(const job_t *job, const extremes_t *e, bool ef)
{
    uint32_t most = (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(e->most0, e->most1));
    uint32_t least = _mm512_reduce_max_epu32(_mm512_max_epu32(e->least0, e->least1));
    bool finite = (most & 0x7FFFFFFFu) < 0x7F800000u && (least & 0x7FFFFFFFu) < 0x7F800000u;
    if (__builtin_expect(finite && most == least && most != 0, 0))
        return grid_of_one_sign(job, ef);
    return gw__quant_grid(job->spec, gw__float_of(least), gw__float_of(most), finite);
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

/* min + unit * q, the product and the sum rounded one after the other. */
INLINE __m512 value_of(__m512 min, __m512 unit, __m512i code)
{
    return _mm512_add_ps(min, _mm512_mul_ps(unit, _mm512_cvtepi32_ps(code)));
}

INLINE __m512 first_values(__m512 min, __m512 unit)
{
    return value_of(min, unit,
                    _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

/* From here to 2^24 floats are the integers. */
#define WHOLE 0x1.8p23f

INLINE plan_t plan_of(const gw_quant_grid_t *g)
{
    plan_t plan = {.grid = g, .quick = g->unit == 0.0f || g->unit >= LEAST_UNIT};
    plan.offset = _mm512_set1_ps((float)g->offset);
    plan.inverse = _mm512_set1_ps(plan.quick ? (float)g->inverse : 0.0f);
    plan.whole = _mm512_set1_ps(WHOLE + (float)g->zero);
    plan.min = _mm512_set1_ps(g->min);
    plan.unit = _mm512_set1_ps(g->unit);
    plan.values = first_values(plan.min, plan.unit);
    return plan;
}

INLINE __m256i round_8(const gw_quant_grid_t *g, __m256 p, double scale)
{
    __m512d t = _mm512_sub_pd(_mm512_cvtps_pd(p), _mm512_set1_pd(g->offset));
    t = _mm512_mul_pd(t, _mm512_set1_pd(g->inverse));
    if (scale != 1.0)
        t = _mm512_mul_pd(t, _mm512_set1_pd(scale));
    return _mm512_cvtpd_epi32(t);
}

/* rne((p - offset) * inverse * scale), as the reference has it. */
INLINE __m512i round_exactly(const gw_quant_grid_t *g, __m512 p, double scale)
{
    __m256i low = round_8(g, _mm512_castps512_ps256(p), scale);
    __m256i high = round_8(g, _mm512_extractf32x8_ps(p, 1), scale);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Operands of the range instruction: the greater magnitude, without its sign. */
#define MAX_MAGNITUDE 0x0B

/*
 * The same with scale 1 and the zero point added, in binary32 where that is certain. The place t
 * differs from the exact one by the rounding of the difference and of the reciprocal, by less than
 * 2^-23 of itself, and |t| < 2^bits + 1. Unless t is as near as 2^(bits - 22) to the middle between
 * two integers, both arithmetics round to the same one. Else the group is done exactly. The fused
 * operations only find the place; nothing that they round is sent.
 */
INLINE void round_group(const plan_t *plan, const __m512 p[4], __m512i q[4], size_t vectors,
                        unsigned bits)
{
    __m512 far = _mm512_setzero_ps();
    for (size_t k = 0; k < vectors; k++) {
        __m512 d = _mm512_sub_ps(p[k], plan->offset);
        __m512 moved = _mm512_fmadd_ps(d, plan->inverse, plan->whole);
        __m512 off = _mm512_fmsub_ps(d, plan->inverse, _mm512_sub_ps(moved, plan->whole));
        q[k] = _mm512_sub_epi32(_mm512_castps_si512(moved),
                                _mm512_castps_si512(_mm512_set1_ps(WHOLE)));
        far = _mm512_range_ps(far, off, MAX_MAGNITUDE);
    }
    __m512 sure = _mm512_set1_ps(plan->quick ? 0.5f - 0x1p-22f * (float)(1 << bits) : -1.0f);
    if (__builtin_expect(_mm512_cmp_ps_mask(far, sure, _CMP_GE_OQ), 0))
        for (size_t k = 0; k < vectors; k++)
            q[k] = _mm512_add_epi32(round_exactly(plan->grid, p[k], 1.0),
                                    _mm512_set1_epi32(plan->grid->zero));
}

/* The noise of elements i .. i + 31 as 32 words in order. */
INLINE __m512i noise_at(gw_quant_noise_t noise, size_t i)
{
    __m512i pair =
        _mm512_add_epi32(_mm512_set1_epi32((int)(i / 2)),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    __m512i x = _mm512_mullo_epi32(pair, _mm512_set1_epi32((int)GW_QUANT_NOISE_STEP));
    x = _mm512_add_epi32(x, _mm512_set1_epi32((int)noise.base));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)GW_QUANT_NOISE_MUL1));
    x = _mm512_xor_si512(x, _mm512_set1_epi32((int)noise.twist));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 13));
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)GW_QUANT_NOISE_MUL2));
    return _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
}

/* place + zero + slack, limited to the grid (and the slack), with the noise added. */
INLINE __m512i move(__m512i place, int zero, int top, int slack, __m512i noise)
{
    place = _mm512_add_epi32(place, _mm512_set1_epi32(zero * 65536 + slack));
    place = _mm512_max_epi32(place, _mm512_set1_epi32(slack));
    place = _mm512_min_epi32(place, _mm512_set1_epi32(top * 65536 + slack));
    return _mm512_add_epi32(place, noise);
}

/*
 * Codes of a group, at random between their two neighbours on the grid. In binary32 a place in
 * 1/65536 of a step is wrong by at most 1 + floor((2^bits + 1) * 1.6 / 128) = slack: the code is
 * certain when place + noise is at least that far from a multiple of 65536. The slack is added to
 * all places, so that a low half below 2 * slack shows the uncertain ones; it makes no difference
 * to the code of the others.
 */
INLINE void round_at_random(const job_t *job, const plan_t *plan, size_t i, const __m512 p[4],
                            __m512i q[4], size_t vectors, unsigned bits)
{
    int top = (1 << bits) - 1, zero = plan->grid->zero, slack = 1 + ((1 << bits) + 1) * 16 / 1280;
    __m512 scale = _mm512_mul_ps(plan->inverse, _mm512_set1_ps(65536.0f));
    __m512i least = _mm512_set1_epi32(-1), noise[4];
    for (size_t k = 0; k < vectors; k += 2) {
        __m512i both = noise_at(job->noise, i + 16 * k);
        noise[k] = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
        noise[k + 1] = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
    }
    for (size_t k = 0; k < vectors; k++) {
        __m512 t = _mm512_mul_ps(_mm512_sub_ps(p[k], plan->offset), scale);
        q[k] = move(_mm512_cvtps_epi32(t), zero, top, slack, noise[k]);
        least = _mm512_min_epu16(least, q[k]);
    }
    __m512i most = _mm512_set1_epi16((short)(plan->quick ? 2 * slack - 1 : 0xFFFF));
    if (__builtin_expect(_mm512_mask_cmple_epu16_mask(0x55555555, least, most), 0))
        for (size_t k = 0; k < vectors; k++)
            q[k] = move(round_exactly(plan->grid, p[k], 65536.0), zero, top, 0, noise[k]);
    for (size_t k = 0; k < vectors; k++)
        q[k] = _mm512_srli_epi32(q[k], 16);
}

/* What was lost of 16 elements, to the residual. */
INLINE void keep_loss(float *residual, const plan_t *plan, __m512 p, __m512i code, unsigned bits)
{
    __m512 value = bits <= 4 ? _mm512_permutexvar_ps(code, plan->values)
                             : value_of(plan->min, plan->unit, code);
    _mm512_storeu_ps(residual, _mm512_sub_ps(p, value));
}

/* Four vectors to bytes. Codes are below 2^10 in magnitude: the first pack loses nothing, and the
 * second one limits them to 0 and 255. */
INLINE __m512i pack(const __m512i q[4])
{
    return _mm512_packus_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
}

INLINE __m512i limit(__m512i x, int top)
{
    x = _mm512_max_epi32(x, _mm512_setzero_si512());
    return _mm512_min_epi32(x, _mm512_set1_epi32(top));
}

/* 16 * vectors elements: codes to dst, what was lost to the residual. */
INLINE void code_group(const job_t *job, const plan_t *plan, size_t i, uint8_t *dst, size_t vectors,
                       bool last, way_t way)
{
    __m512 p[4];
    __m512i q[4];
    for (size_t k = 0; k < vectors; k++)
        p[k] = load_p(job->src, job->residual, i + 16 * k, way.ef);
    for (size_t k = vectors; k < 4; k++)
        q[k] = _mm512_setzero_si512();
    if (way.stochastic)
        round_at_random(job, plan, i, p, q, vectors, way.bits);
    else
        round_group(plan, p, q, vectors, way.bits);
    if (!way.ef && !way.stochastic) {
        __m512i top = _mm512_set1_epi8((char)((1 << way.bits) - 1));
        __m512i bytes = way.bits == 8 ? pack(q) : _mm512_min_epu8(pack(q), top);
        emit(bytes, dst, 16 * vectors, last, way.bits);
        return;
    }
    for (size_t k = 0; k < vectors; k++) {
        if (!way.stochastic)
            q[k] = limit(q[k], (1 << way.bits) - 1);
        if (way.ef)
            keep_loss(job->residual + i + 16 * k, plan, p[k], q[k], way.bits);
    }
    emit(pack(q), dst, 16 * vectors, last, way.bits);
}

/* Codes a bucket and takes the extremes of one further on. */
INLINE extremes_t code_bucket(const job_t *job, const gw_quant_grid_t *g, uint8_t *dst,
                              const job_t *ahead, way_t way)
{
    size_t n = job->spec->bucket, i = 0;
    extremes_t e = extremes_start();
    plan_t plan = plan_of(g);
    dst += GW_QUANT_META_BYTES;
    for (; i + 64 <= n; i += 64, dst += 8 * way.bits) {
        prefetch(ahead->src, ahead->residual, i, way.ef);
        prefetch(ahead->src, ahead->residual, i + 32, way.ef);
        extremes_take(&e, ahead->src, ahead->residual, i, way.ef);
        extremes_take(&e, ahead->src, ahead->residual, i + 32, way.ef);
        code_group(job, &plan, i, dst, 4, i + 64 == n, way);
    }
    if (i < n) {
        extremes_take(&e, ahead->src, ahead->residual, i, way.ef);
        code_group(job, &plan, i, dst, 2, true, way);
    }
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
    job_t next = further(job, buckets > 1, way.ef);
    extremes_t e = scan(job.src, job.residual, n, way.ef);
    gw_quant_grid_t g = grid_of(&job, &e, way.ef);
    e = scan(next.src, next.residual, n, way.ef);
    for (size_t k = 0; k < buckets; k++, bucket++, dst += gw__quant_bytes(way.bits, n)) {
        gw_quant_grid_t grid = grid_of(&next, &e, way.ef);
        job_t ahead = further(next, k + 2 < buckets, way.ef);
        if (way.stochastic)
            job.noise = gw__quant_noise(key, bucket);
        gw__store_float(dst, g.min);
        gw__store_float(dst + 4, g.unit);
        if (!g.finite || g.wide) {
            poisoned += !g.finite;
            gw__quant_ref_bucket(job.spec, job.src, job.residual, n, job.noise, dst);
            e = scan(ahead.src, ahead.residual, n, way.ef);
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
        return encode_buckets(job, buckets, bucket, key, dst, (way_t){bits, stochastic, ef});      \
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

/* The values of 16 codes: looked up where a register holds all of them. */
INLINE __m512 decode_vector(const uint8_t *src, __m512 min, __m512 unit, __m512 values,
                            unsigned bits)
{
    __m512i x = take(src, bits);
    if (bits == 4)
        return _mm512_permutexvar_ps(x, values);
    x = _mm512_and_si512(x, _mm512_set1_epi32((1 << bits) - 1));
    return bits < 4 ? _mm512_permutexvar_ps(x, values) : value_of(min, unit, x);
}

INLINE void decode_bucket(const uint8_t *src, size_t n, float *dst, unsigned bits, bool add)
{
    __m512 min = _mm512_set1_ps(gw__load_float(src));
    __m512 unit = _mm512_set1_ps(gw__load_float(src + 4));
    __m512 values = first_values(min, unit);
    __mmask16 ordered = 0xFFFF;
    uint8_t end[32 + 16] = {0}; /* the last group, so that nothing behind the payload is read */
    src += GW_QUANT_META_BYTES;
    for (size_t i = 0; i < n; i += 32, src += 4 * bits) {
        const uint8_t *at = src;
        float *to = dst + i;
        if (over_reads(bits) && i + 32 == n)
            at = memcpy(end, src, 4 * bits);
        __m512 a = decode_vector(at, min, unit, values, bits);
        __m512 b = decode_vector(at + 2 * bits, min, unit, values, bits);
        if (add) {
            a = _mm512_add_ps(_mm512_loadu_ps(to), a);
            b = _mm512_add_ps(_mm512_loadu_ps(to + 16), b);
            ordered = _mm512_mask_cmp_ps_mask(ordered, a, b, _CMP_ORD_Q);
        }
        _mm512_storeu_ps(to, a);
        _mm512_storeu_ps(to + 16, b);
    }
    if (add && ordered != 0xFFFF)
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

void gw__quant_avx512_fill(gw_quant_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
