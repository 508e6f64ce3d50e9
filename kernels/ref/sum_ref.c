/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of binary32 arrays, normative scalar tier. */
#include "ref.h"

#include "fpmode.h"

static float one_nan(float x)
{
    return x != x ? gw__float_of(GW_NAN_BITS) : x;
}

static GW_KERNEL_BODY void add(float *dst, const uint8_t *src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = one_nan(dst[i] + gw__load_float(src + 4 * i));
}

static GW_KERNEL_BODY void scale(float *dst, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = one_nan(dst[i] * factor);
}

void gw__sum_ref_add(float *dst, const void *src, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    add(dst, src, count);
    gw__fpmode_leave(mode);
}

void gw__sum_ref_scale(float *dst, float factor, size_t count)
{
    uint64_t mode = gw__fpmode_enter();
    scale(dst, factor, count);
    gw__fpmode_leave(mode);
}
