/* SPDX-License-Identifier: Apache-2.0 */
/* Codec raw (id 0): the elements themselves, in the element type of the collective. */
#include "codecs.h"

#include <stdio.h>
#include <string.h>

#include "device_ops.h"
#include "kernels.h"
#include "reduce.h"

static const gw_codec_param_t params[] = {{.name = NULL}};

static bool match(const char *name, gw_coder_t *coder)
{
    return !strcmp(name, "raw");
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "raw");
}

/* Keeps chunks on cache lines. */
static size_t grain(const gw_coder_t *coder)
{
    return 64;
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    return count * gw__element_bytes(wire_dtype);
}

/* Elements from one type to another: a copy, one cast, or through binary32 (exact) in blocks. */
static void convert(gw_dtype_t from, const uint8_t *src, gw_dtype_t to, uint8_t *dst, size_t count)
{
    float block[GW_BLOCK];
    if (from == to) {
        if (count)
            memcpy(dst, src, count * gw__element_bytes(from));
        return;
    }
    for (size_t i = 0; i < count; i += GW_BLOCK) {
        size_t n = count - i < GW_BLOCK ? count - i : GW_BLOCK;
        gw__widen(from, src + i * gw__element_bytes(from), block, n);
        gw__narrow(to, block, dst + i * gw__element_bytes(to), n);
    }
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    if (!gw__element_bytes(in->src_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % grain(coder))
        return GW_ERR_INVALID;
    size_t bytes = bound(coder, in->wire_dtype, in->count);
    if (capacity < bytes)
        return GW_ERR_NO_SPACE;
    convert(in->src_dtype, in->src, in->wire_dtype, dst, in->count);
    in->poisoned = 0;
    *length = bytes;
    return GW_OK;
}

static void decode_add(const gw_decode_t *in)
{
    const gw_kernels_t *kernels = gw__kernels();
    float block[GW_BLOCK], *dst = in->dst;
    if (in->wire_dtype == GW_F32) {
        kernels->sum.add(dst, in->payload, in->count);
        return;
    }
    for (size_t i = 0; i < in->count; i += GW_BLOCK) {
        size_t n = in->count - i < GW_BLOCK ? in->count - i : GW_BLOCK;
        gw__widen(in->wire_dtype, in->payload + i * 2, block, n);
        kernels->sum.add(dst + i, block, n);
    }
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    if (!gw__element_bytes(in->dst_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (in->length != bound(coder, in->wire_dtype, in->count))
        return GW_ERR_FRAME_LENGTH;
    if (in->count == 0) /* dst may be NULL */
        return GW_OK;
    if (in->mode == GW_DECODE_ADD)
        decode_add(in);
    else
        convert(in->wire_dtype, in->payload, in->dst_dtype, in->dst, in->count);
    return GW_OK;
}

/* Payloads are aligned to nothing; sums are to that of float. */
static void merge_blocks(const gw_merge_t *io)
{
    float block[GW_BLOCK];
    for (size_t i = 0; i < io->count; i += GW_BLOCK) {
        size_t n = io->count - i < GW_BLOCK ? io->count - i : GW_BLOCK;
        memcpy(block, io->into + 4 * i, n * sizeof *block);
        gw__kernels()->sum.add(block, io->from + 4 * i, n);
        memcpy(io->into + 4 * i, block, n * sizeof *block);
    }
}

static gw_status_t merge(const gw_coder_t *coder, gw_merge_t *io)
{
    size_t bytes = bound(coder, io->wire_dtype, io->count);
    if (io->wire_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (io->first % grain(coder))
        return GW_ERR_INVALID;
    io->refused_from = io->into_length == bytes;
    if (io->into_length != bytes || io->from_length != bytes)
        return GW_ERR_FRAME_LENGTH;
    merge_blocks(io);
    return GW_OK;
}

static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    static const uint8_t none[GW_CODEC_HEADER_PARAMS];
    return memcmp(in, none, sizeof none) ? GW_ERR_FRAME_HEADER : GW_OK;
}

/* ---- On the device ------------------------------------------------------------------------------
 */

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    if (in->src_dtype == in->wire_dtype)
        return gw__cuda_sum.copy(queue, dst, in->src,
                                 in->count * gw__element_bytes(in->wire_dtype));
    return gw__device_narrow(queue, in->wire_dtype, in->src, dst, in->count);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    if (in->mode == GW_DECODE_ADD)
        return gw__device_add(queue, in->wire_dtype, in->payload, in->dst, in->count);
    if (in->dst_dtype == in->wire_dtype)
        return gw__cuda_sum.copy(queue, in->dst, in->payload,
                                 in->count * gw__element_bytes(in->wire_dtype));
    return gw__device_widen(queue, in->wire_dtype, in->payload, in->dst, in->count);
}

const gw__device_codec_t gw__device_raw = {
    .family = &gw__codec_raw, .encode = device_encode, .decode = device_decode, .halves = true};

const gw_codec_t gw__codec_raw = {
    .abi = GW_CODEC_ABI,
    .id = 0,
    .family = "raw",
    .names = "raw",
    .summary = "the elements as they are",
    .flags = GW_CODEC_FIXED | GW_CODEC_LINEAR,
    .params = params,
    .match = match,
    .name = put_name,
    .grain = grain,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .put_params = put_params,
    .get_params = get_params,
    .reduce = gw__reduce_small,
    .merge = merge,
};
