/* SPDX-License-Identifier: Apache-2.0 */
/* Codec lowrank (id 11): a matrix as the product of two thin ones (PowerSGD). */
#include "codecs.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "fpmode.h"
#include "lowrank_factors.h"

/*
 * An all-reduce sums the factors of the whole call (gw_factor_ops_t, lowrank_factors.c). A frame by
 * itself holds both factors of each block of 65536 elements, from one step of the same iteration;
 * blocks that would gain less than half their bytes are in it as they are.
 */

enum { RANK, WARM, FEEDBACK, FORCE };
enum { BLOCK = 65536, SIDE = 256 }; /* a block is folded to SIDE x SIDE */

static const gw_codec_param_t params[] = {
    [RANK] = {"rank", GW_PARAM_INT, "4", 1, GW_LOWRANK_MAX, NULL, "columns of the two factors"},
    [WARM] = {"warm", GW_PARAM_SWITCH, "on", 0, 1, NULL,
              "begin with the directions that the last call found"},
    [FEEDBACK] = {"ef", GW_PARAM_SWITCH, "on", 0, 1, NULL,
                  "error feedback: what was lost is added to the next call"},
    [FORCE] = {"force", GW_PARAM_SWITCH, "0", 0, 1, NULL,
               "allow combinations that are known to do harm"},
    {.name = NULL},
};

static bool match(const char *name, gw_coder_t *coder)
{
    return !strcmp(name, "lowrank");
}

static void put_name(const gw_coder_t *coder, char *out, size_t size)
{
    snprintf(out, size, "lowrank");
}

static gw_status_t check(const gw_coder_t *coder, char *why, size_t size)
{
    if (!coder->value[FEEDBACK] && !coder->value[FORCE]) {
        snprintf(why, size,
                 "ef=off: what a few columns cannot hold would be lost for good; use ef=on, "
                 "another codec, or force=1");
        return GW_ERR_BAD_SETTING;
    }
    return GW_OK;
}

static size_t grain(const gw_coder_t *coder)
{
    return BLOCK;
}

static unsigned rank_of(const gw_coder_t *coder)
{
    return (unsigned)coder->value[RANK];
}

/* ---- An all-reduce ------------------------------------------------------------------------------
 */

static gw_lowrank_shape_t shape_of(const gw_coder_t *coder, const gw_factors_t *io)
{
    return gw__lowrank_shape(rank_of(coder), io->count, io->rows, io->ranks);
}

static bool sizes(const gw_coder_t *coder, gw_dtype_t dtype, size_t count, size_t rows,
                  gw_factor_sizes_t *out)
{
    if (count == 0 || !gw__element_bytes(dtype))
        return false;
    gw_lowrank_shape_t s = gw__lowrank_shape(rank_of(coder), count, rows, 1);
    *out = (gw_factor_sizes_t){.rows = s.rows,
                               .cols = s.cols,
                               .first = s.rank * s.rows,
                               .second = s.rank * s.cols,
                               .warm = coder->value[WARM] ? s.rank * s.cols : 0,
                               .scratch = gw__lowrank_scratch(&s)};
    return gw__lowrank_gains(&s, gw__element_bytes(dtype));
}

static void project(const gw_coder_t *coder, gw_factors_t *io)
{
    gw_lowrank_shape_t s = shape_of(coder, io);
    gw__lowrank_project(&s, io);
}

static bool factor(const gw_coder_t *coder, gw_factors_t *io)
{
    gw_lowrank_shape_t s = shape_of(coder, io);
    return gw__lowrank_factor(&s, io);
}

static void expand(const gw_coder_t *coder, gw_factors_t *io)
{
    gw_lowrank_shape_t s = shape_of(coder, io);
    gw__lowrank_expand(&s, io);
}

static void bound_of_call(const gw_coder_t *coder, const float *x, size_t count, size_t rows,
                          float *bound)
{
    gw_lowrank_shape_t s = gw__lowrank_shape(rank_of(coder), count ? count : 1, rows, 1);
    if (count)
        gw__lowrank_bound(&s, x, bound);
}

static const gw_factor_ops_t factors = {
    .sizes = sizes,
    .project = project,
    .factor = factor,
    .expand = expand,
    .error_bound = bound_of_call,
};

/* ---- Frames -------------------------------------------------------------------------------------
 */

/* Room for the factors of a block in memory that is aligned. */
typedef struct block {
    float p[GW_LOWRANK_MAX * SIDE], q[GW_LOWRANK_MAX * SIDE];
    float scratch[GW_LOWRANK_MAX * SIDE + GW_LOWRANK_PANEL];
} block_t;

static gw_lowrank_shape_t shape_at(const gw_coder_t *coder, size_t count, size_t at)
{
    size_t n = count - at < BLOCK ? count - at : BLOCK;
    return gw__lowrank_shape(rank_of(coder), n, 0, 1);
}

