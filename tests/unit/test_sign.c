/* SPDX-License-Identifier: Apache-2.0 */
/* The codec sign: its scale, its mask of zeros, its feedback, what it refuses. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "bytes.h"
#include "kernels.h"
#include "test_quant_data.h"

enum { N = 4096 };
static float x[N], y[N], residual[N];
static uint8_t payload[4 * N];

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

/* x through the codec to y. */
static void round_trip(const gw_coder_t *coder, float *kept, size_t count)
{
    size_t length = 0;
    gw_encode_t in = {.src = x, .residual = kept, .count = count};
    gw_check(!coder->family->encode(coder, &in, payload, sizeof payload, &length), "encode");
    gw_decode_t out = {.payload = payload, .length = length, .count = count, .dst = y};
    gw_check(!coder->family->decode(coder, &out), "decode");
}

/* Known bytes: scale, mask, signs. */
START_TEST(layout_is_as_documented)
{
    static const uint8_t expected[] = {
        0, 0, 0xC0, 0x3F /* 1.5 */, 2 /* group 1 */, 0x02, 0, 0, 0, 0, 0, 0, 0, 0x80, 0,
        0, 0, 0x01};
    gw_coder_t coder = coder_of("sign:bucket=128");
    for (int i = 0; i < 97; i++)
        x[i] = i / 32 == 1 ? 0.0f : i % 2 ? 1.0f : 2.0f;
    x[1] = -1.0f;
    x[71] = -1.0f;
    x[40] = -0.0f;
    x[96] = -1.5f; /* 33 of 2, 32 of 1 */
    round_trip(&coder, NULL, 97);
    ck_assert_mem_eq(payload, expected, sizeof expected);
    for (int i = 0; i < 97; i++)
        gw_check(y[i] == (i / 32 == 1 ? 0.0f : copysignf(1.5f, x[i])), "element %d", i);
}
END_TEST

/* Rows of 64 elements of which most are never touched: they do not move in a hundred calls. */
START_TEST(untouched_rows_do_not_move)
{
    gw_coder_t coder = coder_of("sign");
    uint64_t seed = 7;
    size_t moved = 0, touched = 0;
    memset(residual, 0, sizeof residual);
    for (int call = 0; call < 100; call++) {
        for (size_t i = 0; i < N; i++)
            x[i] = i / 64 % 5 == 2 ? gw_test_normal(&seed) : 0.0f;
        round_trip(&coder, residual, N);
        for (size_t i = 0; i < N; i++) {
            moved += i / 64 % 5 != 2 && (y[i] != 0.0f || residual[i] != 0.0f);
            touched += i / 64 % 5 == 2 && y[i] != 0.0f;
        }
    }
    ck_assert_uint_eq(moved, 0);
    ck_assert_uint_gt(touched, 100 * N / 6);
}
END_TEST

/* The scale is that of least squared error over the touched elements: no other one is better. */
START_TEST(scale_is_the_best_one)
{
    gw_coder_t coder = coder_of("sign");
    for (uint64_t seed = 0; seed < 20; seed++) {
        double own = 0, less = 0, more = 0;
        test_fill(seed % 2 ? FILL_HEAVY : FILL_NORMAL, seed, x, 512);
        memset(x + 100, 0, 64 * sizeof *x);
        round_trip(&coder, NULL, 512);
        for (int i = 0; i < 512; i++) {
            double p = (double)x[i], q = (double)y[i];
            own += (p - q) * (p - q);
            less += (p - 0.999 * q) * (p - 0.999 * q);
            more += (p - 1.001 * q) * (p - 1.001 * q);
        }
        ck_assert_double_lt(own, less);
        ck_assert_double_lt(own, more);
    }
}
END_TEST

/* Relative error of the sum over 2000 calls of one gradient. */
static double drift(bool feedback)
{
    static double sum[1024];
    double wrong = 0, right = 0;
    gw_coder_t coder = coder_of("sign");
    test_fill(FILL_NORMAL, 4, x, 1024);
    memset(residual, 0, sizeof residual);
    memset(sum, 0, sizeof sum);
    for (int step = 0; step < 2000; step++) {
        round_trip(&coder, feedback ? residual : NULL, 1024);
        for (int i = 0; i < 1024; i++)
            sum[i] += (double)y[i];
    }
    for (int i = 0; i < 1024; i++) {
        double exact = 2000.0 * (double)x[i];
        wrong += (sum[i] - exact) * (sum[i] - exact);
        right += exact * exact;
    }
    return sqrt(wrong / right);
}

START_TEST(feedback_is_real)
{
    ck_assert_double_lt(drift(true), 0.02);
    ck_assert_double_gt(drift(false), 0.4);
}
END_TEST

/* Scales that no encoder writes, bits without a meaning; dst is untouched then. */
START_TEST(impossible_payloads_are_refused)
{
    static const struct {
        uint32_t scale;
        bool valid;
    } cases[] = {{0x3F800000, true},  {0, true},           {GW_NAN_BITS, true}, {0x7F7FFFFF, true},
                 {1, true},           {0xBF800000, false}, {0x80000000, false}, {0x7F800000, false},
                 {0x7FC00001, false}, {0xFFC00000, false}};
    gw_coder_t coder = coder_of("sign:bucket=96");
    size_t bytes = coder.family->bound(&coder, GW_F32, 101), stride = gw__sign_bytes(96);
    gw_decode_t out = {.payload = payload, .length = bytes, .count = 101, .dst = y};
    test_fill(FILL_NORMAL, 1, x, 101);
    for (size_t c = 0; c < 2 * sizeof cases / sizeof *cases; c++) {
        round_trip(&coder, NULL, 101);
        gw__store32(payload + c % 2 * stride, cases[c / 2].scale);
        for (int i = 0; i < 101; i++)
            y[i] = -5.0f;
        gw_status_t status = coder.family->decode(&coder, &out);
        ck_assert_int_eq(status, cases[c / 2].valid ? GW_OK : GW_ERR_FRAME_PAYLOAD);
        for (int i = 0; i < 101 && status; i++)
            gw_check(y[i] == -5.0f, "element %d was written", i);
    }
    /* Groups 3 to 7 of 3, the mask of the tail, signs 5 to 7 of 5. */
    size_t places[] = {4, stride + 4, bytes - 1};
    for (size_t c = 0; c < 3; c++) {
        round_trip(&coder, NULL, 101);
        payload[places[c]] |= 0x80;
        ck_assert_int_eq(coder.family->decode(&coder, &out), GW_ERR_FRAME_PAYLOAD);
    }
}
END_TEST

START_TEST(harmful_specs_are_refused)
{
    gw_coder_t coder;
    char why[256] = "";
    ck_assert_int_eq(gw_coder_parse("sign:ef=off", &coder, why, sizeof why), GW_ERR_BAD_SETTING);
    ck_assert_ptr_nonnull(strstr(why, "force=1"));
    ck_assert_int_eq(gw_coder_parse("sign:ef=off,force=1", &coder, NULL, 0), GW_OK);
    ck_assert_int_eq(gw_coder_parse("sign:bucket=100", &coder, why, sizeof why),
                     GW_ERR_BAD_SETTING);
    ck_assert_ptr_nonnull(strstr(why, "multiple of 32"));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sign");
    TCase *t = tcase_create("sign");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, layout_is_as_documented);
    tcase_add_test(t, untouched_rows_do_not_move);
    tcase_add_test(t, scale_is_the_best_one);
    tcase_add_test(t, feedback_is_real);
    tcase_add_test(t, impossible_payloads_are_refused);
    tcase_add_test(t, harmful_specs_are_refused);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
