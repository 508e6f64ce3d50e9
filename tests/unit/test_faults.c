/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault matrix: every fault over every transport that can have it. Each healthy rank gets an
 * error that names the right rank within GRADWIRE_TIMEOUT and a second, on the call and on every
 * later one; residuals are reset; closing is bounded; and the process makes a new communicator and
 * works on it.
 *
 * GW_FAULTS_REPEAT=N runs each cell N times and prints its times; GW_FAULTS_CELL=TEXT takes the
 * cells whose name holds TEXT.
 */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gw_test.h"
#include "transport_groups.h"

#define TIMEOUT  1.0  /* GRADWIRE_TIMEOUT of the cells that are to fail; the others have more */
#define PATIENCE 40.0 /* until an actor counts as hung */

enum { COUNT = 1200000, SMALL = 50000, CALLS = 12, STRIKE_CALL = 2 };

typedef enum carrier { TCP, SHARED_MEMORY, LOOPBACK_FAULT, UCX_FAULT } carrier_t;

static const char *const carrier_names[] = {"ucx-tcp", "ucx-shm", "loopback+fault", "ucx+fault"};

/* Whom the error may name: the victim; either end of a broken connection; nobody, for all is well.
 */
typedef enum blame { VICTIM, EITHER_END, ANYBODY, NOBODY } blame_t;

/* When the victim does something to itself. */
typedef enum moment { NEVER, IN_CALL, AT_GATHER, BEFORE_CLOSE } moment_t;

typedef struct scene {
    const char *name;
    unsigned carriers; /* a bit each */
    moment_t moment;
    void (*act)(stage_t *stage);
    const char *faults; /* of the carriers with faults; %d: messages before the fault */
    int after;          /* %d, per peer, greetings not counted */
    blame_t blame;
    bool checksum, may_work; /* frames with checksums; the calls may as well succeed */
    int gather;              /* AT_GATHER: which; 0: any of the first four */
} scene_t;

/* How the calls of a cell are split: by turns, as direct and gather, of quantized elements; or by
 * one of the plans that merge, of whole ones, since each lets others carry what it sends. */
typedef struct variant {
    int size;
    const char *name;
    gw_plan_kind_t plan; /* when there is a name */
} variant_t;

static const variant_t variants[] = {
    {2, NULL, 0}, {3, NULL, 0}, {3, ", ring", GW_PLAN_RING}, {3, ", tree", GW_PLAN_TREE}};

static carrier_t carrier;
static const variant_t *variant = &variants[0];
static const char *deadline = "1"; /* GRADWIRE_TIMEOUT of the cells that are to fail */

/* ---- What victims do to themselves
 * -------------------------------------------------------------------------------- */

static void die(stage_t *stage)
{
    atomic_store(&stage->dead[stage->victim], true);
    atomic_store(&stage->struck, stage_now());
    raise(SIGKILL);
}

/* The others count from when it stops; it is woken when they have finished. */
static void stop(stage_t *stage)
{
    atomic_store(&stage->struck, stage_now());
    raise(SIGSTOP);
    atomic_store(&stage->struck, stage_now());
}

/* Breaks all TCP connections of this process. */
static void cut(stage_t *stage)
{
    atomic_store(&stage->struck, stage_now());
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
            (peer.ss_family == AF_INET || peer.ss_family == AF_INET6))
            shutdown(fd, SHUT_RDWR);
    }
}

#define BIT(carrier) (1u << (carrier))
#define REAL         (BIT(TCP) | BIT(SHARED_MEMORY))
#define FAULTY       (BIT(LOOPBACK_FAULT) | BIT(UCX_FAULT))

