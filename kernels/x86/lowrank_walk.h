/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work of the x86 kernels of lowrank. A tier includes it behind its arithmetic. */
#ifndef GW_LOWRANK_WALK_H
#define GW_LOWRANK_WALK_H

/*
 * The tier's part, for 16 elements at a time: wide_t, one_t (a number for all of them) and the
 * functions below. PART: only `n` elements are there, the others count as 0 and are not touched.
 *
 * ROWS rows are taken together, so that what is loaded of Q serves all of them, and up to four
 * columns of the factors; both numbers are constants after inlining.
 */
enum { LANES = 16, COLUMNS = 4 };

INLINE wide_t wide_zero(void);
INLINE wide_t wide_load(const float *from);
INLINE wide_t wide_load_part(const float *from, size_t n);
INLINE void wide_store(float *to, wide_t x);
INLINE void wide_store_part(float *to, wide_t x, size_t n);
INLINE one_t one_of(float x);
INLINE wide_t wide_add(wide_t a, wide_t b);
INLINE wide_t wide_sub(wide_t a, wide_t b);
INLINE wide_t wide_mul(wide_t a, wide_t b);
INLINE wide_t wide_times(wide_t a, one_t b);
INLINE wide_t wide_limit(wide_t x);
INLINE wide_t wide_clean(wide_t x); /* NaN becomes GW_NAN_BITS */
INLINE float wide_sum(wide_t x);    /* lanes l and l + 8, l + 4, l + 2, l + 1 */

/* Floats from the place in work to the place prefetched: the next rows, where they are neither too
 * near nor so far that they are gone again when it is their turn. */
enum { AHEAD = 4096, AHEAD_MOST = 32768 };

INLINE size_t ahead_of(const gw_lowrank_panel_t *m)
{
    size_t next = ROWS * m->cols;
    return next < AHEAD || next > AHEAD_MOST ? AHEAD : next;
}

INLINE void prefetch(const float *at)
{
    _mm_prefetch((const char *)at, _MM_HINT_T1);
}

INLINE wide_t take(const float *from, size_t n, bool whole)
{
    return whole ? wide_load(from) : wide_load_part(from, n);
}

INLINE void put(float *to, wide_t x, size_t n, bool whole)
{
    if (whole)
        wide_store(to, x);
    else
        wide_store_part(to, x, n);
}

INLINE wide_t element(const float *src, const float *residual, one_t scale, size_t at, size_t n,
                      bool ef, bool whole)
{
    wide_t x = wide_times(take(src + at, n, whole), scale);
    return ef ? wide_add(x, wide_times(take(residual + at, n, whole), scale)) : x;
}

/* What all kernels are given; p and q at the first column of the group, q for the whole matrix. */
typedef struct walk {
    const gw_lowrank_panel_t *m;
    const float *src, *residual;
    float scale;
    size_t n; /* elements of each of the rows in work */
} walk_t;

/* ---- p = M q ------------------------------------------------------------------------------------
 */

INLINE void project_step(const walk_t *w, size_t j, size_t left, const float *q,
                         wide_t acc[ROWS][COLUMNS], size_t rows, size_t columns, bool ef,
                         bool whole)
{
    one_t scale = one_of(w->scale);
    wide_t x[ROWS];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++)
        x[r] = element(w->src, w->residual, scale, r * w->m->cols + j, left, ef, whole);
#pragma GCC unroll 8
    for (size_t k = 0; k < columns; k++) {
        wide_t column = take(q + k * w->m->cols + j, left, whole);
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++)
            acc[r][k] = wide_add(acc[r][k], wide_mul(x[r], column));
    }
}

INLINE void project_block(const walk_t *w, const float *q, float *p, bool ef, size_t rows,
                          size_t columns)
{
    wide_t acc[ROWS][COLUMNS];
    size_t ahead = ahead_of(w->m), j = 0;
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (size_t k = 0; k < columns; k++)
            acc[r][k] = wide_zero();
    for (; j + LANES <= w->n; j += LANES) {
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
            prefetch(w->src + r * w->m->cols + j + ahead);
            if (ef)
                prefetch(w->residual + r * w->m->cols + j + ahead);
        }
        project_step(w, j, LANES, q, acc, rows, columns, ef, true);
    }
    if (j < w->n)
        project_step(w, j, w->n - j, q, acc, rows, columns, ef, false);
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (size_t k = 0; k < columns; k++) {
            float sum = wide_sum(acc[r][k]);
            p[k * w->m->stride + r] = sum - sum == 0.0f ? sum : gw__float_of(GW_NAN_BITS);
        }
}

