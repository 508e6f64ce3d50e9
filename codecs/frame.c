/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: the header in front of every encoded piece (layout in README.md). */
#include "frame.h"

#include <string.h>

#include "bytes.h"
#include "codecs.h"
#include "reduce.h"

static const uint8_t magic[4] = {'G', 'W', 'F', 'R'};

enum {
    AT_REVISION = 4,
    AT_CODEC = 5,
    AT_DTYPE = 6,
    AT_FLAGS = 7,
    AT_PARAMS = 8,
    AT_COUNT = 16,
    AT_FIRST = 24,
    AT_LENGTH = 32,
    AT_CRC = 40,
    AT_RESERVED = 44
};
enum { FLAG_CHECKSUM = 1 };

/* Counts above this are refused before any size is computed from them: no product overflows. */
#define COUNT_MAX ((uint64_t)1 << 56)

/* Of header and payload, with the checksum's own place taken as 0. */
static uint32_t checksum_of(const uint8_t *frame, size_t payload)
{
    static const uint8_t nothing[GW_FRAME_HEADER - AT_CRC];
    uint32_t crc = gw__crc32c(0, frame, AT_CRC);
    crc = gw__crc32c(crc, nothing, sizeof nothing);
    return gw__crc32c(crc, frame + GW_FRAME_HEADER, payload);
}

size_t gw_frame_bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    return GW_FRAME_HEADER + coder->family->bound(coder, wire_dtype, count);
}

static void write_header(const gw_coder_t *coder, gw__frame_piece_t piece, uint8_t flags,
                         size_t payload, uint8_t *out)
{
    memset(out, 0, GW_FRAME_HEADER);
    memcpy(out, magic, sizeof magic);
    out[AT_REVISION] = GW_FRAME_REVISION;
    out[AT_CODEC] = coder->family->id;
    out[AT_DTYPE] = (uint8_t)piece.wire_dtype;
    out[AT_FLAGS] = flags;
    coder->family->put_params(coder, out + AT_PARAMS);
    gw__store64(out + AT_COUNT, piece.count);
    gw__store64(out + AT_FIRST, piece.first);
    gw__store64(out + AT_LENGTH, payload);
}

size_t gw__frame_close(const gw_coder_t *coder, gw__frame_piece_t piece, bool checksum,
                       size_t payload, uint8_t *dst)
{
    write_header(coder, piece, checksum ? FLAG_CHECKSUM : 0, payload, dst);
    if (checksum)
        gw__store32(dst + AT_CRC, checksum_of(dst, payload));
    return GW_FRAME_HEADER + payload;
}

gw_status_t gw__frame_encode(const gw_coder_t *coder, gw_encode_t *in, bool checksum, uint8_t *dst,
                             size_t capacity, size_t *length)
{
    size_t payload = 0;
    if (capacity < GW_FRAME_HEADER)
        return GW_ERR_NO_SPACE;
    gw_status_t status = coder->family->encode(coder, in, dst + GW_FRAME_HEADER,
                                               capacity - GW_FRAME_HEADER, &payload);
    if (status)
        return status;
    gw__frame_piece_t piece = {in->wire_dtype, in->count, in->first};
    *length = gw__frame_close(coder, piece, checksum, payload, dst);
    return GW_OK;
}

gw_status_t gw_frame_encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                            size_t *length)
{
    return gw__frame_encode(coder, in, false, dst, capacity, length);
}

