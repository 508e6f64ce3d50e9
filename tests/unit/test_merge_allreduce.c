/* SPDX-License-Identifier: Apache-2.0 */
/* The plans that sum frames without decoding: every bit of the result, in the order that the plan
 * says, for all numbers of ranks and elements; what they refuse; what is not finite. */
#include <math.h>
#include <unistd.h>

#include "gw_world.h"

#include "comm_internal.h"
#include "gw_bound.h"

enum { RANKS_MAX = 9, GUARD = 32, PLANS = 2 };

static const gw_plan_kind_t plans[PLANS] = {GW_PLAN_RING, GW_PLAN_TREE};
static const gw_setting_t settings[] = {
    {"GRADWIRE_LOG", "warn"}, {"GRADWIRE_MIN_BYTES", "0"}, {"GRADWIRE_THREADS", "1"}};

/* ---- The order of the sum ----------------------------------------------------------------------
 */

static float add(float a, float b)
{
    float sum = a + b;
    return isnan(sum) ? NAN : sum;
}

/* Shard s of a ring: from rank s + 1 to s. */
static float ring_sum(const float *const *x, int ranks, int shard, size_t i)
{
    float sum = x[(shard + 1) % ranks][i];
    for (int j = 2; j <= ranks; j++)
        sum = add(sum, x[(shard + j) % ranks][i]);
    return sum;
}

/* A subtree of a binomial tree: its root, then its children from the smallest on. */
static float tree_sum(const float *const *x, int ranks, int root, int limit, size_t i)
{
    float sum = x[root][i];
    for (int step = 1; step < limit && root + step < ranks; step *= 2)
        sum = add(sum, tree_sum(x, ranks, root + step, step, i));
    return sum;
}

static void ordered_sum(gw_plan_kind_t plan, const float *const *x, int ranks, size_t count,
                        size_t grain, float *sum)
{
    gw__plan_t shards;
    int shard = 0;
    if (count > 0)
        gw__plan_init(&shards, plan, 0, ranks, count, grain, 1);
    for (size_t i = 0; i < count; i++) {
        while (plan == GW_PLAN_RING && i >= gw__plan_shard(&shards, shard + 1))
            shard++;
        sum[i] =
            plan == GW_PLAN_RING ? ring_sum(x, ranks, shard, i) : tree_sum(x, ranks, 0, 1 << 20, i);
    }
}

/* ---- Every bit ---------------------------------------------------------------------------------
 */

static const char *const specs[] = {"raw", "randomk:block=64,ratio=0.25",
                                    "randomk:block=1024,ratio=0.1"};
static const size_t counts[] = {0, 1, 2, 5, 63, 64, 65, 129, 1000, 4097, 70001};
enum {
    SPECS = sizeof specs / sizeof *specs,
    COUNTS = sizeof counts / sizeof *counts,
    CASES = COUNTS * SPECS * PLANS * 4
};

typedef struct call {
    const char *spec;
    gw_plan_kind_t plan;
    gw_dtype_t dtype;
    gw_op_t op;
    size_t count;
    bool inplace, bad; /* bad: rank 1 has a NaN and an Inf */
} call_t;

static call_t case_at(int i)
{
    static const gw_dtype_t types[] = {GW_F32, GW_F16, GW_BF16};
    int rest = i / 4 / PLANS, spec = rest % SPECS;
    return (call_t){.spec = specs[spec],
                    .plan = plans[i / 4 % PLANS],
                    .dtype = spec == 0 ? GW_F32 : types[(i + rest) % 3],
                    .op = i & 1 ? GW_AVG : GW_SUM,
                    .count = counts[rest / SPECS],
                    .inplace = i & 2,
                    .bad = i % 7 == 6};
}

