/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the family block: what a block of elements weighs. */
#include "kernel_bodies_block.h"

#include <string.h>

#include "bytes.h"

enum { BENCH = 602, BLOCK = 256 };

/* No bit, or one at any place, often one that the mask has not. */
void block_prepare_any(kernel_call_t *c)
{
    uint64_t seed = c->seed;
    size_t bytes = c->number == BENCH ? 4 * c->count : 2 * (c->count / 2);
    uint8_t *at = kernel_add(c, "source", KERNEL_IN, bytes, 1);
    memset(at, 0, bytes);
    if (c->number % 2 && bytes)
        at[gw_test_random(&seed) % bytes | 1] = (uint8_t)(seed % 3 ? 0x80 : 1 << seed / 3 % 8);
}

uint64_t block_run_any(const gw_kernels_t *k, kernel_call_t *c)
{
    return k->block.any(c->region[0].at, c->region[0].bytes,
                        c->number % 4 < 2 ? 0x7FFFFFFF : 0x7FFF7FFF);
}

void block_prepare_rms(kernel_call_t *c)
{
    if (c->count == 0)
        c->count = 1;
    float *x = (float *)(void *)kernel_add(c, "source", KERNEL_IN, 4 * c->count, 4);
    size_t tile = c->count < 1 << 20 ? c->count : 1 << 20;
    test_fill(c->fill, c->seed, x, tile);
    for (size_t i = tile; i < c->count; i++)
        x[i] = x[i - tile];
}

/* The bench takes the blocks of a codec, a case all of it. */
uint64_t block_run_rms(const gw_kernels_t *k, kernel_call_t *c)
{
    const float *x = kernel_floats(c, 0);
    uint64_t bits = 0;
    if (c->number != BENCH)
        return gw__float_bits(k->block.rms(x, c->count));
    for (size_t i = 0; i + BLOCK <= c->count; i += BLOCK)
        bits += gw__float_bits(k->block.rms(x + i, BLOCK));
    return bits;
}
