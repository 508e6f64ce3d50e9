/* SPDX-License-Identifier: Apache-2.0 */
/* Codec topk (id 8): the largest elements of every block, with their indices. */
#include "topk.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "device_ops.h"
#include "sparse.h"

enum { RATIO, BLOCK, VALUES, SELECT, MOMENTUM, MASKING, WARMUP, FEEDBACK, FORCE };

static const gw_codec_param_t params[] = {
    [RATIO] = {"ratio", GW_PARAM_REAL, "0.01", 1e-6, 0.25, NULL,
               "part of the elements that is sent"},
    [BLOCK] = {"block", GW_PARAM_INT, "65536", 64, 1 << 24, NULL,
               "elements among which the largest are chosen; a power of two"},
    [VALUES] = {"values", GW_PARAM_CHOICE, "raw", 0, 0, "raw|fp16|q8|q4",
                "how values travel; topk+q8 means the same"},
    [SELECT] = {"select", GW_PARAM_CHOICE, "exact", 0, 0, "exact|sampled",
                "sampled: all above a threshold that a sample gives, at most as many"},
    [MOMENTUM] = {"momentum", GW_PARAM_REAL, "0", 0, 0.999, NULL,
                  "momentum correction, in place of the optimizer's own momentum; 0: none"},
    [MASKING] = {"masking", GW_PARAM_SWITCH, "on", 0, 1, NULL,
                 "factor masking: what was sent loses its momentum"},
    [WARMUP] = {"warmup", GW_PARAM_INT, "0", 0, 1e9, NULL,
                "calls of the communicator in which the ratio falls from 0.25 by fours"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "on", 0, 1, NULL,
                  "error feedback: what was not sent is added to the next call"},
    [FORCE] = {"force", GW_PARAM_SWITCH, "0", 0, 1, NULL,
               "allow combinations that are known to do harm"},
    {.name = NULL},
};

static const char *const value_names[] = {"raw", "fp16", "q8", "q4"};
enum { VALUE_KINDS = sizeof value_names / sizeof *value_names };

static gw__topk_spec_t spec_of(const gw_coder_t *coder, gw_dtype_t wire_dtype)
{
    return (gw__topk_spec_t){.log2_block = gw__log2((size_t)coder->value[BLOCK]),
                             .ratio = gw__ratio_fixed(coder->value[RATIO]),
                             .values = (gw__topk_values_t)coder->value[VALUES],
                             .wire_dtype = wire_dtype,
                             .sampled = coder->value[SELECT] != 0,
                             .momentum = (float)coder->value[MOMENTUM],
                             .masking = coder->value[MASKING] != 0};
}

static bool match(const char *name, gw_coder_t *coder)
{
    if (strncmp(name, "topk", 4) || (name[4] && name[4] != '+'))
        return false;
    for (int i = 1; i < VALUE_KINDS && name[4]; i++)
        if (!strcmp(name + 5, value_names[i])) {
            coder->value[VALUES] = i;
            return true;
        }
    return !name[4];
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    int values = (int)coder->value[VALUES];
    snprintf(out, size, values ? "topk+%s" : "topk", value_names[values]);
}

static gw_status_t check(const gw_coder_t *coder, char *why, size_t size)
{
    size_t block = (size_t)coder->value[BLOCK];
    if (block & (block - 1)) {
        snprintf(why, size, "block=%zu: a power of two is needed, such as %zu", block,
                 (size_t)1 << (63 - __builtin_clzll(block)));
        return GW_ERR_BAD_SETTING;
    }
    if (!coder->value[FEEDBACK] && coder->value[MOMENTUM] > 0) {
        snprintf(why, size, "ef=off: momentum=%g is kept beside the residual; use ef=on",
                 coder->value[MOMENTUM]);
        return GW_ERR_BAD_SETTING;
    }
    if (!coder->value[MASKING] && coder->value[MOMENTUM] == 0) {
        snprintf(why, size,
                 "masking=off: there is nothing to mask without momentum; give one, such as "
                 "momentum=0.9");
        return GW_ERR_BAD_SETTING;
    }
    if (!coder->value[FEEDBACK] && !coder->value[FORCE]) {
        snprintf(why, size,
                 "ef=off: what topk does not send would be lost for good, always the small "
                 "elements; use ef=on, or force=1");
        return GW_ERR_BAD_SETTING;
    }
    return GW_OK;
}

static size_t grain(const gw_coder_t *coder)
{
    return (size_t)coder->value[BLOCK];
}

