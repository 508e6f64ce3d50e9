/* SPDX-License-Identifier: Apache-2.0 */
/* Codec topk: what is selected, how it lies in the payload, what is refused. */
#include "gw_test.h"

#include <string.h>

#include <gradwire/codec.h>

#include "bytes.h"
#include "kernels.h"
#include "quant_fill.h"

enum { N = 1 << 18, ROOM = 4 * N };
static float x[N], y[N];
static uint8_t payload[ROOM];
static uint32_t order[N];

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

/* ---- Exact selection ----------------------------------------------------------------------------
 */

static const float *values;

/* Largest magnitude first, of equal ones the lowest index. */
static int by_rank(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    uint32_t p = gw__float_bits(values[i]) & 0x7FFFFFFFu,
             q = gw__float_bits(values[j]) & 0x7FFFFFFFu;
    return p != q ? (p < q ? 1 : -1) : i < j ? -1 : 1;
}

/* Decoded: exactly the k elements that a sort puts first, by their bits; all others 0. */
static void check_exact(const char *spec, size_t count, size_t block, double ratio)
{
    gw_coder_t coder = coder_of(spec);
    size_t wrong = 0;
    ck_assert_int_eq(decode(&coder, encode(&coder, count), count), GW_OK);
    for (size_t i = 0; i < count; i += block) {
        size_t n = count - i < block ? count - i : block;
        size_t k = (size_t)(ratio * (double)n + 0.5);
        k = k ? k : 1;
        for (size_t j = 0; j < n; j++)
            order[j] = (uint32_t)j;
        values = x + i;
        qsort(order, n, sizeof *order, by_rank);
        for (size_t j = 0; j < n; j++) {
            uint32_t expected = j < k ? gw__float_bits(x[i + order[j]]) : 0;
            wrong += gw__float_bits(y[i + order[j]]) != expected;
        }
    }
    ck_assert_msg(wrong == 0, "%s: %zu of %zu elements wrong", spec, wrong, count);
}

static const struct {
    const char *spec;
    size_t block;
    double ratio;
} exact[] = {
    {"topk", 65536, 0.01},
    {"topk:ratio=0.001", 65536, 0.001},
    {"topk:ratio=0.1", 65536, 0.1},
    {"topk:ratio=0.25", 65536, 0.25},
    {"topk:ratio=0.05", 65536, 0.05},
    {"topk:block=262144", 262144, 0.01},
    {"topk:block=262144,ratio=0.2", 262144, 0.2},
    {"topk:block=64,ratio=0.1", 64, 0.1},
    {"topk:block=4096,ratio=0.05", 4096, 0.05},
    {"topk:block=8192,ratio=1e-6", 8192, 1e-6},
};
enum { EXACT = sizeof exact / sizeof *exact };

START_TEST(exactly_k_and_ties_to_the_lowest_index)
{
    static const size_t counts[] = {1, 2, 63, 65, 5000, 65537, 140001};
    const char *tier = gw__kernels_available((size_t)_i / EXACT);
    ck_assert_int_eq(gw__kernels_select(tier, NULL, 0), GW_OK);
    for (int f = 0; f < FILL_FINITE; f++) {
        size_t count = counts[(size_t)(f + _i) % (sizeof counts / sizeof *counts)];
        test_fill((test_fill_t)f, (uint64_t)f + 3, x, count);
        check_exact(exact[_i % EXACT].spec, count, exact[_i % EXACT].block,
                    exact[_i % EXACT].ratio);
    }
}
END_TEST

/* Runs that a sample misses, and ones that it meets alone: the guess is far off, the result not. */
START_TEST(clustered_blocks_are_exact)
{
    for (int k = 0; k < 8; k++) {
        size_t run = (size_t)3 << k;
        test_fill(FILL_NORMAL, 5, x, 140000);
        for (size_t i = 0; i < 140000; i++)
            if (i % 512 < run)
                x[i] *= k % 2 ? 1000.0f : 1e-5f;
        check_exact("topk", 140000, 65536, 0.01);
        check_exact("topk:ratio=0.03", 140000, 65536, 0.03);
        check_exact("topk:ratio=0.12", 140000, 65536, 0.12);
    }
}
END_TEST

