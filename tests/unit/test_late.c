/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that are late, and peers that go silent: one is waited for with a warning, the other ends
 * the call in time. */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gw_world.h"
#include "comm_internal.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char log_name[64];

/* The calls compute as well, and under ThreadSanitizer that takes seconds of its own. */
enum { SLOWER = GW_THREAD_SANITIZED ? 5 : 1 };

/* Lines of the log that hold `text`. */
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

typedef struct scene {
    gw_plan_kind_t plan;
    size_t count;
    int talks; /* messages that the silent rank still sends */
    pthread_barrier_t *end;
    double took[8], closed[8];
    gw_status_t status[8];
    char error[8][512];
} scene_t;

static void run_scene(scene_t *scene, int size, void (*body)(gw_rank_t *))
{
    snprintf(log_name, sizeof log_name, "/tmp/gw_late_%ld.log", (long)getpid());
    unlink(log_name);
    gw_setting_t settings[] = {
        {"GRADWIRE_TIMEOUT", "1"}, {"GRADWIRE_LOG_FILE", log_name}, {"GRADWIRE_MIN_BYTES", "0"}};
    pthread_barrier_t end;
    pthread_barrier_init(&end, NULL, (unsigned)size);
    scene->end = &end;
    gw_world_t world = {.size = size,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 3,
                        .body = body,
                        .arg = scene};
    gw_world_run(&world);
    pthread_barrier_destroy(&end);
}

static gw_status_t reduce_again(gw_rank_t *rank, scene_t *scene, float *x)
{
    gw_coder_t coder;
    bool merges = scene->plan == GW_PLAN_RING || scene->plan == GW_PLAN_TREE;
    ck_assert_int_eq(gw_coder_parse(merges ? "randomk:ratio=0.5" : "q8", &coder, NULL, 0), GW_OK);
    return gw_allreduce_with(rank->comm, &coder, scene->plan, NULL, x, scene->count, GW_F32,
                             GW_SUM);
}

static void fill(const scene_t *scene, float *x)
{
    for (size_t i = 0; i < scene->count; i++)
        x[i] = (float)(i % 251);
}

static gw_status_t reduce(gw_rank_t *rank, scene_t *scene, float *x)
{
    fill(scene, x);
    return reduce_again(rank, scene, x);
}

/* ---- Late
 * --------------------------------------------------------------------------------------------- */

/* Turns that a rank's own library got, and whether all were on the rank's thread. */
typedef struct turns {
    pthread_t thread;
    int count, strange;
} turns_t;

static void take_turn(void *arg)
{
    turns_t *turns = arg;
    turns->count++;
    turns->strange += !pthread_equal(turns->thread, pthread_self());
}

static void late_body(gw_rank_t *rank)
{
    scene_t *scene = rank->arg;
    float *x = malloc(scene->count * sizeof *x);
    turns_t turns = {.thread = pthread_self()};
    rank->comm->engine.idle = take_turn;
    rank->comm->engine.idle_arg = &turns;
    if (rank->rank == 1)
        sleep(3);
    ck_assert_int_eq(reduce(rank, scene, x), GW_OK);
    for (size_t i = 0; i < scene->count; i++)
        gw_check(fabs(x[i] - (double)rank->size * (double)(i % 251)) < 2.0 * rank->size,
                 "element %zu: %g", i, x[i]);
    ck_assert_str_eq(gw_comm_error(rank->comm), "");
    ck_assert_int_eq(gw_comm_failed_rank(rank->comm), -1);
    /* Waiting for a peer is neither wire nor computing. */
    gw_stats_t stats;
    gw_comm_stats(rank->comm, &stats);
    gw_check(turns.strange == 0, "%d turns on other threads", turns.strange);
    gw_check(rank->rank != 0 || turns.count > 1000, "%d turns in three seconds", turns.count);
    if (rank->rank == 0)
        ck_assert_uint_ge(stats.wait_us, 2500000);
    else
        ck_assert_uint_le(stats.wait_us, 2000000);
    ck_assert_uint_le(stats.wire_us, 1000000);
    free(x);
}

START_TEST(a_late_peer_earns_one_warning)
{
    scene_t scene = {.plan = GW_PLAN_GATHER, .count = 1000000};
    run_scene(&scene, 2, late_body);
    ck_assert_int_eq(told("rank 1 has not entered it for"), 1);
    ck_assert_int_eq(told("warning"), 1);
    unlink(log_name);
}
END_TEST

/* The others: each warns once, and none takes the silence of the other for a failure. */
static void late_of_three_body(gw_rank_t *rank)
{
    scene_t *scene = rank->arg;
    float *x = malloc(scene->count * sizeof *x);
    if (rank->rank == 1)
        sleep(3);
    ck_assert_int_eq(reduce(rank, scene, x), GW_OK);
    free(x);
}

