/* SPDX-License-Identifier: Apache-2.0 */
/* Sum and encode with AVX-512: the bytes of gw__quant_ref_reduce. */
#include "x86.h"

#include "fpmode.h"
#include "quant_code_avx512.h"
#include "quant_reduce.h"

/*
 * The sum of GROUP elements stays in registers while all contributions to them are read, and goes
 * to a buffer in the nearest cache with its extremes taken on the way.
 */

/* Elements whose sum is in registers. */
#define GROUP 128

/* Bytes from the place in work to the place prefetched: own elements into the second level as in
 * encode, payloads, of which each is a slow stream, into the first. */
#define OWN_AHEAD     16384
#define PAYLOAD_AHEAD 2048

/* The values of 16 codes, where a register holds all of them (bits <= 4), and the makings of
 * others. */
typedef struct table {
    __m512 values, min, unit, less;
} table_t;

INLINE table_t table_of(const uint8_t *meta, unsigned bits)
{
    table_t t;
    t.min = _mm512_set1_ps(gw__load_float(meta));
    t.unit = _mm512_set1_ps(gw__load_float(meta + 4));
    t.less = _mm512_mul_ps(t.unit, _mm512_set1_ps(-0x1p23f));
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    t.values = value_of(t.min, t.unit, _mm512_and_si512(lane, _mm512_set1_epi32((1 << bits) - 1)));
    return t;
}

/* Lane j: code j of 16 in its low four bits, and anything above them. A multiplication moves the
 * high halves of bytes up: the shuffle units have enough to do. */
INLINE __m512i take_4(const uint8_t *src)
{
    __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)src));
    return _mm512_mul_epu32(bytes, _mm512_set1_epi64(1 | 1 << 28));
}

/*
 * 16 values. A code in the low bits of 2^23 is the float 2^23 + code; the fused operation takes
 * unit * 2^23 (exact) off again and rounds unit * code once, as the product alone would.
 */
INLINE __m512 decode_16(const uint8_t *src, const table_t *t, unsigned bits)
{
    if (bits == 4)
        return _mm512_permutexvar_ps(take_4(src), t->values);
    __m512i x = take(src, bits);
    if (bits < 4)
        return _mm512_permutexvar_ps(x, t->values);
    __m512i whole = _mm512_ternarylogic_epi32(x, _mm512_set1_epi32((1 << bits) - 1),
                                              _mm512_castps_si512(_mm512_set1_ps(0x1p23f)), 0xEA);
    __m512 step = _mm512_fmadd_ps(t->unit, _mm512_castsi512_ps(whole), t->less);
    return _mm512_add_ps(t->min, step);
}

/* The contribution of a payload to 16 * vectors elements; `meta` is its bucket, `i` the place in
 * it. */
INLINE void take_payload(const uint8_t *meta, size_t i, __m512 *sum, size_t vectors, bool add,
                         bool last, unsigned bits)
{
    table_t t = table_of(meta, bits);
    const uint8_t *src = meta + GW_QUANT_META_BYTES + i / 8 * bits;
    uint8_t end[32 + 16]; /* the last group, so that nothing behind the payload is read */
    if (over_reads(bits) && last)
        src = memcpy(end, src, 4 * bits);
    for (size_t byte = 0; byte < 2 * bits * vectors; byte += 64)
        _mm_prefetch((const char *)src + PAYLOAD_AHEAD + byte, _MM_HINT_T0);
    for (size_t v = 0; v < vectors; v++) {
        __m512 x = decode_16(src + 2 * bits * v, &t, bits);
        sum[v] = add ? _mm512_add_ps(sum[v], x) : x;
    }
}

INLINE void take_own(const float *own, __m512 *sum, size_t vectors, bool add)
{
    for (size_t v = 0; v < vectors; v++) {
        _mm_prefetch((const char *)(own + 16 * v) + OWN_AHEAD, _MM_HINT_T1);
        __m512 x = _mm512_loadu_ps(own + 16 * v);
        sum[v] = add ? _mm512_add_ps(sum[v], x) : x;
    }
}

