/* SPDX-License-Identifier: Apache-2.0 */
/* Codec lossless (id 12): the elements of the wire type with their exponents coded. */
#include "codecs.h"

#include <stdio.h>
#include <string.h>

#include "kernels.h"

enum { LEVEL };
enum { FAST = 1, DENSE = 2 };

static const gw_codec_param_t params[] = {
    [LEVEL] = {"level", GW_PARAM_INT, "1", FAST, DENSE, NULL,
               "1: 4 bits an exponent; 2: Huffman codes, for slow links; the name sets it"},
    {.name = NULL},
};

static bool match(const char *name, gw_coder_t *coder)
{
    bool dense = !strcmp(name, "lossless2");
    if (!dense && strcmp(name, "lossless"))
        return false;
    coder->value[LEVEL] = dense ? DENSE : FAST;
    return true;
}

static bool is_dense(const gw_coder_t *coder)
{
    return coder->value[LEVEL] == DENSE;
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, is_dense(coder) ? "lossless2" : "lossless");
}

static size_t grain(const gw_coder_t *coder)
{
    return is_dense(coder) ? GW_LOSSLESS_GROUP : GW_LOSSLESS_BLOCK;
}

/* All blocks raw; a group has one byte of its own. */
static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    size_t groups = count / GW_LOSSLESS_GROUP + (count % GW_LOSSLESS_GROUP != 0);
    return gw__lossless_bound(wire_dtype, count) + (is_dense(coder) ? groups : 0);
}

/* ---- Pieces -------------------------------------------------------------------------------------
 */

/* Work goes piece by piece: as many elements as codec raw converts at a time, which are a group. */
enum { PIECE = GW_LOSSLESS_GROUP };
_Static_assert(PIECE <= GW_BLOCK, "raw converts a piece in one block");

static const gw_coder_t raw_coder = {.family = &gw__codec_raw};

static size_t piece_at(size_t i, size_t count)
{
    return count - i < PIECE ? count - i : PIECE;
}

static size_t encode_piece(bool dense, gw_dtype_t dtype, const void *src, size_t n, uint8_t *dst)
{
    const gw_lossless_kernels_t *kernels = &gw__kernels()->lossless;
    uint8_t blocks[GW_LOSSLESS_GROUP_MAX];
    if (!dense)
        return kernels->encode(dtype, src, n, dst);
    kernels->encode(dtype, src, n, blocks);
    return kernels->pack(dtype, blocks, n, dst);
}

/* What codec raw would send, coded: both convert in the same way. */
static size_t encode_converted(bool dense, const gw_encode_t *in, uint8_t *dst)
{
    uint8_t raw[4 * PIECE];
    size_t used = 0, length;
    for (size_t i = 0; i < in->count; i += PIECE) {
        gw_encode_t piece = *in;
        piece.src = (const uint8_t *)in->src + i * gw__element_bytes(in->src_dtype);
        piece.count = piece_at(i, in->count);
        piece.first = 0;
        raw_coder.family->encode(&raw_coder, &piece, raw, sizeof raw, &length);
        used += encode_piece(dense, in->wire_dtype, raw, piece.count, dst + used);
    }
    return used;
}

