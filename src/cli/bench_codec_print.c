/* SPDX-License-Identifier: Apache-2.0 */
/* The codec benchmark's table for people and its JSON lines. */
#include "bench_codec_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_tools.h"

/* "64 MiB", "1.17 MiB", "512 bytes". */
static void print_bytes(FILE *out, size_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    fprintf(out, "%.*f %s", value == floor(value) ? 0 : 2, value, units[unit]);
}

void gw_bench_print_head(FILE *out, const gw_bench_codec_t *bench, const char *data, int repeats,
                         int width)
{
    fprintf(out, "# gradwire %s, codecs on one thread: ", gw_version());
    print_bytes(out, bench->bytes);
    fprintf(out, " = %zu element%s of %s\n# data: %s\n", bench->count, bench->count == 1 ? "" : "s",
            gw_dtype_name(bench->dtype), data);
    fprintf(
        out,
        "# GB/s of input (1e9 bytes); x: times memcpy of the same input; both medians of %d "
        "pair%s on warm buffers\n"
        "# own + 7: own input and 7 payloads, summed and encoded in one pass; 8 steps: rel L2 of "
        "the mean of 8 steps with feedback\n"
        "# bound: whether every element is inside the codec's declared error; peer: other "
        "libraries, without a frame header\n\n",
        repeats, repeats == 1 ? "" : "s");
    fprintf(out, "%-*s %-7s %12s %12s %12s %12s %12s %6s %10s %6s %9s %9s %8s %9s %s\n", width,
            "codec", "kernels", "encode", "encode ef", "decode", "decode-add", "own + 7", "memcpy",
            "wire bytes", "ratio", "rel L2", "max error", "cosine", "8 steps", "bound");
    fprintf(out, "%-*s %-7s", width, "", "");
    for (int op = 0; op < GW_BENCH_OPS; op++)
        fprintf(out, " %6s %5s", "GB/s", "x");
    fprintf(out, " %6s\n", "GB/s");
}

static void print_rate(FILE *out, double gbps, double times)
{
    if (isnan(gbps))
        fprintf(out, " %6s %5s", "-", "-");
    else
        fprintf(out, " %6.2f %5.2f", gbps, times);
}

static void print_or_dash(FILE *out, const char *number, const char *text, double value)
{
    if (isnan(value))
        fprintf(out, text, "-");
    else
        fprintf(out, number, value);
}

const char *gw_bench_row_name(const gw_bench_codec_t *bench)
{
    return bench->library ? bench->library->name : bench->coder->spec;
}

void gw_bench_print_row(FILE *out, const gw_bench_codec_t *bench, const gw_bench_row_t *row,
                        int width)
{
    const gw_bench_library_t *library = bench->library;
    fprintf(out, "%-*s %-7s", width, gw_bench_row_name(bench), library ? "peer" : gw_kernel_tier());
    for (int op = 0; op < GW_BENCH_OPS; op++)
        print_rate(out, row->gbps[op], row->times_memcpy[op]);
    fprintf(out, " %6.2f %10zu %6.3f %9.2e %9.2e", row->memcpy_gbps, row->wire_bytes,
            (double)bench->bytes / (double)row->wire_bytes, row->rel_l2, row->max_err);
    print_or_dash(out, " %8.5f", " %8s", row->cosine);
    print_or_dash(out, " %9.2e", " %9s", row->rel_l2_ef8);
    fprintf(out, " %s\n",
            library && library->lossy && row->within ? "-"
            : row->within && row->reduce_same        ? "yes"
                                                     : "NO");
    gw_bench_print_factors(out, bench, &row->factors);
    fflush(out);
}

static const char *named(char *out, size_t size, const char *name, const char *suffix)
{
    snprintf(out, size, "%s%s", name, suffix);
    return out;
}

void gw_bench_print_json(const gw_bench_codec_t *bench, const gw_bench_row_t *row, const char *data)
{
    static const char *const names[GW_BENCH_OPS] = {"encode", "encode_ef", "decode", "decode_add",
                                                    "reduce7"};
    char key[32];
    printf("{\"codec\": ");
    gw_json_string(stdout, gw_bench_row_name(bench));
    printf(", \"dtype\": \"%s\", \"kernels\": \"%s\", \"bytes\": %zu, \"wire_bytes\": %zu",
           gw_dtype_name(bench->dtype), bench->library ? "peer" : gw_kernel_tier(), bench->bytes,
           row->wire_bytes);
    gw_bench_json_number("ratio", (double)bench->bytes / (double)row->wire_bytes);
    for (int op = 0; op < GW_BENCH_REDUCE; op++)
        gw_bench_json_number(named(key, sizeof key, names[op], "_gbps"), row->gbps[op]);
    gw_bench_json_number("memcpy_gbps", row->memcpy_gbps);
    gw_bench_json_number("rel_l2", row->rel_l2);
    gw_bench_json_number("max_err", row->max_err);
    gw_bench_json_number("reduce7_gbps", row->gbps[GW_BENCH_REDUCE]);
    for (int op = 0; op < GW_BENCH_OPS; op++)
        gw_bench_json_number(named(key, sizeof key, names[op], "_x"), row->times_memcpy[op]);
    gw_bench_json_number("rel_l2_ef8", row->rel_l2_ef8);
    gw_bench_json_number("cosine", row->cosine);
    printf(", \"peer\": ");
    if (bench->library)
        gw_json_string(stdout, bench->library->version());
    else
        printf("null");
    printf(", \"within_bound\": %s, \"poisoned_buckets\": %zu, \"frame_hash\": \"%016" PRIx64
           "\", \"elements\": %zu, \"data\": ",
           row->within ? "true" : "false", row->poisoned, row->frame_hash, bench->count);
    gw_json_string(stdout, data);
    gw_bench_json_factors(bench, &row->factors);
    printf("}\n");
    fflush(stdout);
}
