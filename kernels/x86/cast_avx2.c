/* SPDX-License-Identifier: Apache-2.0 */
/* Casts with AVX2 and F16C: the bytes of ref/cast_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "fpmode.h"
#include "ref.h"

/* F16C rounds by its own operand, keeps denormals unless DAZ is set (which fpmode.h clears) and
 * quiets a NaN with its payload: the reference's rules. */
static GW_KERNEL_BODY size_t f16_to_f32_body(const uint8_t *src, uint8_t *dst, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i *)(src + 2 * i));
        _mm256_storeu_ps((float *)(void *)(dst + 4 * i), _mm256_cvtph_ps(half));
    }
    return i;
}

static GW_KERNEL_BODY size_t f32_to_f16_body(const uint8_t *src, uint8_t *dst, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 x = _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(src + 4 * i)));
        _mm_storeu_si128((__m128i *)(dst + 2 * i), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
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
    for (; i + 8 <= count; i += 8) {
        __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(src + 2 * i)));
        x = _mm256_slli_epi32(x, 16);
        __m256i quiet = _mm256_and_si256(is_nan(x), _mm256_set1_epi32(0x400000));
        _mm256_storeu_si256((__m256i *)(dst + 4 * i), _mm256_or_si256(x, quiet));
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

void gw__cast_avx2_fill(gw_cast_kernels_t *table)
{
    *table = (gw_cast_kernels_t){f16_to_f32, f32_to_f16, bf16_to_f32, f32_to_bf16};
}
