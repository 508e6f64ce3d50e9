/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the family block: what a block of elements weighs. */
#ifndef GW_BLOCK_KERNELS_H
#define GW_BLOCK_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw_block_kernels {
    /* Whether a bit is set that the mask, repeated every 4 bytes, has; bytes is even. */
    bool (*any)(const void *x, size_t bytes, uint32_t mask);
    /* The root of the mean square of count > 0 elements: squares are exact in binary64 and added in
     * 16 sums, element i to sum i mod 16; these are added in halves. GW_NAN_BITS for NaN; Inf only
     * where one is among them. */
    float (*rms)(const float *x, size_t count);
} gw_block_kernels_t;

#endif
