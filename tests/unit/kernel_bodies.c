/* SPDX-License-Identifier: Apache-2.0 */
/* One body per kernel of every family, and the paths of the raw codec that call several. */
#include <gradwire/codec.h>

#include <string.h>

#include "bytes.h"
#include "kernel_bodies_block.h"
#include "kernel_bodies_float.h"
#include "kernel_bodies_lossless.h"
#include "kernel_bodies_natural.h"
#include "kernel_bodies_lowrank.h"
#include "kernel_bodies_rotate.h"
#include "kernel_bodies_sign.h"
#include "kernel_bodies_topk.h"
#include "kernel_check.h"

/* ---- Settings -----------------------------------------------------------------------------------
 */

static const size_t counts[] = {0,  1,   2,   3,   7,   31,  32,  33,   63,   64,  65,
                                96, 255, 256, 511, 512, 513, 544, 1000, 1024, 4097};
static const unsigned buckets[] = {32, 512, 64, 96, 160, 1024, 4096};
enum { COUNTS = sizeof counts / sizeof *counts, BUCKETS = sizeof buckets / sizeof *buckets };

/* Every width with every bucket and every option; the rest by chance. */
static void draw_quant(kernel_call_t *c)
{
    uint64_t seed = c->seed;
    size_t options = c->number / (8 * BUCKETS);
    c->spec = (gw_quant_spec_t){(unsigned)(c->number % 8) + 1, buckets[c->number / 8 % BUCKETS],
                                options & 1, options & 2};
    c->ef = options & 4;
    c->fill = (test_fill_t)(gw_test_random(&seed) % FILL_COUNT);
    c->count = counts[gw_test_random(&seed) % COUNTS];
    if (gw_test_random(&seed) % 4 == 0) /* several buckets, and a tail of any length */
        c->count = gw_test_random(&seed) % (c->spec.bucket > 1024 ? 9000 : 6 * c->spec.bucket);
    c->payloads = 1;
    c->scale = 1.0f;
}

static void draw_reduce(kernel_call_t *c)
{
    uint64_t seed = ~c->seed;
    draw_quant(c);
    c->payloads = gw_test_random(&seed) % 9;
    if (c->payloads == 8)
        c->payloads = KERNEL_PEERS;
    c->own_at = gw_test_random(&seed) % (c->payloads + 1);
    c->skip = gw_test_random(&seed) % 50;
    switch (gw_test_random(&seed) % 4) {
    case 0:
        c->scale = 1.0f / (float)(c->payloads + 1);
        break;
    case 1:
        c->scale = gw_test_random(&seed) % 8 ? -0.3f : 0.0f;
        break;
    }
}

static void draw_plain(kernel_call_t *c)
{
    uint64_t seed = c->seed;
    c->spec = (gw_quant_spec_t){.bits = 1, .bucket = 32};
    c->fill = (test_fill_t)(gw_test_random(&seed) % FILL_COUNT);
    c->count = c->number < 200 ? c->number : gw_test_random(&seed) % 5000;
    c->payloads = gw_test_random(&seed) % 4;
    c->own_at = gw_test_random(&seed) % (c->payloads + 1);
    c->scale = (float)(gw_test_random(&seed) % 7) * 0.3f;
}

/* Counts up to several blocks of the codec. */
static void draw_large(kernel_call_t *c)
{
    uint64_t seed = c->seed + 3;
    draw_plain(c);
    c->ef = c->number / 6 % 2;
    if (c->number >= 300)
        c->count = gw_test_random(&seed) % 20000;
    if (c->number % 97 == 96)
        c->count = 140000;
}

/* ---- Data ---------------------------------------------------------------------------------------
 */

/* A bench repeats this much: it is not about data. */
enum { TILE = 16384 };

static void repeat(uint8_t *at, size_t bytes, size_t tile)
{
    for (size_t i = tile; i < bytes; i += tile)
        memcpy(at + i, at, bytes - i < tile ? bytes - i : tile);
}

static uint8_t *add_floats(kernel_call_t *c, const char *name, kernel_role_t role, test_fill_t fill,
                           uint64_t seed)
{
    uint8_t *at = kernel_add(c, name, role, 4 * c->count, 4);
    if (role != KERNEL_OUT) {
        test_fill(fill, seed, (float *)(void *)at, c->count < TILE ? c->count : TILE);
        repeat(at, 4 * c->count, 4 * TILE);
    }
    return at;
}

