/* SPDX-License-Identifier: Apache-2.0 */
/* Casts with AVX-512 (F, BW): the bytes of ref/cast_ref.c. */
#include "x86.h"

#include "fpmode.h"
#include "half.h"
#include "ref.h"
#include "stream.h"

/* The rules of the instructions are told in cast_avx2.c. bf16 is made in integers: the instruction
 * of newer processors flushes denormals. */
INLINE __m512 widen(__m256i half, bool bf16)
{
    if (!bf16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

INLINE __mmask16 nan_mask(__m512i x)
{
    __m512i magnitude = _mm512_and_si512(x, _mm512_set1_epi32(INT32_MAX));
    return _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7F800000));
}

INLINE __m512i round_bf16(__m512i x)
{
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7FFF)), odd);
}

static GW_KERNEL_BODY size_t f16_to_f32_body(const uint8_t *src, uint8_t *dst, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(dst + 4 * i, 64);
        __m256i half = _mm256_loadu_si256((const __m256i *)(src + 2 * i));
        _mm512_storeu_ps(dst + 4 * i, _mm512_cvtph_ps(half));
    }
    return i;
}

static GW_KERNEL_BODY size_t f32_to_f16_body(const uint8_t *src, uint8_t *dst, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(src + 4 * i, 64);
        prefetch(dst + 2 * i, 32);
        __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(src + 4 * i), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256((__m256i *)(dst + 2 * i), half);
    }
    return i;
}

static size_t bf16_to_f32_body(const uint8_t *src, uint8_t *dst, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(dst + 4 * i, 64);
        __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(src + 2 * i)));
        x = _mm512_slli_epi32(x, 16);
        x = _mm512_mask_or_epi32(x, nan_mask(x), x, _mm512_set1_epi32(0x400000));
        _mm512_storeu_si512(dst + 4 * i, x);
    }
    return i;
}

static size_t f32_to_bf16_body(const uint8_t *src, uint8_t *dst, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(src + 4 * i, 64);
        prefetch(dst + 2 * i, 32);
        __m512i x = _mm512_loadu_si512(src + 4 * i);
        __m512i y =
            _mm512_mask_or_epi32(round_bf16(x), nan_mask(x), x, _mm512_set1_epi32(0x400000));
        _mm256_storeu_si256((__m256i *)(dst + 2 * i),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16)));
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
INLINE __m512i times(__m512i a, uint64_t by)
{
    __m512i low = _mm512_set1_epi64((int64_t)by), high = _mm512_set1_epi64((int64_t)(by >> 32));
    __m512i cross = _mm512_add_epi64(_mm512_mul_epu32(_mm512_srli_epi64(a, 32), low),
                                     _mm512_mul_epu32(a, high));
    return _mm512_add_epi64(_mm512_mul_epu32(a, low), _mm512_slli_epi64(cross, 32));
}

/* gw__splitmix of eight numbers. */
INLINE __m512i splitmix(__m512i h)
{
    h = times(_mm512_xor_si512(h, _mm512_srli_epi64(h, 30)), UINT64_C(0xBF58476D1CE4E5B9));
    h = times(_mm512_xor_si512(h, _mm512_srli_epi64(h, 27)), UINT64_C(0x94D049BB133111EB));
    return _mm512_xor_si512(h, _mm512_srli_epi64(h, 31));
}

/* gw__stochastic_bf16 of sixteen elements. */
INLINE __m256i stochastic(__m512i x, __m256i noise)
{
    __m512i exponent = _mm512_set1_epi32(0x7F800000);
    __m512i up = _mm512_add_epi32(x, _mm512_cvtepu16_epi32(noise));
    __mmask16 stays = _mm512_cmpeq_epi32_mask(_mm512_and_si512(up, exponent), exponent) |
                      _mm512_cmpeq_epi32_mask(_mm512_and_si512(x, exponent), exponent);
    __m512i y = _mm512_mask_mov_epi32(up, stays, x);
    y = _mm512_mask_or_epi32(y, nan_mask(x), y, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16));
}

