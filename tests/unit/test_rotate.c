/* SPDX-License-Identifier: Apache-2.0 */
/* The codec rotate: its levels, its rotation, its error, its scales, what it refuses. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "rotate_block.h"
#include "test_quant_data.h"

enum { N = 65536 };
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
static size_t round_trip(const gw_coder_t *coder, float *kept, size_t count)
{
    size_t length = 0;
    gw_encode_t in = {.src = x, .residual = kept, .count = count};
    gw_check(!coder->family->encode(coder, &in, payload, sizeof payload, &length), "encode");
    gw_decode_t out = {.payload = payload, .length = length, .count = count, .dst = y};
    gw_check(!coder->family->decode(coder, &out), "decode");
    return length;
}

/* ---- Levels -------------------------------------------------------------------------------------
 */

static double density(double at)
{
    return exp(-at * at / 2) / sqrt(2 * 3.14159265358979323846);
}

static double mass(double a, double b)
{
    return (erfc(a / sqrt(2)) - erfc(b / sqrt(2))) / 2;
}

/* Levels are the means of their cells, thresholds the middles between levels: another round of
 * Lloyd's iteration changes nothing. (The low byte of a threshold is its number.) */
START_TEST(levels_are_fixed_points)
{
    unsigned bits = (unsigned)_i + 1, half = 1u << _i;
    const float *level = gw__rotate_level[_i];
    double error = 1;
    for (unsigned q = 0; q < half; q++) {
        double low = q ? ((double)level[q - 1] + (double)level[q]) / 2 : 0;
        double high = q + 1 < half ? ((double)level[q] + (double)level[q + 1]) / 2 : 60;
        double mean = (density(low) - density(high)) / mass(low, high);
        gw_check(fabs(mean - (double)level[q]) < 2e-7, "%u bits: level %u is not the mean %.9f",
                 bits, q, mean);
        double given = q ? (double)gw__float_of(gw__rotate_threshold[_i][q]) : 0;
        gw_check(fabs(given - low) <= low * 0x1p-15, "%u bits: threshold %u", bits, q);
        gw_check(!q || (gw__rotate_threshold[_i][q] & 0xFF) == q, "%u bits: low byte", bits);
        error -= 2 * mass(low, high) * (double)level[q] * (double)level[q];
    }
    /* The distortions that Max gives, for 1 to 5 bits. */
    static const double max[] = {0.3634, 0.1175, 0.03454, 0.009497, 0.002505};
    if (_i < 5)
        ck_assert_double_eq_tol(error, max[_i], max[_i] * 5e-4);
    else
        ck_assert_double_lt(error, 0.00066);
}
END_TEST

static uint32_t by_search(unsigned i, float magnitude)
{
    uint32_t q = 0;
    while (q + 1 < 1u << i && gw__float_bits(magnitude) >= gw__rotate_threshold[i][q + 1])
        q++;
    return q;
}

static uint32_t by_cell(unsigned i, float magnitude)
{
    return gw__rotate_code(gw__rotate_cell[i], gw__rotate_last_cell[i], i + 1, magnitude);
}

/* Cells find the code that a search finds: at every threshold and every edge of a cell, and next to
 * them. */
START_TEST(cells_are_the_thresholds)
{
    unsigned i = (unsigned)_i;
    ck_assert_int_lt((int)gw__rotate_last_cell[i], GW_ROTATE_CELLS);
    for (unsigned k = 0; k < 128 + GW_ROTATE_CELLS + 64; k++) {
        float at = k < 128 ? gw__float_of(gw__rotate_threshold[i][k])
                           : (float)(k - 128) * ldexpf(1, 1 - (int)i);
        for (int step = -1; step <= 1; step++) {
            float m = step < 0 ? nextafterf(at, 0) : step ? nextafterf(at, INFINITY) : at;
            gw_check(by_cell(i, m) == by_search(i, m), "%d bits: %a", _i + 1, (double)m);
        }
    }
}
END_TEST

