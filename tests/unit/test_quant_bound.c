/* SPDX-License-Identifier: Apache-2.0 */
/* The declared error bound, for every codec that is listed and where it is hardest to keep. */
#include "gw_test.h"

#include <gradwire/codec.h>

#include "kernels.h"
#include "test_quant_data.h"

enum { N = 4096 + 77 };
static float x[N], y[N], bound[N];
static uint8_t payload[N * 8 + 4096];

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

static void round_trip(const gw_coder_t *coder, size_t count)
{
    size_t length = 0;
    gw_encode_t in = {.src = x, .count = count, .key = 5};
    gw_decode_t out = {.payload = payload, .count = count, .dst = y};
    if (coder->family->encode(coder, &in, payload, sizeof payload, &length))
        ck_abort_msg("%s: encode failed", coder->spec);
    out.length = length;
    if (coder->family->decode(coder, &out))
        ck_abort_msg("%s: decode failed", coder->spec);
}

/* The number of elements outside of the bound; the first one is told. */
static int outside(const gw_coder_t *coder, size_t count, const char *what)
{
    int bad = 0;
    coder->family->error_bound(coder, x, count, bound);
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)y[i] - (double)x[i]);
        if (error <= (double)bound[i])
            continue;
        if (!bad++)
            fprintf(stderr, "%s, %s: x[%zu] = %a became %a: error %a, bound %a\n", coder->spec,
                    what, i, (double)x[i], (double)y[i], error, (double)bound[i]);
    }
    return bad;
}

static int check_coder(const char *spec)
{
    gw_coder_t coder = coder_of(spec);
    int bad = 0;
    for (int fill = 0; fill < FILL_FINITE; fill++) {
        char what[32];
        snprintf(what, sizeof what, "fill %d", fill);
        test_fill((test_fill_t)fill, (uint64_t)fill + 1, x, N);
        round_trip(&coder, N);
        bad += outside(&coder, N, what);
    }
    return bad;
}

/* All variants of a name: bare, and with each parameter that changes the arithmetic. */
static int check_name(const gw_codec_t *family, const char *name)
{
    static const char *const variants[] = {
        "round=stochastic",          "zero=off",       "bucket=32", "bucket=4096,zero=off",
        "round=stochastic,zero=off", "scale=unbiased", "block=64",  "block=4096,seed=9"};
    char spec[96];
    gw_coder_t coder;
    int bad = check_coder(name);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        snprintf(spec, sizeof spec, "%s:%s,force=1", name, variants[i]);
        if (gw_coder_parse(spec, &coder, NULL, 0) == GW_OK) /* not all families have it */
            bad += check_coder(spec);
    }
    return bad;
}

START_TEST(every_codec_keeps_its_bound)
{
    const gw_codec_t *family;
    int lossy = 0, bad = 0;
    for (size_t i = 0; (family = gw_codec_at(i)); i++) {
        char names[256], *rest = names;
        if (!(family->flags & GW_CODEC_LOSSY)) {
            ck_assert_msg(!family->error_bound, "%s is exact and has a bound", family->family);
            continue;
        }
        lossy++;
        snprintf(names, sizeof names, "%s", family->names);
        for (char *name; (name = strtok_r(rest, " ", &rest));)
            bad += check_name(family, name);
    }
    ck_assert_int_ge(lossy, 1);
    ck_assert_int_eq(bad, 0);
}
END_TEST

/* One bucket whose values lie within 4 ulp of the middle between two codes, near the ends of the
 * range and of the binade: where roundings add up. */
