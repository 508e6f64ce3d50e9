/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers without state: a hash of a counter. */
#ifndef GW_SPLITMIX_H
#define GW_SPLITMIX_H

#include <stdint.h>

#include "inline.h"

/* What the counter goes up by: number n of the stream that starts at s is
 * gw__splitmix(s + (n + 1) * GW_SPLITMIX_STEP). */
#define GW_SPLITMIX_STEP UINT64_C(0x9E3779B97F4A7C15)

/* The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
 * 2014). */
static GW_INLINE uint64_t gw__splitmix(uint64_t h)
{
    h = (h ^ (h >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94D049BB133111EB);
    return h ^ (h >> 31);
}

#endif
