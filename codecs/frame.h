/* SPDX-License-Identifier: Apache-2.0 */
/* Frames from the inside: size of the header, and writing with a checksum. */
#ifndef GW_FRAME_H
#define GW_FRAME_H

#include <gradwire/codec.h>

#define GW_FRAME_HEADER   48
#define GW_FRAME_REVISION 1

/* gw_frame_encode, with a CRC32C of header and payload when `checksum`. */
gw_status_t gw__frame_encode(const gw_coder_t *coder, gw_encode_t *in, bool checksum, uint8_t *dst,
                             size_t capacity, size_t *length);

/* gw_frame_reduce, likewise. Families that cannot reduce are served slice by slice (reduce.h) when
 * there is `sum`, room for a slice, and their payload can be cut. */
gw_status_t gw__frame_reduce(const gw_coder_t *coder, gw_reduce_t *in, bool checksum, float *sum,
                             uint8_t *dst, size_t capacity, size_t *length);

/* What a header says that is not the coder's. */
typedef struct gw__frame_piece {
    gw_dtype_t wire_dtype;
    uint64_t count, first;
} gw__frame_piece_t;

/* The two halves of a frame whose payload is written, and read, by somebody else. close: the header
 * goes in front of `payload` bytes that lie behind its place; returns the length of the frame.
 * check: all that gw_frame_decode looks at before the payload's meaning; *payload is its length. */
size_t gw__frame_close(const gw_coder_t *coder, gw__frame_piece_t piece, bool checksum,
                       size_t payload, uint8_t *dst);
gw_status_t gw__frame_check(const gw_coder_t *coder, gw__frame_piece_t piece, const uint8_t *frame,
                            size_t length, size_t *payload);

/* Of all frames that a reduction reads; in->refused as after gw__frame_reduce. */
gw_status_t gw__frame_check_all(const gw_coder_t *coder, gw_reduce_t *in);

/* Whether frames of this coder and element type can be merged: whether gw_frame_merge ever says
 * anything but GW_ERR_UNSUPPORTED. */
bool gw__frame_merges(const gw_coder_t *coder, gw_dtype_t wire_dtype);

/* CRC32C (Castagnoli) of `length` bytes, continued from `crc` (0 at the start). */
uint32_t gw__crc32c(uint32_t crc, const uint8_t *data, size_t length);

#endif