START_TEST(not_finite_first)
{
    for (int every = 1; every < 100000; every *= 7) {
        gw_coder_t coder = coder_of(every % 2 ? "topk" : "topk+fp16");
        size_t lost = 0, count = 140000, inside = 0;
        test_fill(FILL_HEAVY, 6, x, count);
        for (size_t i = 0; i < count; i += (size_t)every)
            x[i] = i % 3 ? NAN : -INFINITY;
        ck_assert_int_eq(decode(&coder, encode(&coder, count), count), GW_OK);
        for (size_t i = 0; i < count; i++) {
            lost += !isfinite(x[i]) && isfinite(y[i]);
            inside += isfinite(x[i]) && !isfinite(y[i]);
        }
        ck_assert_uint_eq(lost, 0);
        if (every > 100) /* they fit: nothing else is touched, and Inf stays Inf */
            ck_assert_msg(inside == 0 && isinf(y[0]), "every %d: %zu more", every, inside);
    }
}
END_TEST

/* ---- Sampled ------------------------------------------------------------------------------------
 */

START_TEST(sampled_sends_at_most_k_and_not_few)
{
    static const char *const specs[] = {"topk:select=sampled", "topk:select=sampled,ratio=0.05",
                                        "topk:select=sampled,ratio=0.001"};
    static const double ratios[] = {0.01, 0.05, 0.001};
    for (int s = 0; s < 3; s++)
        for (int f = 0; f < 2; f++) {
            gw_coder_t coder = coder_of(specs[s]);
            size_t slots = (size_t)(65536 * ratios[s] + 0.5);
            test_fill(f ? FILL_HEAVY : FILL_NORMAL, (uint64_t)s, x, 65536);
            ck_assert_int_eq(decode(&coder, encode(&coder, 65536), 65536), GW_OK);
            size_t sent = gw__load32(payload);
            float least = INFINITY, left = 0;
            for (size_t i = 0; i < 65536; i++) {
                least = y[i] != 0 ? fminf(least, fabsf(y[i])) : least;
                left = y[i] != 0 ? left : fmaxf(left, fabsf(x[i]));
            }
            ck_assert_msg(sent <= slots && (double)sent >= 0.7 / 1.3 * (double)slots - 1,
                          "%zu of %zu", sent, slots);
            ck_assert(least > left); /* a threshold, not a choice */
        }
}
END_TEST

/* ---- Momentum and warm-up -----------------------------------------------------------------------
 */

/* u = m u + g, v = v + u; what is sent leaves v, and u where it is masked; what is not finite
 * leaves both. */
START_TEST(momentum_is_corrected_and_masked)
{
    enum { M = 3000, STEPS = 6 };
    static float u[M], v[M], before_u[M], before_v[M];
    for (int masking = 0; masking < 2; masking++) {
        gw_coder_t coder =
            coder_of(masking ? "topk:block=1024,ratio=0.05,momentum=0.9"
                             : "topk:block=1024,ratio=0.05,momentum=0.9,masking=off");
        size_t sent = 0, length;
        memset(u, 0, sizeof u);
        memset(v, 0, sizeof v);
        for (int step = 0; step < STEPS; step++) {
            test_fill(step == 3 ? FILL_NAN : FILL_HEAVY, (uint64_t)step, x, M);
            memcpy(before_u, u, sizeof u);
            memcpy(before_v, v, sizeof v);
            gw_encode_t in = {.src = x, .residual = v, .momentum = u, .count = M};
            ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_OK);
            ck_assert_int_eq(decode(&coder, length, M), GW_OK);
            for (size_t i = 0; i < M; i++) {
                float decayed = 0.9f * before_u[i], now = decayed + x[i], p = before_v[i] + now;
                bool lost = !isfinite(x[i]), gone = !lost && y[i] != 0;
                float left_u = lost ? before_u[i] : gone && masking ? 0.0f : now;
                float left_v = lost ? before_v[i] : gone ? 0.0f : p;
                gw_check(u[i] == left_u && v[i] == left_v, "step %d, element %zu: %g %g, not %g %g",
                         step, i, (double)u[i], (double)v[i], (double)left_u, (double)left_v);
                gw_check(!gone || y[i] == p, "step %d, element %zu sends %g, not %g", step, i,
                         (double)y[i], (double)p);
                sent += gone;
            }
        }
        ck_assert_uint_gt(sent, STEPS * 140);
    }
}
END_TEST

