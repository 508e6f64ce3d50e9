/* SPDX-License-Identifier: Apache-2.0 */
/* Long lives: hundreds of communicators, thousands of calls, cycles of everything. What the process
 * holds after a warm-up it holds at the end. */
#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "gw_world.h"
#include "soak.h"

#if defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
enum { RSS_KIB = -1 };
#else
enum { RSS_KIB = 4096 }; /* of growth after the warm-up; a cycle that leaks 1 MiB shows in five */
#endif

enum { RANKS = 2, COUNT = 5000 };

/* Two ranks as threads that live as long as the soak; `cycle` is what they repeat. */
typedef struct soak {
    const char *transport;
    int warm, cycles;
    void (*cycle)(gw_rank_t *rank, struct soak *soak, int number);
    const gw_setting_t *settings;
    size_t setting_count;
    bool own_context; /* the cycle makes its own */
    soak_leak_t leak;
    gw_loopback_t *loopback; /* of this cycle */
    pthread_barrier_t all;
    char grown[160]; /* "" when nothing did */
} soak_t;

static gw_comm_t *join(gw_rank_t *rank, soak_t *soak)
{
    gw_loopback_rank_t place = {soak->loopback, rank->rank};
    bool loopback = strcmp(soak->transport, "loopback") == 0;
    gw_comm_params_t params = {.rank = rank->rank,
                               .size = RANKS,
                               .allgather = gw_loopback_allgather,
                               .allgather_arg = &place,
                               .transport = soak->transport,
                               .transport_arg = loopback ? soak->loopback : NULL};
    gw_comm_t *comm = NULL;
    gw_status_t status = gw_comm_create(rank->context, &params, &comm);
    gw_check(status == GW_OK, "communicator: %s", gw_status_name(status));
    return comm;
}

static void open_context(gw_rank_t *rank, const soak_t *soak)
{
    char why[256] = "";
    gw_status_t status =
        gw_context_create(soak->settings, soak->setting_count, &rank->context, why, sizeof why);
    gw_check(status == GW_OK, "%s", why);
}

/* Sums 1 + 2 of everything: exact in every codec, as all elements of a bucket are equal. */
static void sum(gw_rank_t *rank, gw_comm_t *comm, size_t count)
{
    float *x = malloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(rank->rank + 1);
    gw_status_t status = gw_allreduce(comm, NULL, x, count, GW_F32, GW_SUM);
    gw_check(status == GW_OK, "%s", gw_comm_error(comm));
    for (size_t i = 0; i < count; i++)
        gw_check(fabsf(x[i] - 3.0f) < 1e-3f, "element %zu of %zu: %g", i, count, x[i]);
    free(x);
}

typedef struct seat {
    soak_t *soak;
    int rank;
} seat_t;

static void *soak_main(void *arg)
{
    seat_t *seat = arg;
    soak_t *soak = seat->soak;
    gw_rank_t rank = {.rank = seat->rank, .size = RANKS};
    soak_usage_t before = {0};
    if (!soak->own_context)
        open_context(&rank, soak);
    for (int i = 0; i < soak->cycles; i++) {
        if (rank.rank == 0)
            ck_assert_int_eq(gw_loopback_create(RANKS, &soak->loopback), GW_OK);
        pthread_barrier_wait(&soak->all);
        soak->cycle(&rank, soak, i);
        pthread_barrier_wait(&soak->all);
        if (rank.rank == 0) {
            if (soak->loopback)
                gw_loopback_free(soak->loopback);
            if (i + 1 > soak->warm)
                soak_leak(soak->leak);
            if (i + 1 == soak->warm)
                before = soak_usage();
            if (i + 1 == soak->cycles) {
                const char *grown = soak_growth(before, soak_usage(), RSS_KIB);
                snprintf(soak->grown, sizeof soak->grown, "%s", grown ? grown : "");
            }
        }
        pthread_barrier_wait(&soak->all);
    }
    if (!soak->own_context)
        gw_context_free(rank.context);
    return NULL;
}

