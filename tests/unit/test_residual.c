/* SPDX-License-Identifier: Apache-2.0 */
/* The residual store: every call of a step finds what the same call of an earlier step left,
 * whatever the allocator does; bound, resets, cost. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gw_world.h"
#include "context_internal.h"
#include "residual.h"

enum { A = 0x1000, B = 0x2000 };

static gw_context_t *context;
static gw__residual_store_t store;
static char log_name[64];

static void open_store(const char *bound)
{
    char why[256];
    snprintf(log_name, sizeof log_name, "/tmp/gw_residual_%ld.log", (long)getpid());
    unlink(log_name);
    gw_setting_t settings[] = {{"GRADWIRE_LOG", "info"},
                               {"GRADWIRE_LOG_FILE", log_name},
                               {"GRADWIRE_RESIDUAL_BYTES", bound}};
    ck_assert_msg(gw_context_create(settings, 3, &context, why, sizeof why) == GW_OK, "%s", why);
    gw__residual_init(&store, context, NULL);
}

/* Closes; nothing may be left on the account. */
static void close_store(void)
{
    gw__residual_free(&store);
    ck_assert_uint_eq(context->residual_bytes, 0);
    gw_context_free(context);
    unlink(log_name);
}

/* How often the log tells `text`. */
static int told(const char *text)
{
    char line[2048];
    int lines = 0;
    FILE *f = fopen(log_name, "r");
    while (f && fgets(line, sizeof line, f))
        lines += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return lines;
}

static gw__residual_key_t key_of(size_t count)
{
    return (gw__residual_key_t){GW_ALLREDUCE, GW_SUM, GW_F32, GW_PLAN_DIRECT, count, 7,
                                false,        0,      false};
}

/*
 * One call of bucket `id` (from 1). Returns the mark that was found in its residual: 0 fresh, else
 * the id of the bucket that left it; leaves the own. -1: no residual.
 */
static int call(size_t count, uintptr_t address, int id)
{
    int slot;
    gw__residual_key_t key = key_of(count);
    float *values = gw__residual_acquire(&store, &key, (const void *)address, &slot);
    if (!values)
        return -1;
    int found = (int)values[count - 1];
    gw_check(values[0] == values[count - 1], "a residual is torn");
    values[0] = values[count - 1] = (float)id;
    return found;
}

/* The odd last bucket of a step: a call of another size. */
static void other_call(void)
{
    int found = call(40, 0x9999000u, 1000);
    gw_check(found == 0 || found == 1000 || found == -1, "the odd bucket found %d", found);
}

START_TEST(stable_addresses_find_their_residual_from_the_second_step)
{
    open_store("");
    for (int step = 0; step < 60; step++)
        for (int id = 1; id <= 5; id++)
            gw_check(call(100, 0x1000u * (unsigned)id, id) == (step ? id : 0), "step %d bucket %d",
                     step, id);
    ck_assert_uint_eq(store.resets, 0);
    ck_assert_uint_eq(context->residual_bytes, 5 * 400);
    close_store();
}
END_TEST

START_TEST(a_new_address_every_step_finds_it_after_learning)
{
    open_store("");
    for (int step = 0; step < 100; step++) {
        for (int id = 1; id <= 4; id++) {
            uintptr_t fresh = 0x100000u + 4096u * (unsigned)(4 * step + id);
            int found = call(100 + (size_t)id, fresh, id);
            gw_check(found == id || (found == 0 && step < 5), "step %d bucket %d found %d", step,
                     id, found);
        }
        other_call();
    }
    /* What was used while learning is gone: four residuals are left, and the odd bucket's. */
    ck_assert_uint_eq(context->residual_bytes, 4 * (101 + 102 + 103 + 104 + 40));
    ck_assert_uint_gt(store.resets, 0);
    close_store();
}
END_TEST

