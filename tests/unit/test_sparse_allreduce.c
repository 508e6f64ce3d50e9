/* SPDX-License-Identifier: Apache-2.0 */
/* The sparse codecs end to end: same bits on all ranks, bounds, what is not finite, feedback. */
#include <math.h>

#include "gw_world.h"
#include "gw_bound.h"

static const char *const specs[] = {
    "topk",
    "topk:block=1024,ratio=0.1",
    "topk+fp16:block=256,ratio=0.05",
    "topk+q8:block=4096,ratio=0.2",
    "topk:block=4096,ratio=0.05,select=sampled",
    "topk+q8:block=1024,ratio=0.1,momentum=0.9",
    "topk:block=1024,ratio=0.01,warmup=24",
    "randomk:block=1024,ratio=0.1",
    "randomk:values=wire",
    "block:size=64",
    "topblock:size=64,domain=4096,ratio=0.3",
};
static const size_t counts[] = {1, 3, 255, 513, 20001, 140001};
enum {
    SPECS = sizeof specs / sizeof *specs,
    COUNTS = sizeof counts / sizeof *counts,
    RANKS_MAX = 4,
    TYPES = 3,
    CASES = COUNTS * 2 * TYPES
};
static const gw_setting_t settings[] = {{"GRADWIRE_LOG", "warn"}, {"GRADWIRE_MIN_BYTES", "0"}};

/* ---- Bits and bounds ----------------------------------------------------------------------------
 */

typedef struct call {
    const char *spec;
    gw_dtype_t dtype;
    gw_plan_kind_t plan;
    gw_op_t op;
    size_t count;
    bool bad; /* rank 1 has a NaN and an Inf */
    float *x[RANKS_MAX];
    uint8_t *out[RANKS_MAX];
} call_t;

static void fill(call_t *c, int ranks, uint64_t seed)
{
    size_t element = gw_dtype_size(c->dtype);
    for (int r = 0; r < ranks; r++) {
        uint64_t state = seed * 1000 + (uint64_t)r;
        c->x[r] = malloc(c->count * sizeof *c->x[r]);
        c->out[r] = malloc(c->count * 4);
        for (size_t i = 0; i < c->count; i++) /* untouched rows among the others */
            c->x[r][i] = gw_test_normal(&state) * (i / 300 % 3 ? 1.0f : 0.0f);
        if (c->bad && r == 1) {
            c->x[r][c->count / 2] = NAN;
            c->x[r][c->count - 1] = -INFINITY;
        }
        gw_test_narrow(c->x[r], c->count, c->dtype, c->out[r]);
        gw_test_widen(c->out[r], c->count, c->dtype, c->x[r]);
        memset(c->out[r], 0xA5, c->count * element);
    }
}

static void reduce_all(gw_rank_t *rank)
{
    call_t *calls = rank->arg;
    for (int i = 0; i < CASES; i++) {
        call_t *c = &calls[i];
        gw_coder_t coder = gw_test_coder(c->spec);
        uint8_t *send = malloc(c->count * 4);
        gw_comm_reset_residuals(rank->comm);
        gw_test_narrow(c->x[rank->rank], c->count, c->dtype, send);
        ck_assert_int_eq(gw_allreduce_with(rank->comm, &coder, c->plan, send, c->out[rank->rank],
                                           c->count, c->dtype, c->op),
                         GW_OK);
        free(send);
    }
}

