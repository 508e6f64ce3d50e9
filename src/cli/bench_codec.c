/* SPDX-License-Identifier: Apache-2.0 */
/* `gradwire bench codec`: speed beside memcpy, size and error of every codec, kernel tier and kind
 * of data. */
#include "bench_codec.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "bench_codec_print.h"
#include "bench_tools.h"

enum { TIERS_MAX = 16, USAGE = 2 };

typedef struct options {
    const char *kernels; /* NULL: the setting */
    const char *data, *size;
    gw_dtype_t dtype;
    size_t bytes; /* 0: not given */
    int repeats;
    enum { PEERS_AUTO, PEERS_ON, PEERS_OFF } peers;
    bool json, all; /* all: every codec, so that one may be unable to take the type */
} options_t;

/* The codecs of a run, in the order of the command line. */
typedef struct coders {
    gw_coder_t *item;
    size_t count;
    int width; /* of the longest spec */
} coders_t;

static void usage(FILE *out)
{
    fputs(
        "usage: gradwire bench codec [OPTIONS]\n"
        "  --codec LIST     codecs as `gradwire info` lists them, separated by commas, or all "
        "(all);\n"
        "                   may be repeated\n"
        "  --size SIZE      bytes of input, like 64K, 64M or 1G (64M; of a file: all of it)\n"
        "  --data WHAT      normal, gradient, or a file: .npy of float32 or float16, or raw "
        "little-endian\n"
        "                   float32; cut, or begun anew at its end, to fill --size (normal)\n"
        "  --dtype TYPE     f32, f16, bf16: what the input is narrowed to first (f32)\n"
        "  --kernels TIER   a tier by name, best, or all that run here (GRADWIRE_KERNELS)\n"
        "  --repeat COUNT   pairs of memcpy and operation that are measured (11)\n"
        "  --peers on|off   rows of lz4, zstd, blosc and zfp, those that this machine has (on with "
        "all codecs)\n"
        "  --json           one JSON object per codec and tier on stdout, the table on stderr\n"
        "\n"
        "Every figure is the median over pairs: memcpy of the input, then the operation, in "
        "processor time of\n"
        "the one thread that computes, on warm buffers; at least 2 ms each. An operation that has "
        "taken more\n"
        "than a second is not repeated further (3 pairs at least). wire bytes: one frame with its "
        "header.\n"
        "encode ef: with the residual of the step before. decode-add: into float32 sums. own + 7: "
        "own input and\n"
        "seven peers' payloads, summed and encoded in one pass, where the codec has that.\n"
        "Exit status: 1 when a codec fails or breaks its declared bound, 2 for wrong usage or a "
        "file "
        "that cannot be used.\n",
        out);
}

