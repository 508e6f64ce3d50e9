/* SPDX-License-Identifier: Apache-2.0 */
/* Codec natural (id 7): levels that are powers of two: natural compression, NUQSGD, TernGrad. */
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
 * natural: every number to a power of two (natural compression, Horvath et al., 2019). nuqsgd: to
 * 0, s 2^-k ... s/2, s of a bucket's scale s (Ramezani-Kebrya et al., 2019; s its L2 norm there,
 * its greatest magnitude in BytePS). ternary: to 0 and s (TernGrad, Wen et al., 2017).
 *
 * Rounded at random, each is unbiased and goes without feedback; to the nearest, it is biased and
 * keeps what was lost. So `round` follows `ef` unless it is set.
 */

enum { FORM, BITS, BUCKET, ROUND, NORM, CLIP, FEEDBACK, FORCE };
enum { NATURAL, NUQSGD, TERNARY, FORMS };
static const char *const names[FORMS] = {"natural", "nuqsgd", "ternary"};
enum { AUTO, STOCHASTIC, NEAREST };

static const gw_codec_param_t params[] = {
    [FORM] = {"form", GW_PARAM_CHOICE, "natural", 0, 0, "natural|nuqsgd|ternary",
              "which levels there are; the name sets it"},
    [BITS] = {"bits", GW_PARAM_INT, "4", 3, 5, NULL, "nuqsgd: bits per element, sign included"},
    [BUCKET] = {"bucket", GW_PARAM_INT, "512", 32, GW_NATURAL_BUCKET_MAX, NULL,
                "elements that share a scale (natural: that lie together); a multiple of 32"},
    [ROUND] = {"round", GW_PARAM_CHOICE, "auto", 0, 0, "auto|stochastic|nearest",
               "auto: stochastic, which is unbiased; nearest with ef=on"},
    [NORM] = {"norm", GW_PARAM_CHOICE, "l2", 0, 0, "l2|max", "nuqsgd: the scale of a bucket"},
    [CLIP] = {"clip", GW_PARAM_REAL, "2.5", 1, 64, NULL,
              "ternary: most of the scale, in roots of the mean square of a bucket"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "off", 0, 1, NULL,
                  "error feedback: what was lost is added to the next call"},
    [FORCE] = {"force", GW_PARAM_SWITCH, "0", 0, 1, NULL,
               "allow combinations that are known to do harm"},
    {.name = NULL},
};

static bool match(const char *name, gw_coder_t *coder)
{
    for (int form = 0; form < FORMS; form++)
        if (!strcmp(name, names[form])) {
            coder->value[FORM] = form;
            return true;
        }
    return false;
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "%s", names[(int)coder->value[FORM]]);
}

static bool is_stochastic(const gw_coder_t *coder)
{
    return coder->value[ROUND] == AUTO ? !coder->value[FEEDBACK]
                                       : coder->value[ROUND] == STOCHASTIC;
}

static gw_natural_spec_t spec_of(const gw_coder_t *coder)
{
    int form = (int)coder->value[FORM];
    gw_natural_rule_t rule = form == NATURAL             ? GW_NATURAL_POWERS
                             : form == TERNARY           ? GW_NATURAL_CLIP
                             : coder->value[NORM] != 0.0 ? GW_NATURAL_MOST
                                                         : GW_NATURAL_NORM;
    return (gw_natural_spec_t){.rule = rule,
                               .bits = form == TERNARY ? 2 : (unsigned)coder->value[BITS],
                               .bucket = (unsigned)coder->value[BUCKET],
                               .stochastic = is_stochastic(coder),
                               .clip = (float)coder->value[CLIP]};
}

/* ---- What is refused ----------------------------------------------------------------------------
 */

/* Parameters that another name has. */
static gw_status_t check_names(const gw_coder_t *coder, char *why, size_t size)
{
    static const struct {
        int param, form;
        double def;
    } owned[] = {{BITS, NUQSGD, 4}, {NORM, NUQSGD, 0}, {CLIP, TERNARY, 2.5}};
    int form = (int)coder->value[FORM];
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        if (form != owned[i].form && coder->value[owned[i].param] != owned[i].def) {
            snprintf(why, size, "%s is a parameter of %s, not of %s", params[owned[i].param].name,
                     names[owned[i].form], names[form]);
            return GW_ERR_BAD_SETTING;
        }
    return GW_OK;
}

