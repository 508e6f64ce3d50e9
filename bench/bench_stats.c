/* SPDX-License-Identifier: Apache-2.0 */
/* What counting costs: nanoseconds of a counted call, and a compressed call with GRADWIRE_STATS
 * beside one without. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <gradwire/gradwire.h>

enum { COUNT = 16384, CALLS = 200, ROUNDS = 41, SMALL = 2000000 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static gw_context_t *open_context(const char *stats)
{
    gw_setting_t settings[] = {{"GRADWIRE_STATS", stats}, {"GRADWIRE_MIN_BYTES", "0"}};
    gw_context_t *context;
    char why[256] = "";
    if (gw_context_create(settings, 2, &context, why, sizeof why) == GW_OK)
        return context;
    fprintf(stderr, "bench_stats: %s\n", why);
    exit(1);
}

/* ---- Counting alone ---- */

typedef struct counter {
    gw_context_t *context;
    bool alone; /* on a communicator of its own, else on the context */
    double ns;
} counter_t;

static void *count_main(void *arg)
{
    counter_t *c = arg;
    gw_comm_t *comm = NULL;
    gw_comm_params_t params = {.rank = 0, .size = 1};
    if (c->alone && gw_comm_create(c->context, &params, &comm) != GW_OK)
        exit(1);
    double start = seconds();
    float x[4] = {0};
    for (int i = 0; i < SMALL; i++) {
        if (comm)
            gw_allreduce(comm, NULL, x, 4, GW_F32, GW_SUM);
        else
            gw_context_count_passed(c->context, GW_REASON_OP);
    }
    c->ns = 1e9 * (seconds() - start) / SMALL;
    gw_comm_free(comm);
    return NULL;
}

static double count_on(gw_context_t *context, int threads, bool alone)
{
    pthread_t thread[2];
    counter_t c[2];
    double slowest = 0;
    for (int i = 0; i < threads; i++) {
        c[i] = (counter_t){context, alone, 0};
        if (pthread_create(&thread[i], NULL, count_main, &c[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        slowest = c[i].ns > slowest ? c[i].ns : slowest;
    }
    return slowest;
}

/* ---- A compressed call ---- */

typedef struct rank {
    gw_loopback_rank_t place[2]; /* each of: without and with a stats file */
    gw_context_t *context[2];
    double *us[2]; /* per round */
} rank_t;

static gw_comm_t *join(rank_t *r, int which)
{
    gw_comm_params_t params = {.rank = r->place[which].rank,
                               .size = 2,
                               .allgather = gw_loopback_allgather,
                               .allgather_arg = &r->place[which],
                               .transport = "loopback",
                               .transport_arg = r->place[which].world};
    gw_comm_t *comm;
    if (gw_comm_create(r->context[which], &params, &comm) != GW_OK)
        exit(1);
    return comm;
}

static void *rank_main(void *arg)
{
    rank_t *r = arg;
    static _Thread_local float x[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i % 97) * 1e-3f;
    gw_comm_t *comm[2] = {join(r, 0), join(r, 1)};
    for (int round = 0; round < 2 * ROUNDS; round++) {
        int which = (round + round / 2) % 2; /* 0 1 1 0: neither is always first */
        double start = seconds();
        for (int i = 0; i < CALLS; i++)
            if (gw_allreduce(comm[which], NULL, x, COUNT, GW_F32, GW_SUM) != GW_OK)
                exit(1);
        r->us[which][round / 2] = 1e6 * (seconds() - start) / CALLS;
    }
    gw_comm_free(comm[0]);
    gw_comm_free(comm[1]);
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x)
{
    qsort(x, ROUNDS, sizeof *x, compare);
    return x[ROUNDS / 2];
}

static void compressed_calls(const char *file)
{
    static double us[2][2][ROUNDS];
    double ratio[ROUNDS];
    gw_loopback_t *world[2];
    pthread_t thread[2];
    rank_t r[2];
    if (gw_loopback_create(2, &world[0]) != GW_OK || gw_loopback_create(2, &world[1]) != GW_OK)
        exit(1);
    for (int i = 0; i < 2; i++) {
        r[i] = (rank_t){{{world[0], i}, {world[1], i}},
                        {open_context(""), open_context(file)},
                        {us[i][0], us[i][1]}};
        gw_context_set_rank(r[i].context[1], i, 2);
        if (pthread_create(&thread[i], NULL, rank_main, &r[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < ROUNDS; i++)
        ratio[i] = us[0][1][i] / us[0][0][i];
    printf("64 KiB compressed, 2 ranks, loopback: %.1f us without, %.1f us with a stats file, "
           "ratio %.4f (medians)\n",
           median(us[0][0]), median(us[0][1]), median(ratio));
    for (int i = 0; i < 2; i++)
        for (int which = 0; which < 2; which++)
            gw_context_free(r[i].context[which]);
    gw_loopback_free(world[0]);
    gw_loopback_free(world[1]);
}

/* bench_stats [stats file, a new one in /tmp by default] */
int main(int argc, char **argv)
{
    char file[4096];
    snprintf(file, sizeof file, "%s", argc > 1 ? argv[1] : "/tmp/bench_stats.%r.json");
    for (int stats = 0; stats < 2; stats++) {
        gw_context_t *context = open_context(stats ? file : "");
        printf("stats %-3s  passed %5.1f ns", stats ? "on" : "off", count_on(context, 1, false));
        printf(", on two threads %5.1f ns", count_on(context, 2, false));
        printf("; tiny call on an own communicator %5.1f ns", count_on(context, 1, true));
        printf(", on two threads %5.1f ns\n", count_on(context, 2, true));
        gw_context_free(context);
    }
    compressed_calls(file);
    return 0;
}