static size_t payload_bytes(const kernel_call_t *c)
{
    size_t tail = c->count % c->spec.bucket;
    return c->count / c->spec.bucket * gw__quant_bytes(c->spec.bits, c->spec.bucket) +
           (tail ? gw__quant_bytes(c->spec.bits, tail) : 0);
}

/* A payload that ref makes, behind c->skip bytes. Whole buckets of a tile repeat. */
static uint8_t *add_payload(kernel_call_t *c, test_fill_t fill, uint64_t seed)
{
    static float x[TILE];
    size_t bytes = payload_bytes(c), tile = c->count < TILE ? c->count : TILE;
    uint8_t *at = kernel_add(c, "payload", KERNEL_IN, c->skip + bytes, 1);
    memset(at, 0x77, c->skip);
    test_fill(fill, seed, x, tile);
    gw__kernels_of("ref")->quant.encode(&c->spec, x, NULL, tile, 0, seed, at + c->skip);
    if (c->count > TILE)
        repeat(at + c->skip, bytes,
               TILE / c->spec.bucket * gw__quant_bytes(c->spec.bits, c->spec.bucket));
    return at;
}

/* Numbers that sums meet: specials among ordinary ones. */
static void add_specials(kernel_call_t *c, const char *name, kernel_role_t role, uint64_t seed,
                         size_t unit)
{
    static const uint32_t bits[] = {0x7F800000, 0xFF800000, 0x7FC12345, 0xFFC00001, 0x7F800001,
                                    0x80000000, 0x00000001, 0x7F7FFFFF, 0xFF7FFFFF, 0x00800000};
    uint8_t *at = add_floats(c, name, role, FILL_HEAVY, seed);
    c->region[c->regions - 1].unit = unit;
    for (size_t i = 0; i < c->count && c->number % 2; i++)
        if (gw_test_random(&seed) % 3 == 0)
            gw__store32(at + 4 * i, bits[gw_test_random(&seed) % (sizeof bits / sizeof *bits)]);
}

/* ---- quant --------------------------------------------------------------------------------------
 */

enum { FIRST = 7 }; /* buckets before the piece */

static void prepare_encode(kernel_call_t *c)
{
    add_floats(c, "source", KERNEL_IN, c->fill, c->seed);
    add_floats(c, "residual", c->ef ? KERNEL_INOUT : KERNEL_IN, FILL_NORMAL, c->seed + 1);
    kernel_add(c, "payload", KERNEL_OUT, payload_bytes(c), 1);
}

static uint64_t run_encode(const gw_kernels_t *k, kernel_call_t *c)
{
    return k->quant.encode(&c->spec, kernel_floats(c, 0), c->ef ? kernel_floats(c, 1) : NULL,
                           c->count, FIRST * c->spec.bucket, c->seed, c->region[2].at);
}

/* May change metadata of one bucket, to what is valid or is not, and bits behind the last code. */
static void damage(const kernel_call_t *c, uint8_t *payload, uint64_t *seed)
{
    static const uint32_t words[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0x7FC00001, 0x80000000,
                                     0x80000001, 0,          0x7F7FFFFF, 0xFF7FFFFF, 0xBF800000,
                                     0x3F800001, 0x0D7FFFFF, 0x0D800000, 0x71800000};
    size_t stride = gw__quant_bytes(c->spec.bits, c->spec.bucket);
    size_t have = (c->count + c->spec.bucket - 1) / c->spec.bucket;
    if (c->number % 2)
        gw__store32(payload + gw_test_random(seed) % have * stride + gw_test_random(seed) % 2 * 4,
                    words[gw_test_random(seed) % (sizeof words / sizeof *words)]);
    if (c->number % 3 == 0)
        payload[payload_bytes(c) - 1] |= (uint8_t)(1 << gw_test_random(seed) % 8);
}

/* Payloads that may be broken. */
static void prepare_valid(kernel_call_t *c)
{
    uint64_t seed = ~c->seed;
    uint8_t *at = add_payload(c, c->fill, c->seed);
    if (c->count)
        damage(c, at + c->skip, &seed);
}

