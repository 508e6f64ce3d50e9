/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the family topk: selection by magnitude and sparse vectors. */
#include "kernel_bodies_topk.h"

#include <string.h>

#include "bytes.h"

/* Bounds at which elements are equal, all reach, none do, or the usual few do. */
static uint32_t least_of(const kernel_call_t *c)
{
    uint64_t seed = c->seed ^ 0x5A5A;
    const float *x = kernel_floats(c, 0);
    uint64_t dice = gw_test_random(&seed);
    if (c->number == 602) /* the bench: about one in a hundred of a normal distribution */
        return gw__float_bits(2.5758e-3f);
    if (dice % 8 == 0 || c->count == 0)
        return dice % 16 ? 0 : GW_TOPK_INF;
    if (dice % 8 == 1)
        return 0x7FFFFFFFu;
    uint32_t one;
    memcpy(&one, &x[gw_test_random(&seed) % c->count], sizeof one);
    return one & 0x7FFFFFFFu;
}

static uint8_t *add_source(kernel_call_t *c)
{
    enum { TILE = 1 << 20 };
    uint8_t *at = kernel_add(c, "source", KERNEL_IN, 4 * c->count, 4);
    test_fill(c->number == 602 ? FILL_NORMAL : c->fill, c->seed, (float *)(void *)at,
              c->count < TILE ? c->count : TILE);
    for (size_t i = 4 * TILE; i < 4 * c->count; i += 4 * TILE)
        memcpy(at + i, at, 4 * c->count - i < 4 * TILE ? 4 * c->count - i : 4 * TILE);
    return at;
}

void topk_prepare_fold(kernel_call_t *c)
{
    add_source(c);
    float *r = (float *)(void *)kernel_add(c, "residual", KERNEL_INOUT, 4 * c->count, 4);
    uint64_t seed = c->seed + 1;
    test_fill(c->number % 3 ? FILL_NORMAL : FILL_MIXED, seed, r, c->count);
    for (size_t i = 0; i < c->count && c->number % 5 == 0; i += 1 + gw_test_random(&seed) % 50)
        r[i] = NAN; /* no residual ever holds one; all tiers make the same of it */
}

uint64_t topk_run_fold(const gw_kernels_t *k, kernel_call_t *c)
{
    k->topk.fold(kernel_floats(c, 0), kernel_floats(c, 1), c->count);
    return 0;
}

void topk_prepare_correct(kernel_call_t *c)
{
    topk_prepare_fold(c);
    float *u = (float *)(void *)kernel_add(c, "momentum", KERNEL_INOUT, 4 * c->count, 4);
    test_fill(c->number % 2 ? FILL_HEAVY : FILL_MIXED, c->seed + 2, u, c->count);
}

uint64_t topk_run_correct(const gw_kernels_t *k, kernel_call_t *c)
{
    k->topk.correct(kernel_floats(c, 0), c->number % 4 ? 0.9f : 0.0f, kernel_floats(c, 2),
                    c->number % 7 ? kernel_floats(c, 1) : NULL, c->count);
    return 0;
}

void topk_prepare_count(kernel_call_t *c)
{
    add_source(c);
}

uint64_t topk_run_count(const gw_kernels_t *k, kernel_call_t *c)
{
    return k->topk.count(kernel_floats(c, 0), c->count, least_of(c));
}

/* Room for all, or for fewer than there are. */
void topk_prepare_find(kernel_call_t *c)
{
    uint64_t seed = c->seed ^ 0x77;
    add_source(c);
    size_t room = c->number % 3 ? c->count : gw_test_random(&seed) % (c->count + 1);
    kernel_add(c, "index", KERNEL_OUT, 4 * room, 4);
}

uint64_t topk_run_find(const gw_kernels_t *k, kernel_call_t *c)
{
    uint32_t *index = (uint32_t *)(void *)c->region[1].at;
    size_t room = c->region[1].bytes / 4;
    size_t found = k->topk.find(kernel_floats(c, 0), c->count, least_of(c), 1000, index, room);
    if (found < room && c->number != 602) /* what lies behind is nobody's */
        memset(index + found, 0, 4 * (room - found));
    return found;
}

void topk_prepare_histogram(kernel_call_t *c)
{
    add_source(c);
    memset(kernel_add(c, "bins", KERNEL_INOUT, 4 * GW_TOPK_BINS, 4), 0, 4 * GW_TOPK_BINS);
}

uint64_t topk_run_histogram(const gw_kernels_t *k, kernel_call_t *c)
{
    unsigned digit = c->number == 602 ? 0 : (unsigned)(c->number % GW_TOPK_DIGITS);
    uint32_t prefix = least_of(c) >> gw__topk_shift(digit) >> gw__topk_digit_bits(digit);
    k->topk.histogram(kernel_floats(c, 0), c->count, digit, prefix,
                      (uint32_t *)(void *)c->region[1].at);
    return 0;
}

