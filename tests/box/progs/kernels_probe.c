/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every kernel of every tier that this processor has, and says which tiers these are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { COUNT = 1100, BUCKET = 96 };

/* All that the kernels of a tier make of one input. */
typedef struct outcome {
    uint8_t payload[COUNT + COUNT / BUCKET * GW_QUANT_META_BYTES + 64];
    float residual[COUNT], stored[COUNT], added[COUNT], sum[COUNT], wide[2][COUNT];
    uint16_t narrow[2][COUNT];
} outcome_t;

static float src[COUNT];

/* A bell around 0; in the second third all values are positive, in the last some are denormal. */
static void fill(void)
{
    uint32_t state = 1;
    for (int i = 0; i < COUNT; i++) {
        state = state * 1664525u + 1013904223u;
        src[i] = (float)(int32_t)state * 0x1p-40f;
        if (i > COUNT / 3)
            src[i] = src[i] * src[i] + (i < COUNT / 3 * 2 ? 1.0f : 0.0f);
        if (i > COUNT / 3 * 2)
            src[i] *= 0x1p-126f;
    }
}

static void run(const gw_kernels_t *tier, const gw_quant_spec_t *spec, outcome_t *o)
{
    memset(o, 0, sizeof *o);
    for (int ef = 0; ef < 2; ef++) {
        tier->quant.encode(spec, src, ef ? o->residual : NULL, COUNT, 0, 7, o->payload);
        if (!tier->quant.valid(spec, o->payload, COUNT))
            exit(2);
        tier->quant.store(spec, o->payload, COUNT, o->stored);
        tier->quant.add(spec, o->payload, COUNT, o->added);
    }
    tier->sum.add(o->sum, src, COUNT);
    tier->sum.scale(o->sum, 0.3f, COUNT);
    tier->cast.f32_to_bf16(src, o->narrow[0], COUNT);
    tier->cast.f32_to_f16(src, o->narrow[1], COUNT);
    tier->cast.bf16_to_f32(o->narrow[0], o->wide[0], COUNT);
    tier->cast.f16_to_f32(o->narrow[1], o->wide[1], COUNT);
}

/* Whether a tier gives the bytes of the reference in all widths. */
static int same(const gw_kernels_t *tier)
{
    static outcome_t expected, seen;
    for (unsigned k = 0; k < 8 * 4; k++) {
        gw_quant_spec_t spec = {k / 4 + 1, BUCKET, k & 1, k >> 1 & 1};
        run(gw__kernels_of("ref"), &spec, &expected);
        run(tier, &spec, &seen);
        if (memcmp(&expected, &seen, sizeof seen))
            return 0;
    }
    return 1;
}

#if defined(__x86_64__)
/* One instruction of AVX2, whatever the processor says. */
static void leak(void)
{
    __asm__ volatile("vpaddd %%ymm0, %%ymm0, %%ymm0" : : : "xmm0");
}
#else
static void leak(void)
{
}
#endif

/* kernels_probe [leak]: "tier NAME" for each; 1 when one differs from the reference. */
int main(int argc, char **argv)
{
    fill();
    if (argc > 1 && !strcmp(argv[1], "leak"))
        leak();
    for (size_t i = 0; gw__kernels_available(i); i++) {
        printf("tier %s\n", gw__kernels_available(i));
        if (!same(gw__kernels_of(gw__kernels_available(i)))) {
            printf("differs from the reference\n");
            return 1;
        }
    }
    return 0;
}
