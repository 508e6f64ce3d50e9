/* SPDX-License-Identifier: Apache-2.0 */
/* Levels that are powers of two with AVX2: the bytes of ref/natural_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "quant_avx2.h"

#include "natural_walk.h"

INLINE __m256 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m256 p = _mm256_loadu_ps(src + i);
    return ef ? _mm256_add_ps(p, _mm256_loadu_ps(residual + i)) : p;
}

INLINE __m256i magnitude_of(__m256 p)
{
    return _mm256_and_si256(_mm256_castps_si256(p), _mm256_set1_epi32(0x7FFFFFFF));
}

INLINE float fold(const __m256 sum[4])
{
    __m256 lane8 = _mm256_add_ps(_mm256_add_ps(sum[0], sum[2]), _mm256_add_ps(sum[1], sum[3]));
    __m128 lane = _mm_add_ps(_mm256_castps256_ps128(lane8), _mm256_extractf128_ps(lane8, 1));
    lane = _mm_add_ps(lane, _mm_movehl_ps(lane, lane));
    return _mm_cvtss_f32(_mm_add_ss(lane, _mm_movehdup_ps(lane)));
}

INLINE uint32_t greatest(__m256i x)
{
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4E));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(most);
}

INLINE sums_t scan(const float *src, const float *residual, size_t n, bool ef)
{
    __m256 zero = _mm256_setzero_ps(), sum[4] = {zero, zero, zero, zero};
    __m256i most[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t i = 0; i < n; i += 32) {
        for (size_t k = 0; k < 4; k++) {
            __m256 p = load_p(src, residual, i + 8 * k, ef);
            sum[k] = _mm256_add_ps(sum[k], _mm256_mul_ps(p, p));
            most[k % 2] = _mm256_max_epu32(most[k % 2], magnitude_of(p));
        }
    }
    return (sums_t){fold(sum), greatest(_mm256_max_epu32(most[0], most[1]))};
}

/* ---- Noise --------------------------------------------------------------------------------------
 */

/* The words of elements i .. i + 7 and i + 16 .. i + 23 of a bucket; i is a multiple of 8. */
INLINE __m256i noise_words(gw_quant_noise_t noise, uint32_t word)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i x = _mm256_mullo_epi32(lane, _mm256_set1_epi32((int)GW_QUANT_NOISE_STEP));
    x = _mm256_add_epi32(x, _mm256_set1_epi32((int)(noise.base + word * GW_QUANT_NOISE_STEP)));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)GW_QUANT_NOISE_MUL1));
    /* x ^ twist, then that ^ that >> 13 */
    __m256i twist = _mm256_set1_epi32((int)(noise.twist ^ noise.twist >> 13));
    x = _mm256_xor_si256(_mm256_xor_si256(x, twist), _mm256_srli_epi32(x, 13));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)GW_QUANT_NOISE_MUL2));
    return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

/* What to add to the bits of 32 elements, those of group i / 32 of the bucket. */
INLINE void noise_at(gw_quant_noise_t noise, size_t i, __m256i out[4], bool stochastic)
{
    __m256i mask = _mm256_set1_epi32(0xFFFF << 7), bit = _mm256_set1_epi32(64);
    if (!stochastic) {
        out[0] = out[1] = out[2] = out[3] = _mm256_set1_epi32(GW_NATURAL_HALF);
        return;
    }
    for (uint32_t k = 0; k < 2; k++) {
        __m256i x = noise_words(noise, (uint32_t)(i / 2) + 8 * k);
        out[k] = _mm256_or_si256(_mm256_and_si256(_mm256_slli_epi32(x, 7), mask), bit);
        out[k + 2] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(x, 9), mask), bit);
    }
}

/* Four vectors of numbers below 256 to bytes, dealt out as emit() has them. */
INLINE __m256i pack(const __m256i q[4])
{
    return _mm256_packus_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
}

/* ---- Levels of a bucket -------------------------------------------------------------------------
 */

/* A bucket's scale as its groups use it. */
typedef struct plan {
    __m256 inverse, value[2]; /* what codes 0 to 7 and 8 to 15 stand for */
} plan_t;