static uint64_t run_valid(const gw_kernels_t *k, kernel_call_t *c)
{
    return k->quant.valid(&c->spec, c->region[0].at + c->skip, c->count);
}

static void prepare_store(kernel_call_t *c)
{
    add_payload(c, c->fill, c->seed);
    kernel_add(c, "decoded", KERNEL_OUT, 4 * c->count, 4);
}

static uint64_t run_store(const gw_kernels_t *k, kernel_call_t *c)
{
    bool valid = c->alone || run_valid(k, c);
    if (valid)
        k->quant.store(&c->spec, c->region[0].at, c->count, kernel_floats(c, 1));
    return valid;
}

static void prepare_add(kernel_call_t *c)
{
    add_payload(c, c->fill, c->seed);
    uint8_t *sum = add_floats(c, "sum", KERNEL_INOUT, FILL_NORMAL, c->seed + 1);
    if (c->count > 5 && c->number % 3 == 0)
        gw__store32(sum + c->count / 2 * 4, 0xFFC12345); /* a NaN in what is added to */
}

static uint64_t run_add(const gw_kernels_t *k, kernel_call_t *c)
{
    bool valid = c->alone || run_valid(k, c);
    if (valid)
        k->quant.add(&c->spec, c->region[0].at, c->count, kernel_floats(c, 1));
    return valid;
}

/* Payloads first, so that payload k is region k; mostly ordinary ones, which give sums to round. */
static void prepare_reduce(kernel_call_t *c)
{
    uint64_t seed = c->seed;
    for (size_t k = 0; k < c->payloads; k++) {
        uint64_t dice = gw_test_random(&seed);
        add_payload(c, dice % 4 ? (test_fill_t)(dice % 2) : (test_fill_t)(dice / 8 % FILL_COUNT),
                    dice);
    }
    add_floats(c, "own", KERNEL_IN, c->fill, seed);
    add_floats(c, "residual", c->ef ? KERNEL_INOUT : KERNEL_IN, FILL_NORMAL, seed + 1);
    kernel_add(c, "encoded sum", KERNEL_OUT, payload_bytes(c), 1);
}

static gw_quant_sum_t sum_of(kernel_call_t *c)
{
    for (size_t k = 0; k < c->payloads; k++)
        c->payload[k] = c->region[k].at;
    return (gw_quant_sum_t){
        kernel_floats(c, c->payloads), c->own_at, c->payload, c->payloads, c->skip, c->scale};
}

static uint64_t run_reduce(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_quant_sum_t sum = sum_of(c);
    float *residual = c->ef ? kernel_floats(c, c->payloads + 1) : NULL;
    size_t refused = 0;
    size_t poisoned = k->quant.reduce(&c->spec, &sum, residual, c->count, FIRST * c->spec.bucket,
                                      c->seed, c->region[c->payloads + 2].at, &refused);
    return poisoned | (uint64_t)refused << 32;
}

/* The chain that reduce stands for, made of the other kernels of the same table. */
static void prepare_chain(kernel_call_t *c)
{
    prepare_reduce(c);
    kernel_add(c, "sum", KERNEL_OUT, 4 * c->count, 4);
}

static uint64_t run_chain(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_quant_sum_t s = sum_of(c);
    float *sum = kernel_floats(c, c->payloads + 3);
    float *residual = c->ef ? kernel_floats(c, c->payloads + 1) : NULL;
    for (size_t j = 0; j <= c->payloads; j++) {
        if (j == c->own_at && j == 0 && c->count)
            memcpy(sum, s.own, 4 * c->count);
        else if (j == c->own_at)
            k->sum.add(sum, s.own, c->count);
        if (j < c->payloads)
            (j || !c->own_at ? k->quant.add : k->quant.store)(&c->spec, s.payload[j] + c->skip,
                                                              c->count, sum);
    }
    if (c->scale != 1.0f)
        k->sum.scale(sum, c->scale, c->count);
    size_t poisoned = k->quant.encode(&c->spec, sum, residual, c->count, FIRST * c->spec.bucket,
                                      c->seed, c->region[c->payloads + 2].at);
    return poisoned | (uint64_t)c->payloads << 32;
}