static void run(soak_t *soak)
{
    pthread_t thread[RANKS];
    seat_t seat[RANKS];
    pthread_barrier_init(&soak->all, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
        seat[r] = (seat_t){soak, r};
        ck_assert_int_eq(pthread_create(&thread[r], NULL, soak_main, &seat[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&soak->all);
}

static const char *const transports[] = {"loopback", "ucx"};

/* The i-th transport, or NULL, told, where it is not here. */
static const char *transport_at(int i, const char *test)
{
    const gw_transport_t *found;
    char why[256] = "";
    if (gw_transport_find(transports[i], &found, why, sizeof why) == GW_OK)
        return transports[i];
    gw_test_skip(test, why);
    return NULL;
}

static const gw_setting_t small_calls[] = {{"GRADWIRE_MIN_BYTES", "0"}};

/* ---- Communicators
 * --------------------------------------------------------------------------------------- */

static void come_and_go(gw_rank_t *rank, soak_t *soak, int number)
{
    gw_comm_t *comm = join(rank, soak);
    sum(rank, comm, COUNT);
    sum(rank, comm, 10 + (size_t)number);
    gw_comm_free(comm);
}

START_TEST(five_hundred_communicators)
{
    const char *transport = transport_at(_i, "five_hundred_communicators");
    if (!transport)
        return;
    soak_t soak = {.transport = transport,
                   .warm = 100,
                   .cycles = 500,
                   .cycle = come_and_go,
                   .settings = small_calls,
                   .setting_count = 1};
    run(&soak);
    ck_assert_msg(!soak.grown[0], "%s", soak.grown);
}
END_TEST

START_TEST(leaks_are_seen)
{
    static const struct {
        soak_leak_t leak;
        const char *word;
    } table[] = {
        {LEAK_MEMORY, "memory"}, {LEAK_DESCRIPTOR, "descriptors"}, {LEAK_THREAD, "threads"}};
    if (table[_i].leak == LEAK_MEMORY && RSS_KIB < 0)
        return;
    soak_t soak = {.transport = "loopback",
                   .warm = 5,
                   .cycles = 15,
                   .cycle = come_and_go,
                   .settings = small_calls,
                   .setting_count = 1,
                   .leak = table[_i].leak};
    run(&soak);
    ck_assert_msg(strncmp(soak.grown, table[_i].word, strlen(table[_i].word)) == 0, "%s",
                  soak.grown[0] ? soak.grown : "nothing was seen");
}
END_TEST

/* ---- Calls
 * -----------------------------------------------------------------------------------------------
 */

enum { CALLS = 1000, SIZES = 37 };

/* A communicator that lives through all cycles, of which each is a thousand calls. */
static void many_calls(gw_rank_t *rank, soak_t *soak, int number)
{
    static _Thread_local gw_comm_t *comm;
    static _Thread_local gw_loopback_t *world;
    if (number == 0) {
        comm = join(rank, soak);
        world = soak->loopback;
        pthread_barrier_wait(&soak->all);
        if (rank->rank == 0)
            soak->loopback = NULL; /* lives on */
    }
    uint64_t state = 7 + (uint64_t)number;
    for (int i = 0; i < CALLS; i++) {
        /* A trainer's sizes come again and again, in whatever order. */
        sum(rank, comm, 100 + 300 * (size_t)(gw_test_random(&state) % SIZES));
    }
    if (number + 1 < soak->cycles)
        return;
    gw_comm_free(comm);
    pthread_barrier_wait(&soak->all);
    if (rank->rank == 0)
        gw_loopback_free(world);
}

/* With room for all residuals, and for a part of them only. */
START_TEST(ten_thousand_calls_of_changing_sizes)
{
    const char *transport = transport_at(_i / 2, "ten_thousand_calls_of_changing_sizes");
    if (!transport)
        return;
    gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "0"}, {"GRADWIRE_RESIDUAL_BYTES", "256K"}};
    soak_t soak = {.transport = transport,
                   .warm = 2,
                   .cycles = 10,
                   .cycle = many_calls,
                   .settings = settings,
                   .setting_count = _i % 2 ? 2 : 1};
    run(&soak);
    ck_assert_msg(!soak.grown[0], "%s", soak.grown);
}
END_TEST

/* ---- Everything
 * ------------------------------------------------------------------------------------------ */

static void whole_life(gw_rank_t *rank, soak_t *soak, int number)
{
    char file[64];
    snprintf(file, sizeof file, "/tmp/gw_soak_%ld.%d", (long)getpid(), rank->rank);
    gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "0"}, {"GRADWIRE_STATS", file}};
    char why[256] = "";
    gw_check(gw_context_create(settings, 2, &rank->context, why, sizeof why) == GW_OK, "%s", why);
    gw_comm_t *comm = join(rank, soak);
    sum(rank, comm, COUNT);
    gw_comm_free(comm);
    gw_context_free(rank->context);
    gw_check(unlink(file) == 0, "no figures in cycle %d", number);
}

START_TEST(twenty_lives_in_one_process)
{
    const char *transport = transport_at(_i, "twenty_lives_in_one_process");
    if (!transport)
        return;
    soak_t soak = {
        .transport = transport, .warm = 5, .cycles = 25, .cycle = whole_life, .own_context = true};
    run(&soak);
    ck_assert_msg(!soak.grown[0], "%s", soak.grown);
}
END_TEST

