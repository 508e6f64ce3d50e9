/* SPDX-License-Identifier: Apache-2.0 */
/* Levels that are powers of two with AVX-512 (F, BW, DQ, VL): the bytes of ref/natural_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "quant_avx512.h"

#include "natural_walk.h"

INLINE __m512 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m512 p = _mm512_loadu_ps(src + i);
    return ef ? _mm512_add_ps(p, _mm512_loadu_ps(residual + i)) : p;
}

INLINE sums_t scan(const float *src, const float *residual, size_t n, bool ef)
{
    __m512 low = _mm512_setzero_ps(), high = _mm512_setzero_ps();
    __m512i most = _mm512_setzero_si512(), magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    for (size_t i = 0; i < n; i += 32) {
        __m512 a = load_p(src, residual, i, ef), b = load_p(src, residual, i + 16, ef);
        low = _mm512_add_ps(low, _mm512_mul_ps(a, a));
        high = _mm512_add_ps(high, _mm512_mul_ps(b, b));
        most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(a), magnitude));
        most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(b), magnitude));
    }
    __m512 lane16 = _mm512_add_ps(low, high);
    __m256 lane8 = _mm256_add_ps(_mm512_castps512_ps256(lane16), _mm512_extractf32x8_ps(lane16, 1));
    __m128 lane = _mm_add_ps(_mm256_castps256_ps128(lane8), _mm256_extractf128_ps(lane8, 1));
    lane = _mm_add_ps(lane, _mm_movehl_ps(lane, lane));
    return (sums_t){_mm_cvtss_f32(_mm_add_ss(lane, _mm_movehdup_ps(lane))),
                    _mm512_reduce_max_epu32(most)};
}

/* ---- Noise --------------------------------------------------------------------------------------
 */

/* What to add to the bits of 32 elements, those of group i / 32 of the bucket. */
typedef struct noise {
    __m512i low, high;
} noise_t;

INLINE noise_t noise_at(gw_quant_noise_t noise, size_t i, bool stochastic)
{
    __m512i half = _mm512_set1_epi32(GW_NATURAL_HALF);
    if (!stochastic)
        return (noise_t){half, half};
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i x = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)GW_QUANT_NOISE_STEP));
    x = _mm512_add_epi32(
        x, _mm512_set1_epi32((int)(noise.base + (uint32_t)(i / 2) * GW_QUANT_NOISE_STEP)));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)GW_QUANT_NOISE_MUL1));
    /* x ^ twist, then that ^ that >> 13 */
    x = _mm512_ternarylogic_epi32(x, _mm512_srli_epi32(x, 13),
                                  _mm512_set1_epi32((int)(noise.twist ^ noise.twist >> 13)), 0x96);
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)GW_QUANT_NOISE_MUL2));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    /* (x & mask) | bit */
    __m512i mask = _mm512_set1_epi32(0xFFFF << 7), bit = _mm512_set1_epi32(64);
    return (noise_t){_mm512_ternarylogic_epi32(_mm512_slli_epi32(x, 7), mask, bit, 0xEA),
                     _mm512_ternarylogic_epi32(_mm512_srli_epi32(x, 9), mask, bit, 0xEA)};
}

/* Four vectors of numbers below 256 to bytes, dealt out as emit() has them. */
INLINE __m512i pack(const __m512i q[4])
{
    return _mm512_packus_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
}

/* ---- Levels of a bucket -------------------------------------------------------------------------
 */

/* A bucket's scale as its groups use it. */
typedef struct plan {
    __m512 inverse, value[2]; /* what codes 0 to 15 and 16 to 31 stand for */
} plan_t;

INLINE plan_t plan_of(float scale, unsigned bits)
{
    const float *step = gw__natural_step[bits - GW_NATURAL_BITS_LEAST];
    __m512 all = _mm512_set1_ps(scale);
    return (plan_t){_mm512_set1_ps(gw__natural_top(bits) / scale),
                    {_mm512_mul_ps(all, _mm512_loadu_ps(step)),
                     bits < 5 ? all : _mm512_mul_ps(all, _mm512_loadu_ps(step + 16))}};
}

