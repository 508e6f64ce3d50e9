/* SPDX-License-Identifier: Apache-2.0 */
/* The data of the all-reduce benchmark, and how far a result is from the exact sum. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_allreduce.h"

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

float gw_bench_element(int rank, size_t i)
{
    uint64_t h = mix(((uint64_t)rank << 48) + i * 0x9E3779B97F4A7C15u + 1);
    /* Four 16-bit uniforms: variance 4/12, so the factor makes it one. */
    float sum = (float)(h & 0xFFFF) + (float)(h >> 16 & 0xFFFF) + (float)(h >> 32 & 0xFFFF) +
                (float)(h >> 48);
    return (sum * (1.0f / 65536.0f) - 2.0f) * 1.7320508f;
}

/* binary16 and bfloat16 are served by the library's own frames: the raw codec narrows as it does on
 * the wire. */
static void narrow(const gw_coder_t *raw, const float *src, size_t count, gw_dtype_t dtype,
                   void *out)
{
    gw_encode_t in = {.src = src, .src_dtype = GW_F32, .wire_dtype = dtype, .count = count};
    size_t length;
    raw->family->encode(raw, &in, out, raw->family->bound(raw, dtype, count), &length);
}

static void widen(const gw_coder_t *raw, const void *src, size_t count, gw_dtype_t dtype,
                  float *out)
{
    gw_decode_t io = {.payload = src,
                      .length = count * gw_dtype_size(dtype),
                      .wire_dtype = dtype,
                      .count = count,
                      .mode = GW_DECODE_STORE,
                      .dst = out,
                      .dst_dtype = GW_F32};
    raw->family->decode(raw, &io);
}

void gw_bench_fill(const gw_bench_t *bench, int rank, size_t first, size_t count, void *out)
{
    float block[1024];
    size_t element = gw_dtype_size(bench->dtype);
    for (size_t done = 0; done < count;) {
        size_t n = count - done < 1024 ? count - done : 1024;
        for (size_t i = 0; i < n; i++)
            block[i] = gw_bench_element(rank, first + done + i);
        narrow(&bench->raw, block, n, bench->dtype, (uint8_t *)out + done * element);
        done += n;
    }
}

/* One block of elements: contributions, their bounds, the exact sum. */
typedef struct block {
    size_t n;
    float *x, *bound, *got;
    double *exact, *allowed;
    uint8_t *narrow;
} block_t;

static double half_ulp(gw_dtype_t dtype, double value)
{
    double unit = dtype == GW_F32 ? 0x1p-24 : dtype == GW_F16 ? 0x1p-11 : 0x1p-8;
    double smallest = dtype == GW_F16 ? 0x1p-25 : FLT_MIN;
    return fabs(value) * unit + smallest;
}

/* The declared error of n elements of a rank: of a sum of factors, which are the whole call. */
static void declare(const gw_coder_t *coder, const float *x, size_t n, float *bound)
{
    if (coder->family->factors)
        coder->family->factors->error_bound(coder, x, n, 0, bound);
    else
        coder->family->error_bound(coder, x, n, bound);
}

/* The end-to-end bound: each rank's push bound, the pull bound of the sum, the rounding of sum and
 * output. */
