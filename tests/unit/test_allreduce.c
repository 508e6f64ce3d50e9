/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce over threads: every count, world size, codec, type and plan; bits, bounds, guards,
 * feedback. */
#include <math.h>

#include "gw_world.h"
#include "gw_bound.h"

enum { GUARD = 64 };
static const unsigned char guard_byte = 0xA5;

static const size_t counts[] = {0, 1, 2, 3, 7, 255, 513, 70001};

typedef struct matrix {
    const char *spec;
    gw_dtype_t dtype;
    gw_op_t op;
    gw_plan_kind_t plan;
    size_t count;
    bool inplace;
    float *x[8];     /* the ranks' contributions, as the dtype holds them */
    uint8_t *out[8]; /* results, with guards on both sides */
} matrix_t;

static void fill(matrix_t *m, int ranks, uint64_t seed)
{
    size_t element = gw_dtype_size(m->dtype);
    for (int r = 0; r < ranks; r++) {
        uint64_t state = seed * 1000 + (uint64_t)r;
        float *wide = malloc((m->count + 1) * sizeof *wide);
        uint8_t *narrow = malloc((m->count + 1) * element);
        for (size_t i = 0; i < m->count; i++)
            wide[i] = gw_test_normal(&state) * (i % 17 == 0 ? 0.0f : 1.0f);
        gw_test_narrow(wide, m->count, m->dtype, narrow);
        gw_test_widen(narrow, m->count, m->dtype, wide);
        free(narrow);
        m->x[r] = wide;
        m->out[r] = malloc(m->count * element + 2 * GUARD);
        memset(m->out[r], guard_byte, m->count * element + 2 * GUARD);
    }
}

static void release(matrix_t *m, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        free(m->x[r]);
        free(m->out[r]);
    }
}

static void reduce_once(gw_rank_t *rank, matrix_t *m)
{
    gw_coder_t coder = gw_test_coder(m->spec);
    size_t bytes = m->count * gw_dtype_size(m->dtype);
    uint8_t *recv = m->out[rank->rank] + GUARD, *send = malloc(bytes + 1),
            *kept = malloc(bytes + 1);
    gw_test_narrow(m->x[rank->rank], m->count, m->dtype, send);
    memcpy(kept, send, bytes);
    if (m->inplace)
        memcpy(recv, send, bytes);
    gw_status_t status = gw_allreduce_with(rank->comm, &coder, m->plan, m->inplace ? NULL : send,
                                           recv, m->count, m->dtype, m->op);
    ck_assert_int_eq(status, GW_OK);
    ck_assert(memcmp(send, kept, bytes) == 0);
    free(send);
    free(kept);
}

static void check_result(const matrix_t *m, int ranks)
{
    gw_coder_t coder = gw_test_coder(m->spec);
    size_t element = gw_dtype_size(m->dtype), bytes = m->count * element;
    double *exact = malloc((m->count + 1) * sizeof *exact),
           *allowed = malloc((m->count + 1) * sizeof *allowed);
    float *got = malloc((m->count + 1) * sizeof *got),
          scale = m->op == GW_AVG ? 1.0f / (float)ranks : 1.0f;
    gw_test_end_to_end(&coder, ranks > 1 ? m->plan : GW_PLAN_GATHER, (const float *const *)m->x,
                       ranks, m->count, scale, m->dtype, exact, allowed);
    for (int r = 0; r < ranks; r++) {
        for (size_t g = 0; g < GUARD; g++) {
            gw_check(m->out[r][g] == guard_byte && m->out[r][GUARD + bytes + g] == guard_byte,
                     "written outside the output of rank %d", r);
        }
        ck_assert_msg(memcmp(m->out[r] + GUARD, m->out[0] + GUARD, bytes) == 0, "rank %d differs",
                      r);
    }
    gw_test_widen(m->out[0] + GUARD, m->count, m->dtype, got);
    for (size_t i = 0; i < m->count; i++)
        gw_check(fabs(got[i] - exact[i]) <= allowed[i],
                 "%s %s count %zu ranks %d plan %d: element %zu is %g, exact %g, allowed %g",
                 m->spec, gw_dtype_name(m->dtype), m->count, ranks, m->plan, i, got[i], exact[i],
                 allowed[i]);
    free(exact);
    free(allowed);
    free(got);
}