/* What codes stand for; bits above them do not matter. */
INLINE __m512 value_of(const plan_t *plan, __m512i code, unsigned bits)
{
    if (bits == 5)
        return _mm512_permutex2var_ps(plan->value[0], code, plan->value[1]);
    if (bits < 4)
        code = _mm512_and_si512(code, _mm512_set1_epi32((1 << bits) - 1));
    return _mm512_permutexvar_ps(code, plan->value[0]);
}

INLINE __m512i code_of(const plan_t *plan, __m512 p, __m512i noise, unsigned bits)
{
    int last = (1 << (bits - 1)) - 1;
    __m512 t = _mm512_mul_ps(_mm512_abs_ps(p), plan->inverse);
    __m512 u = _mm512_add_ps(t, _mm512_max_ps(t, _mm512_set1_ps(GW_NATURAL_LEAST)));
    __m512i field = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(u), noise), 23);
    field = _mm512_min_epu32(field, _mm512_set1_epi32((int)GW_NATURAL_FIELD + last));
    __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(p), 32 - bits);
    /* last ? field : sign, bit by bit */
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(last), field, sign, 0xCA);
}

/* 32 elements: codes to q, what was lost to the residual. */
INLINE void code_group(const job_t *job, const plan_t *plan, size_t i, __m512i q[2], way_t way)
{
    noise_t noise = noise_at(job->noise, i, way.stochastic);
    prefetch_input(job, i, way.ef);
    __m512 a = load_p(job->src, job->residual, i, way.ef);
    __m512 b = load_p(job->src, job->residual, i + 16, way.ef);
    q[0] = code_of(plan, a, noise.low, way.bits);
    q[1] = code_of(plan, b, noise.high, way.bits);
    if (way.ef) {
        float *kept = job->residual + i;
        _mm512_storeu_ps(kept, _mm512_sub_ps(a, value_of(plan, q[0], way.bits)));
        _mm512_storeu_ps(kept + 16, _mm512_sub_ps(b, value_of(plan, q[1], way.bits)));
    }
}

INLINE void code_bucket(const job_t *job, float scale, uint8_t *dst, way_t way)
{
    size_t n = job->spec->bucket, i = 0;
    plan_t plan = plan_of(scale, way.bits);
    __m512i q[4];
    for (; i + 64 <= n; i += 64, dst += 8 * way.bits) {
        code_group(job, &plan, i, q, way);
        code_group(job, &plan, i + 32, q + 2, way);
        emit(pack(q), dst, 64, i + 64 == n, way.bits);
    }
    if (i < n) {
        code_group(job, &plan, i, q, way);
        q[2] = q[3] = _mm512_setzero_si512();
        emit(pack(q), dst, 32, true, way.bits);
    }
}

/* ---- Powers of two ------------------------------------------------------------------------------
 */

/* 16 exponents; the signs to *signs, what was lost to kept. Returns what is not finite. */
INLINE __mmask16 power_of(__m512 p, __m512i noise, float *kept, __m512i *power, uint32_t *signs,
                          bool ef)
{
    __m512i bits = _mm512_castps_si512(p);
    __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
    __m512i x = _mm512_srli_epi32(_mm512_add_epi32(magnitude, noise), 23);
    x = _mm512_min_epu32(x, _mm512_set1_epi32(GW_NATURAL_LAST));
    __mmask16 bad = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7F7FFFFF));
    *signs = (uint32_t)(uint16_t)(_mm512_movepi32_mask(bits) & ~bad);
    *power = _mm512_mask_mov_epi32(x, bad, _mm512_set1_epi32(GW_NATURAL_POISON));
    if (ef) {
        /* The sign of p over the exponent. */
        __m512i value = _mm512_ternarylogic_epi32(_mm512_set1_epi32(INT32_MIN), bits,
                                                  _mm512_slli_epi32(x, 23), 0xCA);
        _mm512_mask_storeu_ps(kept, (__mmask16)~bad, _mm512_sub_ps(p, _mm512_castsi512_ps(value)));
    }
    return bad;
}

