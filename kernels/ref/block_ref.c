/* SPDX-License-Identifier: Apache-2.0 */
/* What a block of elements weighs, normative scalar tier. */
#include "ref.h"

#include "block_rms.h"
#include "fpmode.h"

bool gw__block_ref_any(const void *x, size_t bytes, uint32_t mask)
{
    const uint8_t *at = x;
    uint64_t bits = 0;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8)
        bits |= gw__load64(at + i);
    bits = (bits | bits >> 32) & mask;
    for (; i < bytes; i += 2)
        bits |= gw__load16(at + i) & (i % 4 ? mask >> 16 : mask);
    return bits != 0;
}

static GW_KERNEL_BODY float rms(const float *x, size_t count)
{
    double sum[GW_BLOCK_SUMS] = {0};
    for (size_t i = 0; i < count; i++)
        sum[i % GW_BLOCK_SUMS] += (double)x[i] * (double)x[i];
    return gw__block_rms(sum, count);
}

float gw__block_ref_rms(const float *x, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    float result = rms(x, count);
    gw__fpmode_leave(mode);
    return result;
}
