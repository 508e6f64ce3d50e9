/* SPDX-License-Identifier: Apache-2.0 */
/* Codec rotate (id 6): blocks rotated by a random Hadamard transform, at Lloyd-Max levels. */
#include "codecs.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "blockwise.h"
#include "device_ops.h"
#include "kernels.h"
#include "reduce.h"
#include "rotate_block.h"

/*
 * DRIVE (Vargaftik et al., 2021; one bit) and EDEN (2022; any width): see rotate_block.h. Each
 * payload is rotated back before it is added, so that nothing but the seed is shared.
 */

enum { BITS, BLOCK, SCALE, SEED, FEEDBACK, FORCE };
enum { SEED_MAX = 999999999 }; /* a specification prints nine digits */

static const gw_codec_param_t params[] = {
    [BITS] = {"bits", GW_PARAM_INT, "4", 1, 8, NULL, "bits per element; the name sets them"},
    [BLOCK] = {"block", GW_PARAM_INT, "512", GW_ROTATE_BLOCK_MIN, GW_ROTATE_BLOCK_MAX, NULL,
               "elements that are rotated together; a power of two"},
    [SCALE] = {"scale", GW_PARAM_CHOICE, "mse", 0, 0, "mse|unbiased",
               "of least squared error, or unbiased over the signs (EDEN)"},
    [SEED] = {"seed", GW_PARAM_INT, "0", 0, SEED_MAX, NULL,
              "of the signs; must be the same on all ranks"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "on", 0, 1, NULL,
                  "error feedback: what was lost is added to the next call"},
    [FORCE] = {"force", GW_PARAM_SWITCH, "0", 0, 1, NULL,
               "allow combinations that are known to do harm"},
    {.name = NULL},
};

static bool match(const char *name, gw_coder_t *coder)
{
    if (name[0] != 'q' || name[1] < '1' || name[1] > '8' || name[2] != 'r' || name[3])
        return false;
    coder->value[BITS] = name[1] - '0';
    return true;
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "q%dr", (int)coder->value[BITS]);
}

static bool is_block(unsigned block)
{
    return block >= GW_ROTATE_BLOCK_MIN && block <= GW_ROTATE_BLOCK_MAX && !(block & (block - 1));
}

static gw_status_t check(const gw_coder_t *coder, char *why, size_t size)
{
    unsigned bits = (unsigned)coder->value[BITS], block = (unsigned)coder->value[BLOCK];
    if (!is_block(block)) {
        snprintf(why, size, "block=%u: a power of two is needed, such as %zu", block,
                 gw__rotate_padded(block) / 2);
        return GW_ERR_BAD_SETTING;
    }
    if (coder->value[FORCE] || coder->value[FEEDBACK] || coder->value[SCALE] || bits > 2)
        return GW_OK;
    snprintf(why, size,
             "ef=off: q%ur shortens every gradient by %s without error feedback; use "
             "scale=unbiased, ef=on, 3 bits or more, or force=1",
             bits, bits == 1 ? "a third" : "an eighth");
    return GW_ERR_BAD_SETTING;
}

static size_t grain(const gw_coder_t *coder)
{
    return (size_t)coder->value[BLOCK];
}

/* ---- The kernels, as blockwise.h calls them -----------------------------------------------------
 */

static size_t bytes_of(const void *spec, size_t count)
{
    const gw_rotate_spec_t *s = spec;
    size_t tail = count % s->block;
    return count / s->block * gw__rotate_bytes(s->bits, s->block) +
           (tail ? gw__rotate_bytes(s->bits, tail) : 0);
}

static size_t encode_blocks(const void *spec, const float *src, float *residual, size_t count,
                            uint64_t first, uint64_t key, uint8_t *dst)
{
    return gw__kernels()->rotate.encode(spec, src, residual, count, dst);
}

static bool valid_blocks(const void *spec, const uint8_t *payload, size_t count)
{
    return gw__kernels()->rotate.valid(spec, payload, count);
}

static void store_blocks(const void *spec, const uint8_t *payload, size_t count, uint64_t first,
                         float *dst)
{
    gw__kernels()->rotate.store(spec, payload, count, dst);
}

static void add_blocks(const void *spec, const uint8_t *payload, size_t count, uint64_t first,
                       float *dst)
{
    gw__kernels()->rotate.add(spec, payload, count, dst);
}

static gw_rotate_spec_t spec_of(const gw_coder_t *coder)
{
    return (gw_rotate_spec_t){.bits = (unsigned)coder->value[BITS],
                              .block = (unsigned)coder->value[BLOCK],
                              .seed = (uint32_t)coder->value[SEED],
                              .unbiased = coder->value[SCALE] != 0};
}

static gw_blockwise_t blocks_of(const gw_rotate_spec_t *spec)
{
    return (gw_blockwise_t){spec,         spec->block,  bytes_of,  encode_blocks,
                            valid_blocks, store_blocks, add_blocks};
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    gw_rotate_spec_t spec = spec_of(coder);
    return bytes_of(&spec, count);
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    gw_rotate_spec_t spec = spec_of(coder);
    gw_blockwise_t blocks = blocks_of(&spec);
    return gw__blockwise_encode(&blocks, in, dst, capacity, length);
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    gw_rotate_spec_t spec = spec_of(coder);
    gw_blockwise_t blocks = blocks_of(&spec);
    return gw__blockwise_decode(&blocks, in);
}

/* ---- What the family says of itself -------------------------------------------------------------
 */