START_TEST(a_late_peer_excuses_those_who_wait_for_it)
{
    for (gw_plan_kind_t plan = GW_PLAN_DIRECT; plan <= GW_PLAN_TREE; plan++) {
        /* In ring and tree some hear of it through others only. */
        int size = plan == GW_PLAN_RING || plan == GW_PLAN_TREE ? 5 : 3;
        scene_t scene = {.plan = plan, .count = 1000000};
        run_scene(&scene, size, late_of_three_body);
        ck_assert_int_eq(told("rank 1 has not entered it for"), size - 1);
        ck_assert_int_eq(told("failed"), 0);
        unlink(log_name);
    }
}
END_TEST

/* ---- Silent
 * --------------------------------------------------------------------------------------------- */

static const gw_transport_t *real;
static gw_transport_t muted;
static _Thread_local int talks = 1 << 30;
static int victim = 1; /* who goes silent, or damages what it sends */

/* Says that the message went out; it did only the first `talks` times. */
static gw_status_t send_or_not(gw_link_t *link, int peer, uint64_t tag, const void *data,
                               size_t length, gw_request_t *req)
{
    if (talks-- > 0)
        return real->send(link, peer, tag, data, length, req);
    *req = (gw_request_t){.status = GW_OK, .peer = peer};
    return GW_OK;
}

static void prepare_muted(void)
{
    ck_assert_int_eq(gw_transport_find("loopback", &real, NULL, 0), GW_OK);
    muted = *real;
    muted.send = send_or_not;
}

static void silent_body(gw_rank_t *rank)
{
    scene_t *scene = rank->arg;
    int r = rank->rank;
    float *x = malloc(scene->count * sizeof *x);
    rank->comm->engine.transport = &muted;
    talks = r == victim ? scene->talks : 1 << 30;
    fill(scene, x);
    double begin = seconds();
    scene->status[r] = reduce_again(rank, scene, x);
    scene->took[r] = seconds() - begin;
    snprintf(scene->error[r], sizeof scene->error[r], "%s", gw_comm_error(rank->comm));
    if (scene->status[r] != GW_OK) {
        /* From now on the same at once, and it says whose fault it was. */
        begin = seconds();
        ck_assert_int_eq(reduce_again(rank, scene, x), scene->status[r]);
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, 1, GW_F32, GW_SUM), scene->status[r]);
        ck_assert(seconds() - begin < 0.5);
        gw_stats_t stats;
        gw_comm_stats(rank->comm, &stats);
        ck_assert_uint_eq(stats.errors, 1);
        ck_assert_uint_eq(stats.reasons[GW_REASON_DISABLED], 2);
        ck_assert_uint_eq(stats.calls, stats.compressed + stats.passed);
        ck_assert_uint_eq(stats.residual_resets, 1);
        if (r != victim)
            ck_assert_int_eq(gw_comm_failed_rank(rank->comm), victim);
    }
    /* Nobody closes before all have their result: that would be a failed peer, not a silent one. */
    pthread_barrier_wait(scene->end);
    begin = seconds();
    gw_comm_free(rank->comm);
    rank->comm = NULL;
    scene->closed[r] = seconds() - begin;
    free(x);
}

static void check_silence(gw_plan_kind_t plan, int size, int words)
{
    scene_t scene = {.plan = plan, .count = 3000000, .talks = words};
    char blamed[16];
    run_scene(&scene, size, silent_body);
    snprintf(blamed, sizeof blamed, "rank %d:", victim);
    for (int r = 0; r < size; r++) {
        ck_assert_msg(scene.closed[r] < 2.0, "rank %d: close took %.2f s", r, scene.closed[r]);
        if (r == victim)
            continue;
        ck_assert_msg(scene.status[r] == GW_ERR_TIMEOUT, "rank %d: status %d: %s", r,
                      scene.status[r], scene.error[r]);
        ck_assert_msg(strncmp(scene.error[r], blamed, 7) == 0, "rank %d of %d, plan %d: %s", r,
                      size, plan, scene.error[r]);
        ck_assert_msg(scene.took[r] >= 1.0 && scene.took[r] < 3.0 * SLOWER, "rank %d: took %.2f s",
                      r, scene.took[r]);
    }
    unlink(log_name);
}

/* Rank 1 of three stops in a round in which it has still served rank 2: both others now wait for
 * rank 0 and rank 1, and must not blame each other. */