/* The kernels as well: blocks whose rotated elements all lie at thresholds, by construction. */
START_TEST(tiers_agree_at_thresholds)
{
    gw_rotate_spec_t spec = {(unsigned)_i + 1, 512, 0, false};
    size_t bytes = gw__rotate_bytes(spec.bits, 512);
    uint64_t seed = 3;
    for (int round = 0; round < 300; round++) {
        static float t[512];
        for (int i = 0; i < 512; i++) {
            unsigned k = 1 + (unsigned)(gw_test_random(&seed) % ((1u << _i)));
            float at = k < 1u << _i ? gw__float_of(gw__rotate_threshold[_i][k]) : 1.0f;
            t[i] = gw_test_random(&seed) % 2 ? at : -at;
        }
        for (size_t h = 1; h < 512; h *= 2)
            for (size_t i = 0; i < 512; i++)
                if (!(i & h)) {
                    float a = t[i], b = t[i + h];
                    t[i] = a + b;
                    t[i + h] = a - b;
                }
        for (size_t i = 0; i < 512; i++) {
            bool minus = gw__rotate_signs(gw__rotate_start(0), i / 64) >> i % 64 & 1;
            x[i] = minus ? -t[i] : t[i];
        }
        gw__kernels_of("ref")->rotate.encode(&spec, x, NULL, 512, payload);
        for (size_t tier = 1; gw__kernels_available(tier); tier++) {
            uint8_t *other = payload + 8192;
            gw__kernels_of(gw__kernels_available(tier))->rotate.encode(&spec, x, NULL, 512, other);
            gw_check(!memcmp(payload, other, bytes), "%s differs", gw__kernels_available(tier));
        }
    }
}
END_TEST

/* ---- Error --------------------------------------------------------------------------------------
 */

/* Student's t with 4 degrees of freedom. */
static void fill_t4(uint64_t seed, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double chi = 0;
        for (int k = 0; k < 4; k++) {
            double z = (double)gw_test_normal(&seed);
            chi += z * z;
        }
        x[i] = (float)((double)gw_test_normal(&seed) / sqrt(chi / 4));
    }
}

static double relative_error(size_t count)
{
    double lost = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        lost += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        all += (double)x[i] * (double)x[i];
    }
    return lost / all;
}

/* On heavy-tailed data the error is that of the quantiser on N(0, 1), a few per cent less: 0.0093
 * at 4 bits, where plain max-min codes lose 0.042. Unbiased: D / (1 - D). */
START_TEST(error_is_that_of_the_levels)
{
    static const double lloyd[] = {0.3634, 0.1175, 0.03454, 0.009497, 0.002505};
    char spec[64];
    fill_t4(1, N);
    for (int unbiased = 0; unbiased < 2; unbiased++)
        for (int bits = 1; bits <= 8; bits++) {
            snprintf(spec, sizeof spec, "q%dr:force=1%s", bits, unbiased ? ",scale=unbiased" : "");
            gw_coder_t coder = coder_of(spec);
            round_trip(&coder, NULL, N);
            double error = relative_error(N);
            double d = bits <= 5 ? lloyd[bits - 1] : 0.00066 * pow(0.27, bits - 6);
            d = unbiased ? d / (1 - d) : d;
            gw_check(error < d * 1.05 && (bits > 5 || error > d * 0.93), "%s: %.6f, expected %.6f",
                     spec, error, d);
        }
}
END_TEST

/* 4 bits and 32 for the scale of 512: 4.0625 an element. */
START_TEST(size_is_as_documented)
{
    gw_coder_t coder = coder_of("q4r");
    ck_assert_uint_eq(coder.family->bound(&coder, GW_F32, 512), 4 + 256);
    ck_assert_uint_eq(coder.family->bound(&coder, GW_F32, 1024 + 300), 2 * 260 + 260);
    ck_assert_uint_eq(coder.family->bound(&coder, GW_F32, 1024 + 256), 2 * 260 + 4 + 128);
    ck_assert_uint_eq(coder.family->bound(&coder, GW_F32, 1), 4 + 4);
    ck_assert_uint_eq(coder.family->bound(&coder, GW_F32, 9), 4 + 8);
}
END_TEST

/* One element alone is a block of eight equal magnitudes: exact but for the rounding. */
START_TEST(one_element_survives)
{
    for (int bits = 1; bits <= 8; bits++) {
        char spec[16];
        snprintf(spec, sizeof spec, "q%dr", bits);
        gw_coder_t coder = coder_of(spec);
        x[0] = -3.7f;
        round_trip(&coder, NULL, 1);
        gw_check(fabsf(y[0] - x[0]) < 4e-6f, "%s: %a", spec, (double)y[0]);
    }
}
END_TEST

/* The relative error does not depend on the magnitude: 2^-140, where all is denormal, 2^-60, 1 and
 * almost FLT_MAX. */
