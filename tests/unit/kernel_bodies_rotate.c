/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the kernel checker for the family rotate. */
#include "kernel_bodies_rotate.h"

#include <string.h>

#include "bytes.h"

enum { TILE = 16384 }; /* a bench repeats this much: it is not about data */

/* Every width with every block; the rest by chance. */
void rotate_draw(kernel_call_t *c)
{
    static const unsigned blocks[] = {64, 512, 128, 256, 1024, 2048, 4096};
    static const size_t counts[] = {0, 1, 2, 8, 9, 63, 64, 65, 511, 512, 513, 1000, 4097};
    uint64_t seed = c->seed;
    c->spec = (gw_quant_spec_t){.bits = (unsigned)(c->number % 8) + 1,
                                .bucket = blocks[c->number / 8 % 7],
                                .stochastic = c->number / 56 % 2}; /* here: the unbiased scale */
    c->ef = c->number / 112 % 2;
    c->fill = (test_fill_t)(gw_test_random(&seed) % FILL_COUNT);
    c->count = counts[gw_test_random(&seed) % (sizeof counts / sizeof *counts)];
    if (gw_test_random(&seed) % 2)
        c->count = gw_test_random(&seed) % (c->spec.bucket > 1000 ? 9000 : 5 * c->spec.bucket);
    c->payloads = 1;
    c->scale = 1.0f;
}

static gw_rotate_spec_t spec_of(const kernel_call_t *c)
{
    return (gw_rotate_spec_t){c->spec.bits, c->spec.bucket, (uint32_t)c->number % 5,
                              c->spec.stochastic};
}

static void repeat(uint8_t *at, size_t bytes, size_t tile)
{
    for (size_t i = tile; i < bytes; i += tile)
        memcpy(at + i, at, bytes - i < tile ? bytes - i : tile);
}

static void add_floats(kernel_call_t *c, const char *name, kernel_role_t role, test_fill_t fill,
                       uint64_t seed)
{
    uint8_t *at = kernel_add(c, name, role, 4 * c->count, 4);
    test_fill(fill, seed, (float *)(void *)at, c->count < TILE ? c->count : TILE);
    repeat(at, 4 * c->count, 4 * TILE);
}

static size_t payload_bytes(const kernel_call_t *c)
{
    size_t n = c->spec.bucket, tail = c->count % n;
    return c->count / n * gw__rotate_bytes(c->spec.bits, n) +
           (tail ? gw__rotate_bytes(c->spec.bits, tail) : 0);
}

/* A payload that ref makes. Whole blocks of a tile repeat. */
static uint8_t *add_payload(kernel_call_t *c)
{
    static float x[TILE];
    gw_rotate_spec_t spec = spec_of(c);
    size_t tile = c->count < TILE ? c->count : TILE, bytes = payload_bytes(c);
    uint8_t *at = kernel_add(c, "payload", KERNEL_IN, bytes, 1);
    test_fill(c->fill, c->seed, x, tile);
    gw__kernels_of("ref")->rotate.encode(&spec, x, NULL, tile, at);
    if (c->count > TILE)
        repeat(at, bytes, TILE / spec.block * gw__rotate_bytes(spec.bits, spec.block));
    return at;
}

void rotate_prepare_encode(kernel_call_t *c)
{
    add_floats(c, "source", KERNEL_IN, c->fill, c->seed);
    add_floats(c, "residual", c->ef ? KERNEL_INOUT : KERNEL_IN,
               c->number % 5 ? FILL_NORMAL : FILL_ZEROS, c->seed + 1);
    kernel_add(c, "payload", KERNEL_OUT, payload_bytes(c), 1);
}

uint64_t rotate_run_encode(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_rotate_spec_t spec = spec_of(c);
    return k->rotate.encode(&spec, kernel_floats(c, 0), c->ef ? kernel_floats(c, 1) : NULL,
                            c->count, c->region[2].at);
}

/* Scales at every edge, and codes that no encoder chose. */
void rotate_prepare_valid(kernel_call_t *c)
{
    static const uint32_t words[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0x7FC00001,
                                     0x80000000, 1,          0,          0x7F7FFFFF,
                                     0x5D800000, 0x5D800001, 0x21800000, 0x217FFFFF};
    uint64_t seed = ~c->seed;
    uint8_t *at = add_payload(c);
    size_t n = c->spec.bucket, have = (c->count + n - 1) / n;
    if (!have || c->count > TILE)
        return;
    if (c->number % 2)
        gw__store32(at + gw_test_random(&seed) % have * gw__rotate_bytes(c->spec.bits, n),
                    words[gw_test_random(&seed) % (sizeof words / sizeof *words)]);
    for (size_t i = 0; c->number % 3 == 0 && i < 20; i++)
        at[4 + gw_test_random(&seed) % (payload_bytes(c) - 4)] = (uint8_t)gw_test_random(&seed);
}

uint64_t rotate_run_valid(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_rotate_spec_t spec = spec_of(c);
    return k->rotate.valid(&spec, c->region[0].at, c->count);
}

void rotate_prepare_store(kernel_call_t *c)
{
    rotate_prepare_valid(c);
    kernel_add(c, "decoded", KERNEL_OUT, 4 * c->count, 4);
}

uint64_t rotate_run_store(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_rotate_spec_t spec = spec_of(c);
    bool valid = c->alone || rotate_run_valid(k, c);
    if (valid)
        k->rotate.store(&spec, c->region[0].at, c->count, kernel_floats(c, 1));
    else
        memset(c->region[1].at, 0, c->region[1].bytes);
    return valid;
}

void rotate_prepare_add(kernel_call_t *c)
{
    rotate_prepare_valid(c);
    add_floats(c, "sum", KERNEL_INOUT, c->number % 2 ? FILL_NAN : FILL_NORMAL, c->seed + 1);
}

uint64_t rotate_run_add(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_rotate_spec_t spec = spec_of(c);
    bool valid = c->alone || rotate_run_valid(k, c);
    if (valid)
        k->rotate.add(&spec, c->region[0].at, c->count, kernel_floats(c, 1));
    return valid;
}

#define FUNCTION(member)                                                                           \
    void (*rotate_##member(const gw_kernels_t *k))(void)                                           \
    {                                                                                              \
        return (void (*)(void))k->rotate.member;                                                   \
    }
FUNCTION(encode)
FUNCTION(valid)
FUNCTION(store)
FUNCTION(add)

const char *const rotate_encodings[] = {"q4", "q4 ef", "q1", "q2", "q8", NULL};
const char *const rotate_decodings[] = {"q4", "q1", "q2", "q8", NULL};
