/* SPDX-License-Identifier: Apache-2.0 */
/* What a block of elements weighs with AVX-512: the results of ref/block_ref.c. */
#include "x86.h"

#include <immintrin.h>

#include "block_rms.h"
#include "fpmode.h"
#include "ref.h"

/* A square is exact in binary64, so that multiplying and adding in one rounds as the reference
 * does. */
static GW_KERNEL_BODY float rms_body(const float *x, size_t count)
{
    double sum[GW_BLOCK_SUMS];
    __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(x + i));
        __m512d b = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8));
        low = _mm512_fmadd_pd(a, a, low);
        high = _mm512_fmadd_pd(b, b, high);
    }
    _mm512_storeu_pd(sum, low);
    _mm512_storeu_pd(sum + 8, high);
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

/* Looking for bits is bound by memory: `any` stays that of AVX2. */
void gw__block_avx512_fill(gw_block_kernels_t *table)
{
    table->rms = rms;
}