/* From a multiple of 4 of the call on. */
static size_t stochastic_body(const float *src, uint8_t *dst, size_t count, uint64_t quad,
                              uint64_t key)
{
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        uint64_t next = key + (quad + i / 4 + 1) * GW_SPLITMIX_STEP;
        __m512i steps = times(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), GW_SPLITMIX_STEP);
        __m512i noise = splitmix(_mm512_add_epi64(_mm512_set1_epi64((int64_t)next), steps));
        prefetch(src + i, 128);
        prefetch(dst + 2 * i, 64);
        __m256i low = stochastic(_mm512_loadu_si512(src + i), _mm512_castsi512_si256(noise));
        __m256i high =
            stochastic(_mm512_loadu_si512(src + i + 16), _mm512_extracti64x4_epi64(noise, 1));
        _mm256_storeu_si256((__m256i *)(dst + 2 * i), low);
        _mm256_storeu_si256((__m256i *)(dst + 2 * i + 32), high);
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

enum { GROUP = 64 }; /* elements */

/* Finite elements; of bf16 none that rounds to an Inf, of fp16 those beyond the greatest number
 * become it. */
INLINE __m256i narrow_finite(__m512 p, bool bf16)
{
    if (bf16)
        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bf16(_mm512_castps_si512(p)), 16));
    p = _mm512_min_ps(_mm512_max_ps(p, _mm512_set1_ps(-65504.0f)), _mm512_set1_ps(65504.0f));
    return _mm512_cvtps_ph(p, _MM_FROUND_TO_NEAREST_INT);
}

INLINE __m512 load_p(const float *src, const float *residual, size_t i, bool ef)
{
    __m512 p = _mm512_loadu_ps(src + i);
    prefetch_floats(src, residual, i, 16, ef);
    if (!ef)
        return p;
    return _mm512_add_ps(p, _mm512_loadu_ps(residual + i));
}

/* From here on the reference does the group: not finite, or for bf16 what rounds to an Inf. */
#define ORDINARY(bf16) ((bf16) ? 0x7F7F7FFF : 0x7F7FFFFF)

/* Whole groups. */
INLINE size_t encode_groups(const gw_float_spec_t *spec, const float *src, float *residual,
                            size_t count, uint8_t *dst, bool bf16, bool ef)
{
    size_t poisoned = 0;
    for (size_t i = 0; i + GROUP <= count; i += GROUP) {
        __m512 p[4];
        __m512i most = _mm512_setzero_si512();
        prefetch(dst + 2 * i, 2 * GROUP);
        for (int k = 0; k < 4; k++) {
            p[k] = load_p(src, residual, i + 16 * k, ef);
            most = _mm512_max_epi32(most, _mm512_castps_si512(_mm512_abs_ps(p[k])));
        }
        if (__builtin_expect(_mm512_cmpgt_epi32_mask(most, _mm512_set1_epi32(ORDINARY(bf16))), 0)) {
            poisoned +=
                gw__cast_ref_encode(spec, src + i, ef ? residual + i : NULL, GROUP, dst + 2 * i);
            continue;
        }
        for (size_t k = 0; k < 4; k++) {
            __m256i half = narrow_finite(p[k], bf16);
            _mm256_storeu_si256((__m256i *)(dst + 2 * i) + k, half);
            if (ef)
                _mm512_storeu_ps(residual + i + 16 * k, _mm512_sub_ps(p[k], widen(half, bf16)));
        }
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
    __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(GW_NAN_BITS));
    for (size_t i = 0; i + 16 <= count; i += 16) {
        prefetch(dst + i, 64);
        __m512 v = widen(_mm256_loadu_si256((const __m256i *)(payload + 2 * i)), bf16);
        v = _mm512_add_ps(_mm512_loadu_ps(dst + i), v);
        v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
        _mm512_storeu_ps(dst + i, v);
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

void gw__cast_avx512_fill(gw_cast_kernels_t *table)
{
    *table = (gw_cast_kernels_t){f16_to_f32, f32_to_f16, bf16_to_f32,    f32_to_bf16,
                                 encode,     add_to,     bf16_stochastic};
}
