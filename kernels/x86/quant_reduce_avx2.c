/* SPDX-License-Identifier: Apache-2.0 */
/* Sum and encode with AVX2: the bytes of gw__quant_ref_reduce. */
#include "x86.h"

#include "fpmode.h"
#include "quant_code_avx2.h"
#include "quant_reduce.h"
#include "ref.h"

/* The plan is that of quant_reduce_avx512.c, with groups of 64 elements. */
#define GROUP 64

typedef struct table {
    __m256 values, min, unit; /* values: of codes 0 to 7 */
    __m256 step;              /* 4 bits: the unit at the place where a lane's code stays */
} table_t;

/*
 * Four bits: codes stay where they are in their word, masked and converted as multiples of a power
 * of two that the unit is divided by. Products of a short unit are exact, so that the fused
 * operation rounds as the sum alone would. Lanes of such a pair of vectors hold elements
 * 0 8 1 9 4 12 5 13 and 2 10 3 11 6 14 7 15 of 16: what unpacking makes of two vectors. The second
 * one is loaded one byte further on, where its codes stand as those of the first one do; that is a
 * byte behind the last 16 of a bucket.
 */
INLINE void decode_4(const uint8_t *src, const table_t *t, bool last, __m256 pair[2])
{
    uint64_t word, next;
    memcpy(&word, src, sizeof word);
    memcpy(&next, src + !last, sizeof next);
    __m256i mask = _mm256_setr_epi32(0xF, 0xF, 0xF0, 0xF0, 0xF0000, 0xF0000, 0xF00000, 0xF00000);
    __m256i low = _mm256_set1_epi64x((long long)word), high = _mm256_set1_epi64x((long long)next);
    if (last)
        high = _mm256_srli_epi32(high, 8);
    __m256 a = _mm256_cvtepi32_ps(_mm256_and_si256(low, mask));
    __m256 b = _mm256_cvtepi32_ps(_mm256_and_si256(high, mask));
    pair[0] = _mm256_fmadd_ps(t->step, a, t->min);
    pair[1] = _mm256_fmadd_ps(t->step, b, t->min);
}

INLINE table_t table_of(const uint8_t *meta, unsigned bits)
{
    table_t t = {.min = _mm256_set1_ps(gw__load_float(meta)),
                 .unit = _mm256_set1_ps(gw__load_float(meta + 4))};
    __m256i lane = _mm256_and_si256(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                                    _mm256_set1_epi32((1 << bits) - 1));
    t.values = _mm256_fmadd_ps(t.unit, _mm256_cvtepi32_ps(lane), t.min);
    t.step = _mm256_mul_ps(
        t.unit, _mm256_setr_ps(1, 1, 0x1p-4f, 0x1p-4f, 0x1p-16f, 0x1p-16f, 0x1p-20f, 0x1p-20f));
    return t;
}

INLINE __m256 decode_8(const uint8_t *src, size_t v, const table_t *t, unsigned bits)
{
    __m256i code = take(src + v / 4 * 4 * bits, v % 4, bits);
    if (bits < 4)
        return _mm256_permutevar8x32_ps(t->values, code);
    return _mm256_fmadd_ps(t->unit, _mm256_cvtepi32_ps(code), t->min);
}

/* As there. */
#define OWN_AHEAD     16384
#define PAYLOAD_AHEAD 2048

/* The contribution of a payload to 8 * vectors elements; `meta` is its bucket, `i` the place in
 * it. */
INLINE void take_payload(const uint8_t *meta, size_t i, __m256 *sum, size_t vectors, bool add,
                         bool last, unsigned bits)
{
    table_t t = table_of(meta, bits);
    const uint8_t *src = meta + GW_QUANT_META_BYTES + i / 8 * bits;
    uint8_t end[32 + 8]; /* the last group, so that nothing behind the payload is read */
    if (over_reads(bits) && last)
        src = memcpy(end, src, 4 * bits);
    for (size_t byte = 0; byte < bits * vectors; byte += 64)
        _mm_prefetch((const char *)src + PAYLOAD_AHEAD + byte, _MM_HINT_T0);
    for (size_t v = 0; v < vectors; v += 2) {
        __m256 x[2];
        if (bits == 4) {
            decode_4(src + 4 * v, &t, last && v + 2 == vectors, x);
        } else {
            x[0] = decode_8(src, v, &t, bits);
            x[1] = decode_8(src, v + 1, &t, bits);
        }
        sum[v] = add ? _mm256_add_ps(sum[v], x[0]) : x[0];
        sum[v + 1] = add ? _mm256_add_ps(sum[v + 1], x[1]) : x[1];
    }
}

