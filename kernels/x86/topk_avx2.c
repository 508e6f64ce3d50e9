/* SPDX-License-Identifier: Apache-2.0 */
/* Selection by magnitude with AVX2: the results of ref/topk_ref.c. */
#include "x86.h"

#include <float.h>

#include "fpmode.h"
#include "ref.h"
#include "stream.h"

static __m256i magnitude(const float *x)
{
    return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)x),
                            _mm256_set1_epi32(0x7FFFFFFF));
}

static GW_KERNEL_BODY size_t fold_body(const float *src, float *residual, size_t count)
{
    const __m256 top = _mm256_set1_ps(FLT_MAX), bottom = _mm256_set1_ps(-FLT_MAX);
    const __m256i inf = _mm256_set1_epi32((int)GW_TOPK_INF);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        prefetch(src + i, 32);
        prefetch(residual + i, 32);
        __m256 old = _mm256_loadu_ps(residual + i);
        __m256 p = _mm256_add_ps(_mm256_loadu_ps(src + i), old);
        p = _mm256_max_ps(_mm256_min_ps(p, top), bottom);
        __m256i finite = _mm256_cmpgt_epi32(inf, magnitude(src + i));
        _mm256_storeu_ps(residual + i, _mm256_blendv_ps(old, p, _mm256_castsi256_ps(finite)));
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

static __m256 limit(__m256 x)
{
    return _mm256_max_ps(_mm256_min_ps(x, _mm256_set1_ps(FLT_MAX)), _mm256_set1_ps(-FLT_MAX));
}

static GW_KERNEL_BODY size_t correct_body(const float *src, float factor, float *momentum,
                                          float *residual, size_t count)
{
    const __m256i inf = _mm256_set1_epi32((int)GW_TOPK_INF);
    const __m256 factors = _mm256_set1_ps(factor);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        prefetch(src + i, 32);
        prefetch(momentum + i, 32);
        if (residual)
            prefetch(residual + i, 32);
        __m256 finite = _mm256_castsi256_ps(_mm256_cmpgt_epi32(inf, magnitude(src + i)));
        __m256 old = _mm256_loadu_ps(momentum + i);
        __m256 u = limit(_mm256_add_ps(_mm256_mul_ps(factors, old), _mm256_loadu_ps(src + i)));
        _mm256_storeu_ps(momentum + i, _mm256_blendv_ps(old, u, finite));
        if (residual) {
            __m256 kept = _mm256_loadu_ps(residual + i);
            _mm256_storeu_ps(residual + i,
                             _mm256_blendv_ps(kept, limit(_mm256_add_ps(kept, u)), finite));
        }
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

/* A mask is -1 where it is set, so that subtracting it counts. */
static size_t count_least(const float *x, size_t count, uint32_t least)
{
    const __m256i below = _mm256_set1_epi32((int)least - 1);
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};
    uint32_t part[8];
    size_t i = 0, found = 0;
    for (; i + 32 <= count; i += 32) {
        prefetch(x + i, 32 * sizeof *x);
        for (int k = 0; k < 4; k++)
            sum[k] = _mm256_sub_epi32(sum[k], _mm256_cmpgt_epi32(magnitude(x + i + 8 * k), below));
    }
    sum[0] = _mm256_add_epi32(_mm256_add_epi32(sum[0], sum[1]), _mm256_add_epi32(sum[2], sum[3]));
    _mm256_storeu_si256((__m256i *)part, sum[0]);
    for (int k = 0; k < 8; k++)
        found += part[k];
    return found + gw__topk_ref_count(x + i, count - i, least);
}

/* The places of the bits that are set in a byte, one byte each: what closes a vector up. */
#define PLACES(m)                                                                                  \
    (PLACE(m, 0) | PLACE(m, 1) | PLACE(m, 2) | PLACE(m, 3) | PLACE(m, 4) | PLACE(m, 5) |           \
     PLACE(m, 6) | PLACE(m, 7))
#define PLACE(m, b) ((m) >> (b)&1 ? (uint64_t)(b) << 8 * BELOW(m, b) : 0)
#define BELOW(m, b)                                                                                \
    (((m) & ((1u << (b)) - 1) & 1) + (((m) & ((1u << (b)) - 1)) >> 1 & 1) +                        \
     (((m) & ((1u << (b)) - 1)) >> 2 & 1) + (((m) & ((1u << (b)) - 1)) >> 3 & 1) +                 \
     (((m) & ((1u << (b)) - 1)) >> 4 & 1) + (((m) & ((1u << (b)) - 1)) >> 5 & 1) +                 \
     (((m) & ((1u << (b)) - 1)) >> 6 & 1))
#define PLACES4(m)  PLACES(m), PLACES((m) + 1), PLACES((m) + 2), PLACES((m) + 3)
#define PLACES16(m) PLACES4(m), PLACES4((m) + 4), PLACES4((m) + 8), PLACES4((m) + 12)
#define PLACES64(m) PLACES16(m), PLACES16((m) + 16), PLACES16((m) + 32), PLACES16((m) + 48)
static const uint64_t places[256] = {PLACES64(0u), PLACES64(64u), PLACES64(128u), PLACES64(192u)};

static size_t find(const float *x, size_t count, uint32_t least, uint32_t base, uint32_t *index,
                   size_t room)
{
    const __m256i below = _mm256_set1_epi32((int)least - 1);
    size_t i = 0, found = 0;
    while (i + 32 <= count && found + 32 <= room) {
        prefetch(x + i, 32 * sizeof *x);
        for (int k = 0; k < 4; k++, i += 8) {
            __m256i hit = _mm256_cmpgt_epi32(magnitude(x + i), below);
            unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(hit));
            __m128i place = _mm_loadl_epi64((const __m128i *)(const void *)&places[mask]);
            _mm256_storeu_si256((__m256i *)(void *)(index + found),
                                _mm256_add_epi32(_mm256_cvtepu8_epi32(place),
                                                 _mm256_set1_epi32((int)(base + (uint32_t)i))));
            found += (size_t)__builtin_popcount(mask);
        }
    }
    return found + gw__topk_ref_find(x + i, count - i, least, base + (uint32_t)i, index + found,
                                     room - found);
}

void gw__topk_avx2_fill(gw_topk_kernels_t *table)
{
    table->fold = fold;
    table->correct = correct;
    table->count = count_least;
    table->find = find;
}
