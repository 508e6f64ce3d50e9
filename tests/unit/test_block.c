/* SPDX-License-Identifier: Apache-2.0 */
/* Codec block: which blocks are sent, how they lie in the payload, what is refused. */
#include "gw_test.h"

#include <string.h>

#include <gradwire/codec.h>

#include "bytes.h"
#include "kernels.h"
#include "quant_fill.h"

enum { N = 100 * 64 + 13, BLOCKS = 101, ROOM = 4 * N + 64 };
static float x[N], y[N];
static uint8_t payload[ROOM];

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

static size_t encode(const gw_coder_t *coder, size_t count)
{
    size_t length = 0;
    gw_encode_t in = {.src = x, .count = count};
    ck_assert_int_eq(coder->family->encode(coder, &in, payload, ROOM, &length), GW_OK);
    return length;
}

static gw_status_t decode(const gw_coder_t *coder, size_t length, size_t count)
{
    gw_decode_t out = {.payload = payload, .length = length, .count = count, .dst = y};
    return coder->family->decode(coder, &out);
}

/* ---- Which blocks -------------------------------------------------------------------------------
 */

static size_t block_length(size_t block)
{
    return block + 1 < BLOCKS ? 64 : N - block * 64;
}

static bool is_sent(size_t block)
{
    for (size_t i = 0; i < block_length(block); i++)
        if (y[block * 64 + i] != 0)
            return true;
    return false;
}

static double mean_square(size_t block)
{
    double sum = 0;
    for (size_t i = 0; i < block_length(block); i++)
        sum += (double)x[block * 64 + i] * (double)x[block * 64 + i];
    return sum / (double)block_length(block);
}

START_TEST(the_largest_are_sent)
{
    static const double ratios[] = {0.01, 0.1, 0.25, 0.5};
    for (int c = 0; c < 4; c++) {
        char spec[64];
        uint64_t seed = (uint64_t)c;
        size_t k = (size_t)(ratios[c] * BLOCKS + 0.5), sent = 0;
        double least = INFINITY, left = 0;
        snprintf(spec, sizeof spec, "topblock:size=64,ratio=%g", ratios[c]);
        gw_coder_t coder = coder_of(spec);
        for (size_t i = 0; i < N; i++)
            x[i] = gw_test_normal(&seed) * (float)(1 + i / 64 * 37 % 100);
        ck_assert_int_eq(decode(&coder, encode(&coder, N), N), GW_OK);
        for (size_t b = 0; b < BLOCKS; b++) {
            sent += is_sent(b);
            if (is_sent(b)) {
                least = fmin(least, mean_square(b));
                ck_assert_mem_eq(y + 64 * b, x + 64 * b, block_length(b) * sizeof *x);
            } else {
                left = fmax(left, mean_square(b));
            }
        }
        ck_assert_uint_eq(sent, k);
        ck_assert_double_gt(least, left);
    }
}
END_TEST

/* Equal blocks: the first ones. Blocks of zeros: none. Not finite: all, however many. */
START_TEST(ties_zeros_and_what_is_not_finite)
{
    gw_coder_t coder = coder_of("topblock:size=64,ratio=0.1");
    for (size_t i = 0; i < N; i++)
        x[i] = 1.0f;
    ck_assert_int_eq(decode(&coder, encode(&coder, 6400), 6400), GW_OK);
    for (size_t b = 0; b < 100; b++)
        ck_assert_int_eq(is_sent(b), b < 10);
    for (size_t i = 0; i < N; i++)
        x[i] = i / 64 == 7 ? 1.0f : -0.0f;
    size_t length = encode(&coder, N);
    ck_assert_uint_eq(length, 1 + 13 + 256);
    x[7 * 64] = NAN;
    for (size_t b = 20; b < 60; b++)
        x[b * 64 + b] = b % 2 ? INFINITY : NAN;
    ck_assert_int_eq(decode(&coder, encode(&coder, N), N), GW_OK);
    for (size_t i = 0; i < N; i++)
        gw_check(isfinite(x[i]) == isfinite(y[i]), "element %zu", i);
}
END_TEST

START_TEST(what_does_not_pay_is_dense)
{
    gw_coder_t coder = coder_of("block:size=64,domain=4096");
    static const size_t domains = 2, bound = 4 * N + 2;
    ck_assert_uint_eq(coder.family->bound(&coder, GW_F32, N), 4 * N + domains);
    test_fill(FILL_NORMAL, 1, x, N);
    ck_assert_uint_eq(encode(&coder, N), bound);
    ck_assert_int_eq(payload[0], 2);
    memset(x, 0, 64 * sizeof *x); /* one block less pays for the bitmap */
    ck_assert_uint_eq(encode(&coder, N), bound - 256 + 8);
    ck_assert_int_eq(payload[0], 1);
    memset(x, 0, sizeof x);
    ck_assert_uint_eq(encode(&coder, N), 2);
    ck_assert_int_eq(decode(&coder, 2, N), GW_OK);
    ck_assert_mem_eq(x, y, sizeof x);
}
END_TEST

