/* SPDX-License-Identifier: Apache-2.0 */
/* What an all-reduce of a codec that sums factors computes on one rank: speed, size and error. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_codec.h"
#include "bench_codec_print.h"
#include "bench_tools.h"

enum { WARM_CALLS = 8 };

static const char *const names[GW_BENCH_FACTOR_OPS] = {"project", "factor", "expand"};

/* As in bench_codec_measure.c: processor time of this thread. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run(const gw_coder_t *coder, gw_factors_t *io, int op)
{
    const gw_factor_ops_t *ops = coder->family->factors;
    if (op == 0)
        ops->project(coder, io);
    else if (op == 1)
        ops->factor(coder, io);
    else
        ops->expand(coder, io);
}

/* The relative L2 error of what lies in out. */
static double error_of(const gw_bench_codec_t *b)
{
    size_t element = gw_dtype_size(b->dtype), step = 4096;
    float x[4096], y[4096];
    double error = 0, norm = 0;
    for (size_t at = 0; at < b->count; at += step) {
        size_t n = b->count - at < step ? b->count - at : step;
        gw_bench_widen(b->dtype, (const uint8_t *)b->src + at * element, n, x);
        gw_bench_widen(b->dtype, (const uint8_t *)b->out + at * element, n, y);
        for (size_t i = 0; i < n; i++) {
            error += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
            norm += (double)x[i] * (double)x[i];
        }
    }
    return error == 0 ? 0 : sqrt(error / norm);
}

/* Calls with the same input, without a residual: how well the directions become. */
static void measure_error(const gw_bench_codec_t *b, gw_factors_t *io, gw_bench_factors_t *out)
{
    for (int call = 0; call < WARM_CALLS; call++) {
        for (int op = 0; op < GW_BENCH_FACTOR_OPS; op++)
            run(b->coder, io, op);
        if (call == 0)
            out->rel_l2_first = error_of(b);
    }
    out->rel_l2_warm = error_of(b);
}

/* Pairs of memcpy and an operation; project and factor follow each other on the same matrix. */
static void measure_speed(const gw_bench_codec_t *b, gw_factors_t *io, int repeats, double *samples,
                          gw_bench_factors_t *out)
{
    double *seconds = samples, *ratios = samples + repeats;
    for (int op = 0; op < GW_BENCH_FACTOR_OPS; op++) {
        for (int r = 0; r < repeats; r++) {
            if (op == 1) /* it makes P orthonormal in place */
                run(b->coder, io, 0);
            double begin = now();
            memcpy(b->residual, b->src, b->bytes);
            __asm__ volatile("" : : "r"(b->residual) : "memory");
            double middle = now();
            run(b->coder, io, op);
            seconds[r] = now() - middle;
            ratios[r] = (middle - begin) / seconds[r];
        }
        out->gbps[op] = 1e-9 * (double)b->bytes / gw_bench_median(seconds, repeats);
        out->times_memcpy[op] = gw_bench_median(ratios, repeats);
    }
}

gw_status_t gw_bench_codec_factors(const gw_bench_codec_t *b, int repeats, gw_bench_factors_t *out)
{
    gw_factor_sizes_t s;
    *out = (gw_bench_factors_t){.rows = 0};
    const gw_factor_ops_t *ops = b->library ? NULL : b->coder->family->factors;
    if (!ops || !ops->sizes(b->coder, b->dtype, b->count, 0, &s))
        return GW_OK;
    float *room = calloc(s.first + s.second + s.warm + s.scratch, sizeof *room);
    double *samples = malloc(2 * (size_t)repeats * sizeof *samples);
    gw_status_t status = room && samples ? GW_OK : GW_ERR_NO_MEMORY;
    if (status == GW_OK) {
        gw_factors_t io = {.src = b->src,
                           .dst = b->out,
                           .dtype = b->dtype,
                           .count = b->count,
                           .ranks = 1,
                           .scale = 1.0f,
                           .warm = s.warm ? room + s.first + s.second : NULL,
                           .shared_key = 1,
                           .first = room,
                           .second = room + s.first,
                           .scratch = room + s.first + s.second + s.warm};
        out->rows = s.rows;
        out->cols = s.cols;
        out->sum_bytes = sizeof(float) * (s.first + s.second);
        measure_error(b, &io, out);
        measure_speed(b, &io, repeats, samples, out);
    }
    free(room);
    free(samples);
    return status;
}

void gw_bench_print_factors(FILE *out, const gw_bench_codec_t *b, const gw_bench_factors_t *f)
{
    if (f->rows == 0)
        return;
    fprintf(out, "# %s in an all-reduce: %zu x %zu, two sums of %zu bytes in all, ratio %.4g;",
            gw_bench_row_name(b), f->rows, f->cols, f->sum_bytes,
            (double)b->bytes / (double)f->sum_bytes);
    for (int op = 0; op < GW_BENCH_FACTOR_OPS; op++)
        fprintf(out, " %s %.2f GB/s %.2f x,", names[op], f->gbps[op], f->times_memcpy[op]);
    fprintf(out, " rel L2 %.3e in the first call, %.3e after %d\n", f->rel_l2_first, f->rel_l2_warm,
            WARM_CALLS);
    fflush(out);
}

void gw_bench_json_factors(const gw_bench_codec_t *b, const gw_bench_factors_t *f)
{
    char key[32];
    if (f->rows == 0) {
        printf(", \"factors\": null");
        return;
    }
    printf(", \"factors\": {\"rows\": %zu, \"cols\": %zu, \"sum_bytes\": %zu", f->rows, f->cols,
           f->sum_bytes);
    gw_bench_json_number("ratio", (double)b->bytes / (double)f->sum_bytes);
    for (int op = 0; op < GW_BENCH_FACTOR_OPS; op++) {
        snprintf(key, sizeof key, "%s_gbps", names[op]);
        gw_bench_json_number(key, f->gbps[op]);
        snprintf(key, sizeof key, "%s_x", names[op]);
        gw_bench_json_number(key, f->times_memcpy[op]);
    }
    gw_bench_json_number("rel_l2_first", f->rel_l2_first);
    gw_bench_json_number("rel_l2_warm", f->rel_l2_warm);
    printf("}");
}
