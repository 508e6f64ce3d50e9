/* SPDX-License-Identifier: Apache-2.0 */
/* Making communicators: one status for all ranks whatever goes wrong on one, nothing left behind,
 * several at a time. */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "gw_world.h"
#include "comm_internal.h"

#if defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static char log_name[64];

static void new_log(void)
{
    snprintf(log_name, sizeof log_name, "/tmp/gw_comm_%ld.log", (long)getpid());
    unlink(log_name);
}

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

/* ---- One rank that differs
 * ---------------------------------------------------------------------------- */

static void expect_all(gw_world_t *world, gw_status_t status, const char *sentence)
{
    gw_setting_t settings[] = {{"GRADWIRE_LOG_FILE", log_name}};
    new_log();
    world->settings = settings;
    world->setting_count = 1;
    gw_world_run(world);
    for (int r = 0; r < world->size; r++)
        ck_assert_msg(world->created[r] == status, "rank %d: %s, not %s", r,
                      gw_status_name(world->created[r]), gw_status_name(status));
    ck_assert_msg(told(sentence) == world->size, "\"%s\" is told %d times", sentence,
                  told(sentence));
    unlink(log_name);
}

START_TEST(a_rank_with_other_settings_is_named_on_all_ranks)
{
    gw_setting_t codec = {"GRADWIRE_CODEC", "q8"}, bytes = {"GRADWIRE_MIN_BYTES", "17"};
    gw_world_t world = {.size = 4, .transport = "loopback", .odd = &codec, .odd_rank = 2};
    expect_all(&world, GW_ERR_SETTINGS_DIFFER, "rank 2 has codec=q8, rank 0 q4");
    world = (gw_world_t){.size = 3, .transport = "loopback", .odd = &bytes, .odd_rank = 0};
    expect_all(&world, GW_ERR_SETTINGS_DIFFER, "rank 0 has min_bytes=17, rank 1 65536");
}
END_TEST

START_TEST(a_rank_whose_preparation_fails_is_named_on_all_ranks)
{
    gw_setting_t list = {"GRADWIRE_INTERFACES", "nosuch0"};
    gw_world_t world = {.size = 3, .transport = "ucx", .odd = &list, .odd_rank = 1};
    expect_all(&world, GW_ERR_NO_DEVICE, "rank 1: GRADWIRE_INTERFACES");
}
END_TEST

START_TEST(an_unknown_transport_is_named_on_all_ranks)
{
    gw_world_t world = {.size = 2, .transport = "nosuch"};
    expect_all(&world, GW_ERR_PEER_REFUSED, "nosuch");
}
END_TEST

/* ---- Ranks with parameters of their own
 * --------------------------------------------------------------- */

typedef struct member {
    gw_loopback_rank_t oob;
    const char *transport;
    int size, fail_at; /* the all-gather that fails on this rank; -1: none */
    int gathers;
    gw_status_t status;
    pthread_t thread;
} member_t;

static gw_status_t gather(void *arg, const void *mine, void *all, size_t bytes)
{
    member_t *m = arg;
    /* The exchange itself takes place: only the word about it is bad, as when a daemon went away.
     */
    gw_status_t status = gw_loopback_allgather(&m->oob, mine, all, bytes);
    return m->gathers++ == m->fail_at ? GW_ERR_IO : status;
}

static void *member_main(void *arg)
{
    member_t *m = arg;
    gw_context_t *context;
    gw_comm_t *comm = NULL;
    gw_setting_t quiet[] = {{"GRADWIRE_LOG_FILE", log_name}};
    ck_assert_int_eq(gw_context_create(quiet, 1, &context, NULL, 0), GW_OK);
    gw_comm_params_t params = {.rank = m->oob.rank,
                               .size = m->size,
                               .allgather = gather,
                               .allgather_arg = m,
                               .transport = m->transport,
                               .transport_arg = m->oob.world};
    m->status = gw_comm_create(context, &params, &comm);
    gw_check((comm != NULL) == (m->status == GW_OK), "a communicator in spite of an error");
    gw_comm_free(comm);
    gw_context_free(context);
    return NULL;
}

static void run_members_in(gw_loopback_t *world, member_t *members, int size)
{
    for (int r = 0; r < size; r++) {
        members[r].oob = (gw_loopback_rank_t){world, r};
        members[r].size = size;
        ck_assert_int_eq(pthread_create(&members[r].thread, NULL, member_main, &members[r]), 0);
    }
    for (int r = 0; r < size; r++)
        pthread_join(members[r].thread, NULL);
}

