/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the quant, cast and sum kernels of every tier beside memcpy, in GB/s of binary32 input.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels.h"

enum { ROUNDS = 9 };

static float *src, *dst, *residual;
static uint8_t *payload;
static size_t count;
static gw_quant_spec_t spec;
static const gw_kernels_t *tier;

static void run_memcpy(void)
{
    memcpy(dst, src, count * sizeof *src);
}

static void run_encode(void)
{
    tier->quant.encode(&spec, src, NULL, count, 0, 1, payload);
}

static void run_encode_ef(void)
{
    tier->quant.encode(&spec, src, residual, count, 0, 1, payload);
}

static void run_valid(void)
{
    if (!tier->quant.valid(&spec, payload, count))
        exit(1);
}

static void run_store(void)
{
    run_valid();
    tier->quant.store(&spec, payload, count, dst);
}

static void run_add(void)
{
    run_valid();
    tier->quant.add(&spec, payload, count, dst);
}

static void run_sum(void)
{
    tier->sum.add(dst, src, count);
}

static void run_bf16(void)
{
    tier->cast.f32_to_bf16(src, payload, count);
}

static void run_f16(void)
{
    tier->cast.f32_to_f16(src, payload, count);
}

/* Processor time of this thread: what other programs take of a shared machine does not count. */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double rate_once(void (*f)(void))
{
    size_t bytes = count * sizeof *src, repeat = 1 + ((size_t)64 << 20) / bytes / 2;
    double start = seconds();
    for (size_t i = 0; i < repeat; i++)
        f();
    return 1e-9 * (double)(bytes * repeat) / (seconds() - start);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x)
{
    qsort(x, ROUNDS, sizeof *x, compare);
    return x[ROUNDS / 2];
}

/* Medians of the rounds, each beside a memcpy of the same size. */
static void line(const char *what, void (*f)(void))
{
    double rate[ROUNDS], copy[ROUNDS], ratio[ROUNDS];
    f();
    for (int r = 0; r < ROUNDS; r++) {
        copy[r] = rate_once(run_memcpy);
        rate[r] = rate_once(f);
        ratio[r] = rate[r] / copy[r];
    }
    printf("%-5s %-22s %7.2f GB/s  memcpy %6.2f GB/s  %5.2f x\n", tier->tier, what, median(rate),
           median(copy), median(ratio));
}

static void bench_quant(unsigned bits, bool stochastic)
{
    char what[64];
    const char *kind = stochastic ? " stochastic" : "";
    spec = (gw_quant_spec_t){bits, 512, stochastic, true};
    memset(residual, 0, count * sizeof *residual);
    snprintf(what, sizeof what, "q%u%s encode", bits, kind);
    line(what, run_encode);
    snprintf(what, sizeof what, "q%u%s encode ef", bits, kind);
    line(what, run_encode_ef);
    if (stochastic)
        return;
    snprintf(what, sizeof what, "q%u valid + store", bits);
    line(what, run_store);
    snprintf(what, sizeof what, "q%u valid + add", bits);
    line(what, run_add);
}

static void fill(void)
{
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        float x = -2.0f;
        for (int k = 0; k < 4; k++) {
            state = state * 1664525u + 1013904223u;
            x += (float)(state >> 8) * 0x1p-24f;
        }
        src[i] = x * 1e-3f;
    }
    memset(dst, 0, count * sizeof *dst);
    memset(payload, 0, 2 * count + 4096);
}

/* bench_kernels [MiB of input, 64 by default] */
int main(int argc, char **argv)
{
    double mib = argc > 1 ? atof(argv[1]) : 64;
    count = (size_t)(mib * 262144);
    if (count < 4096 || count > (size_t)1 << 32) {
        fprintf(stderr, "usage: bench_kernels [MiB of input, 0.016 to 16384]\n");
        return 2;
    }
    src = aligned_alloc(4096, count * 4 / 4096 * 4096 + 4096);
    dst = aligned_alloc(4096, count * 4 / 4096 * 4096 + 4096);
    residual = aligned_alloc(4096, count * 4 / 4096 * 4096 + 4096);
    payload = malloc(2 * count + 4096);
    if (!src || !dst || !residual || !payload)
        return 1;
    fill();
    printf("%.3g MiB\n", mib);
    for (size_t i = 0; gw__kernels_available(i); i++) {
        tier = gw__kernels_of(gw__kernels_available(i));
        static const unsigned widths[] = {4, 8, 2, 1, 3};
        for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
            bench_quant(widths[k], false);
        bench_quant(4, true);
        line("sum add", run_sum);
        line("f32 to bf16", run_bf16);
        line("f32 to f16", run_f16);
    }
    return 0;
}