/* Every third element or so, at places that ascend. */
static void add_entries(kernel_call_t *c, const char *name)
{
    uint64_t seed = c->seed ^ 0x33;
    size_t entries = c->count / 3;
    uint8_t *index = kernel_add(c, "index", KERNEL_IN, 4 * entries, 4);
    for (size_t i = 0; i < entries; i++)
        gw__store32(index + 4 * i, (uint32_t)(3 * i + gw_test_random(&seed) % 3));
    test_fill(c->fill, c->seed, (float *)(void *)kernel_add(c, name, KERNEL_IN, 4 * entries, 4),
              entries);
}

void topk_prepare_sparse(kernel_call_t *c)
{
    add_entries(c, "values");
    uint8_t *dst = kernel_add(c, "dense", KERNEL_INOUT, 4 * c->count, 4);
    test_fill(c->number % 2 ? FILL_NORMAL : FILL_NAN, c->seed + 1, (float *)(void *)dst, c->count);
}

void topk_prepare_settle(kernel_call_t *c)
{
    topk_prepare_sparse(c);
    float *sent = (float *)(void *)kernel_add(c, "sent", KERNEL_IN, 4 * (c->count / 3), 4);
    test_fill(c->number % 2 ? FILL_INF : FILL_NAN, c->seed + 2, sent, c->count / 3);
}

static const uint32_t *entries_of(const kernel_call_t *c)
{
    return (const uint32_t *)(const void *)c->region[0].at;
}

uint64_t topk_run_store(const gw_kernels_t *k, kernel_call_t *c)
{
    k->topk.store(kernel_floats(c, 2), entries_of(c), kernel_floats(c, 1), c->count / 3);
    return 0;
}

uint64_t topk_run_add(const gw_kernels_t *k, kernel_call_t *c)
{
    k->topk.add(kernel_floats(c, 2), entries_of(c), kernel_floats(c, 1), c->count / 3);
    return 0;
}

uint64_t topk_run_settle(const gw_kernels_t *k, kernel_call_t *c)
{
    k->topk.settle(kernel_floats(c, 2), entries_of(c), kernel_floats(c, 1), kernel_floats(c, 3),
                   c->count / 3);
    return 0;
}

/* ---- The codec: it runs on the table in use -----------------------------------------------------
 */

static gw_coder_t coder_on(const gw_kernels_t *k, const kernel_call_t *c)
{
    static const char *const specs[] = {"topk",
                                        "topk+q8:block=256,ratio=0.1",
                                        "topk+fp16:block=1024,ratio=0.02",
                                        "topk:block=64,ratio=0.25",
                                        "topk:block=4096,select=sampled",
                                        "topk+q4:block=8192,ratio=0.2"};
    gw_coder_t coder;
    gw__kernels_select(k->tier, NULL, 0);
    gw_coder_parse(c->number == 602 ? "topk" : specs[c->number % 6], &coder, NULL, 0);
    return coder;
}

void topk_prepare_encode(kernel_call_t *c)
{
    gw_coder_t coder = coder_on(gw__kernels_of("ref"), c);
    add_source(c);
    float *r = (float *)(void *)kernel_add(c, "residual", c->ef ? KERNEL_INOUT : KERNEL_IN,
                                           4 * c->count, 4);
    test_fill(FILL_NORMAL, c->seed + 1, r, c->count);
    kernel_add(c, "payload", KERNEL_OUT, coder.family->bound(&coder, GW_F32, c->count), 1);
}

uint64_t topk_run_encode(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_coder_t coder = coder_on(k, c);
    size_t length = 0;
    gw_encode_t in = {.src = kernel_floats(c, 0),
                      .residual = c->ef ? kernel_floats(c, 1) : NULL,
                      .count = c->count};
    gw_status_t status =
        coder.family->encode(&coder, &in, c->region[2].at, c->region[2].bytes, &length);
    return in.poisoned << 8 | (uint64_t)-status;
}

void topk_prepare_decode(kernel_call_t *c)
{
    gw_coder_t coder = coder_on(gw__kernels_of("ref"), c);
    size_t bytes = coder.family->bound(&coder, GW_F32, c->count), length = 0;
    float *x = (float *)(void *)add_source(c);
    uint8_t *payload = kernel_add(c, "payload", KERNEL_IN, bytes, 1);
    gw_encode_t in = {.src = x, .count = c->count};
    coder.family->encode(&coder, &in, payload, bytes, &length);
    kernel_add(c, "stored", KERNEL_OUT, 4 * c->count, 4);
    test_fill(FILL_NORMAL, c->seed,
              (float *)(void *)kernel_add(c, "sum", KERNEL_INOUT, 4 * c->count, 4), c->count);
}

uint64_t topk_run_decode(const gw_kernels_t *k, kernel_call_t *c)
{
    gw_coder_t coder = coder_on(k, c);
    gw_decode_t io = {.payload = c->region[1].at,
                      .length = c->region[1].bytes,
                      .count = c->count,
                      .dst = kernel_floats(c, 2)};
    uint64_t status = (uint64_t)-coder.family->decode(&coder, &io);
    io.mode = GW_DECODE_ADD;
    io.dst = kernel_floats(c, 3);
    return status << 8 | (uint64_t)-coder.family->decode(&coder, &io);
}
