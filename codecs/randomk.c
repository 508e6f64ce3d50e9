/* SPDX-License-Identifier: Apache-2.0 */
/* Codec randomk (id 9): elements at random places, the same on all ranks, without their indices. */
#include "codecs.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "device_ops.h"
#include "kernels.h"
#include "randomk_places.h"
#include "sparse.h"

enum { RATIO, BLOCK, SEED, VALUES, SCALE, FEEDBACK, FORCE };

static const gw_codec_param_t params[] = {
    [RATIO] = {"ratio", GW_PARAM_REAL, "0.01", 1e-6, 0.5, NULL,
               "part of the elements that is sent"},
    [BLOCK] = {"block", GW_PARAM_INT, "65536", 64, 1 << 24, NULL,
               "elements among which places are drawn; a power of two"},
    [SEED] = {"seed", GW_PARAM_INT, "0", 0, 2147483647, NULL, "of the places; equal on all ranks"},
    [VALUES] = {"values", GW_PARAM_CHOICE, "fp32", 0, 0, "fp32|wire",
                "wire: in the element type of the collective; 16-bit values cannot be merged"},
    [SCALE] = {"scale", GW_PARAM_SWITCH, "off", 0, 1, NULL,
               "send n/k times the value: unbiased without feedback"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "on", 0, 1, NULL,
                  "error feedback: what was not sent is added to the next call"},
    [FORCE] = {"force", GW_PARAM_SWITCH, "0", 0, 1, NULL,
               "allow combinations that are known to do harm"},
    {.name = NULL},
};

static bool match(const char *name, gw_coder_t *coder)
{
    return !strcmp(name, "randomk");
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "randomk");
}

static gw_status_t check(const gw_coder_t *coder, char *why, size_t size)
{
    size_t block = (size_t)coder->value[BLOCK];
    if (block & (block - 1)) {
        snprintf(why, size, "block=%zu: a power of two is needed, such as %zu", block,
                 (size_t)1 << (63 - __builtin_clzll(block)));
        return GW_ERR_BAD_SETTING;
    }
    if (coder->value[FORCE])
        return GW_OK;
    if (coder->value[SCALE]) {
        snprintf(
            why, size,
            "scale=on: the plan direct encodes the sum once more and would scale it twice, and "
            "a residual would grow without end; use ef=on alone, or force=1 with ef=off and "
            "the plan gather");
        return GW_ERR_BAD_SETTING;
    }
    if (!coder->value[FEEDBACK]) {
        snprintf(why, size,
                 "ef=off: what randomk does not send would be lost for good; use ef=on, or force=1 "
                 "with scale=on and the plan gather");
        return GW_ERR_BAD_SETTING;
    }
    return GW_OK;
}

static size_t grain(const gw_coder_t *coder)
{
    return (size_t)coder->value[BLOCK];
}

/* ---- Blocks -------------------------------------------------------------------------------------
 */

enum { HEADER = GW_RANDOMK_HEADER };
#define POISON GW_RANDOMK_POISON

static size_t slots_of(const gw_coder_t *coder, size_t n)
{
    return gw__ratio_of(gw__ratio_fixed(coder->value[RATIO]), n);
}

static gw_dtype_t value_type(const gw_coder_t *coder, gw_dtype_t wire_dtype)
{
    return coder->value[VALUES] ? wire_dtype : GW_F32;
}

static size_t block_bytes(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t n)
{
    return HEADER + slots_of(coder, n) * gw__element_bytes(value_type(coder, wire_dtype));
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    size_t block = grain(coder), tail = count % block;
    return count / block * block_bytes(coder, wire_dtype, block) +
           (tail ? block_bytes(coder, wire_dtype, tail) : 0);
}

static uint32_t draw_of(const gw_coder_t *coder, uint64_t shared_key, uint64_t block)
{
    return gw__randomk_draw((uint64_t)coder->value[SEED], shared_key, block);
}

/* Places `from` to `from + count` of k in a block of n. */
static void draw(uint32_t draw, size_t n, size_t k, size_t from, size_t count, uint32_t *index)
{
    gw_randomk_places_t places = gw__randomk_places(draw, n);
    uint64_t low = gw__randomk_stratum(from, n, k);
    for (size_t j = from; j < from + count; j++) {
        uint64_t high = gw__randomk_stratum(j + 1, n, k);
        index[j - from] = gw__randomk_place(places, n, j, low, high);
        low = high;
    }
}

/* ---- Encoding -----------------------------------------------------------------------------------
 */