/* ---- q = q + transposed(M) p --------------------------------------------------------------------
 */

INLINE void collect_step(const walk_t *w, size_t j, size_t left, const one_t p[ROWS][COLUMNS],
                         float *q, size_t rows, size_t columns, bool ef, bool whole)
{
    one_t scale = one_of(w->scale);
    wide_t sum[COLUMNS];
#pragma GCC unroll 8
    for (size_t k = 0; k < columns; k++)
        sum[k] = take(q + k * w->m->cols + j, left, whole);
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
        wide_t x = element(w->src, w->residual, scale, r * w->m->cols + j, left, ef, whole);
#pragma GCC unroll 8
        for (size_t k = 0; k < columns; k++)
            sum[k] = wide_add(sum[k], wide_times(x, p[r][k]));
    }
#pragma GCC unroll 8
    for (size_t k = 0; k < columns; k++)
        put(q + k * w->m->cols + j, sum[k], left, whole);
}

INLINE void load_p(const walk_t *w, const float *p, one_t out[ROWS][COLUMNS], size_t rows,
                   size_t columns)
{
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (size_t k = 0; k < columns; k++)
            out[r][k] = one_of(p[k * w->m->stride + r]);
}

INLINE void collect_block(const walk_t *w, const float *p, float *q, bool ef, size_t rows,
                          size_t columns)
{
    one_t factor[ROWS][COLUMNS];
    size_t ahead = ahead_of(w->m), j = 0;
    load_p(w, p, factor, rows, columns);
    for (; j + LANES <= w->n; j += LANES) {
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
            prefetch(w->src + r * w->m->cols + j + ahead);
            if (ef)
                prefetch(w->residual + r * w->m->cols + j + ahead);
        }
        collect_step(w, j, LANES, factor, q, rows, columns, ef, true);
    }
    if (j < w->n)
        collect_step(w, j, w->n - j, factor, q, rows, columns, ef, false);
}

/* ---- p transposed(q) ----------------------------------------------------------------------------
 */

typedef enum expand { STORE, ADD, KEEP } expand_t;

INLINE void finish(const walk_t *w, wide_t y, float *dst, size_t at, size_t left, expand_t kind,
                   bool whole)
{
    y = wide_limit(wide_times(y, one_of(w->scale)));
    if (kind == ADD)
        y = wide_clean(wide_add(take(dst + at, left, whole), y));
    if (kind == KEEP) {
        wide_t x = wide_add(take(w->src + at, left, whole), take(dst + at, left, whole));
        y = wide_limit(wide_sub(wide_limit(x), y));
    }
    put(dst + at, y, left, whole);
}

/* Up to four columns, which are all. */
INLINE void expand_step(const walk_t *w, size_t j, size_t left, const one_t p[ROWS][COLUMNS],
                        const float *q, float *dst, size_t rows, size_t columns, expand_t kind,
                        bool whole)
{
    wide_t column[COLUMNS];
#pragma GCC unroll 8
    for (size_t k = 0; k < columns; k++)
        column[k] = take(q + k * w->m->cols + j, left, whole);
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
        wide_t y = wide_times(column[0], p[r][0]);
#pragma GCC unroll 8
        for (size_t k = 1; k < columns; k++)
            y = wide_add(y, wide_times(column[k], p[r][k]));
        finish(w, y, dst, r * w->m->cols + j, left, kind, whole);
    }
}

INLINE void expand_block(const walk_t *w, const float *p, const float *q, float *dst, expand_t kind,
                         size_t rows, size_t columns)
{
    one_t factor[ROWS][COLUMNS];
    size_t ahead = ahead_of(w->m), j = 0;
    load_p(w, p, factor, rows, columns);
    for (; j + LANES <= w->n; j += LANES) {
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
            prefetch(dst + r * w->m->cols + j + ahead);
            if (kind == KEEP)
                prefetch(w->src + r * w->m->cols + j + ahead);
        }
        expand_step(w, j, LANES, factor, q, dst, rows, columns, kind, true);
    }
    if (j < w->n)
        expand_step(w, j, w->n - j, factor, q, dst, rows, columns, kind, false);
}

