/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer that goes away in the middle of a call of two sums: in the first one, between them and in
 * the second. Every healthy rank gets an error that names it, once, and keeps it.
 */
#include "gw_world.h"

#include "comm_internal.h"
#include "gw_bound.h"

enum { RANKS = 3, COUNT = 40000, CALLS = 12 };

/* What the others saw of one cell. */
typedef struct seen {
    gw_status_t status[RANKS], again[RANKS];
    int named[RANKS], calls[RANKS];
    char error[RANKS][256];
    gw_stats_t stats[RANKS];
} seen_t;

static void body(gw_rank_t *rank)
{
    seen_t *seen = rank->arg;
    int r = rank->rank;
    gw_coder_t coder = gw_test_coder("lowrank:rank=8");
    float *x = malloc(COUNT * sizeof *x);
    for (; seen->calls[r] < CALLS && seen->status[r] == GW_OK; seen->calls[r]++) {
        for (int i = 0; i < COUNT; i++)
            x[i] = (float)((i * 7 + r) % 251);
        seen->status[r] =
            gw_allreduce_with(rank->comm, &coder, GW_PLAN_DIRECT, NULL, x, COUNT, GW_F32, GW_SUM);
    }
    seen->named[r] = gw_comm_failed_rank(rank->comm);
    snprintf(seen->error[r], sizeof seen->error[r], "%s", gw_comm_error(rank->comm));
    seen->again[r] =
        gw_allreduce_with(rank->comm, &coder, GW_PLAN_DIRECT, NULL, x, COUNT, GW_F32, GW_SUM);
    gw_comm_stats(rank->comm, &seen->stats[r]);
    free(x);
}

static seen_t run(const char *fault)
{
    seen_t seen = {.calls = {0}};
    gw_setting_t settings[] = {{"GRADWIRE_LOG", "off"},
                               {"GRADWIRE_MIN_BYTES", "0"},
                               {"GRADWIRE_TIMEOUT", "1"},
                               {"GRADWIRE_CHECKSUM", "on"},
                               {"GRADWIRE_FAULT", fault}};
    gw_world_t world = {.size = RANKS,
                        .transport = "fault",
                        .settings = settings,
                        .setting_count = sizeof settings / sizeof *settings,
                        .body = body,
                        .arg = &seen};
    gw_world_run(&world);
    for (int r = 0; r < RANKS; r++)
        ck_assert_msg(world.created[r] == GW_OK, "%s", world.why[r]);
    return seen;
}

static void check(const seen_t *seen, const char *fault)
{
    for (int r = 0; r < RANKS; r++) {
        if (r == 1)
            continue;
        gw_check(seen->status[r] != GW_OK && seen->named[r] == 1,
                 "%s: rank %d has %s, blames %d: %s", fault, r, gw_status_text(seen->status[r]),
                 seen->named[r], seen->error[r]);
        gw_check(seen->again[r] == seen->status[r], "%s: the error of rank %d does not stay", fault,
                 r);
        gw_check(seen->stats[r].errors == 1 && seen->stats[r].residual_resets == 1,
                 "%s: rank %d counts %d errors, %d resets", fault, r, (int)seen->stats[r].errors,
                 (int)seen->stats[r].residual_resets);
    }
}

/* Rank 1 sends six messages in each of the two sums of a call (to two peers: a push, a pull, a
 * closing one); the greetings come before. The numbers go through all of one call and into the
 * next. */
START_TEST(a_peer_that_dies_is_named_wherever_it_is)
{
    int calls = 0;
    for (int after = 14; after <= 30; after += 2) {
        char fault[64];
        snprintf(fault, sizeof fault, "over=loopback,seed=3,kill=1@%d", after);
        seen_t seen = run(fault);
        check(&seen, fault);
        calls |= 1 << seen.calls[0];
    }
    ck_assert_int_ne(calls & (calls - 1), 0); /* not always in the same call */
}
END_TEST

START_TEST(damaged_sums_are_refused)
{
    static const char *const faults[] = {"over=loopback,seed=1,truncate=1,only=1,from=16",
                                         "over=loopback,seed=2,corrupt=1,only=1,from=16",
                                         "over=loopback,seed=3,corrupt=1,only=1,from=22"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        seen_t seen = run(faults[i]);
        check(&seen, faults[i]);
    }
}
END_TEST

/* Rank 1 asks for more memory than there is: it gives up, and the others are told. */
static void body_without_memory(gw_rank_t *rank)
{
    seen_t *seen = rank->arg;
    gw_coder_t coder = gw_test_coder("lowrank");
    float *x = calloc(COUNT, sizeof *x);
    int r = rank->rank;
    if (r == 1) {
        gw_factor_sizes_t sizes = {.first = 1000, .second = 1000, .scratch = SIZE_MAX / 16};
        gw_work_t work = {.comm = rank->comm,
                          .call = {.count = COUNT},
                          .decision = {.plan = GW_PLAN_DIRECT},
                          .job = {.coder = &coder,
                                  .send = x,
                                  .recv = x,
                                  .dtype = GW_F32,
                                  .number = rank->comm->calls++}};
        gw__factors_begin(&work, &sizes, NULL);
        seen->status[r] = gw__factors_step(&work);
    } else {
        seen->status[r] =
            gw_allreduce_with(rank->comm, &coder, GW_PLAN_DIRECT, NULL, x, COUNT, GW_F32, GW_SUM);
        seen->named[r] = gw_comm_failed_rank(rank->comm);
    }
    free(x);
}

START_TEST(without_memory_all_are_told)
{
    seen_t seen = {.calls = {0}};
    gw_setting_t settings[] = {{"GRADWIRE_LOG", "off"}, {"GRADWIRE_TIMEOUT", "5"}};
    gw_world_t world = {.size = RANKS,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 2,
                        .body = body_without_memory,
                        .arg = &seen};
    gw_world_run(&world);
    ck_assert_int_eq(seen.status[1], GW_ERR_NO_MEMORY);
    for (int r = 0; r < RANKS; r += 2) {
        ck_assert_int_eq(seen.status[r], GW_ERR_PEER_FAILED);
        ck_assert_int_eq(seen.named[r], 1);
    }
}
END_TEST

START_TEST(order_and_copies_do_not_matter)
{
    seen_t seen = run("over=loopback,seed=5,reorder=0.5,delay=2ms:0.1,duplicate=0.3");
    for (int r = 0; r < RANKS; r++)
        ck_assert(seen.status[r] == GW_OK && seen.calls[r] == CALLS && seen.again[r] == GW_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lowrank faults");
    TCase *tc = tcase_create("faults");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, a_peer_that_dies_is_named_wherever_it_is);
    tcase_add_test(tc, damaged_sums_are_refused);
    tcase_add_test(tc, without_memory_all_are_told);
    tcase_add_test(tc, order_and_copies_do_not_matter);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