static const scene_t scenes[] = {
    {.name = "killed", .carriers = REAL, .moment = IN_CALL, .act = die},
    {.name = "killed", .carriers = FAULTY, .faults = "kill=1@%d", .after = 2},
    {.name = "connection-broken", .carriers = BIT(TCP), .moment = IN_CALL, .act = cut},
    {.name = "connection-broken",
     .carriers = FAULTY,
     .faults = "error=0-1@%d",
     .after = 2,
     .blame = EITHER_END},
    {.name = "stopped", .carriers = REAL, .moment = IN_CALL, .act = stop},
    /* Later than the others: what was queued when it froze does not go out any more. */
    {.name = "frozen", .carriers = FAULTY, .faults = "freeze=1@%d", .after = 7},
    {.name = "mute", .carriers = FAULTY, .faults = "mute=1@%d", .after = 2},
    {.name = "truncated", .carriers = FAULTY, .faults = "truncate=1,only=1,from=%d", .after = 1},
    {.name = "corrupted-checksum",
     .carriers = FAULTY,
     .faults = "corrupt=1,only=1,from=%d",
     .after = 1,
     .checksum = true},
    {.name = "corrupted-header",
     .carriers = FAULTY,
     .faults = "corrupt=0.3:48,only=1,from=%d",
     .may_work = true},
    {.name = "corrupted-anywhere",
     .carriers = FAULTY,
     .faults = "corrupt=0.3,only=1,from=%d",
     .may_work = true},
    {.name = "dropped",
     .carriers = FAULTY,
     .faults = "drop=0.3,only=1,from=%d",
     .after = 2,
     .blame = ANYBODY},
    {.name = "delayed",
     .carriers = FAULTY,
     .faults = "delay=30s:0.3,only=1,from=%d",
     .after = 2,
     .blame = ANYBODY},
    {.name = "reordered",
     .carriers = FAULTY,
     .faults = "reorder=0.5,delay=2ms:0.1",
     .blame = NOBODY},
    {.name = "duplicated", .carriers = FAULTY, .faults = "duplicate=0.5", .blame = NOBODY},
    {.name = "nobody-there", .carriers = REAL, .moment = AT_GATHER, .act = die, .gather = 5},
    {.name = "nobody-there", .carriers = FAULTY, .faults = "kill=1@0", .blame = EITHER_END},
    {.name = "failed-during-creation", .carriers = REAL, .moment = AT_GATHER, .act = die},
    {.name = "close-with-a-dead-peer",
     .carriers = REAL,
     .moment = BEFORE_CLOSE,
     .act = die,
     .blame = NOBODY},
};

enum {
    SCENES = sizeof scenes / sizeof *scenes,
    CARRIERS = 4,
    VARIANTS = sizeof variants / sizeof *variants
};

/* ---- Actors
 * ------------------------------------------------------------------------------------------- */

/* The victim's own clock: the hook that strikes in the middle of a call. By the time that it is
 * armed all that it can send has gone out, and only then the others enter the call. */
static double arm_at, strike_at;
static stage_t *strike_stage;

static void strike_when_due(void *arg)
{
    (void)arg;
    double now = strike_stage ? stage_now() : 0;
    if (!strike_stage || now < arm_at)
        return;
    if (!atomic_exchange(&strike_stage->armed, true))
        strike_at = ((const scene_t *)strike_stage->scene)->act == stop
                        ? now
                        : now + 0.001 * (strike_stage->seed * 7 % 40);
    if (now < strike_at)
        return;
    stage_t *stage = strike_stage;
    strike_stage = NULL;
    ((const scene_t *)stage->scene)->act(stage);
}

static void strike_at_gather(stage_t *stage, int gather)
{
    const scene_t *scene = stage->scene;
    int wanted = scene->gather ? scene->gather : 1 + (int)(stage->seed % 4);
    if (gather == wanted)
        scene->act(stage);
}

static gw_context_t *context_new(stage_t *stage, int actor, const char *transport,
                                 const char *faults, const char *timeout)
{
    const scene_t *scene = stage->scene;
    char why[256] = "";
    gw_setting_t settings[] = {
        {"GRADWIRE_TIMEOUT", timeout},     {"GRADWIRE_MIN_BYTES", "0"},
        {"GRADWIRE_LOG", "off"},           {"GRADWIRE_CHECKSUM", scene->checksum ? "on" : "off"},
        {"GRADWIRE_TRANSPORT", transport}, {"GRADWIRE_FAULT", faults}};
    gw_context_t *context = NULL;
    if (gw_context_create(settings, sizeof settings / sizeof *settings, &context, why,
                          sizeof why) != GW_OK)
        stage_fail(stage, actor, "context: %s", why);
    return context;
}

/* One sum in memory that is freed at once; checks the result when it worked. */
static gw_status_t sum(stage_t *stage, int actor, gw_comm_t *comm, int ranks, size_t count,
                       bool exact)
{
    gw_coder_t coder;
    float *x = malloc(count * sizeof *x);
    gw_coder_parse(variant->name ? "raw" : "q8", &coder, NULL, 0);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(i % 251);
    gw_plan_kind_t plan = variant->name     ? variant->plan
                          : stage->seed % 2 ? GW_PLAN_DIRECT
                                            : GW_PLAN_GATHER;
    gw_status_t status = gw_allreduce_with(comm, &coder, plan, NULL, x, count, GW_F32, GW_SUM);
    for (size_t i = 0; status == GW_OK && exact && i < count; i++)
        if (fabs(x[i] - (double)ranks * (double)(i % 251)) > 3.0 * ranks) {
            stage_fail(stage, actor, "element %zu is %g", i, x[i]);
            break;
        }
    free(x);
    return status;
}