INLINE size_t code_powers(const job_t *job, uint8_t *dst, way_t way)
{
    size_t n = job->spec->bucket, poisoned = 0;
    const float *src = job->src;
    float *residual = job->residual;
    for (size_t i = 0; i < n; i += 32) {
        noise_t noise = noise_at(job->noise, i, way.stochastic);
        float *kept = way.ef ? residual + i : NULL;
        uint32_t low, high;
        __m512i a, b;
        prefetch_input(job, i, way.ef);
        __mmask16 bad =
            power_of(load_p(src, residual, i, way.ef), noise.low, kept, &a, &low, way.ef);
        __mmask16 more = power_of(load_p(src, residual, i + 16, way.ef), noise.high,
                                  way.ef ? kept + 16 : NULL, &b, &high, way.ef);
        _mm_storeu_si128((__m128i *)(dst + i), _mm512_cvtepi32_epi8(a));
        _mm_storeu_si128((__m128i *)(dst + i + 16), _mm512_cvtepi32_epi8(b));
        gw__store32(dst + n + i / 8, low | high << 16);
        if (__builtin_expect(bad | more, 0))
            poisoned += (size_t)__builtin_popcount((uint32_t)bad | (uint32_t)more << 16);
    }
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* Stores or adds 32 values; *unordered gathers lanes in which a sum is NaN. */
INLINE void put(float *to, __m512 a, __m512 b, __mmask16 *unordered, bool add)
{
    if (add) {
        a = _mm512_add_ps(_mm512_loadu_ps(to), a);
        b = _mm512_add_ps(_mm512_loadu_ps(to + 16), b);
        *unordered |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    }
    _mm512_storeu_ps(to, a);
    _mm512_storeu_ps(to + 16, b);
}

INLINE void decode_levels(const uint8_t *src, size_t n, float *dst, unsigned bits, bool add)
{
    plan_t plan = plan_of(gw__load_float(src), bits);
    __mmask16 unordered = 0;
    uint8_t end[32 + 16] = {0}; /* the last group, so that nothing behind the payload is read */
    src += 4;
    for (size_t i = 0; i < n; i += 32, src += 4 * bits) {
        const uint8_t *at = src;
        prefetch(dst + i, 32 * sizeof *dst);
        if (over_reads(bits) && i + 32 == n)
            at = memcpy(end, src, 4 * bits);
        __m512 a = value_of(&plan, take(at, bits), bits);
        __m512 b = value_of(&plan, take(at + 2 * bits, bits), bits);
        put(dst + i, a, b, &unordered, add);
    }
    if (add && unordered)
        clean_nan(dst, n);
}

INLINE __m512 power_value(const uint8_t *exponents, uint32_t signs)
{
    __m512i power = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)exponents));
    __mmask16 bad = _mm512_cmpeq_epi32_mask(power, _mm512_set1_epi32(GW_NATURAL_POISON));
    __m512i value = _mm512_slli_epi32(power, 23);
    value = _mm512_mask_or_epi32(value, (__mmask16)signs, value, _mm512_set1_epi32(INT32_MIN));
    value = _mm512_mask_mov_epi32(value, bad, _mm512_set1_epi32(GW_NAN_BITS));
    return _mm512_castsi512_ps(value);
}

INLINE void decode_powers(const uint8_t *src, size_t n, float *dst, bool add)
{
    __mmask16 unordered = 0;
    for (size_t i = 0; i < n; i += 32) {
        uint32_t signs = gw__load32(src + n + i / 8);
        prefetch(dst + i, 32 * sizeof *dst);
        __m512 a = power_value(src + i, signs), b = power_value(src + i + 16, signs >> 16);
        put(dst + i, a, b, &unordered, add);
    }
    if (add && unordered)
        clean_nan(dst, n);
}

void gw__natural_avx512_fill(gw_natural_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
