/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the kernel checker for the family natural. */
#include "kernel_bodies_natural.h"

#include <string.h>

#include "bytes.h"

enum { TILE = 16384 }; /* a bench repeats this much: it is not about data */

/* Every width (1: powers of two), rule, bucket and option; data and count by chance, tails
 * included. */
void natural_draw(kernel_call_t *c)
{
    static const unsigned buckets[] = {32, 512, 64, 96, 160, 288, 1024, 4096};
    static const size_t counts[] = {0, 1, 2, 31, 32, 33, 511, 512, 513, 544, 4097};
    uint64_t seed = c->seed;
    size_t options = c->number / 80;
    c->spec = (gw_quant_spec_t){
        .bits = (unsigned)(c->number % 5) + 1,
        .bucket = buckets[c->number / 10 % 8],
        .stochastic = options & 1,
    };
    c->ef = options & 2;
    c->fill = (test_fill_t)(gw_test_random(&seed) % FILL_COUNT);
    c->count = counts[gw_test_random(&seed) % (sizeof counts / sizeof *counts)];
    if (gw_test_random(&seed) % 2)
        c->count = gw_test_random(&seed) % (c->spec.bucket > 1000 ? 9000 : 7 * c->spec.bucket);
    c->payloads = 1;
    c->scale = 1.0f;
}

static gw_natural_spec_t spec_of(const kernel_call_t *c)
{
    bool most = c->number / 5 % 2;
    return (gw_natural_spec_t){.rule = c->spec.bits == 1   ? GW_NATURAL_POWERS
                                       : most              ? GW_NATURAL_MOST
                                       : c->spec.bits == 2 ? GW_NATURAL_CLIP
                                                           : GW_NATURAL_NORM,
                               .bits = c->spec.bits,
                               .bucket = c->spec.bucket,
                               .stochastic = c->spec.stochastic,
                               .clip = c->number % 3 ? 2.5f : 1.2f};
}

static void repeat(uint8_t *at, size_t bytes, size_t tile)
{
    for (size_t i = tile; i < bytes; i += tile)
        memcpy(at + i, at, bytes - i < tile ? bytes - i : tile);
}

/* Every third case has runs of zeros of any length, as rows that no one touched; both zeros. */
static void untouched_rows(const kernel_call_t *c, float *x, size_t count)
{
    uint64_t seed = c->seed + 5;
    for (size_t i = 0; c->number % 3 == 0 && i < count;) {
        size_t run = gw_test_random(&seed) % 150;
        float zero = run & 1 ? -0.0f : 0.0f;
        for (bool zeros = run & 2; run && i < count; run--, i++)
            x[i] = zeros ? zero : x[i];
        i += !run && i < count ? 1 : 0;
    }
}

static void add_floats(kernel_call_t *c, const char *name, kernel_role_t role, test_fill_t fill,
                       uint64_t seed)
{
    uint8_t *at = kernel_add(c, name, role, 4 * c->count, 4);
    size_t tile = c->count < TILE ? c->count : TILE;
    test_fill(fill, seed, (float *)(void *)at, tile);
    if (c->count <= TILE)
        untouched_rows(c, (float *)(void *)at, tile);
    repeat(at, 4 * c->count, 4 * TILE);
}

static size_t payload_bytes(const kernel_call_t *c)
{
    gw_natural_spec_t spec = spec_of(c);
    size_t n = c->spec.bucket, tail = c->count % n;
    return c->count / n * gw__natural_bytes(&spec, n) + (tail ? gw__natural_bytes(&spec, tail) : 0);
}

/* A payload that ref makes. Whole buckets of a tile repeat. */
static uint8_t *add_payload(kernel_call_t *c)
{
    static float x[TILE];
    gw_natural_spec_t spec = spec_of(c);
    size_t tile = c->count < TILE ? c->count : TILE, bytes = payload_bytes(c);
    uint8_t *at = kernel_add(c, "payload", KERNEL_IN, bytes, 1);
    test_fill(c->fill, c->seed, x, tile);
    untouched_rows(c, x, c->count <= TILE ? tile : 0);
    gw__kernels_of("ref")->natural.encode(&spec, x, NULL, tile, 0, c->seed, at);
    if (c->count > TILE)
        repeat(at, bytes, TILE / spec.bucket * gw__natural_bytes(&spec, spec.bucket));
    return at;
}

