/* SPDX-License-Identifier: Apache-2.0 */
/* The normative end of a mean square: what follows the 16 sums. */
#ifndef GW_BLOCK_RMS_H
#define GW_BLOCK_RMS_H

#include <math.h>

#include "bytes.h"
#include "kernels.h"

enum { GW_BLOCK_SUMS = 16 };

static inline float gw__block_rms(double *sum, size_t count)
{
    for (int half = GW_BLOCK_SUMS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    float rms = (float)sqrt(sum[0] / (double)count);
    return rms != rms ? gw__float_of(GW_NAN_BITS) : rms;
}

#endif
