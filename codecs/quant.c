/* SPDX-License-Identifier: Apache-2.0 */
/* Codec quant (id 1): max-min quantisation to 1 to 8 bits in buckets. */
#include "codecs.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device_ops.h"
#include "kernels.h"

enum { BITS, BUCKET, ROUND, ZERO, FEEDBACK, FORCE };

static const gw_codec_param_t params[] = {
    [BITS] = {"bits", GW_PARAM_INT, "4", 1, 8, NULL, "bits per element; the name sets them"},
    [BUCKET] = {"bucket", GW_PARAM_INT, "512", 32, GW_QUANT_BUCKET_MAX, NULL,
                "elements that share a minimum and a unit; a multiple of 32"},
    [ROUND] = {"round", GW_PARAM_CHOICE, "nearest", 0, 0, "nearest|stochastic",
               "stochastic is unbiased and doubles the squared error"},
    [ZERO] = {"zero", GW_PARAM_SWITCH, "on", 0, 1, NULL,
              "shift the grid so that 0 stays exactly 0"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "on", 0, 1, NULL,
                  "error feedback: what was lost is added to the next call"},
    [FORCE] = {"force", GW_PARAM_SWITCH, "0", 0, 1, NULL,
               "allow combinations that are known to do harm"},
    {.name = NULL},
};

static gw_quant_spec_t spec_of(const gw_coder_t *coder)
{
    return (gw_quant_spec_t){.bits = (unsigned)coder->value[BITS],
                             .bucket = (unsigned)coder->value[BUCKET],
                             .stochastic = coder->value[ROUND] != 0,
                             .zero = coder->value[ZERO] != 0};
}

static bool match(const char *name, gw_coder_t *coder)
{
    if (name[0] != 'q' || name[1] < '1' || name[1] > '8' || name[2])
        return false;
    coder->value[BITS] = name[1] - '0';
    return true;
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "q%d", (int)coder->value[BITS]);
}

static gw_status_t check(const gw_coder_t *coder, char *why, size_t size)
{
    int bits = (int)coder->value[BITS], bucket = (int)coder->value[BUCKET];
    if (bucket % 32) {
        snprintf(why, size, "bucket=%d: a multiple of 32 is needed, such as %d", bucket,
                 (bucket + 16) / 32 * 32);
        return GW_ERR_BAD_SETTING;
    }
    if (coder->value[FORCE])
        return GW_OK;
    if (bits == 1 && coder->value[ROUND] && coder->value[FEEDBACK]) {
        snprintf(why, size,
                 "round=stochastic: the residual of q1 was seen to grow without end; use nearest, "
                 "2 bits or more, or force=1");
        return GW_ERR_BAD_SETTING;
    }
    if (bits <= 2 && !coder->value[FEEDBACK]) {
        snprintf(why, size,
                 "ef=off: q%d without error feedback was measured worse than sending zeros; use "
                 "ef=on, 3 bits or more, or force=1",
                 bits);
        return GW_ERR_BAD_SETTING;
    }
    return GW_OK;
}

static size_t grain(const gw_coder_t *coder)
{
    return (size_t)coder->value[BUCKET];
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    unsigned bits = (unsigned)coder->value[BITS];
    size_t bucket = (size_t)coder->value[BUCKET], tail = count % bucket;
    return count / bucket * gw__quant_bytes(bits, bucket) +
           (tail ? gw__quant_bytes(bits, tail) : 0);
}

