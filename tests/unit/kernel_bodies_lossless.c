/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the kernel checker for the family lossless. */
#include "kernel_bodies_lossless.h"

#include <string.h>

#include "lossless_fill.h"

/* spec.bits says which type: 0 to 2, or what a bench sets, which is bf16 in as many bytes as its
 * floats have. */
enum { TILE = 64 * GW_LOSSLESS_BLOCK, BENCH = 4 };

static const lossless_type_t *type_of(const kernel_call_t *c)
{
    return &lossless_types[c->spec.bits == BENCH ? 2 : c->spec.bits];
}

static size_t elements(const kernel_call_t *c)
{
    return c->spec.bits == BENCH ? 2 * c->count : c->count;
}

/* Every type with every law; counts with whole blocks and tails. */
void lossless_draw(kernel_call_t *c)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 31, 33, 511, 512, 513, 1024, 1537};
    uint64_t seed = c->seed;
    c->spec = (gw_quant_spec_t){.bits = (unsigned)(c->number % 3), .bucket = GW_LOSSLESS_BLOCK};
    c->fill = (test_fill_t)(c->number / 3 % LOSSLESS_FILLS);
    c->count = counts[gw_test_random(&seed) % (sizeof counts / sizeof *counts)];
    if (gw_test_random(&seed) % 3)
        c->count = gw_test_random(&seed) % 3000;
}

void lossless_draw_group(kernel_call_t *c)
{
    static const size_t counts[] = {1, 2, 33, 511, 512, 513, 4095, 4096};
    uint64_t seed = c->seed;
    lossless_draw(c);
    c->count = gw_test_random(&seed) % 2 ? counts[gw_test_random(&seed) % 8]
                                         : 1 + gw_test_random(&seed) % GW_LOSSLESS_GROUP;
}

/* A bench repeats whole blocks of ordinary elements. */
static void fill(const kernel_call_t *c, uint8_t *at)
{
    const lossless_type_t *t = type_of(c);
    size_t n = elements(c), tile = n < TILE ? n : TILE;
    if (c->spec.bits == BENCH) {
        for (size_t i = 0; i < tile; i += 64) /* as a law of gradients: one row in 8 is zero */
            lossless_fill(i / 64 % 8 ? LOSSLESS_NEAR : LOSSLESS_SPARSE, t, i + 1, at + 2 * i, 64);
        for (size_t i = tile; i < n; i += tile)
            memcpy(at + 2 * i, at, 2 * (n - i < tile ? n - i : tile));
        return;
    }
    lossless_fill((lossless_fill_t)c->fill, t, c->seed, at, n);
}

static uint8_t *add_source(kernel_call_t *c)
{
    uint8_t *at = kernel_add(c, "source", KERNEL_IN, type_of(c)->bytes * elements(c), 1);
    fill(c, at);
    return at;
}

void lossless_prepare_encode(kernel_call_t *c)
{
    add_source(c);
    kernel_add(c, "blocks", KERNEL_OUT, gw__lossless_bound(type_of(c)->dtype, elements(c)), 1);
}

/* What lies behind the result is not part of it. */
static uint64_t settle(const kernel_region_t *r, size_t used)
{
    memset(r->at + used, 0, r->bytes - used);
    return used;
}

uint64_t lossless_run_encode(const gw_kernels_t *k, kernel_call_t *c)
{
    size_t used =
        k->lossless.encode(type_of(c)->dtype, c->region[0].at, elements(c), c->region[1].at);
    return c->spec.bits == BENCH ? used : settle(&c->region[1], used);
}

/* A byte of something that was right; one more or less. */
static void spoil(const kernel_call_t *c, kernel_region_t *r)
{
    uint64_t seed = ~c->seed;
    if (c->spec.bits == BENCH || !r->bytes)
        return;
    size_t at = gw_test_random(&seed) % r->bytes;
    if (c->number % 4 == 1)
        r->initial[at] ^= (uint8_t)(1 << gw_test_random(&seed) % 8);
    if (c->number % 4 == 2)
        r->initial[gw_test_random(&seed) % 2 ? at % 24 % r->bytes
                                             : r->bytes - 1 - at % 16 % r->bytes] =
            (uint8_t)gw_test_random(&seed);
    if (c->number % 16 == 3)
        r->bytes--;
}

