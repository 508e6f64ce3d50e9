/* SPDX-License-Identifier: Apache-2.0 */
/* Casts with AVX2 and F16C: the bytes of ref/cast_ref.c. */
#include "x86.h"

#include "fpmode.h"
#include "half.h"
#include "ref.h"
#include "stream.h"

/* F16C rounds by its own operand, keeps denormals unless DAZ is set (which fpmode.h clears) and
 * quiets a NaN with its payload: the reference's rules. */
static GW_KERNEL_BODY size_t f16_to_f32_body(const uint8_t *src, uint8_t *dst, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(dst + 4 * i, 64);
        for (size_t k = i; k < i + 16; k += 8) {
            __m128i half = _mm_loadu_si128((const __m128i *)(src + 2 * k));
            _mm256_storeu_ps((float *)(void *)(dst + 4 * k), _mm256_cvtph_ps(half));
        }
    }
    return i;
}

static GW_KERNEL_BODY size_t f32_to_f16_body(const uint8_t *src, uint8_t *dst, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(src + 4 * i, 64);
        prefetch(dst + 2 * i, 32);
        for (size_t k = i; k < i + 16; k += 8) {
            __m256 x = _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(src + 4 * k)));
            _mm_storeu_si128((__m128i *)(dst + 2 * k),
                             _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
        }
    }
    return i;
}

static __m256i is_nan(__m256i x)
{
    __m256i magnitude = _mm256_and_si256(x, _mm256_set1_epi32(0x7FFFFFFF));
    return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
}

static size_t bf16_to_f32_body(const uint8_t *src, uint8_t *dst, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(dst + 4 * i, 64);
        for (size_t k = i; k < i + 16; k += 8) {
            __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(src + 2 * k)));
            x = _mm256_slli_epi32(x, 16);
            __m256i quiet = _mm256_and_si256(is_nan(x), _mm256_set1_epi32(0x400000));
            _mm256_storeu_si256((__m256i *)(dst + 4 * k), _mm256_or_si256(x, quiet));
        }
    }
    return i;
}

/* In integers throughout: the bf16 instructions of newer CPUs flush denormals. */
static __m256i narrow_bf16(__m256i x)
{
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7FFF)), odd);
    __m256i quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x400000));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan(x)), 16);
}

static size_t f32_to_bf16_body(const uint8_t *src, uint8_t *dst, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(src + 4 * i, 64);
        prefetch(dst + 2 * i, 32);
        __m256i a = narrow_bf16(_mm256_loadu_si256((const __m256i *)(src + 4 * i)));
        __m256i b = narrow_bf16(_mm256_loadu_si256((const __m256i *)(src + 4 * i + 32)));
        __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
        _mm256_storeu_si256((__m256i *)(dst + 2 * i), both);
    }
    return i;
}

static void f16_to_f32(const void *src, void *dst, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    size_t i = f16_to_f32_body(src, dst, count);
    gw__fpmode_leave(mode);
    gw__cast_ref_f16_to_f32((const uint8_t *)src + 2 * i, (uint8_t *)dst + 4 * i, count - i);
}

static void f32_to_f16(const void *src, void *dst, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    size_t i = f32_to_f16_body(src, dst, count);
    gw__fpmode_leave(mode);
    gw__cast_ref_f32_to_f16((const uint8_t *)src + 4 * i, (uint8_t *)dst + 2 * i, count - i);
}

static void bf16_to_f32(const void *src, void *dst, size_t count)
{
    size_t i = bf16_to_f32_body(src, dst, count);
    gw__cast_ref_bf16_to_f32((const uint8_t *)src + 2 * i, (uint8_t *)dst + 4 * i, count - i);
}

static void f32_to_bf16(const void *src, void *dst, size_t count)
{
    size_t i = f32_to_bf16_body(src, dst, count);
    gw__cast_ref_f32_to_bf16((const uint8_t *)src + 4 * i, (uint8_t *)dst + 2 * i, count - i);
}

/* ---- Stochastic rounding ------------------------------------------------------------------------
 */

/* The low 64 bits of products. */
INLINE __m256i times(__m256i a, uint64_t by)
{
    __m256i low = _mm256_set1_epi64x((int64_t)by), high = _mm256_set1_epi64x((int64_t)(by >> 32));
    __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), low),
                                     _mm256_mul_epu32(a, high));
    return _mm256_add_epi64(_mm256_mul_epu32(a, low), _mm256_slli_epi64(cross, 32));
}