INLINE plan_t plan_of(float scale, unsigned bits)
{
    const float *step = gw__natural_step[bits - GW_NATURAL_BITS_LEAST];
    __m256 all = _mm256_set1_ps(scale);
    return (plan_t){_mm256_set1_ps(gw__natural_top(bits) / scale),
                    {_mm256_mul_ps(all, _mm256_loadu_ps(step)),
                     bits < 5 ? all : _mm256_mul_ps(all, _mm256_loadu_ps(step + 8))}};
}

/* What codes, without bits above them, stand for. The look-up itself takes the low three bits. */
INLINE __m256 value_of(const plan_t *plan, __m256i code, unsigned bits)
{
    __m256 value = _mm256_permutevar8x32_ps(plan->value[0], code);
    if (bits < 4)
        return value;
    if (bits == 5) {
        __m256 upper = _mm256_permutevar8x32_ps(plan->value[1], code);
        value = _mm256_blendv_ps(value, upper, _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
    }
    __m256 sign = _mm256_castsi256_ps(_mm256_slli_epi32(code, (int)(32 - bits)));
    return _mm256_xor_ps(value, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

INLINE __m256i code_of(const plan_t *plan, __m256 p, __m256i noise, unsigned bits)
{
    int last = (1 << (bits - 1)) - 1;
    __m256 t = _mm256_mul_ps(_mm256_castsi256_ps(magnitude_of(p)), plan->inverse);
    __m256 u = _mm256_add_ps(t, _mm256_max_ps(t, _mm256_set1_ps(GW_NATURAL_LEAST)));
    __m256i field = _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(u), noise), 23);
    field = _mm256_min_epu32(field, _mm256_set1_epi32((int)GW_NATURAL_FIELD + last));
    __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(_mm256_castps_si256(p), 31), (int)bits - 1);
    return _mm256_or_si256(_mm256_and_si256(field, _mm256_set1_epi32(last)), sign);
}

INLINE void code_bucket(const job_t *job, float scale, uint8_t *dst, way_t way)
{
    size_t n = job->spec->bucket;
    plan_t plan = plan_of(scale, way.bits);
    for (size_t i = 0; i < n; i += 32, dst += 4 * way.bits) {
        __m256i q[4], noise[4];
        prefetch_input(job, i, way.ef);
        noise_at(job->noise, i, noise, way.stochastic);
        for (size_t k = 0; k < 4; k++) {
            __m256 p = load_p(job->src, job->residual, i + 8 * k, way.ef);
            q[k] = code_of(&plan, p, noise[k], way.bits);
            if (way.ef)
                _mm256_storeu_ps(job->residual + i + 8 * k,
                                 _mm256_sub_ps(p, value_of(&plan, q[k], way.bits)));
        }
        emit(pack(q), dst, i + 32 == n, way.bits);
    }
}

/* ---- Powers of two ------------------------------------------------------------------------------
 */

/* 8 exponents; what was lost to kept. *signs gets p, but +0 where that is not finite; returns where
 * it is not. */
INLINE __m256i power_of(__m256 p, __m256i noise, float *kept, __m256i *power, __m256i *signs,
                        bool ef)
{
    __m256i magnitude = magnitude_of(p);
    __m256i x = _mm256_srli_epi32(_mm256_add_epi32(magnitude, noise), 23);
    x = _mm256_min_epu32(x, _mm256_set1_epi32(GW_NATURAL_LAST));
    __m256i bad = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F7FFFFF));
    *signs = _mm256_andnot_si256(bad, _mm256_castps_si256(p));
    *power = _mm256_or_si256(x, _mm256_srli_epi32(bad, 24)); /* 255 */
    if (ef) {
        __m256 sign = _mm256_and_ps(p, _mm256_set1_ps(-0.0f));
        __m256 value = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_slli_epi32(x, 23)));
        __m256 lost = _mm256_sub_ps(p, value), old = _mm256_loadu_ps(kept);
        _mm256_storeu_ps(kept, _mm256_blendv_ps(lost, old, _mm256_castsi256_ps(bad)));
    }
    return bad;
}

/* The sign bits of 32 numbers, in order. Saturation keeps signs; both packs deal out groups of
 * four. */
