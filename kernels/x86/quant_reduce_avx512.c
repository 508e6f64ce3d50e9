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

/* What of a bucket is summed at once. */
typedef struct part {
    size_t vectors;
    bool turned; /* a group in the order of take_words() */
    bool last;   /* of the bucket */
} part_t;

/* ---- The order of a group -----------------------------------------------------------------------
 */

/*
 * A group of eight vectors is an array of 16 rows (words of four-bit codes) by 8 columns. Three
 * rounds each exchange one bit of a vector's number with one bit of the lane's; the last one also
 * rotates the lanes. Pairs of a round are 4, 2, 1 vectors apart. Indices from 16 on: of the second.
 */
typedef struct turn_round {
    _Alignas(64) int32_t low[16], high[16];
} turn_round_t;

/* From elements in order to the order of take_words(). */
static const turn_round_t forth[3] = {
    {{0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27},
     {4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31}},
    {{0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29},
     {2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31}},
    {{0, 8, 16, 24, 2, 10, 18, 26, 4, 12, 20, 28, 6, 14, 22, 30},
     {1, 9, 17, 25, 3, 11, 19, 27, 5, 13, 21, 29, 7, 15, 23, 31}},
};
/* And from there. */
static const turn_round_t back[3] = {
    {{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23},
     {8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31}},
    {{0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27},
     {4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31}},
    {{0, 16, 4, 20, 8, 24, 12, 28, 1, 17, 5, 21, 9, 25, 13, 29},
     {2, 18, 6, 22, 10, 26, 14, 30, 3, 19, 7, 23, 11, 27, 15, 31}},
};

INLINE void turn(__m512 x[8], const turn_round_t round[3])
{
    for (size_t r = 0, apart = 4; r < 3; r++, apart /= 2) {
        __m512i low = _mm512_load_si512(round[r].low), high = _mm512_load_si512(round[r].high);
        for (size_t v = 0; v < 8; v++) {
            if (v & apart)
                continue;
            __m512 a = x[v], b = x[v + apart];
            x[v] = _mm512_permutex2var_ps(a, low, b);
            x[v + apart] = _mm512_permutex2var_ps(a, high, b);
        }
    }
}

/* ---- Values of codes ----------------------------------------------------------------------------
 */

/* The values of 16 codes, where a register holds all of them (bits <= 4), and the makings of
 * others. */
typedef struct table {
    __m512 values, min, unit;
} table_t;

INLINE table_t table_of(const uint8_t *meta, unsigned bits)
{
    table_t t;
    t.min = _mm512_set1_ps(gw__load_float(meta));
    t.unit = _mm512_set1_ps(gw__load_float(meta + 4));
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    t.values = value_of(t.min, t.unit, _mm512_and_si512(lane, _mm512_set1_epi32((1 << bits) - 1)));
    return t;
}

/* 16 values. Products of a short unit are exact: the fused operation rounds as the sum alone would.
 */
INLINE __m512 decode_16(const uint8_t *src, const table_t *t, unsigned bits)
{
    __m512i x = take(src, bits);
    if (bits <= 4)
        return _mm512_permutexvar_ps(x, t->values);
    if (bits < 8)
        x = _mm512_and_si512(x, _mm512_set1_epi32((1 << bits) - 1));
    return _mm512_fmadd_ps(t->unit, _mm512_cvtepi32_ps(x), t->min);
}

/*
 * Four bits, a whole group: sum[k], lane l, takes element 8 l + k, which is nibble k of word l. A
 * register with all words then gives eight vectors: loads at odd bytes move words by eight bits
 * for nothing, one shift serves the odd nibbles, and the permutation looks at no more than four
 * bits. The group's own order is made before and after by turn().
 */
INLINE void take_words(const uint8_t *src, const table_t *t, __m512 *sum, bool add, bool last)
{
    __m512i words = _mm512_loadu_si512(src);
    for (size_t k = 0; k < 8; k += 2) {
        __m512i even = last ? _mm512_srli_epi32(words, 4 * (unsigned)k)
                            : _mm512_loadu_si512(src + k / 2); /* up to 3 bytes behind the group */
        __m512 x = _mm512_permutexvar_ps(even, t->values);
        __m512 y = _mm512_permutexvar_ps(_mm512_srli_epi32(even, 4), t->values);
        sum[k] = add ? _mm512_add_ps(sum[k], x) : x;
        sum[k + 1] = add ? _mm512_add_ps(sum[k + 1], y) : y;
    }
}

