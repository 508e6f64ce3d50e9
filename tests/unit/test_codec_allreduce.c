/* SPDX-License-Identifier: Apache-2.0 */
/* Every codec that is listed, and one from outside, end to end on 2, 3 and 4 ranks: same bits on
 * all of them, within the bound, and feedback that acts. */
#include <math.h>

#include "gw_world.h"
#include "gw_bound.h"
#include "made_codec.h"

enum { RANKS_MAX = 4, SPECS_MAX = 128 };
static const gw_setting_t settings[] = {{"GRADWIRE_LOG", "warn"}, {"GRADWIRE_MIN_BYTES", "0"}};
static const gw_dtype_t types[] = {GW_F32, GW_F16, GW_BF16};
static const size_t counts[] = {0, 1, 33, 513, 20001};
enum {
    TYPES = sizeof types / sizeof *types,
    COUNTS = sizeof counts / sizeof *counts,
    CASES = TYPES * COUNTS * 2
};

/* The names of all families, in order. */
static char specs[SPECS_MAX][GW_CODEC_SPEC_MAX];
static size_t spec_count;

static void list_names(void)
{
    const gw_codec_t *family;
    for (size_t i = 0; (family = gw_codec_at(i)); i++)
        for (const char *at = family->names; *at && spec_count < SPECS_MAX;) {
            size_t n = strcspn(at, " ");
            snprintf(specs[spec_count++], GW_CODEC_SPEC_MAX, "%.*s", (int)n, at);
            at += n + strspn(at + n, " ");
        }
}

static void run(int ranks, void (*body)(gw_rank_t *rank), void *arg)
{
    gw_world_t world = {.size = ranks,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = sizeof settings / sizeof *settings,
                        .body = body,
                        .arg = arg};
    gw_world_run(&world);
    for (int r = 0; r < ranks; r++)
        ck_assert_int_eq(world.created[r], GW_OK);
}

/* ---- Bits and bounds ----------------------------------------------------------------------------
 */

typedef struct call {
    const char *spec;
    gw_dtype_t dtype;
    gw_plan_kind_t plan;
    gw_op_t op;
    size_t count;
    float *x[RANKS_MAX];
    uint8_t *out[RANKS_MAX];
} call_t;

/* Rows of zeros among the others; finite, but for a NaN on rank 1 when `bad`. */
static void fill(call_t *c, int ranks, bool bad, uint64_t seed)
{
    size_t bytes = c->count * gw_dtype_size(c->dtype);
    for (int r = 0; r < ranks; r++) {
        uint64_t state = seed * 1000 + (uint64_t)r;
        c->x[r] = malloc(4 * c->count + 4);
        c->out[r] = malloc(bytes + 4);
        for (size_t i = 0; i < c->count; i++)
            c->x[r][i] = gw_test_normal(&state) * (i / 300 % 3 ? 1.0f : 0.0f);
        if (bad && r == 1 && c->count)
            c->x[r][c->count / 2] = NAN;
        gw_test_narrow(c->x[r], c->count, c->dtype, c->out[r]);
        gw_test_widen(c->out[r], c->count, c->dtype, c->x[r]);
    }
}

static void reduce_all(gw_rank_t *rank)
{
    call_t *calls = rank->arg;
    for (int i = 0; i < CASES; i++) {
        call_t *c = &calls[i];
        size_t bytes = c->count * gw_dtype_size(c->dtype);
        gw_coder_t coder = gw_test_coder(c->spec);
        uint8_t *send = malloc(bytes + 4);
        memcpy(send, c->out[rank->rank], bytes);
        memset(c->out[rank->rank], 0xA5, bytes);
        gw_comm_reset_residuals(rank->comm);
        gw_status_t status = gw_allreduce_with(rank->comm, &coder, c->plan, send,
                                               c->out[rank->rank], c->count, c->dtype, c->op);
        gw_check(status == GW_OK, "%s: %s", c->spec, gw_comm_error(rank->comm));
        free(send);
    }
}

