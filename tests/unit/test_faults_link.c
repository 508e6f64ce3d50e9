/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two nodes of a network lab whose link goes down in the middle of a call, or whose route leads
 * nowhere: a named error in time on both sides, and a new communicator once the link is back. Run
 * by tests/box/faults_link.sh, which sets GW_LAB to the name of the lab.
 */
#define _GNU_SOURCE /* setns, unshare */
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "gw_test.h"
#include "transport_groups.h"

#define TIMEOUT 2.0

enum { COUNT = 4000000 };

typedef enum fault { LINK_DOWN, LINK_DOWN_BEFORE, BLACKHOLE } fault_t;

/* Becomes a process on node `node` of the lab: its network, its /sys, a host name of its own. */
static bool move_to(int node)
{
    char path[128], host[32];
    snprintf(path, sizeof path, "/run/netns/%s-%d", getenv("GW_LAB"), node);
    snprintf(host, sizeof host, "gwlink%d", node);
    int fd = open(path, O_RDONLY);
    bool moved = fd >= 0 && setns(fd, CLONE_NEWNET) == 0 &&
                 unshare(CLONE_NEWUTS | CLONE_NEWNS) == 0 && sethostname(host, strlen(host)) == 0 &&
                 mount("", "/", "none", MS_SLAVE | MS_REC, NULL) == 0 &&
                 mount("sysfs", "/sys", "sysfs", 0, NULL) == 0;
    if (fd >= 0)
        close(fd);
    return moved;
}

static void shell(stage_t *stage, int actor, const char *command)
{
    if (system(command) != 0)
        stage_fail(stage, actor, "%s failed", command);
}

/* Rank 1 takes its link down once the call has gone on for a while. */
static double down_at;
static stage_t *down_stage;

static void strike(stage_t *stage)
{
    shell(stage, 1, "ip link set lab0 down");
    atomic_store(&stage->struck, stage_now());
}

static void take_down(void *arg)
{
    (void)arg;
    if (!down_stage || stage_now() < down_at)
        return;
    stage_t *stage = down_stage;
    down_stage = NULL;
    strike(stage);
}

static gw_status_t sum(stage_t *stage, int actor, gw_comm_t *comm)
{
    float *x = malloc(COUNT * sizeof *x);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i % 251);
    gw_status_t status = gw_allreduce(comm, NULL, x, COUNT, GW_F32, GW_SUM);
    for (int i = 0; status == GW_OK && i < COUNT; i++)
        if (fabs(x[i] - 2.0 * (i % 251)) > 6.0) {
            stage_fail(stage, actor, "element %d is %g", i, x[i]);
            break;
        }
    free(x);
    return status;
}

static gw_comm_t *comm_new(stage_t *stage, int actor, gw_context_t *context, seat_t *seat,
                           gw_status_t *status)
{
    gw_comm_t *comm = NULL;
    gw_comm_params_t params = {.rank = actor,
                               .size = 2,
                               .allgather = stage_gather,
                               .allgather_arg = seat,
                               .idle = actor == 1 ? take_down : NULL};
    double began = stage_now();
    *status = gw_comm_create(context, &params, &comm);
    if (stage_now() - began > TIMEOUT + 1.0)
        stage_fail(stage, actor, "creation took %.2f s", stage_now() - began);
    return comm;
}

static void lose_the_link(stage_t *stage, int actor, gw_comm_t *comm)
{
    verdict_t *v = &stage->verdict[actor];
    if (*(const fault_t *)stage->scene == LINK_DOWN_BEFORE) {
        /* Nothing of the next call gets through: the other side looks late, and is not. */
        v->status = sum(stage, actor, comm);
        if (actor == 1)
            strike(stage);
    } else if (actor == 1) {
        down_at = stage_now() + 0.3;
        down_stage = stage;
    }
    while (v->status == GW_OK && !v->failure[0])
        v->status = sum(stage, actor, comm);
    v->took = stage_now() - atomic_load(&stage->struck);
    if (v->took > TIMEOUT + 1.0)
        stage_fail(stage, actor, "the error took %.2f s", v->took);
    if (gw_comm_failed_rank(comm) != 1 - actor)
        stage_fail(stage, actor, "blames %d: %s", gw_comm_failed_rank(comm), gw_comm_error(comm));
    double began = stage_now();
    gw_comm_free(comm);
    v->closed = stage_now() - began;
    if (v->closed > TIMEOUT + 1.0)
        stage_fail(stage, actor, "close took %.2f s", v->closed);
}

static void act(stage_t *stage, int actor)
{
    fault_t fault = *(const fault_t *)stage->scene;
    char ignored[ACTORS], route[128], up[192];
    if (actor > 1)
        return;
    if (!move_to(actor))
        return stage_fail(stage, actor, "cannot enter node %d of the lab", actor);
    gw_setting_t settings[] = {
        {"GRADWIRE_TIMEOUT", "2"}, {"GRADWIRE_LOG", "off"}, {"GRADWIRE_CODEC", "q8"}};
    gw_context_t *context = NULL;
    seat_t seat = {stage, &stage->first, actor, NULL};
    gw_status_t status = gw_context_create(settings, 3, &context, NULL, 0);
    snprintf(route, sizeof route, "blackhole 10.77.0.%d/32", 2 - actor);
    snprintf(up, sizeof up,
             "ip link set lab0 up && ip route replace 10.77.0.0/24 dev lab0 src 10.77.0.%d",
             actor + 1);
    char command[256];
    snprintf(command, sizeof command, "ip route add %s", route);
    if (fault == BLACKHOLE)
        shell(stage, actor, command);
    gw_comm_t *comm = comm_new(stage, actor, context, &seat, &status);
    if ((status == GW_OK) != (fault != BLACKHOLE))
        stage_fail(stage, actor, "creation: %s", gw_status_name(status));
    if (comm)
        lose_the_link(stage, actor, comm);
    stage_gather(&seat, "", ignored, 1);
    snprintf(command, sizeof command, "ip route del %s", route);
    shell(stage, actor, fault == BLACKHOLE ? command : up);
    stage_gather(&seat, "", ignored, 1);
    /* Give the link its carrier, and what was still under way the time to come in. */
    sleep(1);
    comm = comm_new(stage, actor, context, &seat, &status);
    if (status == GW_OK)
        status = sum(stage, actor, comm);
    if (status != GW_OK)
        stage_fail(stage, actor, "when it was back: %s", gw_status_name(status));
    gw_comm_free(comm);
    gw_context_free(context);
}

static void run_fault(fault_t fault)
{
    stage_t *stage = stage_new(2, false);
    stage->scene = &fault;
    stage_run(stage, act, 60);
    for (int i = 0; i < 2; i++) {
        verdict_t *v = &stage->verdict[i];
        ck_assert_msg(!v->failure[0], "rank %d: %s", i, v->failure);
        printf("# fault %d, rank %d: error after %.2f s, close %.2f s\n", fault, i, v->took,
               v->closed);
    }
    stage_free(stage);
}

START_TEST(a_link_that_goes_down)
{
    run_fault(LINK_DOWN);
}
END_TEST

START_TEST(a_link_that_is_down_before_the_call)
{
    run_fault(LINK_DOWN_BEFORE);
}
END_TEST

START_TEST(a_route_that_leads_nowhere)
{
    run_fault(BLACKHOLE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("faults_link");
    TCase *tc = tcase_create("faults_link");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, a_link_that_goes_down);
    tcase_add_test(tc, a_link_that_is_down_before_the_call);
    tcase_add_test(tc, a_route_that_leads_nowhere);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
