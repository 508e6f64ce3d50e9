/* SPDX-License-Identifier: Apache-2.0 */
/* Products with low-rank factors, normative scalar tier. */
#include "ref.h"

#include "fpmode.h"
#include "lowrank_values.h"

enum { LANES = GW_LOWRANK_LANES };

/* Elements of row i. */
static size_t length_of(const gw_lowrank_panel_t *m, size_t i)
{
    size_t rest = m->count - i * m->cols;
    return rest < m->cols ? rest : m->cols;
}

static float product(const float *src, const float *residual, float scale, const float *q, size_t n)
{
    float lane[LANES] = {0};
    for (size_t j = 0; j < n; j++)
        lane[j % LANES] = lane[j % LANES] + gw__lowrank_element(src, residual, scale, j) * q[j];
    for (size_t width = LANES / 2; width > 0; width /= 2)
        for (size_t l = 0; l < width; l++)
            lane[l] = lane[l] + lane[l + width];
    return gw__lowrank_sum(lane[0]);
}

static GW_KERNEL_BODY void project(const gw_lowrank_panel_t *m, const float *src,
                                   const float *residual, float scale, const float *q, float *p)
{
    for (size_t i = 0; i < m->rows; i++) {
        const float *row = src + i * m->cols, *kept = residual ? residual + i * m->cols : NULL;
        for (size_t k = 0; k < m->rank; k++)
            p[k * m->stride + i] = product(row, kept, scale, q + k * m->cols, length_of(m, i));
    }
}

static GW_KERNEL_BODY void collect(const gw_lowrank_panel_t *m, const float *src,
                                   const float *residual, float scale, const float *p, float *q)
{
    for (size_t i = 0; i < m->rows; i++) {
        const float *row = src + i * m->cols, *kept = residual ? residual + i * m->cols : NULL;
        for (size_t k = 0; k < m->rank; k++)
            for (size_t j = 0; j < length_of(m, i); j++)
                q[k * m->cols + j] = q[k * m->cols + j] + gw__lowrank_element(row, kept, scale, j) *
                                                              p[k * m->stride + i];
    }
}

static float value(const gw_lowrank_panel_t *m, const float *p, const float *q, float factor,
                   size_t i, size_t j)
{
    float sum = p[i] * q[j];
    for (size_t k = 1; k < m->rank; k++)
        sum = sum + p[k * m->stride + i] * q[k * m->cols + j];
    return gw__lowrank_limited(sum * factor);
}

static GW_KERNEL_BODY void store(const gw_lowrank_panel_t *m, const float *p, const float *q,
                                 float factor, float *dst)
{
    for (size_t i = 0; i < m->rows; i++)
        for (size_t j = 0; j < length_of(m, i); j++)
            dst[i * m->cols + j] = value(m, p, q, factor, i, j);
}

static GW_KERNEL_BODY void add(const gw_lowrank_panel_t *m, const float *p, const float *q,
                               float factor, float *dst)
{
    for (size_t i = 0; i < m->rows; i++)
        for (size_t j = 0; j < length_of(m, i); j++) {
            float *at = dst + i * m->cols + j;
            *at = gw__lowrank_added(*at, value(m, p, q, factor, i, j));
        }
}

static GW_KERNEL_BODY void keep(const gw_lowrank_panel_t *m, const float *p, const float *q,
                                float factor, const float *src, float *residual)
{
    for (size_t i = 0; i < m->rows; i++)
        for (size_t j = 0; j < length_of(m, i); j++) {
            size_t at = i * m->cols + j;
            residual[at] = gw__lowrank_kept(src[at], residual[at], value(m, p, q, factor, i, j));
        }
}

void gw__lowrank_ref_project(const gw_lowrank_panel_t *panel, const float *src,
                             const float *residual, float scale, const float *q, float *p)
{
    uint64_t mode = gw__fpmode_enter();
    project(panel, src, residual, scale, q, p);
    gw__fpmode_leave(mode);
}

void gw__lowrank_ref_collect(const gw_lowrank_panel_t *panel, const float *src,
                             const float *residual, float scale, const float *p, float *q)
{
    uint64_t mode = gw__fpmode_enter();
    collect(panel, src, residual, scale, p, q);
    gw__fpmode_leave(mode);
}

void gw__lowrank_ref_store(const gw_lowrank_panel_t *panel, const float *p, const float *q,
                           float factor, float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    store(panel, p, q, factor, dst);
    gw__fpmode_leave(mode);
}

void gw__lowrank_ref_add(const gw_lowrank_panel_t *panel, const float *p, const float *q,
                         float factor, float *dst)
{
    uint64_t mode = gw__fpmode_enter();
    add(panel, p, q, factor, dst);
    gw__fpmode_leave(mode);
}

void gw__lowrank_ref_keep(const gw_lowrank_panel_t *panel, const float *p, const float *q,
                          float factor, const float *src, float *residual)
{
    uint64_t mode = gw__fpmode_enter();
    keep(panel, p, q, factor, src, residual);
    gw__fpmode_leave(mode);
}