static void bound_block(const gw_bench_t *bench, const gw_coder_t *coder, gw_plan_kind_t plan,
                        size_t first, block_t *b)
{
    double magnitude = 0.0, pushed = 0.0;
    memset(b->exact, 0, b->n * sizeof *b->exact);
    memset(b->allowed, 0, b->n * sizeof *b->allowed);
    for (int r = 0; r < bench->size; r++) {
        gw_bench_fill(bench, r, first, b->n, b->narrow);
        widen(&bench->raw, b->narrow, b->n, bench->dtype, b->x);
        if (coder->family->error_bound)
            declare(coder, b->x, b->n, b->bound);
        else
            memset(b->bound, 0, b->n * sizeof *b->bound);
        for (size_t i = 0; i < b->n; i++) {
            b->exact[i] += b->x[i];
            b->allowed[i] += b->bound[i];
            magnitude = fmax(magnitude, fabs((double)b->x[i]));
            pushed = fmax(pushed, b->allowed[i]);
        }
    }
    for (size_t i = 0; i < b->n; i++)
        b->x[i] = (float)b->exact[i];
    if (coder->family->error_bound && plan == GW_PLAN_DIRECT)
        declare(coder, b->x, b->n, b->bound);
    else
        memset(b->bound, 0, b->n * sizeof *b->bound);
    /* What is pulled is the sum of decoded contributions: its range is wider than the exact one's
     * by what they lost, so its bound is too. */
    bool pulls = coder->family->error_bound && plan == GW_PLAN_DIRECT;
    double rounding = magnitude * bench->size * bench->size * 0x1p-23;
    for (size_t i = 0; i < b->n; i++)
        b->allowed[i] += b->bound[i] + (pulls ? pushed : 0.0) + rounding +
                         half_ulp(bench->dtype, fabs(b->exact[i]) + b->allowed[i]);
}

static bool allocate(block_t *b, size_t n)
{
    b->x = malloc(n * sizeof *b->x);
    b->bound = malloc(n * sizeof *b->bound);
    b->got = malloc(n * sizeof *b->got);
    b->exact = malloc(n * sizeof *b->exact);
    b->allowed = malloc(n * sizeof *b->allowed);
    b->narrow = malloc(n * sizeof(float));
    return b->x && b->bound && b->got && b->exact && b->allowed && b->narrow;
}

static void release(block_t *b)
{
    free(b->x);
    free(b->bound);
    free(b->got);
    free(b->exact);
    free(b->allowed);
    free(b->narrow);
}

bool gw_bench_compare(const gw_bench_t *bench, const gw_coder_t *coder, gw_plan_kind_t plan,
                      gw_bench_error_t *out)
{
    size_t grain = coder->family->grain(coder), step = grain * (grain < 4096 ? 4096 / grain : 1);
    if (coder->family->factors) /* the whole call is one matrix */
        step = bench->elements > 0 ? bench->elements : 1;
    block_t b = {0};
    bool ok = allocate(&b, step);
    double error2 = 0.0, norm2 = 0.0;
    *out = (gw_bench_error_t){.within = true};
    for (size_t first = 0; ok && first < bench->elements; first += step) {
        b.n = bench->elements - first < step ? bench->elements - first : step;
        bound_block(bench, coder, plan, first, &b);
        widen(&bench->raw, (const uint8_t *)bench->recv + first * gw_dtype_size(bench->dtype), b.n,
              bench->dtype, b.got);
        for (size_t i = 0; i < b.n; i++) {
            double error = fabs((double)b.got[i] - b.exact[i]);
            error2 += error * error;
            norm2 += b.exact[i] * b.exact[i];
            out->max_err = error > out->max_err ? error : out->max_err;
            if (!(error <= b.allowed[i]))
                out->within = false;
        }
    }
    out->rel_l2 = norm2 > 0.0 ? sqrt(error2 / norm2) : 0.0;
    release(&b);
    return ok;
}

bool gw_bench_identical(const gw_bench_t *bench)
{
    size_t bytes = bench->elements * gw_dtype_size(bench->dtype);
    const uint8_t *data = bench->recv;
    uint64_t hash[2] = {bytes, ~(uint64_t)bytes};
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, data + i, bytes - i < 8 ? bytes - i : 8);
        hash[0] = mix(hash[0] ^ word);
        hash[1] = (hash[1] ^ word) * 0x100000001B3u;
    }
    uint64_t *all = malloc((size_t)bench->size * sizeof hash);
    bool same = all && bench->mpi->allgather(NULL, hash, all, sizeof hash) == GW_OK;
    for (int r = 0; same && r < bench->size; r++)
        same = memcmp(all + 2 * r, hash, sizeof hash) == 0;
    free(all);
    return same;
}