/* What a rank contributes, as its type holds it. Magnitudes so different that order matters. */
static float *contribution(const call_t *c, int rank, int i, void *narrow)
{
    uint64_t state = (uint64_t)i * 100 + (uint64_t)rank;
    float *x = malloc((c->count + 1) * sizeof *x);
    for (size_t k = 0; k < c->count; k++)
        x[k] = gw_test_normal(&state) * (k % 3 ? 1.0f : 100.0f);
    if (c->bad && c->count > 0 && rank == 1) {
        x[c->count / 2] = NAN;
        x[c->count - 1] = -INFINITY;
    }
    gw_test_narrow(x, c->count, c->dtype, narrow);
    gw_test_widen(narrow, c->count, c->dtype, x);
    return x;
}

/* Results of every case and rank between guards. */
typedef struct results {
    uint8_t *out[CASES][RANKS_MAX];
} results_t;

static void reduce_one(gw_rank_t *rank, const call_t *c, int i, uint8_t *out)
{
    gw_coder_t coder = gw_test_coder(c->spec);
    size_t bytes = c->count * gw_dtype_size(c->dtype);
    uint8_t *send = malloc(bytes + 1), *kept = malloc(bytes + 1);
    memset(out, 0xA5, bytes + 2 * GUARD);
    free(contribution(c, rank->rank, i, send));
    memcpy(kept, send, bytes);
    if (c->inplace)
        memcpy(out + GUARD, send, bytes);
    gw_comm_reset_residuals(rank->comm);
    gw_status_t status = gw_allreduce_with(rank->comm, &coder, c->plan, c->inplace ? NULL : send,
                                           out + GUARD, c->count, c->dtype, c->op);
    gw_check(status == GW_OK, "case %d: %s", i, gw_comm_error(rank->comm));
    gw_check(memcmp(send, kept, bytes) == 0, "case %d: the input was written", i);
    free(send);
    free(kept);
}

static void reduce_all(gw_rank_t *rank)
{
    results_t *results = rank->arg;
    for (int i = 0; i < CASES; i++) {
        call_t c = case_at(i);
        results->out[i][rank->rank] = malloc(c.count * gw_dtype_size(c.dtype) + 2 * GUARD);
        reduce_one(rank, &c, i, results->out[i][rank->rank]);
    }
}

/* `got` is the sum at an element that was sent, 0 at another; raw sends all. Returns how many hold
 * the sum. */
static size_t check_elements(const call_t *c, int ranks, const float *const *x, const float *got)
{
    gw_coder_t coder = gw_test_coder(c->spec);
    float *sum = malloc((c->count + 1) * sizeof *sum), *narrow = malloc((c->count + 1) * 4);
    size_t sent = 0, grain = coder.family->grain(&coder);
    ordered_sum(c->plan, x, ranks, c->count, grain, sum);
    for (size_t i = 0; i < c->count && c->op == GW_AVG; i++)
        sum[i] *= 1.0f / (float)ranks;
    gw_test_narrow(sum, c->count, c->dtype, narrow);
    gw_test_widen(narrow, c->count, c->dtype, sum);
    for (size_t i = 0; i < c->count; i++) {
        bool equal = isnan(sum[i]) ? isnan(got[i]) : sum[i] == got[i];
        bool poisoned = c->bad && isnan(got[i]) && coder.family->id != 0;
        gw_check(equal || poisoned || (got[i] == 0 && coder.family->id != 0),
                 "%s %s %s of %d, count %zu: element %zu is %.9g, not %.9g", c->spec,
                 gw_dtype_name(c->dtype), gw_plan_name(c->plan), ranks, c->count, i, (double)got[i],
                 (double)sum[i]);
        gw_check(isfinite(sum[i]) || !isfinite(got[i]), "element %zu became %g", i, (double)got[i]);
        sent += equal || poisoned;
    }
    free(sum);
    free(narrow);
    return sent;
}

