/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the CUDA kernels, as a share of a copy from device to device in the same run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_internal.h"
#include "device/device_pool.h"

enum { PEERS = 7, BUCKET = 512, PAIRS_MOST = 1000, BLOCK = 4096 };

/* ---- What is timed -----------------------------------------------------------------------------
 */

/* Device memory of the run, for `count` elements. */
typedef struct ground {
    gw_cuda_queue_t *queue;
    size_t count;
    float *src, *residual, *dst;
    uint8_t *payload[PEERS + 1];
    gw_cuda_result_t *result;
} ground_t;

static const gw_quant_spec_t q4 = {.bits = 4, .bucket = BUCKET, .zero = true};
static const gw_rotate_spec_t q4r = {.bits = 4, .block = BLOCK};
static const gw_topk_layout_t topk = {
    .log2_block = 16, .ratio = 42949673 /* 1 % */, .values = GW_TOPK_F32};
static const gw_sign_spec_t sign = {.bucket = BUCKET};

static gw_status_t encode_q4(const ground_t *g)
{
    return gw__cuda_quant.encode(g->queue, &q4, g->src, NULL, g->count, 0, 1, g->payload[0],
                                 g->result);
}

static gw_status_t encode_q4_ef(const ground_t *g)
{
    return gw__cuda_quant.encode(g->queue, &q4, g->src, g->residual, g->count, 0, 1, g->payload[0],
                                 g->result);
}

static gw_status_t add_q4(const ground_t *g)
{
    return gw__cuda_quant.add(g->queue, &q4, g->payload[1], g->count, g->dst, g->result);
}

static gw_status_t reduce_q4(const ground_t *g)
{
    const uint8_t *payload[PEERS];
    memcpy(payload, g->payload + 1, sizeof payload);
    gw_quant_sum_t sum = {
        .own = g->src, .own_at = 3, .payload = payload, .payloads = PEERS, .scale = 1};
    return gw__cuda_quant.reduce(g->queue, &q4, &sum, NULL, g->count, 0, 1, g->payload[0],
                                 g->result);
}

static gw_status_t encode_sign(const ground_t *g)
{
    return gw__cuda_sign.encode(g->queue, &sign, g->src, g->residual, g->count, g->payload[0],
                                g->result);
}

static gw_status_t narrow_bf16(const ground_t *g)
{
    return gw__cuda_cast.f32_to_bf16(g->queue, g->src, g->dst, g->count);
}

static gw_status_t widen_bf16(const ground_t *g)
{
    return gw__cuda_cast.bf16_to_f32(g->queue, g->src, g->dst, g->count);
}

static gw_status_t encode_q4r(const ground_t *g)
{
    return gw__cuda_rotate.encode(g->queue, &q4r, g->src, NULL, g->count, g->payload[0], g->result);
}

/* Words of its slots lie where a payload was that no later row reads. */
static gw_status_t encode_topk(const ground_t *g)
{
    return gw__cuda_topk.encode(g->queue, &topk, g->src, NULL, g->count, g->payload[0],
                                (uint32_t *)(void *)g->payload[1], g->result);
}

static gw_status_t add_sum(const ground_t *g)
{
    return gw__cuda_sum.add(g->queue, g->dst, g->src, g->count);
}

/* Bytes of payload per element, of whole buckets. */
static double of_q4(void)
{
    return (double)gw__quant_bytes(q4.bits, BUCKET) / BUCKET;
}

static double of_sign(void)
{
    return (double)gw__sign_bytes(BUCKET) / BUCKET;
}

static double of_q4r(void)
{
    return (double)gw__rotate_bytes(q4r.bits, BLOCK) / BLOCK;
}

static double of_topk(void)
{
    return (double)gw__topk_bytes(&topk, (size_t)1 << topk.log2_block) /
           (double)((size_t)1 << topk.log2_block);
}

/* Bytes that go to or come from memory per element: a payload `payloads` times, and the rest. */
typedef struct row {
    const char *name;
    gw_status_t (*launch)(const ground_t *ground);
    double (*payload)(void);
    double payloads, others;
    double aim; /* share of the copy's bytes per second; 0: none */
} row_t;