START_TEST(the_ratio_falls_by_fours)
{
    static const struct {
        uint64_t call;
        double ratio;
    } cases[] = {{0, 0.25},       {99, 0.25},      {100, 0.0625}, {199, 0.0625},
                 {200, 0.015625}, {299, 0.015625}, {300, 0.01},   {UINT64_MAX, 0.01}};
    gw_coder_t coder = coder_of("topk:warmup=300"), now;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        coder.family->at_call(&coder, cases[i].call, &now);
        ck_assert_double_eq(gw_coder_get(&now, "ratio", 0), cases[i].ratio);
        ck_assert_double_eq(gw_coder_get(&coder, "ratio", 0), 0.01);
    }
    coder = coder_of("topk");
    coder.family->at_call(&coder, 0, &now);
    ck_assert_double_eq(gw_coder_get(&now, "ratio", 0), 0.01);
    coder = coder_of("topk:ratio=0.25,warmup=300"); /* nothing to warm up */
    coder.family->at_call(&coder, 0, &now);
    ck_assert_double_eq(gw_coder_get(&now, "ratio", 0), 0.25);
}
END_TEST

/* ---- Layout -------------------------------------------------------------------------------------
 */

START_TEST(layout_is_as_documented)
{
    gw_coder_t coder = coder_of("topk:block=256,ratio=0.01"); /* 3 of 256, 8 bits an index */
    memset(x, 0, sizeof x);
    x[7] = -2.0f;
    x[200] = 1.0f;
    x[255] = 3.0f;
    static const uint8_t expected[] = {3,    0, 0, 0,    7,    200, 255, 0,    0,   0,
                                       0xC0, 0, 0, 0x80, 0x3F, 0,   0,   0x40, 0x40};
    ck_assert_uint_eq(encode(&coder, 256), sizeof expected);
    ck_assert_mem_eq(payload, expected, sizeof expected);
    coder = coder_of("topk:block=512,ratio=0.005");              /* 9 bits */
    static const uint8_t odd[] = {3, 0, 0, 0, 7, 0x90, 0xFD, 3}; /* 7, 200, 255: 27 bits */
    encode(&coder, 512);
    ck_assert_mem_eq(payload, odd, sizeof odd);
    ck_assert_uint_eq(coder.family->bound(&coder, GW_BF16, 512), 4 + 4 + 3 * 2);
    coder = coder_of("topk+q8");
    ck_assert_uint_eq(coder.family->bound(&coder, GW_F32, 65536), 4 + 655 * 2 + 8 + 512 + 8 + 143);
}
END_TEST

/* 1 % with 8-bit values: 2.5 bytes an entry. */
START_TEST(what_no_encoder_writes_is_refused)
{
    gw_coder_t coder = coder_of("topk:block=128,ratio=0.03"); /* 4 of 128, 7 bits: 28 bits */
    test_fill(FILL_NORMAL, 1, x, 128);
    size_t length = encode(&coder, 128);
    static const struct {
        size_t at;
        uint32_t word;
        bool valid;
    } cases[] = {
        {0, 5, false},          /* more entries than there is room */
        {0, 3, false},          /* fewer, but what lies behind is not 0 */
        {0, 0xFFFFFFFF, false}, /* poisoned, likewise */
        {0, 0xFFFFFFFE, false},
        {4, 1 | 2 << 7 | 3 << 14 | 4 << 21, true},
        {4, 1 | 2 << 7 | 2 << 14 | 4 << 21, false}, /* twice the same */
        {4, 1 | 3 << 7 | 2 << 14 | 4 << 21, false}, /* falls */
        {4, 0 | 1 << 7 | 2 << 14 | 127 << 21, true},
        {4, 1 | 2 << 7 | 3 << 14 | 4 << 21 | 1u << 28, false}, /* behind the last */
        {8, 0x7FC12345, true},                                 /* a value may be anything */
    };
    ck_assert_uint_eq(length, 4 + 4 + 16);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        encode(&coder, 128);
        gw__store32(payload + cases[c].at, cases[c].word);
        ck_assert_msg(decode(&coder, length, 128) ==
                          (cases[c].valid ? GW_OK : GW_ERR_FRAME_PAYLOAD),
                      "case %zu", c);
    }
    memset(payload, 0, length);
    ck_assert_int_eq(decode(&coder, length, 128), GW_OK); /* nothing sent */
    gw__store32(payload, 0xFFFFFFFF);
    ck_assert_int_eq(decode(&coder, length, 128), GW_OK);
    ck_assert_uint_eq(gw__float_bits(y[127]), GW_NAN_BITS);
    length = encode(&coder, 100); /* a short block has fewer indices */
    gw__store32(payload + 4, 1 | 2 << 7 | 100 << 14);
    ck_assert_int_eq(decode(&coder, length, 100), GW_ERR_FRAME_PAYLOAD);
}
END_TEST