START_TEST(magnitude_does_not_matter)
{
    static const struct {
        int exponent;
        double most;
    } cases[] = {{-140, 0.02}, {-126, 0.0101}, {-60, 0.01}, {0, 0.01}, {60, 0.01}, {124, 0.01}};
    gw_coder_t coder = coder_of("q4r");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fill_t4(2, 4096);
        for (size_t i = 0; i < 4096; i++)
            x[i] = ldexpf(fminf(fmaxf(x[i], -7.9f), 7.9f), cases[c].exponent);
        round_trip(&coder, NULL, 4096);
        double error = relative_error(4096);
        gw_check(error < cases[c].most, "2^%d: %.5f", cases[c].exponent, error);
    }
}
END_TEST

/* The element that comes nearest to its bound, as a share of it. */
static double share_of_bound(const gw_coder_t *coder, size_t count)
{
    static float bound[N];
    double worst = 0;
    round_trip(coder, NULL, count);
    coder->family->error_bound(coder, x, count, bound);
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)x[i] - (double)y[i]);
        worst = fmax(worst, error / (double)bound[i]);
    }
    return worst;
}

/* Where it is hardest: a block that is one spike, one whose rotation is, and one of two magnitudes
 * there; whole blocks and tails. Tightest where all is lost in one element. */
START_TEST(bound_holds_for_spikes)
{
    static const size_t counts[] = {512, 1, 7, 8, 9, 64, 300};
    double worst = 0;
    for (int bits = 1; bits <= 8; bits++)
        for (int unbiased = 0; unbiased < 2; unbiased++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int kind = 0; kind < 3; kind++) {
                    char spec[64];
                    snprintf(spec, sizeof spec, "q%dr:force=1%s", bits,
                             unbiased ? ",scale=unbiased" : "");
                    gw_coder_t coder = coder_of(spec);
                    for (size_t i = 0; i < counts[c]; i++) {
                        uint64_t word = gw__rotate_signs(gw__rotate_start(0), i / 64) >> i % 64;
                        float sign = word & 1 ? -1.0f : 1.0f;
                        x[i] = kind == 0   ? (i == counts[c] / 2) * 3.0f
                               : kind == 1 ? sign
                                           : sign * (1 + 0.3f * (float)(i % 2));
                    }
                    double share = share_of_bound(&coder, counts[c]);
                    gw_check(share <= 1, "%s, %zu elements, kind %d: %.3f of the bound", spec,
                             counts[c], kind, share);
                    worst = fmax(worst, share);
                }
    ck_assert_double_gt(worst, 0.5);
}
END_TEST

/* ---- Scales and seeds ---------------------------------------------------------------------------
 */

/* Mean over seeds: comes to x with the unbiased scale, stays short of it with the other one. */
static double mean_length(const char *scale, double *off)
{
    static double sum[512];
    double along = 0, all = 0, wrong = 0;
    char spec[64];
    memset(sum, 0, sizeof sum);
    fill_t4(3, 512);
    for (int seed = 0; seed < 2000; seed++) {
        snprintf(spec, sizeof spec, "q1r:seed=%d,force=1,scale=%s", seed, scale);
        gw_coder_t coder = coder_of(spec);
        round_trip(&coder, NULL, 512);
        for (int i = 0; i < 512; i++)
            sum[i] += (double)y[i] / 2000;
    }
    for (int i = 0; i < 512; i++) {
        along += sum[i] * (double)x[i];
        all += (double)x[i] * (double)x[i];
        wrong += (sum[i] - (double)x[i]) * (sum[i] - (double)x[i]);
    }
    *off = wrong / all;
    return along / all;
}

START_TEST(unbiased_is_unbiased)
{
    double off;
    ck_assert_double_eq_tol(mean_length("unbiased", &off), 1, 0.002);
    ck_assert_double_lt(off, 0.001);
    ck_assert_double_eq_tol(mean_length("mse", &off), 0.6366, 0.01); /* 2 / pi */
    ck_assert_double_gt(off, 0.1);
}
END_TEST

/* No other scale has less error. */
START_TEST(mse_is_the_best_scale)
{
    gw_coder_t coder = coder_of("q2r");
    fill_t4(4, 512);
    round_trip(&coder, NULL, 512);
    double own = 0, less = 0, more = 0;
    for (int i = 0; i < 512; i++) {
        double p = (double)x[i], q = (double)y[i];
        own += (p - q) * (p - q);
        less += (p - 0.999 * q) * (p - 0.999 * q);
        more += (p - 1.001 * q) * (p - 1.001 * q);
    }
    ck_assert_double_lt(own, less);
    ck_assert_double_lt(own, more);
}
END_TEST

