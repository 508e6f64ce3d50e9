/* SPDX-License-Identifier: Apache-2.0 */
/* Casts between binary32 and the 16-bit formats: exact rules on ref; test_kernel_check.c has tiers.
 */
#include "gw_test.h"

#include <math.h>

#include "bytes.h"
#include "kernels.h"

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

static Suite *suite(void)
{
    Suite *s = suite_create("cast");
    TCase *t = tcase_create("cast");
    tcase_add_loop_test(t, widening_is_exact, 0, 2);
    tcase_add_loop_test(t, narrowing_is_to_nearest_even, 0, 2);
    tcase_add_test(t, narrowing_of_specials);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