START_TEST(a_single_bucket_at_new_addresses_finds_it_after_learning)
{
    open_store("");
    for (int step = 0; step < 2000; step++) {
        int found = call(100, 0x100000u + 4096u * (unsigned)step, 1);
        gw_check(found == (step > 7), "step %d found %d", step, found);
    }
    ck_assert_uint_eq(context->residual_bytes, 400);
    close_store();
}
END_TEST

/* Two equal buckets per step; `address` says where each lies. From step `learned` on each finds its
 * own. */
static void two_equal(const char *name, uintptr_t (*address)(int step, int id), bool with_other,
                      int learned)
{
    open_store("");
    int last_wrong = -1;
    for (int step = 0; step < 200; step++) {
        for (int id = 1; id <= 2; id++)
            if (call(64, address(step, id), id) != id)
                last_wrong = step;
        if (with_other)
            other_call();
    }
    printf("# %s%s: each finds its own after step %d\n", name,
           with_other ? " with another call" : "", last_wrong);
    fflush(stdout);
    ck_assert_int_lt(last_wrong, learned);
    close_store();
}

static uintptr_t stable(int step, int id)
{
    return id == 1 ? A : B;
}

static uintptr_t swapping(int step, int id)
{
    return (id == 1) == (step % 2 == 0) ? A : B;
}

/* An allocator that hands out the same two places in no order. */
static uintptr_t recycled(int step, int id)
{
    uint64_t state = (uint64_t)step;
    return (id == 1) == (gw_test_random(&state) % 2 == 0) ? A : B;
}

static uintptr_t fresh(int step, int id)
{
    return 0x10000u + 4096u * (unsigned)(2 * step + id);
}

START_TEST(two_equal_buckets_are_told_apart)
{
    two_equal("stable", stable, false, 1);
    two_equal("stable", stable, true, 1);
    two_equal("swapping", swapping, false, 12);
    two_equal("swapping", swapping, true, 12);
    two_equal("recycled", recycled, true, 12);
    two_equal("fresh", fresh, true, 6);
    fflush(stdout);
}
END_TEST

START_TEST(ten_equal_buckets_through_one_staging_buffer_are_told_apart)
{
    open_store("");
    for (int step = 0; step < 50; step++) {
        for (int id = 1; id <= 10; id++) {
            int found = call(64, A, id);
            gw_check(step < 6 || found == id, "step %d bucket %d found %d", step, id, found);
        }
        other_call();
    }
    close_store();
}
END_TEST

/* As a data-parallel trainer that makes new buckets after its first step: the old residuals go. */
START_TEST(buckets_that_are_built_anew_start_afresh)
{
    open_store("");
    ck_assert_int_eq(call(100, A, 1), 0);
    ck_assert_int_eq(call(200, B, 2), 0);
    for (int step = 1; step < 100; step++) {
        int first = call(150, A, 3), second = call(150, B, 4);
        gw_check(first == (step > 1 ? 3 : 0) && second == (step > 1 ? 4 : 0),
                 "step %d found %d and %d", step, first, second);
    }
    ck_assert_uint_eq(context->residual_bytes, 2 * 600);
    ck_assert_uint_eq(store.resets, 2);
    ck_assert_int_eq(told("2 residuals of the old one dropped"), 1);
    ck_assert_int_eq(told("the sequence of calls has changed"), 1);
    close_store();
}
END_TEST

START_TEST(another_kind_of_call_at_the_same_address_has_its_own)
{
    open_store("");
    for (int step = 0; step < 20; step++)
        for (int kind = 1; kind <= 5; kind++) {
            gw__residual_key_t key = key_of(kind == 5 ? 99 : 100);
            key.op = kind == 2 ? GW_AVG : GW_SUM;
            key.dtype = kind == 3 ? GW_BF16 : GW_F32;
            key.coder = kind == 4 ? 8 : 7;
            int slot;
            float *values = gw__residual_acquire(&store, &key, (void *)(uintptr_t)A, &slot);
            gw_check((int)values[0] == (step ? kind : 0), "step %d kind %d found %g", step, kind,
                     values[0]);
            values[0] = (float)kind;
        }
    close_store();
}
END_TEST