/* The first element that is further from the exact sum than allowed; `count`: none. */
static size_t outside(const call_t *c, int ranks)
{
    gw_coder_t coder = gw_test_coder(c->spec);
    double *exact = malloc(8 * c->count + 8), *allowed = malloc(8 * c->count + 8);
    float *got = malloc(4 * c->count + 4), scale = c->op == GW_AVG ? 1.0f / (float)ranks : 1;
    size_t i = 0;
    gw_test_end_to_end(&coder, c->plan, (const float *const *)c->x, ranks, c->count, scale,
                       c->dtype, exact, allowed);
    gw_test_widen(c->out[0], c->count, c->dtype, got);
    while (i < c->count && fabs((double)got[i] - exact[i]) <= allowed[i])
        i++;
    free(exact);
    free(allowed);
    free(got);
    return i;
}

/* The first rank with other bits than rank 0; `ranks`: none. */
static int differing(const call_t *c, int ranks)
{
    int r = 1;
    while (r < ranks && !memcmp(c->out[r], c->out[0], c->count * gw_dtype_size(c->dtype)))
        r++;
    return r;
}

static bool lost_nan(const call_t *c)
{
    float *got = malloc(4 * c->count + 4);
    gw_test_widen(c->out[0], c->count, c->dtype, got);
    bool lost = c->count && isfinite(got[c->count / 2]);
    free(got);
    return lost;
}

static void check(const call_t *c, int ranks, bool bad)
{
    const char *type = gw_dtype_name(c->dtype);
    int rank = differing(c, ranks);
    gw_check(rank == ranks, "%s %s count %zu plan %d: rank %d of %d differs", c->spec, type,
             c->count, c->plan, rank, ranks);
    gw_check(!bad || !lost_nan(c), "%s %s count %zu: a NaN was lost", c->spec, type, c->count);
    size_t at = bad ? c->count : outside(c, ranks);
    gw_check(at == c->count, "%s %s count %zu plan %d, %d ranks: element %zu is outside the bound",
             c->spec, type, c->count, c->plan, ranks, at);
}

static void run_cases(const char *spec, int ranks, bool bad)
{
    call_t calls[CASES];
    for (int i = 0; i < CASES; i++) {
        calls[i] = (call_t){.spec = spec,
                            .dtype = types[i % TYPES],
                            .plan = i / TYPES % 2 ? GW_PLAN_GATHER : GW_PLAN_DIRECT,
                            .op = i % 5 == 4 ? GW_AVG : GW_SUM,
                            .count = counts[i / TYPES / 2]};
        fill(&calls[i], ranks, bad, (uint64_t)i + 1);
    }
    run(ranks, reduce_all, calls);
    for (int i = 0; i < CASES; i++) {
        check(&calls[i], ranks, bad);
        for (int r = 0; r < ranks; r++) {
            free(calls[i].x[r]);
            free(calls[i].out[r]);
        }
    }
}

START_TEST(every_codec_end_to_end)
{
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++)
        for (int bad = 0; bad < 2; bad++)
            run_cases(specs[_i], ranks, bad);
}
END_TEST

/* ---- Feedback -----------------------------------------------------------------------------------
 */

enum { M = 1024, STEPS = 400 };

typedef struct drift {
    gw_coder_t coder;
    gw_plan_kind_t plan;
    double distance; /* of the running sum from the exact one, over its length */
} drift_t;

static float gradient(int rank, int i)
{
    uint64_t state = (uint64_t)rank * M + (uint64_t)i + 99;
    return gw_test_normal(&state);
}

static void accumulate(gw_rank_t *rank)
{
    float x[M], y[M];
    double total[M];
    drift_t *d = rank->arg;
    double wrong = 0, right = 0;
    memset(total, 0, sizeof total);
    for (int i = 0; i < M; i++)
        x[i] = gradient(rank->rank, i);
    for (int step = 0; step < STEPS; step++) {
        gw_check(gw_allreduce_with(rank->comm, &d->coder, d->plan, x, y, M, GW_F32, GW_SUM) ==
                     GW_OK,
                 "%s: %s", d->coder.spec, gw_comm_error(rank->comm));
        for (int i = 0; i < M; i++)
            total[i] += (double)y[i];
    }
    for (int i = 0; i < M; i++) {
        double exact = 0;
        for (int r = 0; r < rank->size; r++)
            exact += STEPS * (double)gradient(r, i);
        wrong += (total[i] - exact) * (total[i] - exact);
        right += exact * exact;
    }
    if (rank->rank == 0)
        d->distance = sqrt(wrong / right);
}

