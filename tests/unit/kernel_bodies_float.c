/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the kernels of codecs cast, fp8 and fp4. */
#include "kernel_bodies_float.h"

#include <string.h>

#include "bytes.h"

/* ---- Settings -----------------------------------------------------------------------------------
 */

static const size_t counts[] = {0,    1,    2,    3,    7,    15,   16,   17,   31,  32,
                                33,   64,   128,  129,  255,  256,  511,  512,  513, 1000,
                                1024, 1025, 1536, 2048, 2049, 4096, 4097, 5000, 8192};
enum { COUNTS = sizeof counts / sizeof *counts };

/* One format of two, then the block, feedback, and kinds of data; the rest by chance. */
static void draw(kernel_call_t *c, gw_float_format_t first, const unsigned blocks[4])
{
    uint64_t seed = c->seed;
    c->floats =
        (gw_float_spec_t){(gw_float_format_t)(first + c->number % 2), blocks[c->number / 2 % 4]};
    c->ef = c->number / 8 % 2;
    c->fill = (test_fill_t)(gw_test_random(&seed) % FILL_COUNT);
    c->count = counts[gw_test_random(&seed) % COUNTS];
    if (gw_test_random(&seed) % 3 == 0)
        c->count = gw_test_random(&seed) % 9000;
}

void kernel_float_draw_cast(kernel_call_t *c)
{
    static const unsigned blocks[4] = {64, 64, 64, 64};
    draw(c, GW_FLOAT_FP16, blocks);
}

void kernel_float_draw_fp8(kernel_call_t *c)
{
    static const unsigned blocks[4] = {128, 32, 96, 4096};
    draw(c, GW_FLOAT_E4M3, blocks);
}

void kernel_float_draw_fp4(kernel_call_t *c)
{
    static const unsigned blocks[4] = {1024, 512, 1536, 4096};
    draw(c, GW_FLOAT_MXFP4, blocks);
}

gw_float_spec_t kernel_float_setting(const char *setting)
{
    static const char *const names[] = {"fp16", "bf16", "e4m3", "e5m2", "mxfp4", "nvfp4"};
    for (int i = 0; i < 6; i++)
        if (!strncmp(setting, names[i], strlen(names[i])))
            return (gw_float_spec_t){(gw_float_format_t)i, i < GW_FLOAT_MXFP4 ? 128 : 1024};
    return (gw_float_spec_t){GW_FLOAT_FP16, 128};
}

/* ---- Data ---------------------------------------------------------------------------------------
 */

enum { TILE = 16384 };

/* Values with few bits below a greatest one that makes the scale a power of two: ties of every
 * format. */
static void fill_ties(float *x, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        int bits = (int)(gw_test_random(&seed) % 64) + 64;
        x[i] = ldexpf((float)bits, -(int)(gw_test_random(&seed) % 24));
        if (gw_test_random(&seed) % 2)
            x[i] = -x[i];
        if (i % 32 == 0)
            x[i] = i / 32 % 2 ? 448.0f : 57344.0f;
    }
}

/* Any pattern that is finite, of every exponent. */
static void fill_bits(float *x, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)gw_test_random(&seed);
        x[i] = gw__float_of((bits & 0x7F800000u) == 0x7F800000u ? bits ^ 0x01000000u : bits);
    }
}

static void fill_floats(const kernel_call_t *c, float *x, size_t count, uint64_t seed)
{
    switch (c->number / 16 % 4) {
    case 1:
        fill_ties(x, count, seed);
        break;
    case 2:
        if (c->number % 64 < 40) {
            fill_bits(x, count, seed);
            break;
        }
        __attribute__((fallthrough));
    default:
        test_fill(c->fill, seed, x, count);
    }
}

/* A bench repeats a tile: it is not about data. */
static void repeat(uint8_t *at, size_t bytes, size_t tile)
{
    for (size_t i = tile; i < bytes; i += tile)
        memcpy(at + i, at, bytes - i < tile ? bytes - i : tile);
}

static void add_source(kernel_call_t *c)
{
    uint8_t *at = kernel_add(c, "source", KERNEL_IN, 4 * c->count, 4);
    fill_floats(c, (float *)(void *)at, c->count < TILE ? c->count : TILE, c->seed);
    repeat(at, 4 * c->count, 4 * TILE);
}

static uint8_t *add_normal(kernel_call_t *c, const char *name, kernel_role_t role)
{
    uint8_t *at = kernel_add(c, name, role, 4 * c->count, 4);
    test_fill(FILL_NORMAL, c->seed + 1, (float *)(void *)at, c->count < TILE ? c->count : TILE);
    repeat(at, 4 * c->count, 4 * TILE);
    return at;
}

static size_t payload_bytes(const kernel_call_t *c)
{
    size_t block = c->floats.block, tail = c->count % block;
    return c->count / block * gw__float_bytes(&c->floats, block) +
           (tail ? gw__float_bytes(&c->floats, tail) : 0);
}

static void encode_by_ref(const kernel_call_t *c, const float *x, size_t count, uint8_t *out)
{
    const gw_kernels_t *ref = gw__kernels_of("ref");
    if (c->floats.format <= GW_FLOAT_BF16)
        ref->cast.encode(&c->floats, x, NULL, count, out);
    else if (c->floats.format <= GW_FLOAT_E5M2)
        ref->fp8.encode(&c->floats, x, NULL, count, out);
    else
        ref->fp4.encode(&c->floats, x, NULL, count, out);
}

