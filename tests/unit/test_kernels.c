/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel dispatch, what a sum is, and independence from the caller's floating-point mode. */
#include "gw_test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "bytes.h"
#include "kernels.h"
#include "test_quant_data.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---- Dispatch -----------------------------------------------------------------------------------
 */

START_TEST(tiers_are_listed_in_order)
{
    ck_assert_str_eq(gw__kernels_available(0), "ref");
    ck_assert_str_eq(gw__kernels_known(0), "ref");
    size_t known = 0, available = 0, matched = 0;
    while (gw__kernels_known(known))
        known++;
    for (; gw__kernels_available(available); available++)
        for (size_t i = 0; i < known; i++)
            matched += !strcmp(gw__kernels_known(i), gw__kernels_available(available));
    ck_assert_uint_eq(matched, available);
    ck_assert_uint_le(available, known);
}
END_TEST

START_TEST(unknown_tiers_are_errors)
{
    char why[200] = "";
    ck_assert_int_eq(gw__kernels_select("ref", NULL, 0), GW_OK);
    ck_assert_int_eq(gw__kernels_select("sse9", why, sizeof why), GW_ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(why, "'sse9'"));
    ck_assert_ptr_nonnull(strstr(why, "best, ref"));
    ck_assert_int_eq(gw__kernels_select("", NULL, 0), GW_ERR_NOT_FOUND);
    ck_assert_int_eq(gw__kernels_select("REF", NULL, 0), GW_ERR_NOT_FOUND);
    ck_assert_str_eq(gw__kernels_tier(), "ref"); /* nothing changed */
    ck_assert_int_eq(gw__kernels_select("unheard-of", why, 4), GW_ERR_NOT_FOUND);
    ck_assert_uint_lt(strlen(why), 4);
}
END_TEST

START_TEST(known_but_absent_tiers_are_told_apart)
{
    char why[200] = "";
    int absent = 0;
    for (size_t i = 0; gw__kernels_known(i); i++) {
        if (gw__kernels_of(gw__kernels_known(i)))
            continue;
        absent++;
        ck_assert_int_eq(gw__kernels_select(gw__kernels_known(i), why, sizeof why),
                         GW_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(why, "cannot run"));
    }
    if (!absent)
        gw_test_skip("known_but_absent_tiers_are_told_apart", "this CPU has all tiers");
}
END_TEST

/* A forced tier is the one that runs: the table in use is the tier's own, and no tier shares its
 * hot functions with another. */
START_TEST(forced_tier_runs)
{
    const gw_kernels_t *ref = gw__kernels_of("ref");
    for (size_t i = 0; gw__kernels_available(i); i++) {
        const char *tier = gw__kernels_available(i);
        ck_assert_int_eq(gw__kernels_select(tier, NULL, 0), GW_OK);
        const gw_kernels_t *table = gw__kernels();
        ck_assert_ptr_eq(table, gw__kernels_of(tier));
        ck_assert_str_eq(table->tier, tier);
        ck_assert_str_eq(gw__kernels_tier(), tier);
        if (i == 0)
            continue;
        ck_assert(table->quant.encode != ref->quant.encode);
        ck_assert(table->quant.store != ref->quant.store && table->quant.add != ref->quant.add);
        ck_assert(table->cast.f32_to_bf16 != ref->cast.f32_to_bf16);
        ck_assert(table->cast.f32_to_f16 != ref->cast.f32_to_f16);
        ck_assert(table->sum.add != ref->sum.add && table->sum.scale != ref->sum.scale);
        ck_assert(table->cast.encode != ref->cast.encode && table->cast.add != ref->cast.add);
        ck_assert(table->fp8.encode != ref->fp8.encode && table->fp8.store != ref->fp8.store);
        ck_assert(table->fp4.encode != ref->fp4.encode && table->fp4.store != ref->fp4.store);
    }
}
END_TEST

START_TEST(best_is_the_last_one)
{
    size_t last = 0;
    while (gw__kernels_available(last + 1))
        last++;
    ck_assert_str_eq(gw__kernels_tier(), gw__kernels_available(last)); /* before any choice */
    ck_assert_int_eq(gw__kernels_select("ref", NULL, 0), GW_OK);
    ck_assert_int_eq(gw__kernels_select(NULL, NULL, 0), GW_OK);
    ck_assert_str_eq(gw__kernels_tier(), gw__kernels_available(last));
    ck_assert_int_eq(gw__kernels_select("ref", NULL, 0), GW_OK);
    ck_assert_int_eq(gw__kernels_select("best", NULL, 0), GW_OK);
    ck_assert_str_eq(gw__kernels_tier(), gw__kernels_available(last));
}
END_TEST

/* ---- Sum ----------------------------------------------------------------------------------------
 */

enum { N = 1100 };

START_TEST(sum_is_a_sum)
{
    float dst[] = {1.0f, -2.5f, 0x1p-149f, INFINITY, INFINITY, 3.0f};
    const float src[] = {2.0f, 2.5f, 0x1p-149f, 1.0f, -INFINITY, NAN};
    const float expected[] = {3.0f, 0.0f, 0x1p-148f, INFINITY};
    gw__kernels_of("ref")->sum.add(dst, src, 6);
    ck_assert_mem_eq(dst, expected, sizeof expected);
    ck_assert_uint_eq(gw__load32(&dst[4]), GW_NAN_BITS);
    ck_assert_uint_eq(gw__load32(&dst[5]), GW_NAN_BITS);
    gw__kernels_of("ref")->sum.scale(dst, 0.5f, 4);
    ck_assert_float_eq(dst[0], 1.5f);
    ck_assert_float_eq(dst[2], 0x1p-149f);
}
END_TEST