static void check(const call_t *c, int ranks)
{
    gw_coder_t coder = gw_test_coder(c->spec);
    double *exact = malloc(c->count * sizeof *exact), *allowed = malloc(c->count * sizeof *allowed);
    float *got = malloc(c->count * sizeof *got), scale = c->op == GW_AVG ? 1.0f / (float)ranks : 1;
    gw_test_end_to_end(&coder, c->plan, (const float *const *)c->x, ranks, c->count, scale,
                       c->dtype, exact, allowed);
    for (int r = 1; r < ranks; r++)
        ck_assert_msg(!memcmp(c->out[r], c->out[0], c->count * gw_dtype_size(c->dtype)),
                      "%s %s count %zu plan %d: rank %d differs", c->spec, gw_dtype_name(c->dtype),
                      c->count, c->plan, r);
    gw_test_widen(c->out[0], c->count, c->dtype, got);
    for (size_t i = 0; i < c->count; i++) {
        gw_check(isfinite(exact[i]) || !isfinite(got[i]), "%s count %zu: element %zu became %g",
                 c->spec, c->count, i, (double)got[i]);
        gw_check(c->bad || fabs((double)got[i] - exact[i]) <= allowed[i],
                 "%s %s count %zu ranks %d plan %d: element %zu is %g, exact %g, allowed %g",
                 c->spec, gw_dtype_name(c->dtype), c->count, ranks, c->plan, i, (double)got[i],
                 exact[i], allowed[i]);
    }
    free(exact);
    free(allowed);
    free(got);
}

/* All counts, plans and types on 2, 3 and 4 ranks, with and without what is not finite. */
START_TEST(every_codec_end_to_end)
{
    static const gw_dtype_t types[TYPES] = {GW_F32, GW_F16, GW_BF16};
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++)
        for (int bad = 0; bad < 2; bad++) {
            call_t calls[CASES];
            for (int i = 0; i < CASES; i++) {
                calls[i] = (call_t){.spec = specs[_i],
                                    .dtype = types[i % TYPES],
                                    .plan = i / TYPES % 2 ? GW_PLAN_GATHER : GW_PLAN_DIRECT,
                                    .op = i % 5 == 4 ? GW_AVG : GW_SUM,
                                    .count = counts[i / TYPES / 2],
                                    .bad = bad};
                fill(&calls[i], ranks, (uint64_t)i + 1);
            }
            gw_world_t world = {.size = ranks,
                                .transport = "loopback",
                                .settings = settings,
                                .setting_count = 2,
                                .body = reduce_all,
                                .arg = calls};
            gw_world_run(&world);
            for (int i = 0; i < CASES; i++) {
                check(&calls[i], ranks);
                for (int r = 0; r < ranks; r++) {
                    free(calls[i].x[r]);
                    free(calls[i].out[r]);
                }
            }
        }
}
END_TEST

/* ---- Payloads of any size -----------------------------------------------------------------------
 */

typedef struct exact {
    const char *spec;
    gw_plan_kind_t plan;
    size_t count, rows; /* one row of 64 in this many is not zero */
    uint8_t *out[RANKS_MAX];
    uint64_t sent[RANKS_MAX];
} exact_t;

static void reduce_rows(gw_rank_t *rank)
{
    exact_t *e = rank->arg;
    gw_coder_t coder = gw_test_coder(e->spec);
    float *x = malloc(e->count * sizeof *x);
    uint64_t state = 7 + (uint64_t)rank->rank;
    gw_stats_t stats;
    for (size_t i = 0; i < e->count; i++)
        x[i] = gw_test_normal(&state) * (i / 64 % e->rows == (size_t)rank->rank % 2 ? 1.0f : 0.0f);
    ck_assert_int_eq(gw_allreduce_with(rank->comm, &coder, e->plan, x, e->out[rank->rank], e->count,
                                       GW_F32, GW_SUM),
                     GW_OK);
    gw_comm_stats(rank->comm, &stats);
    e->sent[rank->rank] = stats.wire_bytes;
    free(x);
}

static void run_exact(exact_t *e, int ranks)
{
    for (int r = 0; r < ranks; r++)
        e->out[r] = malloc(e->count * sizeof(float));
    gw_world_t world = {.size = ranks,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 2,
                        .body = reduce_rows,
                        .arg = e};
    gw_world_run(&world);
}

/* Equal numbers, -0 being 0; and equal bits on all ranks. */
static bool same_values(const exact_t *block, const exact_t *raw, int rank)
{
    const float *a = (const float *)(void *)block->out[rank];
    const float *b = (const float *)(void *)raw->out[0];
    for (size_t i = 0; i < raw->count; i++)
        if (a[i] != b[i])
            return false;
    return !memcmp(block->out[rank], block->out[0], raw->count * sizeof *a);
}