/* ---- Layout -------------------------------------------------------------------------------------
 */

START_TEST(layout_is_as_documented)
{
    gw_coder_t coder = coder_of("block:size=16,domain=64");
    uint8_t params[GW_CODEC_HEADER_PARAMS];
    static const uint8_t expected[] = {4, 6, 0, 0, 0, 0, 0, 0};
    coder.family->put_params(&coder, params);
    ck_assert_mem_eq(params, expected, sizeof expected);
    memset(x, 0, sizeof x);
    x[17] = 1.0f;
    x[70] = 2.0f; /* of the second domain, which has one block of 8 */
    size_t length = encode(&coder, 72);
    ck_assert_uint_eq(length, 1 + 1 + 64 + 1 + 32);
    ck_assert_int_eq(payload[0], 1);
    ck_assert_int_eq(payload[1], 2);
    ck_assert_uint_eq(gw__load32(payload + 2 + 4), 0x3F800000);
    ck_assert_int_eq(payload[66], 2); /* dense */
    ck_assert_uint_eq(gw__load32(payload + 67 + 24), 0x40000000);
}
END_TEST

START_TEST(what_no_encoder_writes_is_refused)
{
    gw_coder_t coder = coder_of("block:size=16,domain=64");
    static const struct {
        uint8_t form, map;
        size_t length;
        bool valid;
    } cases[] = {
        {0, 0, 1, true},
        {1, 1, 2 + 64, true},
        {1, 2, 2 + 32, true},           /* the last block has 8 elements */
        {1, 1 | 2, 2 + 96, false},      /* all: dense is shorter */
        {1, 1 | 4, 2 + 128, false},     /* longer than what the map says */
        {1, 1 | 2 | 4, 2 + 128, false}, /* two blocks and a half: a bit behind the last block */
        {0, 0, 2, false},
        {1, 1, 2 + 63, false},
        {1, 0, 2, false}, /* nothing to send */
        {3, 0, 1, false},
        {2, 0, 1 + 96, true},
        {2, 0, 1 + 95, false},
        {2, 0, 1 + 97, false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        memset(payload, 0, sizeof payload);
        payload[0] = cases[c].form;
        payload[1] = cases[c].map;
        gw_status_t status = decode(&coder, cases[c].length, 24);
        ck_assert_msg((status == GW_OK) == cases[c].valid, "case %zu: %d", c, status);
    }
}
END_TEST

static const struct {
    const char *spec, *text;
    bool good;
} texts[] = {
    {"block", "block", true},
    {"block:mode=nonzero,ef=off", "block", true},
    {"topblock", "topblock", true},
    {"topblock:mode=largest,ef=on", "topblock", true},
    {"topblock:ratio=0.05,size=64", "topblock:size=64,ratio=0.05", true},
    {"block:mode=largest,ef=on", "what is meant is topblock", false},
    {"topblock:ef=off", "force=1", false},
    {"topblock:ef=off,force=1", "topblock:ef=off,force=1", true},
    {"block:size=100", "size=100", false},
    {"block:domain=100000", "65536", false},
    {"block:size=256,domain=128", "blocks of size", false},
    {"block:size=16,domain=1048576", "4096 blocks", false},
    {"block:size=8192", "4096", false},
};

START_TEST(specifications)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        gw_coder_t coder, again;
        char why[512] = "";
        gw_status_t status = gw_coder_parse(texts[i].spec, &coder, why, sizeof why);
        ck_assert_msg((status == GW_OK) == texts[i].good, "%s: %s", texts[i].spec, why);
        ck_assert_msg(strstr(status ? why : coder.spec, texts[i].text), "%s: %s", texts[i].spec,
                      status ? why : coder.spec);
        if (status == GW_OK) {
            ck_assert_int_eq(gw_coder_parse(coder.spec, &again, NULL, 0), GW_OK);
            ck_assert_mem_eq(&coder, &again, sizeof coder);
        }
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("block");
    TCase *t = tcase_create("block");
    tcase_add_test(t, the_largest_are_sent);
    tcase_add_test(t, ties_zeros_and_what_is_not_finite);
    tcase_add_test(t, what_does_not_pay_is_dense);
    tcase_add_test(t, layout_is_as_documented);
    tcase_add_test(t, what_no_encoder_writes_is_refused);
    tcase_add_test(t, specifications);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