/* The scaled sum and the residual, to the buffer, with the extremes. */
INLINE void finish(const gw_quant_task_t *t, const float *residual, __m512 *sum, size_t vectors,
                   float *p, extremes_t *e)
{
    if (t->sum->scale != 1.0f)
        for (size_t v = 0; v < vectors; v++)
            sum[v] = _mm512_mul_ps(sum[v], _mm512_set1_ps(t->sum->scale));
    for (size_t v = 0; residual && v < vectors; v++) {
        _mm_prefetch((const char *)(residual + 16 * v) + OWN_AHEAD, _MM_HINT_T1);
        sum[v] = _mm512_add_ps(sum[v], _mm512_loadu_ps(residual + 16 * v));
    }
    for (size_t v = 0; v < vectors; v++) {
        __m512i bits = _mm512_castps_si512(sum[v]);
        _mm512_store_ps(p + 16 * v, sum[v]);
        e->most0 = _mm512_max_epi32(e->most0, bits);
        e->least0 = _mm512_max_epu32(e->least0, bits);
    }
}

/* 16 * vectors elements from place i of bucket k on. */
INLINE void sum_group(const gw_quant_task_t *t, size_t k, size_t i, float *p, extremes_t *e,
                      size_t vectors, bool last, unsigned bits)
{
    const gw_quant_sum_t *s = t->sum;
    const float *own = s->own + k * t->spec->bucket + i;
    const float *residual = t->residual ? t->residual + k * t->spec->bucket + i : NULL;
    size_t at = s->skip + k * t->stride, j = 0;
    __m512 sum[GROUP / 16];
    if (s->own_at == 0)
        take_own(own, sum, vectors, false);
    else
        take_payload(s->payload[j++] + at, i, sum, vectors, false, last, bits);
    for (; j < s->own_at; j++)
        take_payload(s->payload[j] + at, i, sum, vectors, true, last, bits);
    if (s->own_at)
        take_own(own, sum, vectors, true);
    for (; j < s->payloads; j++)
        take_payload(s->payload[j] + at, i, sum, vectors, true, last, bits);
    finish(t, residual, sum, vectors, p, e);
}

INLINE void sum_bucket(const gw_quant_task_t *t, size_t k, gw_quant_work_t *w, unsigned bits)
{
    extremes_t e = extremes_start();
    size_t n = t->spec->bucket, i = 0, most = over_reads(bits) ? n - 32 : n;
    for (; i + GROUP <= most; i += GROUP)
        sum_group(t, k, i, w->p + i, &e, GROUP / 16, false, bits);
    for (; i < n; i += 32)
        sum_group(t, k, i, w->p + i, &e, 2, i + 32 == n, bits);
    job_t job = {.spec = t->spec, .src = w->p};
    w->grid = grid_of(&job, &e, false);
}

INLINE void code_bucket(const gw_quant_task_t *t, const gw_quant_work_t *w, uint8_t *dst,
                        unsigned bits, bool stochastic, bool keeps)
{
    size_t n = t->spec->bucket, i = 0;
    job_t job = {t->spec, w->noise, w->p, w->residual};
    way_t way = {bits, stochastic, false, keeps};
    plan_t plan = plan_of(&w->grid);
    for (; i + 64 <= n; i += 64, dst += 8 * bits)
        code_group(&job, &plan, i, dst, 4, i + 64 == n, way);
    if (i < n)
        code_group(&job, &plan, i, dst, 2, true, way);
}

GW_QUANT_REDUCER_FUNCTIONS(1)
GW_QUANT_REDUCER_FUNCTIONS(2)
GW_QUANT_REDUCER_FUNCTIONS(3)
GW_QUANT_REDUCER_FUNCTIONS(4)
GW_QUANT_REDUCER_FUNCTIONS(5)
GW_QUANT_REDUCER_FUNCTIONS(6)
GW_QUANT_REDUCER_FUNCTIONS(7)
GW_QUANT_REDUCER_FUNCTIONS(8)

static const gw_quant_reducer_t reducer = GW_QUANT_REDUCER;

static size_t reduce(const gw_quant_spec_t *spec, const gw_quant_sum_t *sum, float *residual,
                     size_t count, uint64_t first, uint64_t key, uint8_t *dst)
{
    return gw__quant_reduce_by(&reducer, spec, sum, residual, count, first, key, dst);
}

void gw__quant_reduce_avx512_fill(gw_quant_kernels_t *table)
{
    table->reduce = reduce;
}
