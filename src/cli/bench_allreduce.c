/* SPDX-License-Identifier: Apache-2.0 */
/* `gradwire bench allreduce`: time, bytes and error of compressed all-reduce beside the MPI
 * library's own. */
#include "bench_allreduce.h"

#include <dlfcn.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_tools.h"

typedef struct options {
    const char *codec, *plan;
    size_t from, to;
    double factor;
    const char *dtype;
    int iterations, warmup;
    bool inplace, check, json, timeline;
} options_t;

/* One row of the result; times in microseconds, medians over the iterations of the slowest rank's
 * time. */
typedef struct row {
    double time_us, raw_us, baseline_us; /* NAN: the MPI library has no such type */
    uint64_t wire_bytes;
    double ratio;
    gw_bench_error_t error;
    bool identical, raw_within;
} row_t;

static void usage(FILE *out)
{
    fputs(
        "usage: mpirun -np N gradwire bench allreduce [OPTIONS]\n"
        "  --codec SPEC     codec (default: GRADWIRE_CODEC, q4)\n"
        "  --plan PLAN      how calls are split, the uncompressed ones too: direct, gather, ring, "
        "tree\n"
        "                   (default: GRADWIRE_PLAN, auto)\n"
        "  -b, -e SIZE      first and last size in bytes, like 64K or 1M (1M, 64M)\n"
        "  -f FACTOR        from one size to the next (2)\n"
        "  -n, -w COUNT     measured and warm-up calls per size (5, 1)\n"
        "  --dtype TYPE     f32, f16, bf16 (f32)\n"
        "  --inplace        one buffer instead of two\n"
        "  --check          exit with 1 unless every element is inside the codec's error bound, "
        "also of the\n"
        "                   uncompressed plan, and all ranks hold the same bits\n"
        "  --timeline       draw one call of each size: what rank 0 computed, sent and "
        "received when\n"
        "  --json           one JSON object per size; everything else goes to stderr\n"
        "\n"
        "Each size runs three ways in turn in the same run: the codec, Gradwire's own "
        "uncompressed plan (raw),\n"
        "and the MPI library's own all-reduce (base; none of f16 and bf16, which MPI lacks). "
        "Times are medians\n"
        "of the slowest rank's.\n"
        "algbw = bytes / time; busbw = algbw x 2 (P-1)/P. wire = bytes a rank sends, headers "
        "included;\n"
        "ratio = plain / wire, where plain = 2 (P-1)/P x bytes.\n",
        out);
}

/* 0: go on; otherwise exit status + 1. */
static int parse(int argc, char **argv, options_t *o)
{
    static const struct option longs[] = {
        {"codec", 1, 0, 'c'},    {"plan", 1, 0, 'p'},  {"dtype", 1, 0, 'd'},
        {"inplace", 0, 0, 'i'},  {"check", 0, 0, 'C'}, {"json", 0, 0, 'j'},
        {"timeline", 0, 0, 't'}, {"help", 0, 0, 'h'},  {0, 0, 0, 0}};
    static char name[] = "gradwire bench allreduce";
    *o = (options_t){
        .from = 1 << 20, .to = 64 << 20, .factor = 2, .dtype = "f32", .iterations = 5, .warmup = 1};
    bool good = true;
    argv[0] = name; /* getopt's messages begin with it */
    optind = 1;
    for (int c; good && (c = getopt_long(argc, argv, "b:e:f:n:w:", longs, NULL)) != -1;)
        switch (c) {
        case 'c':
            o->codec = optarg;
            break;
        case 'p':
            o->plan = optarg;
            break;
        case 'd':
            o->dtype = optarg;
            break;
        case 'i':
            o->inplace = true;
            break;
        case 'C':
            o->check = true;
            break;
        case 'j':
            o->json = true;
            break;
        case 't':
            o->timeline = true;
            break;
        case 'b':
            good = gw_bench_parse_size(optarg, &o->from);
            break;
        case 'e':
            good = gw_bench_parse_size(optarg, &o->to);
            break;
        case 'f':
            good = (o->factor = strtod(optarg, NULL)) > 1.0 && isfinite(o->factor);
            break;
        case 'n':
            good = gw_bench_parse_count(optarg, 1, &o->iterations);
            break;
        case 'w':
            good = gw_bench_parse_count(optarg, 0, &o->warmup);
            break;
        case 'h':
            usage(stdout);
            return 1;
        default:
            usage(stderr);
            return 3;
        }
    if (!good || optind < argc || o->from == 0 || o->to < o->from) {
        fprintf(stderr, "gradwire bench allreduce: bad size, factor, count or argument (--help)\n");
        return 3;
    }
    return 0;
}