START_TEST(two_communicators_share_nothing_but_the_bound)
{
    open_store("");
    static gw__residual_store_t second;
    gw__residual_init(&second, context, NULL);
    gw__residual_key_t key = key_of(10);
    int slot;
    for (int step = 0; step < 10; step++) {
        float *a = gw__residual_acquire(&store, &key, (void *)(uintptr_t)A, &slot);
        float *b = gw__residual_acquire(&second, &key, (void *)(uintptr_t)A, &slot);
        ck_assert_ptr_ne(a, b);
        gw_check(a[0] == (step ? 1.0f : 0.0f) && b[0] == (step ? 2.0f : 0.0f), "step %d", step);
        a[0] = 1.0f;
        b[0] = 2.0f;
    }
    ck_assert_uint_eq(context->residual_bytes, 80);
    gw__residual_free(&second);
    ck_assert_uint_eq(context->residual_bytes, 40);
    close_store();
}
END_TEST

START_TEST(a_step_larger_than_the_bound_keeps_what_fits)
{
    open_store("1200"); /* three of five buckets of 100 floats */
    for (int step = 0; step < 100; step++)
        for (int id = 1; id <= 5; id++) {
            int found = call(100, 0x1000u * (unsigned)id, id);
            gw_check(found == (id > 3 ? -1
                               : step ? id
                                      : 0),
                     "step %d bucket %d found %d", step, id, found);
            gw_check(context->residual_bytes <= 1200, "%zu bytes", context->residual_bytes);
        }
    ck_assert_int_eq(told("GRADWIRE_RESIDUAL_BYTES is reached"), 1);
    ck_assert_uint_eq(store.resets, 0);
    close_store();
}
END_TEST

START_TEST(what_is_not_used_any_more_makes_room_the_oldest_first)
{
    open_store("1200");
    for (int id = 1; id <= 3; id++)
        ck_assert_int_eq(call(100, 0x1000u * (unsigned)id, id), 0);
    /* A new sequence of one call, which has no room until the old ones have aged. */
    int calls = 0;
    while (call(99, 0x9000, 9) == -1)
        ck_assert_int_lt(++calls, 40);
    ck_assert_int_gt(calls, 5);
    ck_assert_uint_eq(store.resets, 1);
    gw__residual_key_t key = key_of(100);
    ck_assert(!store.slots[0].values || store.slots[0].key.count == 99);
    ck_assert(store.slots[1].values && store.slots[1].key.count == key.count);
    /* One that is larger than the bound must not push out all others. */
    ck_assert_int_eq(call(301, 0xA000, 1), -1);
    ck_assert_uint_ge(context->residual_bytes, 396);
    close_store();
}
END_TEST

START_TEST(a_failed_call_and_a_reset_leave_zeros)
{
    open_store("");
    for (int step = 0; step < 3; step++)
        for (int id = 1; id <= 2; id++)
            call(100, 0x1000u * (unsigned)id, id);
    gw__residual_reset(&store, 1);
    gw__residual_reset(&store, -1);
    ck_assert_uint_eq(store.resets, 1);
    ck_assert_int_eq(call(100, 0x1000, 1), 1);
    ck_assert_int_eq(call(100, 0x2000, 2), 0);
    gw__residual_clear(&store);
    ck_assert_uint_eq(context->residual_bytes, 0);
    ck_assert_uint_eq(store.resets, 3);
    /* In another order than before: places in memory are given anew, and the past leads to none of
     * another call. */
    for (int step = 0; step < 10; step++)
        for (int id = 2; id >= 1; id--) {
            int found = call(100, 0x1000u * (unsigned)id, id);
            gw_check(found == id || (found == 0 && step < 4), "step %d id %d found %d", step, id,
                     found);
        }
    close_store();
}
END_TEST