static void add_blocks(kernel_call_t *c)
{
    const lossless_type_t *t = type_of(c);
    static uint8_t blocks[1 << 20];
    size_t n = elements(c), bytes = 0;
    uint8_t *source = add_source(c);
    const gw_lossless_kernels_t *ref = &gw__kernels_of("ref")->lossless;
    if (c->spec.bits != BENCH) {
        bytes = ref->encode(t->dtype, source, n, blocks);
        c->regions = 0;
        memcpy(kernel_add(c, "blocks", KERNEL_IN, bytes, 1), blocks, bytes);
        return;
    }
    /* Blocks of whole tiles repeat. */
    bytes = ref->encode(t->dtype, source, TILE, blocks);
    size_t tail = ref->encode(t->dtype, source, n % TILE, blocks + bytes), tiles = n / TILE;
    c->regions = 0;
    uint8_t *at = kernel_add(c, "blocks", KERNEL_IN, tiles * bytes + tail, 1);
    for (size_t i = 0; i < tiles; i++)
        memcpy(at + i * bytes, blocks, bytes);
    memcpy(at + tiles * bytes, blocks + bytes, tail);
}

void lossless_prepare_valid(kernel_call_t *c)
{
    add_blocks(c);
    spoil(c, &c->region[0]);
}

uint64_t lossless_run_valid(const gw_kernels_t *k, kernel_call_t *c)
{
    return k->lossless.valid(type_of(c)->dtype, c->region[0].at, c->region[0].bytes, elements(c));
}

/* What is valid although it was spoilt must decode alike everywhere. */
void lossless_prepare_decode(kernel_call_t *c)
{
    lossless_prepare_valid(c);
    kernel_add(c, "decoded", KERNEL_OUT, type_of(c)->bytes * elements(c), 1);
}

uint64_t lossless_run_decode(const gw_kernels_t *k, kernel_call_t *c)
{
    const kernel_region_t *r = &c->region[1];
    if (!c->alone && !lossless_run_valid(k, c))
        return settle(r, 0);
    return k->lossless.decode(type_of(c)->dtype, c->region[0].at, elements(c), r->at);
}

void lossless_prepare_pack(kernel_call_t *c)
{
    add_blocks(c);
    kernel_add(c, "group", KERNEL_OUT, c->region[0].bytes + 1, 1);
}

uint64_t lossless_run_pack(const gw_kernels_t *k, kernel_call_t *c)
{
    return settle(&c->region[1], k->lossless.pack(type_of(c)->dtype, c->region[0].at, elements(c),
                                                  c->region[1].at));
}

void lossless_prepare_unpack(kernel_call_t *c)
{
    const lossless_type_t *t = type_of(c);
    static uint8_t group[GW_LOSSLESS_GROUP_MAX + 1];
    add_blocks(c);
    size_t bytes =
        gw__kernels_of("ref")->lossless.pack(t->dtype, c->region[0].initial, elements(c), group);
    c->regions = 0;
    memcpy(kernel_add(c, "group", KERNEL_IN, bytes, 1), group, bytes);
    spoil(c, &c->region[0]);
    kernel_add(c, "blocks", KERNEL_OUT, gw__lossless_bound(t->dtype, elements(c)), 1);
}

uint64_t lossless_run_unpack(const gw_kernels_t *k, kernel_call_t *c)
{
    size_t length = 0,
           used = k->lossless.unpack(type_of(c)->dtype, c->region[0].at, c->region[0].bytes,
                                     elements(c), c->region[1].at, &length);
    settle(&c->region[1], used ? length : 0);
    return (uint64_t)used << 32 | length;
}

#define FUNCTION(member)                                                                           \
    void (*lossless_##member(const gw_kernels_t *k))(void)                                         \
    {                                                                                              \
        return (void (*)(void))k->lossless.member;                                                 \
    }
FUNCTION(encode)
FUNCTION(valid)
FUNCTION(decode)
FUNCTION(pack)
FUNCTION(unpack)

const char *const lossless_settings[] = {"", NULL};
const char *const lossless_decodings[] = {"", "alone", NULL};
const char *const lossless_none[] = {NULL};