static const row_t rows[] = {
    {"q4 encode", encode_q4, of_q4, 1, 4, 0.85},
    {"q4 encode, residual", encode_q4_ef, of_q4, 1, 12, 0.85},
    {"q4 decode and add", add_q4, of_q4, 1, 8, 0.85},
    {"q4 sum of 8 and encode", reduce_q4, of_q4, PEERS + 1, 4, 0.85},
    {"sign encode, residual", encode_sign, of_sign, 1, 12, 0.85},
    {"cast to bf16", narrow_bf16, NULL, 0, 6, 0.85},
    {"cast from bf16", widen_bf16, NULL, 0, 6, 0.85},
    {"q4r encode", encode_q4r, of_q4r, 1, 4, 0.65},
    /* As if it read its elements once: it passes over them five times. */
    {"topk 1 % encode", encode_topk, of_topk, 1, 4, 0.50},
    {"sum", add_sum, NULL, 0, 12, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

static double bytes_of(const row_t *row)
{
    return row->others + (row->payload ? row->payloads * row->payload() : 0);
}

/* ---- The device --------------------------------------------------------------------------------
 */

typedef struct bench {
    const gw__driver_t *cu;
    gw__device_t *device;
    CUstream stream;
    gw__stream_t queue;
    CUevent event[3];
    CUdeviceptr memory;
    ground_t ground;
    size_t pairs;
    gw__why_t why;
} bench_t;

static bool failed(bench_t *b, gw_status_t status)
{
    if (status != GW_OK)
        fprintf(stderr, "bench_gpu: %s: %s\n", gw_status_text(status),
                b->queue.why.text[0] ? b->queue.why.text : b->why.text);
    return status != GW_OK;
}

#define CU(b, call, ...) failed(b, GW__CU((b)->cu, &(b)->why, call, __VA_ARGS__))

static bool open_device(bench_t *b)
{
    CUdevice device;
    CUcontext context;
    return failed(b, gw__driver_start(&b->cu, &b->why)) || CU(b, cuDeviceGet, &device, 0) ||
           CU(b, cuDevicePrimaryCtxRetain, &context, device) || CU(b, cuCtxSetCurrent, context) ||
           failed(b, gw__device_acquire(0, NULL, &b->device, &b->why)) ||
           CU(b, cuStreamCreate, &b->stream, CU_STREAM_NON_BLOCKING) ||
           failed(b, gw__device_queue(b->device, b->stream, &b->queue, &b->why)) ||
           CU(b, cuEventCreate, &b->event[0], CU_EVENT_DEFAULT) ||
           CU(b, cuEventCreate, &b->event[1], CU_EVENT_DEFAULT) ||
           CU(b, cuEventCreate, &b->event[2], CU_EVENT_DEFAULT);
}

static float normal(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (float)(*state >> 40) / (float)(1 << 24);
    }
    return sum - 6.0f;
}

/* Numbers like gradients: a normal law whose width changes from block to block. */
static bool fill(bench_t *b, CUdeviceptr to, uint64_t seed)
{
    enum { PART = 1 << 18 };
    float *part = malloc(PART * sizeof *part);
    bool bad = !part;
    for (size_t at = 0; at < b->ground.count && !bad; at += PART) {
        size_t n = b->ground.count - at < PART ? b->ground.count - at : PART;
        float width = ldexpf(1.0f, (int)(at / PART % 7) - 6);
        for (size_t i = 0; i < n && at < 4 * (size_t)PART; i++)
            part[i] = width * normal(&seed);
        bad = CU(b, cuMemcpyHtoD_v2, to + 4 * at, part, 4 * n);
    }
    free(part);
    return bad;
}

static void *as_pointer(CUdeviceptr at)
{
    return (void *)(uintptr_t)at;
}

/* One allocation: three arrays of elements, payloads that are no larger than elements, the words.
 */
static bool lay_out(bench_t *b)
{
    ground_t *g = &b->ground;
    size_t floats = (4 * g->count + 255) / 256 * 256, payload = (g->count + 255) / 256 * 256;
    if (CU(b, cuMemAlloc_v2, &b->memory, 3 * floats + (PEERS + 1) * payload + 256))
        return true;
    CUdeviceptr at = b->memory;
    g->queue = &b->queue.queue;
    g->src = as_pointer(at);
    g->residual = as_pointer(at + floats);
    g->dst = as_pointer(at + 2 * floats);
    for (int p = 0; p <= PEERS; p++)
        g->payload[p] = as_pointer(at + 3 * floats + (CUdeviceptr)p * payload);
    g->result = as_pointer(at + 3 * floats + (PEERS + 1) * payload);
    return CU(b, cuMemsetD8_v2, at, 0, 3 * floats + (PEERS + 1) * payload + 256) || fill(b, at, 1);
}

/* What the decoders read. */
static bool make_payloads(bench_t *b)
{
    ground_t *g = &b->ground;
    for (int p = 1; p <= PEERS; p++)
        if (failed(b, gw__cuda_quant.encode(g->queue, &q4, g->src, NULL, g->count, 0, (uint64_t)p,
                                            g->payload[p], g->result)))
            return true;
    return CU(b, cuStreamSynchronize, b->stream);
}

/* ---- Times -------------------------------------------------------------------------------------
 */

typedef struct figures {
    double gbps, copy_gbps, share;
} figures_t;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return values[n / 2];
}

static bool copy(bench_t *b)
{
    const ground_t *g = &b->ground;
    return CU(b, cuMemcpyDtoDAsync_v2, (CUdeviceptr)(uintptr_t)g->dst,
              (CUdeviceptr)(uintptr_t)g->src, 4 * g->count, b->stream);
}