static void run_members(member_t *members, int size)
{
    gw_loopback_t *world;
    ck_assert_int_eq(gw_loopback_create(size, &world), GW_OK);
    run_members_in(world, members, size);
    gw_loopback_free(world);
}

START_TEST(one_rank_without_its_transport_refuses_for_all)
{
    member_t members[3] = {{.transport = "loopback", .fail_at = -1},
                           {.transport = "loopback", .fail_at = -1},
                           {.transport = "nosuch", .fail_at = -1}};
    new_log();
    run_members(members, 3);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(members[r].status == GW_ERR_PEER_REFUSED, "rank %d: %d", r,
                      members[r].status);
    ck_assert_int_eq(told("rank 2: "), 3);
    unlink(log_name);
}
END_TEST

START_TEST(an_error_of_the_allgather_comes_back)
{
    for (int at = 0; at < 7; at++) {
        member_t members[2] = {{.transport = "loopback", .fail_at = at},
                               {.transport = "loopback", .fail_at = at}};
        new_log();
        run_members(members, 2);
        for (int r = 0; r < 2; r++) {
            ck_assert_msg(members[r].status == GW_ERR_IO, "all-gather %d, rank %d: %d", at, r,
                          members[r].status);
            ck_assert_int_eq(members[r].gathers, at + 1);
        }
        unlink(log_name);
    }
    /* There is no eighth. */
    member_t members[2] = {{.transport = "loopback", .fail_at = 7},
                           {.transport = "loopback", .fail_at = 7}};
    run_members(members, 2);
    ck_assert_int_eq(members[0].status, GW_OK);
    unlink(log_name);
}
END_TEST

START_TEST(bad_arguments_are_refused_before_anything_is_exchanged)
{
    gw_context_t *context;
    gw_comm_t *comm = NULL;
    ck_assert_int_eq(gw_context_create(NULL, 0, &context, NULL, 0), GW_OK);
    gw_comm_params_t bad[] = {{.rank = 0, .size = 0},
                              {.rank = -1, .size = 2, .allgather = gw_loopback_allgather},
                              {.rank = 2, .size = 2, .allgather = gw_loopback_allgather},
                              {.rank = 0, .size = 2, .allgather = NULL}};
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(gw_comm_create(context, &bad[i], &comm), GW_ERR_INVALID);
    gw_comm_params_t one = {.rank = 0, .size = 1};
    ck_assert_int_eq(gw_comm_create(NULL, &one, &comm), GW_ERR_INVALID);
    ck_assert_int_eq(gw_comm_create(context, NULL, &comm), GW_ERR_INVALID);
    ck_assert_int_eq(gw_comm_create(context, &one, NULL), GW_ERR_INVALID);
    gw_comm_free(NULL);
    gw_context_free(context);
    gw_context_free(NULL);
}
END_TEST

/* ---- A peer that sends rubbish
 * ------------------------------------------------------------------------ */

typedef struct liar {
    uint64_t state;
    int gathers, lie_at;
} liar_t;

/* Plays rank 1: the same bytes as rank 0's, some of them changed. */
static gw_status_t lying_gather(void *arg, const void *mine, void *all, size_t bytes)
{
    liar_t *liar = arg;
    uint8_t *other = (uint8_t *)all + bytes;
    memcpy(all, mine, bytes);
    memcpy(other, mine, bytes);
    if (liar->gathers++ != liar->lie_at)
        return GW_OK;
    int lies = 1 + (int)(gw_test_random(&liar->state) % 64);
    for (int i = 0; i < lies; i++)
        other[gw_test_random(&liar->state) % bytes] = (uint8_t)gw_test_random(&liar->state);
    if (gw_test_random(&liar->state) % 4 == 0)
        memset(other, 0xFF, bytes);
    return GW_OK;
}