/* One bucket a step, and every so many steps another call, as for an evaluation. */
static void evaluate_every(int steps)
{
    open_store("");
    for (int step = 0; step < 20 * steps; step++) {
        int found = call(1000, 0x5000, 7);
        gw_check(found == (step ? 7 : 0), "every %d: step %d found %d", steps, step, found);
        if (step % steps == steps - 1)
            other_call();
    }
    ck_assert_uint_le(context->residual_bytes, 4000 + 160);
    close_store();
}

START_TEST(a_rare_call_does_not_multiply_residuals)
{
    evaluate_every(20);
    evaluate_every(100);
    evaluate_every(400);
}
END_TEST

/* An allocator that hands out many places again and again, in no order. */
START_TEST(one_bucket_at_recycled_addresses_keeps_one_residual)
{
    open_store("");
    uint64_t state = 3;
    for (int step = 0; step < 3000; step++) {
        int found = call(100, 0x100000u + 4096u * (unsigned)(gw_test_random(&state) % 300), 1);
        gw_check(step < 40 || found == 1, "step %d found %d", step, found);
        gw_check(context->residual_bytes <= 8 * 400, "step %d: %zu bytes", step,
                 context->residual_bytes);
    }
    ck_assert_uint_eq(context->residual_bytes, 400);
    close_store();
}
END_TEST

START_TEST(equal_fresh_buckets_without_another_call_keep_a_bounded_memory)
{
    open_store("");
    for (unsigned i = 0; i < 6000; i++) {
        call(100, 0x100000u + 4096u * i, (int)(i % 6) + 1);
        gw_check(context->residual_bytes <= 8 * 400, "%zu bytes", context->residual_bytes);
    }
    close_store();
}
END_TEST

/* Two equal buckets and a third at fixed addresses, and now and then an equal call from elsewhere:
 * it disturbs nobody. */
START_TEST(a_stranger_of_the_same_kind_keeps_to_itself)
{
    open_store("");
    for (int step = 0; step < 2000; step++) {
        for (int id = 1; id <= 3; id++) {
            int found = call(id == 3 ? 50 : 30, 0x1000u * (unsigned)id, id);
            gw_check(found == (step ? id : 0), "step %d bucket %d found %d", step, id, found);
        }
        if (step % 50 == 49)
            call(30, 0x100000u + 4096u * (unsigned)step, 99);
    }
    ck_assert_uint_le(context->residual_bytes, 4 * (30 + 30 + 50 + 30));
    close_store();
}
END_TEST

/* Sizes that never repeat leave nothing behind, and one that does keeps its own among them. */
START_TEST(sizes_that_never_repeat_keep_a_bounded_memory)
{
    open_store("64M");
    int found = 0;
    for (size_t i = 0; i < 5000; i++) {
        gw_check(call(100 + i, A, 1) == 0, "size %zu is new", 100 + i);
        found += i % 50 == 0 && call(90, B, 2) == 2;
    }
    ck_assert_int_le(store.kind_count, 512);
    ck_assert_int_le(store.slot_count, 2000);
    ck_assert_int_ge(found, 90);
    close_store();
}
END_TEST

START_TEST(a_long_history_wraps)
{
    open_store("");
    for (int step = 0; step < 1000; step++) {
        for (int id = 1; id <= 7; id++) {
            int found = call(50, 0x1000u * (unsigned)id, id);
            gw_check(found == (step ? id : 0), "step %d bucket %d found %d", step, id, found);
        }
        /* Now and then something else comes between. */
        if (step % 97 == 96)
            other_call();
    }
    /* That is no part of the sequence: its residual is given up each time, and no other one. */
    ck_assert_uint_le(store.resets, 10);
    /* More calls per step than the store looks back: addresses alone. */
    for (int step = 0; step < 10; step++)
        for (int id = 1; id <= 700; id++) {
            int found = call(20, 0x100000u + 64u * (unsigned)id, id);
            gw_check(step < 5 || found == id, "step %d id %d found %d", step, id, found);
        }
    close_store();
}
END_TEST

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