/* One payload with metadata that no encoder writes, or that this one does not, or with a bit behind
 * the last code. */
static void prepare_refuse(kernel_call_t *c)
{
    uint64_t seed = ~c->seed;
    prepare_reduce(c);
    kernel_region_t *out = &c->region[c->regions - 1];
    out->role = KERNEL_INOUT; /* where the work ends is compared, too */
    memset(out->initial, 0x5A, out->bytes);
    if (c->payloads == 0 || c->count == 0)
        return;
    damage(c, c->region[gw_test_random(&seed) % c->payloads].initial + c->skip, &seed);
}

/* ---- cast, sum ----------------------------------------------------------------------------------
 */

/* All patterns of 16 bits once, then any. */
static void prepare_widen(kernel_call_t *c)
{
    uint64_t seed = c->seed;
    if (c->number == 0)
        c->count = 65536;
    uint8_t *at = kernel_add(c, "source", KERNEL_IN, 2 * c->count, 1);
    for (size_t i = 0; i < c->count; i++)
        gw__store16(at + 2 * i, c->number ? (uint16_t)gw_test_random(&seed) : (uint16_t)i);
    kernel_add(c, "wide", KERNEL_OUT, 4 * c->count, 1);
}

/* Any pattern; every exponent with what rounds; ties of both types. */
static void prepare_narrow(kernel_call_t *c)
{
    uint64_t seed = c->seed;
    if (c->number < 8)
        c->count = 65536;
    uint8_t *at = kernel_add(c, "source", KERNEL_IN, 4 * c->count, 1);
    for (size_t i = 0; i < c->count; i++) {
        uint32_t low = (uint32_t)gw_test_random(&seed), x = low;
        if (c->number % 4)
            x = (c->number < 8 ? (uint32_t)i : low >> 8) << 16 | (low & 1   ? 0x8000
                                                                  : low & 2 ? 0x7FFF
                                                                            : low >> 16);
        gw__store32(at + 4 * i, c->number % 4 == 3 ? (x & ~0x1FFFu) | 0x1000 : x);
    }
    kernel_add(c, "narrow", KERNEL_OUT, 2 * c->count, 1);
}

#define CAST(member)                                                                               \
    static uint64_t run_##member(const gw_kernels_t *k, kernel_call_t *c)                          \
    {                                                                                              \
        k->cast.member(c->region[0].at, c->region[1].at, c->count);                                \
        return 0;                                                                                  \
    }
CAST(f16_to_f32)
CAST(f32_to_f16)
CAST(bf16_to_f32)
CAST(f32_to_bf16)

static void prepare_stochastic(kernel_call_t *c)
{
    prepare_narrow(c);
    c->region[0].unit = 4;
}

/* Any number of a residual, in any part of a call. */
static uint64_t run_bf16_stochastic(const gw_kernels_t *k, kernel_call_t *c)
{
    k->cast.bf16_stochastic((const float *)(const void *)c->region[0].at, c->region[1].at, c->count,
                            c->seed % 1000 * (c->number % 2 ? 4 : 1), c->seed);
    return 0;
}

static void prepare_sum(kernel_call_t *c)
{
    add_specials(c, "sum", KERNEL_INOUT, c->seed, 4);
    add_specials(c, "source", KERNEL_IN, c->seed + 1, 1);
}

static uint64_t run_sum_add(const gw_kernels_t *k, kernel_call_t *c)
{
    k->sum.add(kernel_floats(c, 0), c->region[1].at, c->count);
    return 0;
}

static uint64_t run_sum_scale(const gw_kernels_t *k, kernel_call_t *c)
{
    k->sum.scale(kernel_floats(c, 0), c->scale, c->count);
    return 0;
}

/* ---- Paths of the raw codec: they run on the table in use ---------------------------------------
 */

static gw_coder_t raw_on(const gw_kernels_t *k)
{
    gw__kernels_select(k->tier, NULL, 0);
    return (gw_coder_t){.family = gw_codec_by_id(0)};
}

static gw_dtype_t type_of(const kernel_call_t *c)
{
    return (gw_dtype_t[]){GW_F32, GW_F16, GW_BF16}[c->number % 3];
}

