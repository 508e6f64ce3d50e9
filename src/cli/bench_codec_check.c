/* SPDX-License-Identifier: Apache-2.0 */
/* Size and errors of one codec: what is decoded against the source, in binary64, beside the codec's
 * declared bound. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_codec.h"

enum { FEEDBACK_STEPS = 8 };

/* One block of elements, a multiple of the codec's grain. */
typedef struct block {
    size_t n;
    float *x, *y, *bound; /* source, decoded, declared error */
} block_t;

/* Sums over all elements. */
typedef struct sums {
    double error2, norm2, decoded2, product, max_err;
    bool within;
} sums_t;

/* What the last narrowing to a 16-bit type may add. */
static double rounding(gw_dtype_t dtype, double value)
{
    if (dtype == GW_F32)
        return 0.0;
    return dtype == GW_F16 ? value * 0x1p-11 + 0x1p-25 : value * 0x1p-8 + (double)FLT_MIN;
}

/* The declared error of every element: of other libraries, none or any that is finite. */
static void declare(const gw_bench_codec_t *b, const block_t *block)
{
    bool lossy = b->library && b->library->lossy;
    if (!b->library && b->coder->family->error_bound)
        b->coder->family->error_bound(b->coder, block->x, block->n, block->bound);
    else
        for (size_t i = 0; i < block->n; i++)
            block->bound[i] = lossy ? FLT_MAX : 0.0f;
}

/* `steps` decodings were summed; the bound holds for one. */
static void compare_block(const gw_bench_codec_t *b, const block_t *block, gw_dtype_t dtype,
                          int steps, sums_t *sums)
{
    declare(b, block);
    bool lossy = !b->library && b->coder->family->flags & GW_CODEC_LOSSY;
    for (size_t i = 0; i < block->n; i++) {
        double x = (double)block->x[i], y = (double)block->y[i] / steps, error = fabs(y - x);
        double bound = (double)block->bound[i];
        if (lossy)
            bound += rounding(dtype, fabs(x) + bound);
        sums->norm2 += x * x;
        sums->decoded2 += y * y;
        sums->product += x * y;
        sums->error2 += error * error;
        sums->max_err = error > sums->max_err ? error : sums->max_err;
        sums->within &= error <= bound; /* false for a NaN */
    }
}

/* Compares what lies in b->out, `dtype` its type, with the source. */
static gw_status_t compare(const gw_bench_codec_t *b, gw_dtype_t dtype, int steps, sums_t *sums)
{
    size_t grain = b->library ? 1 : b->coder->family->grain(b->coder);
    size_t step = grain * (grain < 4096 ? 4096 / grain : 1);
    float *room = malloc(3 * step * sizeof *room);
    if (!room)
        return GW_ERR_NO_MEMORY;
    block_t block = {.x = room, .y = room + step, .bound = room + 2 * step};
    *sums = (sums_t){.within = true};
    for (size_t first = 0; first < b->count; first += step) {
        block.n = b->count - first < step ? b->count - first : step;
        gw_bench_widen(b->dtype, (const uint8_t *)b->src + first * gw_dtype_size(b->dtype), block.n,
                       block.x);
        gw_bench_widen(dtype, (const uint8_t *)b->out + first * gw_dtype_size(dtype), block.n,
                       block.y);
        compare_block(b, &block, dtype, steps, sums);
    }
    free(room);
    return GW_OK;
}

static double relative(const sums_t *sums)
{
    return sums->error2 == 0.0 ? 0.0 : sqrt(sums->error2 / sums->norm2);
}

static double cosine(const sums_t *sums)
{
    return sums->product / sqrt(sums->norm2 * sums->decoded2);
}

/* FNV-1a by 8 bytes: enough to see that two frames differ. */
static uint64_t hash(const uint8_t *data, size_t length)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < length; i += 8) {
        uint64_t word = 0;
        memcpy(&word, data + i, length - i < 8 ? length - i : 8);
        h = (h ^ word) * 0x100000001B3u;
        h ^= h >> 32;
    }
    return h;
}

