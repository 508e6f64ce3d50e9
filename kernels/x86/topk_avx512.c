/* SPDX-License-Identifier: Apache-2.0 */
/* Selection by magnitude with AVX-512: the results of ref/topk_ref.c. */
#include "x86.h"

#include <float.h>

#include "fpmode.h"
#include "ref.h"
#include "stream.h"

static __m512i magnitude(const float *x)
{
    return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7FFFFFFF));
}

static GW_KERNEL_BODY size_t fold_body(const float *src, float *residual, size_t count)
{
    const __m512 top = _mm512_set1_ps(FLT_MAX), bottom = _mm512_set1_ps(-FLT_MAX);
    const __m512i inf = _mm512_set1_epi32((int)GW_TOPK_INF);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(src + i, 64);
        prefetch(residual + i, 64);
        __m512 p = _mm512_add_ps(_mm512_loadu_ps(src + i), _mm512_loadu_ps(residual + i));
        p = _mm512_max_ps(_mm512_min_ps(p, top), bottom);
        __mmask16 finite = _mm512_cmplt_epi32_mask(magnitude(src + i), inf);
        _mm512_mask_storeu_ps(residual + i, finite, p);
    }
    return i;
}

static void fold(const float *src, float *residual, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    size_t i = fold_body(src, residual, count);
    gw__fpmode_leave(mode);
    gw__topk_ref_fold(src + i, residual + i, count - i);
}

static __m512 limit(__m512 x)
{
    return _mm512_max_ps(_mm512_min_ps(x, _mm512_set1_ps(FLT_MAX)), _mm512_set1_ps(-FLT_MAX));
}

static GW_KERNEL_BODY size_t correct_body(const float *src, float factor, float *momentum,
                                          float *residual, size_t count)
{
    const __m512i inf = _mm512_set1_epi32((int)GW_TOPK_INF);
    const __m512 factors = _mm512_set1_ps(factor);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        prefetch(src + i, 64);
        prefetch(momentum + i, 64);
        if (residual)
            prefetch(residual + i, 64);
        __mmask16 finite = _mm512_cmplt_epi32_mask(magnitude(src + i), inf);
        __m512 u = _mm512_mul_ps(factors, _mm512_loadu_ps(momentum + i));
        u = limit(_mm512_add_ps(u, _mm512_loadu_ps(src + i)));
        _mm512_mask_storeu_ps(momentum + i, finite, u);
        if (residual)
            _mm512_mask_storeu_ps(residual + i, finite,
                                  limit(_mm512_add_ps(_mm512_loadu_ps(residual + i), u)));
    }
    return i;
}

static void correct(const float *src, float factor, float *momentum, float *residual, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    size_t i = correct_body(src, factor, momentum, residual, count);
    gw__fpmode_leave(mode);
    gw__topk_ref_correct(src + i, factor, momentum + i, residual ? residual + i : NULL, count - i);
}

/* Four sums, each of which a vector of elements waits for. */
static size_t count_least(const float *x, size_t count, uint32_t least)
{
    const __m512i limit = _mm512_set1_epi32((int)least), one = _mm512_set1_epi32(1);
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};
    size_t i = 0;
    for (; i + 64 <= count; i += 64) {
        prefetch(x + i, 64);
        for (int k = 0; k < 4; k++) {
            __mmask16 found = _mm512_cmpge_epi32_mask(magnitude(x + i + 16 * k), limit);
            sum[k] = _mm512_mask_add_epi32(sum[k], found, sum[k], one);
        }
    }
    for (; i + 16 <= count; i += 16) {
        __mmask16 found = _mm512_cmpge_epi32_mask(magnitude(x + i), limit);
        sum[0] = _mm512_mask_add_epi32(sum[0], found, sum[0], one);
    }
    sum[0] = _mm512_add_epi32(_mm512_add_epi32(sum[0], sum[1]), _mm512_add_epi32(sum[2], sum[3]));
    return (size_t)_mm512_reduce_add_epi32(sum[0]) + gw__topk_ref_count(x + i, count - i, least);
}

/* Indices are closed up in a register and stored whole: the store with a mask is slow on some
 * processors, and a branch would be mispredicted at every other vector. */
static size_t find(const float *x, size_t count, uint32_t least, uint32_t base, uint32_t *index,
                   size_t room)
{
    const __m512i limit = _mm512_set1_epi32((int)least), step = _mm512_set1_epi32(16);
    __m512i place =
        _mm512_add_epi32(_mm512_set1_epi32((int)base),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    size_t i = 0, found = 0;
    while (i + 64 <= count && found + 64 <= room) {
        for (int k = 0; k < 4; k++) {
            prefetch(x + i, 64);
            __mmask16 hit = _mm512_cmpge_epi32_mask(magnitude(x + i), limit);
            _mm512_storeu_si512(index + found, _mm512_maskz_compress_epi32(hit, place));
            found += (size_t)_mm_popcnt_u32(hit);
            place = _mm512_add_epi32(place, step);
            i += 16;
        }
    }
    return found + gw__topk_ref_find(x + i, count - i, least, base + (uint32_t)i, index + found,
                                     room - found);
}

void gw__topk_avx512_fill(gw_topk_kernels_t *table)
{
    table->fold = fold;
    table->correct = correct;
    table->count = count_least;
    table->find = find;
}
