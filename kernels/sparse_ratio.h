/* SPDX-License-Identifier: Apache-2.0 */
/* How many of n things a ratio is, as everyone counts them. */
#ifndef GW_SPARSE_RATIO_H
#define GW_SPARSE_RATIO_H

#include <stddef.h>
#include <stdint.h>

#include "inline.h"

/* Of n things, at most 2^24, the nearest number, but one at least; the ratio is in 2^-32. */
static GW_INLINE size_t gw__ratio_of(uint32_t fixed, size_t n)
{
    size_t count = (size_t)(((uint64_t)n * fixed + 0x80000000u) >> 32);
    return count ? count : 1;
}

#endif