/* ---- Threads ------------------------------------------------------------------------------------
 */

static atomic_bool stop;

static void *keep_switching(void *arg)
{
    (void)arg;
    for (size_t i = 0; !atomic_load(&stop); i++)
        if (gw__kernels_select(i % 2 ? "ref" : "best", NULL, 0))
            return "select failed";
    return NULL;
}

/* The tier may change while others encode: each call ends on the table it began with, and the bytes
 * are the same. */
START_TEST(switching_while_encoding)
{
    static float x[N];
    static uint8_t expected[N], payload[N];
    gw_quant_spec_t spec = {4, 64, true, true};
    pthread_t thread;
    void *trouble;
    int differ = 0;
    test_fill(FILL_HEAVY, 1, x, N);
    gw__kernels_of("ref")->quant.encode(&spec, x, NULL, N, 0, 1, expected);
    atomic_store(&stop, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, keep_switching, NULL), 0);
    for (int i = 0; i < 500; i++) {
        gw__kernels()->quant.encode(&spec, x, NULL, N, 0, 1, payload);
        differ += memcmp(payload, expected, gw__quant_bytes(4, 64) * (N / 64)) != 0;
    }
    atomic_store(&stop, true);
    pthread_join(thread, &trouble);
    ck_assert_ptr_null(trouble);
    ck_assert_int_eq(differ, 0);
}
END_TEST

/* ---- Floating-point mode ------------------------------------------------------------------------
 */

#if defined(__x86_64__)

/* The same for the families of short floats. */
static void pass_floats(const gw_kernels_t *tier, const float *x, uint8_t *payload, float *y,
                        float *residual)
{
    for (int format = GW_FLOAT_FP16; format <= GW_FLOAT_NVFP4; format++) {
        gw_float_spec_t spec = {(gw_float_format_t)format, 512};
        const gw_float_kernels_t *k = format < GW_FLOAT_MXFP4 ? &tier->fp8 : &tier->fp4;
        if (format <= GW_FLOAT_BF16) {
            tier->cast.encode(&spec, x, residual, N, payload);
            tier->cast.add(&spec, payload, N, y);
            continue;
        }
        k->encode(&spec, x, residual, N, payload);
        k->add(&spec, payload, N, y);
        k->store(&spec, payload, N / 2, y);
    }
}

/* One pass through kernels that do arithmetic on floats, on data where the mode matters. */
static void pass(const gw_kernels_t *tier, const float *x, uint8_t *payload, float *y,
                 float *residual)
{
    gw_quant_spec_t spec = {4, 64, false, true};
    memset(residual, 0, N * sizeof *residual);
    memset(y, 0, N * sizeof *y);
    tier->quant.encode(&spec, x, residual, N, 0, 0, payload);
    tier->quant.store(&spec, payload, N, y);
    tier->quant.add(&spec, payload, N, y);
    tier->sum.add(y, x, N);
    tier->sum.scale(y, 0.7f, N);
    tier->cast.f32_to_f16(x, payload + 8 * N, N);
    tier->cast.f16_to_f32(payload + 8 * N, payload + 10 * N, N);
    pass_floats(tier, x, payload + 14 * N, y, residual);
}

START_TEST(caller_mode_does_not_matter)
{
    static uint8_t payload[2][16 * N];
    static float x[N], y[2][N], residual[2][N];
    static const unsigned modes[] = {0x9FC0 /* flush */, 0x5F80 /* up */, 0xFFC0, 0x3F80};
    test_fill(FILL_DENORMAL, 1, x, N / 2);
    test_fill(FILL_HEAVY, 2, x + N / 2, N - N / 2);
    for (size_t i = 0; gw__kernels_available(i); i++)
        for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
            const gw_kernels_t *tier = gw__kernels_of(gw__kernels_available(i));
            unsigned before = _mm_getcsr();
            pass(tier, x, payload[0], y[0], residual[0]);
            _mm_setcsr(modes[m]);
            pass(tier, x, payload[1], y[1], residual[1]);
            unsigned after = _mm_getcsr();
            _mm_setcsr(before);
            ck_assert_uint_eq(after & 0xFFC0, modes[m]);
            ck_assert_mem_eq(payload[0], payload[1], sizeof payload[0]);
            ck_assert_mem_eq(y[0], y[1], sizeof y[0]);
            ck_assert_mem_eq(residual[0], residual[1], sizeof residual[0]);
        }
}
END_TEST

#else

START_TEST(caller_mode_does_not_matter)
{
    gw_test_skip("caller_mode_does_not_matter", "written for the x86 control register");
}
END_TEST

#endif

static Suite *suite(void)
{
    Suite *s = suite_create("kernels");
    TCase *t = tcase_create("kernels");
    tcase_add_test(t, tiers_are_listed_in_order);
    tcase_add_test(t, unknown_tiers_are_errors);
    tcase_add_test(t, known_but_absent_tiers_are_told_apart);
    tcase_add_test(t, forced_tier_runs);
    tcase_add_test(t, best_is_the_last_one);
    tcase_add_test(t, sum_is_a_sum);
    tcase_add_test(t, switching_while_encoding);
    tcase_add_test(t, caller_mode_does_not_matter);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