START_TEST(rubbish_from_a_peer_ends_in_an_error)
{
    gw_context_t *context;
    gw_loopback_t *world;
    gw_setting_t quiet[] = {{"GRADWIRE_LOG", "off"}};
    ck_assert_int_eq(gw_context_create(quiet, 1, &context, NULL, 0), GW_OK);
    ck_assert_int_eq(gw_loopback_create(2, &world), GW_OK);
    for (int i = 0; i < 600; i++) {
        gw_comm_t *comm = NULL;
        liar_t liar = {.state = (uint64_t)i, .lie_at = i % 4};
        gw_comm_params_t params = {.rank = 0,
                                   .size = 2,
                                   .allgather = lying_gather,
                                   .allgather_arg = &liar,
                                   .transport = "loopback",
                                   .transport_arg = world};
        gw_status_t status = gw_comm_create(context, &params, &comm);
        /* The address alone is wrong already: it is rank 0's. */
        gw_check(status < 0 && !comm, "lie %d: status %d", i, status);
    }
    /* Every link was closed again: the place is free for honest ranks. */
    member_t members[2] = {{.transport = "loopback", .fail_at = -1},
                           {.transport = "loopback", .fail_at = -1}};
    new_log();
    run_members_in(world, members, 2);
    ck_assert_int_eq(members[0].status, GW_OK);
    ck_assert_int_eq(members[1].status, GW_OK);
    unlink(log_name);
    gw_loopback_free(world);
    gw_context_free(context);
}
END_TEST

/* ---- One rank
 * ----------------------------------------------------------------------------------------- */

START_TEST(a_communicator_of_one_copies)
{
    gw_context_t *context;
    gw_comm_t *comm;
    float x[100], y[100];
    gw_setting_t settings[] = {{"GRADWIRE_LOG_FILE", log_name}};
    new_log();
    ck_assert_int_eq(gw_context_create(settings, 1, &context, NULL, 0), GW_OK);
    gw_comm_params_t params = {.rank = 0, .size = 1};
    ck_assert_int_eq(gw_comm_create(context, &params, &comm), GW_OK);
    for (int i = 0; i < 100; i++)
        x[i] = (float)i;
    ck_assert_int_eq(gw_allreduce(comm, x, y, 100, GW_F32, GW_SUM), GW_OK);
    ck_assert(memcmp(x, y, sizeof x) == 0);
    ck_assert_int_eq(gw_allreduce(comm, NULL, y, 100, GW_F32, GW_AVG), GW_OK);
    ck_assert(memcmp(x, y, sizeof x) == 0);
    ck_assert_int_eq(gw_allreduce(comm, NULL, NULL, 0, GW_F32, GW_SUM), GW_OK);
    ck_assert_int_eq(gw_allreduce(comm, NULL, NULL, 1, GW_F32, GW_SUM), GW_ERR_INVALID);
    ck_assert_int_eq(gw_allreduce(comm, x, x + 1, 50, GW_F32, GW_SUM), GW_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(gw_comm_error(comm), "buffers overlap"));
    ck_assert_int_eq(gw_allreduce(comm, x + 99, x, 100, GW_F32, GW_SUM), GW_ERR_INVALID);
    ck_assert_int_eq(told("buffers overlap"), 1);
    ck_assert_int_eq(gw_allreduce(comm, x + 50, x, 50, GW_F32, GW_SUM), GW_OK);
    ck_assert(memcmp(x, x + 50, 50 * sizeof *x) == 0);
    ck_assert_int_eq(gw_allreduce(comm, x, y, 10, GW_F64, GW_SUM), GW_ERR_UNSUPPORTED);
    ck_assert_int_eq(gw_allreduce(comm, x, y, 10, GW_F32, GW_OP_OTHER), GW_ERR_UNSUPPORTED);
    ck_assert_int_eq(gw_allreduce(comm, x, y, SIZE_MAX, GW_F32, GW_SUM), GW_ERR_INVALID);
    ck_assert_int_eq(gw_allreduce(NULL, x, y, 1, GW_F32, GW_SUM), GW_ERR_INVALID);
    ck_assert_int_eq(gw_allreduce_with(comm, NULL, GW_PLAN_DIRECT, x, y, 1, GW_F32, GW_SUM),
                     GW_ERR_INVALID);
    ck_assert_str_eq(gw_comm_describe(comm, 0), "none");
    ck_assert_str_eq(gw_comm_describe(comm, -1), "none");
    gw_stats_t stats;
    gw_comm_stats(comm, &stats);
    ck_assert_uint_eq(stats.calls, 10);
    ck_assert_uint_eq(stats.passed, 10);
    ck_assert_uint_eq(stats.reasons[GW_REASON_SINGLE_RANK], 4);
    ck_assert_uint_eq(stats.reasons[GW_REASON_UNSUPPORTED_CALL], 6);
    ck_assert_uint_eq(stats.errors, 6);
    unlink(log_name);
    gw_comm_free(comm);
    gw_context_free(context);
}
END_TEST

/* ---- Many, one after the other
 * ------------------------------------------------------------------------ */

typedef struct inventory {
    int descriptors, threads;
    size_t memory;
} inventory_t;