START_TEST(a_call_costs_about_a_microsecond)
{
    open_store("");
    static const int per_step[] = {1, 10, 100, 400};
    for (int p = 0; p < 4; p++) {
        double best = 1.0;
        for (int repeat = 0; repeat < 5; repeat++) {
            double begin = seconds();
            int calls = 0;
            for (int step = 0; step < 4000 / per_step[p]; step++)
                for (int id = 1; id <= per_step[p]; id++, calls++)
                    call(16, 0x1000u * (unsigned)id, id);
            double cost = (seconds() - begin) / calls;
            best = cost < best ? cost : best;
        }
        printf("# residual store, %d calls per step: %.2f us per call\n", per_step[p], best * 1e6);
        /* Generous: sanitizers and busy machines. A regression to a walk per period shows. */
        ck_assert_double_lt(best, 100e-6);
    }
    fflush(stdout);
    close_store();
}
END_TEST

/* ---- Through a communicator
 * --------------------------------------------------------------------------- */

static void reset_body(gw_rank_t *rank)
{
    float x[256], y[256], first[256];
    gw_coder_t coder;
    ck_assert_int_eq(gw_coder_parse("q2", &coder, NULL, 0), GW_OK);
    for (int i = 0; i < 256; i++)
        x[i] = (float)((i * 37 + rank->rank * 11) % 101) * 0.37f;
    for (int step = 0; step < 6; step++) {
        ck_assert_int_eq(
            gw_allreduce_with(rank->comm, &coder, GW_PLAN_DIRECT, x, y, 256, GW_F32, GW_SUM),
            GW_OK);
        if (step == 0)
            memcpy(first, y, sizeof y);
        /* Feedback changes the result; without any it is that of the first call. */
        gw_check((memcmp(first, y, sizeof y) == 0) == (step == 0 || step == 4), "step %d", step);
        if (step == 3)
            gw_comm_reset_residuals(rank->comm);
    }
    gw_stats_t stats;
    gw_comm_stats(rank->comm, &stats);
    ck_assert_uint_eq(stats.residual_resets, 1);
}

START_TEST(a_communicator_forgets_on_request)
{
    gw_world_t world = {.size = 2, .transport = "loopback", .body = reset_body};
    gw_setting_t settings[] = {{"GRADWIRE_LOG", "warn"}};
    world.settings = settings;
    world.setting_count = 1;
    gw_world_run(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("residual");
    TCase *tc = tcase_create("residual");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, stable_addresses_find_their_residual_from_the_second_step);
    tcase_add_test(tc, a_new_address_every_step_finds_it_after_learning);
    tcase_add_test(tc, a_single_bucket_at_new_addresses_finds_it_after_learning);
    tcase_add_test(tc, two_equal_buckets_are_told_apart);
    tcase_add_test(tc, ten_equal_buckets_through_one_staging_buffer_are_told_apart);
    tcase_add_test(tc, buckets_that_are_built_anew_start_afresh);
    tcase_add_test(tc, another_kind_of_call_at_the_same_address_has_its_own);
    tcase_add_test(tc, two_communicators_share_nothing_but_the_bound);
    tcase_add_test(tc, a_step_larger_than_the_bound_keeps_what_fits);
    tcase_add_test(tc, what_is_not_used_any_more_makes_room_the_oldest_first);
    tcase_add_test(tc, a_failed_call_and_a_reset_leave_zeros);
    tcase_add_test(tc, a_rare_call_does_not_multiply_residuals);
    tcase_add_test(tc, one_bucket_at_recycled_addresses_keeps_one_residual);
    tcase_add_test(tc, equal_fresh_buckets_without_another_call_keep_a_bounded_memory);
    tcase_add_test(tc, a_stranger_of_the_same_kind_keeps_to_itself);
    tcase_add_test(tc, sizes_that_never_repeat_keep_a_bounded_memory);
    tcase_add_test(tc, a_long_history_wraps);
    tcase_add_test(tc, a_call_costs_about_a_microsecond);
    tcase_add_test(tc, a_communicator_forgets_on_request);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