INLINE uint32_t signs_of(const __m256i p[4])
{
    __m256i low = _mm256_packs_epi32(p[0], p[1]), high = _mm256_packs_epi32(p[2], p[3]);
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return (uint32_t)_mm256_movemask_epi8(
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
}

INLINE size_t code_powers(const job_t *job, uint8_t *dst, way_t way)
{
    size_t n = job->spec->bucket, poisoned = 0;
    for (size_t i = 0; i < n; i += 32) {
        __m256i power[4], sign[4], noise[4], bad[4];
        noise_at(job->noise, i, noise, way.stochastic);
        prefetch_input(job, i, way.ef);
        for (size_t k = 0; k < 4; k++) {
            size_t at = i + 8 * k;
            bad[k] = power_of(load_p(job->src, job->residual, at, way.ef), noise[k],
                              way.ef ? job->residual + at : NULL, &power[k], &sign[k], way.ef);
        }
        emit(pack(power), dst + i, i + 32 == n, 8);
        gw__store32(dst + n + i / 8, signs_of(sign));
        __m256i any =
            _mm256_or_si256(_mm256_or_si256(bad[0], bad[1]), _mm256_or_si256(bad[2], bad[3]));
        if (__builtin_expect(!_mm256_testz_si256(any, any), 0))
            poisoned += (size_t)__builtin_popcount(signs_of(bad));
    }
    return poisoned;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* Stores or adds 16 values; *unordered gathers lanes in which a sum is NaN. */
INLINE void put(float *to, __m256 a, __m256 b, __m256 *unordered, bool add)
{
    if (add) {
        a = _mm256_add_ps(_mm256_loadu_ps(to), a);
        b = _mm256_add_ps(_mm256_loadu_ps(to + 8), b);
        *unordered = _mm256_or_ps(*unordered, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
    }
    _mm256_storeu_ps(to, a);
    _mm256_storeu_ps(to + 8, b);
}

INLINE void decode_levels(const uint8_t *src, size_t n, float *dst, unsigned bits, bool add)
{
    plan_t plan = plan_of(gw__load_float(src), bits);
    __m256 unordered = _mm256_setzero_ps();
    uint8_t end[32 + 8] = {0}; /* the last group, so that nothing behind the payload is read */
    src += 4;
    for (size_t i = 0; i < n; i += 32, src += 4 * bits) {
        const uint8_t *at = src;
        prefetch(dst + i, 32 * sizeof *dst);
        if (over_reads(bits) && i + 32 == n)
            at = memcpy(end, src, 4 * bits);
        for (unsigned k = 0; k < 4; k += 2)
            put(dst + i + 8 * k, value_of(&plan, take(at, k, bits), bits),
                value_of(&plan, take(at, k + 1, bits), bits), &unordered, add);
    }
    if (add && _mm256_movemask_ps(unordered))
        clean_nan(dst, n);
}

/* 8 numbers, with the signs of bits 8 k .. 8 k + 7 of `signs`. */
INLINE __m256 power_value(const uint8_t *exponents, __m256i signs, int k)
{
    __m256i left = _mm256_sub_epi32(_mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24),
                                    _mm256_set1_epi32(8 * k));
    __m256i power = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)exponents));
    __m256i bad = _mm256_cmpeq_epi32(power, _mm256_set1_epi32(GW_NATURAL_POISON));
    __m256i sign = _mm256_and_si256(_mm256_sllv_epi32(signs, left), _mm256_set1_epi32(INT32_MIN));
    __m256i value = _mm256_or_si256(_mm256_slli_epi32(power, 23), sign);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(value, _mm256_set1_epi32(GW_NAN_BITS), bad));
}

INLINE void decode_powers(const uint8_t *src, size_t n, float *dst, bool add)
{
    __m256 unordered = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += 32) {
        __m256i signs = _mm256_set1_epi32((int)gw__load32(src + n + i / 8));
        prefetch(dst + i, 32 * sizeof *dst);
        for (int k = 0; k < 4; k += 2)
            put(dst + i + 8 * k, power_value(src + i + 8 * k, signs, k),
                power_value(src + i + 8 * k + 8, signs, k + 1), &unordered, add);
    }
    if (add && _mm256_movemask_ps(unordered))
        clean_nan(dst, n);
}

void gw__natural_avx2_fill(gw_natural_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
