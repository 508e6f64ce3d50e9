/* SPDX-License-Identifier: Apache-2.0 */
/* Max-min quantisation with AVX2: the bytes of ref/quant_ref.c. */
#include "x86.h"

#include "quant_code_avx2.h"
#include "quant_encode.h"

#include "quant_decode.h"

INLINE extremes_t code_bucket(const job_t *job, const gw_quant_grid_t *g, uint8_t *dst,
                              const job_t *ahead, way_t way)
{
    size_t n = job->spec->bucket;
    extremes_t e = extremes_start();
    plan_t plan = plan_of(g);
    dst += GW_QUANT_META_BYTES;
    for (size_t i = 0; i < n; i += 32, dst += 4 * way.bits) {
        prefetch_floats(ahead->src, ahead->residual, i, 32, way.adds);
        extremes_take(&e, ahead->src, ahead->residual, i, way.adds);
        code_group(job, &plan, i, dst, i + 32 == n, way);
    }
    return e;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

INLINE __m256 decode_vector(const uint8_t *src, unsigned k, __m256 min, __m256 unit, unsigned bits)
{
    __m256 step = _mm256_mul_ps(unit, _mm256_cvtepi32_ps(take(src, k, bits)));
    return _mm256_add_ps(min, step);
}

INLINE void decode_bucket(const uint8_t *src, size_t n, float *dst, unsigned bits, bool add)
{
    __m256 min = _mm256_set1_ps(gw__load_float(src)),
           unit = _mm256_set1_ps(gw__load_float(src + 4));
    __m256 unordered = _mm256_setzero_ps();
    uint8_t end[32 + 8] = {0}; /* the last group, so that nothing behind the payload is read */
    src += GW_QUANT_META_BYTES;
    for (size_t i = 0; i < n; i += 32, src += 4 * bits) {
        const uint8_t *at = src;
        prefetch(dst + i, 32 * sizeof *dst);
        if (over_reads(bits) && i + 32 == n)
            at = memcpy(end, src, 4 * bits);
        for (unsigned k = 0; k < 4; k += 2) {
            float *to = dst + i + 8 * k;
            __m256 a = decode_vector(at, k, min, unit, bits);
            __m256 b = decode_vector(at, k + 1, min, unit, bits);
            if (add) {
                a = _mm256_add_ps(_mm256_loadu_ps(to), a);
                b = _mm256_add_ps(_mm256_loadu_ps(to + 8), b);
                unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
            }
            _mm256_storeu_ps(to, a);
            _mm256_storeu_ps(to + 8, b);
        }
    }
    if (add && _mm256_movemask_ps(unordered))
        clean_nan(dst, n);
}

void gw__quant_avx2_fill(gw_quant_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
