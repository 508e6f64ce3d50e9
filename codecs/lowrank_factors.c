/* SPDX-License-Identifier: Apache-2.0 */
/* The factors of codec lowrank: the steps of PowerSGD on one matrix. */
#include "lowrank_factors.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "bytes.h"
#include "codecs.h"
#include "fpmode.h"
#include "splitmix.h"

/*
 * PowerSGD (Vogels, Karimireddy, Jaggi: Practical Low-Rank Gradient Compression for Distributed
 * Optimization, 2019): one step of subspace iteration on the sum of the ranks' matrices, begun
 * where the last call ended. P is the same on all ranks once it is summed and made orthonormal, and
 * Q is a sum too, so nothing that a rank has alone reaches the result.
 *
 * Of each matrix M, factors are those of M 2^-shift, with a shift that follows from the shape and
 * the number of ranks: no product and no sum of finite elements overflows. Elements below 2^-126
 * times 2^shift lose digits by that, and those below 2^-149 times 2^shift are sent as 0; they stay
 * in the residual.
 */

enum { LANES = 8, HEADROOM = 8 };

static int ceil_log2(size_t n)
{
    int log = 0;
    while (log < 63 && (size_t)1 << log < n)
        log++;
    return log;
}

/* Columns of a fold: the root, rounded up to whole vectors. */
static size_t fold(size_t count)
{
    size_t side = (size_t)sqrt((double)count);
    while (side * side < count)
        side++;
    return (side + 15) / 16 * 16;
}

gw_lowrank_shape_t gw__lowrank_shape(unsigned rank, size_t count, size_t rows, int ranks)
{
    bool known = rows > 0 && rows <= count && count % rows == 0;
    size_t cols = known ? count / rows : fold(count);
    gw_lowrank_shape_t s = {.rows = known ? rows : (count + cols - 1) / cols,
                            .cols = cols,
                            .count = count,
                            .rank = rank};
    s.panel = GW_LOWRANK_PANEL / cols / 4 * 4;
    s.panel = s.panel < 4 ? 4 : s.panel;
    s.panel = s.panel < s.rows ? s.panel : s.rows;
    /* |M q| <= |row of M| for |q| = 1, |transposed(M) p| <= |column of M|; M is a sum of two. */
    size_t side = s.rows > s.cols ? s.rows : s.cols;
    s.shift = HEADROOM + ceil_log2((size_t)ranks) + (ceil_log2(side) + 1) / 2;
    return s;
}

bool gw__lowrank_gains(const gw_lowrank_shape_t *s, size_t bytes)
{
    return s->count / s->rank / 8 * bytes >= s->rows + s->cols;
}

size_t gw__lowrank_scratch(const gw_lowrank_shape_t *s)
{
    return s->rank * s->cols + s->panel * s->cols;
}

/* Rows from `row` on, at most a panel. */
static gw_lowrank_panel_t panel_at(const gw_lowrank_shape_t *s, size_t row)
{
    size_t rows = s->rows - row < s->panel ? s->rows - row : s->panel;
    size_t rest = s->count - row * s->cols;
    return (gw_lowrank_panel_t){.rows = rows,
                                .cols = s->cols,
                                .count = rest < rows * s->cols ? rest : rows * s->cols,
                                .stride = s->rows,
                                .rank = s->rank};
}

/* Elements from `at` on in binary32. */
static const float *source(const gw_factors_t *io, size_t at, size_t n, float *wide)
{
    if (io->dtype == GW_F32)
        return (const float *)io->src + at;
    gw__widen(io->dtype, (const uint8_t *)io->src + 2 * at, wide, n);
    return wide;
}

static const float *residual_at(const gw_factors_t *io, size_t at)
{
    return io->residual ? io->residual + at : NULL;
}

bool gw__lowrank_all_finite(const float *x, size_t count)
{
    unsigned bad = 0;
    for (size_t i = 0; i < count; i++)
        bad |= (gw__float_bits(x[i]) & 0x7F800000u) == 0x7F800000u;
    return !bad;
}

static void fill_nan(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = gw__float_of(GW_NAN_BITS);
}

/* ---- P = M Q ------------------------------------------------------------------------------------
 */

