/* SPDX-License-Identifier: Apache-2.0 */
/* Codec sign (id 5): one bit an element, a scale per bucket and a mask of zeros. */
#include "codecs.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "blockwise.h"
#include "device_ops.h"
#include "kernels.h"
#include "reduce.h"

/*
 * The compressor of EF-SignSGD (Karimireddy et al., 2019) with a scale per bucket: x becomes
 * mean|x| * sign(x). Groups of 32 elements that are all zero are marked in a mask and stay zero, so
 * that rows which no one touched do not move.
 */

enum { BUCKET, FEEDBACK, FORCE };

static const gw_codec_param_t params[] = {
    [BUCKET] = {"bucket", GW_PARAM_INT, "512", 32, GW_SIGN_BUCKET_MAX, NULL,
                "elements that share a scale; a multiple of 32"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "on", 0, 1, NULL,
                  "error feedback: what was lost is added to the next call"},
    [FORCE] = {"force", GW_PARAM_SWITCH, "0", 0, 1, NULL,
               "allow combinations that are known to do harm"},
    {.name = NULL},
};

static bool match(const char *name, gw_coder_t *coder)
{
    return !strcmp(name, "sign");
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "sign");
}

static gw_status_t check(const gw_coder_t *coder, char *why, size_t size)
{
    int bucket = (int)coder->value[BUCKET];
    if (bucket % GW_SIGN_GROUP) {
        snprintf(why, size, "bucket=%d: a multiple of 32 is needed, such as %d", bucket,
                 (bucket + 16) / 32 * 32);
        return GW_ERR_BAD_SETTING;
    }
    if (!coder->value[FEEDBACK] && !coder->value[FORCE]) {
        snprintf(why, size,
                 "ef=off: signs without error feedback do not converge; use ef=on, another codec, "
                 "or force=1");
        return GW_ERR_BAD_SETTING;
    }
    return GW_OK;
}

static size_t grain(const gw_coder_t *coder)
{
    return (size_t)coder->value[BUCKET];
}

/* ---- The kernels, as blockwise.h calls them -----------------------------------------------------
 */

static size_t bytes_of(const void *spec, size_t count)
{
    size_t bucket = ((const gw_sign_spec_t *)spec)->bucket, tail = count % bucket;
    return count / bucket * gw__sign_bytes(bucket) + (tail ? gw__sign_bytes(tail) : 0);
}

static size_t encode_blocks(const void *spec, const float *src, float *residual, size_t count,
                            uint64_t first, uint64_t key, uint8_t *dst)
{
    return gw__kernels()->sign.encode(spec, src, residual, count, dst);
}

static bool valid_blocks(const void *spec, const uint8_t *payload, size_t count)
{
    return gw__kernels()->sign.valid(spec, payload, count);
}

static void store_blocks(const void *spec, const uint8_t *payload, size_t count, uint64_t first,
                         float *dst)
{
    gw__kernels()->sign.store(spec, payload, count, dst);
}

static void add_blocks(const void *spec, const uint8_t *payload, size_t count, uint64_t first,
                       float *dst)
{
    gw__kernels()->sign.add(spec, payload, count, dst);
}

static gw_sign_spec_t spec_of(const gw_coder_t *coder)
{
    return (gw_sign_spec_t){(unsigned)coder->value[BUCKET]};
}

static gw_blockwise_t blocks_of(const gw_sign_spec_t *spec)
{
    return (gw_blockwise_t){spec,         spec->bucket, bytes_of,  encode_blocks,
                            valid_blocks, store_blocks, add_blocks};
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    gw_sign_spec_t spec = spec_of(coder);
    return bytes_of(&spec, count);
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    gw_sign_spec_t spec = spec_of(coder);
    gw_blockwise_t blocks = blocks_of(&spec);
    return gw__blockwise_encode(&blocks, in, dst, capacity, length);
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    gw_sign_spec_t spec = spec_of(coder);
    gw_blockwise_t blocks = blocks_of(&spec);
    return gw__blockwise_decode(&blocks, in);
}

/* ---- What the family says of itself -------------------------------------------------------------
 */

static bool is_zero(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != 0.0f)
            return false;
    return true;
}

/* Elements of the group at i. */
static size_t group_at(size_t i, size_t n)
{
    return n - i < GW_SIGN_GROUP ? n - i : GW_SIGN_GROUP;
}

/* The mean of |x| over groups that hold anything but zeros, in binary64. */
static double mean_of(const float *x, size_t n)
{
    double sum = 0, touched = 0;
    for (size_t i = 0; i < n; i += GW_SIGN_GROUP) {
        size_t count = group_at(i, n);
        if (is_zero(x + i, count))
            continue;
        touched += (double)count;
        for (size_t j = 0; j < count; j++)
            sum += fabs((double)x[i + j]);
    }
    return touched > 0 ? sum / touched : 0;
}

/* An element is off by the distance of its magnitude to the mean, and by what binary32 rounds in a
 * sum of up to 4096 (128 additions a lane, then the lanes, a division): below 2^-16 of the mean. */
static void bucket_bound(const float *x, size_t n, float *out)
{
    double mean = mean_of(x, n), slack = mean * 0x1p-16 + (double)FLT_MIN;
    for (size_t i = 0; i < n; i += GW_SIGN_GROUP) {
        size_t count = group_at(i, n);
        bool zero = is_zero(x + i, count);
        for (size_t j = i; j < i + count; j++)
            out[j] = zero ? 0.0f
                          : nextafterf((float)(fabs(fabs((double)x[j]) - mean) + slack), INFINITY);
    }
}

static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    size_t bucket = grain(coder);
    for (size_t i = 0; i < count; i += bucket)
        bucket_bound(x + i, count - i < bucket ? count - i : bucket, out + i);
}

/* Bytes 2 and 3: bucket, as quant has it. */
static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    unsigned bucket = (unsigned)coder->value[BUCKET];
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[2] = (uint8_t)bucket;
    out[3] = (uint8_t)(bucket >> 8);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    unsigned bucket = in[2] | (unsigned)in[3] << 8;
    bool rest = in[0] || in[1] || in[4] || in[5] || in[6] || in[7];
    if (rest || bucket < 32 || bucket > GW_SIGN_BUCKET_MAX || bucket % 32)
        return GW_ERR_FRAME_HEADER;
    coder->value[BUCKET] = bucket;
    return GW_OK;
}

/* ---- On the device ------------------------------------------------------------------------------
 */

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw_sign_spec_t spec = spec_of(coder);
    return gw__cuda_sign.encode(queue, &spec, in->src, in->residual, in->count, dst, result);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    gw_sign_spec_t spec = spec_of(coder);
    return (in->mode == GW_DECODE_ADD ? gw__cuda_sign.add : gw__cuda_sign.store)(
        queue, &spec, in->payload, in->count, in->dst, result);
}

const gw__device_codec_t gw__device_sign = {
    .family = &gw__codec_sign, .encode = device_encode, .decode = device_decode};

const gw_codec_t gw__codec_sign = {
    .abi = GW_CODEC_ABI,
    .id = 5,
    .family = "sign",
    .names = "sign",
    .summary = "one bit an element, a scale per bucket; groups of zeros stay zero",
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