static size_t bytes_of(const gw__topk_spec_t *spec, size_t count)
{
    size_t block = (size_t)1 << spec->log2_block, tail = count % block;
    return count / block * gw__topk_block_bytes(spec, block) +
           (tail ? gw__topk_block_bytes(spec, tail) : 0);
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    gw__topk_spec_t spec = spec_of(coder, wire_dtype);
    return bytes_of(&spec, count);
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    gw__topk_spec_t spec = spec_of(coder, in->wire_dtype);
    gw__topk_picked_t scratch;
    if (!gw__element_bytes(in->src_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    size_t block = grain(coder), bytes = bytes_of(&spec, in->count);
    if (in->first % block)
        return GW_ERR_INVALID;
    if (capacity < bytes)
        return GW_ERR_NO_SPACE;
    in->poisoned = 0;
    for (size_t i = 0; i < in->count; i += block) {
        size_t n = in->count - i < block ? in->count - i : block;
        in->poisoned += gw__topk_encode_block(&spec, in, i, n, &scratch, dst);
        dst += gw__topk_block_bytes(&spec, n);
    }
    *length = bytes;
    return GW_OK;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

static void store_half(const gw_decode_t *in, size_t at, gw__topk_picked_t *p, size_t count)
{
    uint16_t *narrow = (uint16_t *)p->place;
    gw__narrow(in->dst_dtype, p->value, narrow, count);
    for (size_t i = 0; i < count; i++)
        memcpy((uint8_t *)in->dst + 2 * (at + p->index[i]), &narrow[i], 2);
}

/* Adding a NaN, or storing one, gives the same. */
static void fill_nan(const gw_decode_t *in, size_t at, size_t n)
{
    const float nan = gw__float_of(GW_NAN_BITS);
    size_t wide = gw__element_bytes(in->dst_dtype);
    for (size_t i = 0; i < n; i++)
        gw__narrow(in->dst_dtype, &nan, (uint8_t *)in->dst + wide * (at + i), 1);
}

/* The n elements from `at` on. Where nothing was sent, adding leaves dst as it is. */
static void decode_block(const gw__topk_spec_t *spec, const gw_decode_t *in, const uint8_t *payload,
                         size_t at, size_t n, gw__topk_picked_t *p)
{
    const gw_topk_kernels_t *topk = &gw__kernels()->topk;
    size_t wide = gw__element_bytes(in->dst_dtype), count = gw__load32(payload);
    if (gw__topk_is_poisoned(payload)) {
        fill_nan(in, at, n);
        return;
    }
    if (in->mode == GW_DECODE_STORE)
        memset((uint8_t *)in->dst + wide * at, 0, wide * n);
    for (size_t from = 0; from < count; from += GW__TOPK_ROOM) {
        size_t got = gw__topk_read(spec, payload, n, from, p);
        if (in->mode == GW_DECODE_ADD)
            topk->add((float *)in->dst + at, p->index, p->value, got);
        else if (in->dst_dtype == GW_F32)
            topk->store((float *)in->dst + at, p->index, p->value, got);
        else
            store_half(in, at, p, got);
    }
}

static bool valid(const gw__topk_spec_t *spec, const gw_decode_t *in)
{
    size_t block = (size_t)1 << spec->log2_block;
    const uint8_t *payload = in->payload;
    for (size_t i = 0, n; i < in->count; i += n, payload += gw__topk_block_bytes(spec, n)) {
        n = in->count - i < block ? in->count - i : block;
        if (!gw__topk_valid(spec, payload, n))
            return false;
    }
    return true;
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    gw__topk_spec_t spec = spec_of(coder, in->wire_dtype);
    gw__topk_picked_t scratch;
    if (!gw__element_bytes(in->dst_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (in->length != bytes_of(&spec, in->count))
        return GW_ERR_FRAME_LENGTH;
    if (!valid(&spec, in))
        return GW_ERR_FRAME_PAYLOAD;
    const uint8_t *payload = in->payload;
    for (size_t i = 0, n; i < in->count; i += n, payload += gw__topk_block_bytes(&spec, n)) {
        n = in->count - i < grain(coder) ? in->count - i : grain(coder);
        decode_block(&spec, in, payload, i, n, &scratch);
    }
    return GW_OK;
}

/* ---- What the family says of itself -------------------------------------------------------------
 */

/* What quantisation of the values of a block can lose: their range is within the block's. */
static double step_of(const float *x, size_t n, unsigned bits)
{
    float mn = 0.0f, mx = 0.0f, levels = (float)((1u << bits) - 1);
    for (size_t i = 0; i < n; i++) {
        mn = fminf(mn, x[i]);
        mx = fmaxf(mx, x[i]);
    }
    double top = fmax(-(double)mn, (double)mx),
           unit = (double)(mx / levels) - (double)(mn / levels);
    double ulp = top > 0 ? ldexp(1.0, ilogb(top) - 23) : 0;
    return unit / 2 + 2 * ulp + (double)FLT_MIN;
}

/* An element that is not sent is lost whole; rounding to nearest never loses more than that. */
static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    gw__topk_spec_t spec = spec_of(coder, GW_F32);
    size_t block = grain(coder);
    for (size_t i = 0; i < count; i += block) {
        size_t n = count - i < block ? count - i : block;
        double step =
            spec.values < GW__TOPK_Q8 ? 0 : step_of(x + i, n, spec.values == GW__TOPK_Q8 ? 8 : 4);
        for (size_t j = i; j < i + n; j++)
            out[j] = step > fabs((double)x[j]) ? nextafterf((float)step, INFINITY) : fabsf(x[j]);
    }
}

/* Byte 0: kind of values; byte 1: log2 of the block; bytes 4 to 7: ratio in 2^-32. How the sender
 * selected does not matter to the reader. */
static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[0] = (uint8_t)coder->value[VALUES];
    out[1] = (uint8_t)gw__log2((size_t)coder->value[BLOCK]);
    gw__store32(out + 4, gw__ratio_fixed(coder->value[RATIO]));
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    double ratio = gw__ratio_real(gw__load32(in + 4));
    if (in[0] >= VALUE_KINDS || in[1] < 6 || in[1] > 24 || in[2] || in[3] ||
        ratio < params[RATIO].min || ratio > params[RATIO].max)
        return GW_ERR_FRAME_HEADER;
    coder->value[VALUES] = in[0];
    coder->value[BLOCK] = (double)(1u << in[1]);
    coder->value[RATIO] = ratio;
    return GW_OK;
}

/* The warm-up of Deep Gradient Compression: 1/4, 1/16, ... while that is more than the ratio, each
 * for an equal part of the calls. */
static void at_call(const gw_coder_t *coder, uint64_t call, gw_coder_t *out)
{
    double warmup = coder->value[WARMUP], ratio = coder->value[RATIO], stage = 0.25;
    int stages = 0;
    *out = *coder;
    for (double part = 0.25; part > ratio; part /= 4)
        stages++;
    if ((double)call >= warmup || stages == 0)
        return;
    for (int i = (int)((double)call / warmup * stages); i > 0; i--)
        stage /= 4;
    out->value[RATIO] = stage;
}

static bool keeps_momentum(const gw_coder_t *coder)
{
    return coder->value[MOMENTUM] > 0;
}

static gw_status_t correct(const gw_coder_t *coder, const gw_encode_t *in, float *out)
{
    if (!gw__element_bytes(in->src_dtype))
        return GW_ERR_UNSUPPORTED;
    gw__widen(in->src_dtype, in->src, out, in->count);
    gw__kernels()->topk.correct(out, (float)coder->value[MOMENTUM], in->momentum, NULL, in->count);
    for (size_t i = 0; i < in->count; i++)
        if (isfinite(out[i]))
            out[i] = in->momentum[i];
    return GW_OK;
}

/* ---- On the device ------------------------------------------------------------------------------
 */

/* Exact selection, and values that are no buckets; the ratio stays what it is. */
static bool device_serves(const gw_coder_t *coder)
{
    return coder->value[VALUES] < GW__TOPK_Q8 && coder->value[SELECT] == 0.0 &&
           coder->value[MOMENTUM] == 0.0 && coder->value[WARMUP] == 0.0;
}

static gw_topk_layout_t layout_of(const gw_coder_t *coder, gw_dtype_t wire_dtype)
{
    gw__topk_spec_t spec = spec_of(coder, wire_dtype);
    gw_topk_values_t raw = wire_dtype == GW_F32   ? GW_TOPK_F32
                           : wire_dtype == GW_F16 ? GW_TOPK_F16
                                                  : GW_TOPK_BF16;
    return (gw_topk_layout_t){.log2_block = spec.log2_block,
                              .ratio = spec.ratio,
                              .values = spec.values == GW__TOPK_RAW ? raw : GW_TOPK_LIMITED};
}

/* An index and a value for each slot. */
static size_t device_scratch(const gw_coder_t *coder, size_t count)
{
    size_t block = grain(coder), blocks = (count + block - 1) / block;
    return blocks * gw__ratio_of(gw__ratio_fixed(coder->value[RATIO]), block) * 2 *
           sizeof(uint32_t);
}

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw_topk_layout_t layout = layout_of(coder, in->wire_dtype);
    return gw__cuda_topk.encode(queue, &layout, in->src, in->residual, in->count, dst,
                                queue->scratch, result);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    gw_topk_layout_t layout = layout_of(coder, in->wire_dtype);
    return (in->mode == GW_DECODE_ADD ? gw__cuda_topk.add : gw__cuda_topk.store)(
        queue, &layout, in->payload, in->count, in->dst, result);
}

const gw__device_codec_t gw__device_topk = {.family = &gw__codec_topk,
                                            .encode = device_encode,
                                            .decode = device_decode,
                                            .serves = device_serves,
                                            .scratch = device_scratch};

const gw_codec_t gw__codec_topk = {
    .abi = GW_CODEC_ABI,
    .id = 8,
    .family = "topk",
    .names = "topk topk+fp16 topk+q8 topk+q4",
    .summary = "the largest elements of every block with their indices",
    .flags = GW_CODEC_LOSSY | GW_CODEC_FIXED | GW_CODEC_FEEDBACK,
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
    .at_call = at_call,
    .keeps_momentum = keeps_momentum,
    .correct = correct,
};
