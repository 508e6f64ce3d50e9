/* SPDX-License-Identifier: Apache-2.0 */
/* Casts between binary32 and the 16-bit formats: exact rules, all patterns, all tiers. */
#include "gw_test.h"

#include <math.h>

#include "bytes.h"
#include "kernels.h"
#include "test_quant_data.h"

static const gw_cast_kernels_t *ref(void)
{
    return &gw__kernels_of("ref")->cast;
}

static uint16_t to_half(uint32_t bits, bool bf16)
{
    uint16_t half;
    (bf16 ? ref()->f32_to_bf16 : ref()->f32_to_f16)(&bits, &half, 1);
    return half;
}

static uint32_t from_half(uint16_t half, bool bf16)
{
    uint32_t bits;
    (bf16 ? ref()->bf16_to_f32 : ref()->f16_to_f32)(&half, &bits, 1);
    return bits;
}

/* ---- The reference against arithmetic that shares nothing with it -------------------------------
 */

/* The value of a finite 16-bit pattern, from the definition of the format. */
static double value_of(uint16_t half, bool bf16)
{
    int fraction_bits = bf16 ? 7 : 10, bias = bf16 ? 127 : 15;
    int exponent = (half & 0x7FFF) >> fraction_bits;
    double fraction = half & ((1 << fraction_bits) - 1);
    double magnitude = exponent ? ldexp(1 + ldexp(fraction, -fraction_bits), exponent - bias)
                                : ldexp(fraction, 1 - bias - fraction_bits);
    return half & 0x8000 ? -magnitude : magnitude;
}

static uint16_t infinity_of(bool bf16)
{
    return bf16 ? 0x7F80 : 0x7C00;
}

