/* SPDX-License-Identifier: Apache-2.0 */
/* The codec natural: its layouts, its rounding, its errors, its feedback, what it refuses. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "bytes.h"
#include "kernels.h"
#include "test_quant_data.h"

enum { N = 65536, KEYS = 4000 };
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
static size_t round_trip(const gw_coder_t *coder, float *kept, size_t count, uint64_t key)
{
    size_t length = 0;
    gw_encode_t in = {.src = x, .residual = kept, .count = count, .key = key};
    gw_check(!coder->family->encode(coder, &in, payload, sizeof payload, &length), "encode");
    gw_decode_t out = {.payload = payload, .length = length, .count = count, .dst = y};
    gw_check(!coder->family->decode(coder, &out), "decode");
    return length;
}

static double relative_error(size_t count)
{
    double lost = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        lost += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
        all += (double)x[i] * (double)x[i];
    }
    return lost / all;
}

/* ---- Layouts ------------------------------------------------------------------------------------
 */

/* Exponents, then signs. */
START_TEST(powers_lie_as_documented)
{
    static const float values[] = {1, -2, 0, -0.0f, NAN, -INFINITY, 0x1p-126f, -0x1p127f, -0.5f};
    static const uint8_t expected[] = {127, 128, 0, 0, 255, 255, 1, 254, 126, 0x8A, 0x01};
    static const float back[] = {1, -2, 0, -0.0f, NAN, NAN, 0x1p-126f, -0x1p127f, -0.5f};
    gw_coder_t coder = coder_of("natural");
    memcpy(x, values, sizeof values);
    ck_assert_uint_eq(round_trip(&coder, NULL, 9, 1), sizeof expected);
    ck_assert_mem_eq(payload, expected, sizeof expected);
    for (int i = 0; i < 9; i++)
        gw_check(gw__load32(&y[i]) == (isnan(back[i]) ? GW_NAN_BITS : gw__load32(&back[i])),
                 "element %d: %a", i, (double)y[i]);
}
END_TEST

/* Scale, then codes with the sign on top. */
START_TEST(levels_lie_as_documented)
{
    static const uint8_t nuqsgd[] = {0, 0, 0x80, 0x40 /* 4 */, 0xE7, 0x90, 0x05};
    static const uint8_t ternary[] = {0, 0, 0x80, 0x40, 0x4D};
    static const float values[] = {4, -2, 0, -0x1p-4f, 1};
    gw_coder_t coder = coder_of("nuqsgd:norm=max");
    memcpy(x, values, sizeof values);
    ck_assert_uint_eq(round_trip(&coder, NULL, 5, 1), sizeof nuqsgd);
    ck_assert_mem_eq(payload, nuqsgd, sizeof nuqsgd);
    ck_assert_mem_eq(y, values, sizeof values);
    coder = coder_of("ternary:clip=64");
    x[1] = -4;
    x[3] = 4;
    ck_assert_uint_eq(round_trip(&coder, NULL, 4, 1), sizeof ternary);
    ck_assert_mem_eq(payload, ternary, sizeof ternary);
    ck_assert_mem_eq(y, x, 16);
}
END_TEST

/* ---- Rounding -----------------------------------------------------------------------------------
 */

/* The mean over many keys is the number, as far as such a mean can tell; to the nearest it is not.
 */
static double bias(const char *spec, size_t count)
{
    static double sum[512], squares[512];
    double worst = 0;
    gw_coder_t coder = coder_of(spec);
    memset(sum, 0, sizeof sum);
    memset(squares, 0, sizeof squares);
    for (uint64_t key = 0; key < KEYS; key++) {
        round_trip(&coder, NULL, count, key);
        for (size_t i = 0; i < count; i++) {
            sum[i] += (double)y[i];
            squares[i] += (double)y[i] * (double)y[i];
        }
    }
    for (size_t i = 0; i < count; i++) {
        double mean = sum[i] / KEYS, variance = squares[i] / KEYS - mean * mean;
        double off = fabs(mean - (double)x[i]);
        double unit = sqrt(fmax(variance, 0) / KEYS) + fabs((double)x[i]) * 0x1p-14;
        worst = fmax(worst, off / unit);
    }
    return worst;
}