static gw_status_t send_until_round(gw_link_t *link, int peer, uint64_t tag, const void *data,
                                    size_t length, gw_request_t *req)
{
    uint32_t round = (uint32_t)(tag & 0xFFFFFF) >> 1;
    bool last = round == 1 && (tag & 1) == GW__PUSH && peer == 2;
    if (talks > 1000 || round == 0 || last)
        return real->send(link, peer, tag, data, length, req);
    *req = (gw_request_t){.status = GW_OK, .peer = peer};
    return GW_OK;
}

START_TEST(those_who_wait_for_the_silent_one_are_not_blamed)
{
    prepare_muted();
    muted.send = send_until_round;
    check_silence(GW_PLAN_DIRECT, 3, 0);
}
END_TEST

START_TEST(a_silent_peer_ends_the_call_in_time)
{
    prepare_muted();
    check_silence(GW_PLAN_GATHER, 2, 5);
    check_silence(GW_PLAN_DIRECT, 2, 5);
    check_silence(GW_PLAN_DIRECT, 3, 9);
    check_silence(GW_PLAN_DIRECT, 3, 10);
    check_silence(GW_PLAN_GATHER, 4, 10);
}
END_TEST

/* Most of the others hear nothing from the silent one even when all is well: they must learn that
 * it entered the call, and not blame their neighbours, who wait as they do. */
START_TEST(a_silent_peer_of_a_ring_or_tree_ends_the_call_in_time)
{
    static const struct {
        gw_plan_kind_t plan;
        int size, victim, words;
    } cells[] = {{GW_PLAN_RING, 2, 1, 5},  {GW_PLAN_RING, 3, 1, 4},  {GW_PLAN_RING, 5, 1, 1},
                 {GW_PLAN_RING, 5, 3, 9},  {GW_PLAN_RING, 4, 0, 14}, {GW_PLAN_TREE, 2, 0, 4},
                 {GW_PLAN_TREE, 4, 1, 5},  {GW_PLAN_TREE, 4, 2, 9},  {GW_PLAN_TREE, 5, 0, 4},
                 {GW_PLAN_TREE, 7, 4, 11}, {GW_PLAN_TREE, 7, 6, 1}};
    prepare_muted();
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        victim = cells[i].victim;
        check_silence(cells[i].plan, cells[i].size, cells[i].words);
    }
}
END_TEST

/* Rank 0's "all is well" is lost: it has its result, and rank 1 gives the call up. Rank 0 must not
 * take it for late in the next call. */
static _Thread_local bool loses;

static gw_status_t lose_empty(gw_link_t *link, int peer, uint64_t tag, const void *data,
                              size_t length, gw_request_t *req)
{
    if (!loses || length > 0)
        return real->send(link, peer, tag, data, length, req);
    *req = (gw_request_t){.status = GW_OK, .peer = peer};
    return GW_OK;
}

static void left_behind_body(gw_rank_t *rank)
{
    scene_t *scene = rank->arg;
    int r = rank->rank;
    float *x = malloc(scene->count * sizeof *x);
    rank->comm->engine.transport = &muted;
    loses = r == 0;
    gw_status_t first = reduce(rank, scene, x);
    ck_assert_int_eq(first, r == 0 ? GW_OK : GW_ERR_TIMEOUT);
    fill(scene, x);
    double begin = seconds();
    scene->status[r] = reduce_again(rank, scene, x);
    scene->took[r] = seconds() - begin;
    snprintf(scene->error[r], sizeof scene->error[r], "%s", gw_comm_error(rank->comm));
    pthread_barrier_wait(scene->end);
    free(x);
}

START_TEST(whoever_had_its_result_learns_of_the_failure_in_the_next_call)
{
    prepare_muted();
    muted.send = lose_empty;
    scene_t scene = {.plan = GW_PLAN_GATHER, .count = 1000000};
    run_scene(&scene, 2, left_behind_body);
    ck_assert_int_eq(scene.status[1], GW_ERR_TIMEOUT);
    ck_assert_int_eq(scene.status[0], GW_ERR_TIMEOUT);
    ck_assert_str_eq(scene.error[0],
                     "rank 0, which is this one: a peer was silent for too long, says rank 1");
    ck_assert_msg(scene.took[0] < 2.5 * SLOWER, "took %.2f s", scene.took[0]);
    unlink(log_name);
}
END_TEST

/* One that closes in the middle is a failed peer, noticed at once. */
static void leaving_body(gw_rank_t *rank)
{
    scene_t *scene = rank->arg;
    float *x = malloc(scene->count * sizeof *x);
    if (rank->rank != 1) {
        fill(scene, x);
        double begin = seconds();
        gw_status_t status = reduce_again(rank, scene, x);
        ck_assert_int_eq(status, GW_ERR_PEER_FAILED);
        ck_assert(seconds() - begin < 0.9);
        ck_assert_msg(strstr(gw_comm_error(rank->comm), "rank 1") != NULL, "%s",
                      gw_comm_error(rank->comm));
        ck_assert_int_eq(gw_comm_failed_rank(rank->comm), 1);
    }
    free(x);
}

