/* SPDX-License-Identifier: Apache-2.0 */
/* Quality of the quantiser's random numbers, and of the rounding that is made with them. */
#include "gw_test.h"

#include <math.h>

#include "kernels.h"
#include "quant_grid.h"

enum { BUCKET = 512, N = BUCKET * 512 };

/* The 16-bit numbers of the elements of a call, in order, as 0 .. 1. */
static void draw(uint64_t key, uint64_t first_bucket, double *u)
{
    for (size_t i = 0; i < N; i++) {
        gw_quant_noise_t noise = gw__quant_noise(key, first_bucket + i / BUCKET);
        uint32_t pair = gw__quant_noise_pair(noise, (uint32_t)(i % BUCKET) / 2);
        u[i] = (double)(i % 2 ? pair >> 16 : pair & 0xFFFF) / 65536.0;
    }
}

static double correlation(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (a[i] - 0.5) * (b[i] - 0.5);
    return sum / (double)n * 12.0; /* in units of the variance; deviation 1 / sqrt(n) */
}

static const uint64_t keys[] = {0, 1, 2, 3, 77, 1u << 31, UINT64_MAX, 0x9E3779B97F4A7C15u};
enum { KEYS = sizeof keys / sizeof *keys };
static double u[N], v[N];

/* All limits below are about 5 deviations of an ideal generator; the numbers are fixed by the keys.
 */
START_TEST(mean_and_variance)
{
    draw(keys[_i], 0, u);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < N; i++) {
        sum += u[i];
        squares += (u[i] - 0.5) * (u[i] - 0.5);
    }
    double deviation = sqrt(1.0 / 12.0 / N);
    ck_assert_double_lt(fabs(sum / N - 0.5), 5 * deviation + 1.0 / 131072);
    ck_assert_double_lt(fabs(squares / N * 12.0 - 1.0), 5 * sqrt(0.8 / N) + 1e-4);
}
END_TEST

static double chi_square(int bins, double scale, const double *x, size_t step)
{
    static double count[256];
    double sum = 0, expected = (double)(N / step) / bins;
    memset(count, 0, sizeof count);
    for (size_t i = 0; i < N; i += step)
        count[(int)fmod(x[i] * scale, bins)]++;
    for (int b = 0; b < bins; b++)
        sum += (count[b] - expected) * (count[b] - expected) / expected;
    return sum;
}

/* High bits, low bits, and both halves of the pairs. chi-square: mean bins - 1, variance twice
 * that. */
START_TEST(bins_are_even)
{
    draw(keys[_i], 0, u);
    ck_assert_double_lt(chi_square(16, 16, u, 1), 15 + 5 * sqrt(30));
    ck_assert_double_lt(chi_square(256, 256, u, 1), 255 + 5 * sqrt(510));
    ck_assert_double_lt(chi_square(256, 65536, u, 1), 255 + 5 * sqrt(510));
    ck_assert_double_lt(chi_square(256, 256, u, 2), 255 + 5 * sqrt(510));
    ck_assert_double_lt(chi_square(256, 256, u + 1, 2), 255 + 5 * sqrt(510));
}
END_TEST

START_TEST(neighbours_are_independent)
{
    static const size_t lags[] = {1, 2, 3, 4, 8, 16, 32, 64, 256, BUCKET, 2 * BUCKET};
    draw(keys[_i], 0, u);
    for (size_t k = 0; k < sizeof lags / sizeof *lags; k++)
        ck_assert_double_lt(fabs(correlation(u, u + lags[k], N - lags[k])), 5 / sqrt(N));
}
END_TEST

START_TEST(keys_are_independent)
{
    draw(keys[_i], 0, u);
    for (int other = 0; other < KEYS; other++)
        for (uint64_t bucket = 0; bucket < 3; bucket++) {
            if (other == _i && bucket == 0)
                continue;
            draw(keys[other], bucket, v);
            ck_assert_double_lt(fabs(correlation(u, v, N)), 5 / sqrt(N));
        }
    for (int bit = 0; bit < 64; bit++) { /* keys that differ in one bit */
        draw(keys[_i] ^ (uint64_t)1 << bit, 0, v);
        ck_assert_double_lt(fabs(correlation(u, v, N / 16)), 5 / sqrt(N / 16.0));
    }
}
END_TEST

/* Rounding: the mean over many keys is the value itself, with the variance f (1 - f) of a fraction
 * f. */
START_TEST(rounding_is_unbiased)
{
    enum { CALLS = 4000 };
    static float x[64], y[64];
    static double sum[64], squares[64];
    static uint8_t payload[256];
    gw_quant_spec_t spec = {4, 64, true, true};
    for (int i = 0; i < 64; i++)
        x[i] = (float)(i - 20) / 64.0f;
    memset(sum, 0, sizeof sum);
    memset(squares, 0, sizeof squares);
    for (uint64_t key = 0; key < CALLS; key++) {
        gw__kernels()->quant.encode(&spec, x, NULL, 64, 0, key, payload);
        gw__kernels()->quant.store(&spec, payload, 64, y);
        for (int i = 0; i < 64; i++) {
            sum[i] += (double)y[i];
            squares[i] += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
        }
    }
    gw_quant_grid_t g = gw__quant_grid(&spec, x[0], x[63], true);
    for (int i = 1; i < 63; i++) {
        double t = ((double)x[i] - (double)g.min) / (double)g.unit, f = t - floor(t);
        if (t > 15) /* behind the last level of the shifted grid */
            continue;
        double deviation = (double)g.unit * sqrt(f * (1 - f) / CALLS);
        ck_assert_double_lt(fabs(sum[i] / CALLS - (double)x[i]),
                            5 * deviation + (double)g.unit / 65536);
        double square = (double)g.unit * (double)g.unit, variance = f * (1 - f);
        double spread = sqrt(variance) * fabs(1 - 2 * f) / sqrt(CALLS); /* of the mean square */
        ck_assert_double_lt(fabs(squares[i] / CALLS / square - variance), 5 * spread + 1e-3);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("rng");
    TCase *t = tcase_create("rng");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, mean_and_variance, 0, KEYS);
    tcase_add_loop_test(t, bins_are_even, 0, KEYS);
    tcase_add_loop_test(t, neighbours_are_independent, 0, KEYS);
    tcase_add_loop_test(t, keys_are_independent, 0, KEYS);
    tcase_add_test(t, rounding_is_unbiased);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