/* ---- Specifications -----------------------------------------------------------------------------
 */

static const struct {
    const char *spec, *canonical;
} good[] = {
    {"topk", "topk"},
    {"topk:ratio=0.01,block=65536,values=raw,select=exact,ef=on", "topk"},
    {"topk+q8", "topk+q8"},
    {"topk:values=q8", "topk+q8"},
    {"topk+q4:values=q4", "topk+q4"},
    {"topk+q8:ratio=0.001,block=1048576", "topk+q8:ratio=0.001,block=1048576"},
    {"topk:ef=off,force=1", "topk:ef=off,force=1"},
    {"topk:select=sampled", "topk:select=sampled"},
    {"topk:momentum=0.9,masking=off,warmup=1000", "topk:momentum=0.9,masking=off,warmup=1000"},
};

START_TEST(specifications_have_one_text)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        gw_coder_t coder = coder_of(good[i].spec), again = coder_of(coder.spec), read;
        uint8_t bytes[GW_CODEC_HEADER_PARAMS];
        ck_assert_str_eq(coder.spec, good[i].canonical);
        ck_assert_mem_eq(&coder, &again, sizeof coder);
        coder.family->put_params(&coder, bytes);
        read = coder_of("topk");
        ck_assert_int_eq(coder.family->get_params(bytes, &read), GW_OK);
        ck_assert(gw_coder_get(&read, "ratio", 0) == gw_coder_get(&coder, "ratio", 0));
        ck_assert(gw_coder_get(&read, "block", 0) == gw_coder_get(&coder, "block", 0));
        ck_assert(gw_coder_get(&read, "values", 0) == gw_coder_get(&coder, "values", 0));
    }
}
END_TEST

static const struct {
    const char *spec, *word;
} bad[] = {
    {"topk+", "topk"},
    {"topk+q3", "closest: 'topk+q"},
    {"topkq8", "closest: 'topk"},
    {"topk:ratio=0.3", "0.25"},
    {"topk:ratio=0", "1e-06"},
    {"topk:block=1000", "power of two"},
    {"topk:block=32", "64"},
    {"topk:ef=off", "force=1"},
    {"topk:ef=off,momentum=0.9,force=1", "ef=on"},
    {"topk:momentum=1", "0.999"},
};

START_TEST(specifications_that_are_refused)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gw_coder_t coder;
        char why[512] = "";
        ck_assert_int_ne(gw_coder_parse(bad[i].spec, &coder, why, sizeof why), GW_OK);
        ck_assert_msg(strstr(why, bad[i].word), "%s: '%s' is not in: %s", bad[i].spec, bad[i].word,
                      why);
    }
}
END_TEST

/* Mean error of the table in the design: 1 % of heavy data leaves a third. */
START_TEST(error_is_that_of_the_table)
{
    gw_coder_t coder = coder_of("topk");
    double lost = 0, all = 0;
    test_fill(FILL_NORMAL, 17, x, N);
    ck_assert_int_eq(decode(&coder, encode(&coder, N), N), GW_OK);
    for (size_t i = 0; i < N; i++) {
        lost += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += (double)x[i] * x[i];
    }
    printf("# NMSE of topk on normal data: %.3f\n", lost / all);
    ck_assert_double_eq_tol(lost / all, 0.92, 0.02);
}
END_TEST

static Suite *suite(void)
{
    int tiers = 0;
    while (gw__kernels_available((size_t)tiers))
        tiers++;
    Suite *s = suite_create("topk");
    TCase *t = tcase_create("topk");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, exactly_k_and_ties_to_the_lowest_index, 0, tiers * EXACT);
    tcase_add_test(t, clustered_blocks_are_exact);
    tcase_add_test(t, not_finite_first);
    tcase_add_test(t, sampled_sends_at_most_k_and_not_few);
    tcase_add_test(t, momentum_is_corrected_and_masked);
    tcase_add_test(t, the_ratio_falls_by_fours);
    tcase_add_test(t, layout_is_as_documented);
    tcase_add_test(t, what_no_encoder_writes_is_refused);
    tcase_add_test(t, specifications_have_one_text);
    tcase_add_test(t, specifications_that_are_refused);
    tcase_add_test(t, error_is_that_of_the_table);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