static void check_case(const call_t *c, int i, int ranks, uint8_t *const *out)
{
    size_t bytes = c->count * gw_dtype_size(c->dtype);
    float *x[RANKS_MAX], *got = malloc((c->count + 1) * sizeof *got);
    void *narrow = malloc((c->count + 1) * 4);
    uint8_t guard[GUARD];
    memset(guard, 0xA5, GUARD);
    for (int r = 0; r < ranks; r++) {
        x[r] = contribution(c, r, i, narrow);
        gw_check(!memcmp(out[r] + GUARD, out[0] + GUARD, bytes), "case %d: rank %d differs", i, r);
        gw_check(!memcmp(out[r], guard, GUARD) && !memcmp(out[r] + GUARD + bytes, guard, GUARD),
                 "case %d: rank %d writes outside", i, r);
    }
    memcpy(narrow, out[0] + GUARD, bytes);
    gw_test_widen(narrow, c->count, c->dtype, got);
    gw_coder_t coder = gw_test_coder(c->spec);
    size_t sent = check_elements(c, ranks, (const float *const *)x, got);
    double least = floor(0.9 * gw_coder_get(&coder, "ratio", 1.0) * (double)c->count);
    gw_check((double)sent >= least, "case %d: only %zu elements", i, sent);
    for (int r = 0; r < ranks; r++)
        free(x[r]);
    free(got);
    free(narrow);
}

static void run_all(const char *transport, int ranks, results_t *results)
{
    gw_world_t world = {.size = ranks,
                        .transport = transport,
                        .settings = settings,
                        .setting_count = 3,
                        .body = reduce_all,
                        .arg = results};
    gw_world_run(&world);
    for (int r = 0; r < ranks; r++)
        ck_assert_msg(world.created[r] == GW_OK, "rank %d: %s", r, world.why[r]);
}

static void free_all(int ranks, results_t *results)
{
    for (int i = 0; i < CASES; i++)
        for (int r = 0; r < ranks; r++)
            free(results->out[i][r]);
}

START_TEST(every_bit_is_the_ordered_sum)
{
    static results_t results;
    run_all("loopback", _i, &results);
    for (int i = 0; i < CASES; i++) {
        call_t c = case_at(i);
        check_case(&c, i, _i, results.out[i]);
    }
    free_all(_i, &results);
}
END_TEST

START_TEST(the_same_bits_over_ucx)
{
    static results_t a, b;
    const gw_transport_t *ucx;
    char why[256] = "";
    if (gw_transport_find("ucx", &ucx, why, sizeof why) != GW_OK)
        return gw_test_skip("the_same_bits_over_ucx", why);
    setenv("UCX_TLS", "tcp,self", 1);
    run_all("loopback", _i, &a);
    run_all("ucx", _i, &b);
    for (int i = 0; i < CASES; i++) {
        call_t c = case_at(i);
        size_t bytes = c.count * gw_dtype_size(c.dtype) + 2 * GUARD;
        for (int r = 0; r < _i; r++)
            gw_check(!memcmp(a.out[i][r], b.out[i][r], bytes), "case %d, rank %d", i, r);
    }
    free_all(_i, &a);
    free_all(_i, &b);
}
END_TEST

/* ---- Chunks, windows and workers change nothing -------------------------------------------------
 */

enum { MANY = 600001, WAYS = 4 };

typedef struct ways {
    call_t call;
    uint8_t *out[WAYS][RANKS_MAX];
    uint64_t sent[RANKS_MAX];
} ways_t;

static void reduce_in_ways(gw_rank_t *rank)
{
    ways_t *w = rank->arg;
    gw_stats_t before, after;
    for (int way = 0; way < WAYS; way++) {
        w->out[way][rank->rank] = malloc(MANY * sizeof(float) + 2 * GUARD);
        rank->comm->pace.message_s = way == 1 ? 1.0 : 1e-6; /* few large chunks, or many */
        if (way == 2)
            rank->comm->engine.memory_limit = 1; /* one round at a time */
        if (way == 3)
            rank->comm->engine.pool = NULL;
        gw_comm_stats(rank->comm, &before);
        reduce_one(rank, &w->call, 0, w->out[way][rank->rank]);
        gw_comm_stats(rank->comm, &after);
        w->sent[rank->rank] = after.wire_bytes - before.wire_bytes;
    }
}