/* One encoding, decoded in both ways. What decoding leaves unwritten stays NaN and is outside. */
static gw_status_t check_decoding(gw_bench_codec_t *b, gw_bench_row_t *row)
{
    sums_t stored, added;
    b->key = 0; /* the same randomness on every tier */
    memset(b->frame, 0xff, b->capacity);
    gw_status_t status = gw_bench_codec_run(b, GW_BENCH_ENCODE);
    row->wire_bytes = b->length;
    row->poisoned = b->poisoned;
    if (status == GW_OK)
        row->frame_hash = hash(b->frame, b->length);
    memset(b->out, 0xff, b->count * sizeof *b->out);
    if (status == GW_OK)
        status = gw_bench_codec_run(b, GW_BENCH_DECODE);
    if (status == GW_OK)
        status = compare(b, b->dtype, 1, &stored);
    memset(b->out, 0, b->count * sizeof *b->out);
    if (status == GW_OK)
        status = gw_bench_codec_run(b, GW_BENCH_DECODE_ADD);
    if (status == GW_OK)
        status = compare(b, GW_F32, 1, &added);
    if (status != GW_OK)
        return status;
    row->rel_l2 = relative(&stored);
    row->max_err = stored.max_err;
    row->cosine = cosine(&stored);
    row->within = stored.within && added.within && row->poisoned == 0 &&
                  b->length <= gw_frame_bound(b->coder, b->dtype, b->count);
    return GW_OK;
}

/* What feedback is for: the mean of some steps comes near to the gradient, which here stays the
 * same. */
static gw_status_t check_feedback(gw_bench_codec_t *b, gw_bench_row_t *row)
{
    gw_status_t status = GW_OK;
    sums_t sums;
    row->rel_l2_ef8 = (double)NAN;
    if (!gw_bench_codec_has(b, GW_BENCH_ENCODE_EF))
        return GW_OK;
    memset(b->out, 0, b->count * sizeof *b->out);
    memset(b->residual, 0, b->count * sizeof *b->residual);
    for (int step = 0; step < FEEDBACK_STEPS && status == GW_OK; step++) {
        status = gw_bench_codec_run(b, GW_BENCH_ENCODE_EF);
        if (status == GW_OK)
            status = gw_bench_codec_run(b, GW_BENCH_DECODE_ADD);
    }
    if (status == GW_OK)
        status = compare(b, GW_F32, FEEDBACK_STEPS, &sums);
    if (status == GW_OK)
        row->rel_l2_ef8 = relative(&sums);
    return status;
}

/* One turn of another library. */
static gw_status_t check_library(gw_bench_codec_t *b, gw_bench_row_t *row)
{
    sums_t sums;
    memset(b->out, 0xff, b->count * sizeof *b->out);
    gw_status_t status = gw_bench_codec_run(b, GW_BENCH_ENCODE);
    if (status == GW_OK)
        status = gw_bench_codec_run(b, GW_BENCH_DECODE);
    if (status == GW_OK)
        status = compare(b, b->dtype, 1, &sums);
    if (status != GW_OK)
        return status;
    row->wire_bytes = b->length;
    row->frame_hash = hash(b->frame, b->length);
    row->rel_l2 = relative(&sums);
    row->max_err = sums.max_err;
    row->cosine = cosine(&sums);
    row->rel_l2_ef8 = (double)NAN;
    row->reduce_same = true;
    row->within = sums.within && (b->library->lossy || memcmp(b->out, b->src, b->bytes) == 0);
    return GW_OK;
}

gw_status_t gw_bench_codec_check(gw_bench_codec_t *b, gw_bench_row_t *row)
{
    if (b->library)
        return check_library(b, row);
    gw_status_t status = check_decoding(b, row);
    if (status == GW_OK)
        status = gw_bench_codec_check_reduce(b, &row->reduce_same);
    return status == GW_OK ? check_feedback(b, row) : status;
}