/* `block` gives the numbers of `raw`; sends a fraction of it where rows are zero, and no more than
 * it and a byte a domain where none is. */
START_TEST(bounded_frames_end_to_end)
{
    static const size_t rows[] = {1, 2, 16, 1000000};
    for (int i = 0; i < 4 * 2 * (RANKS_MAX - 1); i++) {
        int ranks = 2 + i / 8;
        double sent[2] = {0, 0};
        exact_t raw = {.spec = "raw",
                       .plan = i & 1 ? GW_PLAN_GATHER : GW_PLAN_DIRECT,
                       .count = 300001,
                       .rows = rows[i / 2 % 4]};
        exact_t block = raw;
        block.spec = "block:size=64";
        run_exact(&raw, ranks);
        run_exact(&block, ranks);
        for (int r = 0; r < ranks; r++) {
            ck_assert_msg(same_values(&block, &raw, r),
                          "%d ranks, plan %d, one row in %zu: rank %d differs", ranks, raw.plan,
                          raw.rows, r);
            sent[0] += (double)raw.sent[r]; /* shards are multiples of a domain: not all alike */
            sent[1] += (double)block.sent[r];
        }
        double ratio = sent[1] / sent[0];
        ck_assert_msg(ratio < (raw.rows > 1000 ? 0.01
                               : raw.rows > 2  ? 0.2
                                               : 1.001),
                      "one row in %zu: %g of raw", raw.rows, ratio);
        for (int r = 0; r < ranks; r++) {
            free(raw.out[r]);
            free(block.out[r]);
        }
    }
}
END_TEST

/* ---- Warm-up ------------------------------------------------------------------------------------
 */

enum { WARMUP_CALLS = 12 };

static void warm_up(gw_rank_t *rank)
{
    uint64_t *sent = rank->arg, last = 0;
    gw_coder_t coder = gw_test_coder("topk:block=1024,ratio=0.01,warmup=9");
    float *x = malloc(20000 * sizeof *x), *y = malloc(20000 * sizeof *y);
    uint64_t state = (uint64_t)rank->rank;
    for (int call = 0; call < WARMUP_CALLS; call++) {
        gw_stats_t stats;
        for (int i = 0; i < 20000; i++)
            x[i] = gw_test_normal(&state);
        ck_assert_int_eq(
            gw_allreduce_with(rank->comm, &coder, GW_PLAN_DIRECT, x, y, 20000, GW_F32, GW_SUM),
            GW_OK);
        gw_comm_stats(rank->comm, &stats);
        if (rank->rank == 0)
            sent[call] = stats.wire_bytes - last;
        last = stats.wire_bytes;
        ck_assert_uint_eq(stats.residual_resets, 0); /* one residual through all of it */
    }
    free(x);
    free(y);
}

START_TEST(the_ratio_falls_in_the_first_calls)
{
    static const double ratios[] = {0.25, 0.0625, 0.015625, 0.01};
    uint64_t sent[WARMUP_CALLS];
    gw_world_t world = {.size = 3,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 2,
                        .body = warm_up,
                        .arg = sent};
    gw_world_run(&world);
    for (int call = 0; call < WARMUP_CALLS; call++) {
        double entries = 20000.0 * ratios[call / 3] * 4 / 3; /* there and back, of 3 ranks */
        ck_assert_msg(fabs((double)sent[call] - 5.25 * entries) < 0.2 * 5.25 * entries + 800,
                      "call %d: %llu bytes", call, (unsigned long long)sent[call]);
    }
}
END_TEST

/* ---- Feedback -----------------------------------------------------------------------------------
 */

enum { M = 4096, STEPS = 600 };

typedef struct feedback {
    const char *spec;
    gw_plan_kind_t plan;
    double distance; /* of the running sum from the exact one */
} feedback_t;