static void prepare_raw(kernel_call_t *c)
{
    uint64_t seed = c->seed;
    size_t bytes = (type_of(c) == GW_F32 ? 4 : 2) * c->count;
    for (size_t k = 0; k < c->payloads; k++) {
        uint8_t *at = kernel_add(c, "payload", KERNEL_IN, bytes, 1);
        for (size_t i = 0; i < bytes; i++)
            at[i] = (uint8_t)gw_test_random(&seed);
    }
    add_floats(c, "own", KERNEL_IN, c->fill, seed);
    kernel_add(c, "encoded sum", KERNEL_OUT, bytes, 1);
    add_floats(c, "decoded sum", KERNEL_INOUT, FILL_NORMAL, seed + 1);
}

static uint64_t run_raw_reduce(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_coder_t raw = raw_on(k);
    gw_quant_sum_t sum = sum_of(c);
    size_t length[KERNEL_PEERS], bytes = c->region[c->payloads + 1].bytes, written = 0;
    for (size_t i = 0; i < c->payloads; i++)
        length[i] = bytes;
    gw_reduce_t in = {.own = sum.own,
                      .own_at = c->own_at,
                      .payload = c->payload,
                      .length = length,
                      .payloads = c->payloads,
                      .scale = c->scale,
                      .wire_dtype = type_of(c),
                      .count = c->count};
    uint8_t *out = c->region[c->payloads + 1].at;
    gw_status_t status = raw.family->reduce(&raw, &in, out, bytes, &written);
    gw_decode_t io = {.payload = out,
                      .length = written,
                      .wire_dtype = type_of(c),
                      .count = c->count,
                      .mode = GW_DECODE_ADD,
                      .dst = kernel_floats(c, c->payloads + 2)};
    return (uint64_t)(-status) << 8 | (uint64_t)-raw.family->decode(&raw, &io);
}

static void prepare_raw_encode(kernel_call_t *c)
{
    add_floats(c, "source", KERNEL_IN, c->fill, c->seed);
    kernel_add(c, "payload", KERNEL_OUT, (type_of(c) == GW_F32 ? 4 : 2) * c->count, 1);
    kernel_add(c, "decoded", KERNEL_OUT, 4 * c->count, 4);
}

static uint64_t run_raw_encode(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_coder_t raw = raw_on(k);
    size_t written = 0;
    gw_encode_t in = {.src = kernel_floats(c, 0), .wire_dtype = type_of(c), .count = c->count};
    gw_status_t status =
        raw.family->encode(&raw, &in, c->region[1].at, c->region[1].bytes, &written);
    gw_decode_t io = {.payload = c->region[1].at,
                      .length = written,
                      .wire_dtype = type_of(c),
                      .count = c->count,
                      .dst = kernel_floats(c, 2)};
    return (uint64_t)(-status) << 8 | (uint64_t)-raw.family->decode(&raw, &io);
}

/* ---- The table ----------------------------------------------------------------------------------
 */

