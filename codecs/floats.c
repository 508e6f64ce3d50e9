/* SPDX-License-Identifier: Apache-2.0 */
/* What the families cast, fp8 and fp4 share: their kernels as blockwise.h calls them, parameters.
 */
#include "floats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t gw__floats_bytes(const gw_float_spec_t *spec, size_t count)
{
    size_t tail = count % spec->block;
    return count / spec->block * gw__float_bytes(spec, spec->block) +
           (tail ? gw__float_bytes(spec, tail) : 0);
}

/* ---- The kernels, as blockwise.h calls them -----------------------------------------------------
 */

static size_t bytes_of(const void *spec, size_t count)
{
    return gw__floats_bytes(&((const gw__floats_t *)spec)->spec, count);
}

static size_t encode_blocks(const void *spec, const float *src, float *residual, size_t count,
                            uint64_t first, uint64_t key, uint8_t *dst)
{
    const gw__floats_t *f = spec;
    return f->kernels.encode(&f->spec, src, residual, count, dst);
}

static bool valid_blocks(const void *spec, const uint8_t *payload, size_t count)
{
    const gw__floats_t *f = spec;
    return !f->kernels.valid || f->kernels.valid(&f->spec, payload, count);
}

static void store_blocks(const void *spec, const uint8_t *payload, size_t count, uint64_t first,
                         float *dst)
{
    const gw__floats_t *f = spec;
    f->kernels.store(&f->spec, payload, count, dst);
}

static void add_blocks(const void *spec, const uint8_t *payload, size_t count, uint64_t first,
                       float *dst)
{
    const gw__floats_t *f = spec;
    f->kernels.add(&f->spec, payload, count, dst);
}

gw_blockwise_t gw__floats_blocks(const gw__floats_t *f)
{
    return (gw_blockwise_t){
        f, f->spec.block, bytes_of, encode_blocks, valid_blocks, store_blocks, add_blocks};
}

/* ---- What a family says of itself ---------------------------------------------------------------
 */

void gw__floats_put(unsigned format, unsigned block, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[0] = (uint8_t)format;
    out[2] = (uint8_t)block;
    out[3] = (uint8_t)(block >> 8);
}

gw_status_t gw__floats_get(const uint8_t in[GW_CODEC_HEADER_PARAMS], unsigned *format,
                           unsigned *block)
{
    if (in[0] > 1 || in[1] || in[4] || in[5] || in[6] || in[7])
        return GW_ERR_FRAME_HEADER;
    *format = in[0];
    *block = in[2] | (unsigned)in[3] << 8;
    return GW_OK;
}

gw_status_t gw__floats_multiple(const char *name, int value, int step, char *why, size_t size)
{
    if (value % step == 0)
        return GW_OK;
    snprintf(why, size, "%s=%d: a multiple of %d is needed, such as %d", name, value, step,
             (value + step / 2) / step * step);
    return GW_ERR_BAD_SETTING;
}

/* The last term is what a product that is a denormal rounds away; the factor covers the rounding of
 * quotients near a tie. */
float gw__floats_bound(double relative, double absolute)
{
    double bound = fmax(relative, absolute) * (1 + 0x1p-19) + 0x1p-149;
    return nextafterf((float)bound, INFINITY);
}

float gw__floats_most(const float *x, size_t count)
{
    float most = 0.0f;
    for (size_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}