/* gw__splitmix of four numbers. */
INLINE __m256i splitmix(__m256i h)
{
    h = times(_mm256_xor_si256(h, _mm256_srli_epi64(h, 30)), UINT64_C(0xBF58476D1CE4E5B9));
    h = times(_mm256_xor_si256(h, _mm256_srli_epi64(h, 27)), UINT64_C(0x94D049BB133111EB));
    return _mm256_xor_si256(h, _mm256_srli_epi64(h, 31));
}

/* gw__stochastic_bf16 of eight elements, in 32 bits each. */
INLINE __m256i stochastic(const float *src, __m128i noise)
{
    __m256i exponent = _mm256_set1_epi32(0x7F800000);
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)src);
    __m256i up = _mm256_add_epi32(x, _mm256_cvtepu16_epi32(noise));
    __m256i infinite = _mm256_cmpeq_epi32(_mm256_and_si256(x, exponent), exponent);
    __m256i stays =
        _mm256_or_si256(_mm256_cmpeq_epi32(_mm256_and_si256(up, exponent), exponent), infinite);
    __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(x, _mm256_set1_epi32(INT32_MAX)), exponent);
    __m256i y = _mm256_blendv_epi8(up, x, stays);
    y = _mm256_or_si256(y, _mm256_and_si256(nan, _mm256_set1_epi32(0x400000)));
    return _mm256_srli_epi32(y, 16);
}

/* From a multiple of 4 of the call on. */
static size_t stochastic_body(const float *src, uint8_t *dst, size_t count, uint64_t quad,
                              uint64_t key)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        uint64_t next = key + (quad + i / 4 + 1) * GW_SPLITMIX_STEP;
        __m256i steps = times(_mm256_set_epi64x(3, 2, 1, 0), GW_SPLITMIX_STEP);
        __m256i noise = splitmix(_mm256_add_epi64(_mm256_set1_epi64x((int64_t)next), steps));
        prefetch(src + i, 64);
        prefetch(dst + 2 * i, 32);
        __m256i low = stochastic(src + i, _mm256_castsi256_si128(noise));
        __m256i high = stochastic(src + i + 8, _mm256_extracti128_si256(noise, 1));
        __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
        _mm256_storeu_si256((__m256i *)(dst + 2 * i), both);
    }
    return i;
}

static void bf16_stochastic(const float *src, void *dst, size_t count, uint64_t first, uint64_t key)
{
    size_t head = (size_t)(-first % 4), i = head < count ? head : count;
    gw__cast_ref_bf16_stochastic(src, dst, i, first, key);
    i += stochastic_body(src + i, (uint8_t *)dst + 2 * i, count - i, (first + i) / 4, key);
    gw__cast_ref_bf16_stochastic(src + i, (uint8_t *)dst + 2 * i, count - i, first + i, key);
}

/* ---- For codec cast -----------------------------------------------------------------------------
 */

enum { GROUP = 32 }; /* elements */

INLINE __m256i magnitude_bits(__m256 p)
{
    return _mm256_and_si256(_mm256_castps_si256(p), _mm256_set1_epi32(INT32_MAX));
}

/* Finite elements; those beyond the greatest number become it. */
INLINE __m128i narrow_finite(__m256 p)
{
    p = _mm256_min_ps(_mm256_max_ps(p, _mm256_set1_ps(-65504.0f)), _mm256_set1_ps(65504.0f));
    return _mm256_cvtps_ph(p, _MM_FROUND_TO_NEAREST_INT);
}

/* Elements that do not round to an Inf, and no NaN. */
INLINE __m256i round_bf16(__m256 p)
{
    __m256i x = _mm256_castps_si256(p);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
    x = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7FFF)), odd);
    return _mm256_srli_epi32(x, 16);
}

INLINE __m256 widen(__m128i half, bool bf16)
{
    if (bf16)
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    return _mm256_cvtph_ps(half);
}

/* Two vectors to 16 halves. */
INLINE void emit(const __m256 p[2], uint8_t *dst, float *residual, bool bf16, bool ef)
{
    __m128i half[2];
    if (bf16) {
        __m256i both = _mm256_packus_epi32(round_bf16(p[0]), round_bf16(p[1]));
        both = _mm256_permute4x64_epi64(both, 0xD8);
        half[0] = _mm256_castsi256_si128(both);
        half[1] = _mm256_extracti128_si256(both, 1);
    } else {
        half[0] = narrow_finite(p[0]);
        half[1] = narrow_finite(p[1]);
    }
    for (int k = 0; k < 2; k++) {
        _mm_storeu_si128((__m128i *)dst + k, half[k]);
        if (ef)
            _mm256_storeu_ps(residual + 8 * k, _mm256_sub_ps(p[k], widen(half[k], bf16)));
    }
}

