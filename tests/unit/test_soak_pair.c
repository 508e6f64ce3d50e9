/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads of each rank on two communicators of one context at the same time, while a third
 * reads the figures: every result is right, every call is counted. */
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "gw_world.h"

enum { RANKS = 2, LANES = 2, CALLS = 200, LONGEST = 20000 };

typedef struct lane {
    gw_context_t *context;
    gw_loopback_rank_t place;
    int number;
} lane_t;

static size_t length(int lane, int call)
{
    return 1 + (size_t)(call * 997 + lane * 313) % LONGEST;
}

/* All elements of a call are equal, so that every codec sums them exactly. */
static float own(int lane, int rank, int call)
{
    return (float)(1 + rank + 10 * lane + call % 7);
}

static bool right(const float *x, size_t count, int lane, int call)
{
    float expected = own(lane, 0, call) + own(lane, 1, call);
    for (size_t i = 0; i < count; i++)
        if (fabsf(x[i] - expected) > 1e-3f)
            return false;
    return true;
}

static void *lane_main(void *arg)
{
    lane_t *lane = arg;
    gw_comm_params_t params = {.rank = lane->place.rank,
                               .size = RANKS,
                               .allgather = gw_loopback_allgather,
                               .allgather_arg = &lane->place,
                               .transport = "loopback",
                               .transport_arg = lane->place.world};
    gw_comm_t *comm;
    gw_check(gw_comm_create(lane->context, &params, &comm) == GW_OK, "lane %d", lane->number);
    float *x = malloc(LONGEST * sizeof *x);
    for (int call = 0; call < CALLS; call++) {
        size_t count = length(lane->number, call);
        for (size_t i = 0; i < count; i++)
            x[i] = own(lane->number, lane->place.rank, call);
        gw_check(gw_allreduce(comm, NULL, x, count, GW_F32, GW_SUM) == GW_OK, "lane %d call %d: %s",
                 lane->number, call, gw_comm_error(comm));
        gw_check(right(x, count, lane->number, call), "lane %d call %d", lane->number, call);
    }
    free(x);
    gw_comm_free(comm);
    return NULL;
}

typedef struct reader {
    gw_context_t *context;
    atomic_bool stop;
} reader_t;

static void *read_main(void *arg)
{
    reader_t *reader = arg;
    while (!atomic_load(&reader->stop)) {
        gw_stats_t s;
        gw_context_stats(reader->context, &s);
        gw_check(s.calls == s.compressed + s.passed, "%llu calls", (unsigned long long)s.calls);
        gw_check(gw_context_write_stats(reader->context) == GW_OK, "not written");
        usleep(2000);
    }
    return NULL;
}

START_TEST(two_threads_on_two_communicators)
{
    gw_loopback_t *world[LANES];
    lane_t lane[RANKS][LANES];
    pthread_t thread[RANKS][LANES], watch[RANKS];
    reader_t reader[RANKS];
    char file[RANKS][64];
    for (int l = 0; l < LANES; l++)
        ck_assert_int_eq(gw_loopback_create(RANKS, &world[l]), GW_OK);
    for (int r = 0; r < RANKS; r++) {
        snprintf(file[r], sizeof file[r], "/tmp/gw_pair_%ld.%d", (long)getpid(), r);
        gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "1K"}, {"GRADWIRE_STATS", file[r]}};
        ck_assert_int_eq(gw_context_create(settings, 2, &reader[r].context, NULL, 0), GW_OK);
        atomic_init(&reader[r].stop, false);
        ck_assert_int_eq(pthread_create(&watch[r], NULL, read_main, &reader[r]), 0);
        for (int l = 0; l < LANES; l++) {
            lane[r][l] = (lane_t){reader[r].context, {world[l], r}, l};
            ck_assert_int_eq(pthread_create(&thread[r][l], NULL, lane_main, &lane[r][l]), 0);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        gw_stats_t s;
        for (int l = 0; l < LANES; l++)
            pthread_join(thread[r][l], NULL);
        atomic_store(&reader[r].stop, true);
        pthread_join(watch[r], NULL);
        gw_context_stats(reader[r].context, &s);
        ck_assert_uint_eq(s.calls, LANES * CALLS);
        ck_assert_uint_gt(s.compressed, LANES * CALLS / 2);
        ck_assert_uint_gt(s.reasons[GW_REASON_TOO_SMALL], 0);
        gw_context_free(reader[r].context);
        ck_assert_int_eq(unlink(file[r]), 0);
    }
    for (int l = 0; l < LANES; l++)
        gw_loopback_free(world[l]);
}
END_TEST

START_TEST(a_wrong_element_is_seen)
{
    float x[100];
    for (int i = 0; i < 100; i++)
        x[i] = own(1, 0, 3) + own(1, 1, 3);
    ck_assert(right(x, 100, 1, 3));
    ck_assert(!right(x, 100, 0, 3) && !right(x, 100, 1, 4));
    x[99] += 0.01f;
    ck_assert(!right(x, 100, 1, 3));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("soak_pair");
    TCase *tc = tcase_create("soak_pair");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, two_threads_on_two_communicators);
    tcase_add_test(tc, a_wrong_element_is_seen);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
