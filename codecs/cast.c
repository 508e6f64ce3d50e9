/* SPDX-License-Identifier: Apache-2.0 */
/* Codec cast (id 2): every element as an IEEE half or a bfloat16. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device_ops.h"
#include "floats.h"
#include "reduce.h"

enum { TYPE, FEEDBACK };
enum { GRAIN = 64 }; /* keeps chunks on cache lines */

static const gw_codec_param_t params[] = {
    [TYPE] = {"type", GW_PARAM_CHOICE, "fp16", 0, 0, "fp16|bf16",
              "fp16 has 11 bits of precision up to 65504, bf16 8 bits and the range of float32; "
              "the name sets it"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "on", 0, 1, NULL,
                  "error feedback: what was lost is added to the next call"},
    {.name = NULL},
};

static bool is_bf16(const gw_coder_t *coder)
{
    return coder->value[TYPE] != 0;
}

static void store_f16(const gw_float_spec_t *spec, const uint8_t *payload, size_t count, float *dst)
{
    gw__kernels()->cast.f16_to_f32(payload, dst, count);
}

static void store_bf16(const gw_float_spec_t *spec, const uint8_t *payload, size_t count,
                       float *dst)
{
    gw__kernels()->cast.bf16_to_f32(payload, dst, count);
}

static gw__floats_t floats_of(const gw_coder_t *coder)
{
    const gw_cast_kernels_t *cast = &gw__kernels()->cast;
    bool bf16 = is_bf16(coder);
    return (gw__floats_t){{bf16 ? GW_FLOAT_BF16 : GW_FLOAT_FP16, GRAIN},
                          {cast->encode, NULL, bf16 ? store_bf16 : store_f16, cast->add}};
}

static bool match(const char *name, gw_coder_t *coder)
{
    bool bf16 = !strcmp(name, "bf16");
    if (!bf16 && strcmp(name, "fp16"))
        return false;
    coder->value[TYPE] = bf16;
    return true;
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "%s", is_bf16(coder) ? "bf16" : "fp16");
}

static size_t grain(const gw_coder_t *coder)
{
    return GRAIN;
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    return 2 * count;
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

/* Half a unit in the last place, or the distance to the greatest number. */
static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    bool bf16 = is_bf16(coder);
    double unit = bf16 ? 0x1p-8 : 0x1p-11, least = bf16 ? 0x1p-134 : 0x1p-25;
    double greatest = bf16 ? 0x1.FEp127 : 65504.0;
    for (size_t i = 0; i < count; i++) {
        double magnitude = fabs((double)x[i]);
        out[i] = gw__floats_bound(fmax(magnitude * unit, magnitude - greatest), least);
    }
}

static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    gw__floats_put(is_bf16(coder), 0, out);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    unsigned format, block;
    if (gw__floats_get(in, &format, &block) || block)
        return GW_ERR_FRAME_HEADER;
    coder->value[TYPE] = format;
    return GW_OK;
}

/* ---- On the device: any payload is valid --------------------------------------------------------
 */

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw__floats_t f = floats_of(coder);
    return gw__cuda_cast.encode(queue, &f.spec, in->src, in->residual, in->count, dst, result);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    gw__floats_t f = floats_of(coder);
    if (in->mode == GW_DECODE_ADD)
        return gw__cuda_cast.add(queue, &f.spec, in->payload, in->count, in->dst);
    return (is_bf16(coder) ? gw__cuda_cast.bf16_to_f32
                           : gw__cuda_cast.f16_to_f32)(queue, in->payload, in->dst, in->count);
}

const gw__device_codec_t gw__device_cast = {
    .family = &gw__codec_cast, .encode = device_encode, .decode = device_decode};

const gw_codec_t gw__codec_cast = {
    .abi = GW_CODEC_ABI,
    .id = 2,
    .family = "cast",
    .names = "fp16 bf16",
    .summary = "IEEE half or bfloat16, to nearest even; what is too large becomes the greatest",
    .flags = GW_CODEC_LOSSY | GW_CODEC_FIXED | GW_CODEC_FEEDBACK,
    .params = params,
    .match = match,
    .name = put_name,
    .grain = grain,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .error_bound = error_bound,
    .put_params = put_params,
    .get_params = get_params,
    .reduce = gw__reduce_small,
};
