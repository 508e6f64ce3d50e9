/* SPDX-License-Identifier: Apache-2.0 */
/* Products with low-rank factors, of device memory: every sum in the order of the reference. */
#include "../lowrank_values.h"
#include "device.cuh"

enum { COLUMNS = GW_CUDA_LOWRANK_COLUMNS, SEGMENT = GW_CUDA_LOWRANK_SEGMENT };

typedef struct panel {
    uint64_t rows, cols, count, stride;
    unsigned rank;
} panel_t;

GW_DEVICE panel_t panel_of(uint64_t rows, uint64_t cols, uint64_t count, uint64_t stride,
                           unsigned rank)
{
    panel_t m = {rows, cols, count, stride, rank};
    return m;
}

/* Elements of row i. */
GW_DEVICE uint64_t length_of(const panel_t *m, uint64_t i)
{
    uint64_t rest = m->count - i * m->cols;
    return rest < m->cols ? rest : m->cols;
}

GW_DEVICE unsigned groups_of(const panel_t *m)
{
    return (m->rank + COLUMNS - 1) / COLUMNS;
}

/* Columns of group g. */
GW_DEVICE unsigned columns_of(const panel_t *m, unsigned g)
{
    unsigned rest = m->rank - g * COLUMNS;
    return rest < COLUMNS ? rest : COLUMNS;
}

/* ---- M q ----------------------------------------------------------------------------------------
 */

/* The part of this lane in the sums over a row of n elements, for some columns. */
GW_DEVICE void sum_row(const float *row, const float *kept, float scale, uint64_t n, const float *q,
                       uint64_t cols, unsigned columns, float sum[COLUMNS])
{
    for (uint64_t j = gw_lane() % GW_LOWRANK_LANES; j < n; j += GW_LOWRANK_LANES) {
        float x = gw__lowrank_element(row, kept, scale, j);
        GW_UNROLL(8)
        for (unsigned k = 0; k < COLUMNS; k++)
            if (k < columns)
                sum[k] = sum[k] + x * q[k * cols + j];
    }
}

/* Lanes l and l + 8 of 16 are added, then l and l + 4, l + 2, l + 1: right in the first of them. */
GW_DEVICE float fold_half(float x)
{
    GW_UNROLL(4)
    for (int half = GW_LOWRANK_LANES / 2; half; half /= 2)
        x = x + __shfl_down_sync(GW_ALL, x, half);
    return x;
}

