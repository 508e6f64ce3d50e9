/* SPDX-License-Identifier: Apache-2.0 */
/* Encode and decode for families whose payload is a row of independent blocks of fixed
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
