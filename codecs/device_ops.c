/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs on device memory: which families are served, 16-bit elements, sums out of parts. */
#include "device_ops.h"

static const gw__device_codec_t *const served[] = {
    &gw__device_raw,     &gw__device_quant, &gw__device_cast,   &gw__device_fp8,
    &gw__device_fp4,     &gw__device_sign,  &gw__device_rotate, &gw__device_natural,
    &gw__device_randomk, &gw__device_topk,  &gw__device_block,
};

const gw__device_codec_t *gw__codec_device(const gw_codec_t *family)
{
    for (size_t i = 0; i < sizeof served / sizeof *served; i++)
        if (served[i]->family == family)
            return served[i];
    return NULL;
}

bool gw__device_serves(const gw_coder_t *coder)
{
    const gw__device_codec_t *codec = gw__codec_device(coder->family);
    return codec && (!codec->serves || codec->serves(coder));
}

size_t gw__device_scratch(const gw_coder_t *coder, size_t count)
{
    const gw__device_codec_t *codec = gw__codec_device(coder->family);
    return codec && codec->scratch ? codec->scratch(coder, count) : 0;
}

/* ---- Payloads without a fixed length ------------------------------------------------------------
 */

bool gw__device_is_fixed(const gw_coder_t *coder)
{
    return !gw__codec_device(coder->family)->index;
}

size_t gw__device_room(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    const gw__device_codec_t *codec = gw__codec_device(coder->family);
    size_t bound = coder->family->bound(coder, wire_dtype, count);
    /* At any address there is a multiple of 4 in the first three bytes behind it. */
    return codec->index ? bound + 3 + codec->units(coder, count) * sizeof(uint32_t) : bound;
}

static size_t starts_at(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count,
                        const uint8_t *payload)
{
    size_t bound = coder->family->bound(coder, wire_dtype, count);
    return bound + (-((uintptr_t)payload + bound) & 3);
}

const uint32_t *gw__device_starts(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count,
                                  const uint8_t *payload)
{
    const uint8_t *at = payload + starts_at(coder, wire_dtype, count, payload);
    return (const uint32_t *)(const void *)at;
}

gw_status_t gw__device_index(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count,
                             uint8_t *payload, size_t length)
{
    const gw__device_codec_t *codec = gw__codec_device(coder->family);
    if (!codec->index)
        return GW_OK;
    if (length > coder->family->bound(coder, wire_dtype, count))
        return GW_ERR_FRAME_LENGTH;
    void *starts = payload + starts_at(coder, wire_dtype, count, payload);
    return codec->index(coder, wire_dtype, payload, length, count, starts) ? GW_OK
                                                                           : GW_ERR_FRAME_PAYLOAD;
}

/* Whether a payload may have this length. */
static bool may_have(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count, size_t length)
{
    size_t bound = coder->family->bound(coder, wire_dtype, count);
    return gw__device_is_fixed(coder) ? length == bound : length <= bound;
}

/* ---- Elements -----------------------------------------------------------------------------------
 */

gw_status_t gw__device_widen(gw_cuda_queue_t *queue, gw_dtype_t dtype, const void *src, float *dst,
                             size_t count)
{
    if (dtype == GW_F32)
        return gw__cuda_sum.copy(queue, dst, src, count * sizeof *dst);
    return (dtype == GW_F16 ? gw__cuda_cast.f16_to_f32 : gw__cuda_cast.bf16_to_f32)(queue, src, dst,
                                                                                    count);
}

gw_status_t gw__device_narrow(gw_cuda_queue_t *queue, gw_dtype_t dtype, const float *src, void *dst,
                              size_t count)
{
    if (dtype == GW_F32)
        return gw__cuda_sum.copy(queue, dst, src, count * sizeof *src);
    return (dtype == GW_F16 ? gw__cuda_cast.f32_to_f16 : gw__cuda_cast.f32_to_bf16)(queue, src, dst,
                                                                                    count);
}

gw_status_t gw__device_add(gw_cuda_queue_t *queue, gw_dtype_t dtype, const void *src, float *dst,
                           size_t count)
{
    gw_float_spec_t half = {.format = dtype == GW_F16 ? GW_FLOAT_FP16 : GW_FLOAT_BF16};
    return dtype == GW_F32 ? gw__cuda_sum.add(queue, dst, src, count)
                           : gw__cuda_cast.add(queue, &half, src, count, dst);
}

/* ---- The contract -------------------------------------------------------------------------------
 */

/* Whether the family has to be given elements of another type by way of binary32. */
static bool converts(const gw_coder_t *coder, gw_dtype_t dtype, gw_dtype_t wire_dtype)
{
    bool as_it_is = gw__codec_device(coder->family)->halves && dtype == wire_dtype;
    return dtype != GW_F32 && !as_it_is;
}

/* What can be told without the device. */
static gw_status_t check(const gw_cuda_queue_t *queue, const gw_coder_t *coder, gw_dtype_t dtype,
                         gw_dtype_t wire, uint64_t first, size_t count)
{
    if (!gw__device_serves(coder) || !gw__element_bytes(dtype) || !gw__element_bytes(wire))
        return GW_ERR_UNSUPPORTED;
    bool lacks = !queue->scratch && gw__device_scratch(coder, count);
    return lacks || first % coder->family->grain(coder) ? GW_ERR_INVALID : GW_OK;
}