/* The 16-bit types are widened in blocks of whole buckets, so that nothing is allocated. */
static size_t encode_half(const gw_quant_spec_t *spec, const gw_encode_t *in, uint8_t *dst)
{
    float block[GW_BLOCK];
    size_t step = GW_BLOCK / spec->bucket * spec->bucket, poisoned = 0;
    for (size_t i = 0; i < in->count; i += step) {
        size_t n = in->count - i < step ? in->count - i : step;
        gw__widen(in->src_dtype, (const uint8_t *)in->src + 2 * i, block, n);
        poisoned += gw__kernels()->quant.encode(
            spec, block, in->residual ? in->residual + i : NULL, n, in->first + i, in->key,
            dst + i / spec->bucket * gw__quant_bytes(spec->bits, spec->bucket));
    }
    return poisoned;
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    gw_quant_spec_t spec = spec_of(coder);
    if (!gw__element_bytes(in->src_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % spec.bucket)
        return GW_ERR_INVALID;
    size_t bytes = bound(coder, in->wire_dtype, in->count);
    if (capacity < bytes)
        return GW_ERR_NO_SPACE;
    if (in->src_dtype == GW_F32)
        in->poisoned = gw__kernels()->quant.encode(&spec, in->src, in->residual, in->count,
                                                   in->first, in->key, dst);
    else
        in->poisoned = encode_half(&spec, in, dst);
    *length = bytes;
    return GW_OK;
}

static void decode_half(const gw_quant_spec_t *spec, const gw_decode_t *in)
{
    float block[GW_BLOCK];
    size_t step = GW_BLOCK / spec->bucket * spec->bucket;
    for (size_t i = 0; i < in->count; i += step) {
        size_t n = in->count - i < step ? in->count - i : step;
        const uint8_t *payload =
            in->payload + i / spec->bucket * gw__quant_bytes(spec->bits, spec->bucket);
        gw__kernels()->quant.store(spec, payload, n, block);
        gw__narrow(in->dst_dtype, block, (uint8_t *)in->dst + 2 * i, n);
    }
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    gw_quant_spec_t spec = spec_of(coder);
    const gw_quant_kernels_t *quant = &gw__kernels()->quant;
    if (!gw__element_bytes(in->dst_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (in->length != bound(coder, in->wire_dtype, in->count))
        return GW_ERR_FRAME_LENGTH;
    if (in->count == 0) /* dst may be NULL */
        return GW_OK;
    if (!quant->valid(&spec, in->payload, in->count))
        return GW_ERR_FRAME_PAYLOAD;
    if (in->mode == GW_DECODE_ADD)
        quant->add(&spec, in->payload, in->count, in->dst);
    else if (in->dst_dtype == GW_F32)
        quant->store(&spec, in->payload, in->count, in->dst);
    else
        decode_half(&spec, in);
    return GW_OK;
}

/* ---- Sum and encode -----------------------------------------------------------------------------
 */

/* Whether the arguments can be served. What is in the payloads is checked by the kernel, bucket by
 * bucket: a walk of its own over the metadata costs a fifth of the whole. */
static gw_status_t check_reduce(const gw_quant_spec_t *spec, gw_reduce_t *in, size_t bytes)
{
    if (!gw__element_bytes(in->own_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % spec->bucket || in->own_at > in->payloads)
        return GW_ERR_INVALID;
    for (size_t i = 0; i < in->payloads; i++) {
        in->refused = i;
        if (in->length[i] < in->skip || in->length[i] - in->skip != bytes)
            return GW_ERR_FRAME_LENGTH;
    }
    return GW_OK;
}

static size_t reduce_half(const gw_quant_spec_t *spec, gw_reduce_t *in, gw_quant_sum_t sum,
                          uint8_t *dst)
{
    float block[GW_BLOCK];
    size_t step = GW_BLOCK / spec->bucket * spec->bucket, poisoned = 0;
    sum.own = block;
    in->refused = in->payloads;
    for (size_t i = 0; i < in->count && in->refused == in->payloads; i += step) {
        size_t n = in->count - i < step ? in->count - i : step;
        size_t at = i / spec->bucket * gw__quant_bytes(spec->bits, spec->bucket);
        gw__widen(in->own_dtype, (const uint8_t *)in->own + 2 * i, block, n);
        sum.skip = in->skip + at;
        poisoned += gw__kernels()->quant.reduce(spec, &sum, in->residual ? in->residual + i : NULL,
                                                n, in->first + i, in->key, dst + at, &in->refused);
    }
    return poisoned;
}

static gw_status_t reduce(const gw_coder_t *coder, gw_reduce_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    gw_quant_spec_t spec = spec_of(coder);
    size_t bytes = bound(coder, in->wire_dtype, in->count);
    gw_status_t status = check_reduce(&spec, in, bytes);
    if (status)
        return status;
    if (capacity < bytes)
        return GW_ERR_NO_SPACE;
    gw_quant_sum_t sum = {in->own, in->own_at, in->payload, in->payloads, in->skip, in->scale};
    if (in->own_dtype == GW_F32)
        in->poisoned = gw__kernels()->quant.reduce(&spec, &sum, in->residual, in->count, in->first,
                                                   in->key, dst, &in->refused);
    else
        in->poisoned = reduce_half(&spec, in, sum, dst);
    if (in->refused < in->payloads)
        return GW_ERR_FRAME_PAYLOAD;
    *length = bytes;
    return GW_OK;
}

/* ---- What the family says of itself -------------------------------------------------------------
 */

/* Distance of binary32 numbers at x > 0. */
static double ulp(double x)
{
    return x > 0 ? ldexp(1.0, ilogb(x) - 23) : 0;
}

/* Half a unit, or a whole one when rounding is random (to 1/65536 of a unit), and what the
 * decoder's binary32 arithmetic rounds away. Never rounded down itself. */
static float bucket_bound(const gw_quant_spec_t *spec, const float *x, size_t n)
{
    float mn = x[0], mx = x[0];
    for (size_t i = 1; i < n; i++) {
        mn = fminf(mn, x[i]);
        mx = fmaxf(mx, x[i]);
    }
    float levels = (float)((1u << spec->bits) - 1);
    double unit = (double)(mx / levels) - (double)(mn / levels);
    unit += ldexp(unit, (int)spec->bits - 23); /* gw__quant_short_unit() */
    double step = spec->stochastic ? unit * (1 + 0x1p-16) : unit / 2;
    double limit = step + 2 * ulp(fmax(fabs((double)mn), fabs((double)mx))) + (double)FLT_MIN;
    return nextafterf((float)limit, INFINITY);
}

static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    gw_quant_spec_t spec = spec_of(coder);
    for (size_t i = 0; i < count; i += spec.bucket) {
        size_t n = count - i < spec.bucket ? count - i : spec.bucket;
        float limit = bucket_bound(&spec, x + i, n);
        for (size_t j = 0; j < n; j++)
            out[i + j] = limit;
    }
}

/* Byte 0: bits; bytes 2 and 3: bucket. How the sender rounded does not matter to the reader. */
static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    unsigned bucket = (unsigned)coder->value[BUCKET];
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[0] = (uint8_t)coder->value[BITS];
    out[2] = (uint8_t)bucket;
    out[3] = (uint8_t)(bucket >> 8);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    unsigned bits = in[0], bucket = in[2] | (unsigned)in[3] << 8;
    bool rest = in[1] || in[4] || in[5] || in[6] || in[7];
    if (rest || bits < 1 || bits > 8 || bucket < 32 || bucket > GW_QUANT_BUCKET_MAX || bucket % 32)
        return GW_ERR_FRAME_HEADER;
    coder->value[BITS] = bits;
    coder->value[BUCKET] = bucket;
    return GW_OK;
}

/* ---- On the device ------------------------------------------------------------------------------
 */

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw_quant_spec_t spec = spec_of(coder);
    return gw__cuda_quant.encode(queue, &spec, in->src, in->residual, in->count, in->first, in->key,
                                 dst, result);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    gw_quant_spec_t spec = spec_of(coder);
    return (in->mode == GW_DECODE_ADD ? gw__cuda_quant.add : gw__cuda_quant.store)(
        queue, &spec, in->payload, in->count, in->dst, result);
}

static gw_status_t device_reduce(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_reduce_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw_quant_spec_t spec = spec_of(coder);
    gw_quant_sum_t sum = {in->own, in->own_at, in->payload, in->payloads, in->skip, in->scale};
    return gw__cuda_quant.reduce(queue, &spec, &sum, in->residual, in->count, in->first, in->key,
                                 dst, result);
}

const gw__device_codec_t gw__device_quant = {.family = &gw__codec_quant,
                                             .encode = device_encode,
                                             .decode = device_decode,
                                             .reduce = device_reduce};

const gw_codec_t gw__codec_quant = {
    .abi = GW_CODEC_ABI,
    .id = 1,
    .family = "quant",
    .names = "q1 q2 q3 q4 q5 q6 q7 q8",
    .summary = "max-min quantisation in buckets, 1 to 8 bits an element",
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
    .reduce = reduce,
};
