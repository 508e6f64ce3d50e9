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
    bool shifted;
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
        p[k] = load_p(job->src, job->residual, i + 8 * k, way.adds);
    if (way.stochastic)
        round_at_random(job, g, i, p, q, way.bits);
    else if (way.shifted)
        round_group(g, p, q, way.bits);
    else
        for (int k = 0; k < 4; k++)
            q[k] = round_exactly(g, p[k], 1.0);
    if (!way.keeps && !way.stochastic) {
        emit(pack_places(q, g->zero, way.bits), dst, last, way.bits);
        return;
    }
    for (int k = 0; k < 4; k++) {
        if (!way.stochastic)
            q[k] = limit(_mm256_add_epi32(q[k], _mm256_set1_epi32(g->zero)), (1 << way.bits) - 1);
        if (way.keeps)
            keep_loss(job->residual + i + 8 * k, g, p[k], q[k]);
    }
    emit(pack_codes(q), dst, last, way.bits);
}

#endif