enum { COUNTS = sizeof counts / sizeof *counts, VARIANTS = 4, CASES = COUNTS * VARIANTS };

/* All cases on one communicator, each on fresh residuals. */
static void reduce_all(gw_rank_t *rank)
{
    matrix_t *cases = rank->arg;
    for (int i = 0; i < CASES; i++) {
        gw_comm_reset_residuals(rank->comm);
        reduce_once(rank, &cases[i]);
    }
}

static void run_matrix(gw_dtype_t dtype, gw_op_t op, const char *const *specs, int spec_count)
{
    static const gw_setting_t settings[] = {{"GRADWIRE_LOG", "warn"}, {"GRADWIRE_MIN_BYTES", "0"}};
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int s = 0; s < spec_count; s++) {
            matrix_t cases[CASES];
            for (int i = 0; i < CASES; i++) {
                cases[i] = (matrix_t){.spec = specs[s],
                                      .dtype = dtype,
                                      .op = op,
                                      .count = counts[i / VARIANTS],
                                      .plan = i & 1 ? GW_PLAN_GATHER : GW_PLAN_DIRECT,
                                      .inplace = i & 2};
                fill(&cases[i], ranks, (uint64_t)i + 1);
            }
            gw_world_t world = {.size = ranks,
                                .transport = "loopback",
                                .settings = settings,
                                .setting_count = 2,
                                .body = reduce_all,
                                .arg = cases};
            gw_world_run(&world);
            for (int i = 0; i < CASES; i++) {
                check_result(&cases[i], ranks);
                release(&cases[i], ranks);
            }
        }
}

static const char *const all_specs[] = {"raw",          "q1",
                                        "q2",           "q3",
                                        "q4",           "q5",
                                        "q6",           "q7",
                                        "q8",           "q4:round=stochastic",
                                        "sign",         "sign:bucket=64",
                                        "q1r:block=64", "q4r",
                                        "q8r"};
enum { ALL_SPECS = sizeof all_specs / sizeof *all_specs };

START_TEST(sums_of_f32_are_within_the_bound)
{
    run_matrix(GW_F32, GW_SUM, all_specs, ALL_SPECS);
}
END_TEST

/* One large call that no power of two divides: many rounds, a short last chunk. */
static void reduce_large(gw_rank_t *rank)
{
    reduce_once(rank, rank->arg);
}

START_TEST(a_large_odd_count_is_within_the_bound)
{
    static const gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "0"}};
    static const char *const specs[] = {"q1", "q2", "q3", "q4", "q8"};
    static const int sizes[] = {2, 3, 4, 5};
    for (int i = 0; i < 20; i++) {
        int ranks = sizes[i % 4];
        matrix_t m = {.spec = specs[i % 5],
                      .dtype = GW_F32,
                      .op = GW_SUM,
                      .count = 1000003,
                      .plan = i & 2 ? GW_PLAN_GATHER : GW_PLAN_DIRECT,
                      .inplace = i & 1};
        gw_world_t world = {.size = ranks,
                            .transport = "loopback",
                            .settings = settings,
                            .setting_count = 1,
                            .body = reduce_large,
                            .arg = &m};
        fill(&m, ranks, (uint64_t)i + 100);
        gw_world_run(&world);
        check_result(&m, ranks);
        release(&m, ranks);
    }
}
END_TEST

START_TEST(sums_of_half_types_are_within_the_bound)
{
    static const char *const specs[] = {"raw", "q2", "q4", "q8", "sign", "q4r"};
    run_matrix(GW_F16, GW_SUM, specs, 6);
    run_matrix(GW_BF16, GW_SUM, specs, 6);
}
END_TEST

START_TEST(means_are_scaled_before_they_are_narrowed)
{
    static const char *const specs[] = {"raw", "q8"};
    run_matrix(GW_F16, GW_AVG, specs, 2);
    run_matrix(GW_F32, GW_AVG, specs, 2);
}
END_TEST

