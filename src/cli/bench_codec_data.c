/* SPDX-License-Identifier: Apache-2.0 */
/* The data of the codec benchmark: two laws whose element i is the same wherever it is made, and
 * recorded gradients. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <string.h>

#include "bench_codec.h"

enum { BLOCK = 4096, SCALE_BLOCK = 1 << 16, ROW = 256 };

/* The finaliser of splitmix64: 64 good bits for each counter. */
static uint64_t mix(uint64_t counter)
{
    uint64_t z = (counter + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Streams that do not meet: elements, zeros, rows and scales have a counter range each. */
static double uniform(uint64_t stream, uint64_t i)
{
    return ((double)(mix(stream << 56 ^ i) >> 11) + 0.5) * 0x1p-53;
}

/* A pair of independent N(0,1) from a pair of counters, by Box and Muller. */
static void normal_pair(uint64_t stream, uint64_t pair, float out[2])
{
    float radius = sqrtf(-2.0f * logf((float)uniform(stream, 2 * pair)));
    float sine, cosine;
    sincosf((float)(6.283185307179586 * uniform(stream, 2 * pair + 1)), &sine, &cosine);
    out[0] = radius * cosine;
    out[1] = radius * sine;
}

static void fill_normal(size_t first, size_t count, float *out)
{
    float pair[2];
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || (first + i) % 2 == 0)
            normal_pair(0, (first + i) / 2, pair);
        out[i] = pair[(first + i) % 2];
    }
}

/* Student-t with 4 degrees of freedom, by Bailey's polar method (1994). */
static float student(uint64_t i)
{
    double radius = sqrt(4.0 * (1.0 / sqrt(uniform(1, 2 * i)) - 1.0));
    return (float)(radius * cos(6.283185307179586 * uniform(1, 2 * i + 1)));
}

/* The law that gw_bench_source_describe tells. */
static void fill_gradient(size_t first, size_t count, float *out)
{
    float scale[2];
    for (size_t i = 0; i < count; i++) {
        size_t at = first + i;
        if (i == 0 || at % SCALE_BLOCK == 0) {
            normal_pair(4, at / SCALE_BLOCK, scale);
            scale[0] = 1e-3f * expf(scale[0]);
        }
        bool zero = mix((uint64_t)3 << 56 ^ at / ROW) % 8 == 0 || uniform(2, at) < 0.005;
        out[i] = zero ? 0.0f : scale[0] * student(at);
    }
}

bool gw_bench_source_open(const char *name, gw_bench_source_t *out, char *why, size_t size)
{
    bool normal = strcmp(name, "normal") == 0, gradient = strcmp(name, "gradient") == 0;
    *out = (gw_bench_source_t){.kind = normal     ? GW_BENCH_NORMAL
                                       : gradient ? GW_BENCH_GRADIENT
                                                  : GW_BENCH_FILE,
                               .name = name,
                               .file.fd = -1};
    return out->kind != GW_BENCH_FILE || gw_bench_file_open(name, &out->file, why, size);
}

void gw_bench_source_close(gw_bench_source_t *source)
{
    if (source->kind == GW_BENCH_FILE)
        gw_bench_file_close(&source->file);
}

void gw_bench_source_describe(const gw_bench_source_t *source, size_t count, char *out, size_t size)
{
    const gw_bench_file_t *file = &source->file;
    if (source->kind == GW_BENCH_NORMAL)
        snprintf(out, size, "normal: N(0,1)");
    else if (source->kind == GW_BENCH_GRADIENT)
        snprintf(out, size,
                 "gradient: Student-t(4), scale 1e-3 exp(N(0,1)) per 65536 elements; exactly 0 are "
                 "one element in 200 and one row of 256 in 8");
    else
        snprintf(out, size, "%.200s: %s of %zu %s, %s", source->name, file->npy ? "npy" : "raw",
                 file->count, file->dtype == GW_F32 ? "float32" : "float16",
                 count < file->count   ? "the first ones"
                 : count > file->count ? "again from the start where it ends"
                                       : "all");
}

void gw_bench_widen(gw_dtype_t dtype, const void *src, size_t count, float *dst)
{
    gw_coder_t raw;
    gw_coder_parse("raw", &raw, NULL, 0);
    gw_decode_t io = {.payload = src,
                      .length = count * gw_dtype_size(dtype),
                      .wire_dtype = dtype,
                      .count = count,
                      .mode = GW_DECODE_STORE,
                      .dst = dst,
                      .dst_dtype = GW_F32};
    raw.family->decode(&raw, &io);
}

/* To the element type of the benchmark, as codec raw puts elements on the wire. */
static void narrow(gw_dtype_t dtype, const float *src, size_t count, void *dst)
{
    gw_coder_t raw;
    gw_coder_parse("raw", &raw, NULL, 0);
    gw_encode_t in = {.src = src, .src_dtype = GW_F32, .wire_dtype = dtype, .count = count};
    size_t length;
    raw.family->encode(&raw, &in, dst, count * gw_dtype_size(dtype), &length);
}

/* One block of a file, which begins anew where it ends. */
static bool read_block(const gw_bench_source_t *source, size_t first, size_t count, float *out,
                       char *why, size_t size)
{
    const gw_bench_file_t *file = &source->file;
    float block[BLOCK];
    for (size_t done = 0; done < count;) {
        size_t at = (first + done) % file->count;
        size_t n = count - done < file->count - at ? count - done : file->count - at;
        if (!gw_bench_file_read(file, at, n, block)) {
            snprintf(why, size, "%.400s: %s", source->name,
                     errno ? strerror(errno) : "became shorter while it was read");
            return false;
        }
        gw_bench_widen(file->dtype, block, n, out + done);
        for (size_t i = 0; i < n; i++)
            if (!isfinite(out[done + i])) {
                snprintf(
                    why, size,
                    "%.400s: element %zu is %s; a step whose gradients are all finite is needed",
                    source->name, at + i, isnan(out[done + i]) ? "a NaN" : "infinite");
                return false;
            }
        done += n;
    }
    return true;
}

/* A finite value may be beyond what a 16-bit type holds. */
static bool holds(const gw_bench_source_t *source, gw_dtype_t dtype, size_t first, const void *dst,
                  const float *given, size_t count, char *why, size_t size)
{
    float back[BLOCK];
    gw_bench_widen(dtype, dst, count, back);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(back[i])) {
            snprintf(why, size, "%.400s: element %zu is %g, which %s cannot hold; --dtype f32 can",
                     source->name, (first + i) % source->file.count, (double)given[i],
                     gw_dtype_name(dtype));
            return false;
        }
    return true;
}

bool gw_bench_source_fill(const gw_bench_source_t *source, gw_dtype_t dtype, size_t count,
                          void *dst, char *why, size_t size)
{
    float block[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = count - first < BLOCK ? count - first : BLOCK;
        void *to = (uint8_t *)dst + first * gw_dtype_size(dtype);
        if (source->kind == GW_BENCH_NORMAL)
            fill_normal(first, n, block);
        else if (source->kind == GW_BENCH_GRADIENT)
            fill_gradient(first, n, block);
        else if (!read_block(source, first, n, block, why, size))
            return false;
        narrow(dtype, block, n, to);
        if (source->kind == GW_BENCH_FILE && dtype != GW_F32 &&
            !holds(source, dtype, first, to, block, n, why, size))
            return false;
    }
    return true;
}
