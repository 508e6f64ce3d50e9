/* SPDX-License-Identifier: Apache-2.0 */
/* How the AVX-512 kernels of quant find a bucket's grid and make its codes; for encode and reduce.
 */
#ifndef GW_QUANT_CODE_AVX512_H
#define GW_QUANT_CODE_AVX512_H

#include "fpmode.h"
#include "quant_avx512.h"
#include "quant_grid.h"

/*
 * Groups have 64 elements; a bucket that is an odd multiple of 32 ends with one of 32. Both
 * roundings work in binary32 and tell when that is not certain; then, and in buckets whose unit is
 * tiny, the group is done again in binary64.
 */

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
    bool stochastic;
    bool adds;  /* the residual to the source */
    bool keeps; /* what was lost, in the residual */
} way_t;

/* A bucket's grid as its groups use it. */
typedef struct plan {
    const gw_quant_grid_t *grid;
    __m512 offset, inverse, min, unit;
    __m512 low, high; /* about the reciprocal */
    __m512 whole;     /* added to a place, rounds it to an integer and moves it by the zero point */
    __m512 values;    /* of codes 0 to 15 */
    bool quick;       /* binary32 may be enough */
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
    plan_t plan = {.grid = g, .quick = g->unit == 0.0f || gw__quant_unit_is_ordinary(g->unit)};
    plan.offset = _mm512_set1_ps((float)g->offset);
    plan.inverse = _mm512_set1_ps(plan.quick ? (float)g->inverse : 0.0f);
    plan.low = _mm512_set1_ps(plan.quick ? (float)(g->inverse * (1 - 0x1p-22)) : 0.0f);
    plan.high = _mm512_set1_ps(plan.quick ? (float)(g->inverse * (1 + 0x1p-22)) : 0.0f);
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

/*
 * The same with scale 1 and the zero point added, in binary32 where that is certain. The place is
 * found twice, with a reciprocal a little too small and one a little too great; the exact one (and
 * the reference's) lies between them, and where both round to the same integer, so does it. The
 * least distance, 2^-23 of the place, is twice what the roundings of the difference and of the
 * reciprocals can make up. Else the group is done exactly. The fused operations only find the
 * place; nothing that they round is sent.
 */
INLINE void round_group(const plan_t *plan, const __m512 p[4], __m512i q[4], size_t vectors)
{
    __m512i apart = _mm512_set1_epi32(plan->quick ? 0 : -1);
    for (size_t k = 0; k < vectors; k++) {
        __m512 d = _mm512_sub_ps(p[k], plan->offset);
        __m512i low = _mm512_castps_si512(_mm512_fmadd_ps(d, plan->low, plan->whole));
        __m512i high = _mm512_castps_si512(_mm512_fmadd_ps(d, plan->high, plan->whole));
        apart = _mm512_ternarylogic_epi32(apart, low, high, 0xF6); /* apart | (low ^ high) */
        q[k] = _mm512_sub_epi32(low, _mm512_castps_si512(_mm512_set1_ps(WHOLE)));
    }
    if (__builtin_expect(_mm512_test_epi32_mask(apart, apart), 0))
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
        p[k] = load_p(job->src, job->residual, i + 16 * k, way.adds);
    for (size_t k = vectors; k < 4; k++)
        q[k] = _mm512_setzero_si512();
    if (way.stochastic)
        round_at_random(job, plan, i, p, q, vectors, way.bits);
    else
        round_group(plan, p, q, vectors);
    if (!way.keeps && !way.stochastic) {
        __m512i top = _mm512_set1_epi8((char)((1 << way.bits) - 1));
        __m512i bytes = way.bits == 8 ? pack(q) : _mm512_min_epu8(pack(q), top);
        emit(bytes, dst, 16 * vectors, last, way.bits);
        return;
    }
    for (size_t k = 0; k < vectors; k++) {
        if (!way.stochastic)
            q[k] = limit(q[k], (1 << way.bits) - 1);
        if (way.keeps)
            keep_loss(job->residual + i + 16 * k, plan, p[k], q[k], way.bits);
    }
    emit(pack(q), dst, 16 * vectors, last, way.bits);
}

#endif
