/* SPDX-License-Identifier: Apache-2.0 */
/* From a request to the float kernels and back, for the families cast, fp8 and fp4. */
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

/* Elements that go through a stack buffer at a time: whole blocks. */
static size_t step_of(const gw_float_spec_t *spec)
{
    return GW_BLOCK / spec->block * spec->block;
}

static size_t encode_half(const gw__floats_t *f, const gw_encode_t *in, uint8_t *dst)
{
    float block[GW_BLOCK];
    size_t step = step_of(&f->spec), poisoned = 0;
    for (size_t i = 0; i < in->count; i += step) {
        size_t n = in->count - i < step ? in->count - i : step;
        gw__widen(in->src_dtype, (const uint8_t *)in->src + 2 * i, block, n);
        poisoned += f->kernels.encode(&f->spec, block, in->residual ? in->residual + i : NULL, n,
                                      dst + gw__floats_bytes(&f->spec, i));
    }
    return poisoned;
}

gw_status_t gw__floats_encode(const gw__floats_t *f, gw_encode_t *in, uint8_t *dst, size_t capacity,
                              size_t *length)
{
    if (!gw__element_bytes(in->src_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % f->spec.block)
        return GW_ERR_INVALID;
    size_t bytes = gw__floats_bytes(&f->spec, in->count);
    if (capacity < bytes)
        return GW_ERR_NO_SPACE;
    if (in->src_dtype == GW_F32)
        in->poisoned = f->kernels.encode(&f->spec, in->src, in->residual, in->count, dst);
    else
        in->poisoned = encode_half(f, in, dst);
    *length = bytes;
    return GW_OK;
}

static void decode_half(const gw__floats_t *f, const gw_decode_t *in)
{
    float block[GW_BLOCK];
    size_t step = step_of(&f->spec);
    for (size_t i = 0; i < in->count; i += step) {
        size_t n = in->count - i < step ? in->count - i : step;
        f->kernels.store(&f->spec, in->payload + gw__floats_bytes(&f->spec, i), n, block);
        gw__narrow(in->dst_dtype, block, (uint8_t *)in->dst + 2 * i, n);
    }
}

static bool is_valid(const gw__floats_t *f, const uint8_t *payload, size_t count)
{
    return !count || !f->kernels.valid || f->kernels.valid(&f->spec, payload, count);
}

gw_status_t gw__floats_decode(const gw__floats_t *f, const gw_decode_t *in)
{
    if (!gw__element_bytes(in->dst_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (in->length != gw__floats_bytes(&f->spec, in->count))
        return GW_ERR_FRAME_LENGTH;
    if (in->count == 0) /* dst may be NULL */
        return GW_OK;
    if (!is_valid(f, in->payload, in->count))
        return GW_ERR_FRAME_PAYLOAD;
    if (in->mode == GW_DECODE_ADD)
        f->kernels.add(&f->spec, in->payload, in->count, in->dst);
    else if (in->dst_dtype == GW_F32)
        f->kernels.store(&f->spec, in->payload, in->count, in->dst);
    else
        decode_half(f, in);
    return GW_OK;
}

/* ---- Sum and encode -----------------------------------------------------------------------------
 */

static gw_status_t check_reduce(const gw__floats_t *f, gw_reduce_t *in, size_t bytes)
{
    if (!gw__element_bytes(in->own_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % f->spec.block || in->own_at > in->payloads)
        return GW_ERR_INVALID;
    for (size_t i = 0; i < in->payloads; i++) {
        in->refused = i;
        if (in->length[i] < in->skip || in->length[i] - in->skip != bytes)
            return GW_ERR_FRAME_LENGTH;
        if (!is_valid(f, in->payload[i] + in->skip, in->count))
            return GW_ERR_FRAME_PAYLOAD;
    }
    return GW_OK;
}

/* Own elements into the sum: the first contribution is copied. */
static void add_own(const gw_reduce_t *in, size_t i, size_t n, bool add, float *sum)
{
    float block[GW_BLOCK];
    const uint8_t *own = (const uint8_t *)in->own + i * gw__element_bytes(in->own_dtype);
    if (!add) {
        gw__widen(in->own_dtype, own, sum, n);
    } else if (in->own_dtype == GW_F32) {
        gw__kernels()->sum.add(sum, own, n);
    } else {
        gw__widen(in->own_dtype, own, block, n);
        gw__kernels()->sum.add(sum, block, n);
    }
}

static size_t sum_and_encode(const gw__floats_t *f, const gw_reduce_t *in, uint8_t *dst)
{
    float sum[GW_BLOCK];
    size_t step = step_of(&f->spec), poisoned = 0;
    for (size_t i = 0; i < in->count; i += step) {
        size_t n = in->count - i < step ? in->count - i : step;
        size_t at = gw__floats_bytes(&f->spec, i);
        for (size_t k = 0; k < in->payloads; k++) {
            if (k == in->own_at)
                add_own(in, i, n, k > 0, sum);
            (k || in->own_at == 0 ? f->kernels.add : f->kernels.store)(
                &f->spec, in->payload[k] + in->skip + at, n, sum);
        }
        if (in->own_at == in->payloads)
            add_own(in, i, n, in->payloads > 0, sum);
        if (in->scale != 1.0f)
            gw__kernels()->sum.scale(sum, in->scale, n);
        poisoned +=
            f->kernels.encode(&f->spec, sum, in->residual ? in->residual + i : NULL, n, dst + at);
    }
    return poisoned;
}

gw_status_t gw__floats_reduce(const gw__floats_t *f, gw_reduce_t *in, uint8_t *dst, size_t capacity,
                              size_t *length)
{
    size_t bytes = gw__floats_bytes(&f->spec, in->count);
    gw_status_t status = check_reduce(f, in, bytes);
    if (status)
        return status;
    if (capacity < bytes)
        return GW_ERR_NO_SPACE;
    in->poisoned = sum_and_encode(f, in, dst);
    *length = bytes;
    return GW_OK;
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
