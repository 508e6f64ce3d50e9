/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of one codec, each measured beside memcpy of the same buffer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_codec.h"
#include "bench_tools.h"

static const double batch_seconds = 2e-3; /* what one measurement takes at least */
static const double op_seconds = 1.0;     /* after which an operation is not repeated further */

enum { REPEATS_MIN = 3 };

bool gw_bench_codec_has(const gw_bench_codec_t *bench, gw_bench_op_t op)
{
    if (bench->library)
        return op == GW_BENCH_ENCODE || op == GW_BENCH_DECODE;
    const gw_codec_t *family = bench->coder->family;
    if (op == GW_BENCH_REDUCE)
        return family->reduce != NULL && bench->peer_room > 0;
    return op != GW_BENCH_ENCODE_EF ||
           (family->flags & GW_CODEC_FEEDBACK && gw_coder_get(bench->coder, "ef", 1) != 0);
}

static gw_status_t run_library(gw_bench_codec_t *b, gw_bench_op_t op)
{
    const gw_bench_library_t *library = b->library;
    if (op != GW_BENCH_ENCODE)
        return library->decode(library, b->frame, b->length, b->out, b->bytes)
                   ? GW_OK
                   : GW_ERR_FRAME_PAYLOAD;
    b->length =
        library->encode(library, gw_dtype_size(b->dtype), b->src, b->bytes, b->frame, b->capacity);
    return b->length > 0 ? GW_OK : GW_ERR_NO_SPACE;
}

gw_status_t gw_bench_codec_run(gw_bench_codec_t *b, gw_bench_op_t op)
{
    if (b->library)
        return run_library(b, op);
    if (op == GW_BENCH_ENCODE || op == GW_BENCH_ENCODE_EF) {
        gw_encode_t in = {.src = b->src,
                          .src_dtype = b->dtype,
                          .wire_dtype = b->dtype,
                          .residual = op == GW_BENCH_ENCODE_EF ? b->residual : NULL,
                          .count = b->count,
                          .key = ++b->key,
                          .shared_key = b->key};
        gw_status_t status = gw_frame_encode(b->coder, &in, b->frame, b->capacity, &b->length);
        b->poisoned = in.poisoned;
        return status;
    }
    if (op == GW_BENCH_REDUCE)
        return gw_bench_codec_reduce(b);
    bool add = op == GW_BENCH_DECODE_ADD;
    gw_decode_t io = {.payload = b->frame,
                      .length = b->length,
                      .wire_dtype = b->dtype,
                      .count = b->count,
                      .mode = add ? GW_DECODE_ADD : GW_DECODE_STORE,
                      .dst = b->out,
                      .dst_dtype = add ? GW_F32 : b->dtype};
    return gw_frame_decode(b->coder, &io);
}

/* Processor time of this thread, on which codecs do all their work: what other programs take of a
 * shared machine does not count. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one turn. */
static double time_memcpy(gw_bench_codec_t *b, size_t turns)
{
    double begin = now();
    for (size_t i = 0; i < turns; i++) {
        memcpy(b->out, b->src, b->bytes);
        __asm__ volatile("" : : "r"(b->out) : "memory"); /* each copy is wanted */
    }
    return (now() - begin) / (double)turns;
}

static gw_status_t time_op(gw_bench_codec_t *b, gw_bench_op_t op, size_t turns, double *seconds)
{
    gw_status_t status = GW_OK;
    double begin = now();
    for (size_t i = 0; i < turns && status == GW_OK; i++)
        status = gw_bench_codec_run(b, op);
    *seconds = (now() - begin) / (double)turns;
    return status;
}

/* How many turns take batch_seconds; also the warm-up. */
static size_t turns_of_memcpy(gw_bench_codec_t *b)
{
    size_t turns = 1;
    while (time_memcpy(b, turns) * (double)turns < batch_seconds && turns < SIZE_MAX / 4)
        turns *= 2;
    return turns;
}

static gw_status_t turns_of_op(gw_bench_codec_t *b, gw_bench_op_t op, size_t *turns)
{
    double seconds;
    gw_status_t status;
    *turns = 1;
    while ((status = time_op(b, op, *turns, &seconds)) == GW_OK &&
           seconds * (double)*turns < batch_seconds && *turns < SIZE_MAX / 4)
        *turns *= 2;
    return status;
}

/* All measurements of a row, in seconds of one turn. */
typedef struct samples {
    double *op[GW_BENCH_OPS], *ratio[GW_BENCH_OPS], *copy;
    int ops[GW_BENCH_OPS], copies;
    size_t turns[GW_BENCH_OPS], copy_turns;
    double spent[GW_BENCH_OPS];
} samples_t;

/* One pair: memcpy, then the operation. */
static gw_status_t sample(gw_bench_codec_t *b, gw_bench_op_t op, samples_t *s)
{
    double seconds, copy = time_memcpy(b, s->copy_turns);
    gw_status_t status = time_op(b, op, s->turns[op], &seconds);
    s->spent[op] += seconds * (double)s->turns[op];
    s->copy[s->copies++] = copy;
    s->ratio[op][s->ops[op]] = copy / seconds;
    s->op[op][s->ops[op]++] = seconds;
    return status;
}

/* The order of the operations rotates, so that none is always first behind the same other. */
static gw_status_t sample_all(gw_bench_codec_t *b, int repeats, samples_t *s)
{
    gw_status_t status = GW_OK;
    s->copy_turns = turns_of_memcpy(b);
    for (gw_bench_op_t op = 0; op < GW_BENCH_OPS && status == GW_OK; op++)
        if (gw_bench_codec_has(b, op))
            status = turns_of_op(b, op, &s->turns[op]);
    for (int r = 0; r < repeats; r++)
        for (int i = 0; i < GW_BENCH_OPS && status == GW_OK; i++) {
            gw_bench_op_t op = (gw_bench_op_t)((r + i) % GW_BENCH_OPS);
            if (s->turns[op] && (r < REPEATS_MIN || s->spent[op] < op_seconds))
                status = sample(b, op, s);
        }
    return status;
}

gw_status_t gw_bench_codec_time(gw_bench_codec_t *b, int repeats, gw_bench_row_t *row)
{
    samples_t s = {.copies = 0};
    size_t n = (size_t)repeats;
    double *all = malloc(n * (3 * GW_BENCH_OPS) * sizeof *all);
    if (!all)
        return GW_ERR_NO_MEMORY;
    for (int op = 0; op < GW_BENCH_OPS; op++) {
        s.op[op] = all + n * (size_t)op;
        s.ratio[op] = all + n * (size_t)(GW_BENCH_OPS + op);
    }
    s.copy = all + n * (2 * GW_BENCH_OPS);
    memset(b->out, 0, b->count * sizeof *b->out);
    memset(b->residual, 0, b->count * sizeof *b->residual);
    gw_status_t status = sample_all(b, repeats, &s);
    if (status == GW_OK) {
        double gb = 1e-9 * (double)b->bytes;
        row->memcpy_gbps = gb / gw_bench_median(s.copy, s.copies);
        for (int op = 0; op < GW_BENCH_OPS; op++) {
            bool has = s.ops[op] > 0;
            row->gbps[op] = has ? gb / gw_bench_median(s.op[op], s.ops[op]) : (double)NAN;
            row->times_memcpy[op] = has ? gw_bench_median(s.ratio[op], s.ops[op]) : (double)NAN;
        }
    }
    free(all);
    return status;
}
