/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the CUDA kernels of lowrank. */
#include "launch.h"

enum { COLUMNS = GW_CUDA_LOWRANK_COLUMNS, SEGMENT = GW_CUDA_LOWRANK_SEGMENT };

static size_t groups_of(const gw_lowrank_panel_t *panel)
{
    return (panel->rank + COLUMNS - 1) / COLUMNS;
}

static gw_status_t project(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel,
                           const float *src, const float *residual, float scale, const float *q,
                           float *p)
{
    uint64_t rows = panel->rows, cols = panel->cols, count = panel->count, stride = panel->stride;
    unsigned rank = panel->rank;
    void *args[] = {&rows, &cols, &count, &stride, &rank, &src, &residual, &scale, &q, &p};
    size_t units = (panel->rows + 1) / 2 * groups_of(panel);
    return gw__cuda_by_warp(queue, "gw_cuda_lowrank_project", units, 1, 0, args);
}

static gw_status_t collect(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel,
                           const float *src, const float *residual, float scale, const float *p,
                           float *q)
{
    uint64_t rows = panel->rows, cols = panel->cols, count = panel->count, stride = panel->stride;
    unsigned rank = panel->rank;
    void *args[] = {&rows, &cols, &count, &stride, &rank, &src, &residual, &scale, &p, &q};
    size_t units = (panel->cols + GW_CUDA_WARP - 1) / GW_CUDA_WARP * groups_of(panel);
    return gw__cuda_by_warp(queue, "gw_cuda_lowrank_collect", panel->rows ? units : 0, 1, 0, args);
}

static gw_status_t expand(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel, const float *p,
                          const float *q, float factor, unsigned add, const float *src, float *dst)
{
    uint64_t rows = panel->rows, cols = panel->cols, count = panel->count, stride = panel->stride;
    unsigned rank = panel->rank;
    void *args[] = {&rows, &cols, &count, &stride, &rank, &p, &q, &factor, &add, &src, &dst};
    size_t units = panel->rows * ((panel->cols + SEGMENT - 1) / SEGMENT);
    return gw__cuda_by_warp(queue, "gw_cuda_lowrank_expand", units, 1, 0, args);
}

static gw_status_t store(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel, const float *p,
                         const float *q, float factor, float *dst)
{
    return expand(queue, panel, p, q, factor, 0, NULL, dst);
}

static gw_status_t add(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel, const float *p,
                       const float *q, float factor, float *dst)
{
    return expand(queue, panel, p, q, factor, 1, NULL, dst);
}

static gw_status_t keep(gw_cuda_queue_t *queue, const gw_lowrank_panel_t *panel, const float *p,
                        const float *q, float factor, const float *src, float *residual)
{
    return expand(queue, panel, p, q, factor, 0, src, residual);
}

const gw_cuda_lowrank_kernels_t gw__cuda_lowrank = {project, collect, store, add, keep};