/* One sentence on stderr; returns `status`. */
static int GW_PRINTF(2, 3) complain(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("gradwire bench codec: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return status;
}

/* ---- The command line ------------------------------------------------------------------------ */

static bool add_coder(coders_t *coders, const gw_coder_t *coder)
{
    gw_coder_t *more = realloc(coders->item, (coders->count + 1) * sizeof *more);
    if (!more)
        return false;
    coders->item = more;
    coders->item[coders->count++] = *coder;
    int width = (int)strlen(coder->spec);
    coders->width = width > coders->width ? width : coders->width;
    return true;
}

/* Every name of a family that is a codec by itself; a family without one would be forgotten, so
 * that is an error. */
static int add_family(coders_t *coders, const gw_codec_t *family)
{
    char why[256] = "it has no names";
    size_t before = coders->count;
    gw_coder_t coder;
    for (const char *at = NULL;
         (at = gw_cli_next_codec(family, at, &coder, why, sizeof why)) != NULL;)
        if (!add_coder(coders, &coder))
            return complain(1, "out of memory");
    if (coders->count == before)
        return complain(1, "--codec all: family %s lists '%.60s', and none of that is a codec: %s",
                        family->family, family->names, why);
    return 0;
}

static int add_codec(options_t *o, coders_t *coders, const char *spec)
{
    const gw_codec_t *family;
    gw_coder_t coder;
    char why[512] = "";
    if (strcmp(spec, "all") == 0) {
        int status = 0;
        o->all = true;
        for (size_t i = 0; status == 0 && (family = gw_codec_at(i)); i++)
            status = add_family(coders, family);
        return status;
    }
    if (gw_coder_parse(spec, &coder, why, sizeof why) != GW_OK)
        return complain(USAGE, "--codec %.200s: %s", spec, why);
    return add_coder(coders, &coder) ? 0 : complain(1, "out of memory");
}

/* "q4,q8:bucket=64,ef=off,raw": a comma begins a codec, unless what follows is a parameter. */
static int add_codecs(options_t *o, coders_t *coders, char *list)
{
    int status = 0;
    for (char *spec = list, *next; status == 0 && spec; spec = next) {
        next = strchr(spec, ',');
        while (next && next[1 + strcspn(next + 1, ",:=")] == '=')
            next = strchr(next + 1, ',');
        if (next)
            *next++ = '\0';
        status = add_codec(o, coders, spec);
    }
    return status;
}

static int parse_dtype(const char *text, gw_dtype_t *out)
{
    if (gw_dtype_parse(text, out) == GW_OK && *out != GW_F64)
        return 0;
    return complain(USAGE, "--dtype %.100s: must be f32, f16 or bf16", text);
}

static int parse_size(const char *text, options_t *o)
{
    o->size = text;
    if (gw_bench_parse_size(text, &o->bytes) && o->bytes > 0)
        return 0;
    return complain(
        USAGE, "--size %.100s: must be a number of bytes above 0, like 4096, 64K, 64M or 1G", text);
}

static int parse_option(int c, options_t *o, coders_t *coders)
{
    switch (c) {
    case 'c':
        return add_codecs(o, coders, optarg);
    case 's':
        return parse_size(optarg, o);
    case 'd':
        o->data = optarg;
        return 0;
    case 't':
        return parse_dtype(optarg, &o->dtype);
    case 'k':
        o->kernels = optarg;
        return 0;
    case 'r':
        if (gw_bench_parse_count(optarg, 1, &o->repeats) && o->repeats <= 10000)
            return 0;
        return complain(USAGE, "--repeat %.100s: must be a whole number from 1 to 10000", optarg);
    case 'p':
        o->peers = strcmp(optarg, "on") == 0 ? PEERS_ON : PEERS_OFF;
        if (o->peers == PEERS_ON || strcmp(optarg, "off") == 0)
            return 0;
        return complain(USAGE, "--peers %.100s: must be on or off", optarg);
    case 'j':
        o->json = true;
        return 0;
    default:
        return complain(USAGE, "--help tells the options");
    }
}

/* 0: go on; otherwise exit status + 1. */
static int parse(int argc, char **argv, options_t *o, coders_t *coders)
{
    static const struct option longs[] = {
        {"codec", 1, 0, 'c'},   {"size", 1, 0, 's'},   {"data", 1, 0, 'd'}, {"dtype", 1, 0, 't'},
        {"kernels", 1, 0, 'k'}, {"repeat", 1, 0, 'r'}, {"json", 0, 0, 'j'}, {"peers", 1, 0, 'p'},
        {"help", 0, 0, 'h'},    {0, 0, 0, 0}};
    static char name[] = "gradwire bench codec";
    int status = 0;
    *o = (options_t){.data = "normal", .dtype = GW_F32, .repeats = 11};
    argv[0] = name; /* getopt's messages begin with it */
    optind = 1;
    for (int c; status == 0 && (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (c == 'h') {
            usage(stdout);
            return 1;
        }
        status = parse_option(c, o, coders);
    }
    if (status == 0 && optind < argc)
        status = complain(USAGE, "%.100s: no argument is expected here (--help)", argv[optind]);
    if (status == 0 && coders->count == 0) {
        o->all = true;
        status = add_codec(o, coders, "all");
    }
    if (o->peers == PEERS_AUTO && !o->all)
        o->peers = PEERS_OFF;
    return status ? status + 1 : 0;
}

/* Elements of the run, from --size or from the file. */
static int choose_count(const options_t *o, const gw_bench_source_t *source, size_t *count)
{
    size_t element = gw_dtype_size(o->dtype);
    size_t whole =
        source->kind == GW_BENCH_FILE ? source->file.count : ((size_t)64 << 20) / element;
    *count = o->bytes ? o->bytes / element : whole;
    if (o->bytes % element)
        return complain(USAGE,
                        "--size %.100s: must be a multiple of the %zu bytes of an element of %s",
                        o->size, element, gw_dtype_name(o->dtype));
    return 0;
}

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* Bytes that the system can still give without swapping; SIZE_MAX when it does not say. */
static size_t memory_left(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    size_t kib = SIZE_MAX >> 10;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %zu kB", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib << 10;
}

static void *pages(size_t bytes)
{
    size_t whole = (bytes + 4095) / 4096 * 4096;
    return whole < bytes ? NULL : aligned_alloc(4096, whole);
}

static void choose_library_room(gw_bench_codec_t *bench)
{
    const gw_bench_library_t *library;
    for (size_t i = 0; (library = gw_bench_library_at(i)); i++)
        if (gw_bench_library_takes(library, bench->dtype, bench->bytes)) {
            size_t bound = library->bound(library, bench->bytes);
            bench->capacity = bound > bench->capacity ? bound : bench->capacity;
        }
}

static void choose_room(gw_bench_codec_t *bench, const coders_t *coders)
{
    for (size_t i = 0; i < coders->count; i++) {
        size_t bound = gw_frame_bound(&coders->item[i], bench->dtype, bench->count);
        bench->capacity = bound > bench->capacity ? bound : bench->capacity;
        if (coders->item[i].family->reduce && bound > bench->peer_room)
            bench->peer_room = (bound + 4095) / 4096 * 4096;
    }
}

/* What does not fit is refused before it is tried: Linux would promise the memory and end the
 * process when it is used. The peers' payloads are left out first. */
static int allocate(gw_bench_codec_t *bench, const coders_t *coders, bool libraries)
{
    choose_room(bench, coders);
    if (libraries)
        choose_library_room(bench);
    double left = (double)memory_left();
    double need = (double)bench->bytes + (double)bench->capacity + 8.0 * (double)bench->count;
    double peers = (double)bench->peer_room * (GW_BENCH_PEERS + 1);
    if (need < left && need + peers >= left) {
        complain(0,
                 "own + %d is left out: with it %.1f GiB of memory are needed, and %.1f are free",
                 GW_BENCH_PEERS, (need + peers) / 0x1p30, left / 0x1p30);
        bench->peer_room = 0;
    }
    if (need < left) {
        bench->src = pages(bench->bytes);
        bench->out = pages(bench->count * sizeof *bench->out);
        bench->residual = pages(bench->count * sizeof *bench->residual);
        bench->frame = pages(bench->capacity);
        bench->peers = pages(bench->peer_room * (GW_BENCH_PEERS + 1) + 1); /* 0 may give NULL */
    }
    if (bench->src && bench->out && bench->residual && bench->frame && bench->peers)
        return 0;
    return complain(1,
                    "%zu bytes of input need %.1f GiB of memory, and %.1f GiB are free here; a "
                    "smaller --size is needed",
                    bench->bytes, need / 0x1p30, left / 0x1p30);
}

static void release(gw_bench_codec_t *bench)
{
    free(bench->src);
    free(bench->out);
    free(bench->residual);
    free(bench->frame);
    free(bench->peers);
}

/* ---- The run -----------------------------------------------------------------------------------
 */

/* A context chooses the kernels; those after the first one have nothing new to warn of. */
static int use_tier(const options_t *o, const char *tier, bool again, gw_context_t **context)
{
    char why[512] = "";
    gw_setting_t overrides[3] = {{"GRADWIRE_STATS", ""}};
    size_t count = 1;
    if (again)
        overrides[count++] = (gw_setting_t){"GRADWIRE_LOG", "off"};
    if (tier)
        overrides[count++] = (gw_setting_t){"GRADWIRE_KERNELS", tier};
    if (gw_context_create(overrides, count, context, why, sizeof why) == GW_OK)
        return 0;
    return o->kernels ? complain(USAGE, "--kernels %.100s: %s", o->kernels, why)
                      : complain(1, "%s", why);
}

/* The names of the tiers to run; NULL is the setting's. */
static size_t list_tiers(const options_t *o, const char *tiers[TIERS_MAX])
{
    bool available;
    size_t count = 0;
    const char *tier;
    if (!o->kernels || strcmp(o->kernels, "all") != 0) {
        tiers[0] = o->kernels;
        return 1;
    }
    for (size_t i = 0; count < TIERS_MAX && (tier = gw_kernel_tier_at(i, &available)); i++)
        if (available)
            tiers[count++] = tier;
    return count;
}

static int show(const gw_bench_codec_t *bench, const options_t *o, int width,
                const gw_bench_row_t *row)
{
    gw_bench_print_row(o->json ? stderr : stdout, bench, row, width);
    if (o->json)
        gw_bench_print_json(bench, row, o->data);
    return ferror(stdout) ? complain(1, "standard output cannot be written") : 0;
}

/* One row; `row` is complete when the result is 0 or the bound is broken. */
static int run_codec(gw_bench_codec_t *bench, const options_t *o, int width, gw_bench_row_t *row)
{
    const char *spec = bench->coder->spec, *tier = gw_kernel_tier();
    gw_status_t status = gw_bench_codec_check(bench, row);
    if (status == GW_OK)
        status = gw_bench_codec_time(bench, o->repeats, row);
    if (status == GW_OK)
        status = gw_bench_codec_factors(bench, o->repeats, &row->factors);
    if (status == GW_ERR_UNSUPPORTED && o->all && bench->dtype != GW_F32)
        return complain(0, "%s does not take %s and is left out", spec,
                        gw_dtype_name(bench->dtype));
    if (status != GW_OK)
        return complain(1, "%s on kernels %s: %s", spec, tier, gw_status_text(status));
    if (show(bench, o, width, row) != 0)
        return 1;
    if (!row->within)
        return complain(1,
                        "%s on kernels %s: what was decoded is outside of the codec's declared "
                        "error bound",
                        spec, tier);
    if (!row->reduce_same)
        return complain(1,
                        "%s on kernels %s: reducing in one pass writes other bytes than its steps",
                        spec, tier);
    return 0;
}

/* One codec on all tiers, which must write the same bytes. */
static int run_tiers(gw_bench_codec_t *bench, const options_t *o, int width)
{
    const char *tiers[TIERS_MAX];
    size_t count = list_tiers(o, tiers);
    uint64_t first = 0;
    int result = 0;
    for (size_t t = 0; t < count && !ferror(stdout); t++) {
        gw_bench_row_t row = {0};
        gw_context_t *context = NULL;
        int status = use_tier(o, tiers[t], true, &context);
        if (status == 0)
            status = run_codec(bench, o, width, &row);
        if (t == 0)
            first = row.frame_hash;
        else if (status == 0 && row.frame_hash != first)
            status = complain(1, "%s: kernels %s and %s write different bytes", bench->coder->spec,
                              tiers[0], tiers[t]);
        gw_context_free(context);
        result = status > result ? status : result;
    }
    return result;
}

/* A codec that fails does not keep the others from being shown. */
static int run_all(gw_bench_codec_t *bench, const options_t *o, const coders_t *coders)
{
    int result = 0;
    for (size_t i = 0; i < coders->count && !ferror(stdout); i++) {
        bench->coder = &coders->item[i];
        int status = run_tiers(bench, o, coders->width);
        result = status > result ? status : result;
    }
    return result;
}

static int run_library(gw_bench_codec_t *bench, const options_t *o, int width)
{
    gw_bench_row_t row = {0};
    const char *name = bench->library->name;
    gw_status_t status = gw_bench_codec_check(bench, &row);
    if (status == GW_OK)
        status = gw_bench_codec_time(bench, o->repeats, &row);
    if (status != GW_OK)
        return complain(1, "peer %s: %s", name, gw_status_text(status));
    int result = show(bench, o, width, &row);
    if (result == 0 && !row.within)
        result = complain(1, "peer %s does not give back what it was given", name);
    return result;
}

/* The names of those that are not here; nothing when all are. */
static void tell_absent(FILE *out)
{
    const gw_bench_library_t *library, *earlier;
    bool any = false;
    for (size_t i = 0; (library = gw_bench_library_at(i)); i++) {
        bool again = false;
        for (size_t j = 0; j < i; j++) {
            earlier = gw_bench_library_at(j);
            again |= earlier->open == library->open;
        }
        if (again || library->open())
            continue;
        fprintf(out, "%s %.*s",
                any ? "," : "# not on this machine:", (int)strcspn(library->name, ":+"),
                library->name);
        any = true;
    }
    if (any)
        fputc('\n', out);
}

/* Behind the codecs; not being there is no failure. */
static int run_libraries(gw_bench_codec_t *bench, const options_t *o, int width)
{
    int result = 0;
    for (size_t i = 0; (bench->library = gw_bench_library_at(i)) && !ferror(stdout); i++)
        if (gw_bench_library_takes(bench->library, bench->dtype, bench->bytes)) {
            int status = run_library(bench, o, width);
            result = status > result ? status : result;
        }
    tell_absent(o->json ? stderr : stdout);
    return result;
}

static int run(const options_t *o, const coders_t *coders, const gw_bench_source_t *source)
{
    char text[512] = "";
    gw_bench_codec_t bench = {.dtype = o->dtype};
    int status = choose_count(o, source, &bench.count);
    if (status)
        return status;
    bench.bytes = bench.count * gw_dtype_size(o->dtype);
    status = allocate(&bench, coders, o->peers != PEERS_OFF);
    if (status == 0 &&
        !gw_bench_source_fill(source, o->dtype, bench.count, bench.src, text, sizeof text))
        status = complain(USAGE, "--data %s", text);
    if (status == 0) {
        gw_bench_source_describe(source, bench.count, text, sizeof text);
        gw_bench_print_head(o->json ? stderr : stdout, &bench, text, o->repeats, coders->width);
        status = run_all(&bench, o, coders);
        int peers = o->peers != PEERS_OFF ? run_libraries(&bench, o, coders->width) : 0;
        status = peers > status ? peers : status;
    }
    release(&bench);
    return status;
}

int gw_cli_bench_codec(int argc, char **argv)
{
    options_t o;
    coders_t coders = {.width = 12};
    gw_bench_source_t source;
    gw_context_t *context = NULL;
    char why[1024] = "";
    int status = parse(argc, argv, &o, &coders);
    if (status) {
        free(coders.item);
        return status - 1;
    }
    /* Before any work: bad settings, and a tier that cannot run. */
    bool all_tiers = o.kernels && strcmp(o.kernels, "all") == 0;
    status = use_tier(&o, all_tiers ? "best" : o.kernels, false, &context);
    gw_context_free(context);
    if (status == 0) {
        if (!gw_bench_source_open(o.data, &source, why, sizeof why))
            status = complain(USAGE, "--data %s", why);
        else {
            status = run(&o, &coders, &source);
            gw_bench_source_close(&source);
        }
    }
    free(coders.item);
    return status;
}
