/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces of codecs that sum factors: two exchanges of the engine for one call. */
#ifndef GW_FACTORS_H
#define GW_FACTORS_H

#include <gradwire/codec.h>
#include <gradwire/comm.h>

#include "engine.h"

/* Of a communicator: the factored call under way, and its memory. */
typedef struct gw__factors {
    void *memory; /* grows to the largest call, then stays */
    size_t memory_bytes;
    gw_factors_t io;
    gw_factor_sizes_t sizes;
    bool second; /* the second sum is under way */
    gw__engine_figures_t figures;
} gw__factors_t;

/* Whether a call of `count` elements goes through here; false as well where factors would not gain.
 * A function of its arguments, so that all ranks say the same. */
bool gw__factors_serve(const gw_coder_t *coder, gw_dtype_t dtype, size_t count, size_t rows,
                       gw_factor_sizes_t *out);

/*
 * A work whose turn it is, with job and the residual slot set up by gw__call_begin: computes the
 * own part of the first sum and begins to exchange it. step() goes on as gw__engine_step() does,
 * and leaves the figures of the whole call in the engine when it is over.
 */
void gw__factors_begin(gw_work_t *work, const gw_factor_sizes_t *sizes, float *residual);
gw_status_t gw__factors_step(gw_work_t *work);

void gw__factors_free(gw__factors_t *factors);

#endif