/* A random column of at most norm 1: the finalizer of splitmix64 on key and place. */
static void draw_column(uint64_t key, size_t k, size_t cols, float *q)
{
    float most = ldexpf(1.0f, -(ceil_log2(cols) + 1) / 2 - 23);
    uint64_t stream = gw__splitmix(key + (k + 1) * GW_SPLITMIX_STEP);
    for (size_t j = 0; j < cols; j++) {
        int32_t value =
            (int32_t)(gw__splitmix(stream + (j + 1) * GW_SPLITMIX_STEP) >> 40) - (1 << 23);
        q[j] = (float)value * most;
    }
}

static bool all_zero(const float *x, size_t n)
{
    size_t i = 0;
    while (i < n && x[i] == 0.0f)
        i++;
    return i == n;
}

/* What the last call left; where it left nothing, at first or for want of a direction, chance. */
static void start(const gw_lowrank_shape_t *s, const gw_factors_t *io, float *q)
{
    for (size_t k = 0; k < s->rank; k++) {
        const float *warm = io->warm ? io->warm + k * s->cols : NULL;
        if (warm && !all_zero(warm, s->cols))
            memcpy(q + k * s->cols, warm, s->cols * sizeof *q);
        else
            draw_column(io->shared_key, k, s->cols, q + k * s->cols);
    }
}

static float scale_of(const gw_lowrank_shape_t *s)
{
    return ldexpf(1.0f, -s->shift);
}

void gw__lowrank_project(const gw_lowrank_shape_t *s, gw_factors_t *io)
{
    float *q = io->scratch, *wide = q + s->rank * s->cols;
    start(s, io, q);
    for (size_t row = 0; row < s->rows; row += s->panel) {
        gw_lowrank_panel_t m = panel_at(s, row);
        size_t at = row * s->cols;
        gw__kernels()->lowrank.project(&m, source(io, at, m.count, wide), residual_at(io, at),
                                       scale_of(s), q, io->first + row);
    }
    /* So that every row of the sum tells, whatever rows others have. */
    if (!gw__lowrank_all_finite(io->first, s->rank * s->rows))
        fill_nan(io->first, s->rank * s->rows);
}

/* ---- P orthonormal, Q = transposed(M) P ---------------------------------------------------------
 */

/* The products are exact in binary64; their sum has a fixed order. */
static double dot(const float *a, const float *b, size_t n)
{
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += (double)a[i + l] * (double)b[i + l];
    for (; i < n; i++)
        lane[i % LANES] += (double)a[i] * (double)b[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static void subtract(float *a, const float *b, double factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] = (float)((double)a[i] - factor * (double)b[i]);
}

static void divide(float *a, double by, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] = by > 0 ? (float)((double)a[i] / by) : 0.0f;
}

/*
 * Modified Gram-Schmidt, twice over: after the second time what is left of the columns before is
 * rounding (Giraud, Langou, Rozloznik, 2005). A column of which less than 2^-20 is its own has no
 * direction of its own: it becomes 0, and the next call draws another one.
 */
static GW_KERNEL_BODY void orthonormalize(float *p, size_t rows, unsigned rank)
{
    for (size_t k = 0; k < rank; k++) {
        float *column = p + k * rows;
        double before = sqrt(dot(column, column, rows));
        for (int turn = 0; turn < 2; turn++)
            for (size_t l = 0; l < k; l++)
                subtract(column, p + l * rows, dot(p + l * rows, column, rows), rows);
        double after = sqrt(dot(column, column, rows));
        divide(column, after > before * 0x1p-20 ? after : 0, rows);
    }
}

bool gw__lowrank_factor(const gw_lowrank_shape_t *s, gw_factors_t *io)
{
    float *q = io->scratch, *wide = q + s->rank * s->cols;
    io->poisoned = !gw__lowrank_all_finite(io->first, s->rank * s->rows);
    if (io->poisoned)
        return false;
    uint64_t mode = gw__fpmode_enter();
    orthonormalize(io->first, s->rows, s->rank);
    gw__fpmode_leave(mode);
    memset(q, 0, s->rank * s->cols * sizeof *q);
    for (size_t row = 0; row < s->rows; row += s->panel) {
        gw_lowrank_panel_t m = panel_at(s, row);
        size_t at = row * s->cols;
        gw__kernels()->lowrank.collect(&m, source(io, at, m.count, wide), residual_at(io, at),
                                       scale_of(s), io->first + row, q);
    }
    memcpy(io->second, q, s->rank * s->cols * sizeof *q);
    return true;
}

