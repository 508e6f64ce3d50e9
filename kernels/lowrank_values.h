/* SPDX-License-Identifier: Apache-2.0 */
/* The normative arithmetic of lowrank, element by element. */
#ifndef GW_LOWRANK_VALUES_H
#define GW_LOWRANK_VALUES_H

#include <float.h>
#include <stddef.h>

#include "bytes.h"
#include "inline.h"
#include "kernels.h"

#define GW_LOWRANK_LANES 16 /* of a sum over a row */

static GW_INLINE float gw__lowrank_limited(float x)
{
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

/* Element i of M. */
static GW_INLINE float gw__lowrank_element(const float *src, const float *residual, float scale,
                                           size_t i)
{
    float x = scale * src[i];
    return residual ? x + scale * residual[i] : x;
}

/* The sum over a row, from that of its lanes. */
static GW_INLINE float gw__lowrank_sum(float sum)
{
    return sum - sum == 0.0f ? sum : gw__float_of(GW_NAN_BITS);
}

static GW_INLINE float gw__lowrank_added(float dst, float y)
{
    float sum = dst + y;
    return sum != sum ? gw__float_of(GW_NAN_BITS) : sum;
}

/* What a residual becomes. */
static GW_INLINE float gw__lowrank_kept(float src, float residual, float y)
{
    return gw__lowrank_limited(gw__lowrank_limited(src + residual) - y);
}

#endif
