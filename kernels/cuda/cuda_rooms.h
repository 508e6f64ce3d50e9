/* SPDX-License-Identifier: Apache-2.0 */
/* How much shared memory a warp of each CUDA kernel has: what host and device agree on. */
#ifndef GW_CUDA_ROOMS_H
#define GW_CUDA_ROOMS_H

#include "inline.h"
#include "kernels.h"

/* Words of results in device memory: gw_cuda_result_t. */
#define GW_CUDA_POISONED 0
#define GW_CUDA_INVALID  1
#define GW_CUDA_LENGTH   2

/* Payloads that one launch can sum. Their addresses travel as an argument of the launch, which may
 * hold 4,096 bytes. */
#define GW_CUDA_PAYLOADS 256

typedef struct gw_cuda_list {
    const uint8_t *payload[GW_CUDA_PAYLOADS];
} gw_cuda_list_t;

/* For bytes at any distance from a multiple of 16, and read by whole words. */
static GW_INLINE unsigned gw__cuda_bytes_room(size_t bytes)
{
    return (unsigned)((bytes + 16 + 8 + 15) / 16 * 16);
}

static GW_INLINE unsigned gw__cuda_quant_payload_room(unsigned bits, unsigned bucket)
{
    return gw__cuda_bytes_room(gw__quant_bytes(bits, bucket));
}

/* Encoding: the elements, then what is written. Summing: `batch` payloads behind them. */
static GW_INLINE unsigned gw__cuda_quant_encode_room(unsigned bits, unsigned bucket, unsigned batch)
{
    return 4 * bucket + (1 + batch) * gw__cuda_quant_payload_room(bits, bucket);
}

static GW_INLINE unsigned gw__cuda_sign_payload_room(unsigned bucket)
{
    return gw__cuda_bytes_room(gw__sign_bytes(bucket));
}

static GW_INLINE unsigned gw__cuda_sign_encode_room(unsigned bucket)
{
    return 4 * bucket + gw__cuda_sign_payload_room(bucket);
}

static GW_INLINE unsigned gw__cuda_fp8_payload_room(unsigned block)
{
    return gw__cuda_bytes_room(GW_FP8_META_BYTES + (size_t)block);
}

static GW_INLINE unsigned gw__cuda_fp8_encode_room(unsigned block)
{
    return 4 * block + gw__cuda_fp8_payload_room(block);
}

static GW_INLINE unsigned gw__cuda_fp4_payload_room(unsigned nv, unsigned group)
{
    gw_float_spec_t spec;
    spec.format = nv ? GW_FLOAT_NVFP4 : GW_FLOAT_MXFP4;
    spec.block = group;
    return gw__cuda_bytes_room(gw__float_bytes(&spec, group));
}

static GW_INLINE unsigned gw__cuda_fp4_encode_room(unsigned nv, unsigned group)
{
    return 4 * group + gw__cuda_fp4_payload_room(nv, group);
}

/* `copies` of the elements (encoding with a residual and summing keep what is lost of them, too),
 * then a payload. */
static GW_INLINE unsigned gw__cuda_rotate_room(unsigned bits, unsigned block, unsigned copies)
{
    return 4 * block * copies + gw__cuda_bytes_room(gw__rotate_bytes(bits, block));
}

static GW_INLINE unsigned gw__cuda_natural_payload_room(const gw_natural_spec_t *spec)
{
    return gw__cuda_bytes_room(gw__natural_bytes(spec, spec->bucket));
}

static GW_INLINE unsigned gw__cuda_natural_encode_room(const gw_natural_spec_t *spec)
{
    return 4 * spec->bucket + gw__cuda_natural_payload_room(spec);
}

/* topk: what the threads of a block share, bins of a digit above all. */
#define GW_CUDA_TOPK_ROOM (4u * (2048 + 2 * 32 + 8))

/* block: elements that a warp stages at a time; what the threads of a block that chooses share,
 * besides the weights of a domain's blocks. */
#define GW_CUDA_BLOCK_SEGMENT 256
#define GW_CUDA_BLOCK_SHARED  (4u * (32 + 8))

static GW_INLINE unsigned gw__cuda_block_room(void)
{
    return gw__cuda_bytes_room(4 * GW_CUDA_BLOCK_SEGMENT);
}

/* Words of the bitmap of a domain. */
static GW_INLINE unsigned gw__cuda_block_words(unsigned log2_size, unsigned log2_domain)
{
    return ((1u << (log2_domain - log2_size)) + 31) / 32;
}

/* lowrank: columns of a factor that a thread sums at a time, where M is read once for each such
 * group; elements of a row that a warp expands at a time, four a lane. */
#define GW_CUDA_LOWRANK_COLUMNS 8
#define GW_CUDA_LOWRANK_SEGMENT 128

#endif