/* Opens the MPI that the launcher runs, and the adapter that was built for it. */
static const gw_mpi_adapter_t *open_mpi(void)
{
    char path[4096];
    if (!dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "gradwire bench allreduce: no Open MPI here: %s\n", dlerror());
        return NULL;
    }
    void *module = gw_cli_library_path("gradwire/mpi-openmpi.so", path, sizeof path)
                       ? dlopen(path, RTLD_NOW)
                       : NULL;
    gw_mpi_adapter_module_fn get =
        module ? (gw_mpi_adapter_module_fn)dlsym(module, GW_MPI_ADAPTER_SYMBOL) : NULL;
    if (!get || get()->abi != GW_MPI_ADAPTER_ABI) {
        fprintf(stderr, "gradwire bench allreduce: MPI adapter not usable: %s\n",
                module ? path : dlerror());
        return NULL;
    }
    char why[256] = "";
    if (get()->init(why, sizeof why) != GW_OK) {
        fprintf(stderr, "gradwire bench allreduce: %s\n", why);
        return NULL;
    }
    return get();
}

/* Whether this rank speaks for all. */
static bool speaks(const gw_bench_t *bench)
{
    return bench->rank == 0;
}

/* Whether all ranks are well; otherwise the first that is not says why, and they stop together. */
static bool all_well(const gw_bench_t *bench, bool well, const char *why)
{
    double place = bench->size - bench->rank;
    double first = bench->mpi->max_double(well ? 0.0 : place);
    if (first != place)
        return first == 0.0;
    if (speaks(bench))
        fprintf(stderr, "gradwire bench allreduce: %s\n", why);
    else
        fprintf(stderr, "gradwire bench allreduce: rank %d: %s\n", bench->rank, why);
    return false;
}

static bool open_context(gw_bench_t *bench, const options_t *o, char *why, size_t size)
{
    /* Figures of a benchmark are of no use in the application's stats file, and small sizes are
     * wanted too. */
    gw_setting_t overrides[4] = {{"GRADWIRE_STATS", ""}, {"GRADWIRE_MIN_BYTES", "0"}};
    size_t count = 2;
    if (o->codec)
        overrides[count++] = (gw_setting_t){"GRADWIRE_CODEC", o->codec};
    if (o->plan)
        overrides[count++] = (gw_setting_t){"GRADWIRE_PLAN", o->plan};
    gw_status_t status = gw_context_create(overrides, count, &bench->context, why, size);
    if (status == GW_OK &&
        (gw_dtype_parse(o->dtype, &bench->dtype) != GW_OK || bench->dtype == GW_F64)) {
        snprintf(why, size, "--dtype %s: must be f32, f16 or bf16", o->dtype);
        return false;
    }
    gw_setting_info_t codec = {.value = "q4"};
    if (status == GW_OK) {
        gw_setting_at(bench->context, 0, &codec);
        gw_coder_parse("raw", &bench->raw, why, size);
        status = gw_coder_parse(codec.value, &bench->coder, why, size);
    }
    return status == GW_OK;
}

static bool open_gradwire(gw_bench_t *bench, const options_t *o)
{
    char why[512] = "";
    if (!all_well(bench, open_context(bench, o, why, sizeof why), why))
        return false;
    gw_context_set_rank(bench->context, bench->rank, bench->size);
    gw_comm_params_t params = {.rank = bench->rank,
                               .size = bench->size,
                               .allgather = bench->mpi->allgather,
                               .name = "bench",
                               .mpi_comm = bench->mpi->world()};
    gw_status_t status = gw_comm_create(bench->context, &params, &bench->comm);
    return all_well(bench, status == GW_OK, gw_status_text(status));
}

typedef enum way { BY_CODEC, BY_RAW, BY_MPI, WAYS } way_t;

/* One call in one way; seconds of the slowest rank, negative when it failed. */
static double call(gw_bench_t *bench, way_t way, bool inplace)
{
    size_t bytes = bench->elements * gw_dtype_size(bench->dtype);
    if (inplace)
        memcpy(bench->recv, bench->send, bytes);
    const void *send = inplace ? NULL : bench->send;
    bench->mpi->barrier();
    double begin = bench->mpi->wtime();
    gw_status_t status;
    if (way == BY_MPI)
        status = bench->mpi->allreduce_sum(send, bench->recv, bench->elements, bench->dtype);
    else
        status = gw_allreduce_with(bench->comm, way == BY_CODEC ? &bench->coder : &bench->raw,
                                   way == BY_CODEC ? bench->plan : bench->raw_plan, send,
                                   bench->recv, bench->elements, bench->dtype, GW_SUM);
    double time = bench->mpi->wtime() - begin;
    double worst = bench->mpi->max_double(status == GW_OK ? time : 1e30);
    return worst < 1e29 ? worst : -1.0;
}

