/* SPDX-License-Identifier: Apache-2.0 */
/* Max-min quantisation with AVX-512 (F, BW, DQ, VL): the bytes of ref/quant_ref.c. */
#include "x86.h"

#include "quant_code_avx512.h"
#include "quant_encode.h"

#include "quant_decode.h"

INLINE extremes_t code_bucket(const job_t *job, const gw_quant_grid_t *g, uint8_t *dst,
                              const job_t *ahead, way_t way)
{
    size_t n = job->spec->bucket, i = 0;
    extremes_t e = extremes_start();
    plan_t plan = plan_of(g);
    dst += GW_QUANT_META_BYTES;
    for (; i + 64 <= n; i += 64, dst += 8 * way.bits) {
        prefetch_floats(ahead->src, ahead->residual, i, 64, way.adds);
        extremes_take(&e, ahead->src, ahead->residual, i, way.adds);
        extremes_take(&e, ahead->src, ahead->residual, i + 32, way.adds);
        code_group(job, &plan, i, dst, 4, i + 64 == n, way);
    }
    if (i < n) {
        extremes_take(&e, ahead->src, ahead->residual, i, way.adds);
        code_group(job, &plan, i, dst, 2, true, way);
    }
    return e;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* The values of 16 codes: looked up where a register holds all of them. */
INLINE __m512 decode_vector(const uint8_t *src, __m512 min, __m512 unit, __m512 values,
                            unsigned bits)
{
    __m512i x = take(src, bits);
    if (bits == 4)
        return _mm512_permutexvar_ps(x, values);
    x = _mm512_and_si512(x, _mm512_set1_epi32((1 << bits) - 1));
    return bits < 4 ? _mm512_permutexvar_ps(x, values) : value_of(min, unit, x);
}

INLINE void decode_bucket(const uint8_t *src, size_t n, float *dst, unsigned bits, bool add)
{
    __m512 min = _mm512_set1_ps(gw__load_float(src));
    __m512 unit = _mm512_set1_ps(gw__load_float(src + 4));
    __m512 values = first_values(min, unit);
    __mmask16 ordered = 0xFFFF;
    uint8_t end[32 + 16] = {0}; /* the last group, so that nothing behind the payload is read */
    src += GW_QUANT_META_BYTES;
    for (size_t i = 0; i < n; i += 32, src += 4 * bits) {
        const uint8_t *at = src;
        float *to = dst + i;
        prefetch(to, 32 * sizeof *to);
        if (over_reads(bits) && i + 32 == n)
            at = memcpy(end, src, 4 * bits);
        __m512 a = decode_vector(at, min, unit, values, bits);
        __m512 b = decode_vector(at + 2 * bits, min, unit, values, bits);
        if (add) {
            a = _mm512_add_ps(_mm512_loadu_ps(to), a);
            b = _mm512_add_ps(_mm512_loadu_ps(to + 16), b);
            ordered = _mm512_mask_cmp_ps_mask(ordered, a, b, _CMP_ORD_Q);
        }
        _mm512_storeu_ps(to, a);
        _mm512_storeu_ps(to + 16, b);
    }
    if (add && ordered != 0xFFFF)
        clean_nan(dst, n);
}

void gw__quant_avx512_fill(gw_quant_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