/* t = H D x / |x| in binary64: mean square 1. Returns |x|. */
static double rotate(const gw_rotate_spec_t *spec, const float *x, size_t n, size_t m, double *t)
{
    uint64_t start = gw__rotate_start(spec->seed);
    double squares = 0;
    for (size_t i = 0; i < m; i++) {
        bool minus = gw__rotate_signs(start, i / 64) >> i % 64 & 1;
        double value = i < n ? (double)x[i] : 0;
        t[i] = minus ? -value : value;
        squares += value * value;
    }
    for (size_t h = 1; h < m; h *= 2)
        for (size_t i = 0; i < m; i++)
            if (!(i & h)) {
                double a = t[i], b = t[i + h];
                t[i] = a + b;
                t[i + h] = a - b;
            }
    double r = sqrt(squares);
    for (size_t i = 0; i < m; i++)
        t[i] = r > 0 ? t[i] / r : 0;
    return r;
}

static double level_of(unsigned bits, double magnitude)
{
    const float *level = gw__rotate_level[bits - 1];
    unsigned top = (1u << (bits - 1)) - 1, q = 0;
    while (q < top && magnitude > ((double)level[q] + (double)level[q + 1]) / 2)
        q++;
    return (double)level[q];
}

/*
 * x comes back as x + D H e / sqrt(m), where e is what the codes lose of y = H D x / sqrt(m), and
 * no element is off by more than |e|. With levels c, the scale of least squared error loses no more
 * than the scale |x| / sqrt(m) would: |e| <= |x| |t - c| / sqrt(m) = |x| q. q is greater than the
 * sine of the angle between t and c; the unbiased scale loses |x| times its tangent. Returned over
 * |x|.
 */
static double loss_of(const gw_rotate_spec_t *spec, const double *t, size_t m)
{
    double lost = 0, ct = 0, cc = 0;
    for (size_t i = 0; i < m; i++) {
        double magnitude = fabs(t[i]), c = level_of(spec->bits, magnitude);
        lost += (magnitude - c) * (magnitude - c);
        ct += magnitude * c;
        cc += c * c;
    }
    double q = sqrt(lost / (double)m);
    if (!spec->unbiased)
        return q < 1 ? q : 1;
    if (q < 0.9)
        return q / sqrt(1 - q * q);
    double cosine = fmin(ct / sqrt(cc * (double)m), 1);
    return 1.125 * sqrt(1 - cosine * cosine) / cosine; /* a code may differ at a threshold */
}

/* The term beside is what binary32 rounds in transform, scale and values: below 2^-14 |x|. */
static float block_bound(const gw_rotate_spec_t *spec, const float *x, size_t n)
{
    double t[GW_ROTATE_BLOCK_MAX];
    size_t m = gw__rotate_padded(n);
    double r = rotate(spec, x, n, m, t);
    if (r == 0)
        return 0;
    double limit = r * (loss_of(spec, t, m) + 0x1p-14) + (double)FLT_MIN;
    return limit < (double)FLT_MAX ? nextafterf((float)limit, INFINITY) : INFINITY;
}

static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    gw_rotate_spec_t spec = spec_of(coder);
    for (size_t i = 0; i < count; i += spec.block) {
        size_t n = count - i < spec.block ? count - i : spec.block;
        float limit = block_bound(&spec, x + i, n);
        for (size_t j = 0; j < n; j++)
            out[i + j] = limit;
    }
}

/* Byte 0: bits; byte 1: log2 of the block; bytes 4 to 7: seed. The scale does not matter to the
 * reader. */
static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    gw_rotate_spec_t spec = spec_of(coder);
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[0] = (uint8_t)spec.bits;
    out[1] = (uint8_t)gw__rotate_log2(spec.block);
    gw__store32(out + 4, spec.seed);
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    uint32_t seed = gw__load32(in + 4);
    if (in[0] < 1 || in[0] > 8 || in[1] > 12 || !is_block(1u << in[1]) || in[2] || in[3] ||
        seed > SEED_MAX)
        return GW_ERR_FRAME_HEADER;
    coder->value[BITS] = in[0];
    coder->value[BLOCK] = 1u << in[1];
    coder->value[SEED] = seed;
    return GW_OK;
}

/* ---- On the device ------------------------------------------------------------------------------
 */

static gw_status_t device_encode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_encode_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw_rotate_spec_t spec = spec_of(coder);
    return gw__cuda_rotate.encode(queue, &spec, in->src, in->residual, in->count, dst, result);
}

static gw_status_t device_decode(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_decode_t *in, gw_cuda_result_t *result)
{
    gw_rotate_spec_t spec = spec_of(coder);
    return (in->mode == GW_DECODE_ADD ? gw__cuda_rotate.add : gw__cuda_rotate.store)(
        queue, &spec, in->payload, in->count, in->dst, result);
}

static gw_status_t device_reduce(gw_cuda_queue_t *queue, const gw_coder_t *coder,
                                 const gw_reduce_t *in, uint8_t *dst, gw_cuda_result_t *result)
{
    gw_rotate_spec_t spec = spec_of(coder);
    gw_quant_sum_t sum = {in->own, in->own_at, in->payload, in->payloads, in->skip, in->scale};
    return gw__cuda_rotate.reduce(queue, &spec, &sum, in->residual, in->count, dst, result);
}

const gw__device_codec_t gw__device_rotate = {.family = &gw__codec_rotate,
                                              .encode = device_encode,
                                              .decode = device_decode,
                                              .reduce = device_reduce};

const gw_codec_t gw__codec_rotate = {
    .abi = GW_CODEC_ABI,
    .id = 6,
    .family = "rotate",
    .names = "q1r q2r q3r q4r q5r q6r q7r q8r",
    .summary = "random rotation and Lloyd-Max levels (DRIVE, EDEN), 1 to 8 bits an element",
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