static const char *const short_floats[] = {"fp16", "bf16", "fp8e4m3", "fp8e5m2", "mxfp4", "nvfp4"};
enum { SHORT_FLOATS = sizeof short_floats / sizeof *short_floats };

START_TEST(short_floats_are_within_the_bound)
{
    run_matrix(GW_F32, GW_SUM, short_floats, SHORT_FLOATS);
    run_matrix(GW_F16, GW_SUM, short_floats + 2, SHORT_FLOATS - 2);
    run_matrix(GW_BF16, GW_AVG, short_floats, SHORT_FLOATS);
}
END_TEST

/* 3e4 on each of four ranks: the sum does not fit binary16, the mean does. */
static void average_large(gw_rank_t *rank)
{
    uint16_t data[1000];
    float x[1000];
    for (int i = 0; i < 1000; i++)
        x[i] = 3e4f;
    gw_test_narrow(x, 1000, GW_F16, data);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, data, 1000, GW_F16, GW_AVG), GW_OK);
    gw_test_widen(data, 1000, GW_F16, x);
    for (int i = 0; i < 1000; i++)
        gw_check(fabsf(x[i] - 3e4f) <= 3e4f * 0x1p-10f, "mean is %g", x[i]);
}

START_TEST(a_mean_does_not_overflow_on_the_way)
{
    gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "0"}};
    for (int p = 0; p < 2; p++) {
        gw_setting_t with_plan[] = {settings[0], {"GRADWIRE_PLAN", p ? "direct" : "gather"}};
        gw_world_t world = {.size = 4,
                            .transport = "loopback",
                            .settings = with_plan,
                            .setting_count = 2,
                            .body = average_large};
        gw_world_run(&world);
    }
}
END_TEST

/* ---- Non-finite values
 * ------------------------------------------------------------------------------- */

enum { N_FINITE = 5000, AT_INF = 777, AT_NAN = 3210 };

static void normal_data(int rank, float *x)
{
    uint64_t state = 5 + (uint64_t)rank;
    for (int i = 0; i < N_FINITE; i++)
        x[i] = gw_test_normal(&state);
}

static void poison(gw_rank_t *rank)
{
    static const gw_plan_kind_t plans[] = {GW_PLAN_GATHER, GW_PLAN_DIRECT};
    gw_coder_t coder = gw_test_coder("q4");
    float *all[8], *x = malloc(N_FINITE * sizeof *x), *y = malloc(N_FINITE * sizeof *y);
    double *exact = malloc(N_FINITE * sizeof *exact), *allowed = malloc(N_FINITE * sizeof *allowed);
    for (int r = 0; r < rank->size; r++)
        normal_data(r, all[r] = malloc(N_FINITE * sizeof *x));
    gw_test_end_to_end(&coder, plans[*(int *)rank->arg], (const float *const *)all, rank->size,
                       N_FINITE, 1.0f, GW_F32, exact, allowed);
    for (int call = 0; call < 21; call++) {
        memcpy(x, all[rank->rank], N_FINITE * sizeof *x);
        if (call == 0 && rank->rank == 1) {
            x[AT_INF] = INFINITY;
            x[AT_NAN] = NAN;
        }
        ck_assert_int_eq(gw_allreduce(rank->comm, x, y, N_FINITE, GW_F32, GW_SUM), GW_OK);
        for (int i = 0; i < N_FINITE && call > 0; i++)
            gw_check(isfinite(y[i]), "call %d element %d", call, i);
        if (call == 0) {
            ck_assert(!isfinite(y[AT_INF]));
            ck_assert(!isfinite(y[AT_NAN]));
        }
        /* The bound of a call that finds residuals: its own, and theirs, which is one bound more.
         */
        for (int i = 0; i < N_FINITE && call > 0; i++)
            gw_check(fabs(y[i] - exact[i]) <= 3.0 * allowed[i], "call %d element %d: %g, exact %g",
                     call, i, y[i], exact[i]);
    }
    gw_stats_t stats;
    gw_comm_stats(rank->comm, &stats);
    /* Counted where the bucket was encoded: in direct also by the owners, which sum and encode
     * NaNs. */
    if (rank->rank == 1)
        ck_assert_uint_gt(stats.poisoned_buckets, 0);
    for (int r = 0; r < rank->size; r++)
        free(all[r]);
    free(x);
    free(y);
    free(exact);
    free(allowed);
}

