/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel family lowrank: products of a tall or wide matrix with a few columns. */
#ifndef GW_LOWRANK_KERNELS_H
#define GW_LOWRANK_KERNELS_H

#include <stddef.h>

#define GW_LOWRANK_MAX 32 /* columns of a factor */

/*
 * A row-major matrix M, or some of its rows. Its factors lie column by column: P has `rank` columns
 * of `stride` floats, of which the `rows` of this panel begin where the pointer points; Q has
 * `rank` columns of `cols` floats. What the last row lacks counts as 0.
 */
typedef struct gw_lowrank_panel {
    size_t rows, cols;
    size_t count; /* elements: above (rows - 1) * cols, at most rows * cols */
    size_t stride;
    unsigned rank; /* 1 to GW_LOWRANK_MAX */
} gw_lowrank_panel_t;

/*
 * All products and sums are single operations in binary32. M is scale * src, or scale * src + scale
 * * residual; with a scale of at most 1/2 that cannot overflow where both are finite. limited(x) is
 * x, or the number of greatest magnitude with its sign.
 */
typedef struct gw_lowrank_kernels {
    /*
     * p = M q. A sum over a row has 16 lanes: element j goes to lane j mod 16, in order; then lanes
     * l and l + 8 are added, l and l + 4, l + 2, l + 1. A sum that is not finite becomes
     * GW_NAN_BITS. An element that is NaN or Inf makes the sums of its row so, whatever q is.
     */
    void (*project)(const gw_lowrank_panel_t *panel, const float *src,
                    const float *residual /* or NULL */, float scale, const float *q, float *p);
    /* q = q + transposed(M) p, row by row in order. M has to be finite, here and below. */
    void (*collect)(const gw_lowrank_panel_t *panel, const float *src, const float *residual,
                    float scale, const float *p, float *q);
    /* y = limited(factor * (p transposed(q))), the sum over columns in order. store: dst = y. add:
     * dst = dst + y, where a NaN becomes GW_NAN_BITS. keep: residual = limited(limited(src +
     * residual) - y). */
    void (*store)(const gw_lowrank_panel_t *panel, const float *p, const float *q, float factor,
                  float *dst);
    void (*add)(const gw_lowrank_panel_t *panel, const float *p, const float *q, float factor,
                float *dst);
    void (*keep)(const gw_lowrank_panel_t *panel, const float *p, const float *q, float factor,
                 const float *src, float *residual);
} gw_lowrank_kernels_t;

#endif