static bool names(const scene_t *scene, const stage_t *stage, int actor, int named)
{
    if (scene->blame == VICTIM)
        return named == stage->victim;
    if (scene->blame == EITHER_END)
        return named == 0 || named == stage->victim;
    return named >= 0 && named < stage->size;
}

/* What a healthy rank has after a call that failed. */
static void check_failed(stage_t *stage, int actor, gw_comm_t *comm, double began)
{
    const scene_t *scene = stage->scene;
    verdict_t *v = &stage->verdict[actor];
    double struck = atomic_load(&stage->struck), now = stage_now();
    char start[32];
    int named = gw_comm_failed_rank(comm);
    v->took = now - (struck > began ? struck : began);
    snprintf(v->error, sizeof v->error, "%s", gw_comm_error(comm));
    snprintf(start, sizeof start, "rank %d", named);
    if (v->took > TIMEOUT + 1.0 + atomic_load(&stage->still))
        stage_fail(stage, actor, "the error took %.2f s: %s", v->took, v->error);
    if (!names(scene, stage, actor, named) || strncmp(v->error, start, strlen(start)) != 0)
        stage_fail(stage, actor, "blames %d: %s", named, v->error);
    if (sum(stage, actor, comm, stage->size, SMALL, false) != v->status || stage_now() - now > 0.5)
        stage_fail(stage, actor, "the error does not stay");
    gw_stats_t stats;
    gw_comm_stats(comm, &stats);
    if (stats.errors != 1 || stats.residual_resets != (variant->name == NULL))
        stage_fail(stage, actor, "%llu errors, %llu residuals reset",
                   (unsigned long long)stats.errors, (unsigned long long)stats.residual_resets);
}

static void close_timed(stage_t *stage, int actor, gw_comm_t *comm)
{
    verdict_t *v = &stage->verdict[actor];
    double began = stage_now();
    gw_comm_free(comm);
    v->closed = stage_now() - began;
    if (v->closed > TIMEOUT + 1.0)
        stage_fail(stage, actor, "close took %.2f s", v->closed);
}

/* Calls until one fails. */
static void calls(stage_t *stage, int actor, gw_comm_t *comm)
{
    const scene_t *scene = stage->scene;
    verdict_t *v = &stage->verdict[actor];
    bool victim = actor == stage->victim;
    int most = scene->moment == BEFORE_CLOSE ? STRIKE_CALL : CALLS;
    double began = 0;
    for (int call = 0; call < most && v->status == GW_OK; call++) {
        bool strikes = scene->moment == IN_CALL && call == STRIKE_CALL;
        if (strikes && victim) {
            arm_at = stage_now() + 0.06;
            strike_stage = stage;
        }
        while (strikes && !victim && !atomic_load(&stage->armed))
            usleep(1000);
        began = stage_now();
        v->status = sum(stage, actor, comm, stage->size, COUNT, !scene->may_work);
    }
    if (victim && scene->blame != NOBODY) {
        double struck = atomic_load(&stage->struck);
        snprintf(v->error, sizeof v->error, "%s", gw_comm_error(comm));
        v->took = stage_now() - (struck > began ? struck : began);
        if (v->took > TIMEOUT + 1.0)
            stage_fail(stage, actor, "the victim's call took %.2f s: %s", v->took, v->error);
        return;
    }
    if (v->status != GW_OK && scene->blame == NOBODY)
        stage_fail(stage, actor, "failed: %s", gw_comm_error(comm));
    else if (v->status != GW_OK)
        check_failed(stage, actor, comm, began);
    else if (scene->blame != NOBODY && !scene->may_work)
        stage_fail(stage, actor, "no call failed");
}