START_TEST(widening_is_exact)
{
    bool bf16 = _i;
    int wrong = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t bits = from_half((uint16_t)h, bf16);
        uint16_t magnitude = h & 0x7FFF;
        if (magnitude > infinity_of(bf16)) { /* NaN: sign and payload kept, quiet */
            unsigned shift = bf16 ? 16 : 13;
            uint32_t payload = (h << shift & 0x7FFFFF) | 0x400000;
            wrong += bits != ((h & 0x8000) << 16 | 0x7F800000u | payload);
        } else if (magnitude == infinity_of(bf16)) {
            wrong += bits != ((h & 0x8000) << 16 | 0x7F800000u);
        } else {
            float x;
            memcpy(&x, &bits, sizeof x);
            wrong += (double)x != value_of((uint16_t)h, bf16) || !signbit(x) != !(h & 0x8000);
        }
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

/* Each value comes back; each middle goes to the even neighbour; a step to either side of a middle
 * goes to the nearer one. The middle above the greatest number is where infinity begins. */
START_TEST(narrowing_is_to_nearest_even)
{
    bool bf16 = _i;
    int wrong = 0;
    for (uint32_t h = 0; h < infinity_of(bf16); h++) {
        float x = (float)value_of((uint16_t)h, bf16), middle, below, above;
        double next = h + 1u == infinity_of(bf16)
                          ? 2 * value_of((uint16_t)h, bf16) - value_of((uint16_t)(h - 1), bf16)
                          : value_of((uint16_t)(h + 1), bf16);
        double exact = ((double)x + next) / 2;
        middle = (float)exact;
        if (h < 65536)
            wrong += to_half(gw__load32(&x), bf16) != h;
        if ((double)middle != exact)
            continue; /* bf16 denormals: no binary32 lies in the middle of the last ones */
        below = nextafterf(middle, 0.0f);
        above = nextafterf(middle, INFINITY);
        wrong += to_half(gw__load32(&middle), bf16) != h + (h & 1);
        wrong += to_half(gw__load32(&below), bf16) != h;
        wrong += to_half(gw__load32(&above), bf16) != h + 1;
        wrong += to_half(gw__load32(&above) | 0x80000000u, bf16) != ((h + 1) | 0x8000);
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(narrowing_of_specials)
{
    static const struct {
        uint32_t bits;
        uint16_t f16, bf16;
    } cases[] = {
        {0x00000000, 0x0000, 0x0000}, {0x80000000, 0x8000, 0x8000}, {0x7F800000, 0x7C00, 0x7F80},
        {0xFF800000, 0xFC00, 0xFF80}, {0x7F7FFFFF, 0x7C00, 0x7F80}, {0xFF7FFFFF, 0xFC00, 0xFF80},
        {0x7F800001, 0x7E00, 0x7FC0}, {0xFF800001, 0xFE00, 0xFFC0}, {0x7FFFFFFF, 0x7FFF, 0x7FFF},
        {0xFFFFFFFF, 0xFFFF, 0xFFFF}, {0x7FC02000, 0x7E01, 0x7FC0}, {0x7FC10000, 0x7E08, 0x7FC1},
        {0x007FFFFF, 0x0000, 0x0080}, {0x00400000, 0x0000, 0x0040}, {0x477FEFFF, 0x7BFF, 0x4780},
        {0x477FF000, 0x7C00, 0x4780}, {0x33000000, 0x0000, 0x3300}, {0x33000001, 0x0001, 0x3300},
        {0x387FFFFF, 0x0400, 0x3880}, {0x3F808000, 0x3C04, 0x3F80}, {0x3F818000, 0x3C0C, 0x3F82},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_uint_eq(to_half(cases[i].bits, false), cases[i].f16);
        ck_assert_uint_eq(to_half(cases[i].bits, true), cases[i].bf16);
    }
}
END_TEST

/* ---- The tiers against the reference ------------------------------------------------------------
 */

typedef void (*cast_fn)(const void *src, void *dst, size_t count);

static void compare(cast_fn expected, cast_fn given, const uint8_t *src, size_t from, size_t to,
                    size_t count, size_t offset)
{
    test_guarded_t in = test_guard(count * from, offset), a = test_guard(count * to, offset);
    test_guarded_t b = test_guard(count * to, offset + 1);
    memcpy(in.at, src, count * from);
    expected(in.at, a.at, count);
    given(in.at, b.at, count);
    if (memcmp(a.at, b.at, count * to))
        ck_abort_msg("casts of %zu elements differ", count);
    test_release(in);
    test_release(a);
    test_release(b);
}

static const gw_cast_kernels_t *tier_under_test(int i, const char *test)
{
    const gw_kernels_t *tier = gw__kernels_of(gw__kernels_known((size_t)i));
    if (!tier)
        gw_test_skip(test, "this CPU lacks the tier");
    return tier ? &tier->cast : NULL;
}

START_TEST(all_half_patterns_in_every_tier)
{
    static uint16_t all[65536];
    const gw_cast_kernels_t *cast = tier_under_test(_i, "all_half_patterns_in_every_tier");
    for (uint32_t h = 0; h < 65536; h++)
        all[h] = (uint16_t)h;
    if (!cast)
        return;
    compare(ref()->f16_to_f32, cast->f16_to_f32, (uint8_t *)all, 2, 4, 65536, 0);
    compare(ref()->bf16_to_f32, cast->bf16_to_f32, (uint8_t *)all, 2, 4, 65536, 0);
}
END_TEST

/* Every exponent with every rounding situation, and NaNs of all kinds. */
START_TEST(narrowing_in_every_tier)
{
    static uint32_t x[1 << 16];
    const gw_cast_kernels_t *cast = tier_under_test(_i, "narrowing_in_every_tier");
    uint64_t seed = 1;
    for (int round = 0; cast && round < 16; round++) {
        for (uint32_t i = 0; i < 1 << 16; i++) {
            uint32_t low = (uint32_t)gw_test_random(&seed);
            x[i] = round < 8 ? low : i << 16 | (low & 1 ? 0x8000 : low & 2 ? 0x7FFF : low >> 16);
            if (round > 11) /* ties of f16 */
                x[i] = (x[i] & ~0x1FFFu) | 0x1000;
        }
        compare(ref()->f32_to_f16, cast->f32_to_f16, (uint8_t *)x, 4, 2, 1 << 16, 0);
        compare(ref()->f32_to_bf16, cast->f32_to_bf16, (uint8_t *)x, 4, 2, 1 << 16, 0);
    }
}
END_TEST

START_TEST(every_tail_in_every_tier)
{
    static uint32_t x[80];
    const gw_cast_kernels_t *cast = tier_under_test(_i, "every_tail_in_every_tier");
    uint64_t seed = 1;
    for (int i = 0; i < 80; i++)
        x[i] = (uint32_t)gw_test_random(&seed);
    for (size_t n = 0; cast && n <= 80; n++)
        for (size_t offset = 0; offset < 3; offset++) {
            compare(ref()->f32_to_f16, cast->f32_to_f16, (uint8_t *)x, 4, 2, n, offset);
            compare(ref()->f32_to_bf16, cast->f32_to_bf16, (uint8_t *)x, 4, 2, n, offset);
            compare(ref()->f16_to_f32, cast->f16_to_f32, (uint8_t *)x, 2, 4, n, offset);
            compare(ref()->bf16_to_f32, cast->bf16_to_f32, (uint8_t *)x, 2, 4, n, offset);
        }
}
END_TEST

static Suite *suite(void)
{
    size_t known = 0;
    while (gw__kernels_known(known))
        known++;
    Suite *s = suite_create("cast");
    TCase *t = tcase_create("cast");
    tcase_add_loop_test(t, widening_is_exact, 0, 2);
    tcase_add_loop_test(t, narrowing_is_to_nearest_even, 0, 2);
    tcase_add_test(t, narrowing_of_specials);
    tcase_add_loop_test(t, all_half_patterns_in_every_tier, 0, (int)known);
    tcase_add_loop_test(t, narrowing_in_every_tier, 0, (int)known);
    tcase_add_loop_test(t, every_tail_in_every_tier, 0, (int)known);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