void natural_prepare_encode(kernel_call_t *c)
{
    add_floats(c, "source", KERNEL_IN, c->fill, c->seed);
    add_floats(c, "residual", c->ef ? KERNEL_INOUT : KERNEL_IN,
               c->number % 5 ? FILL_NORMAL : FILL_ZEROS, c->seed + 1);
    kernel_add(c, "payload", KERNEL_OUT, payload_bytes(c), 1);
}

uint64_t natural_run_encode(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_natural_spec_t spec = spec_of(c);
    return k->natural.encode(&spec, kernel_floats(c, 0), c->ef ? kernel_floats(c, 1) : NULL,
                             c->count, (uint64_t)c->spec.bucket * (c->number % 7), c->seed,
                             c->region[2].at);
}

/* Payloads that may be broken: in a scale, behind the last code, anywhere. */
void natural_prepare_valid(kernel_call_t *c)
{
    static const uint32_t words[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0x7FC00001,
                                     0x80000000, 0x80000001, 0,          0x7F7FFFFF};
    uint64_t seed = ~c->seed;
    uint8_t *at = add_payload(c);
    gw_natural_spec_t spec = spec_of(c);
    size_t n = c->spec.bucket, have = (c->count + n - 1) / n, stride = gw__natural_bytes(&spec, n);
    size_t k = c->number / 7; /* not in step with widths and rules */
    if (!have)
        return;
    if (k % 2 && payload_bytes(c) >= have * stride)
        gw__store32(at + gw_test_random(&seed) % have * stride, words[gw_test_random(&seed) % 8]);
    if (k % 3 == 0)
        at[payload_bytes(c) - 1] |= (uint8_t)(1 << gw_test_random(&seed) % 8);
    if (k % 5 == 0)
        at[gw_test_random(&seed) % payload_bytes(c)] ^= (uint8_t)(1 << gw_test_random(&seed) % 8);
}

uint64_t natural_run_valid(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_natural_spec_t spec = spec_of(c);
    return k->natural.valid(&spec, c->region[0].at, c->count);
}

/* Half of the payloads are broken where that can be: what is valid must decode alike everywhere. */
void natural_prepare_store(kernel_call_t *c)
{
    natural_prepare_valid(c);
    kernel_add(c, "decoded", KERNEL_OUT, 4 * c->count, 4);
}

uint64_t natural_run_store(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_natural_spec_t spec = spec_of(c);
    bool valid = c->alone || natural_run_valid(k, c);
    if (valid)
        k->natural.store(&spec, c->region[0].at, c->count, kernel_floats(c, 1));
    else
        memset(c->region[1].at, 0, c->region[1].bytes);
    return valid;
}

void natural_prepare_add(kernel_call_t *c)
{
    natural_prepare_valid(c);
    add_floats(c, "sum", KERNEL_INOUT, c->number % 2 ? FILL_NAN : FILL_NORMAL, c->seed + 1);
}

uint64_t natural_run_add(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_natural_spec_t spec = spec_of(c);
    bool valid = c->alone || natural_run_valid(k, c);
    if (valid)
        k->natural.add(&spec, c->region[0].at, c->count, kernel_floats(c, 1));
    return valid;
}

#define FUNCTION(member)                                                                           \
    void (*natural_##member(const gw_kernels_t *k))(void)                                          \
    {                                                                                              \
        return (void (*)(void))k->natural.member;                                                  \
    }
FUNCTION(encode)
FUNCTION(valid)
FUNCTION(store)
FUNCTION(add)

/* q1: natural, q4: nuqsgd, q2: ternary. */
const char *const natural_encodings[] = {
    "q1 stochastic", "q4 stochastic", "q2 stochastic",    "q1 ef", "q4 ef", "q2 ef",
    "q3 stochastic", "q5 stochastic", "q4 stochastic ef", NULL};
const char *const natural_decodings[] = {"q1", "q4", "q2", "q3", "q5", "q4 alone", NULL};