START_TEST(random_rounding_is_unbiased)
{
    static const char *const specs[] = {"natural", "nuqsgd", "nuqsgd:bits=5,norm=max", "ternary"};
    test_fill(FILL_NORMAL, 11, x, 512);
    for (size_t i = 0; i < 512; i++) /* no tails, which ternary cuts off */
        x[i] = fmaxf(-2e-3f, fminf(2e-3f, x[i]));
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        double worst = bias(specs[s], 512);
        gw_check(worst < 5, "%s: off by %.1f standard errors", specs[s], worst);
    }
    ck_assert_double_gt(bias("natural:ef=on", 512), 100);
}
END_TEST

/* Below 2^-126 steps are linear, and a power of two is as likely as it should be. */
START_TEST(denormals_are_unbiased)
{
    for (int i = 0; i < 64; i++)
        x[i] = ldexpf(1.0f + (float)i / 64, -127 - i % 8) * (i % 2 ? 1.0f : -1.0f);
    double worst = bias("natural", 64);
    ck_assert_double_lt(worst, 5);
}
END_TEST

/* What is a level is kept, whatever the noise. */
START_TEST(levels_never_move)
{
    gw_coder_t coder = coder_of("natural");
    for (int i = 0; i < 510; i++)
        x[i] = ldexpf(i % 2 ? 1.0f : -1.0f, i / 2 - 126);
    x[508] = 0.0f;
    x[509] = -0.0f;
    for (uint64_t key = 0; key < 200; key++) {
        round_trip(&coder, NULL, 510, key);
        ck_assert_mem_eq(y, x, 510 * sizeof *x);
    }
}
END_TEST

/* Ties go away from 0; what would be an Inf becomes 2^127. */
START_TEST(nearest_is_nearest)
{
    static const float values[] = {1.49f, 1.5f, -1.51f, 0x1.8p-127f, 0x1p-127f, FLT_MAX, -FLT_MAX};
    static const float back[] = {1, 2, -2, 0x1p-126f, 0x1p-126f, 0x1p127f, -0x1p127f};
    gw_coder_t coder = coder_of("natural:ef=on");
    memcpy(x, values, sizeof values);
    x[7] = 0x1.fp-128f; /* below the middle of 0 and 2^-126 */
    round_trip(&coder, NULL, 8, 1);
    ck_assert_mem_eq(y, back, sizeof back);
    ck_assert(y[7] == 0.0f);
}
END_TEST

/* Elements of one word, pairs and keys get noise of their own. */
START_TEST(noise_is_independent)
{
    gw_coder_t coder = coder_of("natural");
    size_t up[4] = {0};
    for (int i = 0; i < 512; i++)
        x[i] = 1.5f;
    for (uint64_t key = 0; key < 200; key++) {
        round_trip(&coder, NULL, 512, key);
        for (int i = 0; i < 512; i += 32)
            for (int j = 0; j < 16; j++)
                up[(y[i + j] > 1.5f) + 2 * (y[i + j + 16] > 1.5f)]++;
    }
    for (int k = 0; k < 4; k++) /* of 51,200 draws; five standard deviations are 490 */
        gw_check(up[k] > 12300 && up[k] < 13300, "%zu of pair %d", up[k], k);
}
END_TEST

/* ---- Errors -------------------------------------------------------------------------------------
 */

/* Student's t with 4 degrees of freedom, and 0.5 % zeros; or N(0, 1). */
static void fill_data(bool heavy, uint64_t seed)
{
    for (size_t i = 0; i < N; i++) {
        double chi = 0;
        for (int k = 0; k < 4; k++) {
            double z = (double)gw_test_normal(&seed);
            chi += z * z;
        }
        float normal = gw_test_normal(&seed);
        x[i] = !heavy ? normal : gw_test_random(&seed) % 200 ? normal / (float)sqrt(chi / 4) : 0.0f;
    }
}

static double error_of(const char *spec)
{
    gw_coder_t coder = coder_of(spec);
    round_trip(&coder, NULL, N, 5);
    return relative_error(N);
}