/* What momentum makes of STEPS ones, added up. */
static double momentum_sum(double factor)
{
    double u = 0, sum = 0;
    for (int step = 0; step < STEPS; step++) {
        u = factor * u + 1;
        sum += u;
    }
    return sum;
}

static void accumulate(gw_rank_t *rank)
{
    feedback_t *f = rank->arg;
    gw_coder_t coder = gw_test_coder(f->spec);
    float *x = malloc(M * sizeof *x), *y = malloc(M * sizeof *y);
    double *total = calloc(M, sizeof *total), *exact = calloc(M, sizeof *exact);
    double error2 = 0, norm2 = 0;
    for (int r = 0; r < rank->size; r++) {
        uint64_t state = 99 + (uint64_t)r;
        for (int i = 0; i < M; i++) {
            float v = gw_test_normal(&state);
            exact[i] += momentum_sum(gw_coder_get(&coder, "momentum", 0)) * (double)v;
            x[i] = r == rank->rank ? v : x[i];
        }
    }
    for (int step = 0; step < STEPS; step++) {
        ck_assert_int_eq(gw_allreduce_with(rank->comm, &coder, f->plan, x, y, M, GW_F32, GW_SUM),
                         GW_OK);
        for (int i = 0; i < M; i++)
            total[i] += (double)y[i];
    }
    for (int i = 0; i < M; i++) {
        error2 += (total[i] - exact[i]) * (total[i] - exact[i]);
        norm2 += exact[i] * exact[i];
    }
    if (rank->rank == 0)
        f->distance = sqrt(error2 / norm2);
    free(x);
    free(y);
    free(total);
    free(exact);
}

static double run_feedback(const char *spec, gw_plan_kind_t plan, int ranks)
{
    feedback_t f = {.spec = spec, .plan = plan};
    gw_world_t world = {.size = ranks,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 2,
                        .body = accumulate,
                        .arg = &f};
    gw_world_run(&world);
    printf("# %s %s, %d ranks: %.4f\n", spec, gw_plan_name(plan), ranks, f.distance);
    return f.distance;
}

static const char *const with_feedback[] = {
    "topk:block=1024,ratio=0.1",
    "topk+q8:block=1024,ratio=0.1",
    "topk:block=1024,ratio=0.1,select=sampled",
    "topk:block=1024,ratio=0.1,momentum=0.9,masking=off",
    "topk:block=1024,ratio=0.02,warmup=300",
    "randomk:block=1024,ratio=0.1",
    "topblock:size=16,domain=1024",
};
static const char *const without[] = {
    "topk:block=1024,ratio=0.1,ef=off,force=1",
    "randomk:block=1024,ratio=0.1,ef=off,force=1",
    "topblock:size=16,domain=1024,ef=off,force=1",
};

START_TEST(feedback_makes_the_running_sum_right)
{
    gw_coder_t coder = gw_test_coder(with_feedback[_i]);
    gw_plan_kind_t last = coder.family->merge ? GW_PLAN_TREE : GW_PLAN_GATHER;
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++)
        for (gw_plan_kind_t plan = GW_PLAN_DIRECT; plan <= last; plan++)
            ck_assert_double_lt(run_feedback(with_feedback[_i], plan, ranks), 0.1);
}
END_TEST

START_TEST(without_feedback_it_stays_wrong)
{
    ck_assert_double_gt(run_feedback(without[_i], GW_PLAN_GATHER, 2), 0.3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sparse allreduce");
    TCase *tc = tcase_create("sparse");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, every_codec_end_to_end, 0, SPECS);
    tcase_add_test(tc, bounded_frames_end_to_end);
    tcase_add_test(tc, the_ratio_falls_in_the_first_calls);
    tcase_add_loop_test(tc, feedback_makes_the_running_sum_right, 0,
                        sizeof with_feedback / sizeof *with_feedback);
    tcase_add_loop_test(tc, without_feedback_it_stays_wrong, 0, sizeof without / sizeof *without);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