static int entries(const char *directory)
{
    int n = 0;
    DIR *d = opendir(directory);
    ck_assert_ptr_nonnull(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static inventory_t take_inventory(void)
{
    /* Threads that were joined may take a moment to leave the list. */
    usleep(20000);
    return (inventory_t){entries("/proc/self/fd"), entries("/proc/self/task"),
                         SANITIZED ? 0 : mallinfo2().uordblks};
}

static void use_once(gw_rank_t *rank)
{
    float x[20000] = {1.0f};
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, 20000, GW_F32, GW_SUM), GW_OK);
}

static void cycle(const char *transport, int cycles)
{
    inventory_t begin = {0};
    gw_setting_t settings[] = {{"GRADWIRE_LOG", "warn"}};
    for (int i = 0; i < cycles + 10; i++) {
        if (i == 10)
            begin = take_inventory();
        gw_world_t world = {.size = 2,
                            .transport = transport,
                            .settings = settings,
                            .setting_count = 1,
                            .body = use_once};
        gw_world_run(&world);
        ck_assert_int_eq(world.created[0], GW_OK);
        ck_assert_int_eq(world.created[1], GW_OK);
    }
    inventory_t end = take_inventory();
    ck_assert_int_eq(end.descriptors, begin.descriptors);
    ck_assert_int_eq(end.threads, begin.threads);
    /* Buffers that the process keeps may still grow once. */
    ck_assert_msg(end.memory < begin.memory + (size_t)cycles * 64 + 16384,
                  "%s: %zu bytes, then %zu", transport, begin.memory, end.memory);
}

START_TEST(two_hundred_cycles_leave_nothing)
{
    cycle("loopback", 200);
}
END_TEST

START_TEST(cycles_over_ucx_leave_nothing)
{
    const gw_transport_t *ucx;
    char why[256];
    if (SANITIZED || gw_transport_find("ucx", &ucx, why, sizeof why) != GW_OK) {
        gw_test_skip("cycles_over_ucx_leave_nothing",
                     SANITIZED ? "UCX under a sanitizer" : "module ucx is not built");
        return;
    }
    cycle("ucx", 60);
}
END_TEST

/* Communicators of one context are told apart in the figures and by their numbers. */
START_TEST(communicators_of_one_context_have_names)
{
    gw_context_t *context;
    gw_comm_t *comms[3];
    ck_assert_int_eq(gw_context_create(NULL, 0, &context, NULL, 0), GW_OK);
    for (int i = 0; i < 3; i++) {
        gw_comm_params_t params = {.rank = 0, .size = 1, .name = i == 1 ? "pipeline" : NULL};
        ck_assert_int_eq(gw_comm_create(context, &params, &comms[i]), GW_OK);
    }
    ck_assert_str_eq(comms[0]->name, "0");
    ck_assert_str_eq(comms[1]->name, "pipeline");
    ck_assert_str_eq(comms[2]->name, "2");
    for (int i = 0; i < 3; i++)
        gw_comm_free(comms[i]);
    gw_context_free(context);
}
END_TEST

/* ---- Bounded memory
 * ----------------------------------------------------------------------------------- */

enum { LONG = 3000000 };

static void narrow_body(gw_rank_t *rank)
{
    float *x = malloc(LONG * sizeof *x), *y = malloc(LONG * sizeof *y);
    uint64_t state = (uint64_t)rank->rank;
    for (int i = 0; i < LONG; i++)
        x[i] = gw_test_normal(&state);
    gw_coder_t coder;
    ck_assert_int_eq(gw_coder_parse("q4:ef=off", &coder, NULL, 0), GW_OK);
    gw__engine_t *engine = &rank->comm->engine;
    for (gw_plan_kind_t plan = GW_PLAN_DIRECT; plan <= GW_PLAN_GATHER; plan++) {
        engine->memory_limit = (size_t)256 << 20;
        gw_check(gw_allreduce_with(rank->comm, &coder, plan, x, y, LONG, GW_F32, GW_SUM) == GW_OK,
                 "wide");
        gw_check(engine->window > 2, "window %u", engine->window);
        size_t wide = engine->memory_bytes;
        /* One rank with room for one round, the next with room for two, and so on. */
        engine->memory_limit = wide * (size_t)(rank->rank + 1) / engine->window;
        float *again = malloc(LONG * sizeof *again);
        gw_check(gw_allreduce_with(rank->comm, &coder, plan, x, again, LONG, GW_F32, GW_SUM) ==
                     GW_OK,
                 "narrow");
        gw_check(engine->window == (uint32_t)rank->rank + 1, "window %u", engine->window);
        gw_check(memcmp(y, again, LONG * sizeof *y) == 0, "the window changes the result");
        free(again);
    }
    free(x);
    free(y);
}

