/* SPDX-License-Identifier: Apache-2.0 */
/* Codec fp4 (id 4): E2M1 with one scale for 32 (MXFP4) or 16 elements (NVFP4). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device_ops.h"
#include "floats.h"
#include "reduce.h"

enum { TYPE, GROUP, FEEDBACK };
enum { STEP = 512 }; /* of the group: 16 blocks of 32 elements, a vector of scales */

static const gw_codec_param_t params[] = {
    [TYPE] = {"type", GW_PARAM_CHOICE, "mx", 0, 0, "mx|nv",
              "mx: a power of two for 32 elements; nv: E4M3 for 16 and float32 for a group; the "
              "name sets it"},
    [GROUP] = {"group", GW_PARAM_INT, "1024", STEP, GW_FLOAT_BLOCK_MAX, NULL,
               "elements whose scales lie together, and that share nv's float32; a multiple of "
               "512"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "on", 0, 1, NULL,
                  "error feedback: what was lost is added to the next call"},
    {.name = NULL},
};

static bool is_nv(const gw_coder_t *coder)
{
    return coder->value[TYPE] != 0;
}

static gw__floats_t floats_of(const gw_coder_t *coder)
{
    return (gw__floats_t){
        {is_nv(coder) ? GW_FLOAT_NVFP4 : GW_FLOAT_MXFP4, (unsigned)coder->value[GROUP]},
        gw__kernels()->fp4};
}

static bool match(const char *name, gw_coder_t *coder)
{
    bool nv = !strcmp(name, "nvfp4");
    if (!nv && strcmp(name, "mxfp4"))
        return false;
    coder->value[TYPE] = nv;
    return true;
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "%s", is_nv(coder) ? "nvfp4" : "mxfp4");
}

static gw_status_t check(const gw_coder_t *coder, char *why, size_t size)
{
    return gw__floats_multiple("group", (int)coder->value[GROUP], STEP, why, size);
}

static size_t grain(const gw_coder_t *coder)
{
    return (size_t)coder->value[GROUP];
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

/* ---- Bounds -------------------------------------------------------------------------------------
 */

/* A quarter of the scale below 1, a fifth of itself at a tie above it; up to a quarter where a
 * value above 6 saturates. */
static void bound_mx(const float *x, size_t n, float *out)
{
    float most = gw__floats_most(x, n);
    double scale = most > 0 ? fmax(ldexp(1.0, ilogbf(most) - 2), 0x1p-127) : 0x1p-127;
    for (size_t j = 0; j < n; j++)
        out[j] = gw__floats_bound(fabs((double)x[j]) / 4, scale / 4);
}

/* The E4M3 scale is up to 1/17 of itself, or half of its least step (2^-10), away from what it is
 * for: a scale that is too low saturates. */
static void bound_nv(const float *x, size_t n, double group, float *out)
{
    double scale = gw__floats_most(x, n) / 6.0;
    scale = fmax(scale * 18 / 17, scale + group * 0x1p-10);
    double least = fmax(scale / 4, group * 6 * 0x1p-10);
    for (size_t j = 0; j < n; j++)
        out[j] = gw__floats_bound(fabs((double)x[j]) / 5, least);
}

static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    size_t group = grain(coder), block = is_nv(coder) ? GW_NVFP4_BLOCK : GW_MXFP4_BLOCK;
    for (size_t i = 0; i < count; i += group) {
        size_t end = count - i < group ? count : i + group;
        double scale = fmax(gw__floats_most(x + i, end - i) / 2688.0, 0x1p-116);
        for (size_t j = i; j < end; j += block) {
            size_t n = end - j < block ? end - j : block;
            if (is_nv(coder))
                bound_nv(x + j, n, scale, out + j);
            else
                bound_mx(x + j, n, out + j);
        }
    }
}

static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    gw__floats_put(is_nv(coder), (unsigned)coder->value[GROUP], out);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    unsigned format, group;
    if (gw__floats_get(in, &format, &group) || group < STEP || group > GW_FLOAT_BLOCK_MAX ||
        group % STEP)
        return GW_ERR_FRAME_HEADER;
    coder->value[TYPE] = format;
    coder->value[GROUP] = group;
    return GW_OK;
}

/* ---- On the device ------------------------------------------------------------------------------
 */

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw__floats_t f = floats_of(coder);
    return gw__cuda_fp4.encode(queue, &f.spec, in->src, in->residual, in->count, dst, result);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    gw__floats_t f = floats_of(coder);
    return (in->mode == GW_DECODE_ADD ? gw__cuda_fp4.add : gw__cuda_fp4.store)(
        queue, &f.spec, in->payload, in->count, in->dst, result);
}

const gw__device_codec_t gw__device_fp4 = {
    .family = &gw__codec_fp4, .encode = device_encode, .decode = device_decode};

const gw_codec_t gw__codec_fp4 = {
    .abi = GW_CODEC_ABI,
    .id = 4,
    .family = "fp4",
    .names = "mxfp4 nvfp4",
    .summary = "4-bit floats with a scale for 32 (OCP MXFP4) or 16 elements (NVFP4)",
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
