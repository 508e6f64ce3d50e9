/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of binary32 arrays with AVX2: the bytes of ref/sum_ref.c. */
#include "x86.h"

#include "fpmode.h"
#include "ref.h"
#include "stream.h"

static __m256 one_nan(__m256 x)
{
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(GW_NAN_BITS));
    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static __m256 load(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)p));
}

static GW_KERNEL_BODY size_t add_body(float *dst, const uint8_t *src, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(dst + i, 64);
        prefetch(src + 4 * i, 64);
        __m256 a = _mm256_add_ps(_mm256_loadu_ps(dst + i), load(src + 4 * i));
        __m256 b = _mm256_add_ps(_mm256_loadu_ps(dst + i + 8), load(src + 4 * i + 32));
        _mm256_storeu_ps(dst + i, one_nan(a));
        _mm256_storeu_ps(dst + i + 8, one_nan(b));
    }
    return i;
}

static GW_KERNEL_BODY size_t scale_body(float *dst, float factor, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m256 a = _mm256_mul_ps(_mm256_loadu_ps(dst + i), _mm256_set1_ps(factor));
        __m256 b = _mm256_mul_ps(_mm256_loadu_ps(dst + i + 8), _mm256_set1_ps(factor));
        prefetch(dst + i, 64);
        _mm256_storeu_ps(dst + i, one_nan(a));
        _mm256_storeu_ps(dst + i + 8, one_nan(b));
    }
    return i;
}

static void add(float *dst, const void *src, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    size_t i = add_body(dst, src, count);
    gw__fpmode_leave(mode);
    gw__sum_ref_add(dst + i, (const uint8_t *)src + 4 * i, count - i);
}

static void scale(float *dst, float factor, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    size_t i = scale_body(dst, factor, count);
    gw__fpmode_leave(mode);
    gw__sum_ref_scale(dst + i, factor, count - i);
}

void gw__sum_avx2_fill(gw_sum_kernels_t *table)
{
    *table = (gw_sum_kernels_t){add, scale};
}
