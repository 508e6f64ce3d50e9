/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs for quantiser tests: ordinary gradients and every special bucket of numerics. */
#ifndef QUANT_FILL_H
#define QUANT_FILL_H

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "gw_random.h"

typedef enum test_fill {
    FILL_NORMAL,   /* bell, mean 0 */
    FILL_HEAVY,    /* log-normal magnitudes */
    FILL_POSITIVE, /* [4.9, 5]: the zero grid does not apply */
    FILL_ZEROS,
    FILL_NEGATIVE_ZERO, /* +0 and -0 mixed */
    FILL_CONSTANT,
    FILL_DENORMAL,          /* around 1e-42 */
    FILL_TINY,              /* units around FLT_MIN */
    FILL_MAX,               /* FLT_MAX throughout */
    FILL_BOTH_MAX,          /* FLT_MAX and -FLT_MAX */
    FILL_HUGE,              /* around 2^125 and 2^126 */
    FILL_MIXED,             /* {0, -0, denormal, 1, +-FLT_MAX, log-normal} */
    FILL_GRID,              /* multiples of a unit, ties included */
    FILL_SPARSE,            /* mostly 0 */
    FILL_FINITE,            /* all before are finite */
    FILL_NAN = FILL_FINITE, /* one NaN per ~700 */
    FILL_INF,
    FILL_COUNT
} test_fill_t;

static inline float test_lognormal(uint64_t *seed)
{
    float sign = gw_test_random(seed) & 1 ? 1.0f : -1.0f;
    return sign * expf(2.0f * gw_test_normal(seed));
}

static inline float test_mixed(uint64_t *seed)
{
    switch (gw_test_random(seed) % 7) {
    case 0:
        return 0.0f;
    case 1:
        return -0.0f;
    case 2:
        return 1e-42f;
    case 3:
        return 1.0f;
    case 4:
        return FLT_MAX;
    case 5:
        return -FLT_MAX;
    default:
        return test_lognormal(seed);
    }
}

static inline float test_value(test_fill_t fill, uint64_t *seed)
{
    float normal = gw_test_normal(seed);
    uint64_t dice = gw_test_random(seed);
    switch (fill) {
    case FILL_NORMAL:
        return 1e-3f * normal;
    case FILL_HEAVY:
        return test_lognormal(seed);
    case FILL_POSITIVE:
        return 4.9f + (float)(dice % 1000) * 1e-4f;
    case FILL_ZEROS:
        return 0.0f;
    case FILL_NEGATIVE_ZERO:
        return dice % 2 ? -0.0f : 0.0f;
    case FILL_CONSTANT:
        return -0.37f;
    case FILL_DENORMAL:
        return 1e-42f * normal;
    case FILL_TINY:
        return 30.0f * FLT_MIN * normal;
    case FILL_MAX:
        return FLT_MAX;
    case FILL_BOTH_MAX:
        return dice % 2 ? FLT_MAX : -FLT_MAX;
    case FILL_HUGE:
        return normal * (dice % 2 ? 0x1p124f : 0x1p125f);
    case FILL_MIXED:
        return test_mixed(seed);
    case FILL_GRID:
        return (float)((int)(dice % 511) - 255) * 0.5f;
    case FILL_SPARSE:
        return dice % 50 ? 0.0f : normal;
    case FILL_NAN:
        return dice % 700 ? normal : dice & 1 << 20 ? NAN : -NAN;
    default:
        return dice % 700 ? normal : dice & 1 << 20 ? INFINITY : -INFINITY;
    }
}

static inline void test_fill(test_fill_t fill, uint64_t seed, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = test_value(fill, &seed);
}

#endif