typedef struct scratch {
    uint32_t index[GW_BLOCK];
    float value[GW_BLOCK], sent[GW_BLOCK], tile[GW_BLOCK];
} scratch_t;

static const float *source(const gw_encode_t *in, size_t at, size_t n, float *tile)
{
    if (in->src_dtype == GW_F32)
        return (const float *)in->src + at;
    gw__widen(in->src_dtype, (const uint8_t *)in->src + 2 * at, tile, n);
    return tile;
}

/* Whether the block is finite; adds it to the residual then. */
static bool take_up(const gw_encode_t *in, size_t at, size_t n, float *tile)
{
    const gw_topk_kernels_t *topk = &gw__kernels()->topk;
    size_t step = in->src_dtype == GW_F32 ? n : GW_BLOCK, lost = 0;
    for (size_t i = 0; i < n; i += step) {
        size_t m = n - i < step ? n - i : step;
        lost += topk->count(source(in, at + i, m, tile), m, GW_TOPK_INF);
    }
    for (size_t i = 0; !lost && in->residual && i < n; i += step) {
        size_t m = n - i < step ? n - i : step;
        topk->fold(source(in, at + i, m, tile), in->residual + at + i, m);
    }
    return lost == 0;
}

static void gather(const gw_encode_t *in, size_t at, scratch_t *s, size_t count)
{
    size_t wide = gw__element_bytes(in->src_dtype);
    for (size_t i = 0; i < count; i++) {
        size_t place = at + s->index[i];
        if (in->residual)
            s->value[i] = in->residual[place];
        else
            gw__widen(in->src_dtype, (const uint8_t *)in->src + wide * place, &s->value[i], 1);
    }
}

/* n/k times what was gathered. */
static void scale(const float *value, float *sent, size_t count, float factor, gw_dtype_t type)
{
    gw__kernels()->sum.scale(sent, factor, count);
    for (size_t i = 0; i < count; i++)
        sent[i] = gw__randomk_limited(value[i], sent[i], type);
}

