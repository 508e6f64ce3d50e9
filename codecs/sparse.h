/* SPDX-License-Identifier: Apache-2.0 */
/* What the sparse families share: a ratio of what is sent, as everyone counts it. */
#ifndef GW_SPARSE_H
#define GW_SPARSE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "sparse_ratio.h"

/* A ratio in frames: in 2^-32, so that encoder and decoder count alike. */
static inline uint32_t gw__ratio_fixed(double ratio)
{
    return (uint32_t)llrint(ratio * 0x1p32);
}

/* The ratio as people write it: the shortest decimal that gives this number again. */
static inline double gw__ratio_real(uint32_t fixed)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, fixed * 0x1p-32);
        double ratio = strtod(text, NULL);
        if (gw__ratio_fixed(ratio) == fixed)
            return ratio;
    }
    return fixed * 0x1p-32;
}

static inline unsigned gw__log2(size_t power_of_two)
{
    return (unsigned)__builtin_ctzll(power_of_two);
}

#endif