/* A half of a warp has the 16 lanes of a row: a warp does two rows at a time. */
extern "C" __global__ void gw_cuda_lowrank_project(uint64_t rows, uint64_t cols, uint64_t count,
                                                   uint64_t stride, unsigned rank, const float *src,
                                                   const float *residual, float scale,
                                                   const float *q, float *p)
{
    panel_t m = panel_of(rows, cols, count, stride, rank);
    uint64_t units = (rows + 1) / 2 * groups_of(&m);
    for (uint64_t u = gw_warp(); u < units; u += gw_warps()) {
        unsigned g = (unsigned)(u % groups_of(&m)), columns = columns_of(&m, g);
        uint64_t i = u / groups_of(&m) * 2 + gw_lane() / GW_LOWRANK_LANES, k0 = g * COLUMNS;
        float sum[COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (i < rows)
            sum_row(src + i * cols, residual ? residual + i * cols : NULL, scale, length_of(&m, i),
                    q + k0 * cols, cols, columns, sum);
        __syncwarp();
        GW_UNROLL(8)
        for (unsigned k = 0; k < COLUMNS; k++) {
            float all = fold_half(sum[k]);
            if (k < columns && i < rows && gw_lane() % GW_LOWRANK_LANES == 0)
                p[(k0 + k) * stride + i] = gw__lowrank_sum(all);
        }
    }
}

/* ---- q + transposed(M) p ------------------------------------------------------------------------
 */

/* A lane has a column of M, and goes down its rows. */
extern "C" __global__ void gw_cuda_lowrank_collect(uint64_t rows, uint64_t cols, uint64_t count,
                                                   uint64_t stride, unsigned rank, const float *src,
                                                   const float *residual, float scale,
                                                   const float *p, float *q)
{
    panel_t m = panel_of(rows, cols, count, stride, rank);
    uint64_t units = (cols + GW_LANES - 1) / GW_LANES * groups_of(&m);
    for (uint64_t u = gw_warp(); u < units; u += gw_warps()) {
        unsigned g = (unsigned)(u % groups_of(&m)), columns = columns_of(&m, g);
        uint64_t j = u / groups_of(&m) * GW_LANES + gw_lane(), k0 = g * COLUMNS;
        if (j >= cols)
            continue;
        float sum[COLUMNS];
        GW_UNROLL(8)
        for (unsigned k = 0; k < COLUMNS; k++)
            sum[k] = k < columns ? q[(k0 + k) * cols + j] : 0.0f;
        for (uint64_t i = 0; i < rows && i * cols + j < count; i++) {
            float x = gw__lowrank_element(src, residual, scale, i * cols + j);
            GW_UNROLL(8)
            for (unsigned k = 0; k < COLUMNS; k++)
                if (k < columns)
                    sum[k] = sum[k] + x * p[(k0 + k) * stride + i];
        }
        GW_UNROLL(8)
        for (unsigned k = 0; k < COLUMNS; k++)
            if (k < columns)
                q[(k0 + k) * cols + j] = sum[k];
    }
}

/* ---- p transposed(q) ----------------------------------------------------------------------------
 */

/* Four elements of a row, from column j on; `n` elements are left from there. */
GW_DEVICE float4 value_quad(const panel_t *m, const float *p, const float *q, float factor,
                            uint64_t i, uint64_t j, unsigned n)
{
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (unsigned k = 0; k < m->rank; k++) {
        const float *column = q + k * m->cols + j;
        float4 v = gw_quad(column, 0, n, gw_wide(column));
        float x = p[k * m->stride + i];
        v = make_float4(x * v.x, x * v.y, x * v.z, x * v.w);
        sum = k ? gw_quad_sum(sum, v) : v;
    }
    return make_float4(gw__lowrank_limited(sum.x * factor), gw__lowrank_limited(sum.y * factor),
                       gw__lowrank_limited(sum.z * factor), gw__lowrank_limited(sum.w * factor));
}

GW_DEVICE float4 added_quad(float4 d, float4 y)
{
    return make_float4(gw__lowrank_added(d.x, y.x), gw__lowrank_added(d.y, y.y),
                       gw__lowrank_added(d.z, y.z), gw__lowrank_added(d.w, y.w));
}

GW_DEVICE float4 kept_quad(float4 s, float4 r, float4 y)
{
    return make_float4(gw__lowrank_kept(s.x, r.x, y.x), gw__lowrank_kept(s.y, r.y, y.y),
                       gw__lowrank_kept(s.z, r.z, y.z), gw__lowrank_kept(s.w, r.w, y.w));
}

/* dst = y, dst = dst + y, or, with a source, the residual dst = what is lost. */
extern "C" __global__ void gw_cuda_lowrank_expand(uint64_t rows, uint64_t cols, uint64_t count,
                                                  uint64_t stride, unsigned rank, const float *p,
                                                  const float *q, float factor, unsigned add,
                                                  const float *src, float *dst)
{
    panel_t m = panel_of(rows, cols, count, stride, rank);
    uint64_t segments = (cols + SEGMENT - 1) / SEGMENT;
    for (uint64_t u = gw_warp(); u < rows * segments; u += gw_warps()) {
        uint64_t i = u / segments, j = u % segments * SEGMENT + 4 * gw_lane();
        uint64_t length = length_of(&m, i), at = i * cols + j;
        if (j >= length)
            continue;
        unsigned n = length - j < 4 ? (unsigned)(length - j) : 4;
        bool wide = gw_wide(dst + at);
        float4 y = value_quad(&m, p, q, factor, i, j, n);
        if (src)
            y = kept_quad(gw_quad(src + at, 0, n, gw_wide(src + at)), gw_quad(dst + at, 0, n, wide),
                          y);
        else if (add)
            y = added_quad(gw_quad(dst + at, 0, n, wide), y);
        gw_put_quad(dst + at, 0, n, wide, y);
    }
}