START_TEST(chunks_windows_and_workers_change_no_bit)
{
    for (int p = 0; p < PLANS; p++)
        for (int ranks = 2; ranks <= 5; ranks++) {
            ways_t w = {.call = {.spec = "raw", .plan = plans[p], .count = MANY, .op = GW_AVG}};
            gw_world_t world = {.size = ranks,
                                .transport = "loopback",
                                .settings = settings,
                                .setting_count = 3,
                                .body = reduce_in_ways,
                                .arg = &w};
            gw_world_run(&world);
            double sent = 0;
            for (int r = 0; r < ranks; r++) {
                sent += (double)w.sent[r];
                for (int way = 0; way < WAYS; way++) {
                    gw_check(!memcmp(w.out[way][r], w.out[0][0], MANY * sizeof(float) + 2 * GUARD),
                             "%s of %d: way %d of rank %d differs", gw_plan_name(plans[p]), ranks,
                             way, r);
                }
            }
            for (int i = 0; i < WAYS * ranks; i++)
                free(w.out[i / ranks][i % ranks]);
            /* Of both plans: every element P-1 times towards the sum and P-1 times back. */
            double least = 2.0 * (ranks - 1) * MANY * sizeof(float);
            gw_check(sent > least && sent < 1.002 * least, "%g bytes, not %g", sent, least);
        }
}
END_TEST

/* ---- What is refused ---------------------------------------------------------------------------
 */

static gw_status_t create(const char *plan, const char *codec, const char *rules, char *why)
{
    gw_setting_t with[] = {
        {"GRADWIRE_PLAN", plan}, {"GRADWIRE_CODEC", codec}, {"GRADWIRE_CONFIG", rules}};
    gw_context_t *context = NULL;
    why[0] = '\0';
    gw_status_t status = gw_context_create(with, 3, &context, why, 512);
    gw_context_free(context);
    return status;
}

START_TEST(a_codec_that_cannot_be_merged_is_refused_with_a_way_out)
{
    static const char *const names[] = {"ring", "tree"};
    char why[512], wanted[512], file[64];
    snprintf(file, sizeof file, "/tmp/gw_merge_rules_%ld", (long)getpid());
    for (int p = 0; p < PLANS; p++) {
        ck_assert_int_eq(create(names[p], "q4", "", why), GW_ERR_BAD_SETTING);
        snprintf(wanted, sizeof wanted,
                 "GRADWIRE_PLAN=%s: sums are made without decoding, which the codec q4 does not "
                 "allow; use the codec raw or randomk, or GRADWIRE_PLAN=auto",
                 names[p]);
        ck_assert_str_eq(why, wanted);
        ck_assert_int_eq(create(names[p], "topk", "", why), GW_ERR_BAD_SETTING);
        ck_assert_int_eq(create(names[p], "raw", "", why), GW_OK);
        ck_assert_int_eq(create(names[p], "randomk", "", why), GW_OK);
        ck_assert_int_eq(create(names[p], "randomk:values=wire", "", why), GW_OK);
        FILE *f = fopen(file, "w");
        fputs("bytes=1M.. -> randomk:ratio=0.1\nranks=3 -> exclude\nbytes=1K.. -> q8\n", f);
        fclose(f);
        ck_assert_int_eq(create(names[p], "randomk", file, why), GW_ERR_BAD_SETTING);
        snprintf(wanted, sizeof wanted, "line 3: GRADWIRE_PLAN=%s: sums are made without",
                 names[p]);
        ck_assert_msg(strstr(why, wanted) && strstr(why, "q8"), "%s", why);
        ck_assert_int_eq(create("auto", "randomk", file, why), GW_OK);
    }
    unlink(file);
}
END_TEST

