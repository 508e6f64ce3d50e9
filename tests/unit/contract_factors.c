/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of codecs that sum factors (gw_factor_ops_t), one property after the other. */
#include "contract_factors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { RANKS = 3, CALLS = 2, ZONE = 16 };

/* One rank. Everything that is written lies between zones. */
typedef struct member {
    float *x; /* its elements in binary32 */
    void *src;
    float *block[6], *residual, *warm, *first, *second, *scratch, *dst;
    gw_factors_t io;
} member_t;

typedef struct play {
    const gw_coder_t *coder;
    const gw_factor_ops_t *ops;
    const contract_data_t *data;
    gw_factor_sizes_t sizes;
    size_t floats[6];
    member_t member[RANKS];
    bool finite, second;
    const char **property;
    char *text;
    size_t size;
} play_t;

static bool GW_PRINTF(3, 4) broken(const play_t *p, const char *property, const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    *p->property = property;
    snprintf(p->text, p->size, "%s, %s, count %zu, %s, tier %s: %s: %s", p->coder->spec,
             gw_dtype_name(p->data->src_dtype), p->data->count, p->data->fill, gw__kernels_tier(),
             property, what);
    return false;
}

static bool all_finite(const float *x, size_t n)
{
    bool right = true;
    for (size_t i = 0; i < n; i++)
        right &= (bool)isfinite(x[i]);
    return right;
}

static void widen(gw_dtype_t dtype, const void *src, float *dst, size_t n)
{
    const gw_cast_kernels_t *cast = &gw__kernels()->cast;
    if (dtype == GW_F32)
        memcpy(dst, src, 4 * n);
    else
        (dtype == GW_F16 ? cast->f16_to_f32 : cast->bf16_to_f32)(src, dst, n);
}

static void narrow(gw_dtype_t dtype, const float *src, void *dst, size_t n)
{
    const gw_cast_kernels_t *cast = &gw__kernels()->cast;
    if (dtype == GW_F32)
        memcpy(dst, src, 4 * n);
    else
        (dtype == GW_F16 ? cast->f32_to_f16 : cast->f32_to_bf16)(src, dst, n);
}

/* ---- Members ------------------------------------------------------------------------------------
 */

static void fill_source(const play_t *p, member_t *m, int rank)
{
    const contract_data_t *d = p->data;
    m->x = malloc(4 * d->count + 4);
    m->src = malloc(4 * d->count + 4);
    for (size_t i = 0; i < d->count; i++)
        m->x[i] = rank == 0 || (rank == 2 && i / 100 % 2) ? d->x[i] : d->residual[i];
    narrow(d->src_dtype, m->x, m->src, d->count);
    widen(d->src_dtype, m->src, m->x, d->count);
}

/* Rank 1 has no residual and no warm state. */
static void member_new(play_t *p, int rank, uint8_t poison)
{
    member_t *m = &p->member[rank];
    float **piece[6] = {&m->residual, &m->warm, &m->first, &m->second, &m->scratch, &m->dst};
    fill_source(p, m, rank);
    for (int i = 0; i < 6; i++) {
        size_t bytes = 4 * (p->floats[i] + 2 * ZONE);
        m->block[i] = malloc(bytes);
        memset(m->block[i], poison, bytes);
        *piece[i] = m->block[i] + ZONE;
    }
    memcpy(m->residual, p->data->residual, 4 * p->data->count);
    memset(m->warm, 0, 4 * p->sizes.warm);
    m->io = (gw_factors_t){.src = m->src,
                           .dst = m->dst,
                           .dtype = p->data->src_dtype,
                           .count = p->data->count,
                           .ranks = RANKS,
                           .scale = 0.5f,
                           .residual = rank == 1 ? NULL : m->residual,
                           .warm = rank == 1 || !p->sizes.warm ? NULL : m->warm,
                           .shared_key = 78,
                           .first = m->first,
                           .second = m->second,
                           .scratch = m->scratch};
}

static void play_begin(play_t *p, uint8_t poison)
{
    size_t n = p->data->count;
    const size_t floats[6] = {n, p->sizes.warm, p->sizes.first, p->sizes.second, p->sizes.scratch,
                              n};
    memcpy(p->floats, floats, sizeof floats);
    for (int r = 0; r < RANKS; r++)
        member_new(p, r, poison);
    p->finite = true;
    for (int r = 0; r < RANKS; r++)
        p->finite &= all_finite(p->member[r].x, n);
}

