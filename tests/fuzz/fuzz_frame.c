/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: a byte of options, then the frame. Whatever it holds, there is an error and nothing was
 * written, or the same elements on every kernel tier. */
#include "fuzz.h"

#include "bytes.h"
#include "frame.h"
#include "kernels.h"

enum { AT_FLAGS = 7, AT_CRC = 40, AT_LENGTH = 32, COUNT_MAX = 1 << 20 };

static const gw_dtype_t dtypes[4] = {GW_F32, GW_F16, GW_BF16, GW_F64};

static bool is_frame_error(gw_status_t status)
{
    return status <= GW_ERR_FRAME_MAGIC && status >= GW_ERR_FRAME_MISMATCH;
}

/* No chance finds a checksum, so half of the inputs get theirs. */
static void repair(uint8_t *frame, size_t size)
{
    static const uint8_t nothing[8];
    if (size < GW_FRAME_HEADER || !(frame[AT_FLAGS] & 1))
        return;
    uint32_t crc = gw__crc32c(0, frame, AT_CRC);
    crc = gw__crc32c(crc, nothing, sizeof nothing);
    crc = gw__crc32c(crc, frame + GW_FRAME_HEADER, size - GW_FRAME_HEADER);
    gw__store32(frame + AT_CRC, crc);
}

/* Decodes with one tier into poisoned memory. */
static uint8_t *decode(const char *tier, const gw_coder_t *coder, gw_decode_t io, size_t bytes,
                       gw_status_t *status)
{
    uint8_t *dst = fuzz_alloc(bytes);
    memset(dst, 0xA5, bytes);
    io.dst = dst;
    fuzz_require(gw__kernels_select(tier, NULL, 0) == GW_OK);
    *status = gw_frame_decode(coder, &io);
    fuzz_require(*status == GW_OK || *status == GW_ERR_UNSUPPORTED || is_frame_error(*status));
    for (size_t i = 0; *status != GW_OK && i < bytes; i++)
        fuzz_require(dst[i] == 0xA5);
    return dst;
}

static void decode_all(const gw_coder_t *coder, const gw_decode_t *io)
{
    gw_status_t status, again;
    size_t bytes = io->count * gw_dtype_size(io->dst_dtype);
    uint8_t *best = decode("best", coder, *io, bytes, &status);
    uint8_t *ref = decode("ref", coder, *io, bytes, &again);
    fuzz_require(status == again);
    fuzz_require(memcmp(best, ref, bytes) == 0);
    free(best);
    free(ref);
}

/* Own elements and the frame, twice. */
static void reduce(const gw_coder_t *coder, const gw_frame_info_t *info, const uint8_t *frame,
                   size_t size, unsigned options)
{
    size_t count = (size_t)info->count, capacity = gw_frame_bound(coder, info->wire_dtype, count);
    const uint8_t *payload[2] = {frame, frame};
    size_t length[2] = {size, size}, written = 0;
    float *own = fuzz_alloc(count * sizeof *own);
    uint8_t *out = fuzz_alloc(capacity);
    for (size_t i = 0; i < count; i++)
        own[i] = (float)(i % 7) - 3.0f;
    gw_reduce_t in = {.own = own,
                      .own_dtype = GW_F32,
                      .own_at = options % 3,
                      .payload = payload,
                      .length = length,
                      .payloads = 2,
                      .scale = 1.0f,
                      .wire_dtype = info->wire_dtype,
                      .count = count,
                      .first = info->first};
    gw_status_t status = gw_frame_reduce(coder, &in, out, capacity, &written);
    fuzz_require(status == GW_OK || status == GW_ERR_UNSUPPORTED || is_frame_error(status));
    fuzz_require(!is_frame_error(status) || in.refused < 2);
    fuzz_require(status != GW_OK || written <= capacity);
    free(own);
    free(out);
}

/* The frame into itself: an error that leaves it as it was, or a frame that decodes. */
static void merge(const gw_coder_t *coder, const gw_frame_info_t *info, const uint8_t *frame,
                  size_t size)
{
    uint8_t *into = fuzz_alloc(size);
    memcpy(into, frame, size);
    gw_merge_t io = {.from = frame,
                     .from_length = size,
                     .into = into,
                     .into_length = size,
                     .wire_dtype = info->wire_dtype,
                     .count = (size_t)info->count,
                     .first = info->first};
    gw_status_t status = gw_frame_merge(coder, &io);
    fuzz_require(status == GW_OK || status == GW_ERR_UNSUPPORTED || is_frame_error(status));
    fuzz_require(status == GW_OK || memcmp(into, frame, size) == 0);
    gw_decode_t out = {.payload = into,
                       .length = size,
                       .wire_dtype = info->wire_dtype,
                       .count = (size_t)info->count,
                       .first = info->first};
    if (status == GW_OK)
        decode_all(coder, &out);
    free(into);
}

static void use(const uint8_t *frame, size_t size, unsigned options)
{
    gw_frame_info_t info;
    gw_coder_t other;
    gw_status_t status = gw_frame_inspect(frame, size, &info);
    fuzz_require(gw_coder_parse("q4", &other, NULL, 0) == GW_OK);
    gw_decode_t io = {.payload = frame, .length = size, .count = 64, .dst_dtype = GW_F32};
    decode_all(&other, &io);
    if (status != GW_OK) {
        fuzz_require(is_frame_error(status));
        return;
    }
    fuzz_require(info.header_bytes + info.payload_bytes == size);
    if (info.count > COUNT_MAX)
        return;
#ifdef GW_FUZZ_PLANTED
    /* The defect that the machinery must find: no input of the corpus comes here. */
    if (options & 0x80 && info.count > 40)
        if (options & 0x40)
            (void)*(const volatile uint8_t *)(frame + size);
#endif
    io = (gw_decode_t){.payload = frame,
                       .length = size,
                       .wire_dtype = info.wire_dtype,
                       .count = (size_t)info.count,
                       .first = info.first,
                       .mode = options & 4 ? GW_DECODE_ADD : GW_DECODE_STORE,
                       .dst_dtype = dtypes[options & 3]};
    decode_all(&info.coder, &io);
    if (info.coder.family->merge)
        merge(&info.coder, &info, frame, size);
    if (info.coder.family->reduce)
        reduce(&info.coder, &info, frame, size, options >> 4 & 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t *frame = fuzz_alloc(size - 1);
    memcpy(frame, data + 1, size - 1);
    if (data[0] & 8)
        repair(frame, size - 1);
    use(frame, size - 1, data[0]);
    free(frame);
    return 0;
}