gw_status_t gw__device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                              const gw_encode_t *in, float *wide, uint8_t *dst,
                              gw_cuda_result_t *result)
{
    gw_encode_t inner = *in;
    gw_status_t status = check(queue, coder, in->src_dtype, in->wire_dtype, in->first, in->count);
    if (status == GW_OK && in->momentum)
        status = GW_ERR_UNSUPPORTED;
    if (status || !in->count)
        return status;
    if (converts(coder, in->src_dtype, in->wire_dtype)) {
        inner.src = wide;
        inner.src_dtype = GW_F32;
        status = gw__device_widen(queue, in->src_dtype, in->src, wide, in->count);
        if (status)
            return status;
    }
    return gw__codec_device(coder->family)->encode(queue, coder, &inner, dst, result);
}

gw_status_t gw__device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                              const gw_decode_t *in, float *wide, gw_cuda_result_t *result)
{
    gw_decode_t inner = *in;
    gw_status_t status = check(queue, coder, in->dst_dtype, in->wire_dtype, in->first, in->count);
    if (status == GW_OK && in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32)
        status = GW_ERR_UNSUPPORTED;
    if (status == GW_OK && !may_have(coder, in->wire_dtype, in->count, in->length))
        status = GW_ERR_FRAME_LENGTH;
    if (status || !in->count)
        return status;
    bool narrow = converts(coder, in->dst_dtype, in->wire_dtype);
    if (narrow) {
        inner.dst = wide;
        inner.dst_dtype = GW_F32;
    }
    status = gw__codec_device(coder->family)->decode(queue, coder, &inner, result);
    if (status || !narrow)
        return status;
    return gw__device_narrow(queue, in->dst_dtype, wide, in->dst, in->count);
}

/* ---- Sum and encode -----------------------------------------------------------------------------
 */

static gw_status_t check_reduce(const gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                const gw_reduce_t *in)
{
    gw_status_t status = check(queue, coder, in->own_dtype, in->wire_dtype, in->first, in->count);
    size_t bytes = coder->family->bound(coder, in->wire_dtype, in->count);
    if (status == GW_OK && !gw__device_is_fixed(coder))
        status = GW_ERR_UNSUPPORTED;
    if (status == GW_OK && in->own_at > in->payloads)
        status = GW_ERR_INVALID;
    for (size_t k = 0; k < in->payloads && status == GW_OK; k++)
        if (in->length[k] < in->skip || in->length[k] - in->skip != bytes)
            status = GW_ERR_FRAME_LENGTH;
    return status;
}

/* In one launch. */
static gw_status_t reduce_at_once(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                  const gw_reduce_t *in, float *wide, uint8_t *dst,
                                  gw_cuda_result_t *result)
{
    gw_reduce_t inner = *in;
    gw_status_t status = GW_OK;
    if (converts(coder, in->own_dtype, in->wire_dtype)) {
        inner.own = wide;
        inner.own_dtype = GW_F32;
        status = gw__device_widen(queue, in->own_dtype, in->own, wide, in->count);
    }
    return status ? status
                  : gw__codec_device(coder->family)->reduce(queue, coder, &inner, dst, result);
}

/* Contribution k in order of rank, own elements among them; the first is stored, not added to 0. */
static gw_status_t contribute(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                              const gw_reduce_t *in, size_t k, float *sum, gw_cuda_result_t *result)
{
    if (k == in->own_at)
        return (k ? gw__device_add : gw__device_widen)(queue, in->own_dtype, in->own, sum,
                                                       in->count);
    size_t from = k < in->own_at ? k : k - 1;
    gw_decode_t io = {.payload = in->payload[from] + in->skip,
                      .length = in->length[from] - in->skip,
                      .wire_dtype = in->wire_dtype,
                      .count = in->count,
                      .first = in->first,
                      .mode = k ? GW_DECODE_ADD : GW_DECODE_STORE,
                      .dst = sum,
                      .dst_dtype = GW_F32};
    return gw__device_decode(queue, coder, &io, NULL, result);
}

static gw_status_t reduce_in_parts(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                   const gw_reduce_t *in, float *sum, uint8_t *dst,
                                   gw_cuda_result_t *result)
{
    gw_status_t status = GW_OK;
    for (size_t k = 0; k <= in->payloads && status == GW_OK; k++)
        status = contribute(queue, coder, in, k, sum, result);
    if (status == GW_OK && in->scale != 1.0f)
        status = gw__cuda_sum.scale(queue, sum, in->scale, in->count);
    gw_encode_t out = {.src = sum,
                       .src_dtype = GW_F32,
                       .wire_dtype = in->wire_dtype,
                       .residual = in->residual,
                       .count = in->count,
                       .first = in->first,
                       .key = in->key,
                       .shared_key = in->shared_key};
    return status ? status : gw__device_encode(queue, coder, &out, NULL, dst, result);
}

gw_status_t gw__device_reduce(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                              const gw_reduce_t *in, float *wide, uint8_t *dst,
                              gw_cuda_result_t *result)
{
    gw_status_t status = check_reduce(queue, coder, in);
    if (status || !in->count)
        return status;
    bool at_once = gw__codec_device(coder->family)->reduce && in->payloads <= GW_CUDA_PAYLOADS;
    return (at_once ? reduce_at_once : reduce_in_parts)(queue, coder, in, wide, dst, result);
}
