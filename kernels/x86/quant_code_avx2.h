/* SPDX-License-Identifier: Apache-2.0 */
/* How the AVX2 kernels of quant find a bucket's grid and make its codes; for encode and reduce. */
#ifndef GW_QUANT_CODE_AVX2_H
#define GW_QUANT_CODE_AVX2_H

#include "quant_avx2.h"
#include "quant_grid.h"

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
    bool stochastic;
    bool adds;  /* the residual to the source */
    bool keeps; /* what was lost, in the residual */
} way_t;

/* A bucket's grid as its groups use it. */
typedef struct plan {
    const gw_quant_grid_t *grid;
    __m256 offset;
    __m256 low, high; /* about the reciprocal */
    __m256 whole;     /* added to a place, rounds it to an integer and moves it by the zero point */
    bool quick;       /* binary32 may be enough */
} plan_t;

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

INLINE gw_quant_grid_t grid_of(const job_t *job, const extremes_t *e, bool ef)
{
    __m256 low = _mm256_min_ps(e->mn0, e->mn1), high = _mm256_max_ps(e->mx0, e->mx1);
    __m128 mn = _mm_min_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1));
    __m128 mx = _mm_max_ps(_mm256_castps256_ps128(high), _mm256_extractf128_ps(high, 1));
    mn = _mm_min_ps(mn, _mm_movehl_ps(mn, mn));
    mx = _mm_max_ps(mx, _mm_movehl_ps(mx, mx));
    float least = _mm_cvtss_f32(_mm_min_ss(mn, _mm_movehdup_ps(mn)));
    float most = _mm_cvtss_f32(_mm_max_ss(mx, _mm_movehdup_ps(mx)));
    bool finite = !_mm256_movemask_ps(e->unordered) && least >= -FLT_MAX && most <= FLT_MAX;
    (void)ef;
    return gw__quant_grid(job->spec, least, most, finite);
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

/* From here to 2^24 floats are the integers. */
#define WHOLE 0x1.8p23f

INLINE plan_t plan_of(const gw_quant_grid_t *g)
{
    plan_t plan = {.grid = g, .quick = g->unit == 0.0f || gw__quant_unit_is_ordinary(g->unit)};
    plan.offset = _mm256_set1_ps((float)g->offset);
    plan.low = _mm256_set1_ps(plan.quick ? (float)(g->inverse * (1 - 0x1p-22)) : 0.0f);
    plan.high = _mm256_set1_ps(plan.quick ? (float)(g->inverse * (1 + 0x1p-22)) : 0.0f);
    plan.whole = _mm256_set1_ps(WHOLE + (float)g->zero);
    return plan;
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
 * The same with scale 1 and the zero point added, in binary32 where that is certain: as in
 * quant_code_avx512.h.
 */
INLINE void round_group(const plan_t *plan, const __m256 p[4], __m256i q[4])
{
    __m256i apart = _mm256_set1_epi32(plan->quick ? 0 : -1);
    for (int k = 0; k < 4; k++) {
        __m256 d = _mm256_sub_ps(p[k], plan->offset);
        __m256i low = _mm256_castps_si256(_mm256_fmadd_ps(d, plan->low, plan->whole));
        __m256i high = _mm256_castps_si256(_mm256_fmadd_ps(d, plan->high, plan->whole));
        apart = _mm256_or_si256(apart, _mm256_xor_si256(low, high));
        q[k] = _mm256_sub_epi32(low, _mm256_castps_si256(_mm256_set1_ps(WHOLE)));
    }
    if (__builtin_expect(!_mm256_testz_si256(apart, apart), 0))
        for (int k = 0; k < 4; k++)
            q[k] = _mm256_add_epi32(round_exactly(plan->grid, p[k], 1.0),
                                    _mm256_set1_epi32(plan->grid->zero));
}

/* Codes of 32 elements, at random between their two neighbours on the grid. */
INLINE void round_at_random(const job_t *job, const gw_quant_grid_t *g, size_t i, const __m256 p[4],
                            __m256i q[4], unsigned bits)
{
    int top = (1 << bits) - 1;
    if (g->unit == 0.0f) { /* two thirds of the buckets of a gradient with embeddings */
        q[0] = q[1] = q[2] = q[3] = _mm256_setzero_si256();
        return;
    }
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

/* Four vectors to bytes. Codes are below 2^10 in magnitude: the first pack loses nothing, and the
 * second one limits them to 0 and 255. */
INLINE __m256i pack_codes(const __m256i q[4])
{
    return _mm256_packus_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
}

/* 32 elements: codes to dst, what was lost to the residual. */
INLINE void code_group(const job_t *job, const plan_t *plan, size_t i, uint8_t *dst, bool last,
                       way_t way)
{
    const gw_quant_grid_t *g = plan->grid;
    __m256 p[4];
    __m256i q[4];
    for (size_t k = 0; k < 4; k++)
        p[k] = load_p(job->src, job->residual, i + 8 * k, way.adds);
    if (way.stochastic)
        round_at_random(job, g, i, p, q, way.bits);
    else
        round_group(plan, p, q);
    if (!way.keeps && !way.stochastic) {
        __m256i top = _mm256_set1_epi8((char)((1 << way.bits) - 1));
        __m256i bytes = pack_codes(q);
        emit(way.bits == 8 ? bytes : _mm256_min_epu8(bytes, top), dst, last, way.bits);
        return;
    }
    for (int k = 0; k < 4; k++) {
        if (!way.stochastic)
            q[k] = limit(q[k], (1 << way.bits) - 1);
        if (way.keeps)
            keep_loss(job->residual + i + 8 * k, g, p[k], q[k]);
    }
    emit(pack_codes(q), dst, last, way.bits);
}

#endif