static void play_end(play_t *p)
{
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < 6; i++)
            free(p->member[r].block[i]);
        free(p->member[r].x);
        free(p->member[r].src);
    }
}

/* ---- Properties ---------------------------------------------------------------------------------
 */

static bool sizes_are_right(const play_t *p)
{
    const gw_factor_sizes_t *s = &p->sizes;
    size_t wire = 4 * (s->first + s->second);
    size_t raw = p->data->count * gw_dtype_size(p->data->src_dtype);
    if (s->rows * s->cols < p->data->count || 2 * wire > raw)
        return broken(p, "factor sizes", "%zu x %zu, %zu bytes of %zu", s->rows, s->cols, wire,
                      raw);
    return true;
}

static bool inside(const play_t *p)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < 6; i++) {
            const uint8_t *block = (const uint8_t *)p->member[r].block[i];
            size_t behind = 4 * (ZONE + p->floats[i]);
            size_t used = i == 5 ? p->data->count * gw_dtype_size(p->data->src_dtype) : 0;
            behind = i == 5 ? 4 * ZONE + used : behind;
            for (size_t b = 0; b < 4 * ZONE; b++)
                if (block[b] != block[0] || block[behind + b] != block[0])
                    return broken(p, "factor guard", "piece %d of rank %d", i, r);
        }
    return true;
}

/* Sums one factor over the ranks in order, and gives it to all. */
static void sum(play_t *p, bool second)
{
    size_t n = second ? p->sizes.second : p->sizes.first;
    float *to = second ? p->member[0].second : p->member[0].first;
    for (int r = 1; r < RANKS; r++)
        gw__kernels()->sum.add(to, second ? p->member[r].second : p->member[r].first, n);
    for (int r = 1; r < RANKS; r++)
        memcpy(second ? p->member[r].second : p->member[r].first, to, 4 * n);
}

/* Ranks agree on whether there is a second sum: exactly when all was finite. */
static bool step(play_t *p)
{
    for (int r = 0; r < RANKS; r++)
        p->ops->project(p->coder, &p->member[r].io);
    sum(p, false);
    for (int r = 0; r < RANKS; r++)
        if (p->ops->factor(p->coder, &p->member[r].io) != p->finite)
            return broken(p, "factor poison", "rank %d decides otherwise", r);
    if (p->finite)
        sum(p, true);
    for (int r = 0; r < RANKS; r++) {
        p->ops->expand(p->coder, &p->member[r].io);
        if ((p->member[r].io.poisoned == 0) != p->finite)
            return broken(p, "factor poison", "rank %d counts %zu", r, p->member[r].io.poisoned);
    }
    return inside(p);
}

static bool replicas_are_equal(const play_t *p)
{
    size_t bytes = p->data->count * gw_dtype_size(p->data->src_dtype);
    for (int r = 1; r < RANKS; r++)
        if (memcmp(p->member[0].dst, p->member[r].dst, bytes) != 0)
            return broken(p, "factor replicas", "rank %d has other bits", r);
    return true;
}

static bool nan_is_everywhere(const play_t *p)
{
    float *y = malloc(4 * p->data->count + 4);
    bool right = true;
    widen(p->data->src_dtype, p->member[0].dst, y, p->data->count);
    for (size_t i = 0; i < p->data->count; i++)
        right &= (bool)isnan(y[i]);
    for (int r = 0; r < RANKS; r++) {
        const member_t *m = &p->member[r];
        right &= !memcmp(m->residual, p->data->residual, 4 * p->data->count);
        for (size_t i = 0; i < p->sizes.warm; i++)
            right &= m->warm[i] == 0.0f;
    }
    free(y);
    return right || broken(p, "factor poison", "a number is left, or something was kept");
}

static double norm(const float *x, const float *more, size_t n)
{
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i] + (more ? (double)more[i] : 0.0);
        square += v * v;
    }
    return sqrt(square);
}

/* Of the first call: what is left is not longer than what was to be sent. */
static bool residuals_are_right(const play_t *p)
{
    for (int r = 0; r < RANKS; r++) {
        const member_t *m = &p->member[r];
        size_t n = p->data->count;
        double before = norm(m->x, p->data->residual, n), after = norm(m->residual, NULL, n);
        if (r == 1 && memcmp(m->residual, p->data->residual, 4 * n) != 0)
            return broken(p, "factor residual", "rank 1 has none");
        if (r != 1 && (!all_finite(m->residual, n) || after > before * 1.0001 + 1e-30))
            return broken(p, "factor residual", "rank %d: %g became %g", r, before, after);
    }
    return true;
}