/* ---- More than there is room for
 * ------------------------------------------------------------------------- */

enum { ROOM = 160, ALIVE_MAX = 500 };

/* Communicators until the descriptors run out: all ranks are refused together, those that are alive
 * go on, and everything comes back. */
static void crowd(gw_rank_t *rank, soak_t *soak, int number)
{
    gw_comm_t **alive = calloc(ALIVE_MAX, sizeof *alive);
    gw_loopback_rank_t place = {soak->loopback, rank->rank};
    gw_comm_params_t params = {.rank = rank->rank,
                               .size = RANKS,
                               .allgather = gw_loopback_allgather,
                               .allgather_arg = &place,
                               .transport = "ucx"};
    int n = 0;
    while (n < ALIVE_MAX && gw_comm_create(rank->context, &params, &alive[n]) == GW_OK)
        n++;
    gw_check(n >= 3 && n < ALIVE_MAX, "cycle %d: %d communicators in %d descriptors", number, n,
             ROOM);
    int least = n, most = n, both[RANKS];
    gw_check(gw_loopback_allgather(&place, &n, both, sizeof n) == GW_OK, "all-gather");
    for (int r = 0; r < RANKS; r++) {
        least = both[r] < least ? both[r] : least;
        most = both[r] > most ? both[r] : most;
    }
    gw_check(least == most, "one rank has %d, another %d", least, most);
    for (int i = 0; i < n; i++)
        sum(rank, alive[i], COUNT);
    for (int i = 0; i < n; i++)
        gw_comm_free(alive[i]);
    free(alive);
}

START_TEST(as_many_alive_as_descriptors_allow)
{
    if (!transport_at(1, "as_many_alive_as_descriptors_allow"))
        return;
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = ROOM;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    gw_setting_t settings[] = {
        {"GRADWIRE_MIN_BYTES", "0"}, {"GRADWIRE_LOG", "off"}, {"GRADWIRE_TIMEOUT", "10"}};
    soak_t soak = {.transport = "ucx",
                   .warm = 2,
                   .cycles = 4,
                   .cycle = crowd,
                   .settings = settings,
                   .setting_count = 3};
    run(&soak);
    ck_assert_msg(!soak.grown[0], "%s", soak.grown);
}
END_TEST

/* ---- Other processes in the middle
 * ----------------------------------------------------------------------- */

static void check_exit(int status, int expected, const char *what)
{
    gw_check(WIFEXITED(status) && WEXITSTATUS(status) == expected, "%s: status %d", what, status);
}

static void call_others(gw_rank_t *rank, soak_t *soak, int number)
{
    gw_comm_t *comm = join(rank, soak);
    sum(rank, comm, COUNT);
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    gw_check(waitpid(child, &status, 0) == child, "waitpid");
    check_exit(status, 7, "fork");
    child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit 6", (char *)NULL);
        _exit(1);
    }
    gw_check(waitpid(child, &status, 0) == child, "waitpid");
    check_exit(status, 6, "fork and exec");
    check_exit(system("exit 5"), 5, "system");
    char line[16] = "";
    FILE *echo = popen("echo hello", "r");
    gw_check(echo && fgets(line, sizeof line, echo) && strcmp(line, "hello\n") == 0, "popen");
    check_exit(pclose(echo), 0, "popen");
    sum(rank, comm, COUNT);
    gw_comm_free(comm);
}

START_TEST(fork_exec_system_and_popen_in_the_middle)
{
    const char *transport = transport_at(_i, "fork_exec_system_and_popen_in_the_middle");
    if (!transport)
        return;
    soak_t soak = {.transport = transport,
                   .warm = 2,
                   .cycles = 8,
                   .cycle = call_others,
                   .settings = small_calls,
                   .setting_count = 1};
    run(&soak);
    ck_assert_msg(!soak.grown[0], "%s", soak.grown);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("soak");
    TCase *tc = tcase_create("soak");
    tcase_set_timeout(tc, 300); /* a busy machine makes a communicator over UCX in 70 ms */
    tcase_add_loop_test(tc, five_hundred_communicators, 0, 2);
    tcase_add_loop_test(tc, leaks_are_seen, 0, 3);
    tcase_add_loop_test(tc, ten_thousand_calls_of_changing_sizes, 0, 4);
    tcase_add_loop_test(tc, twenty_lives_in_one_process, 0, 2);
    tcase_add_test(tc, as_many_alive_as_descriptors_allow);
    tcase_add_loop_test(tc, fork_exec_system_and_popen_in_the_middle, 0, 2);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