/* Any number of columns; p row by row. */
INLINE void expand_many_step(const walk_t *w, size_t j, size_t left,
                             const float p[ROWS][GW_LOWRANK_MAX], const float *q, float *dst,
                             expand_t kind, size_t rows, bool whole)
{
    wide_t y[ROWS], column = take(q + j, left, whole);
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++)
        y[r] = wide_times(column, one_of(p[r][0]));
    for (size_t k = 1; k < w->m->rank; k++) {
        column = take(q + k * w->m->cols + j, left, whole);
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++)
            y[r] = wide_add(y[r], wide_times(column, one_of(p[r][k])));
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++)
        finish(w, y[r], dst, r * w->m->cols + j, left, kind, whole);
}

INLINE void expand_many(const walk_t *w, const float *p, const float *q, float *dst, expand_t kind,
                        size_t rows)
{
    float row[ROWS][GW_LOWRANK_MAX];
    size_t j = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t k = 0; k < w->m->rank; k++)
            row[r][k] = p[k * w->m->stride + r];
    for (; j + LANES <= w->n; j += LANES)
        expand_many_step(w, j, LANES, row, q, dst, kind, rows, true);
    if (j < w->n)
        expand_many_step(w, j, w->n - j, row, q, dst, kind, rows, false);
}

/* ---- All rows -----------------------------------------------------------------------------------
 */

/* Rows that are taken together from row i on: whole ones, or a single one. */
INLINE size_t rows_at(const gw_lowrank_panel_t *m, size_t i, size_t *n)
{
    size_t rest = m->count - i * m->cols;
    *n = rest < m->cols ? rest : m->cols;
    return rest >= ROWS * m->cols ? ROWS : 1;
}

/* One instance of `body` for each number of columns; the number of rows is ROWS or 1. */
#define EACH_SIZE(body, rows, columns, ...)                                                        \
    do {                                                                                           \
        if (rows == ROWS)                                                                          \
            EACH_COLUMNS(body, ROWS, columns, __VA_ARGS__);                                        \
        else                                                                                       \
            EACH_COLUMNS(body, 1, columns, __VA_ARGS__);                                           \
    } while (0)
#define EACH_COLUMNS(body, rows, columns, ...)                                                     \
    do {                                                                                           \
        switch (columns) {                                                                         \
        case 1:                                                                                    \
            body(__VA_ARGS__, rows, 1);                                                            \
            break;                                                                                 \
        case 2:                                                                                    \
            body(__VA_ARGS__, rows, 2);                                                            \
            break;                                                                                 \
        case 3:                                                                                    \
            body(__VA_ARGS__, rows, 3);                                                            \
            break;                                                                                 \
        default:                                                                                   \
            body(__VA_ARGS__, rows, 4);                                                            \
        }                                                                                          \
    } while (0)

/* The group of columns from k on. */
INLINE size_t columns_at(const gw_lowrank_panel_t *m, size_t k)
{
    return m->rank - k < COLUMNS ? m->rank - k : COLUMNS;
}

INLINE void begin_rows(walk_t *w, const float *src, const float *residual, size_t i)
{
    w->src = src ? src + i * w->m->cols : NULL;
    w->residual = residual ? residual + i * w->m->cols : NULL;
}

INLINE void project_all(const gw_lowrank_panel_t *m, const float *src, const float *residual,
                        float scale, const float *q, float *p, bool ef)
{
    walk_t w = {.m = m, .scale = scale};
    for (size_t i = 0, rows; i < m->rows; i += rows) {
        rows = rows_at(m, i, &w.n);
        begin_rows(&w, src, residual, i);
        for (size_t k = 0; k < m->rank; k += COLUMNS) {
            const float *column = q + k * m->cols;
            float *to = p + k * m->stride + i;
            EACH_SIZE(project_block, rows, columns_at(m, k), &w, column, to, ef);
        }
    }
}

