/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce over UCX with ranks as threads: counts, world sizes, codecs, types, plans, in place or
 * not; the same bits as over the loopback. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gw_world.h"

#include "gw_bound.h"

static const size_t counts[] = {0, 1, 3, 7, 255, 513, 70001};
static const char *const specs[] = {"raw", "q1", "q2", "q3", "q4", "q8", "q4:round=stochastic"};
enum {
    COUNTS = sizeof counts / sizeof *counts,
    SPECS = sizeof specs / sizeof *specs,
    DTYPES = 3,
    VARIANTS = 4,
    CASES = COUNTS * SPECS * VARIANTS,
    GUARD = 32,
    RANKS = 5
};

/* One case, the same on all ranks; dtype by turns. */
typedef struct cases {
    size_t count;
    const char *spec;
    gw_plan_kind_t plan;
    bool inplace;
    gw_dtype_t dtype;
    gw_op_t op;
} case_t;

static case_t case_at(int i)
{
    static const gw_dtype_t dtypes[DTYPES] = {GW_F32, GW_F16, GW_BF16};
    int rest = i / VARIANTS;
    return (case_t){.count = counts[rest % COUNTS],
                    .spec = specs[rest / COUNTS],
                    .plan = i & 1 ? GW_PLAN_GATHER : GW_PLAN_DIRECT,
                    .inplace = i & 2,
                    .dtype = dtypes[(i + i / VARIANTS) % DTYPES],
                    .op = i % 5 == 0 ? GW_AVG : GW_SUM};
}

/* What rank r contributes, as its dtype holds it. */
static float *contribution(const case_t *c, int rank, int i, void *narrow)
{
    uint64_t state = (uint64_t)i * 100 + (uint64_t)rank;
    float *x = malloc((c->count + 1) * sizeof *x);
    for (size_t k = 0; k < c->count; k++)
        x[k] = gw_test_normal(&state);
    gw_test_narrow(x, c->count, c->dtype, narrow);
    gw_test_widen(narrow, c->count, c->dtype, x);
    return x;
}

/* Results of every case and rank: guards, then the elements, then guards. */
typedef struct results {
    uint8_t *out[CASES][RANKS];
} results_t;

static void reduce_all(gw_rank_t *rank)
{
    results_t *results = rank->arg;
    for (int i = 0; i < CASES; i++) {
        case_t c = case_at(i);
        gw_coder_t coder = gw_test_coder(c.spec);
        size_t bytes = c.count * gw_dtype_size(c.dtype);
        uint8_t *send = malloc(bytes + 1), *kept = malloc(bytes + 1);
        uint8_t *out = malloc(bytes + 2 * GUARD);
        results->out[i][rank->rank] = out;
        memset(out, 0xA5, bytes + 2 * GUARD);
        free(contribution(&c, rank->rank, i, send));
        memcpy(kept, send, bytes);
        if (c.inplace)
            memcpy(out + GUARD, send, bytes);
        gw_comm_reset_residuals(rank->comm);
        gw_status_t status = gw_allreduce_with(rank->comm, &coder, c.plan, c.inplace ? NULL : send,
                                               out + GUARD, c.count, c.dtype, c.op);
        gw_check(status == GW_OK, "case %d: %s", i, gw_comm_error(rank->comm));
        gw_check(memcmp(send, kept, bytes) == 0, "case %d: the input was written", i);
        free(send);
        free(kept);
    }
}

static void run_world(const char *transport, int size, results_t *results)
{
    gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "0"}, {"GRADWIRE_TIMEOUT", "30"}};
    gw_world_t world = {.size = size,
                        .transport = transport,
                        .settings = settings,
                        .setting_count = 2,
                        .body = reduce_all,
                        .arg = results};
    gw_world_run(&world);
    for (int r = 0; r < size; r++)
        ck_assert_msg(world.created[r] == GW_OK, "rank %d of %d over %s: %s", r, size, transport,
                      gw_status_name(world.created[r]));
}

static void check_bound(const case_t *c, int i, int size, const uint8_t *out)
{
    gw_coder_t coder = gw_test_coder(c->spec);
    float *x[RANKS], *got = malloc((c->count + 1) * sizeof *got);
    double *exact = malloc((c->count + 1) * sizeof *exact);
    double *allowed = malloc((c->count + 1) * sizeof *allowed);
    void *narrow = malloc((c->count + 1) * 4);
    for (int r = 0; r < size; r++)
        x[r] = contribution(c, r, i, narrow);
    gw_test_end_to_end(&coder, size > 1 ? c->plan : GW_PLAN_GATHER, (const float *const *)x, size,
                       c->count, c->op == GW_AVG ? 1.0f / (float)size : 1.0f, c->dtype, exact,
                       allowed);
    gw_test_widen(out + GUARD, c->count, c->dtype, got);
    /* A stochastic code may be a whole unit off, not half. */
    double factor = strstr(c->spec, "stochastic") ? 2.0 : 1.0;
    for (size_t k = 0; k < c->count; k++)
        gw_check(fabs(got[k] - exact[k]) <= factor * allowed[k],
                 "%s %s count %zu ranks %d plan %d: element %zu is %g, exact %g, allowed %g",
                 c->spec, gw_dtype_name(c->dtype), c->count, size, c->plan, k, got[k], exact[k],
                 allowed[k]);
    for (int r = 0; r < size; r++)
        free(x[r]);
    free(got);
    free(exact);
    free(allowed);
    free(narrow);
}

