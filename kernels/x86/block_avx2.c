/* SPDX-License-Identifier: Apache-2.0 */
/* What a block of elements weighs with AVX2: the results of ref/block_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "block_rms.h"
#include "fpmode.h"
#include "ref.h"

/* Bytes ahead of the place in work, into the second level. */
#define AHEAD 8192

static __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

static bool any(const void *x, size_t bytes, uint32_t mask)
{
    const uint8_t *at = x;
    const __m256i masks = _mm256_set1_epi32((int)mask);
    size_t i = 0;
    for (; i + 128 <= bytes; i += 128) {
        _mm_prefetch((const char *)at + i + AHEAD, _MM_HINT_T1);
        _mm_prefetch((const char *)at + i + AHEAD + 64, _MM_HINT_T1);
        __m256i a = _mm256_or_si256(load(at + i), load(at + i + 32));
        __m256i b = _mm256_or_si256(load(at + i + 64), load(at + i + 96));
        if (!_mm256_testz_si256(_mm256_or_si256(a, b), masks))
            return true;
    }
    return gw__block_ref_any(at + i, bytes - i, mask);
}

static GW_KERNEL_BODY float rms_body(const float *x, size_t count)
{
    double sum[GW_BLOCK_SUMS];
    __m256d part[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(),
                       _mm256_setzero_pd()};
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (int k = 0; k < 4; k++) {
            __m256d wide = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * k));
            part[k] = _mm256_add_pd(part[k], _mm256_mul_pd(wide, wide));
        }
    for (int k = 0; k < 4; k++)
        _mm256_storeu_pd(sum + 4 * k, part[k]);
    for (; i < count; i++)
        sum[i % GW_BLOCK_SUMS] += (double)x[i] * (double)x[i];
    return gw__block_rms(sum, count);
}

static float rms(const float *x, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    float result = rms_body(x, count);
    gw__fpmode_leave(mode);
    return result;
}

void gw__block_avx2_fill(gw_block_kernels_t *table)
{
    *table = (gw_block_kernels_t){any, rms};
}
