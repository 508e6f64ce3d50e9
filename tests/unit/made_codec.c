/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody outside the tree would write: the public header, one file, one table. */
#include "made_codec.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GROUP, FEEDBACK, GROUP_MAX = 1024, META = 4 };

static const gw_codec_param_t params[] = {
    [GROUP] = {"members", GW_PARAM_INT, "64", 32, GROUP_MAX, NULL, "elements with one scale"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "on", 0, 1, NULL, "error feedback"},
    {.name = NULL},
};

static bool match(const char *name, gw_coder_t *coder)
{
    return !strcmp(name, "made");
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "made");
}

static size_t grain(const gw_coder_t *coder)
{
    return (size_t)coder->value[GROUP];
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    return count + (count + grain(coder) - 1) / grain(coder) * META;
}

/* Another family's conversions are public: raw carries elements of any type. */
static void widen(gw_dtype_t dtype, const void *src, size_t count, float *dst)
{
    gw_coder_t raw = {.family = gw_codec_by_id(0)};
    gw_decode_t io = {.payload = src,
                      .length = count * gw_dtype_size(dtype),
                      .wire_dtype = dtype,
                      .count = count,
                      .dst = dst,
                      .dst_dtype = GW_F32};
    raw.family->decode(&raw, &io);
}

static void narrow(const float *src, size_t count, gw_dtype_t dtype, void *dst)
{
    gw_coder_t raw = {.family = gw_codec_by_id(0)};
    gw_encode_t in = {.src = src, .wire_dtype = dtype, .count = count};
    size_t length, bytes = count * gw_dtype_size(dtype);
    raw.family->encode(&raw, &in, dst, bytes, &length);
}

static bool served(gw_dtype_t dtype)
{
    return dtype == GW_F32 || dtype == GW_F16 || dtype == GW_BF16;
}

static float limited(float x)
{
    return fmaxf(-FLT_MAX, fminf(FLT_MAX, x));
}

static float value_of(float scale, uint8_t code)
{
    return limited(scale * (float)(int8_t)code);
}

/* p: what is to be sent. Returns whether all of it is finite; otherwise the scale is a NaN. */
static bool encode_group(const float *p, size_t n, uint8_t *dst)
{
    float most = 0.0f, scale = NAN;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        finite &= (bool)isfinite(p[i]);
        most = fmaxf(most, fabsf(p[i]));
    }
    if (finite)
        scale = most / 127.0f;
    memcpy(dst, &scale, META);
    for (size_t i = 0; i < n; i++) {
        float code = finite && scale > 0 ? nearbyintf(p[i] / scale) : 0.0f;
        dst[META + i] = (uint8_t)(int8_t)fmaxf(-127.0f, fminf(127.0f, code));
    }
    return finite;
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    float p[GROUP_MAX], x[GROUP_MAX];
    if (!served(in->src_dtype) || !served(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % grain(coder))
        return GW_ERR_INVALID;
    if (capacity < bound(coder, in->wire_dtype, in->count))
        return GW_ERR_NO_SPACE;
    in->poisoned = 0;
    for (size_t at = 0, n; at < in->count; at += n, dst += META + n) {
        n = in->count - at < grain(coder) ? in->count - at : grain(coder);
        widen(in->src_dtype, (const uint8_t *)in->src + at * gw_dtype_size(in->src_dtype), n, x);
        for (size_t i = 0; i < n; i++)
            p[i] = in->residual && isfinite(x[i]) ? limited(x[i] + in->residual[at + i]) : x[i];
        bool finite = encode_group(p, n, dst);
        in->poisoned += !finite;
        float scale;
        memcpy(&scale, dst, META);
        for (size_t i = 0; in->residual && finite && i < n; i++)
            in->residual[at + i] = limited(p[i] - value_of(scale, dst[META + i]));
    }
    *length = bound(coder, in->wire_dtype, in->count);
    return GW_OK;
}

static bool valid(const gw_coder_t *coder, const gw_decode_t *in)
{
    bool right = true;
    const uint8_t *at = in->payload;
    for (size_t i = 0; i < in->count; i += grain(coder), at += META + grain(coder)) {
        float scale;
        memcpy(&scale, at, META);
        right &= isnan(scale) || (scale >= 0 && scale <= FLT_MAX);
    }
    return right;
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    float y[GROUP_MAX];
    if (!served(in->dst_dtype) || !served(in->wire_dtype) ||
        (in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32))
        return GW_ERR_UNSUPPORTED;
    if (in->length != bound(coder, in->wire_dtype, in->count))
        return GW_ERR_FRAME_LENGTH;
    if (!valid(coder, in))
        return GW_ERR_FRAME_PAYLOAD;
    const uint8_t *src = in->payload;
    for (size_t at = 0, n; at < in->count; at += n, src += META + n) {
        float scale, *sum = (float *)in->dst + at;
        n = in->count - at < grain(coder) ? in->count - at : grain(coder);
        memcpy(&scale, src, META);
        for (size_t i = 0; i < n; i++)
            y[i] = isnan(scale) ? NAN : value_of(scale, src[META + i]);
        for (size_t i = 0; in->mode == GW_DECODE_ADD && i < n; i++)
            sum[i] += y[i];
        if (in->mode == GW_DECODE_STORE)
            narrow(y, n, in->dst_dtype, (uint8_t *)in->dst + at * gw_dtype_size(in->dst_dtype));
    }
    return GW_OK;
}

/* Half a step; what rounding the quotient and the product adds; what a step below FLT_MIN loses. */
static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    for (size_t at = 0, n; at < count; at += n) {
        float most = 0.0f;
        n = count - at < grain(coder) ? count - at : grain(coder);
        for (size_t i = at; i < at + n; i++)
            most = fmaxf(most, fabsf(x[i]));
        for (size_t i = at; i < at + n; i++)
            out[i] = most / 127.0f * 0.5001f + most * 0x1p-22f + FLT_MIN;
    }
}

static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[0] = (uint8_t)grain(coder);
    out[1] = (uint8_t)(grain(coder) >> 8);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    unsigned group = in[0] | (unsigned)in[1] << 8;
    if (group < 32 || group > GROUP_MAX || in[2] || in[3] || in[4] || in[5] || in[6] || in[7])
        return GW_ERR_FRAME_HEADER;
    coder->value[GROUP] = group;
    return GW_OK;
}

const gw_codec_t made_codec = {
    .abi = GW_CODEC_ABI,
    .id = 130,
    .family = "made",
    .names = "made",
    .summary = "eight bits an element and one scale a group, from outside the tree",
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
};