/* A payload that ref makes; in half of the cases with any codes, and one scale changed. */
static void add_payload(kernel_call_t *c)
{
    static float x[TILE];
    uint64_t seed = ~c->seed;
    size_t bytes = payload_bytes(c), tile = TILE / c->floats.block * c->floats.block;
    size_t stride = gw__float_bytes(&c->floats, c->floats.block);
    uint8_t *at = kernel_add(c, "payload", KERNEL_IN, bytes, 1);
    tile = c->count < tile ? c->count : tile;
    fill_floats(c, x, tile, c->seed);
    encode_by_ref(c, x, tile, at);
    if (c->count > tile)
        repeat(at, bytes, tile / c->floats.block * stride);
    bool changed = c->number % 4 >= 2 && c->number != 602;
    for (size_t i = 0; changed && i < bytes; i++)
        if (i % stride >= stride - c->floats.block / 2)
            at[i] = (uint8_t)gw_test_random(&seed);
    if (changed && c->count && gw_test_random(&seed) % 2)
        at[gw_test_random(&seed) % ((bytes + stride - 1) / stride) * stride] =
            (uint8_t)gw_test_random(&seed);
}

/* ---- Calls --------------------------------------------------------------------------------------
 */

void kernel_float_prepare_encode(kernel_call_t *c)
{
    add_source(c);
    add_normal(c, "residual", c->ef ? KERNEL_INOUT : KERNEL_IN);
    kernel_add(c, "payload", KERNEL_OUT, payload_bytes(c), 1);
}

void kernel_float_prepare_valid(kernel_call_t *c)
{
    add_payload(c);
}

void kernel_float_prepare_store(kernel_call_t *c)
{
    add_payload(c);
    kernel_add(c, "decoded", KERNEL_OUT, 4 * c->count, 4);
}

void kernel_float_prepare_add(kernel_call_t *c)
{
    static const uint32_t specials[] = {0xFFC12345, 0x7F800000, 0xFF800000, 0x7F800001};
    add_payload(c);
    uint8_t *sum = add_normal(c, "sum", KERNEL_INOUT);
    if (c->count > 5 && c->number % 3 == 0)
        gw__store32(sum + c->count / 2 * 4, specials[c->number / 3 % 4]);
}

#define ENCODE(family)                                                                             \
    uint64_t kernel_float_##family##_encode(const gw_kernels_t *k, kernel_call_t *c)               \
    {                                                                                              \
        float *residual = c->ef ? kernel_floats(c, 1) : NULL;                                      \
        return k->family.encode(&c->floats, kernel_floats(c, 0), residual, c->count,               \
                                c->region[2].at);                                                  \
    }
#define VALID(family)                                                                              \
    uint64_t kernel_float_##family##_valid(const gw_kernels_t *k, kernel_call_t *c)                \
    {                                                                                              \
        return k->family.valid(&c->floats, c->region[0].at, c->count);                             \
    }
/* What is not valid is not decoded. */
#define DECODE(family, member)                                                                     \
    uint64_t kernel_float_##family##_##member(const gw_kernels_t *k, kernel_call_t *c)             \
    {                                                                                              \
        bool valid = k->family.valid(&c->floats, c->region[0].at, c->count);                       \
        if (valid)                                                                                 \
            k->family.member(&c->floats, c->region[0].at, c->count, kernel_floats(c, 1));          \
        else                                                                                       \
            memset(c->region[1].at, 0, 4 * c->count);                                              \
        return valid;                                                                              \
    }
#define FUNCTION(family, member)                                                                   \
    void (*kernel_float_##family##_##member##_of(const gw_kernels_t *k))(void)                     \
    {                                                                                              \
        return (void (*)(void))k->family.member;                                                   \
    }

ENCODE(cast)
ENCODE(fp8)
ENCODE(fp4)
VALID(fp8)
VALID(fp4)
DECODE(fp8, store)
DECODE(fp8, add)
DECODE(fp4, store)
DECODE(fp4, add)

uint64_t kernel_float_cast_add(const gw_kernels_t *k, kernel_call_t *c)
{
    k->cast.add(&c->floats, c->region[0].at, c->count, kernel_floats(c, 1));
    return 0;
}

FUNCTION(cast, encode)
FUNCTION(cast, add)
FUNCTION(fp8, encode)
FUNCTION(fp8, valid)
FUNCTION(fp8, store)
FUNCTION(fp8, add)
FUNCTION(fp4, encode)
FUNCTION(fp4, valid)
FUNCTION(fp4, store)
FUNCTION(fp4, add)

const char *const kernel_float_cast_encodings[] = {"fp16", "fp16 ef", "bf16", "bf16 ef", NULL};
const char *const kernel_float_cast_decodings[] = {"fp16", "bf16", NULL};
const char *const kernel_float_fp8_encodings[] = {"e4m3", "e4m3 ef", "e5m2", "e5m2 ef", NULL};
const char *const kernel_float_fp8_decodings[] = {"e4m3", "e5m2", NULL};
const char *const kernel_float_fp4_encodings[] = {"mxfp4", "mxfp4 ef", "nvfp4", "nvfp4 ef", NULL};
const char *const kernel_float_fp4_decodings[] = {"mxfp4", "nvfp4", NULL};
