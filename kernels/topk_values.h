/* SPDX-License-Identifier: Apache-2.0 */
/* The normative arithmetic of sparse families: what an element becomes, and what is left of it. */
#ifndef GW_TOPK_VALUES_H
#define GW_TOPK_VALUES_H

#include <float.h>

#include "bytes.h"
#include "inline.h"
#include "topk_kernels.h"

static GW_INLINE uint32_t gw__topk_magnitude(float x)
{
    return gw__float_bits(x) & 0x7FFFFFFFu;
}

static GW_INLINE float gw__topk_limited(float x)
{
    x = x < FLT_MAX ? x : FLT_MAX;
    return x > -FLT_MAX ? x : -FLT_MAX;
}

/* What a residual becomes when it takes up src. */
static GW_INLINE float gw__topk_folded(float src, float residual)
{
    float p = gw__topk_limited(src + residual);
    return gw__topk_magnitude(src) < GW_TOPK_INF ? p : residual;
}

/* What a residual becomes when `value` was sent and arrives as `sent`. */
static GW_INLINE float gw__topk_settled(float residual, float value, float sent)
{
    if (gw__topk_magnitude(value) >= GW_TOPK_INF || gw__topk_magnitude(sent) > GW_TOPK_INF)
        return residual;
    return gw__topk_magnitude(sent) == GW_TOPK_INF ? 0.0f : value - sent;
}

#endif