static gw_status_t check_harm(const gw_coder_t *coder, char *why, size_t size)
{
    int form = (int)coder->value[FORM], bucket = (int)coder->value[BUCKET];
    bool random = is_stochastic(coder), feedback = coder->value[FEEDBACK] != 0;
    if (!random && !feedback)
        snprintf(why, size,
                 "round=nearest: without error feedback every call is off the same way; use "
                 "ef=on, round=stochastic, or force=1");
    else if (form == TERNARY && random && feedback)
        snprintf(why, size,
                 "round=stochastic: a call loses as much as there is, so that the residual grows "
                 "to many gradients; use ef=off, round=nearest, or force=1");
    else if (form == TERNARY && random && coder->value[CLIP] < 2)
        snprintf(why, size,
                 "clip=%g: so much is cut off that the sum is biased; use 2 or more, ef=on, or "
                 "force=1",
                 coder->value[CLIP]);
    else if (form == NUQSGD && coder->value[BITS] < 4 && !coder->value[NORM] && bucket > 64)
        snprintf(why, size,
                 "bits=3: the least level is a quarter of the norm of %d elements, which was "
                 "measured worse than sending zeros; use norm=max, bits=4, bucket=64, or force=1",
                 bucket);
    else
        return GW_OK;
    return GW_ERR_BAD_SETTING;
}

static gw_status_t check(const gw_coder_t *coder, char *why, size_t size)
{
    int bucket = (int)coder->value[BUCKET];
    if (bucket % GW_NATURAL_GROUP) {
        snprintf(why, size, "bucket=%d: a multiple of 32 is needed, such as %d", bucket,
                 (bucket + 16) / 32 * 32);
        return GW_ERR_BAD_SETTING;
    }
    gw_status_t status = check_names(coder, why, size);
    return status || coder->value[FORCE] ? status : check_harm(coder, why, size);
}

static size_t grain(const gw_coder_t *coder)
{
    return (size_t)coder->value[BUCKET];
}

/* ---- The kernels, as blockwise.h calls them -----------------------------------------------------
 */

static size_t bytes_of(const void *spec, size_t count)
{
    size_t bucket = ((const gw_natural_spec_t *)spec)->bucket, tail = count % bucket;
    return count / bucket * gw__natural_bytes(spec, bucket) +
           (tail ? gw__natural_bytes(spec, tail) : 0);
}

static size_t encode_blocks(const void *spec, const float *src, float *residual, size_t count,
                            uint64_t first, uint64_t key, uint8_t *dst)
{
    return gw__kernels()->natural.encode(spec, src, residual, count, first, key, dst);
}

static bool valid_blocks(const void *spec, const uint8_t *payload, size_t count)
{
    return gw__kernels()->natural.valid(spec, payload, count);
}

static void store_blocks(const void *spec, const uint8_t *payload, size_t count, uint64_t first,
                         float *dst)
{
    gw__kernels()->natural.store(spec, payload, count, dst);
}

static void add_blocks(const void *spec, const uint8_t *payload, size_t count, uint64_t first,
                       float *dst)
{
    gw__kernels()->natural.add(spec, payload, count, dst);
}

static gw_blockwise_t blocks_of(const gw_natural_spec_t *spec)
{
    return (gw_blockwise_t){spec,         spec->bucket, bytes_of,  encode_blocks,
                            valid_blocks, store_blocks, add_blocks};
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    gw_natural_spec_t spec = spec_of(coder);
    return bytes_of(&spec, count);
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    gw_natural_spec_t spec = spec_of(coder);
    gw_blockwise_t blocks = blocks_of(&spec);
    return gw__blockwise_encode(&blocks, in, dst, capacity, length);
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    gw_natural_spec_t spec = spec_of(coder);
    gw_blockwise_t blocks = blocks_of(&spec);
    return gw__blockwise_decode(&blocks, in);
}

/* ---- What the family says of itself -------------------------------------------------------------
 */