/* ---- The result ---------------------------------------------------------------------------------
 */

void gw__lowrank_result(const gw_lowrank_shape_t *s, const float *p, const float *q, float scale,
                        bool add, gw_dtype_t dtype, void *dst, float *panel)
{
    const gw_lowrank_kernels_t *kernels = &gw__kernels()->lowrank;
    float factor = ldexpf(scale, s->shift);
    for (size_t row = 0; row < s->rows; row += s->panel) {
        gw_lowrank_panel_t m = panel_at(s, row);
        size_t at = row * s->cols;
        float *to = dtype == GW_F32 ? (float *)dst + at : panel;
        (add ? kernels->add : kernels->store)(&m, p + row, q, factor, to);
        if (dtype != GW_F32)
            gw__narrow(dtype, panel, (uint8_t *)dst + 2 * at, m.count);
    }
}

/* What the rank's own elements lost, before the result takes their place. */
void gw__lowrank_keep(const gw_lowrank_shape_t *s, gw_factors_t *io)
{
    float *q = io->scratch, *wide = q + s->rank * s->cols;
    for (size_t row = 0; io->residual && row < s->rows; row += s->panel) {
        gw_lowrank_panel_t m = panel_at(s, row);
        size_t at = row * s->cols;
        gw__kernels()->lowrank.keep(&m, io->first + row, q, ldexpf(1.0f, s->shift),
                                    source(io, at, m.count, wide), io->residual + at);
    }
}

/* The directions of Q at norm 1, which is all that the next call needs of them. */
static GW_KERNEL_BODY void normalize(const gw_lowrank_shape_t *s, const float *q, float *warm)
{
    memcpy(warm, q, s->rank * s->cols * sizeof *warm);
    for (size_t k = 0; k < s->rank; k++) {
        float *column = warm + k * s->cols;
        divide(column, sqrt(dot(column, column, s->cols)), s->cols);
    }
}

static void spoil(const gw_lowrank_shape_t *s, gw_factors_t *io)
{
    float *wide = io->scratch + s->rank * s->cols;
    size_t step = s->panel * s->cols;
    fill_nan(wide, step < s->count ? step : s->count);
    for (size_t at = 0; at < s->count; at += step) {
        size_t n = s->count - at < step ? s->count - at : step;
        gw__narrow(io->dtype, wide, (uint8_t *)io->dst + gw__element_bytes(io->dtype) * at, n);
    }
}

void gw__lowrank_expand(const gw_lowrank_shape_t *s, gw_factors_t *io)
{
    /* A sum of Q that is not finite comes from no project() and factor() of a finite matrix. */
    if (!io->poisoned && !gw__lowrank_all_finite(io->second, s->rank * s->cols))
        io->poisoned = 1;
    if (io->poisoned) {
        spoil(s, io);
        return;
    }
    gw__lowrank_keep(s, io);
    gw__lowrank_result(s, io->first, io->second, io->scale, false, io->dtype, io->dst,
                       io->scratch + s->rank * s->cols);
    if (io->warm) {
        uint64_t mode = gw__fpmode_enter();
        normalize(s, io->second, io->warm);
        gw__fpmode_leave(mode);
    }
}

/* ---- The bound ----------------------------------------------------------------------------------
 */

/* A projection leaves of a column at most its norm. Sums of `rows` products round. */
void gw__lowrank_bound(const gw_lowrank_shape_t *s, const float *x, float *bound)
{
    double slack = 1 + 0x1p-10 + (double)(s->rows + s->cols) * 0x1p-24;
    for (size_t j = 0; j < s->cols && j < s->count; j++) {
        double square = 0;
        for (size_t i = j; i < s->count; i += s->cols)
            square += (double)x[i] * (double)x[i];
        double most = sqrt(square) * slack + (double)FLT_MIN;
        for (size_t i = j; i < s->count; i += s->cols)
            bound[i] = most > (double)FLT_MAX ? INFINITY : nextafterf((float)most, INFINITY);
    }
}