INLINE void take_own(const float *own, __m256 *sum, size_t vectors, bool add, unsigned bits)
{
    for (size_t v = 0; v < vectors; v += 2) {
        _mm_prefetch((const char *)(own + 8 * v) + OWN_AHEAD, _MM_HINT_T1);
        __m256 a = _mm256_loadu_ps(own + 8 * v), b = _mm256_loadu_ps(own + 8 * v + 8);
        __m256 x = bits == 4 ? _mm256_unpacklo_ps(a, b) : a;
        __m256 y = bits == 4 ? _mm256_unpackhi_ps(a, b) : b;
        sum[v] = add ? _mm256_add_ps(sum[v], x) : x;
        sum[v + 1] = add ? _mm256_add_ps(sum[v + 1], y) : y;
    }
}

/* Back from the order of decode_4. */
INLINE void put_in_order(__m256 *sum, size_t vectors)
{
    for (size_t v = 0; v < vectors; v += 2) {
        __m256 a = sum[v], b = sum[v + 1];
        sum[v] = _mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0));
        sum[v + 1] = _mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1));
    }
}

/* The scaled sum and the residual, to the buffer, with the extremes. */
INLINE void finish(const gw_quant_task_t *t, const float *residual, __m256 *sum, size_t vectors,
                   float *p, extremes_t *e)
{
    if (t->sum->scale != 1.0f)
        for (size_t v = 0; v < vectors; v++)
            sum[v] = _mm256_mul_ps(sum[v], _mm256_set1_ps(t->sum->scale));
    for (size_t v = 0; residual && v < vectors; v++)
        sum[v] = _mm256_add_ps(sum[v], _mm256_loadu_ps(residual + 8 * v));
    for (size_t v = 0; v < vectors; v += 2) {
        _mm256_store_ps(p + 8 * v, sum[v]);
        _mm256_store_ps(p + 8 * v + 8, sum[v + 1]);
        __m256 bad = _mm256_cmp_ps(sum[v], sum[v + 1], _CMP_UNORD_Q);
        e->unordered = _mm256_or_ps(e->unordered, bad);
        e->mn0 = _mm256_min_ps(e->mn0, _mm256_min_ps(sum[v], sum[v + 1]));
        e->mx0 = _mm256_max_ps(e->mx0, _mm256_max_ps(sum[v], sum[v + 1]));
    }
}

/* 8 * vectors elements from place i of bucket k on. */
INLINE void sum_group(const gw_quant_task_t *t, size_t k, size_t i, float *p, extremes_t *e,
                      size_t vectors, bool last, unsigned bits)
{
    const gw_quant_sum_t *s = t->sum;
    const float *own = s->own + k * t->spec->bucket + i;
    const float *residual = t->residual ? t->residual + k * t->spec->bucket + i : NULL;
    size_t at = s->skip + k * t->stride, j = 0;
    __m256 sum[GROUP / 8];
    if (s->own_at == 0)
        take_own(own, sum, vectors, false, bits);
    else
        take_payload(s->payload[j++] + at, i, sum, vectors, false, last, bits);
    for (; j < s->own_at; j++)
        take_payload(s->payload[j] + at, i, sum, vectors, true, last, bits);
    if (s->own_at)
        take_own(own, sum, vectors, true, bits);
    for (; j < s->payloads; j++)
        take_payload(s->payload[j] + at, i, sum, vectors, true, last, bits);
    if (bits == 4)
        put_in_order(sum, vectors);
    finish(t, residual, sum, vectors, p, e);
}

INLINE void sum_bucket(const gw_quant_task_t *t, size_t k, gw_quant_work_t *w, unsigned bits)
{
    extremes_t e = extremes_start();
    size_t n = t->spec->bucket, i = 0, most = over_reads(bits) ? n - 32 : n;
    for (; i + GROUP < most; i += GROUP)
        sum_group(t, k, i, w->p + i, &e, GROUP / 8, false, bits);
    for (; i < n; i += 32)
        sum_group(t, k, i, w->p + i, &e, 4, i + 32 == n, bits);
    job_t job = {.spec = t->spec, .src = w->p};
    w->grid = grid_of(&job, &e, false);
}

INLINE void code_bucket(const gw_quant_task_t *t, const gw_quant_work_t *w, uint8_t *dst,
                        unsigned bits, bool stochastic, bool keeps)
{
    size_t n = t->spec->bucket;
    job_t job = {t->spec, w->noise, w->p, w->residual};
    plan_t plan = plan_of(&w->grid);
    for (size_t i = 0; i < n; i += 32, dst += 4 * bits)
        code_group(&job, &plan, i, dst, i + 32 == n, (way_t){bits, stochastic, false, keeps});
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
                     size_t count, uint64_t first, uint64_t key, uint8_t *dst, size_t *refused)
{
    return gw__quant_reduce_by(&reducer, spec, sum, residual, count, first, key, dst, refused);
}

void gw__quant_reduce_avx2_fill(gw_quant_kernels_t *table)
{
    table->reduce = reduce;
}