/* Whether a block is there as it is, in binary32. */
static bool is_plain(const gw_lowrank_shape_t *s)
{
    return !gw__lowrank_gains(s, sizeof(float));
}

static size_t block_bytes(const gw_lowrank_shape_t *s)
{
    return 4 * (is_plain(s) ? s->count : s->rank * (s->rows + s->cols));
}

static size_t bound(const gw_coder_t *coder, gw_dtype_t wire_dtype, size_t count)
{
    size_t tail = count % BLOCK;
    gw_lowrank_shape_t whole = shape_at(coder, BLOCK, 0),
                       rest = shape_at(coder, tail ? tail : 1, 0);
    return count / BLOCK * block_bytes(&whole) + (tail ? block_bytes(&rest) : 0);
}

static float limited(float x)
{
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

/* Adds the residual where an element is finite: nothing of it is lost. Returns whether one is not.
 */
static GW_KERNEL_BODY size_t add_residual(float *x, float *residual, size_t count)
{
    size_t bad = 0;
    for (size_t i = 0; i < count; i++) {
        bool finite = isfinite(x[i]);
        bad |= !finite;
        if (finite && residual) {
            x[i] = limited(x[i] + residual[i]);
            residual[i] = 0.0f;
        }
    }
    return bad;
}

static size_t encode_plain(const gw_encode_t *in, const gw_factors_t *io, float *wide, uint8_t *dst)
{
    gw__widen(in->src_dtype, io->src, wide, io->count);
    uint64_t mode = gw__fpmode_enter();
    size_t bad = add_residual(wide, io->residual, io->count);
    gw__fpmode_leave(mode);
    memcpy(dst, wide, io->count * sizeof *wide);
    return bad;
}

static size_t encode_block(const gw_lowrank_shape_t *s, gw_factors_t *io, uint8_t *dst)
{
    size_t p = s->rank * s->rows, q = s->rank * s->cols;
    gw__lowrank_project(s, io);
    if (gw__lowrank_factor(s, io)) {
        memcpy(dst, io->first, 4 * p);
        memcpy(dst + 4 * p, io->second, 4 * q);
        gw__lowrank_keep(s, io);
        return 0;
    }
    for (size_t i = 0; i < p + q; i++)
        gw__store32(dst + 4 * i, GW_NAN_BITS);
    return 1;
}

static gw_status_t encode(const gw_coder_t *coder, gw_encode_t *in, uint8_t *dst, size_t capacity,
                          size_t *length)
{
    block_t block;
    size_t bytes = bound(coder, in->wire_dtype, in->count);
    if (!gw__element_bytes(in->src_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->first % BLOCK)
        return GW_ERR_INVALID;
    if (capacity < bytes)
        return GW_ERR_NO_SPACE;
    in->poisoned = 0;
    for (size_t at = 0; at < in->count; at += BLOCK) {
        gw_lowrank_shape_t s = shape_at(coder, in->count, at);
        gw_factors_t io = {
            .src = (const uint8_t *)in->src + gw__element_bytes(in->src_dtype) * at,
            .dtype = in->src_dtype,
            .count = s.count,
            .ranks = 1,
            .scale = 1.0f,
            .residual = in->residual ? in->residual + at : NULL,
            .shared_key = in->shared_key + (in->first + at) / BLOCK,
            .first = block.p,
            .second = block.q,
            .scratch = block.scratch,
        };
        in->poisoned +=
            is_plain(&s) ? encode_plain(in, &io, block.scratch, dst) : encode_block(&s, &io, dst);
        dst += block_bytes(&s);
    }
    *length = bytes;
    return GW_OK;
}

/* ---- Decoding -----------------------------------------------------------------------------------
 */

static bool is_poisoned(const uint8_t *payload)
{
    return gw__load32(payload) == GW_NAN_BITS;
}

static bool all_within(const uint8_t *payload, size_t count, float most)
{
    bool right = true;
    for (size_t i = 0; i < count; i++)
        right &= fabsf(gw__load_float(payload + 4 * i)) <= most;
    return right;
}

/* Columns of P have norm 1, and no column of Q is longer than one of the matrix. What holds to that
 * cannot overflow. */
static bool is_valid(const gw_lowrank_shape_t *s, const uint8_t *payload)
{
    size_t p = s->rank * s->rows, q = s->rank * s->cols, i = 0;
    if (is_plain(s))
        return true;
    if (!is_poisoned(payload))
        return all_within(payload, p, 1.0f + 0x1p-10f) && all_within(payload + 4 * p, q, 0x1p122f);
    while (i < p + q && gw__load32(payload + 4 * i) == GW_NAN_BITS)
        i++;
    return i == p + q;
}

/* Floats of a block that is there as it is, or NaN for each of one that is poisoned. */
static void put_floats(const gw_decode_t *in, float *x, size_t count, uint8_t *dst)
{
    if (in->mode == GW_DECODE_ADD)
        gw__kernels()->sum.add((float *)(void *)dst, x, count);
    else
        gw__narrow(in->dst_dtype, x, dst, count);
}

static void put_nan(const gw_decode_t *in, size_t count, float *x, uint8_t *dst)
{
    size_t step = GW_LOWRANK_PANEL;
    for (size_t i = 0; i < step; i++)
        x[i] = gw__float_of(GW_NAN_BITS);
    for (size_t at = 0; at < count; at += step)
        put_floats(in, x, count - at < step ? count - at : step,
                   dst + gw__element_bytes(in->dst_dtype) * at);
}

static void decode_block(const gw_lowrank_shape_t *s, const gw_decode_t *in, const uint8_t *payload,
                         block_t *block, uint8_t *dst)
{
    size_t p = s->rank * s->rows, q = s->rank * s->cols;
    if (is_plain(s)) {
        memcpy(block->scratch, payload, 4 * s->count);
        put_floats(in, block->scratch, s->count, dst);
    } else if (is_poisoned(payload)) {
        put_nan(in, s->count, block->scratch, dst);
    } else {
        memcpy(block->p, payload, 4 * p);
        memcpy(block->q, payload + 4 * p, 4 * q);
        gw__lowrank_result(s, block->p, block->q, 1.0f, in->mode == GW_DECODE_ADD, in->dst_dtype,
                           dst, block->scratch);
    }
}

static gw_status_t check_decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    if (!gw__element_bytes(in->dst_dtype) || !gw__element_bytes(in->wire_dtype))
        return GW_ERR_UNSUPPORTED;
    if (in->mode == GW_DECODE_ADD && in->dst_dtype != GW_F32)
        return GW_ERR_UNSUPPORTED;
    if (in->first % BLOCK)
        return GW_ERR_INVALID;
    if (in->length != bound(coder, in->wire_dtype, in->count))
        return GW_ERR_FRAME_LENGTH;
    const uint8_t *payload = in->payload;
    for (size_t at = 0; at < in->count; at += BLOCK) {
        gw_lowrank_shape_t s = shape_at(coder, in->count, at);
        if (!is_valid(&s, payload))
            return GW_ERR_FRAME_PAYLOAD;
        payload += block_bytes(&s);
    }
    return GW_OK;
}

static gw_status_t decode(const gw_coder_t *coder, const gw_decode_t *in)
{
    block_t block;
    const uint8_t *payload = in->payload;
    gw_status_t status = check_decode(coder, in);
    if (status)
        return status;
    for (size_t at = 0; at < in->count; at += BLOCK) {
        gw_lowrank_shape_t s = shape_at(coder, in->count, at);
        decode_block(&s, in, payload, &block,
                     (uint8_t *)in->dst + gw__element_bytes(in->dst_dtype) * at);
        payload += block_bytes(&s);
    }
    return GW_OK;
}

/* ---- What the family says of itself -------------------------------------------------------------
 */

static void error_bound(const gw_coder_t *coder, const float *x, size_t count, float *out)
{
    for (size_t at = 0; at < count; at += BLOCK) {
        gw_lowrank_shape_t s = shape_at(coder, count, at);
        if (is_plain(&s))
            memset(out + at, 0, s.count * sizeof *out);
        else
            gw__lowrank_bound(&s, x + at, out + at);
    }
}

/* Byte 0: rank. */
static void put_params(const gw_coder_t *coder, uint8_t out[GW_CODEC_HEADER_PARAMS])
{
    memset(out, 0, GW_CODEC_HEADER_PARAMS);
    out[0] = (uint8_t)coder->value[RANK];
}

static gw_status_t get_params(const uint8_t in[GW_CODEC_HEADER_PARAMS], gw_coder_t *coder)
{
    unsigned rest = 0;
    for (size_t i = 1; i < GW_CODEC_HEADER_PARAMS; i++)
        rest |= in[i];
    if (rest || in[0] < 1 || in[0] > GW_LOWRANK_MAX)
        return GW_ERR_FRAME_HEADER;
    coder->value[RANK] = in[0];
    return GW_OK;
}

const gw_codec_t gw__codec_lowrank = {
    .abi = GW_CODEC_ABI,
    .id = 11,
    .family = "lowrank",
    .names = "lowrank",
    .summary = "two thin factors of the gradient as a matrix, summed (PowerSGD)",
    .flags =
        GW_CODEC_LOSSY | GW_CODEC_FIXED | GW_CODEC_FEEDBACK | GW_CODEC_MATRIX | GW_CODEC_FACTORS,
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
    .factors = &factors,
};