START_TEST(nan_and_inf_reach_all_ranks_and_stay_out_of_residuals)
{
    for (int p = 0; p < 2; p++) {
        gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "0"},
                                   {"GRADWIRE_PLAN", p ? "direct" : "gather"}};
        gw_world_t world = {.size = 3,
                            .transport = "loopback",
                            .settings = settings,
                            .setting_count = 2,
                            .body = poison,
                            .arg = &p};
        gw_world_run(&world);
    }
}
END_TEST

/* ---- Error feedback
 * ---------------------------------------------------------------------------------- */

enum { N_CONSTANT = 4096, STEPS = 2000 };

typedef struct feedback {
    const char *spec;
    gw_plan_kind_t plan;
    double at_half, at_end; /* relative distance from the exact running sum */
} feedback_t;

static void accumulate(gw_rank_t *rank)
{
    feedback_t *f = rank->arg;
    gw_coder_t coder = gw_test_coder(f->spec);
    float *x = malloc(N_CONSTANT * sizeof *x), *y = malloc(N_CONSTANT * sizeof *y);
    double *total = calloc(N_CONSTANT, sizeof *total), *exact = calloc(N_CONSTANT, sizeof *exact);
    for (int r = 0; r < rank->size; r++) {
        uint64_t state = 99 + (uint64_t)r;
        for (int i = 0; i < N_CONSTANT; i++) {
            float v = gw_test_normal(&state);
            exact[i] += v;
            if (r == rank->rank)
                x[i] = v;
        }
    }
    for (int step = 1; step <= STEPS; step++) {
        ck_assert_int_eq(
            gw_allreduce_with(rank->comm, &coder, f->plan, x, y, N_CONSTANT, GW_F32, GW_SUM),
            GW_OK);
        double error2 = 0, norm2 = 0;
        for (int i = 0; i < N_CONSTANT; i++) {
            total[i] += y[i];
            error2 += (total[i] - step * exact[i]) * (total[i] - step * exact[i]);
            norm2 += step * exact[i] * step * exact[i];
        }
        if (rank->rank == 0 && step == STEPS / 2)
            f->at_half = sqrt(error2 / norm2);
        if (rank->rank == 0 && step == STEPS)
            f->at_end = sqrt(error2 / norm2);
    }
    free(x);
    free(y);
    free(total);
    free(exact);
}

static feedback_t run_feedback(const char *spec, gw_plan_kind_t plan)
{
    static const gw_setting_t settings[] = {{"GRADWIRE_LOG", "warn"}};
    feedback_t f = {.spec = spec, .plan = plan};
    gw_world_t world = {.size = 2,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 1,
                        .body = accumulate,
                        .arg = &f};
    gw_world_run(&world);
    printf("# %s %s: %.5f at %d steps, %.5f at %d\n", spec,
           plan == GW_PLAN_DIRECT ? "direct" : "gather", f.at_half, STEPS / 2, f.at_end, STEPS);
    return f;
}

START_TEST(feedback_makes_the_running_sum_exact)
{
    for (gw_plan_kind_t plan = GW_PLAN_DIRECT; plan <= GW_PLAN_GATHER; plan++) {
        feedback_t two = run_feedback("q2", plan);
        ck_assert(two.at_end < 0.01);
        feedback_t one = run_feedback("q1:bucket=64", plan);
        ck_assert(one.at_end < 0.04);
        ck_assert(one.at_end < one.at_half);
        ck_assert(run_feedback("sign", plan).at_end < 0.04);
        ck_assert(run_feedback("q1r", plan).at_end < 0.04);
        ck_assert(run_feedback("q4r", plan).at_end < 0.002);
    }
}
END_TEST

