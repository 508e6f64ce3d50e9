/* SPDX-License-Identifier: Apache-2.0 */
/* Codec fp8 (id 3): E4M3 or E5M2 with one scale a block. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device_ops.h"
#include "floats.h"
#include "reduce.h"

enum { TYPE, BLOCK, FEEDBACK };

static const gw_codec_param_t params[] = {
    [TYPE] = {"type", GW_PARAM_CHOICE, "e4m3", 0, 0, "e4m3|e5m2",
              "bits of exponent and mantissa; the name sets it"},
    [BLOCK] = {"block", GW_PARAM_INT, "128", 32, GW_FLOAT_BLOCK_MAX, NULL,
               "elements that share a scale; a multiple of 32"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "on", 0, 1, NULL,
                  "error feedback: what was lost is added to the next call"},
    {.name = NULL},
};

static bool is_e5m2(const gw_coder_t *coder)
{
    return coder->value[TYPE] != 0;
}

static gw__floats_t floats_of(const gw_coder_t *coder)
{
    return (gw__floats_t){
        {is_e5m2(coder) ? GW_FLOAT_E5M2 : GW_FLOAT_E4M3, (unsigned)coder->value[BLOCK]},
        gw__kernels()->fp8};
}

static bool match(const char *name, gw_coder_t *coder)
{
    bool e5m2 = !strcmp(name, "fp8e5m2");
    if (!e5m2 && strcmp(name, "fp8e4m3"))
        return false;
    coder->value[TYPE] = e5m2;
    return true;
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "%s", is_e5m2(coder) ? "fp8e5m2" : "fp8e4m3");
}

static gw_status_t check(const gw_coder_t *coder, char *why, size_t size)
{
    return gw__floats_multiple("block", (int)coder->value[BLOCK], 32, why, size);
}

static size_t grain(const gw_coder_t *coder)
{
    return (size_t)coder->value[BLOCK];
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    gw__floats_t f = floats_of(coder);
    return gw__floats_bytes(&f.spec, count);
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    gw__floats_t f = floats_of(coder);
    gw_blockwise_t blocks = gw__floats_blocks(&f);
    return gw__blockwise_encode(&blocks, in, dst, capacity, length);
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    gw__floats_t f = floats_of(coder);
    gw_blockwise_t blocks = gw__floats_blocks(&f);
    return gw__blockwise_decode(&blocks, in);
}

/* A tie between two numbers of m bits of mantissa is 1 / (2^(m+1) + 1) of itself away from them;
 * below the least normal number half of the least step counts, which is a part of the scale. The
 * scale is at most 2^-7 of itself above greatest / greatest code. */
static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    size_t block = grain(coder);
    double top = is_e5m2(coder) ? 57344.0 : 448.0, least = is_e5m2(coder) ? 0x1p-17 : 0x1p-10;
    double tie = is_e5m2(coder) ? 1.0 / 9 : 1.0 / 17;
    for (size_t i = 0; i < count; i += block) {
        size_t n = count - i < block ? count - i : block;
        double scale = fmax(gw__floats_most(x + i, n) / top * (1 + 0x1p-7), FLT_MIN);
        for (size_t j = i; j < i + n; j++)
            out[j] = gw__floats_bound(fabs((double)x[j]) * tie, scale * least);
    }
}

static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    gw__floats_put(is_e5m2(coder), (unsigned)coder->value[BLOCK], out);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    unsigned format, block;
    if (gw__floats_get(in, &format, &block) || block < 32 || block > GW_FLOAT_BLOCK_MAX ||
        block % 32)
        return GW_ERR_FRAME_HEADER;
    coder->value[TYPE] = format;
    coder->value[BLOCK] = block;
    return GW_OK;
}

/* ---- On the device ------------------------------------------------------------------------------
 */

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw__floats_t f = floats_of(coder);
    return gw__cuda_fp8.encode(queue, &f.spec, in->src, in->residual, in->count, dst, result);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    gw__floats_t f = floats_of(coder);
    return (in->mode == GW_DECODE_ADD ? gw__cuda_fp8.add : gw__cuda_fp8.store)(
        queue, &f.spec, in->payload, in->count, in->dst, result);
}

const gw__device_codec_t gw__device_fp8 = {
    .family = &gw__codec_fp8, .encode = device_encode, .decode = device_decode};

const gw_codec_t gw__codec_fp8 = {
    .abi = GW_CODEC_ABI,
    .id = 3,
    .family = "fp8",
    .names = "fp8e4m3 fp8e5m2",
    .summary = "8-bit floats (OCP) with one scale a block",
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
    .reduce = gw__reduce_small,
};