/* Everything in the header that needs no other part of the frame. */
static gw_status_t check_fixed_fields(const uint8_t *frame, size_t length)
{
    if (length < GW_FRAME_HEADER)
        return GW_ERR_FRAME_LENGTH;
    if (memcmp(frame, magic, sizeof magic))
        return GW_ERR_FRAME_MAGIC;
    if (frame[AT_REVISION] != GW_FRAME_REVISION)
        return GW_ERR_FRAME_REVISION;
    bool has_crc = frame[AT_FLAGS] & FLAG_CHECKSUM;
    if (frame[AT_FLAGS] & ~FLAG_CHECKSUM || gw__load32(frame + AT_RESERVED) ||
        (!has_crc && gw__load32(frame + AT_CRC)) ||
        !gw__element_bytes((gw_dtype_t)frame[AT_DTYPE]) || gw__load64(frame + AT_COUNT) > COUNT_MAX)
        return GW_ERR_FRAME_HEADER;
    return GW_OK;
}

static gw_status_t read_header(const uint8_t *frame, gw_frame_info_t *out)
{
    const gw_codec_t *family = gw_codec_by_id(frame[AT_CODEC]);
    if (!family)
        return GW_ERR_FRAME_HEADER;
    gw__coder_defaults(family, &out->coder);
    if (family->get_params(frame + AT_PARAMS, &out->coder))
        return GW_ERR_FRAME_HEADER;
    gw__coder_print(&out->coder);
    out->wire_dtype = (gw_dtype_t)frame[AT_DTYPE];
    out->count = gw__load64(frame + AT_COUNT);
    out->first = gw__load64(frame + AT_FIRST);
    out->header_bytes = GW_FRAME_HEADER;
    out->has_checksum = frame[AT_FLAGS] & FLAG_CHECKSUM;
    return out->first % family->grain(&out->coder) ? GW_ERR_FRAME_HEADER : GW_OK;
}

/* The payload's length against what the codec needs and what is there. */
static gw_status_t check_length(const gw_coder_t *coder, const uint8_t *frame, size_t length,
                                size_t *payload_bytes)
{
    uint64_t payload = gw__load64(frame + AT_LENGTH);
    size_t count = (size_t)gw__load64(frame + AT_COUNT);
    size_t bound = coder->family->bound(coder, (gw_dtype_t)frame[AT_DTYPE], count);
    if (payload > bound || (payload < bound && coder->family->flags & GW_CODEC_FIXED))
        return GW_ERR_FRAME_HEADER;
    if (payload != length - GW_FRAME_HEADER)
        return GW_ERR_FRAME_LENGTH;
    *payload_bytes = (size_t)payload;
    return GW_OK;
}

gw_status_t gw_frame_inspect(const uint8_t *frame, size_t length, gw_frame_info_t *out)
{
    gw_frame_info_t info;
    gw_status_t status = check_fixed_fields(frame, length);
    if (!status)
        status = read_header(frame, &info);
    if (!status)
        status = check_length(&info.coder, frame, length, &info.payload_bytes);
    if (!status)
        *out = info;
    return status;
}

/* Whether the header is the one that is expected. */
static bool is_expected(const gw_coder_t *coder, const uint8_t *frame, gw__frame_piece_t piece)
{
    uint8_t params[GW_CODEC_HEADER_PARAMS];
    coder->family->put_params(coder, params);
    return frame[AT_CODEC] == coder->family->id && frame[AT_DTYPE] == piece.wire_dtype &&
           gw__load64(frame + AT_COUNT) == piece.count &&
           gw__load64(frame + AT_FIRST) == piece.first &&
           piece.first % coder->family->grain(coder) == 0 &&
           !memcmp(frame + AT_PARAMS, params, sizeof params);
}

gw_status_t gw__frame_check(const gw_coder_t *coder, gw__frame_piece_t piece, const uint8_t *frame,
                            size_t length, size_t *payload)
{
    gw_status_t status = check_fixed_fields(frame, length);
    if (!status && !is_expected(coder, frame, piece)) { /* broken, or whole but another one? */
        gw_frame_info_t info;
        status = gw_frame_inspect(frame, length, &info);
        return status ? status : GW_ERR_FRAME_MISMATCH;
    }
    if (!status)
        status = check_length(coder, frame, length, payload);
    if (!status && frame[AT_FLAGS] & FLAG_CHECKSUM &&
        gw__load32(frame + AT_CRC) != checksum_of(frame, *payload))
        return GW_ERR_FRAME_CHECKSUM;
    return status;
}