/* Squared error over that of x, as the design has measured it: 5 % either way. */
START_TEST(errors_are_as_published)
{
    static const struct {
        const char *spec;
        double normal, heavy;
    } cases[] = {{"natural", 0.082, 0.084}, {"nuqsgd", 0.087, 0.090}, {"ternary", 1.01, 0.96}};
    for (size_t c = 0; c < 3; c++)
        for (int heavy = 0; heavy < 2; heavy++) {
            fill_data(heavy, 3);
            double error = error_of(cases[c].spec);
            double expected = heavy ? cases[c].heavy : cases[c].normal;
            printf("# %s, %s: %.4f\n", cases[c].spec, heavy ? "heavy" : "normal", error);
            gw_check(fabs(error - expected) <= 0.05 * expected, "%s: %.4f, not %.4f", cases[c].spec,
                     error, expected);
        }
}
END_TEST

/* What check() and the documentation say of other settings. */
START_TEST(claims_are_measured)
{
    fill_data(false, 4);
    ck_assert_double_gt(error_of("nuqsgd:bits=3,force=1"), 1.0);
    ck_assert_double_gt(error_of("nuqsgd:bits=3,bucket=128,force=1"), 1.0);
    ck_assert_double_lt(error_of("nuqsgd:bits=3,bucket=64"), 0.8);
    ck_assert_double_lt(error_of("nuqsgd:bits=3,norm=max"), 0.15);
    ck_assert_double_lt(error_of("natural:ef=on"), 0.04);
    /* Three levels of least error for N(0, 1): Max gives 0.190. */
    ck_assert_double_eq_tol(error_of("ternary:ef=on,clip=1.224"), 0.190, 0.006);
    ck_assert_double_lt(error_of("ternary:ef=on"), 0.51);
}
END_TEST

/* Root of the mean square of the residual after 300 calls with one gradient, over that of it. */
static double residual_after_calls(const char *spec)
{
    double kept = 0, all = 0;
    gw_coder_t coder = coder_of(spec);
    fill_data(false, 6);
    memset(residual, 0, sizeof residual);
    for (uint64_t call = 0; call < 300; call++)
        round_trip(&coder, residual, 4096, call);
    for (int i = 0; i < 4096; i++) {
        kept += (double)residual[i] * (double)residual[i];
        all += (double)x[i] * (double)x[i];
    }
    return sqrt(kept / all);
}

START_TEST(residuals_stay_small_or_are_refused)
{
    static const char *const specs[] = {"natural:ef=on",
                                        "natural:ef=on,round=stochastic",
                                        "nuqsgd:ef=on",
                                        "nuqsgd:ef=on,round=stochastic",
                                        "nuqsgd:ef=on,bits=3,norm=max",
                                        "nuqsgd:ef=on,bits=3,bucket=64",
                                        "nuqsgd:ef=on,bits=3,force=1",
                                        "ternary:ef=on",
                                        "ternary:ef=on,clip=1.3",
                                        "ternary:ef=on,round=stochastic,force=1"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        double kept = residual_after_calls(specs[s]);
        printf("# %s: residual of %.2f gradients\n", specs[s], kept);
        gw_check(strstr(specs[s], "force") ? kept > 5 : kept < 5, "%s: %.2f", specs[s], kept);
    }
}
END_TEST

/* ---- Poison -------------------------------------------------------------------------------------
 */

/* Powers of two have no scale: what is not finite stays alone, and keeps its residual. */
START_TEST(poison_stays_alone)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    gw_coder_t coder = coder_of("natural:ef=on");
    for (size_t t = 0; gw__kernels_available(t); t++)
        for (size_t b = 0; b < 8; b++) {
            size_t at = b < 4 ? 700 : 1030, length = 0, wrong = 0; /* a whole bucket, the tail */
            gw__kernels_select(gw__kernels_available(t), NULL, 0);
            test_fill(FILL_NORMAL, b, x, 1050);
            for (size_t i = 0; i < 1050; i++)
                residual[i] = 0.25f;
            x[at] = bad[b % 4];
            gw_encode_t in = {.src = x, .residual = residual, .count = 1050};
            ck_assert_int_eq(coder.family->encode(&coder, &in, payload, N, &length), GW_OK);
            ck_assert_uint_eq(in.poisoned, 1);
            gw_decode_t out = {.payload = payload, .length = length, .count = 1050, .dst = y};
            ck_assert_int_eq(coder.family->decode(&coder, &out), GW_OK);
            for (size_t i = 0; i < 1050; i++)
                wrong += i == at ? gw__load32(&y[i]) != GW_NAN_BITS || residual[i] != 0.25f
                                 : residual[i] != x[i] + 0.25f - y[i];
            ck_assert_uint_eq(wrong, 0);
        }
    gw__kernels_select("best", NULL, 0);
}
END_TEST

