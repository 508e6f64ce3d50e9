/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that comes many timeouts late is waited for, with one warning: over the loopback and over
 * UCX, with ranks as processes of their own.
 *
 * GW_LATE_SECONDS and GW_LATE_TIMEOUT make it longer (90 and 5).
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "gw_test.h"
#include "transport_groups.h"

enum { COUNT = 1000000, RANKS = 3 };

static const char *transport;

static double late_seconds(void)
{
    const char *text = getenv("GW_LATE_SECONDS");
    return text ? atof(text) : 9.0;
}

static void log_name(const stage_t *stage, int actor, char name[64])
{
    snprintf(name, 64, "/tmp/gw_faults_late_%u_%d.log", stage->seed, actor);
}

static gw_plan_kind_t plan_of(const stage_t *stage)
{
    return (gw_plan_kind_t)(stage->seed % 4);
}

static void reduce(stage_t *stage, int actor, gw_comm_t *comm)
{
    gw_coder_t coder;
    float *x = malloc(COUNT * sizeof *x);
    gw_plan_kind_t plan = plan_of(stage);
    gw_coder_parse(plan == GW_PLAN_RING || plan == GW_PLAN_TREE ? "raw" : "q8", &coder, NULL, 0);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i % 251);
    if (gw_allreduce_with(comm, &coder, plan, NULL, x, COUNT, GW_F32, GW_SUM) != GW_OK)
        stage_fail(stage, actor, "%s", gw_comm_error(comm));
    for (int i = 0; i < COUNT; i++)
        if (fabs(x[i] - (double)RANKS * (i % 251)) > 3.0 * RANKS) {
            stage_fail(stage, actor, "element %d is %g", i, x[i]);
            break;
        }
    free(x);
}

/* Rank 1 is late; everybody's result is right. */
static void act(stage_t *stage, int actor)
{
    const char *timeout = getenv("GW_LATE_TIMEOUT");
    char log[64];
    if (actor >= stage->size)
        return;
    log_name(stage, actor, log);
    gw_setting_t settings[] = {{"GRADWIRE_TIMEOUT", timeout ? timeout : "0.5"},
                               {"GRADWIRE_MIN_BYTES", "0"},
                               {"GRADWIRE_LOG_FILE", log}};
    bool loopback = strcmp(transport, "loopback") == 0;
    seat_t seat = {stage, &stage->first, actor, NULL};
    gw_comm_params_t params = {.rank = actor,
                               .size = stage->size,
                               .allgather = stage_gather,
                               .allgather_arg = &seat,
                               .transport = transport,
                               .transport_arg = loopback ? stage->world[0] : NULL};
    gw_context_t *context = NULL;
    gw_comm_t *comm = NULL;
    if (gw_context_create(settings, 3, &context, NULL, 0) != GW_OK ||
        gw_comm_create(context, &params, &comm) != GW_OK) {
        stage_fail(stage, actor, "no communicator");
    } else {
        if (actor == stage->victim)
            usleep((useconds_t)(late_seconds() * 1e6));
        reduce(stage, actor, comm);
    }
    gw_comm_free(comm);
    gw_context_free(context);
}

/* Lines of a rank's log: all, and those that tell of the late rank. */
static int lines(const stage_t *stage, int actor, const char *text)
{
    char name[64], line[1024];
    int count = 0;
    log_name(stage, actor, name);
    FILE *f = fopen(name, "r");
    while (f && fgets(line, sizeof line, f))
        count += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return count;
}

static void run_late(bool threads)
{
    /* The transport changes nothing of who hears from whom: ring and tree over one are enough. */
    unsigned last = threads ? GW_PLAN_TREE : GW_PLAN_GATHER;
    for (unsigned plan = GW_PLAN_DIRECT; plan <= last; plan++) {
        stage_t *stage = stage_new(RANKS, threads);
        char name[64];
        stage->seed = (unsigned)getpid() * 4 + plan;
        stage_run(stage, act, late_seconds() + 40);
        for (int i = 0; i < RANKS; i++)
            gw_check(!stage->verdict[i].failure[0], "rank %d: %s", i, stage->verdict[i].failure);
        for (int i = 0; i < RANKS; i++) {
            int warned = lines(stage, i, "rank 1 has not entered it for");
            int wanted = i != stage->victim;
            gw_check(warned == wanted && lines(stage, i, "") == wanted,
                     "rank %d: %d warnings of %d lines", i, warned, lines(stage, i, ""));
            log_name(stage, i, name);
            unlink(name);
        }
        stage_free(stage);
    }
}

START_TEST(late_over_loopback)
{
    transport = "loopback";
    run_late(true);
}
END_TEST

START_TEST(late_over_ucx)
{
    const gw_transport_t *ucx;
    char why[256] = "";
    transport = "ucx";
    if (gw_transport_find("ucx", &ucx, why, sizeof why) != GW_OK)
        return gw_test_skip("late_over_ucx", why);
    setenv("UCX_TLS", _i ? "sm,self" : "tcp,self", 1);
    run_late(false);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("faults_late");
    TCase *tc = tcase_create("faults_late");
    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, late_over_loopback);
    tcase_add_loop_test(tc, late_over_ucx, 0, 2);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