/* The communicator with the fault. */
static void first_act(stage_t *stage, int actor)
{
    const scene_t *scene = stage->scene;
    verdict_t *v = &stage->verdict[actor];
    bool faulty = carrier == LOOPBACK_FAULT || carrier == UCX_FAULT;
    char faults[128] = "";
    if (faulty) {
        int peers = scene->blame == EITHER_END ? 1 : stage->size - 1;
        size_t used = (size_t)snprintf(faults, sizeof faults, "over=%s,seed=%u,",
                                       carrier == UCX_FAULT ? "ucx" : "loopback", stage->seed);
        snprintf(faults + used, sizeof faults - used, scene->faults,
                 (2 + scene->after + (scene->after ? (int)(stage->seed % 2) : 0)) * peers);
    }
    gw_context_t *context = context_new(stage, actor, faulty ? "fault" : "ucx", faults,
                                        scene->blame == NOBODY ? "20" : deadline);
    bool victim = actor == stage->victim;
    seat_t seat = {stage, &stage->first, actor,
                   victim && scene->moment == AT_GATHER ? strike_at_gather : NULL};
    gw_comm_params_t params = {.rank = actor,
                               .size = stage->size,
                               .allgather = stage_gather,
                               .allgather_arg = &seat,
                               .idle = victim ? strike_when_due : NULL,
                               .transport_arg = carrier == LOOPBACK_FAULT ? stage->world[0] : NULL};
    gw_comm_t *comm = NULL;
    double began = stage_now();
    gw_status_t created = gw_comm_create(context, &params, &comm);
    bool to_fail = scene->moment == AT_GATHER || strstr(faults, "@0");
    v->took = stage_now() - began;
    if ((created == GW_OK) == to_fail)
        stage_fail(stage, actor, "creation: %s", gw_status_name(created));
    if (to_fail && v->took > TIMEOUT + 1.0)
        stage_fail(stage, actor, "creation took %.2f s", v->took);
    v->status = created;
    char all[ACTORS];
    if (created == GW_OK) {
        calls(stage, actor, comm);
        /* Nobody leaves before all have their result, but a stopped one, which cannot come. */
        if (scene->act != stop)
            stage_gather(&seat, "", all, 1);
        if (scene->moment == BEFORE_CLOSE && victim)
            scene->act(stage);
        close_timed(stage, actor, comm);
    }
    gw_context_free(context);
}

/* A new communicator of those who live and the spare. */
static void second_act(stage_t *stage, int actor)
{
    bool loopback = carrier == LOOPBACK_FAULT;
    int place = 0;
    while (stage->second.member[place] != actor)
        place++;
    gw_context_t *context = context_new(stage, actor, "ucx", "", "20");
    seat_t seat = {stage, &stage->second, place, NULL};
    gw_comm_params_t params = {.rank = place,
                               .size = stage->size,
                               .allgather = stage_gather,
                               .allgather_arg = &seat,
                               .transport = loopback ? "loopback" : "ucx",
                               .transport_arg = loopback ? stage->world[1] : NULL};
    gw_comm_t *comm = NULL;
    gw_status_t status = gw_comm_create(context, &params, &comm);
    if (status == GW_OK)
        status = sum(stage, actor, comm, stage->size, SMALL, true);
    if (status != GW_OK)
        stage_fail(stage, actor, "the new communicator: %s %s", gw_status_name(status),
                   comm ? gw_comm_error(comm) : "");
    gw_comm_free(comm);
    gw_context_free(context);
}

static void act(stage_t *stage, int actor)
{
    if (actor < stage->size)
        first_act(stage, actor);
    if (actor != stage->victim)
        second_act(stage, actor);
}

/* ---- Cells
 * -------------------------------------------------------------------------------------------- */

typedef struct cell {
    const scene_t *scene;
    carrier_t carrier;
    const variant_t *variant;
} cell_t;

static cell_t cell_at(int i)
{
    return (cell_t){&scenes[i / (CARRIERS * VARIANTS)], (carrier_t)(i / VARIANTS % CARRIERS),
                    &variants[i % VARIANTS]};
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *name, const char *what, double *t, int n)
{
    qsort(t, (size_t)n, sizeof *t, by_size);
    printf("# %-46s %3d times: %s min %.2f median %.2f max %.2f s\n", name, n, what, t[0], t[n / 2],
           t[n - 1]);
}