/* ---- What is refused ----------------------------------------------------------------------------
 */

/* Scales that no encoder writes, bits without a meaning; dst is untouched then. */
static void expect_refusal(const gw_coder_t *coder, size_t length, size_t count, const char *what)
{
    gw_decode_t out = {.payload = payload, .length = length, .count = count, .dst = y};
    for (size_t i = 0; i < count; i++)
        y[i] = -5.0f;
    gw_check(coder->family->decode(coder, &out) == GW_ERR_FRAME_PAYLOAD, "%s: %s is taken",
             coder->spec, what);
    for (size_t i = 0; i < count; i++)
        gw_check(y[i] == -5.0f, "%s: element %zu was written", coder->spec, i);
}

START_TEST(impossible_payloads_are_refused)
{
    static const char *const specs[] = {"natural:bucket=64", "nuqsgd:bucket=64",
                                        "ternary:bucket=64", "nuqsgd:bucket=64,bits=5"};
    static const uint32_t scales[] = {0xBF800000, 0x80000000, 0x7F800000, 0x7FC00001, 0xFFC00000};
    test_fill(FILL_NORMAL, 1, x, 101);
    for (size_t s = 0; s < 4; s++) {
        gw_coder_t coder = coder_of(specs[s]);
        size_t length = round_trip(&coder, NULL, 101, 1);
        payload[length - 1] |= 0x80;
        expect_refusal(&coder, length, 101, "a bit behind the last code");
        for (size_t k = 0; s && k < 10; k++) {
            length = round_trip(&coder, NULL, 101, 1);
            size_t bucket = k % 2 ? coder.family->bound(&coder, GW_F32, 64) : 0;
            gw__store32(payload + bucket, scales[k / 2]);
            expect_refusal(&coder, length, 101, "a scale");
        }
    }
}
END_TEST

START_TEST(harmful_specs_are_refused)
{
    static const struct {
        const char *spec, *reason;
        bool forced;
    } cases[] = {
        {"natural:round=nearest", "round=stochastic", true},
        {"nuqsgd:round=nearest", "ef=on", true},
        {"ternary:round=nearest", "ef=on", true},
        {"ternary:ef=on,round=stochastic", "round=nearest", true},
        {"ternary:clip=1.5", "ef=on", true},
        {"nuqsgd:bits=3", "norm=max", true},
        {"nuqsgd:bits=3,bucket=96,ef=on", "bucket=64", true},
        {"natural:bits=3", "nuqsgd", false},
        {"ternary:norm=max", "nuqsgd", false},
        {"nuqsgd:clip=3", "ternary", false},
        {"natural:bucket=100", "multiple of 32", false},
        {"nuqsgd:bits=2", "3 to 5", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_coder_t coder;
        char why[256] = "", with[64];
        gw_check(gw_coder_parse(cases[i].spec, &coder, why, sizeof why) == GW_ERR_BAD_SETTING,
                 "%s is taken", cases[i].spec);
        gw_check(strstr(why, cases[i].reason), "%s: %s", cases[i].spec, why);
        gw_check(!cases[i].forced || strstr(why, "force=1"), "%s: %s", cases[i].spec, why);
        snprintf(with, sizeof with, "%s,force=1", cases[i].spec);
        bool taken = gw_coder_parse(with, &coder, NULL, 0) == GW_OK;
        gw_check(taken == cases[i].forced, "%s: %d", with, taken);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("natural");
    TCase *t = tcase_create("natural");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, powers_lie_as_documented);
    tcase_add_test(t, levels_lie_as_documented);
    tcase_add_test(t, random_rounding_is_unbiased);
    tcase_add_test(t, denormals_are_unbiased);
    tcase_add_test(t, levels_never_move);
    tcase_add_test(t, nearest_is_nearest);
    tcase_add_test(t, noise_is_independent);
    tcase_add_test(t, errors_are_as_published);
    tcase_add_test(t, claims_are_measured);
    tcase_add_test(t, residuals_stay_small_or_are_refused);
    tcase_add_test(t, poison_stays_alone);
    tcase_add_test(t, impossible_payloads_are_refused);
    tcase_add_test(t, harmful_specs_are_refused);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