INLINE void collect_all(const gw_lowrank_panel_t *m, const float *src, const float *residual,
                        float scale, const float *p, float *q, bool ef)
{
    walk_t w = {.m = m, .scale = scale};
    for (size_t i = 0, rows; i < m->rows; i += rows) {
        rows = rows_at(m, i, &w.n);
        begin_rows(&w, src, residual, i);
        for (size_t k = 0; k < m->rank; k += COLUMNS) {
            const float *from = p + k * m->stride + i;
            float *column = q + k * m->cols;
            EACH_SIZE(collect_block, rows, columns_at(m, k), &w, from, column, ef);
        }
    }
}

INLINE void expand_all(const gw_lowrank_panel_t *m, const float *p, const float *q, float factor,
                       const float *src, float *dst, expand_t kind)
{
    walk_t w = {.m = m, .scale = factor};
    for (size_t i = 0, rows; i < m->rows; i += rows) {
        rows = rows_at(m, i, &w.n);
        float *to = dst + i * m->cols;
        begin_rows(&w, src, NULL, i);
        if (m->rank > COLUMNS) {
            if (rows == ROWS)
                expand_many(&w, p + i, q, to, kind, ROWS);
            else
                expand_many(&w, p + i, q, to, kind, 1);
            continue;
        }
        EACH_SIZE(expand_block, rows, m->rank, &w, p + i, q, to, kind);
    }
}

static GW_KERNEL_BODY void project_plain(const gw_lowrank_panel_t *m, const float *src, float scale,
                                         const float *q, float *p)
{
    project_all(m, src, NULL, scale, q, p, false);
}

static GW_KERNEL_BODY void project_ef(const gw_lowrank_panel_t *m, const float *src,
                                      const float *residual, float scale, const float *q, float *p)
{
    project_all(m, src, residual, scale, q, p, true);
}

static GW_KERNEL_BODY void collect_plain(const gw_lowrank_panel_t *m, const float *src, float scale,
                                         const float *p, float *q)
{
    collect_all(m, src, NULL, scale, p, q, false);
}

static GW_KERNEL_BODY void collect_ef(const gw_lowrank_panel_t *m, const float *src,
                                      const float *residual, float scale, const float *p, float *q)
{
    collect_all(m, src, residual, scale, p, q, true);
}

static GW_KERNEL_BODY void expand_store(const gw_lowrank_panel_t *m, const float *p, const float *q,
                                        float factor, float *dst)
{
    expand_all(m, p, q, factor, NULL, dst, STORE);
}

static GW_KERNEL_BODY void expand_add(const gw_lowrank_panel_t *m, const float *p, const float *q,
                                      float factor, float *dst)
{
    expand_all(m, p, q, factor, NULL, dst, ADD);
}

static GW_KERNEL_BODY void expand_keep(const gw_lowrank_panel_t *m, const float *p, const float *q,
                                       float factor, const float *src, float *residual)
{
    expand_all(m, p, q, factor, src, residual, KEEP);
}

/* ---- Entries ------------------------------------------------------------------------------------
 */

static void project(const gw_lowrank_panel_t *panel, const float *src, const float *residual,
                    float scale, const float *q, float *p)
{
    uint64_t mode = gw__fpmode_enter();
    if (residual)
        project_ef(panel, src, residual, scale, q, p);
    else
        project_plain(panel, src, scale, q, p);
    gw__fpmode_leave(mode);
}

static void collect(const gw_lowrank_panel_t *panel, const float *src, const float *residual,
                    float scale, const float *p, float *q)
{
    uint64_t mode = gw__fpmode_enter();
    if (residual)
        collect_ef(panel, src, residual, scale, p, q);
    else
        collect_plain(panel, src, scale, p, q);
    gw__fpmode_leave(mode);
}

static void store(const gw_lowrank_panel_t *panel, const float *p, const float *q, float factor,
                  float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    expand_store(panel, p, q, factor, dst);
    gw__fpmode_leave(mode);
}

static void add(const gw_lowrank_panel_t *panel, const float *p, const float *q, float factor,
                float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    expand_add(panel, p, q, factor, dst);
    gw__fpmode_leave(mode);
}

static void keep(const gw_lowrank_panel_t *panel, const float *p, const float *q, float factor,
                 const float *src, float *residual)
{
    uint64_t mode = gw__fpmode_enter();
    expand_keep(panel, p, q, factor, src, residual);
    gw__fpmode_leave(mode);
}

#endif