/* A copy and the kernel, one behind the other in turn; milliseconds of the copy and of the kernel.
 */
static bool time_pair(bench_t *b, const row_t *row, bool kernel_first, float ms[2])
{
    const ground_t *g = &b->ground;
    return CU(b, cuEventRecord, b->event[0], b->stream) ||
           (kernel_first ? failed(b, row->launch(g)) : copy(b)) ||
           CU(b, cuEventRecord, b->event[1], b->stream) ||
           (kernel_first ? copy(b) : failed(b, row->launch(g))) ||
           CU(b, cuEventRecord, b->event[2], b->stream) || CU(b, cuEventSynchronize, b->event[2]) ||
           CU(b, cuEventElapsedTime, &ms[kernel_first], b->event[0], b->event[1]) ||
           CU(b, cuEventElapsedTime, &ms[!kernel_first], b->event[1], b->event[2]);
}

static bool measure(bench_t *b, const row_t *row, figures_t *out)
{
    enum { WARM = 3 };
    static double kernel[PAIRS_MOST], copy[PAIRS_MOST], share[PAIRS_MOST];
    double bytes = bytes_of(row) * (double)b->ground.count, copied = 8.0 * (double)b->ground.count;
    for (size_t i = 0; i < WARM + b->pairs; i++) {
        float ms[2];
        if (time_pair(b, row, i % 2, ms))
            return true;
        if (i < WARM)
            continue;
        /* The double's times may be 0. */
        copy[i - WARM] = copied / fmax(ms[0], 1e-6) * 1e-6;
        kernel[i - WARM] = bytes / fmax(ms[1], 1e-6) * 1e-6;
        share[i - WARM] = kernel[i - WARM] / copy[i - WARM];
    }
    *out = (figures_t){median(kernel, b->pairs), median(copy, b->pairs), median(share, b->pairs)};
    return false;
}

/* ---- Output ------------------------------------------------------------------------------------
 */

static void print_text(FILE *out, const row_t *row, const figures_t *f)
{
    fprintf(out, "%-24s %7.3f B/element %8.1f GB/s  copy %8.1f GB/s  share %5.2f", row->name,
            bytes_of(row), f->gbps, f->copy_gbps, f->share);
    if (row->aim > 0)
        fprintf(out, "  aim %.2f", row->aim);
    fprintf(out, "\n");
}

static void print_json(const row_t *row, const figures_t *f, bool first)
{
    printf("%s  {\"kernel\": \"%s\", \"bytes_per_element\": %.4f, \"gbps\": %.2f, \"copy_gbps\": "
           "%.2f, \"share\": %.4f, \"aim\": ",
           first ? "" : ",\n", row->name, bytes_of(row), f->gbps, f->copy_gbps, f->share);
    if (row->aim > 0)
        printf("%.2f}", row->aim);
    else
        printf("null}");
}

static bool run(bench_t *b, const char *only, bool json)
{
    char name[128] = "?";
    FILE *text = json ? stderr : stdout;
    if (CU(b, cuDeviceGetName, name, sizeof name, b->device->device))
        return true;
    if (json)
        printf("{\"device\": \"%s\", \"elements\": %zu, \"pairs\": %zu, \"rows\": [\n", name,
               b->ground.count, b->pairs);
    fprintf(text, "%s, %zu elements, medians of %zu pairs with a copy from device to device\n",
            name, b->ground.count, b->pairs);
    bool first = true;
    for (int i = 0; i < ROWS; i++) {
        figures_t f;
        if (only && !strstr(rows[i].name, only))
            continue;
        if (measure(b, &rows[i], &f))
            return true;
        if (json)
            print_json(&rows[i], &f, first);
        print_text(text, &rows[i], &f);
        fflush(stdout);
        first = false;
    }
    if (json)
        printf("\n]}\n");
    return false;
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_gpu [--json] [--count ELEMENTS] [--pairs N] [KERNEL]\n"
                    "  64 Mi elements and 31 pairs by default; KERNEL: a part of a kernel's name\n"
                    "  --json: to stdout, and the text to stderr\n");
    return 2;
}

int main(int argc, char **argv)
{
    static bench_t b = {.pairs = 31, .ground = {.count = (size_t)1 << 26}};
    const char *only = NULL;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            json = true;
        else if (!strcmp(argv[i], "--count") && i + 1 < argc)
            b.ground.count = (size_t)strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--pairs") && i + 1 < argc)
            b.pairs = (size_t)strtoull(argv[++i], NULL, 10);
        else if (argv[i][0] == '-' || only)
            return usage();
        else
            only = argv[i];
    }
    if (b.ground.count < BLOCK || b.ground.count > (size_t)1 << 30 || b.ground.count % BLOCK ||
        b.pairs < 1 || b.pairs > PAIRS_MOST)
        return usage();
    return open_device(&b) || lay_out(&b) || make_payloads(&b) || run(&b, only, json);
}
