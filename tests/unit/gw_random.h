/* SPDX-License-Identifier: Apache-2.0 */
/* Reproducible random numbers for test data. */
#ifndef GW_RANDOM_H
#define GW_RANDOM_H

#include <stdint.h>

/* splitmix64. */
static inline uint64_t gw_test_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Roughly normal, mean 0, deviation 1. */
static inline float gw_test_normal(uint64_t *state)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++)
        sum += (double)(gw_test_random(state) >> 11) * 0x1p-53;
    return (float)sum;
}

#endif
