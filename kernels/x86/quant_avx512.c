/* SPDX-License-Identifier: Apache-2.0 */
/* Max-min quantisation with AVX-512 (F, BW, DQ, VL): the bytes of ref/quant_ref.c. */
#include "x86.h"

#include "quant_code_avx512.h"
#include "quant_encode.h"

INLINE extremes_t code_bucket(const job_t *job, const gw_quant_grid_t *g, uint8_t *dst,
                              const job_t *ahead, way_t way)
{
    size_t n = job->spec->bucket, i = 0;
    extremes_t e = extremes_start();
    plan_t plan = plan_of(g);
    dst += GW_QUANT_META_BYTES;
    for (; i + 64 <= n; i += 64, dst += 8 * way.bits) {
        prefetch(ahead->src, ahead->residual, i, way.adds);
        prefetch(ahead->src, ahead->residual, i + 32, way.adds);
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

/* NaN in dst keeps no payload: the sum of a bucket is cleaned when one was seen. */
static void clean_nan(float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (dst[i] != dst[i])
            dst[i] = gw__float_of(GW_NAN_BITS);
}

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

INLINE void decode_buckets(const gw_quant_spec_t *spec, const uint8_t *payload, size_t buckets,
                           float *dst, unsigned bits, bool add)
{
    size_t n = spec->bucket, stride = gw__quant_bytes(bits, n);
    float levels = (float)((1 << bits) - 1);
    for (size_t k = 0; k < buckets; k++, payload += stride, dst += n) {
        float min = gw__load_float(payload), unit = gw__load_float(payload + 4);
        if (min != min || gw__quant_is_wide(min, unit, levels))
            gw__quant_ref_decode_bucket(spec, payload, n, add, dst);
        else
            decode_bucket(payload, n, dst, bits, add);
    }
}

typedef void (*decode_fn)(const gw_quant_spec_t *spec, const uint8_t *payload, size_t buckets,
                          float *dst);

#define DECODER(bits, mode)                                                                        \
    static GW_KERNEL_BODY void decode_##bits##_##mode(                                             \
        const gw_quant_spec_t *spec, const uint8_t *payload, size_t buckets, float *dst)           \
    {                                                                                              \
        decode_buckets(spec, payload, buckets, dst, bits, mode);                                   \
    }
#define DECODERS(bits)                                                                             \
    DECODER(bits, 0)                                                                               \
    DECODER(bits, 1)
#define DECODER_ROW(bits)                                                                          \
    {                                                                                              \
        decode_##bits##_0, decode_##bits##_1                                                       \
    }

DECODERS(1)
DECODERS(2)
DECODERS(3)
DECODERS(4)
DECODERS(5)
DECODERS(6)
DECODERS(7)
DECODERS(8)

static const decode_fn decoders[8][2] = {DECODER_ROW(1), DECODER_ROW(2), DECODER_ROW(3),
                                         DECODER_ROW(4), DECODER_ROW(5), DECODER_ROW(6),
                                         DECODER_ROW(7), DECODER_ROW(8)};

static void decode(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst,
                   bool add)
{
    size_t buckets = count / spec->bucket, done = buckets * spec->bucket;
    uint64_t mode = gw__fpmode_enter();
    if (buckets)
        decoders[spec->bits - 1][add](spec, payload, buckets, dst);
    gw__fpmode_leave(mode);
    payload += buckets * gw__quant_bytes(spec->bits, spec->bucket);
    if (done < count && add)
        gw__quant_ref_add(spec, payload, count - done, dst + done);
    else if (done < count)
        gw__quant_ref_store(spec, payload, count - done, dst + done);
}

static void store(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, false);
}

static void add_to(const gw_quant_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    decode(spec, payload, count, dst, true);
}

void gw__quant_avx512_fill(gw_quant_kernels_t *table)
{
    table->encode = encode;
    table->store = store;
    table->add = add_to;
}