gw_status_t gw_frame_decode(const gw_coder_t *coder, const gw_decode_t *io)
{
    gw_decode_t inner = *io;
    gw__frame_piece_t piece = {io->wire_dtype, io->count, io->first};
    gw_status_t status = gw__frame_check(coder, piece, io->payload, io->length, &inner.length);
    if (status)
        return status;
    inner.payload = io->payload + GW_FRAME_HEADER;
    return coder->family->decode(coder, &inner);
}

gw_status_t gw__frame_check_all(const gw_coder_t *coder, gw_reduce_t *in)
{
    gw__frame_piece_t piece = {in->wire_dtype, in->count, in->first};
    size_t payload;
    for (size_t i = 0; i < in->payloads; i++) {
        in->refused = i;
        if (in->length[i] < in->skip)
            return GW_ERR_FRAME_LENGTH;
        gw_status_t status = gw__frame_check(coder, piece, in->payload[i] + in->skip,
                                             in->length[i] - in->skip, &payload);
        if (status)
            return status;
    }
    return GW_OK;
}

gw_status_t gw__frame_reduce(const gw_coder_t *coder, gw_reduce_t *in, bool checksum, float *sum,
                             uint8_t *dst, size_t capacity, size_t *length)
{
    size_t payload = 0;
    uint8_t *out = dst + GW_FRAME_HEADER;
    if (!coder->family->reduce && !(sum && gw__reduce_cuts(coder)))
        return GW_ERR_UNSUPPORTED;
    if (capacity < GW_FRAME_HEADER)
        return GW_ERR_NO_SPACE;
    gw_status_t status = gw__frame_check_all(coder, in);
    if (status)
        return status;
    in->skip += GW_FRAME_HEADER;
    capacity -= GW_FRAME_HEADER;
    status = coder->family->reduce ? coder->family->reduce(coder, in, out, capacity, &payload)
                                   : gw__reduce_slices(coder, in, sum, out, capacity, &payload);
    in->skip -= GW_FRAME_HEADER;
    if (status)
        return status;
    gw__frame_piece_t piece = {in->wire_dtype, in->count, in->first};
    *length = gw__frame_close(coder, piece, checksum, payload, dst);
    return GW_OK;
}

gw_status_t gw_frame_reduce(const gw_coder_t *coder, gw_reduce_t *in, uint8_t *dst, size_t capacity,
                            size_t *length)
{
    return gw__frame_reduce(coder, in, false, NULL, dst, capacity, length);
}

bool gw__frame_merges(const gw_coder_t *coder, gw_dtype_t wire_dtype)
{
    gw_merge_t none = {.wire_dtype = wire_dtype};
    return coder->family->merge && coder->family->merge(coder, &none) == GW_OK;
}

gw_status_t gw_frame_merge(const gw_coder_t *coder, gw_merge_t *io)
{
    gw__frame_piece_t piece = {io->wire_dtype, io->count, io->first};
    gw_merge_t inner = *io;
    if (!coder->family->merge)
        return GW_ERR_UNSUPPORTED;
    io->refused_from = false;
    gw_status_t status =
        gw__frame_check(coder, piece, io->into, io->into_length, &inner.into_length);
    if (status)
        return status;
    io->refused_from = true;
    status = gw__frame_check(coder, piece, io->from, io->from_length, &inner.from_length);
    if (status)
        return status;
    inner.into += GW_FRAME_HEADER;
    inner.from += GW_FRAME_HEADER;
    status = coder->family->merge(coder, &inner);
    io->refused_from = inner.refused_from;
    if (status == GW_OK && io->into[AT_FLAGS] & FLAG_CHECKSUM)
        gw__store32(io->into + AT_CRC, checksum_of(io->into, inner.into_length));
    return status;
}