/* From residuals of zero, against the sum of the ranks' bounds, scaled and narrowed once. */
static bool within_bound(const play_t *p)
{
    size_t n = p->data->count, i = 0;
    float *y = malloc(4 * n + 4), *bound = malloc(4 * n + 4);
    double *exact = calloc(n + 1, 8), *allowed = calloc(n + 1, 8);
    double unit = p->data->src_dtype == GW_F32   ? 0x1p-22
                  : p->data->src_dtype == GW_F16 ? 0x1p-11
                                                 : 0x1p-8;
    widen(p->data->src_dtype, p->member[0].dst, y, n);
    for (int r = 0; r < RANKS; r++) {
        p->ops->error_bound(p->coder, p->member[r].x, n, 0, bound);
        for (i = 0; i < n; i++) {
            exact[i] += 0.5 * (double)p->member[r].x[i];
            allowed[i] += 0.5 * (double)bound[i];
        }
    }
    double largest = p->data->src_dtype == GW_F16 ? 65504 : 0x1.FEp127;
    for (i = 0; i < n; i++) {
        double slack = allowed[i] + (fabs(exact[i]) + allowed[i]) * unit + 0x1p-24;
        bool out = fabs((double)y[i]) >= largest || !isfinite(y[i]); /* as narrowing has it */
        if (!(fabs((double)y[i] - exact[i]) <= slack) &&
            !(out && fabs(exact[i]) + allowed[i] >= largest))
            break;
    }
    double at[2] = {i < n ? (double)y[i] : 0, i < n ? exact[i] : 0};
    free(y);
    free(bound);
    free(exact);
    free(allowed);
    return i == n || broken(p, "factor bound", "element %zu is %a, exactly %a", i, at[0], at[1]);
}

static bool finite_stays_so(const play_t *p)
{
    return p->data->src_dtype != GW_F32 || all_finite(p->member[0].dst, p->data->count) ||
           broken(p, "factor finite", "a result is not finite");
}

/* ---- All of it ----------------------------------------------------------------------------------
 */

static bool check_tier(play_t *p)
{
    if (!step(p) || !replicas_are_equal(p))
        return false;
    if (!p->finite)
        return nan_is_everywhere(p);
    if (!finite_stays_so(p) || !residuals_are_right(p))
        return false;
    for (int r = 0; r < RANKS; r++)
        memset(p->member[r].residual, 0, 4 * p->data->count);
    return step(p) && replicas_are_equal(p) && finite_stays_so(p) && within_bound(p);
}

static bool same(const play_t *a, const play_t *b)
{
    size_t n = a->data->count, element = gw_dtype_size(a->data->src_dtype);
    bool right = true;
    for (int r = 0; r < RANKS; r++) {
        right &= !memcmp(a->member[r].dst, b->member[r].dst, n * element);
        right &= !memcmp(a->member[r].residual, b->member[r].residual, 4 * n);
        right &= !memcmp(a->member[r].warm, b->member[r].warm, 4 * a->sizes.warm);
    }
    return right || broken(b, "factor tiers", "not what ref gives");
}

bool contract_factors(const gw_coder_t *coder, const contract_data_t *data, const char **property,
                      char *text, size_t size)
{
    play_t ref = {.coder = coder,
                  .ops = coder->family->factors,
                  .data = data,
                  .property = property,
                  .text = text,
                  .size = size};
    if (data->count == 0 || !ref.ops->sizes(coder, data->src_dtype, data->count, 0, &ref.sizes))
        return true;
    if (!sizes_are_right(&ref))
        return false;
    play_begin(&ref, 0xA5);
    gw__kernels_select(gw__kernels_available(0), NULL, 0);
    bool right = check_tier(&ref);
    for (size_t i = 1; right && gw__kernels_available(i); i++) {
        play_t tier = ref;
        gw__kernels_select(gw__kernels_available(i), NULL, 0);
        play_begin(&tier, 0x5A);
        right = check_tier(&tier) && same(&ref, &tier);
        play_end(&tier);
    }
    gw__kernels_select("best", NULL, 0);
    play_end(&ref);
    return right;
}