/* The scale of a bucket, in binary64. */
static double scale_of(const gw_natural_spec_t *spec, const float *x, size_t n)
{
    double squares = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        squares += (double)x[i] * (double)x[i];
        most = fmax(most, fabs((double)x[i]));
    }
    if (spec->rule == GW_NATURAL_NORM)
        return fmin(sqrt(squares), (double)FLT_MAX);
    if (spec->rule == GW_NATURAL_MOST)
        return most;
    return fmin(most, (double)spec->clip * sqrt(squares / (double)n));
}

/*
 * With s the greatest level and l the least but 0: at random a number goes to either neighbour,
 * which is off by at most its own magnitude above l and by l below it. To the nearest it is off by
 * a third of it at most (1.5 between 1 and 2), or half of l. Beyond s, by the distance to s.
 * The scale and the place among the levels are rounded in binary32: below 2^-15 of both.
 */
static float bound_of(const gw_natural_spec_t *spec, double x, double s, double l)
{
    bool powers = spec->rule == GW_NATURAL_POWERS;
    double slack = powers ? 0 : (x + s) * 0x1p-15 + (double)FLT_MIN;
    double off = spec->stochastic ? fmax(x, l) : fmax(fmax(x / 3, l / 2), x - s);
    return nextafterf((float)fmin(off + slack, (double)FLT_MAX), INFINITY);
}

static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    gw_natural_spec_t spec = spec_of(coder);
    double s = 0x1p127, l = 0x1p-126;
    for (size_t i = 0; i < count; i++) {
        if (i % spec.bucket == 0 && spec.rule != GW_NATURAL_POWERS) {
            s = scale_of(&spec, x + i, count - i < spec.bucket ? count - i : spec.bucket);
            l = ldexp(s, 2 - (1 << (spec.bits - 1)));
        }
        out[i] = bound_of(&spec, fabs((double)x[i]), s, l);
    }
}

/* Byte 0: bits (natural: 9); byte 1: form; bytes 2 and 3: bucket, as quant has it. How the sender
 * rounded, and what it took for a scale, does not matter to the reader. */
static unsigned wire_bits(const gw_coder_t *coder)
{
    return coder->value[FORM] == NATURAL ? 9 : spec_of(coder).bits;
}

static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    unsigned bucket = (unsigned)coder->value[BUCKET];
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[0] = (uint8_t)wire_bits(coder);
    out[1] = (uint8_t)coder->value[FORM];
    out[2] = (uint8_t)bucket;
    out[3] = (uint8_t)(bucket >> 8);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    unsigned bits = in[0], bucket = in[2] | (unsigned)in[3] << 8;
    bool rest = in[4] || in[5] || in[6] || in[7];
    if (rest || in[1] >= FORMS || bucket < 32 || bucket > GW_NATURAL_BUCKET_MAX || bucket % 32)
        return GW_ERR_FRAME_HEADER;
    coder->value[FORM] = in[1];
    coder->value[BUCKET] = bucket;
    if (in[1] == NUQSGD && bits >= 3 && bits <= 5)
        coder->value[BITS] = bits;
    return bits == wire_bits(coder) ? GW_OK : GW_ERR_FRAME_HEADER;
}

/* ---- On the device ------------------------------------------------------------------------------
 */

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw_natural_spec_t spec = spec_of(coder);
    return gw__cuda_natural.encode(queue, &spec, in->src, in->residual, in->count, in->first,
                                   in->key, dst, result);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    gw_natural_spec_t spec = spec_of(coder);
    return (in->mode == GW_DECODE_ADD ? gw__cuda_natural.add : gw__cuda_natural.store)(
        queue, &spec, in->payload, in->count, in->dst, result);
}

const gw__device_codec_t gw__device_natural = {
    .family = &gw__codec_natural, .encode = device_encode, .decode = device_decode};

const gw_codec_t gw__codec_natural = {
    .abi = GW_CODEC_ABI,
    .id = 7,
    .family = "natural",
    .names = "natural nuqsgd ternary",
    .summary = "powers of two: of anything (9 bits), of a bucket's scale (3 to 5 bits, or 2)",
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