static void fill_ties(unsigned bits, uint64_t *seed)
{
    double levels = (1 << bits) - 1;
    double top = 2.0 - (double)(gw_test_random(seed) % 1000) * 1e-6;
    double low =
        gw_test_random(seed) % 2 ? -top : -top * (double)(gw_test_random(seed) % 1000) / 1000;
    if (gw_test_random(seed) % 4 == 0)
        low = -low;
    x[0] = (float)low;
    x[1] = (float)top;
    double unit = ((double)x[1] - (double)x[0]) / levels;
    for (int i = 2; i < 64; i++) {
        double code = (double)(gw_test_random(seed) % (1u << bits));
        if (low <= 0 && gw_test_random(seed) % 2) /* ties of the shifted grid lie round 0 */
            code -= rint(code + low / unit) - (code + low / unit);
        float p = (float)((double)x[0] + (code + 0.5) * unit);
        int steps = (int)(gw_test_random(seed) % 9) - 4;
        for (int k = 0; k < abs(steps); k++)
            p = nextafterf(p, steps > 0 ? INFINITY : -INFINITY);
        x[i] = fminf(fmaxf(p, x[0]), x[1]);
    }
}

START_TEST(bound_holds_next_to_ties)
{
    static const char *const options[] = {"bucket=64,force=1", "bucket=64,force=1,zero=off"};
    int bad = 0;
    for (unsigned bits = 1; bits <= 8; bits++)
        for (int o = 0; o < 2; o++) {
            char spec[64];
            uint64_t seed = bits;
            snprintf(spec, sizeof spec, "q%u:%s", bits, options[o]);
            gw_coder_t coder = coder_of(spec);
            for (int i = 0; i < 2000; i++) {
                fill_ties(bits, &seed);
                round_trip(&coder, 64);
                bad += outside(&coder, 64, "ties");
            }
        }
    ck_assert_int_eq(bad, 0);
}
END_TEST

/* The bound is tight: with half of it the test above would be red. */
START_TEST(bound_is_not_idle)
{
    gw_coder_t coder = coder_of("q4");
    float worst = 0;
    test_fill(FILL_NORMAL, 3, x, N);
    round_trip(&coder, N);
    coder.family->error_bound(&coder, x, N, bound);
    for (int i = 0; i < N; i++)
        worst = fmaxf(worst, fabsf(y[i] - x[i]) / bound[i]);
    ck_assert(worst > 0.98f && worst <= 1.0f);
}
END_TEST

static size_t count_infinite(const float *p, size_t n)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += !isfinite(p[i]);
    return bad;
}

/* 100,000 random buckets of {0, -0, denormal, 1, +-FLT_MAX, log-normal}, in all widths and tiers.
 */
START_TEST(finite_stays_finite)
{
    static float residual[64];
    const gw_kernels_t *tier = gw__kernels_of(gw__kernels_available((size_t)_i));
    uint64_t seed = 11;
    size_t bad = 0, outside_bound = 0;
    for (int i = 0; i < 100000; i++) {
        gw_quant_spec_t spec = {1 + i % 8, 64, i / 8 % 2, i / 16 % 2};
        gw_coder_t coder;
        bool ef = i / 32 % 2;
        memset(residual, 0, sizeof residual);
        int kinds = 1 + (int)(gw_test_random(&seed) % 64);
        for (int k = 0; k < 64; k++)
            x[k] = k < kinds ? test_mixed(&seed) : x[gw_test_random(&seed) % (unsigned)kinds];
        tier->quant.encode(&spec, x, ef ? residual : NULL, 64, 0, (uint64_t)i, payload);
        tier->quant.store(&spec, payload, 64, y);
        bad += !tier->quant.valid(&spec, payload, 64) + count_infinite(y, 64);
        bad += count_infinite(residual, 64);
        if (i % 16)
            continue;
        coder = coder_of(spec.bits == 1 ? "q1:bucket=64,zero=off" : "q8:bucket=64,zero=off");
        round_trip(&coder, 64);
        outside_bound += (size_t)outside(&coder, 64, "mixed");
    }
    ck_assert_uint_eq(bad, 0);
    ck_assert_uint_eq(outside_bound, 0);
}
END_TEST

static Suite *suite(void)
{
    size_t tiers = 0;
    while (gw__kernels_available(tiers))
        tiers++;
    Suite *s = suite_create("quant bound");
    TCase *t = tcase_create("bound");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, every_codec_keeps_its_bound);
    tcase_add_test(t, bound_holds_next_to_ties);
    tcase_add_test(t, bound_is_not_idle);
    tcase_add_loop_test(t, finite_stays_finite, 0, (int)tiers);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
