/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding with a residual that is kept in 16 bits, slice by slice. */
#include "half_residual.h"

#include "frame.h"
#include "kernels.h"
#include "reduce.h"

enum { TILE = 2 * GW_BLOCK };

bool gw__half_residual_serves(const gw_coder_t *coder)
{
    const gw_codec_t *family = coder->family;
    return gw__reduce_cuts(coder) && gw__reduce_slice(coder) <= TILE && !family->factors &&
           (family->flags & GW_CODEC_FEEDBACK) && !gw__keeps_momentum(coder);
}

/* A slice of a call: its residual in binary32, and where it is kept. */
typedef struct slice {
    size_t at, count;  /* elements */
    size_t from, size; /* bytes of payload */
    float tile[TILE];
} slice_t;

/* The next one; false behind the last. */
static bool next(const gw_coder_t *coder, gw_dtype_t dtype, size_t count, slice_t *s)
{
    size_t most = gw__reduce_slice(coder);
    s->at += s->count;
    s->from += s->size;
    if (s->at >= count)
        return false;
    s->count = count - s->at < most ? count - s->at : most;
    s->size = coder->family->bound(coder, dtype, s->count);
    return true;
}

static uint8_t *kept(void *residual, const slice_t *s)
{
    return (uint8_t *)residual + 2 * s->at;
}

static void load(void *residual, slice_t *s)
{
    gw__kernels()->cast.bf16_to_f32(kept(residual, s), s->tile, s->count);
}

static void keep(void *residual, const slice_t *s, uint64_t first, uint64_t key)
{
    gw__kernels()->cast.bf16_stochastic(s->tile, kept(residual, s), s->count, first + s->at,
                                        gw__half_residual_key(key));
}

/* ---- encode -------------------------------------------------------------------------------------
 */

gw_status_t gw__frame_encode_half(const gw_coder_t *coder, gw_encode_t *in, void *residual,
                                  bool checksum, uint8_t *dst, size_t capacity, size_t *length)
{
    slice_t s = {.count = 0};
    size_t bytes = coder->family->bound(coder, in->wire_dtype, in->count), written;
    size_t element = gw__element_bytes(in->src_dtype);
    gw_status_t status = GW_OK;
    if (capacity < GW_FRAME_HEADER || capacity - GW_FRAME_HEADER < bytes)
        return GW_ERR_NO_SPACE;
    in->poisoned = 0;
    while (status == GW_OK && next(coder, in->wire_dtype, in->count, &s)) {
        gw_encode_t part = *in;
        load(residual, &s);
        part.src = (const uint8_t *)in->src + s.at * element;
        part.residual = s.tile;
        part.count = s.count;
        part.first = in->first + s.at;
        status =
            coder->family->encode(coder, &part, dst + GW_FRAME_HEADER + s.from, s.size, &written);
        in->poisoned += part.poisoned;
        if (status == GW_OK)
            keep(residual, &s, in->first, in->key);
    }
    if (status == GW_OK)
        *length = gw__frame_close(coder, (gw__frame_piece_t){in->wire_dtype, in->count, in->first},
                                  checksum, bytes, dst);
    return status;
}

/* ---- reduce -------------------------------------------------------------------------------------
 */

static gw_status_t reduce_slice(const gw_coder_t *coder, gw_reduce_t *part, const slice_t *s,
                                float *sum, uint8_t *dst)
{
    size_t written;
    return coder->family->reduce ? coder->family->reduce(coder, part, dst, s->size, &written)
                                 : gw__reduce_slices(coder, part, sum, dst, s->size, &written);
}

/* The part of a slice of what all frames hold. A payload's length is that of its part, with what
 * comes before as `skip`: the same for all, so the list of lengths is one of equal numbers. */
static gw_status_t reduce_part(const gw_coder_t *coder, gw_reduce_t *in, slice_t *s, float *sum,
                               uint8_t *dst, size_t *lengths)
{
    gw_reduce_t part = *in;
    part.skip = in->skip + GW_FRAME_HEADER + s->from;
    for (size_t k = 0; k < in->payloads; k++)
        lengths[k] = part.skip + s->size;
    part.length = lengths;
    part.own = (const uint8_t *)in->own + s->at * gw__element_bytes(in->own_dtype);
    part.residual = s->tile;
    part.count = s->count;
    part.first = in->first + s->at;
    gw_status_t status = reduce_slice(coder, &part, s, sum, dst + GW_FRAME_HEADER + s->from);
    in->poisoned += part.poisoned;
    in->refused = part.refused;
    return status;
}

gw_status_t gw__frame_reduce_half(const gw_coder_t *coder, gw_reduce_t *in, size_t *lengths,
                                  void *residual, bool checksum, float *sum, uint8_t *dst,
                                  size_t capacity, size_t *length)
{
    slice_t s = {.count = 0};
    size_t bytes = coder->family->bound(coder, in->wire_dtype, in->count);
    gw_status_t status = gw__frame_check_all(coder, in);
    if (status == GW_OK && (capacity < GW_FRAME_HEADER || capacity - GW_FRAME_HEADER < bytes))
        status = GW_ERR_NO_SPACE;
    in->poisoned = 0;
    while (status == GW_OK && next(coder, in->wire_dtype, in->count, &s)) {
        load(residual, &s);
        status = reduce_part(coder, in, &s, sum, dst, lengths);
        if (status == GW_OK)
            keep(residual, &s, in->first, in->key);
    }
    if (status == GW_OK)
        *length = gw__frame_close(coder, (gw__frame_piece_t){in->wire_dtype, in->count, in->first},
                                  checksum, bytes, dst);
    return status;
}