static void check_size(int size)
{
    static results_t ucx, loopback;
    run_world("ucx", size, &ucx);
    run_world("loopback", size, &loopback);
    for (int i = 0; i < CASES; i++) {
        case_t c = case_at(i);
        size_t bytes = c.count * gw_dtype_size(c.dtype);
        check_bound(&c, i, size, ucx.out[i][0]);
        for (int r = 0; r < size; r++) {
            const uint8_t *out = ucx.out[i][r];
            /* Guards, and the same bits on every rank and over every transport. */
            gw_check(memcmp(out, loopback.out[i][0], bytes + 2 * GUARD) == 0,
                     "case %d: rank %d of %d differs from the loopback", i, r, size);
            for (int g = 0; g < GUARD; g++)
                gw_check(out[g] == 0xA5 && out[GUARD + bytes + (size_t)g] == 0xA5,
                         "case %d: written outside the output of rank %d", i, r);
        }
        for (int r = 0; r < size; r++) {
            free(ucx.out[i][r]);
            free(loopback.out[i][r]);
        }
    }
}

/* UCX has races of its own under ThreadSanitizer; under AddressSanitizer it is quiet. */
static bool usable(const char *name)
{
    const gw_transport_t *transport;
    char why[256] = "";
    if (GW_THREAD_SANITIZED) {
        gw_test_skip(name, "UCX under ThreadSanitizer");
        return false;
    }
    if (gw_transport_find("ucx", &transport, why, sizeof why) != GW_OK) {
        gw_test_skip(name, why);
        return false;
    }
    return true;
}

START_TEST(every_world_size_agrees_with_the_loopback)
{
    if (usable("every_world_size_agrees_with_the_loopback"))
        check_size(_i);
}
END_TEST

/* Calls of all sizes one after the other, without a pause: early messages find their call. */
static void burst(gw_rank_t *rank)
{
    float *x = malloc(1000000 * sizeof *x);
    uint64_t state = 3;
    for (int call = 0; call < 60; call++) {
        size_t count = 1 + (size_t)(gw_test_random(&state) % (call % 10 == 0 ? 1000000 : 5000));
        for (size_t i = 0; i < count; i++)
            x[i] = (float)(i % 16);
        gw_check(gw_allreduce(rank->comm, NULL, x, count, GW_F32, GW_SUM) == GW_OK, "call %d: %s",
                 call, gw_comm_error(rank->comm));
        for (size_t i = 0; i < count; i++)
            gw_check(fabsf(x[i] - (float)rank->size * (float)(i % 16)) < 2.0f * (float)rank->size,
                     "call %d element %zu: %g", call, i, x[i]);
    }
    if (rank->size > 1)
        gw_check(strncmp(gw_comm_describe(rank->comm, (rank->rank + 1) % rank->size), "ucx ", 4) ==
                     0,
                 "not over ucx");
    free(x);
}

START_TEST(a_burst_of_calls_stays_in_order)
{
    if (!usable("a_burst_of_calls_stays_in_order"))
        return;
    gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "0"}};
    gw_world_t world = {
        .size = 3, .transport = "ucx", .settings = settings, .setting_count = 1, .body = burst};
    gw_world_run(&world);
    ck_assert_int_eq(world.created[0], GW_OK);
}
END_TEST

/* Posted and blocking calls mixed, with and without a worker that drives them. */
static void post_many(gw_rank_t *rank)
{
    enum { WORKS = 24, MOST = 400000 };
    float *x = malloc(WORKS * (size_t)MOST * sizeof *x);
    gw_work_t *work[WORKS] = {NULL};
    for (int i = 0; i < WORKS; i++) {
        size_t count = i % 3 == 0 ? MOST : 1000 + (size_t)i;
        for (size_t k = 0; k < count; k++)
            x[(size_t)i * MOST + k] = (float)((k + (size_t)i) % 16);
        float *mine = x + (size_t)i * MOST;
        gw_status_t status =
            i % 5 == 4 ? gw_allreduce(rank->comm, NULL, mine, count, GW_F32, GW_SUM)
                       : gw_iallreduce(rank->comm, NULL, mine, count, GW_F32, GW_SUM, &work[i]);
        gw_check(status == GW_OK, "work %d: %s", i, gw_comm_error(rank->comm));
    }
    for (int i = 0; i < WORKS; i++) {
        size_t count = i % 3 == 0 ? MOST : 1000 + (size_t)i;
        gw_check(gw_work_wait(&work[i]) == GW_OK, "work %d: %s", i, gw_comm_error(rank->comm));
        for (size_t k = 0; k < count; k++) {
            float expected = (float)rank->size * (float)((k + (size_t)i) % 16);
            float got = x[(size_t)i * MOST + k];
            gw_check(fabsf(got - expected) < 2.0f * (float)rank->size, "work %d element %zu: %g", i,
                     k, got);
        }
    }
    free(x);
}

START_TEST(posted_work_ends_in_order)
{
    static const char *const threads[] = {"0", "2"};
    for (int t = 0; t < 2 && usable("posted_work_ends_in_order"); t++) {
        gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "0"}, {"GRADWIRE_THREADS", threads[t]}};
        gw_world_t world = {.size = 3,
                            .transport = "ucx",
                            .settings = settings,
                            .setting_count = 2,
                            .body = post_many};
        gw_world_run(&world);
        ck_assert_int_eq(world.created[0], GW_OK);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("allreduce_ucx");
    TCase *tc = tcase_create("allreduce_ucx");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, every_world_size_agrees_with_the_loopback, 1, RANKS + 1);
    tcase_add_test(tc, a_burst_of_calls_stays_in_order);
    tcase_add_test(tc, posted_work_ends_in_order);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
