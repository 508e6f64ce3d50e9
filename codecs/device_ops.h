/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs on device memory: the contract of include/gradwire/codec.h as launches on a queue. */
#ifndef GW_DEVICE_OPS_H
#define GW_DEVICE_OPS_H

#include "codecs.h"
#include "cuda/cuda_kernels.h"

/*
 * What a family does itself, on elements of binary32; a family without it is not served on the
 * device. Structs are those of the contract with device pointers in them (payload lists: a host
 * array of them); src_dtype, own_dtype and dst_dtype are GW_F32, but for families that take
 * `halves` also the type of the wire; the count is not 0. Families with grains: `first` is a
 * multiple.
 */
typedef struct gw__device_codec {
    const gw_codec_t *family;
    gw_status_t (*encode)(gw_cuda_queue_t *queue, const gw_coder_t *coder, const gw_encode_t *in,
                          uint8_t *dst, gw_cuda_result_t *result);
    gw_status_t (*decode)(gw_cuda_queue_t *queue, const gw_coder_t *coder, const gw_decode_t *in,
                          gw_cuda_result_t *result);
    /* NULL: decodes, adds and encodes. Up to GW_CUDA_PAYLOADS payloads. */
    gw_status_t (*reduce)(gw_cuda_queue_t *queue, const gw_coder_t *coder, const gw_reduce_t *in,
                          uint8_t *dst, gw_cuda_result_t *result);
    /* Whether all this can be done with these parameters; NULL: with any. */
    bool (*serves)(const gw_coder_t *coder);
    /* Bytes of queue->scratch that a call of so many elements wants; NULL: none. */
    size_t (*scratch)(const gw_coder_t *coder, size_t count);
    bool halves; /* every bit of a 16-bit element counts: they are not to go by way of binary32 */
    /* Of families whose payloads have no fixed length, else NULL: into how many units a payload of
     * so many elements falls, and where each of them begins. By the host, which reads what it needs
     * of the payload: false when an encoder cannot have written it. */
    size_t (*units)(const gw_coder_t *coder, size_t count);
    bool (*index)(const gw_coder_t *coder, gw_dtype_t wire_dtype, const uint8_t *payload,
                  size_t length, size_t count, uint32_t *starts);
} gw__device_codec_t;

/* Each in its family's file; a new one: a line in device_ops.c. */
extern const gw__device_codec_t gw__device_raw, gw__device_quant, gw__device_cast, gw__device_fp8,
    gw__device_fp4, gw__device_sign, gw__device_rotate, gw__device_natural, gw__device_randomk,
    gw__device_topk, gw__device_block;

/* What serves this family on the device; NULL: nothing does. */
const gw__device_codec_t *gw__codec_device(const gw_codec_t *family);

/* Whether this coder is served: its family, with its parameters. */
bool gw__device_serves(const gw_coder_t *coder);

/* What queue->scratch has to hold for a call of so many elements, in bytes, at a multiple of 16; 0:
 * nothing. Of a family that is not served: 0. */
size_t gw__device_scratch(const gw_coder_t *coder, size_t count);

/*
 * Payloads without a fixed length: what decodes them has to know where their units begin. The host
 * finds that out, and leaves it behind the place that the longest payload would take, where kernels
 * find it. So payloads lie in memory that both can reach.
 *
 * gw__device_room: bytes for a payload of so many elements and that index; gw__device_index: makes
 * it, and must have been called for every payload that is decoded. For other families nothing is
 * made, and the room is bound().
 * GW_ERR_FRAME_LENGTH, GW_ERR_FRAME_PAYLOAD: it is none that an encoder writes.
 */
size_t gw__device_room(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count);
gw_status_t gw__device_index(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count,
                             uint8_t *payload, size_t length);

/* Where that index is. */
const uint32_t *gw__device_starts(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count,
                                  const uint8_t *payload);

/* Whether the length of payloads follows from their count; else encode leaves it in result->length,
 * and there is no reduce. */
bool gw__device_is_fixed(const gw_coder_t *coder);

/*
 * encode(), decode() and reduce() of the contract, put on a queue: the same bytes, bits and
 * residual, with device pointers in `in`. `wide` is working memory on the device, in->count floats;
 * encode and decode may be given NULL where gw__device_wants_wide() says so.
 *
 * `length` of payloads is looked at before anything is launched; what is in them is not: the words
 * of *result (zero before; see cuda_kernels.h) tell once the work is done. `poisoned` is added to.
 * `invalid` is not 0 when a payload was not valid; the output is then of no use, and so is the
 * residual of a reduce. In the structs `poisoned` and `refused` are left alone. Momentum is not
 * served.
 *
 * GW_ERR_UNSUPPORTED (family, parameters, dtype, momentum; reduce: no fixed length), GW_ERR_INVALID
 * (also: no queue->scratch where some is wanted), GW_ERR_FRAME_LENGTH: nothing was launched. Others
 * are the queue's, and part of the work may be on it then.
 */
gw_status_t gw__device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                              const gw_encode_t *in, float *wide, uint8_t *dst,
                              gw_cuda_result_t *result);
gw_status_t gw__device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                              const gw_decode_t *in, float *wide, gw_cuda_result_t *result);
gw_status_t gw__device_reduce(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                              const gw_reduce_t *in, float *wide, uint8_t *dst,
                              gw_cuda_result_t *result);

/* Whether encoding from, or decoding to, elements of this type goes by way of `wide`. */
static inline bool gw__device_wants_wide(gw_dtype_t dtype)
{
    return dtype != GW_F32;
}

/* Between binary32 and GW_F32 (a copy), GW_F16 or GW_BF16; the sum, in binary32, of dst and src. */
gw_status_t gw__device_widen(gw_cuda_queue_t *queue, gw_dtype_t dtype, const void *src, float *dst,
                             size_t count);
gw_status_t gw__device_narrow(gw_cuda_queue_t *queue, gw_dtype_t dtype, const float *src, void *dst,
                              size_t count);
gw_status_t gw__device_add(gw_cuda_queue_t *queue, gw_dtype_t dtype, const void *src, float *dst,
                           size_t count);

#endif