/* From here on the reference does the group: not finite, or for bf16 what rounds to an Inf. */
#define ORDINARY(bf16) ((bf16) ? 0x7F7F7FFF : 0x7F7FFFFF)

/* Whole groups. */
INLINE size_t encode_groups(const gw_float_spec_t *spec, const float *src, float *residual,
                            size_t count, uint8_t *dst, bool bf16, bool ef)
{
    size_t poisoned = 0;
    for (size_t i = 0; i + GROUP <= count; i += GROUP) {
        __m256 p[4];
        __m256i most = _mm256_setzero_si256();
        prefetch_floats(src, residual, i, GROUP, ef);
        prefetch(dst + 2 * i, 2 * GROUP);
        for (int k = 0; k < 4; k++) {
            p[k] = _mm256_loadu_ps(src + i + 8 * k);
            if (ef)
                p[k] = _mm256_add_ps(p[k], _mm256_loadu_ps(residual + i + 8 * k));
            most = _mm256_max_epi32(most, magnitude_bits(p[k]));
        }
        most = _mm256_cmpgt_epi32(most, _mm256_set1_epi32(ORDINARY(bf16)));
        if (__builtin_expect(_mm256_movemask_epi8(most), 0)) {
            poisoned +=
                gw__cast_ref_encode(spec, src + i, ef ? residual + i : NULL, GROUP, dst + 2 * i);
            continue;
        }
        for (int k = 0; k < 4; k += 2)
            emit(p + k, dst + 2 * i + 16 * k, ef ? residual + i + 8 * k : NULL, bf16, ef);
    }
    return poisoned;
}

static GW_KERNEL_BODY size_t encode_body(const gw_float_spec_t *spec, const float *src,
                                         float *residual, size_t count, uint8_t *dst)
{
    if (spec->format == GW_FLOAT_BF16)
        return residual ? encode_groups(spec, src, residual, count, dst, true, true)
                        : encode_groups(spec, src, residual, count, dst, true, false);
    return residual ? encode_groups(spec, src, residual, count, dst, false, true)
                    : encode_groups(spec, src, residual, count, dst, false, false);
}

static size_t encode(const gw_float_spec_t *spec, const float *src, float *residual, size_t count,
                     uint8_t *dst)
{
    size_t done = count / GROUP * GROUP;
    uint64_t mode = gw__fpmode_enter();
    size_t poisoned = encode_body(spec, src, residual, count, dst);
    gw__fpmode_leave(mode);
    return poisoned + gw__cast_ref_encode(spec, src + done, residual ? residual + done : NULL,
                                          count - done, dst + 2 * done);
}

/* A sum that is NaN gets the one pattern, so that it does not matter which one was widened. */
INLINE void add_vectors(const uint8_t *payload, size_t count, float *dst, bool bf16)
{
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(GW_NAN_BITS));
    for (size_t i = 0; i + 16 <= count; i += 16) {
        prefetch(dst + i, 64);
        for (size_t k = i; k < i + 16; k += 8) {
            __m256 v = widen(_mm_loadu_si128((const __m128i *)(payload + 2 * k)), bf16);
            v = _mm256_add_ps(_mm256_loadu_ps(dst + k), v);
            v = _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
            _mm256_storeu_ps(dst + k, v);
        }
    }
}

static GW_KERNEL_BODY void add_body(bool bf16, const uint8_t *payload, size_t count, float *dst)
{
    if (bf16)
        add_vectors(payload, count, dst, true);
    else
        add_vectors(payload, count, dst, false);
}

static void add_to(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    size_t done = count / 16 * 16;
    uint64_t mode = gw__fpmode_enter();
    add_body(spec->format == GW_FLOAT_BF16, payload, count, dst);
    gw__fpmode_leave(mode);
    gw__cast_ref_add(spec, payload + 2 * done, count - done, dst + done);
}

void gw__cast_avx2_fill(gw_cast_kernels_t *table)
{
    *table = (gw_cast_kernels_t){f16_to_f32, f32_to_f16, bf16_to_f32,    f32_to_bf16,
                                 encode,     add_to,     bf16_stochastic};
}