static void repeat(const cell_t *cell, const char *name, int times)
{
    double *took = calloc((size_t)times, sizeof *took),
           *closed = calloc((size_t)times, sizeof *took);
    for (int n = 0; n < times; n++) {
        stage_t *stage = stage_new(cell->variant->size, cell->carrier == LOOPBACK_FAULT);
        stage->scene = cell->scene;
        stage->seed = (unsigned)n + 1;
        stage_run(stage, act, PATIENCE);
        for (int i = 0; i <= cell->variant->size; i++) {
            verdict_t *v = &stage->verdict[i];
            gw_check(v->failure[0] == '\0', "%s, repetition %d, rank %d: %s", name, n, i,
                     v->failure);
            if (i == stage->victim && n == 0 && times > 1 && v->error[0])
                printf("# %-46s the victim says: %s\n", name, v->error);
            /* Who was stopped must not be left to think that the others failed. */
            gw_check(i != stage->victim || cell->scene->act != stop || !v->error[0] ||
                         strstr(v->error, "this process itself stood still"),
                     "%s, repetition %d: the stopped rank says: %s", name, n, v->error);
            if (i == stage->victim || i == cell->variant->size)
                continue;
            took[n] = v->took > took[n] ? v->took : took[n];
            closed[n] = v->closed > closed[n] ? v->closed : closed[n];
        }
        stage_free(stage);
    }
    if (times > 1) {
        print_times(name, "error", took, times);
        print_times(name, "close", closed, times);
        fflush(stdout);
    }
    free(took);
    free(closed);
}

START_TEST(matrix)
{
    cell_t cell = cell_at(_i);
    const char *wanted = getenv("GW_FAULTS_CELL"), *times = getenv("GW_FAULTS_REPEAT");
    char name[96], why[256] = "";
    const gw_transport_t *ucx;
    snprintf(name, sizeof name, "%s %s, %d ranks%s", cell.scene->name, carrier_names[cell.carrier],
             cell.variant->size, cell.variant->name ? cell.variant->name : "");
    unsigned there = cell.scene->carriers;
    if (cell.variant->name) /* one with real deaths, one with all faults */
        there &= BIT(TCP) | BIT(LOOPBACK_FAULT);
    if (!(there & BIT(cell.carrier)) || (wanted && strcmp(name, wanted) != 0))
        return;
    int repetitions = times ? atoi(times) : 1;
    if (repetitions == 0) {
        puts(name);
        fflush(stdout);
        return;
    }
    if (cell.carrier != LOOPBACK_FAULT &&
        gw_transport_find("ucx", &ucx, why, sizeof why) != GW_OK) {
        gw_test_skip(name, why);
        return;
    }
    setenv("UCX_TLS", cell.carrier == SHARED_MEMORY ? "sm,self" : "tcp,self", 1);
    carrier = cell.carrier;
    variant = cell.variant;
    repeat(&cell, name, repetitions);
}
END_TEST

/* ---- The matrix itself
 * ---------------------------------------------------------------------------------- */

/* What the matrix finds fault with in rank 0 of two over the loopback. Two calls may take their
 * whole deadline of 20 s. */
static void expect_red(const scene_t *scene, const char *text)
{
    stage_t *stage = stage_new(2, true);
    stage->scene = scene;
    stage->seed = 1;
    carrier = LOOPBACK_FAULT;
    stage_run(stage, act, 3 * PATIENCE);
    gw_check(strstr(stage->verdict[0].failure, text), "not noticed: %s: %s", text,
             stage->verdict[0].failure);
    stage_free(stage);
}

START_TEST(a_late_deadline_is_noticed)
{
    deadline = "4";
    expect_red(&(scene_t){.name = "late", .faults = "mute=1@%d", .after = 2}, "the error took");
}
END_TEST

START_TEST(a_wrong_end_is_noticed)
{
    expect_red(&(scene_t){.name = "works", .faults = "only=1,from=%d"}, "no call failed");
    expect_red(&(scene_t){.name = "fails", .faults = "mute=1@%d", .after = 2, .blame = NOBODY},
               "failed: rank 1");
}
END_TEST

static void hang(stage_t *stage, int actor)
{
    while (actor == 1)
        usleep(1000);
}

START_TEST(a_thread_that_hangs_ends_the_test)
{
    stage_run(stage_new(2, true), hang, 0.1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("faults");
    TCase *tc = tcase_create("faults");
    tcase_set_timeout(tc, 1800);
    tcase_add_loop_test(tc, matrix, 0, SCENES * CARRIERS * VARIANTS);
    tcase_add_test(tc, a_late_deadline_is_noticed);
    tcase_add_test(tc, a_wrong_end_is_noticed);
    tcase_add_test_raise_signal(tc, a_thread_that_hangs_ends_the_test, SIGABRT);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
