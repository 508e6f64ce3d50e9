/* SPDX-License-Identifier: Apache-2.0 */
/* The normative scale of one sign bucket: a sum in a fixed order, and what its end makes of it. */
#ifndef GW_SIGN_SCALE_H
#define GW_SIGN_SCALE_H

#include <float.h>

#include "bytes.h"
#include "inline.h"
#include "kernels.h"

/*
 * The sum of |p| is taken in binary32 in 32 lanes: lane j adds the elements j, j + 32, j + 64 ...
 * of the bucket in this order, beginning with 0; then lane j takes lane j + 16, j + 8, j + 4, j + 2
 * and j + 1. Two registers of AVX-512, four of AVX2 or one warp hold the lanes. A NaN or an Inf in
 * the bucket ends as a sum that is not finite.
 */
enum { GW_SIGN_LANES = 32 };

static GW_INLINE float gw__sign_fold(float lane[GW_SIGN_LANES])
{
    for (int half = GW_SIGN_LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] = lane[j] + lane[j + half];
    return lane[0];
}

/* A sum beyond FLT_MAX of finite values is taken again of values that are this much less. The scale
 * is an average, so that it fits again. */
#define GW_SIGN_SMALLER 0x1p-13f

/* The scale of a bucket: the mean of |p| over the `touched` elements, those of groups that hold
 * anything but zeros. It minimises the squared error of the elements that get a sign. */
static GW_INLINE float gw__sign_scale(float sum, size_t touched, bool smaller)
{
    if (!touched)
        return 0.0f;
    float mean = sum / (float)touched;
    if (smaller) {
        double wide = (double)mean / (double)GW_SIGN_SMALLER;
        return wide > (double)FLT_MAX ? FLT_MAX : (float)wide;
    }
    return mean;
}

/* Whether an encoder can have written this scale: finite and not negative, or the poison. */
static GW_INLINE bool gw__sign_scale_valid(uint32_t bits)
{
    return bits < 0x7F800000u || bits == GW_NAN_BITS;
}

#endif