static const struct {
    const char *spec;
    gw_dtype_t dtype;
    gw_status_t status;
} calls[] = {{"q8", GW_F32, GW_ERR_UNSUPPORTED},
             {"raw", GW_F16, GW_ERR_UNSUPPORTED},
             {"raw", GW_BF16, GW_ERR_UNSUPPORTED},
             {"randomk:values=wire", GW_F16, GW_ERR_UNSUPPORTED},
             {"randomk:values=wire", GW_F32, GW_OK},
             {"randomk", GW_F16, GW_OK},
             {"raw", GW_F32, GW_OK}};

static void refused_body(gw_rank_t *rank)
{
    float x[100] = {0};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int p = 0; p < PLANS; p++) {
            gw_coder_t coder = gw_test_coder(calls[i].spec);
            ck_assert_int_eq(gw_allreduce_with(rank->comm, &coder, plans[p], NULL, x, 100,
                                               calls[i].dtype, GW_SUM),
                             calls[i].status);
            const char *error = gw_comm_error(rank->comm);
            ck_assert_msg(calls[i].status == GW_OK || (strstr(error, calls[i].spec) &&
                                                       strstr(error, gw_plan_name(plans[p]))),
                          "%s", error);
        }
    /* By the settings: 16 bits are split as by auto, and every call is served. */
    for (gw_dtype_t dtype = GW_F32; dtype <= GW_BF16; dtype++) {
        gw_call_t call = {GW_ALLREDUCE, dtype, GW_SUM, 100, NULL, x, 0};
        gw_comm_facts_t facts = {.size = rank->size};
        gw_plan_kind_t plan = gw_decide(rank->context, &call, &facts).plan;
        ck_assert_int_eq(plan, dtype == GW_F32 ? GW_PLAN_RING : GW_PLAN_GATHER);
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, 100, dtype, GW_SUM), GW_OK);
    }
}

START_TEST(a_call_that_cannot_be_merged_is_refused_or_split_otherwise)
{
    gw_setting_t with[] = {{"GRADWIRE_MIN_BYTES", "0"},
                           {"GRADWIRE_PLAN", "ring"},
                           {"GRADWIRE_CODEC", "raw"},
                           {"GRADWIRE_LOG", "off"}};
    gw_world_t world = {.size = 3,
                        .transport = "loopback",
                        .settings = with,
                        .setting_count = 4,
                        .body = refused_body};
    gw_world_run(&world);
}
END_TEST

START_TEST(ranks_of_different_plans_do_not_meet)
{
    gw_setting_t odd = {"GRADWIRE_PLAN", "tree"};
    gw_setting_t with[] = {
        {"GRADWIRE_CODEC", "raw"}, {"GRADWIRE_PLAN", "ring"}, {"GRADWIRE_LOG", "off"}};
    gw_world_t world = {.size = 3,
                        .transport = "loopback",
                        .settings = with,
                        .setting_count = 3,
                        .odd = &odd,
                        .odd_rank = 2};
    gw_world_run(&world);
    for (int r = 0; r < 3; r++)
        ck_assert_int_eq(world.created[r], GW_ERR_SETTINGS_DIFFER);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("merge allreduce");
    TCase *tc = tcase_create("merge");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, every_bit_is_the_ordered_sum, 2, RANKS_MAX + 1);
    tcase_add_loop_test(tc, the_same_bits_over_ucx, 3, 5);
    tcase_add_test(tc, chunks_windows_and_workers_change_no_bit);
    tcase_add_test(tc, a_codec_that_cannot_be_merged_is_refused_with_a_way_out);
    tcase_add_test(tc, a_call_that_cannot_be_merged_is_refused_or_split_otherwise);
    tcase_add_test(tc, ranks_of_different_plans_do_not_meet);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