static size_t encode_groups(const gw_encode_t *in, uint8_t *dst)
{
    size_t used = 0, wide = gw__element_bytes(in->wire_dtype);
    for (size_t i = 0; i < in->count; i += PIECE)
        used += encode_piece(true, in->wire_dtype, (const uint8_t *)in->src + i * wide,
                             piece_at(i, in->count), dst + used);
    return used;
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    if (!gw__element_bytes(in->src_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % grain(coder))
        return GW_ERR_INVALID;
    if (capacity < bound(coder, in->wire_dtype, in->count))
        return GW_ERR_NO_SPACE;
    if (in->src_dtype != in->wire_dtype)
        *length = encode_converted(is_dense(coder), in, dst);
    else if (is_dense(coder))
        *length = encode_groups(in, dst);
    else
        *length = gw__kernels()->lossless.encode(in->wire_dtype, in->src, in->count, dst);
    in->poisoned = 0;
    return GW_OK;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

/* Every group of a payload is one that can be unpacked to valid blocks. */
static bool valid_groups(const gw_decode_t *in)
{
    const gw_lossless_kernels_t *kernels = &gw__kernels()->lossless;
    uint8_t blocks[GW_LOSSLESS_GROUP_MAX];
    size_t used = 0;
    for (size_t i = 0; i < in->count; i += PIECE) {
        size_t n = piece_at(i, in->count), length;
        size_t group = kernels->unpack(in->wire_dtype, in->payload + used, in->length - used, n,
                                       blocks, &length);
        if (!group || !kernels->valid(in->wire_dtype, blocks, length, n))
            return false;
        used += group;
    }
    return used == in->length;
}

static size_t decode_piece(bool dense, const gw_decode_t *in, size_t at, size_t n, void *dst)
{
    const gw_lossless_kernels_t *kernels = &gw__kernels()->lossless;
    uint8_t blocks[GW_LOSSLESS_GROUP_MAX];
    size_t length;
    if (!dense)
        return kernels->decode(in->wire_dtype, in->payload + at, n, dst);
    size_t used =
        kernels->unpack(in->wire_dtype, in->payload + at, in->length - at, n, blocks, &length);
    kernels->decode(in->wire_dtype, blocks, n, dst);
    return used;
}

/* What codec raw would have received, and then what it does with it. */
static gw_status_t decode_converted(bool dense, const gw_decode_t *in)
{
    uint8_t raw[4 * PIECE];
    size_t used = 0;
    gw_status_t status = GW_OK;
    for (size_t i = 0; i < in->count && status == GW_OK; i += PIECE) {
        gw_decode_t piece = *in;
        piece.count = piece_at(i, in->count);
        used += decode_piece(dense, in, used, piece.count, raw);
        piece.payload = raw;
        piece.length = piece.count * gw__element_bytes(in->wire_dtype);
        piece.dst = (uint8_t *)in->dst + i * gw__element_bytes(in->dst_dtype);
        status = raw_coder.family->decode(&raw_coder, &piece);
    }
    return status;
}

static void decode_groups(const gw_decode_t *in)
{
    size_t used = 0, wide = gw__element_bytes(in->wire_dtype);
    for (size_t i = 0; i < in->count; i += PIECE)
        used += decode_piece(true, in, used, piece_at(i, in->count), (uint8_t *)in->dst + i * wide);
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    bool dense = is_dense(coder);
    const gw_lossless_kernels_t *kernels = &gw__kernels()->lossless;
    if (!gw__element_bytes(in->dst_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (in->length > bound(coder, in->wire_dtype, in->count))
        return GW_ERR_FRAME_LENGTH;
    if (in->count == 0) /* dst may be NULL */
        return in->length ? GW_ERR_FRAME_LENGTH : GW_OK;
    if (dense ? !valid_groups(in)
              : !kernels->valid(in->wire_dtype, in->payload, in->length, in->count))
        return GW_ERR_FRAME_PAYLOAD;
    if (in->mode == GW_DECODE_ADD || in->dst_dtype != in->wire_dtype)
        return decode_converted(dense, in);
    if (dense)
        decode_groups(in);
    else
        kernels->decode(in->wire_dtype, in->payload, in->count, in->dst);
    return GW_OK;
}

/* ---- What the family says of itself -------------------------------------------------------------
 */

/* Byte 0: level. */
static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[0] = is_dense(coder) ? DENSE : FAST;
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    static const uint8_t none[GW_CODEC_HEADER_PARAMS - 1];
    if ((in[0] != FAST && in[0] != DENSE) || memcmp(in + 1, none, sizeof none))
        return GW_ERR_FRAME_HEADER;
    coder->value[LEVEL] = in[0];
    return GW_OK;
}

const gw_codec_t gw__codec_lossless = {
    .abi = GW_CODEC_ABI,
    .id = 12,
    .family = "lossless",
    .names = "lossless lossless2",
    .summary = "every bit of the elements, with their exponents coded",
    .flags = 0,
    .params = params,
    .match = match,
    .name = put_name,
    .grain = grain,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .put_params = put_params,
    .get_params = get_params,
};