/* Error and bits of the first call after a reset: what the codec does without the feedback of
 * earlier calls. */
static bool inspect(gw_bench_t *bench, const options_t *o, row_t *row)
{
    gw_stats_t before, after;
    gw_comm_reset_residuals(bench->comm);
    gw_comm_stats(bench->comm, &before);
    if (call(bench, BY_CODEC, o->inplace) < 0 ||
        !gw_bench_compare(bench, &bench->coder, bench->plan, &row->error))
        return false;
    row->identical = gw_bench_identical(bench);
    gw_comm_stats(bench->comm, &after);
    row->wire_bytes = after.wire_bytes - before.wire_bytes;
    double plain = (double)(after.plain_bytes - before.plain_bytes);
    row->ratio = row->wire_bytes ? plain / (double)row->wire_bytes : 0.0;
    row->raw_within = true;
    if (!o->check)
        return true;
    gw_bench_error_t error;
    for (int inplace = 0; inplace < 2; inplace++) {
        gw_comm_reset_residuals(bench->comm);
        if (call(bench, BY_CODEC, inplace) < 0 ||
            !gw_bench_compare(bench, &bench->coder, bench->plan, &error))
            return false;
        row->error.within &= error.within;
        row->identical &= gw_bench_identical(bench);
        if (call(bench, BY_RAW, inplace) < 0 ||
            !gw_bench_compare(bench, &bench->raw, bench->raw_plan, &error))
            return false;
        row->raw_within &= error.within && gw_bench_identical(bench);
    }
    return true;
}

/* One more call, drawn. */
static bool draw(gw_bench_t *bench, const options_t *o)
{
    enum { EVENTS = 1 << 16, WIDTH = 100 };
    if (speaks(bench) && gw_comm_timeline(bench->comm, EVENTS) != GW_OK)
        fprintf(stderr, "gradwire bench allreduce: no memory for a timeline\n");
    if (call(bench, BY_CODEC, o->inplace) < 0)
        return false;
    if (speaks(bench)) {
        gw_comm_timeline_print(bench->comm, WIDTH, o->json ? stderr : stdout);
        gw_comm_timeline(bench->comm, 0);
    }
    return true;
}

static bool measure(gw_bench_t *bench, const options_t *o, row_t *row)
{
    double *times = malloc((size_t)o->iterations * WAYS * sizeof *times);
    bool has_type = bench->dtype == GW_F32, ok = times != NULL;
    for (int i = -o->warmup; ok && i < o->iterations; i++)
        for (way_t way = 0; ok && way < WAYS; way++) {
            if (way == BY_MPI && !has_type)
                continue;
            double t = call(bench, way, o->inplace);
            ok = t >= 0;
            if (i >= 0)
                times[way * o->iterations + i] = t;
        }
    if (ok) {
        row->time_us = gw_bench_median(times + BY_CODEC * o->iterations, o->iterations) * 1e6;
        row->raw_us = gw_bench_median(times + BY_RAW * o->iterations, o->iterations) * 1e6;
        row->baseline_us =
            has_type ? gw_bench_median(times + BY_MPI * o->iterations, o->iterations) * 1e6 : NAN;
        ok = inspect(bench, o, row);
    }
    free(times);
    return ok;
}

static void print_row(const gw_bench_t *bench, const row_t *r, bool json)
{
    size_t bytes = bench->elements * gw_dtype_size(bench->dtype);
    double algbw = (double)bytes / r->time_us * 1e-3,
           busbw = algbw * 2 * (bench->size - 1) / bench->size;
    double speedup = r->baseline_us / r->time_us;
    const char *plan = gw_plan_name(bench->plan);
    if (!json) {
        char base[2][32] = {"-", "-"}; /* MPI has no such type */
        if (!isnan(r->baseline_us)) {
            snprintf(base[0], sizeof base[0], "%.0f", r->baseline_us);
            snprintf(base[1], sizeof base[1], "%.2f", speedup);
        }
        printf("%12zu %10.0f %10.0f %10s %8s %8.3f %8.3f %12llu %7.3f %10.3e %10.3e %s %s\n", bytes,
               r->time_us, r->raw_us, base[0], base[1], algbw, busbw,
               (unsigned long long)r->wire_bytes, r->ratio, r->error.rel_l2, r->error.max_err,
               r->identical ? "yes" : "NO", plan);
        fflush(stdout);
        return;
    }
    printf("{\"codec\": ");
    gw_json_string(stdout, bench->coder.spec);
    printf(", \"dtype\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"plan\": \"%s\", \"transport\": ",
           gw_dtype_name(bench->dtype), bench->size, bytes, plan);
    gw_json_string(stdout, bench->size > 1 ? gw_comm_describe(bench->comm, 1) : "none");
    gw_bench_json_number("time_us", r->time_us);
    gw_bench_json_number("raw_time_us", r->raw_us);
    gw_bench_json_number("baseline_time_us", r->baseline_us);
    gw_bench_json_number("speedup", speedup);
    gw_bench_json_number("algbw", algbw);
    gw_bench_json_number("busbw", busbw);
    printf(", \"wire_bytes\": %llu", (unsigned long long)r->wire_bytes);
    gw_bench_json_number("ratio", r->ratio);
    gw_bench_json_number("rel_l2", r->error.rel_l2);
    gw_bench_json_number("max_err", r->error.max_err);
    printf(", \"identical\": %s}\n", r->identical ? "true" : "false");
    fflush(stdout);
}