static double drift(const char *spec, const char *params, gw_plan_kind_t plan, int ranks)
{
    char full[GW_CODEC_SPEC_MAX];
    snprintf(full, sizeof full, "%.60s:%.60s", spec, params);
    drift_t d = {.coder = gw_test_coder(full), .plan = plan};
    run(ranks, accumulate, &d);
    return d.distance;
}

/* The running sum of a constant gradient: much nearer with feedback than without, for every family
 * that has it. What is near already without loses nothing (block). */
START_TEST(feedback_acts)
{
    gw_coder_t coder = gw_test_coder(specs[_i]);
    bool sparse = gw_coder_get(&coder, "ratio", -1) > 0,
         small = gw_coder_get(&coder, "size", 0) > 0;
    bool force = gw_coder_get(&coder, "force", -1) >= 0;
    char off[96], on[64];
    if (!(coder.family->flags & GW_CODEC_FEEDBACK))
        return;
    bool bucket = gw_coder_get(&coder, "bucket", 0) > 0; /* q1 wants small ones (README.md) */
    snprintf(on, sizeof on, "ef=on%s%s%s", bucket ? ",bucket=64" : "", sparse ? ",ratio=0.1" : "",
             small ? ",size=16" : "");
    snprintf(off, sizeof off, "ef=off%s%s", on + 5, force ? ",force=1" : "");
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        gw_plan_kind_t plan = ranks % 2 ? GW_PLAN_GATHER : GW_PLAN_DIRECT;
        double without = drift(specs[_i], off, plan, ranks);
        double with = drift(specs[_i], on, plan, ranks);
        printf("# %s, %d ranks: %.6f with feedback, %.6f without\n", specs[_i], ranks, with,
               without);
        ck_assert_msg(without < 1e-6 || with < without / 3, "%s, %d ranks: %g with, %g without",
                      specs[_i], ranks, with, without);
    }
}
END_TEST

/* ---- The loop itself ----------------------------------------------------------------------------
 */

/* A sum that is off by more than it may be, a rank with another bit and a lost NaN must be seen. */
START_TEST(wrong_sums_are_seen)
{
    static float x[33], sum[2][33];
    call_t c = {.spec = "q8", .plan = GW_PLAN_DIRECT, .dtype = GW_F32, .count = 33};
    for (int i = 0; i < 33; i++) {
        x[i] = (float)i;
        sum[0][i] = sum[1][i] = 2.0f * x[i];
    }
    for (int r = 0; r < 2; r++) {
        c.x[r] = x;
        c.out[r] = (uint8_t *)sum[r];
    }
    ck_assert_uint_eq(outside(&c, 2), 33);
    ck_assert_int_eq(differing(&c, 2), 2);
    ck_assert(lost_nan(&c)); /* there is none */
    sum[0][7] += 1.5f;       /* pushes and pull may lose 3/4 of it */
    ck_assert_uint_eq(outside(&c, 2), 7);
    ck_assert_int_eq(differing(&c, 2), 1);
}
END_TEST

START_TEST(the_list_holds_what_is_registered)
{
    size_t outside = 0, raw = 0;
    for (size_t i = 0; i < spec_count; i++) {
        outside += !strcmp(specs[i], "made");
        raw += !strcmp(specs[i], "raw");
    }
    ck_assert_uint_eq(outside, 1);
    ck_assert_uint_eq(raw, 1);
    ck_assert_uint_lt(spec_count, SPECS_MAX);
}
END_TEST

int main(void)
{
    if (gw_codec_register(&made_codec))
        return EXIT_FAILURE;
    list_names();
    Suite *suite = suite_create("codec allreduce");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, the_list_holds_what_is_registered);
    tcase_add_test(tc, wrong_sums_are_seen);
    tcase_add_loop_test(tc, every_codec_end_to_end, 0, (int)spec_count);
    tcase_add_loop_test(tc, feedback_acts, 0, (int)spec_count);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