START_TEST(a_peer_that_leaves_is_noticed_at_once)
{
    scene_t scene = {.plan = GW_PLAN_GATHER, .count = 1000000};
    run_scene(&scene, 2, leaving_body);
    unlink(log_name);
}
END_TEST

/* ---- Damaged
 * -------------------------------------------------------------------------------------------- */

/* What was sent: it stays as it is until nobody can be reading it. Only one rank damages. */
static struct {
    uint8_t *bytes[256];
    size_t count;
} damaged;

static gw_status_t send_damaged(gw_link_t *link, int peer, uint64_t tag, const void *data,
                                size_t length, gw_request_t *req)
{
    if (talks-- > 0 || length == 0)
        return real->send(link, peer, tag, data, length, req);
    ck_assert_uint_lt(damaged.count, sizeof damaged.bytes / sizeof *damaged.bytes);
    uint8_t *bytes = malloc(length);
    memcpy(bytes, data, length);
    bytes[0] ^= 0xFF;
    damaged.bytes[damaged.count++] = bytes;
    return real->send(link, peer, tag, bytes, length, req);
}

static void forget_damaged(void)
{
    while (damaged.count > 0)
        free(damaged.bytes[--damaged.count]);
}

START_TEST(a_damaged_frame_names_its_sender)
{
    prepare_muted();
    muted.send = send_damaged;
    scene_t scene = {.plan = GW_PLAN_GATHER, .count = 100000};
    run_scene(&scene, 2, silent_body);
    ck_assert_msg(scene.status[0] == GW_ERR_FRAME_MAGIC, "status %d", scene.status[0]);
    ck_assert_msg(strncmp(scene.error[0], "rank 1:", 7) == 0, "%s", scene.error[0]);
    /* The sender is told that its result is nobody else's, and that it is to blame. */
    ck_assert_msg(scene.status[1] == GW_ERR_PEER_FAILED, "status %d", scene.status[1]);
    ck_assert_str_eq(scene.error[1],
                     "rank 1, which is this one: not a Gradwire frame, says rank 0");
    forget_damaged();
    unlink(log_name);
}
END_TEST

/* In any round, on the way to the sum and back: whoever passes frames on is not blamed. */
static void check_damage(gw_plan_kind_t plan, int size, int words)
{
    scene_t scene = {.plan = plan, .count = 3000000, .talks = words};
    char blamed[16];
    int noticed = 0;
    run_scene(&scene, size, silent_body);
    snprintf(blamed, sizeof blamed, "rank %d", victim);
    for (int r = 0; r < size; r++) {
        noticed += scene.status[r] == GW_ERR_FRAME_MAGIC;
        ck_assert_msg(scene.status[r] == GW_ERR_FRAME_MAGIC ||
                          scene.status[r] == GW_ERR_PEER_FAILED,
                      "rank %d: status %d: %s", r, scene.status[r], scene.error[r]);
        ck_assert_msg(strncmp(scene.error[r], blamed, 6) == 0 && scene.took[r] < 1.0 * SLOWER,
                      "%s of %d, rank %d after %d messages, %.2f s: %s", gw_plan_name(plan), size,
                      r, words, scene.took[r], scene.error[r]);
    }
    ck_assert_int_ge(noticed, 1);
    forget_damaged();
    unlink(log_name);
}

START_TEST(a_damaged_frame_of_a_ring_or_tree_names_its_sender)
{
    prepare_muted();
    muted.send = send_damaged;
    for (int words = 0; words < 8; words++) {
        victim = words % 4;
        check_damage(GW_PLAN_RING, 4, words);
        victim = words % 2 ? 2 : 0; /* a leaf sends once a round */
        check_damage(GW_PLAN_TREE, 4, words);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("late");
    TCase *tc = tcase_create("late");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_late_peer_earns_one_warning);
    tcase_add_test(tc, a_late_peer_excuses_those_who_wait_for_it);
    tcase_add_test(tc, a_silent_peer_ends_the_call_in_time);
    tcase_add_test(tc, those_who_wait_for_the_silent_one_are_not_blamed);
    tcase_add_test(tc, whoever_had_its_result_learns_of_the_failure_in_the_next_call);
    tcase_add_test(tc, a_peer_that_leaves_is_noticed_at_once);
    tcase_add_test(tc, a_damaged_frame_names_its_sender);
    tcase_add_test(tc, a_silent_peer_of_a_ring_or_tree_ends_the_call_in_time);
    tcase_add_test(tc, a_damaged_frame_of_a_ring_or_tree_names_its_sender);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