/* The contribution of a payload to 16 * vectors elements; `meta` is its bucket, `i` the place in
 * it. */
INLINE void take_payload(const uint8_t *meta, size_t i, __m512 *sum, bool add, part_t part,
                         unsigned bits)
{
    table_t t = table_of(meta, bits);
    const uint8_t *src = meta + GW_QUANT_META_BYTES + i / 8 * bits;
    uint8_t end[32 + 16]; /* the last group, so that nothing behind the payload is read */
    for (size_t byte = 0; byte < 2 * bits * part.vectors; byte += 64)
        _mm_prefetch((const char *)src + PAYLOAD_AHEAD + byte, _MM_HINT_T0);
    if (part.turned) {
        take_words(src, &t, sum, add, part.last);
        return;
    }
    if (over_reads(bits) && part.last)
        src = memcpy(end, src, 4 * bits);
    for (size_t v = 0; v < part.vectors; v++) {
        __m512 x = decode_16(src + 2 * bits * v, &t, bits);
        sum[v] = add ? _mm512_add_ps(sum[v], x) : x;
    }
}

INLINE void take_own(const float *own, __m512 *sum, bool add, part_t part)
{
    __m512 x[GROUP / 16];
    for (size_t v = 0; v < part.vectors; v++) {
        _mm_prefetch((const char *)(own + 16 * v) + OWN_AHEAD, _MM_HINT_T1);
        x[v] = _mm512_loadu_ps(own + 16 * v);
    }
    if (part.turned)
        turn(x, forth);
    for (size_t v = 0; v < part.vectors; v++)
        sum[v] = add ? _mm512_add_ps(sum[v], x[v]) : x[v];
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

/* The elements of a part, from place i of bucket k on. */
INLINE void sum_group(const gw_quant_task_t *t, size_t k, size_t i, float *p, extremes_t *e,
                      part_t part, unsigned bits)
{
    const gw_quant_sum_t *s = t->sum;
    const float *own = s->own + k * t->spec->bucket + i;
    const float *residual = t->residual ? t->residual + k * t->spec->bucket + i : NULL;
    size_t at = s->skip + k * t->stride, j = 0;
    __m512 sum[GROUP / 16];
    if (s->own_at == 0)
        take_own(own, sum, false, part);
    else
        take_payload(s->payload[j++] + at, i, sum, false, part, bits);
    for (; j < s->own_at; j++)
        take_payload(s->payload[j] + at, i, sum, true, part, bits);
    if (s->own_at)
        take_own(own, sum, true, part);
    for (; j < s->payloads; j++)
        take_payload(s->payload[j] + at, i, sum, true, part, bits);
    if (part.turned)
        turn(sum, back);
    finish(t, residual, sum, part.vectors, p, e);
}

INLINE void sum_bucket(const gw_quant_task_t *t, size_t k, gw_quant_work_t *w, unsigned bits)
{
    extremes_t e = extremes_start();
    size_t n = t->spec->bucket, i = 0, most = over_reads(bits) ? n - 32 : n;
    bool turned = bits == 4;
    for (; i + GROUP <= most; i += GROUP)
        sum_group(t, k, i, w->p + i, &e, (part_t){GROUP / 16, turned, i + GROUP == n}, bits);
    for (; i < n; i += 32)
        sum_group(t, k, i, w->p + i, &e, (part_t){2, false, i + 32 == n}, bits);
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
                     size_t count, uint64_t first, uint64_t key, uint8_t *dst, size_t *refused)
{
    return gw__quant_reduce_by(&reducer, spec, sum, residual, count, first, key, dst, refused);
}

void gw__quant_reduce_avx512_fill(gw_quant_kernels_t *table)
{
    table->reduce = reduce;
}