/* Relative error of the sum over 1000 calls of one gradient. */
static double drift(const char *spec, bool feedback)
{
    static double sum[1024];
    double wrong = 0, right = 0;
    gw_coder_t coder = coder_of(spec);
    fill_t4(5, 1024);
    memset(residual, 0, sizeof residual);
    memset(sum, 0, sizeof sum);
    for (int step = 0; step < 1000; step++) {
        round_trip(&coder, feedback ? residual : NULL, 1024);
        for (int i = 0; i < 1024; i++)
            sum[i] += (double)y[i];
    }
    for (int i = 0; i < 1024; i++) {
        double exact = 1000.0 * (double)x[i];
        wrong += (sum[i] - exact) * (sum[i] - exact);
        right += exact * exact;
    }
    return sqrt(wrong / right);
}

START_TEST(feedback_is_real)
{
    ck_assert_double_lt(drift("q4r", true), 0.001);
    ck_assert_double_lt(drift("q2r", true), 0.005);
    ck_assert_double_lt(drift("q1r", true), 0.05);
    ck_assert_double_lt(drift("q1r:scale=unbiased", true), 0.05);
    ck_assert_double_gt(drift("q4r", false), 0.05);
    ck_assert_double_gt(drift("q1r", false), 0.4);
}
END_TEST

/* ---- Refusals -----------------------------------------------------------------------------------
 */

START_TEST(specs)
{
    static const struct {
        const char *spec, *word;
    } bad[] = {{"q1r:ef=off", "a third"},
               {"q2r:ef=off", "scale=unbiased"},
               {"q4r:block=500", "256"},
               {"q4r:block=32", "64 to 4096"},
               {"q4r:seed=1000000000", "999999999"},
               {"q9r", "closest: 'q8r'"},
               {"q4rr", "no codec"}};
    static const char *const good[] = {"q1r:scale=unbiased,ef=off", "q2r:ef=off,force=1",
                                       "q3r:ef=off", "q4r:block=4096,seed=999999999"};
    gw_coder_t coder;
    char why[512];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gw_check(gw_coder_parse(bad[i].spec, &coder, why, sizeof why) != GW_OK, "%s", bad[i].spec);
        gw_check(strstr(why, bad[i].word), "%s: %s", bad[i].spec, why);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        coder = coder_of(good[i]);
        ck_assert_str_eq(coder.spec, good[i]);
    }
}
END_TEST

START_TEST(impossible_scales_are_refused)
{
    static const struct {
        uint32_t scale;
        bool valid;
    } cases[] = {{0x3F800000, true},  {0, true},           {GW_NAN_BITS, true}, {0x7F7FFFFF, true},
                 {1, true},           {0xBF800000, false}, {0x80000000, false}, {0x7F800000, false},
                 {0x7FC00001, false}, {0xFFC00000, false}};
    gw_coder_t coder = coder_of("q3r:block=64");
    test_fill(FILL_NORMAL, 1, x, 101);
    for (size_t c = 0; c < 2 * sizeof cases / sizeof *cases; c++) {
        size_t length = round_trip(&coder, NULL, 101);
        gw__store32(payload + c % 2 * gw__rotate_bytes(3, 64), cases[c / 2].scale);
        for (int i = 0; i < 101; i++)
            y[i] = -5.0f;
        gw_decode_t out = {.payload = payload, .length = length, .count = 101, .dst = y};
        gw_status_t status = coder.family->decode(&coder, &out);
        ck_assert_int_eq(status, cases[c / 2].valid ? GW_OK : GW_ERR_FRAME_PAYLOAD);
        for (int i = 0; i < 101; i++)
            gw_check(status ? y[i] == -5.0f : y[i] != -5.0f, "element %d", i);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("rotate");
    TCase *t = tcase_create("rotate");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, levels_are_fixed_points, 0, 8);
    tcase_add_loop_test(t, cells_are_the_thresholds, 0, 8);
    tcase_add_loop_test(t, tiers_agree_at_thresholds, 0, 8);
    tcase_add_test(t, error_is_that_of_the_levels);
    tcase_add_test(t, size_is_as_documented);
    tcase_add_test(t, one_element_survives);
    tcase_add_test(t, magnitude_does_not_matter);
    tcase_add_test(t, bound_holds_for_spikes);
    tcase_add_test(t, unbiased_is_unbiased);
    tcase_add_test(t, mse_is_the_best_scale);
    tcase_add_test(t, feedback_is_real);
    tcase_add_test(t, specs);
    tcase_add_test(t, impossible_scales_are_refused);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
