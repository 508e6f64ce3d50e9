/* SPDX-License-Identifier: Apache-2.0 */
/* What the families cast, fp8 and fp4 share: their kernels as blockwise.h calls them, parameters.
 */
#ifndef GW_FLOATS_H
#define GW_FLOATS_H

#include "blockwise.h"
#include "kernels.h"

/* `kernels` codes for `spec`; spec->block is the grain, at most GW_BLOCK. kernels->valid may be
 * NULL: any bytes are valid then. */
typedef struct gw__floats {
    gw_float_spec_t spec;
    gw_float_kernels_t kernels;
} gw__floats_t;

size_t gw__floats_bytes(const gw_float_spec_t *spec, size_t count);

/* `f` stays in use. */
gw_blockwise_t gw__floats_blocks(const gw__floats_t *f);

/* The parameters of a frame: byte 0 which of the family's formats, bytes 2 and 3 the block. */
void gw__floats_put(unsigned format, unsigned block, uint8_t out[GW_CODEC_HEADER_PARAMS]);
gw_status_t gw__floats_get(const uint8_t in[GW_CODEC_HEADER_PARAMS], unsigned *format,
                           unsigned *block);

/* GW_ERR_BAD_SETTING and the reason when `value` of parameter `name` is no multiple of `step`. */
gw_status_t gw__floats_multiple(const char *name, int value, int step, char *why, size_t size);

/* The bound of one element out of its relative and its absolute part; never rounded down. */
float gw__floats_bound(double relative, double absolute);

/* Greatest magnitude. */
float gw__floats_most(const float *x, size_t count);

#endif
