/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of calls in a repeating sequence: when they come, that they stay. */
#include <string.h>

#include <gradwire/gradwire.h>

#include "gw_test.h"

/* One call for every letter. */
static long next(gw_call_order_t *order, char kind)
{
    gw_call_t call = {GW_ALLREDUCE, GW_F32, GW_SUM, (size_t)kind, NULL, NULL, 0};
    return gw_call_order_next(order, &call);
}

/* Makes the calls of `kinds`; the answers must be those of `slots`, a digit each. */
static void expect(gw_call_order_t *order, const char *kinds, const char *slots)
{
    for (size_t i = 0; kinds[i]; i++) {
        long slot = next(order, kinds[i]);
        gw_check(slot == slots[i] - '0', "call %zu of %s: %ld, not %c", i, kinds, slot, slots[i]);
    }
}

static gw_call_order_t *create(void)
{
    gw_call_order_t *order;
    ck_assert_int_eq(gw_call_order_create(&order), GW_OK);
    return order;
}

START_TEST(a_sequence_is_numbered_after_three_turns)
{
    gw_call_order_t *order = create();
    expect(order, "abcabcabcabcabc", "000000003123123");
    gw_call_order_free(order);
    order = create(); /* calls before the first turn */
    expect(order, "xyabcabcabcabc", "00000000003123");
    gw_call_order_free(order);
    order = create(); /* equal buckets and a last one */
    expect(order, "aaabaaabaaabaaab", "0000000000041234");
    gw_call_order_free(order);
    gw_call_order_free(NULL);
    ck_assert_int_eq(gw_call_order_next(NULL, NULL), 0);
}
END_TEST

START_TEST(what_makes_a_kind)
{
    static const gw_call_t calls[] = {{GW_ALLREDUCE, GW_F32, GW_SUM, 10, NULL, NULL, 0},
                                      {GW_ALLREDUCE, GW_F16, GW_SUM, 10, NULL, NULL, 0},
                                      {GW_ALLREDUCE, GW_F32, GW_AVG, 10, NULL, NULL, 0},
                                      {GW_ALLREDUCE, GW_F32, GW_SUM, 11, NULL, NULL, 0}};
    gw_call_order_t *order = create();
    char memory[64];
    for (int i = 0; i < 40; i++) {
        gw_call_t call = calls[i % 4];
        call.recv = memory + i; /* never counts: it is different on every rank */
        long slot = gw_call_order_next(order, &call);
        ck_assert_int_eq(slot, i < 11 ? 0 : i % 4 + 1);
    }
    gw_call_order_free(order);
}
END_TEST

START_TEST(disturbances_shift_nothing)
{
    gw_call_order_t *order = create();
    expect(order, "abcabcabc", "000000003");
    expect(order, "axbcxyzabc", "1023000123"); /* extra calls */
    expect(order, "acabc", "13123");           /* one left out */
    expect(order, "bcabc", "23123");           /* the same at the beginning */
    expect(order, "aabcab", "112312");         /* one twice */
    gw_call_order_free(order);
    order = create();
    expect(order, "aabcaabcaabc", "000000000004");
    expect(order, "aabc", "1234");
    expect(order, "aaabcaabc",
           "120341234"); /* which a of the three is the extra one is not known */
    expect(order, "abcaabc", "1341234");
    gw_call_order_free(order);
    order = create(); /* no call is unique: it takes a whole sequence */
    expect(order, "aabbaabbaabb", "000000000004");
    expect(order, "abbaabbaabb", "10000041234");
    gw_call_order_free(order);
}
END_TEST

START_TEST(a_new_sequence_takes_the_place_of_one_that_is_gone)
{
    gw_call_order_t *order = create();
    expect(order, "abcabcabcabc", "000000003123");
    expect(order, "defgdefgdefgdefg", "0000000000041234");
    gw_call_order_free(order);
    order = create(); /* a part of the old one is still there: the numbers stay */
    expect(order, "abcabcabcabc", "000000003123");
    for (int i = 0; i < 20; i++)
        expect(order, "adefg", "10000");
    gw_call_order_free(order);
}
END_TEST

START_TEST(calls_that_are_all_alike)
{
    gw_call_order_t *order = create();
    for (int i = 0; i < 3000; i++)
        gw_check(next(order, 'a') == (i >= 1023), "call %d", i);
    gw_call_order_free(order);
    /* The longest sequence: 1023 alike and another. */
    order = create();
    for (int i = 0; i < 8 * 1024; i++) {
        long slot = next(order, i % 1024 == 1023 ? 'b' : 'a');
        gw_check(slot == (i < 3 * 1024 - 1 ? 0 : i % 1024 + 1), "call %d: %ld", i, slot);
    }
    gw_call_order_free(order);
}
END_TEST

START_TEST(all_ranks_get_the_same_numbers)
{
    gw_call_order_t *one = create(), *two = create();
    uint64_t state = 7;
    long known = 0;
    for (int i = 0; i < 200000; i++) {
        int turn = i % 37;
        char kind = (char)('a' + turn * turn % 11);
        if (gw_test_random(&state) % 300 == 0)
            kind = (char)('A' + gw_test_random(&state) % 40);
        long slot = next(one, kind);
        gw_check(slot == next(two, kind), "call %d", i);
        gw_check(slot >= 0 && slot <= 1024, "call %d: %ld", i, slot);
        known += slot > 0;
    }
    ck_assert_int_gt(known, 100000);
    gw_call_order_free(one);
    gw_call_order_free(two);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("call_order");
    TCase *tc = tcase_create("call_order");
    tcase_add_test(tc, a_sequence_is_numbered_after_three_turns);
    tcase_add_test(tc, what_makes_a_kind);
    tcase_add_test(tc, disturbances_shift_nothing);
    tcase_add_test(tc, a_new_sequence_takes_the_place_of_one_that_is_gone);
    tcase_add_test(tc, calls_that_are_all_alike);
    tcase_add_test(tc, all_ranks_get_the_same_numbers);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
