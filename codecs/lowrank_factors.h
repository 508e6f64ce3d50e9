/* SPDX-License-Identifier: Apache-2.0 */
/* The factors of codec lowrank: the steps of PowerSGD on one matrix. */
#ifndef GW_LOWRANK_FACTORS_H
#define GW_LOWRANK_FACTORS_H

#include <gradwire/codec.h>

#include "kernels.h"

enum { GW_LOWRANK_PANEL = 16384 }; /* elements that are worked on at a time, about */

/* A matrix of count elements, row-major; what the last row lacks counts as 0. */
typedef struct gw_lowrank_shape {
    size_t rows, cols, count;
    size_t panel;  /* rows of a panel */
    unsigned rank; /* columns of each factor */
    int shift;     /* factors are of the matrix times 2^-shift */
} gw_lowrank_shape_t;

/*
 * The shape of `count` > 0 elements: rows as given, or, when `rows` is 0 or makes no matrix of it,
 * as near to a square as whole groups of 16 columns allow. `ranks` are summed.
 */
gw_lowrank_shape_t gw__lowrank_shape(unsigned rank, size_t count, size_t rows, int ranks);

/* Whether factors have at most half as many bytes as elements of `bytes` bytes each. */
bool gw__lowrank_gains(const gw_lowrank_shape_t *shape, size_t bytes);

/* Floats of scratch that the steps need: columns of Q, and a panel in binary32. */
size_t gw__lowrank_scratch(const gw_lowrank_shape_t *shape);

/* The steps, as gw_factor_ops_t has them. `first` is P: `rank` columns of `rows`; `second` is Q:
 * `rank` columns of `cols`. */
void gw__lowrank_project(const gw_lowrank_shape_t *shape, gw_factors_t *io);
bool gw__lowrank_factor(const gw_lowrank_shape_t *shape, gw_factors_t *io);
void gw__lowrank_expand(const gw_lowrank_shape_t *shape, gw_factors_t *io);

/* Of expand(): the residual, from the rank's own Q, which factor() left in scratch. */
void gw__lowrank_keep(const gw_lowrank_shape_t *shape, gw_factors_t *io);

/* P transposed(Q) to count elements of `dtype`, stored, or added to floats. `panel` is room for one
 * in binary32, used for other types. */
void gw__lowrank_result(const gw_lowrank_shape_t *shape, const float *p, const float *q,
                        float scale, bool add, gw_dtype_t dtype, void *dst, float *panel);

bool gw__lowrank_all_finite(const float *x, size_t count);

/* What an element loses at most: the norm of its column, and rounding. */
void gw__lowrank_bound(const gw_lowrank_shape_t *shape, const float *x, float *bound);

#endif