START_TEST(less_memory_means_fewer_rounds_at_once)
{
    gw_setting_t settings[] = {{"GRADWIRE_LOG", "warn"}};
    gw_world_t world = {.size = 2,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 1,
                        .body = narrow_body};
    gw_world_run(&world);
}
END_TEST

/* ---- Two at once
 * -------------------------------------------------------------------------------------- */

/* A rank is a context with two communicators, each used by a thread of its own. */
typedef struct user {
    gw_context_t *context;
    gw_loopback_rank_t oob;
    pthread_t thread;
} user_t;

static void *user_main(void *arg)
{
    user_t *user = arg;
    gw_comm_t *comm;
    gw_comm_params_t params = {.rank = user->oob.rank,
                               .size = 2,
                               .allgather = gw_loopback_allgather,
                               .allgather_arg = &user->oob,
                               .transport = "loopback",
                               .transport_arg = user->oob.world};
    gw_check(gw_comm_create(user->context, &params, &comm) == GW_OK, "no communicator");
    float *x = malloc(100000 * sizeof *x);
    for (int call = 0; call < 20; call++) {
        for (int i = 0; i < 100000; i++)
            x[i] = (float)(i % 16);
        gw_check(gw_allreduce(comm, NULL, x, 100000, GW_F32, GW_SUM) == GW_OK, "call %d", call);
        for (int i = 0; i < 100000; i++)
            gw_check(x[i] == 2.0f * (float)(i % 16), "call %d element %d: %g", call, i, x[i]);
        if (call % 5 == 0)
            gw_context_set_rank(user->context, user->oob.rank, 2);
        gw_context_count_passed(user->context, GW_REASON_OP);
        gw_stats_t stats;
        gw_context_stats(user->context, &stats);
        gw_check(stats.calls == stats.compressed + stats.passed, "figures are torn");
    }
    free(x);
    gw_comm_free(comm);
    return NULL;
}

START_TEST(two_communicators_at_once)
{
    char stats[64];
    snprintf(stats, sizeof stats, "/tmp/gw_comm_%ld.json", (long)getpid());
    gw_setting_t settings[] = {{"GRADWIRE_LOG", "off"}, {"GRADWIRE_STATS", stats}};
    gw_context_t *contexts[2];
    gw_loopback_t *worlds[2];
    user_t users[4];
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(gw_context_create(settings, 2, &contexts[i], NULL, 0), GW_OK);
        gw_context_set_rank(contexts[i], i, 2);
        ck_assert_int_eq(gw_loopback_create(2, &worlds[i]), GW_OK);
    }
    for (int i = 0; i < 4; i++) {
        users[i] = (user_t){.context = contexts[i % 2], .oob = {worlds[i / 2], i % 2}};
        ck_assert_int_eq(pthread_create(&users[i].thread, NULL, user_main, &users[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(users[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        gw_stats_t figures;
        gw_context_stats(contexts[i], &figures);
        ck_assert_uint_eq(figures.compressed, 40);
        ck_assert_uint_eq(figures.passed, 40);
        gw_context_free(contexts[i]);
        gw_loopback_free(worlds[i]);
        char name[80];
        snprintf(name, sizeof name, "%s.%d", stats, i);
        ck_assert_int_eq(unlink(name), 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm");
    TCase *tc = tcase_create("comm");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, a_rank_with_other_settings_is_named_on_all_ranks);
    tcase_add_test(tc, a_rank_whose_preparation_fails_is_named_on_all_ranks);
    tcase_add_test(tc, an_unknown_transport_is_named_on_all_ranks);
    tcase_add_test(tc, one_rank_without_its_transport_refuses_for_all);
    tcase_add_test(tc, an_error_of_the_allgather_comes_back);
    tcase_add_test(tc, bad_arguments_are_refused_before_anything_is_exchanged);
    tcase_add_test(tc, rubbish_from_a_peer_ends_in_an_error);
    tcase_add_test(tc, a_communicator_of_one_copies);
    tcase_add_test(tc, two_hundred_cycles_leave_nothing);
    tcase_add_test(tc, cycles_over_ucx_leave_nothing);
    tcase_add_test(tc, communicators_of_one_context_have_names);
    tcase_add_test(tc, less_memory_means_fewer_rounds_at_once);
    tcase_add_test(tc, two_communicators_at_once);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
