/* SPDX-License-Identifier: Apache-2.0 */
/* Encode, decode and reduce for families whose payload is a row of independent blocks of fixed
 * size.
 */
#include "blockwise.h"

#include "kernels.h"

/* Elements of a step: whole blocks. */
static size_t step_of(const gw_blockwise_t *b)
{
    return GW_BLOCK / b->grain * b->grain;
}

static size_t encode_half(const gw_blockwise_t *b, const gw_encode_t *in, uint8_t *dst)
{
    float block[GW_BLOCK];
    size_t step = step_of(b), poisoned = 0;
    for (size_t i = 0; i < in->count; i += step) {
        size_t n = in->count - i < step ? in->count - i : step;
        gw__widen(in->src_dtype, (const uint8_t *)in->src + 2 * i, block, n);
        poisoned += b->encode(b->spec, block, in->residual ? in->residual + i : NULL, n,
                              in->first + i, in->key, dst + b->bytes(b->spec, i));
    }
    return poisoned;
}

gw_status_t gw__blockwise_encode(const gw_blockwise_t *b, gw_encode_t *in, uint8_t *dst,
                                 size_t capacity, size_t *length)
{
    if (!gw__element_bytes(in->src_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % b->grain)
        return GW_ERR_INVALID;
    size_t bytes = b->bytes(b->spec, in->count);
    if (capacity < bytes)
        return GW_ERR_NO_SPACE;
    if (in->src_dtype == GW_F32)
        in->poisoned =
            b->encode(b->spec, in->src, in->residual, in->count, in->first, in->key, dst);
    else
        in->poisoned = encode_half(b, in, dst);
    *length = bytes;
    return GW_OK;
}

static void decode_half(const gw_blockwise_t *b, const gw_decode_t *in)
{
    float block[GW_BLOCK];
    size_t step = step_of(b);
    for (size_t i = 0; i < in->count; i += step) {
        size_t n = in->count - i < step ? in->count - i : step;
        b->store(b->spec, in->payload + b->bytes(b->spec, i), n, in->first + i, block);
        gw__narrow(in->dst_dtype, block, (uint8_t *)in->dst + 2 * i, n);
    }
}

gw_status_t gw__blockwise_decode(const gw_blockwise_t *b, const gw_decode_t *in)
{
    if (!gw__element_bytes(in->dst_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (in->first % b->grain)
        return GW_ERR_INVALID;
    if (in->length != b->bytes(b->spec, in->count))
        return GW_ERR_FRAME_LENGTH;
    if (in->count == 0) /* dst may be NULL */
        return GW_OK;
    if (!b->valid(b->spec, in->payload, in->count))
        return GW_ERR_FRAME_PAYLOAD;
    if (in->mode == GW_DECODE_ADD)
        b->add(b->spec, in->payload, in->count, in->first, in->dst);
    else if (in->dst_dtype == GW_F32)
        b->store(b->spec, in->payload, in->count, in->first, in->dst);
    else
        decode_half(b, in);
    return GW_OK;
}

/* ---- Sum and encode -----------------------------------------------------------------------------
 */

static gw_status_t check_reduce(const gw_blockwise_t *b, gw_reduce_t *in, size_t bytes)
{
    if (!gw__element_bytes(in->own_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % b->grain || in->own_at > in->payloads)
        return GW_ERR_INVALID;
    for (size_t i = 0; i < in->payloads; i++) {
        in->refused = i;
        if (in->length[i] < in->skip || in->length[i] - in->skip != bytes)
            return GW_ERR_FRAME_LENGTH;
        if (in->count && !b->valid(b->spec, in->payload[i] + in->skip, in->count))
            return GW_ERR_FRAME_PAYLOAD;
    }
    return GW_OK;
}

/* Own elements from `at` on: the first contribution is copied, not added to 0. */
static void add_own(const gw_reduce_t *in, size_t at, size_t n, bool add, float *sum)
{
    float wide[GW_BLOCK];
    const uint8_t *own = (const uint8_t *)in->own + at * gw__element_bytes(in->own_dtype);
    if (!add) {
        gw__widen(in->own_dtype, own, sum, n);
    } else if (in->own_dtype == GW_F32) {
        gw__kernels()->sum.add(sum, own, n);
    } else {
        gw__widen(in->own_dtype, own, wide, n);
        gw__kernels()->sum.add(sum, wide, n);
    }
}

static void sum_step(const gw_blockwise_t *b, const gw_reduce_t *in, size_t at, size_t n,
                     float *sum)
{
    size_t skip = in->skip + b->bytes(b->spec, at);
    for (size_t k = 0; k <= in->payloads; k++) {
        if (k == in->own_at)
            add_own(in, at, n, k > 0, sum);
        if (k < in->payloads)
            (k || in->own_at == 0 ? b->add : b->store)(b->spec, in->payload[k] + skip, n,
                                                       in->first + at, sum);
    }
    if (in->scale != 1.0f)
        gw__kernels()->sum.scale(sum, in->scale, n);
}

gw_status_t gw__blockwise_reduce(const gw_blockwise_t *b, gw_reduce_t *in, uint8_t *dst,
                                 size_t capacity, size_t *length)
{
    float sum[GW_BLOCK];
    size_t step = step_of(b), bytes = b->bytes(b->spec, in->count), poisoned = 0;
    gw_status_t status = check_reduce(b, in, bytes);
    if (status)
        return status;
    if (capacity < bytes)
        return GW_ERR_NO_SPACE;
    for (size_t i = 0; i < in->count; i += step) {
        size_t n = in->count - i < step ? in->count - i : step;
        sum_step(b, in, i, n, sum);
        poisoned += b->encode(b->spec, sum, in->residual ? in->residual + i : NULL, n,
                              in->first + i, in->key, dst + b->bytes(b->spec, i));
    }
    in->poisoned = poisoned;
    *length = bytes;
    return GW_OK;
}