static void encode_block(const gw_coder_t *coder, const gw_encode_t *in, size_t at, size_t n,
                         scratch_t *s, uint8_t *dst)
{
    gw_dtype_t type = value_type(coder, in->wire_dtype);
    size_t k = slots_of(coder, n), wide = gw__element_bytes(type);
    uint32_t number = gw__load32(dst);
    for (size_t j = 0; j < k; j += GW_BLOCK) {
        size_t m = k - j < GW_BLOCK ? k - j : GW_BLOCK;
        uint8_t *out = dst + HEADER + wide * j;
        draw(number, n, k, j, m, s->index);
        gather(in, at, s, m);
        memcpy(s->sent, s->value, m * sizeof *s->sent);
        if (coder->value[SCALE])
            scale(s->value, s->sent, m, gw__randomk_factor(n, k), type);
        gw__narrow(type, s->sent, out, m);
        gw__widen(type, out, s->sent, m);
        if (in->residual)
            gw__kernels()->topk.settle(in->residual + at, s->index, s->value, s->sent, m);
    }
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    scratch_t scratch;
    if (!gw__element_bytes(in->src_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    size_t block = grain(coder), bytes = bound(coder, in->wire_dtype, in->count);
    if (in->first % block)
        return GW_ERR_INVALID;
    if (capacity < bytes)
        return GW_ERR_NO_SPACE;
    in->poisoned = 0;
    for (size_t i = 0, n; i < in->count; i += n, dst += block_bytes(coder, in->wire_dtype, n)) {
        n = in->count - i < block ? in->count - i : block;
        uint32_t number = draw_of(coder, in->shared_key, (in->first + i) / block);
        gw__store32(dst, number);
        if (take_up(in, i, n, scratch.tile)) {
            encode_block(coder, in, i, n, &scratch, dst);
            continue;
        }
        memset(dst, 0, block_bytes(coder, in->wire_dtype, n));
        gw__store32(dst, number | POISON);
        in->poisoned++;
    }
    *length = bytes;
    return GW_OK;
}

/* ---- Decoding and merging -----------------------------------------------------------------------
 */

static bool is_poisoned(const uint8_t *payload)
{
    return gw__load32(payload) & POISON;
}

/* Any draw and any value may be; behind a poisoned header there is nothing. */
static bool valid(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count,
                  const uint8_t *payload)
{
    bool right = true;
    for (size_t i = 0, n; i < count; i += n) {
        n = count - i < grain(coder) ? count - i : grain(coder);
        size_t bytes = block_bytes(coder, wire_dtype, n);
        for (size_t b = HEADER; is_poisoned(payload) && b < bytes; b++)
            right &= payload[b] == 0;
        payload += bytes;
    }
    return right;
}

static void store_half(const gw_decode_t *in, size_t at, const scratch_t *s, size_t count)
{
    uint16_t narrow[GW_BLOCK];
    gw__narrow(in->dst_dtype, s->value, narrow, count);
    for (size_t i = 0; i < count; i++)
        memcpy((uint8_t *)in->dst + 2 * (at + s->index[i]), &narrow[i], 2);
}

static void fill_nan(const gw_decode_t *in, size_t at, size_t n)
{
    const float nan = gw__float_of(GW_NAN_BITS);
    size_t wide = gw__element_bytes(in->dst_dtype);
    for (size_t i = 0; i < n; i++)
        gw__narrow(in->dst_dtype, &nan, (uint8_t *)in->dst + wide * (at + i), 1);
}

/* Where nothing was sent, adding leaves dst as it is. */
static void decode_block(const gw_coder_t *coder, const gw_decode_t *in, const uint8_t *payload,
                         size_t at, size_t n, scratch_t *s)
{
    const gw_topk_kernels_t *topk = &gw__kernels()->topk;
    gw_dtype_t type = value_type(coder, in->wire_dtype);
    size_t k = slots_of(coder, n), wide = gw__element_bytes(in->dst_dtype);
    if (is_poisoned(payload)) {
        fill_nan(in, at, n);
        return;
    }
    if (in->mode == GW_DECODE_STORE)
        memset((uint8_t *)in->dst + wide * at, 0, wide * n);
    for (size_t j = 0; j < k; j += GW_BLOCK) {
        size_t m = k - j < GW_BLOCK ? k - j : GW_BLOCK;
        draw(gw__load32(payload), n, k, j, m, s->index);
        gw__widen(type, payload + HEADER + gw__element_bytes(type) * j, s->value, m);
        if (in->mode == GW_DECODE_ADD)
            topk->add((float *)in->dst + at, s->index, s->value, m);
        else if (in->dst_dtype == GW_F32)
            topk->store((float *)in->dst + at, s->index, s->value, m);
        else
            store_half(in, at, s, m);
    }
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    scratch_t scratch;
    const uint8_t *payload = in->payload;
    if (!gw__element_bytes(in->dst_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (in->length != bound(coder, in->wire_dtype, in->count))
        return GW_ERR_FRAME_LENGTH;
    if (!valid(coder, in->wire_dtype, in->count, payload))
        return GW_ERR_FRAME_PAYLOAD;
    for (size_t i = 0, n; i < in->count; i += n) {
        n = in->count - i < grain(coder) ? in->count - i : grain(coder);
        decode_block(coder, in, payload, i, n, &scratch);
        payload += block_bytes(coder, in->wire_dtype, n);
    }
    return GW_OK;
}

/* Whether all blocks chose the same places. */
static bool alike(const gw_coder_t *coder, const gw_merge_t *io)
{
    bool right = true;
    size_t bytes = block_bytes(coder, io->wire_dtype, grain(coder));
    size_t blocks = (io->count + grain(coder) - 1) / grain(coder);
    for (size_t i = 0; i < blocks; i++)
        right &=
            ((gw__load32(io->into + i * bytes) ^ gw__load32(io->from + i * bytes)) & ~POISON) == 0;
    return right;
}

static gw_status_t check_merge(const gw_coder_t *coder, gw_merge_t *io)
{
    size_t bytes = bound(coder, io->wire_dtype, io->count);
    if (!gw__element_bytes(io->wire_dtype) || value_type(coder, io->wire_dtype) != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (io->first % grain(coder))
        return GW_ERR_INVALID;
    io->refused_from = io->into_length == bytes;
    if (io->into_length != bytes || io->from_length != bytes)
        return GW_ERR_FRAME_LENGTH;
    io->refused_from = valid(coder, io->wire_dtype, io->count, io->into);
    if (!io->refused_from || !valid(coder, io->wire_dtype, io->count, io->from))
        return GW_ERR_FRAME_PAYLOAD;
    return alike(coder, io) ? GW_OK : GW_ERR_FRAME_MISMATCH;
}

/* Payloads are aligned to nothing; sums are to that of float. */
static void add_values(uint8_t *into, const uint8_t *from, size_t count, float *value)
{
    for (size_t j = 0; j < count; j += GW_BLOCK) {
        size_t m = count - j < GW_BLOCK ? count - j : GW_BLOCK;
        memcpy(value, into + 4 * j, m * sizeof *value);
        gw__kernels()->sum.add(value, from + 4 * j, m);
        memcpy(into + 4 * j, value, m * sizeof *value);
    }
}

static gw_status_t merge(const gw_coder_t *coder, gw_merge_t *io)
{
    float value[GW_BLOCK];
    uint8_t *into = io->into;
    const uint8_t *from = io->from;
    gw_status_t status = check_merge(coder, io);
    if (status)
        return status;
    for (size_t i = 0, n; i < io->count; i += n) {
        n = io->count - i < grain(coder) ? io->count - i : grain(coder);
        size_t bytes = block_bytes(coder, io->wire_dtype, n);
        if (is_poisoned(into) || is_poisoned(from)) {
            uint32_t number = gw__load32(into) | POISON;
            memset(into, 0, bytes);
            gw__store32(into, number);
        } else {
            add_values(into + HEADER, from + HEADER, slots_of(coder, n), value);
        }
        into += bytes;
        from += bytes;
    }
    return GW_OK;
}

/* ---- What the family says of itself -------------------------------------------------------------
 */

/* Lost whole, or sent n/k times too large. */
static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    size_t block = grain(coder);
    for (size_t i = 0; i < count; i++) {
        size_t n = count - i / block * block < block ? count - i / block * block : block;
        double factor = coder->value[SCALE] ? (double)n / (double)slots_of(coder, n) : 1;
        double limit = fabs((double)x[i]) * (factor * (1 + 0x1p-22));
        out[i] =
            factor > 1 ? (float)fmin(limit + (double)FLT_MIN, 2.0 * (double)FLT_MAX) : fabsf(x[i]);
    }
}

/* Byte 0: kind of values; byte 1: log2 of the block; bytes 4 to 7: ratio in 2^-32. Places follow
 * from the payload, and how values were scaled does not matter to the reader. */
static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[0] = (uint8_t)coder->value[VALUES];
    out[1] = (uint8_t)gw__log2(grain(coder));
    gw__store32(out + 4, gw__ratio_fixed(coder->value[RATIO]));
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    double ratio = gw__ratio_real(gw__load32(in + 4));
    if (in[0] > 1 || in[1] < 6 || in[1] > 24 || in[2] || in[3] || ratio < params[RATIO].min ||
        ratio > params[RATIO].max)
        return GW_ERR_FRAME_HEADER;
    coder->value[VALUES] = in[0];
    coder->value[BLOCK] = (double)(1u << in[1]);
    coder->value[RATIO] = ratio;
    return GW_OK;
}

/* ---- On the device ------------------------------------------------------------------------------
 */

static gw_randomk_spec_t spec_of(const gw_coder_t *coder, gw_dtype_t wire_dtype)
{
    return (gw_randomk_spec_t){.block = (unsigned)grain(coder),
                               .ratio = gw__ratio_fixed(coder->value[RATIO]),
                               .values = value_type(coder, wire_dtype),
                               .seed = (uint32_t)coder->value[SEED],
                               .scale = coder->value[SCALE] != 0.0};
}

/* A word for each block. */
static size_t device_scratch(const gw_coder_t *coder, size_t count)
{
    return (count + grain(coder) - 1) / grain(coder) * sizeof(uint32_t);
}

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw_randomk_spec_t spec = spec_of(coder, in->wire_dtype);
    gw_status_t status = gw__cuda_sum.zero(queue, queue->scratch, device_scratch(coder, in->count));
    return status ? status
                  : gw__cuda_randomk.encode(queue, &spec, in->src, in->residual, in->count,
                                            in->first, in->shared_key, dst, queue->scratch, result);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    gw_randomk_spec_t spec = spec_of(coder, in->wire_dtype);
    return (in->mode == GW_DECODE_ADD ? gw__cuda_randomk.add : gw__cuda_randomk.store)(
        queue, &spec, in->payload, in->count, in->dst, queue->scratch, result);
}

const gw__device_codec_t gw__device_randomk = {.family = &gw__codec_randomk,
                                               .encode = device_encode,
                                               .decode = device_decode,
                                               .scratch = device_scratch};

const gw_codec_t gw__codec_randomk = {
    .abi = GW_CODEC_ABI,
    .id = 9,
    .family = "randomk",
    .names = "randomk",
    .summary = "elements at random places that all ranks share, summed without decoding",
    .flags = GW_CODEC_LOSSY | GW_CODEC_FIXED | GW_CODEC_LINEAR | GW_CODEC_FEEDBACK,
    .params = params,
    .match = match,
    .name = put_name,
    .check = check,
    .grain = grain,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .error_bound = error_bound,
    .put_params = put_params,
    .get_params = get_params,
    .merge = merge,
};