START_TEST(without_feedback_the_running_sum_stays_wrong)
{
    feedback_t two = run_feedback("q2:ef=off,force=1", GW_PLAN_GATHER);
    ck_assert(two.at_end > 0.1);
    feedback_t one = run_feedback("q1:bucket=64,ef=off,force=1", GW_PLAN_GATHER);
    ck_assert(one.at_end > 0.1);
}
END_TEST

START_TEST(feedback_of_short_floats_is_real)
{
    for (int s = 0; s < SHORT_FLOATS; s++) {
        char spec[32];
        snprintf(spec, sizeof spec, "%s:ef=off", short_floats[s]);
        feedback_t without = run_feedback(spec, GW_PLAN_DIRECT);
        feedback_t with = run_feedback(short_floats[s], GW_PLAN_DIRECT);
        ck_assert(with.at_end < 1e-3);
        ck_assert(with.at_end * 50 < without.at_end);
    }
}
END_TEST

/* ---- Reproducibility
 * --------------------------------------------------------------------------------- */

typedef struct repeat {
    float out[2][20000];
} repeat_t;

static void repeat_body(gw_rank_t *rank)
{
    repeat_t *r = rank->arg;
    float *x = malloc(sizeof r->out[0]);
    for (int call = 0; call < 3; call++) {
        uint64_t state = 1 + (uint64_t)rank->rank;
        for (int i = 0; i < 20000; i++)
            x[i] = gw_test_normal(&state);
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, 20000, GW_F32, GW_SUM), GW_OK);
    }
    if (rank->rank == 0)
        memcpy(r->out[0], x, sizeof r->out[0]);
    free(x);
}

static void run_repeat(repeat_t *out, const char *kernels, const char *seed, const char *codec)
{
    gw_setting_t settings[] = {{"GRADWIRE_MIN_BYTES", "0"},
                               {"GRADWIRE_KERNELS", kernels},
                               {"GRADWIRE_SEED", seed},
                               {"GRADWIRE_CODEC", codec}};
    gw_world_t world = {.size = 3,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 4,
                        .body = repeat_body,
                        .arg = out};
    gw_world_run(&world);
}

START_TEST(same_seed_same_bytes_on_every_tier)
{
    static repeat_t a, b;
    static const char *const codecs[] = {"q4",           "q4:round=stochastic",
                                         "q3:bucket=64", "q8",
                                         "bf16",         "fp8e4m3",
                                         "mxfp4",        "nvfp4",
                                         "sign",         "q4r"};
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        run_repeat(&a, "ref", "7", codecs[c]);
        bool available;
        const char *tier;
        for (size_t i = 0; (tier = gw_kernel_tier_at(i, &available)); i++) {
            if (!available) {
                gw_test_skip("same_seed_same_bytes_on_every_tier", tier);
                continue;
            }
            run_repeat(&b, tier, "7", codecs[c]);
            ck_assert_msg(memcmp(a.out, b.out, sizeof a.out) == 0, "%s differs from ref with %s",
                          tier, codecs[c]);
        }
    }
    run_repeat(&a, "best", "7", codecs[1]);
    run_repeat(&b, "best", "8", codecs[1]);
    ck_assert_msg(memcmp(a.out[0], b.out[0], sizeof a.out[0]) != 0, "the seed has no effect");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("allreduce");
    TCase *tc = tcase_create("allreduce");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, sums_of_f32_are_within_the_bound);
    tcase_add_test(tc, a_large_odd_count_is_within_the_bound);
    tcase_add_test(tc, sums_of_half_types_are_within_the_bound);
    tcase_add_test(tc, short_floats_are_within_the_bound);
    tcase_add_test(tc, means_are_scaled_before_they_are_narrowed);
    tcase_add_test(tc, a_mean_does_not_overflow_on_the_way);
    tcase_add_test(tc, nan_and_inf_reach_all_ranks_and_stay_out_of_residuals);
    tcase_add_test(tc, feedback_makes_the_running_sum_exact);
    tcase_add_test(tc, feedback_of_short_floats_is_real);
    tcase_add_test(tc, without_feedback_the_running_sum_stays_wrong);
    tcase_add_test(tc, same_seed_same_bytes_on_every_tier);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