#define FUNCTION(family, member)                                                                   \
    static void (*family##_##member(const gw_kernels_t *k))(void)                                  \
    {                                                                                              \
        return (void (*)(void))k->family.member;                                                   \
    }
FUNCTION(quant, encode)
FUNCTION(quant, valid)
FUNCTION(quant, store)
FUNCTION(quant, add)
FUNCTION(quant, reduce)
FUNCTION(cast, f16_to_f32)
FUNCTION(cast, f32_to_f16)
FUNCTION(cast, bf16_to_f32)
FUNCTION(cast, f32_to_bf16)
FUNCTION(cast, bf16_stochastic)
FUNCTION(sum, add)
FUNCTION(sum, scale)
FUNCTION(topk, fold)
FUNCTION(topk, correct)
FUNCTION(topk, count)
FUNCTION(topk, find)
FUNCTION(topk, histogram)
FUNCTION(topk, store)
FUNCTION(topk, add)
FUNCTION(topk, settle)
FUNCTION(block, any)
FUNCTION(block, rms)

static const char *const encodings[] = {
    "q4", "q4 ef", "q8", "q8 ef", "q4 stochastic", "q4 stochastic ef", "q1", "q2", "q3", NULL};
static const char *const decodings[] = {"q4", "q8", "q1", "q2", "q3", NULL};
static const char *const checks[] = {"q4", "q8", NULL};
static const char *const reductions[] = {"q4 7 peers", "q4 7 peers ef", "q8 7 peers", "q4 1 peers",
                                         "q4 3 peers", "q2 7 peers",    "q3 7 peers", NULL};
static const char *const chains[] = {"q4 7 peers", "q8 7 peers", NULL};
static const char *const plain[] = {"", NULL};
static const char *const with_feedback[] = {"", "ef", NULL};

enum { GRID = 8 * BUCKETS * 8 }; /* widths, buckets, options */

const kernel_body_t kernel_bodies[] = {
    {"quant.encode", draw_quant, prepare_encode, run_encode, quant_encode, 4 * GRID, encodings},
    {"quant.valid", draw_quant, prepare_valid, run_valid, quant_valid, GRID, checks},
    {"quant.store", draw_quant, prepare_store, run_store, quant_store, 2 * GRID, decodings},
    {"quant.add", draw_quant, prepare_add, run_add, quant_add, 2 * GRID, decodings},
    {"quant.reduce", draw_reduce, prepare_reduce, run_reduce, quant_reduce, 3 * GRID, reductions},
    {"quant.refuse", draw_reduce, prepare_refuse, run_reduce, NULL, GRID, reductions},
    {"quant.chain", draw_reduce, prepare_chain, run_chain, NULL, GRID, chains},
    {"cast.f16_to_f32", draw_plain, prepare_widen, run_f16_to_f32, cast_f16_to_f32, 300, plain},
    {"cast.f32_to_f16", draw_plain, prepare_narrow, run_f32_to_f16, cast_f32_to_f16, 300, plain},
    {"cast.bf16_to_f32", draw_plain, prepare_widen, run_bf16_to_f32, cast_bf16_to_f32, 300, plain},
    {"cast.f32_to_bf16", draw_plain, prepare_narrow, run_f32_to_bf16, cast_f32_to_bf16, 300, plain},
    {"cast.bf16_stochastic", draw_plain, prepare_stochastic, run_bf16_stochastic,
     cast_bf16_stochastic, 300, plain},
    {"sum.add", draw_plain, prepare_sum, run_sum_add, sum_add, 400, plain},
    {"sum.scale", draw_plain, prepare_sum, run_sum_scale, sum_scale, 400, plain},
    {"raw.encode", draw_plain, prepare_raw_encode, run_raw_encode, NULL, 300, plain},
    {"raw.reduce", draw_plain, prepare_raw, run_raw_reduce, NULL, 300, plain},
    KERNEL_BODIES_FLOAT KERNEL_BODIES_LOSSLESS KERNEL_BODIES_SIGN,
    KERNEL_BODIES_ROTATE,
    KERNEL_BODIES_NATURAL,
    KERNEL_BODIES_LOWRANK,
    {"topk.fold", draw_plain, topk_prepare_fold, topk_run_fold, topk_fold, 600, plain},
    {"topk.correct", draw_plain, topk_prepare_correct, topk_run_correct, topk_correct, 600, plain},
    {"topk.count", draw_plain, topk_prepare_count, topk_run_count, topk_count, 600, plain},
    {"topk.find", draw_plain, topk_prepare_find, topk_run_find, topk_find, 600, plain},
    {"topk.histogram", draw_large, topk_prepare_histogram, topk_run_histogram, topk_histogram, 300,
     plain},
    {"topk.store", draw_plain, topk_prepare_sparse, topk_run_store, topk_store, 300, plain},
    {"topk.add", draw_plain, topk_prepare_sparse, topk_run_add, topk_add, 300, plain},
    {"topk.settle", draw_plain, topk_prepare_settle, topk_run_settle, topk_settle, 300, plain},
    {"topk.encode", draw_large, topk_prepare_encode, topk_run_encode, NULL, 600, with_feedback},
    {"topk.decode", draw_large, topk_prepare_decode, topk_run_decode, NULL, 300, plain},
    {"block.any", draw_plain, block_prepare_any, block_run_any, block_any, 600, plain},
    {"block.rms", draw_plain, block_prepare_rms, block_run_rms, block_rms, 600, plain},
    {.name = NULL},
};