static void print_head(const gw_bench_t *bench, const options_t *o)
{
    FILE *out = o->json ? stderr : stdout;
    fprintf(out, "# gradwire %s, codec %s, %s, %d ranks, %s, kernels %s, base: %s\n", gw_version(),
            bench->coder.spec, gw_dtype_name(bench->dtype), bench->size,
            bench->size > 1 ? gw_comm_describe(bench->comm, 1) : "one rank", gw_kernel_tier(),
            bench->mpi->library_version());
    if (bench->size == 1)
        fprintf(out, "# one rank: there is nothing to send, communication is bypassed\n");
    if (!o->json)
        printf("#      bytes    time_us     raw_us    base_us  speedup    algbw    busbw   "
               "wire_bytes   ratio     "
               "rel_l2    max_err same plan\n#                 (us)       (us)       (us)  base/t  "
               "   GB/s     GB/s\n");
}

static bool allocate(gw_bench_t *bench, size_t bytes)
{
    free(bench->send);
    free(bench->recv);
    bench->send = malloc(bytes);
    bench->recv = malloc(bytes);
    bool ok = bench->send && bench->recv;
    return bench->mpi->max_double(ok ? 0.0 : 1.0) == 0.0;
}

/* One size; false when a call or the check failed. */
static bool run_size(gw_bench_t *bench, const options_t *o, size_t bytes)
{
    row_t row = {0};
    bench->elements = bytes / gw_dtype_size(bench->dtype);
    gw_call_t call_ = {GW_ALLREDUCE, bench->dtype, GW_SUM, bench->elements, NULL, NULL, 0};
    gw_comm_facts_t facts = {.size = bench->size};
    bench->plan = gw_decide(bench->context, &call_, &facts).plan;
    facts.mismatch = true; /* the plan of an uncompressed call */
    bench->raw_plan = gw_decide(bench->context, &call_, &facts).plan;
    char why[80];
    snprintf(why, sizeof why, "%zu bytes: %s", bytes,
             bench->elements ? "no memory" : "less than one element");
    if (!all_well(bench, bench->elements > 0 && allocate(bench, bytes), why))
        return false;
    gw_bench_fill(bench, bench->rank, 0, bench->elements, bench->send);
    bool ok = measure(bench, o, &row);
    if (!ok && speaks(bench))
        fprintf(stderr, "gradwire bench allreduce: %zu bytes: %s\n", bytes,
                gw_comm_error(bench->comm));
    if (ok && speaks(bench))
        print_row(bench, &row, o->json);
    ok = ok && (!o->timeline || draw(bench, o));
    if (ok && speaks(bench) && o->check && !(row.error.within && row.identical && row.raw_within))
        fprintf(stderr, "gradwire bench allreduce: %zu bytes: CHECK FAILED:%s%s%s\n", bytes,
                row.error.within ? "" : " error above the codec's bound",
                row.identical ? "" : " ranks differ",
                row.raw_within ? "" : " uncompressed plan wrong");
    return ok && row.identical && (!o->check || (row.error.within && row.raw_within));
}

int gw_cli_bench_allreduce(int argc, char **argv)
{
    options_t o;
    int stop = parse(argc, argv, &o);
    if (stop)
        return stop - 1;
    gw_bench_t bench = {.mpi = open_mpi()};
    if (!bench.mpi)
        return 1;
    bench.rank = bench.mpi->rank();
    bench.size = bench.mpi->size();
    bool ok = open_gradwire(&bench, &o);
    if (ok && speaks(&bench))
        print_head(&bench, &o);
    for (double bytes = (double)o.from; ok && bytes <= (double)o.to * 1.0000001; bytes *= o.factor)
        ok = run_size(&bench, &o, (size_t)bytes);
    ok = bench.mpi->max_double(ok ? 0.0 : 1.0) == 0.0;
    gw_comm_free(bench.comm);
    gw_context_free(bench.context);
    free(bench.send);
    free(bench.recv);
    bench.mpi->finalize();
    return ok ? 0 : 1;
}
