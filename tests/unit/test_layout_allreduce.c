/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with a layout, end to end: exact tensors have the bits of raw, the others are within the
 * bound of their codec, all ranks have the same bits, feedback acts, nothing is allocated. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "gw_world.h"
#include "gw_bound.h"

/* Weights and biases by turns, as models have them, with padding in two places. */
static const gw_tensor_t model[] = {
    {"a.weight", 0, 2, {120, 100}},         {"a.bias", 12000, 1, {120}},
    {"b.weight", 12120, 4, {50, 10, 3, 5}}, {"b.bias", 19620, 1, {1500}},
    {"c.weight", 21130, 2, {64, 96}},       {"norm", 27274, 1, {64}},
    {"small", 27338, 2, {10, 10}}};
enum { TENSORS = sizeof model / sizeof *model, N = 27450 };

static const gw_setting_t quiet[] = {{"GRADWIRE_MIN_BYTES", "0"}, {"GRADWIRE_LOG", "warn"}};

static size_t size_of(const gw_tensor_t *t)
{
    size_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->dim[d];
    return n;
}

static bool stays_exact(const gw_tensor_t *t)
{
    return t->ndim <= 1 || size_of(t) < GW_LAYOUT_TINY;
}

static gw_layout_t *layout_of_model(void)
{
    gw_layout_t *layout;
    char why[256] = "";
    ck_assert_msg(gw_layout_create(N, model, TENSORS, &layout, why, sizeof why) == GW_OK, "%s",
                  why);
    return layout;
}

static void attach(gw_rank_t *rank)
{
    gw_layout_t *layout = layout_of_model();
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, 0, layout), GW_OK);
    gw_layout_free(layout);
}

/* Small values, so that sums of 16-bit types do not overflow. */
static void fill(int rank, int step, float *x)
{
    uint64_t state = 1000 * (uint64_t)step + (uint64_t)rank;
    for (int i = 0; i < N; i++)
        x[i] = 0.1f * gw_test_normal(&state);
}

/* ---- Sums ---- */

typedef struct form {
    const char *spec;
    gw_dtype_t dtype;
    gw_op_t op;
    bool inplace, posted;
    uint8_t *out; /* of rank 0 */
} form_t;

static void call(gw_rank_t *rank, const form_t *f, const void *send, void *recv)
{
    size_t bytes = (size_t)N * gw_dtype_size(f->dtype);
    gw_work_t *work = NULL;
    if (f->inplace)
        memcpy(recv, send, bytes);
    const void *from = f->inplace ? NULL : send;
    if (f->posted) {
        ck_assert_int_eq(gw_iallreduce(rank->comm, from, recv, N, f->dtype, f->op, &work), GW_OK);
        ck_assert_int_eq(gw_work_wait(&work), GW_OK);
    } else {
        ck_assert_int_eq(gw_allreduce(rank->comm, from, recv, N, f->dtype, f->op), GW_OK);
    }
}

/* Against raw's result, and the bound of the gathered tensors. */
static void check_sum(gw_rank_t *rank, const form_t *f, const uint8_t *got, const uint8_t *raw)
{
    size_t element = gw_dtype_size(f->dtype);
    gw_coder_t coder = gw_test_coder(f->spec);
    for (int t = 0; t < TENSORS; t++)
        if (stays_exact(&model[t]))
            ck_assert_msg(memcmp(got + model[t].offset * element, raw + model[t].offset * element,
                                 size_of(&model[t]) * element) == 0,
                          "%s is not exact", model[t].name);
    /* What is compressed, in the order in which it is gathered: large tensors and the padding. */
    float *x[8], *all = malloc(N * sizeof *all), *y = malloc(N * sizeof *y);
    size_t count = 0, *index = malloc(N * sizeof *index);
    for (size_t i = 0; i < N; i++) {
        bool exact = false;
        for (int t = 0; t < TENSORS; t++)
            exact |= i >= model[t].offset && i < model[t].offset + size_of(&model[t]) &&
                     stays_exact(&model[t]);
        if (!exact)
            index[count++] = i;
    }
    uint8_t *narrow = malloc(N * element);
    for (int r = 0; r < rank->size; r++) {
        x[r] = malloc(N * sizeof *all);
        fill(r, 0, all);
        gw_test_narrow(all, N, f->dtype, narrow);
        gw_test_widen(narrow, N, f->dtype, all);
        for (size_t i = 0; i < count; i++)
            x[r][i] = all[index[i]];
    }
    double *exact = malloc(N * sizeof *exact), *allowed = malloc(N * sizeof *allowed);
    float scale = f->op == GW_AVG ? 1.0f / (float)rank->size : 1.0f;
    gw_test_end_to_end(&coder, GW_PLAN_DIRECT, (const float *const *)x, rank->size, count, scale,
                       f->dtype, exact, allowed);
    gw_test_widen(got, N, f->dtype, y);
    size_t inexact = 0;
    for (size_t i = 0; i < count; i++) {
        gw_check(fabs(y[index[i]] - exact[i]) <= allowed[i],
                 "%s element %zu is %g, exact %g, allowed %g", f->spec, index[i], y[index[i]],
                 exact[i], allowed[i]);
        inexact += memcmp(got + index[i] * element, raw + index[i] * element, element) != 0;
    }
    /* The check would also hold for a call that was not compressed at all. */
    ck_assert_msg(inexact > count / 20, "%zu of %zu", inexact, count);
    for (int r = 0; r < rank->size; r++)
        free(x[r]);
    free(all);
    free(y);
    free(index);
    free(narrow);
    free(exact);
    free(allowed);
}

static void sum_with_layout(gw_rank_t *rank)
{
    form_t *f = rank->arg;
    size_t bytes = (size_t)N * gw_dtype_size(f->dtype);
    float *x = malloc(N * sizeof *x);
    uint8_t *send = malloc(bytes), *kept = malloc(bytes), *got = malloc(bytes),
            *raw = malloc(bytes);
    gw_coder_t coder = gw_test_coder("raw");
    gw_stats_t stats;
    fill(rank->rank, 0, x);
    gw_test_narrow(x, N, f->dtype, send);
    memcpy(kept, send, bytes);
    ck_assert_int_eq(
        gw_allreduce_with(rank->comm, &coder, GW_PLAN_DIRECT, send, raw, N, f->dtype, f->op),
        GW_OK);
    attach(rank);
    call(rank, f, send, got);
    ck_assert_int_eq(memcmp(send, kept, bytes), 0);
    check_sum(rank, f, got, raw);
    /* The same bits on all ranks. */
    if (rank->rank == 0)
        memcpy(f->out, got, bytes);
    gw_coder_t plain = gw_test_coder("raw");
    float flag = 0.0f;
    ck_assert_int_eq(
        gw_allreduce_with(rank->comm, &plain, GW_PLAN_GATHER, NULL, &flag, 1, GW_F32, GW_SUM),
        GW_OK);
    ck_assert_int_eq(memcmp(f->out, got, bytes), 0);
    gw_comm_stats(rank->comm, &stats);
    ck_assert_uint_eq(stats.calls, 3); /* a call is one, however many parts it has */
    ck_assert_uint_eq(stats.compressed, 3);
    free(x);
    free(send);
    free(kept);
    free(got);
    free(raw);
}

START_TEST(exact_tensors_have_the_bits_of_raw_and_the_others_are_in_their_bound)
{
    static const char *const specs[] = {"q4", "q8:bucket=256", "sign"};
    uint8_t *out = malloc(N * sizeof(float));
    for (int i = 0; i < 3 * 3 * 3 * 2 * 2; i++) {
        form_t f = {.spec = specs[i % 3],
                    .dtype = (gw_dtype_t)(i / 3 % 3),
                    .op = i % 2 ? GW_AVG : GW_SUM,
                    .inplace = i / 27 % 2,
                    .posted = i / 54,
                    .out = out};
        gw_setting_t settings[] = {quiet[0],
                                   quiet[1],
                                   {"GRADWIRE_CODEC", f.spec},
                                   {"GRADWIRE_PLAN", i % 5 == 4 ? "direct" : "auto"}};
        gw_world_t world = {.size = 2 + i / 9 % 3,
                            .transport = "loopback",
                            .settings = settings,
                            .setting_count = 4,
                            .body = sum_with_layout,
                            .arg = &f};
        gw_world_run(&world);
    }
    free(out);
}
END_TEST

/* ---- Feedback ---- */

enum { STEPS = 200 };

typedef struct drift {
    bool allocate_anew;
    const char *codec;
    double weights, biases; /* relative distance of the running sum */
    double first;           /* of the weights, after one step */
    uint64_t wire_bytes, resets;
} drift_t;

static double distance(const double *total, const double *exact, int step, bool biases)
{
    double error = 0, norm = 0;
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = model[t].offset; i < model[t].offset + size_of(&model[t]); i++)
            if (stays_exact(&model[t]) == biases) {
                error += pow(total[i] - step * exact[i], 2);
                norm += pow(step * exact[i], 2);
            }
    return sqrt(error / norm);
}

static void accumulate(gw_rank_t *rank)
{
    drift_t *d = rank->arg;
    float *x = malloc(N * sizeof *x), *fixed = malloc(N * sizeof *x);
    double *total = calloc(N, sizeof *total), *exact = calloc(N, sizeof *exact);
    gw_stats_t stats;
    for (int r = 0; r < rank->size; r++) {
        fill(r, 1, x);
        for (int i = 0; i < N; i++)
            exact[i] += x[i];
    }
    fill(rank->rank, 1, x);
    attach(rank);
    for (int step = 1; step <= STEPS; step++) {
        float *buffer =
            d->allocate_anew ? malloc((size_t)N * sizeof *x + 64 * (size_t)step) : fixed;
        memcpy(buffer, x, N * sizeof *x);
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, buffer, N, GW_F32, GW_SUM), GW_OK);
        for (int i = 0; i < N; i++)
            total[i] += buffer[i];
        if (step == 1 && rank->rank == 0)
            d->first = distance(total, exact, 1, false);
        if (d->allocate_anew)
            free(buffer);
    }
    gw_comm_stats(rank->comm, &stats);
    if (rank->rank == 0) {
        d->weights = distance(total, exact, STEPS, false);
        d->biases = distance(total, exact, STEPS, true);
        d->wire_bytes = stats.wire_bytes;
        d->resets = stats.residual_resets;
    }
    free(x);
    free(fixed);
    free(total);
    free(exact);
}

static drift_t run_drift(const char *codec, int size, bool allocate_anew)
{
    drift_t d = {.allocate_anew = allocate_anew, .codec = codec};
    gw_setting_t settings[] = {quiet[0], quiet[1], {"GRADWIRE_CODEC", codec}};
    gw_world_t world = {.size = size,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 3,
                        .body = accumulate,
                        .arg = &d};
    gw_world_run(&world);
    printf("# %s on %d ranks: weights %.5f, %.5f after one step; biases %.2g\n", codec, size,
           d.weights, d.first, d.biases);
    return d;
}

START_TEST(feedback_of_parts_is_real)
{
    for (int size = 2; size <= 4; size++) {
        drift_t with = run_drift("q2", size, false),
                without = run_drift("q2:ef=off,force=1", size, false);
        ck_assert(with.weights * 20 < with.first);
        ck_assert(with.weights * 20 < without.weights);
        ck_assert(with.biases < 1e-6 && without.biases < 1e-6);
        ck_assert_uint_eq(with.resets, 0);
    }
    drift_t moving = run_drift("q2", 3, true);
    ck_assert(moving.weights * 10 < moving.first); /* its place is learned on the way */
}
END_TEST

/* ---- Layouts that come, change and differ ---- */

static void change(gw_rank_t *rank)
{
    float *x = calloc(N, sizeof *x);
    gw_layout_t *layout = layout_of_model(), *other;
    gw_stats_t stats;
    gw_tensor_t one = {"all", 0, 2, {N / 10, 10}};
    ck_assert_int_eq(gw_layout_create(N, &one, 1, &other, NULL, 0), GW_OK);
    for (int step = 0; step < 3; step++)
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, 0, layout), GW_OK);
    for (int step = 0; step < 3; step++)
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    gw_comm_stats(rank->comm, &stats);
    ck_assert_uint_eq(stats.residual_resets, 1); /* that of the calls without a layout */
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, 0, other), GW_OK);
    for (int step = 0; step < 3; step++)
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    gw_comm_stats(rank->comm, &stats);
    ck_assert_uint_eq(stats.residual_resets, 2);
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, 0, NULL), GW_OK);
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N + 1, 0, NULL), GW_OK);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    gw_comm_stats(rank->comm, &stats);
    ck_assert_uint_eq(stats.residual_resets, 3);
    ck_assert_uint_eq(stats.calls, 10);
    gw_layout_free(layout);
    gw_layout_free(other);
    free(x);
}

START_TEST(a_layout_that_changes_resets_residuals)
{
    char log[64], line[512];
    snprintf(log, sizeof log, "/tmp/gw_layout_%ld.log", (long)getpid());
    gw_setting_t settings[] = {quiet[0], {"GRADWIRE_LOG", "info"}, {"GRADWIRE_LOG_FILE", log}};
    gw_world_t world = {.size = 2,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 3,
                        .body = change};
    gw_world_run(&world);
    int told = 0;
    FILE *f = fopen(log, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        told += strstr(line, "another layout of calls of 27450 elements; 1 residuals start anew") !=
                NULL;
    fclose(f);
    unlink(log);
    ck_assert_int_eq(told, 2 * 3); /* one line for each change and rank */
}
END_TEST

static void differ(gw_rank_t *rank)
{
    gw_layout_t *layout = layout_of_model(), *other;
    gw_tensor_t one = {"all", 0, 1, {N}};
    float *x = calloc(N, sizeof *x);
    gw_stats_t before, stats;
    ck_assert_int_eq(gw_layout_create(N, &one, 1, &other, NULL, 0), GW_OK);
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, 0, layout), GW_OK);
    /* Another layout, another place, none, another size, a bad place on one rank. */
    gw_layout_t *given = rank->rank == 1 ? other : layout;
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, 0, given), GW_ERR_SETTINGS_DIFFER);
    ck_assert_ptr_nonnull(strstr(gw_comm_error(rank->comm), "rank 1 gives another layout"));
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, rank->rank == 1, layout),
                     GW_ERR_SETTINGS_DIFFER);
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, 0, rank->rank == 1 ? NULL : layout),
                     GW_ERR_SETTINGS_DIFFER);
    bool odd = rank->rank == 2;
    gw_status_t expected = odd ? GW_ERR_INVALID : GW_ERR_SETTINGS_DIFFER;
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, odd ? N + 1 : N, 0, layout), expected);
    ck_assert_ptr_nonnull(
        strstr(gw_comm_error(rank->comm), "rank 2 cannot use its layout: invalid argument"));
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, odd ? -1 : 1, layout), expected);
    ck_assert_int_eq(gw_comm_set_layout(NULL, N, 0, layout), GW_ERR_INVALID);
    /* The first one is still in force, and the communicator works. */
    gw_comm_stats(rank->comm, &before);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    gw_comm_stats(rank->comm, &stats);
    ck_assert_uint_eq(stats.calls - before.calls, 1);
    ck_assert_uint_gt(stats.wire_bytes - before.wire_bytes, 1784 * sizeof(float));
    gw_layout_free(layout);
    gw_layout_free(other);
    free(x);
}

START_TEST(ranks_with_different_layouts_say_so_and_go_on)
{
    gw_setting_t settings[] = {quiet[0], {"GRADWIRE_LOG", "off"}};
    gw_world_t world = {.size = 3,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 2,
                        .body = differ};
    gw_world_run(&world);
}
END_TEST

/* Several calls under way, of which some have a layout; none of them copies another's. */
static void overlap(gw_rank_t *rank)
{
    enum { CALLS = 6 };
    float *x[CALLS], *y = malloc(N * sizeof *y), *raw = malloc(N * sizeof *y);
    gw_work_t *work[CALLS];
    gw_coder_t coder = gw_test_coder("raw");
    attach(rank);
    for (int i = 0; i < CALLS; i++)
        fill(rank->rank, i, x[i] = malloc((N + 1) * sizeof *y));
    for (int i = 0; i < CALLS; i++)
        ck_assert_int_eq(
            gw_iallreduce(rank->comm, NULL, x[i], i % 3 == 2 ? N - 1 : N, GW_F32, GW_SUM, &work[i]),
            GW_OK);
    /* A blocking call, and then a new layout, behind all that was posted. */
    fill(rank->rank, 77, y);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, y, N, GW_F32, GW_SUM), GW_OK);
    attach(rank);
    for (int i = CALLS - 1; i >= 0; i--)
        ck_assert_int_eq(gw_work_wait(&work[i]), GW_OK);
    for (int i = 0; i <= CALLS; i++) {
        const float *got = i < CALLS ? x[i] : y;
        fill(rank->rank, i < CALLS ? i : 77, raw);
        ck_assert_int_eq(
            gw_allreduce_with(rank->comm, &coder, GW_PLAN_GATHER, NULL, raw, N, GW_F32, GW_SUM),
            GW_OK);
        for (int t = 0; t < TENSORS && i % 3 != 2; t++)
            if (stays_exact(&model[t]))
                ck_assert_int_eq(memcmp(got + model[t].offset, raw + model[t].offset,
                                        size_of(&model[t]) * sizeof *got),
                                 0);
        for (int j = 0; j < N - 1; j++)
            gw_check(fabsf(got[j] - raw[j]) < 0.5f, "call %d element %d", i, j);
    }
    for (int i = 0; i < CALLS; i++)
        free(x[i]);
    free(y);
    free(raw);
}

START_TEST(posted_calls_with_a_layout_go_in_order)
{
    for (int threads = 0; threads <= 2; threads++) {
        char number[8];
        snprintf(number, sizeof number, "%d", threads);
        gw_setting_t settings[] = {quiet[0], quiet[1], {"GRADWIRE_THREADS", number}};
        gw_world_t world = {.size = 3,
                            .transport = "loopback",
                            .settings = settings,
                            .setting_count = 3,
                            .body = overlap};
        gw_world_run(&world);
    }
}
END_TEST

/* ---- A place in the sequence ---- */

/* Two buffers of equal size, of which the second has a layout. */
static void places(gw_rank_t *rank)
{
    float *x = malloc(N * sizeof *x), *raw = malloc(N * sizeof *x);
    gw_layout_t *layout = layout_of_model();
    gw_coder_t coder = gw_test_coder("raw");
    ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, 2, layout), GW_OK);
    gw_layout_free(layout);
    for (int step = 0; step < 8; step++)
        for (int i = 1; i <= 3; i++) {
            fill(rank->rank, step, x);
            memcpy(raw, x, N * sizeof *x);
            size_t count = i == 3 ? 100 : N;
            ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, count, GW_F32, GW_SUM), GW_OK);
            ck_assert_int_eq(
                gw_allreduce_with(rank->comm, &coder, GW_PLAN_GATHER, NULL, raw, N, GW_F32, GW_SUM),
                GW_OK);
            bool exact = memcmp(x + 12000, raw + 12000, 120 * sizeof *x) == 0;
            if (i < 3 && step > 3)
                ck_assert_msg(exact == (i == 2), "step %d call %d", step, i);
        }
    free(x);
    free(raw);
}

START_TEST(a_layout_for_a_place_is_for_that_call_only)
{
    gw_world_t world = {
        .size = 2, .transport = "loopback", .settings = quiet, .setting_count = 2, .body = places};
    gw_world_run(&world);
}
END_TEST

/* ---- Codecs that want matrices ---- */

static gw_codec_t matrix; /* lowrank, which notes the shapes that it meets */
static gw_factor_ops_t factors;
static size_t rows_seen[TENSORS + 1], counts_seen[TENSORS + 1];
static int shapes;

static bool match_matrix(const char *name, gw_coder_t *coder)
{
    (void)coder;
    return strcmp(name, "matrix") == 0;
}

static void name_matrix(const gw_coder_t *coder, char *out, size_t size)
{
    (void)coder;
    snprintf(out, size, "matrix");
}

static void project_matrix(const gw_coder_t *coder, gw_factors_t *io)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < shapes && rows_seen[i] != io->rows)
        i++;
    if (i < TENSORS + 1) {
        counts_seen[i] += io->count;
        rows_seen[i] = io->rows;
        shapes = i == shapes ? i + 1 : shapes;
    }
    pthread_mutex_unlock(&lock);
    gw_codec_by_id(11)->factors->project(coder, io);
}

static void sum_matrices(gw_rank_t *rank)
{
    float *x = malloc(N * sizeof *x);
    attach(rank);
    fill(rank->rank, 0, x);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    free(x);
}

START_TEST(a_codec_for_matrices_gets_each_with_its_rows)
{
    gw_setting_t settings[] = {quiet[0], quiet[1], {"GRADWIRE_CODEC", "matrix"}};
    matrix = *gw_codec_by_id(11);
    factors = *matrix.factors;
    factors.project = project_matrix;
    matrix.id = 201;
    matrix.family = matrix.names = "matrix";
    matrix.match = match_matrix;
    matrix.name = name_matrix;
    matrix.factors = &factors;
    ck_assert_int_eq(gw_codec_register(&matrix), GW_OK);
    gw_world_t world = {.size = 2,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 3,
                        .body = sum_matrices};
    shapes = 0;
    gw_world_run(&world);
    /* Two ranks, one product each. */
    static const size_t rows[] = {120, 50, 64}, counts[] = {12000, 7500, 6144};
    ck_assert_int_eq(shapes, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(rows_seen[i], rows[i]);
        ck_assert_uint_eq(counts_seen[i], 2 * counts[i]);
    }
}
END_TEST

/* ---- What people see ---- */

static void look(gw_rank_t *rank)
{
    char *text = NULL, file[80];
    size_t length = 0;
    float *x = malloc(N * sizeof *x);
    fill(rank->rank, 0, x);
    attach(rank);
    ck_assert_int_eq(gw_comm_timeline(rank->comm, 1000), GW_OK);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    FILE *memory = open_memstream(&text, &length);
    gw_comm_timeline_print(rank->comm, 80, memory);
    fclose(memory);
    ck_assert_ptr_nonnull(strstr(text, "part 1: q4, 3 tensors, 25666 elements in 4 stretches"));
    ck_assert_ptr_nonnull(strstr(text, "part 2: raw, 4 tensors, 1784 elements in 3 stretches"));
    ck_assert_ptr_null(strstr(text, "nothing was recorded"));
    free(text);
    gw_context_set_rank(rank->context, rank->rank, rank->size);
    ck_assert_int_eq(gw_context_write_stats(rank->context), GW_OK);
    snprintf(file, sizeof file, "/tmp/gw_layout_%ld.%d.json", (long)getpid(), rank->rank);
    FILE *f = fopen(file, "r");
    ck_assert_ptr_nonnull(f);
    char *figures = calloc(1, 1 << 16);
    ck_assert_uint_gt(fread(figures, 1, (1 << 16) - 1, f), 0);
    fclose(f);
    unlink(file);
    ck_assert_ptr_nonnull(
        strstr(figures,
               "\"layouts\": [{\"elements\": 27450, \"slot\": 0, \"dtype\": \"f32\", \"tensors\": "
               "[{\"name\": \"a.weight\", \"offset\": 0, \"shape\": [120, 100], \"codec\": "
               "\"q4\", \"why\": \"codec of the call\"}, {\"name\": \"a.bias\", \"offset\": "
               "12000, \"shape\": [120], \"codec\": \"raw\", \"why\": \"one dimension\"}"));
    ck_assert_ptr_nonnull(strstr(figures, "\"why\": \"fewer than 1024 elements\"}]}]"));
    free(figures);
    free(x);
}

START_TEST(figures_and_timeline_tell_the_codec_of_each_tensor)
{
    char pattern[80];
    snprintf(pattern, sizeof pattern, "/tmp/gw_layout_%ld.%%r.json", (long)getpid());
    gw_setting_t settings[] = {quiet[0], quiet[1], {"GRADWIRE_STATS", pattern}};
    gw_world_t world = {
        .size = 2, .transport = "loopback", .settings = settings, .setting_count = 3, .body = look};
    gw_world_run(&world);
    for (int r = 0; r < 2; r++) { /* written once more when the contexts went */
        char file[80];
        snprintf(file, sizeof file, "/tmp/gw_layout_%ld.%d.json", (long)getpid(), r);
        unlink(file);
    }
}
END_TEST

/* A NaN of an exact tensor stays at its own index; one of another reaches all ranks. */
static void poison(gw_rank_t *rank)
{
    float *x = malloc(N * sizeof *x);
    attach(rank);
    fill(rank->rank, 0, x);
    if (rank->rank == 1)
        x[12005] = x[500] = NAN;
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    ck_assert(isnan(x[500]) && isnan(x[12005]));
    for (int i = 12000; i < 12120; i++)
        gw_check(i == 12005 || isfinite(x[i]), "element %d", i);
    for (int i = 2048; i < 12000; i++)
        gw_check(isfinite(x[i]), "element %d", i);
    fill(rank->rank, 0, x);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    for (int i = 0; i < N; i++)
        gw_check(isfinite(x[i]), "element %d", i);
    free(x);
}

START_TEST(a_nan_of_an_exact_tensor_stays_where_it_is)
{
    gw_world_t world = {
        .size = 3, .transport = "loopback", .settings = quiet, .setting_count = 2, .body = poison};
    gw_world_run(&world);
}
END_TEST

/* ---- Decisions of the caller's, and failures ---- */

static void decided(gw_rank_t *rank)
{
    gw_comm_facts_t facts = {.size = rank->size};
    float x[4] = {1, 2, 3, 4};
    gw_call_t call = {GW_ALLREDUCE, GW_F32, GW_SUM, 4, NULL, x, 0};
    gw_decision_t decision = gw_decide(rank->context, &call, &facts);
    gw_stats_t stats;
    ck_assert(!decision.compress && decision.reason == GW_REASON_TOO_SMALL);
    ck_assert_int_eq(gw_allreduce_decided(rank->comm, &call, &facts, &decision), GW_OK);
    ck_assert(x[0] == 2 && x[3] == 8);
    gw_comm_stats(rank->comm, &stats);
    ck_assert_uint_eq(stats.reasons[GW_REASON_TOO_SMALL], 1);
    ck_assert_uint_eq(stats.compressed, 0);
    ck_assert_int_eq(gw_allreduce_decided(NULL, &call, &facts, &decision), GW_ERR_INVALID);
    ck_assert_int_eq(gw_allreduce_decided(rank->comm, NULL, &facts, &decision), GW_ERR_INVALID);
    ck_assert_int_eq(gw_allreduce_decided(rank->comm, &call, NULL, &decision), GW_ERR_INVALID);
    ck_assert_int_eq(gw_allreduce_decided(rank->comm, &call, &facts, NULL), GW_ERR_INVALID);
    /* A decision with the layout of another size: the whole call. */
    gw_layout_t *layout = layout_of_model();
    float *y = calloc(N + 1, sizeof *y);
    call = (gw_call_t){GW_ALLREDUCE, GW_F32, GW_SUM, N + 1, NULL, y, 0};
    decision = gw_decide(rank->context, &call, &facts);
    decision.layout = layout;
    ck_assert_int_eq(gw_allreduce_decided(rank->comm, &call, &facts, &decision), GW_OK);
    gw_layout_free(layout);
    free(y);
}

START_TEST(a_decision_that_the_caller_made_is_carried_out)
{
    gw_world_t world = {.size = 2, .transport = "loopback", .body = decided};
    gw_world_run(&world);
    ck_assert_int_eq(world.created[0], GW_OK);
}
END_TEST

/* Rank 1 leaves after a call; the next one fails in its first part, for good. */
static void lose_a_peer(gw_rank_t *rank)
{
    float *x = malloc(N * sizeof *x);
    gw_stats_t stats;
    attach(rank);
    fill(rank->rank, 0, x);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), GW_OK);
    if (rank->rank == 0) {
        gw_status_t status = gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM);
        ck_assert_int_lt(status, GW_ERR_FRAME_MAGIC);
        ck_assert_ptr_nonnull(strstr(gw_comm_error(rank->comm), "rank 1"));
        ck_assert_int_eq(gw_allreduce(rank->comm, NULL, x, N, GW_F32, GW_SUM), status);
        ck_assert_int_eq(gw_comm_set_layout(rank->comm, N, 0, NULL), status);
        gw_comm_stats(rank->comm, &stats);
        ck_assert_uint_eq(stats.errors, 1);
        ck_assert_uint_eq(stats.residual_resets, 1);
        ck_assert_uint_eq(stats.calls, 3);
    }
    free(x);
}

START_TEST(a_peer_that_leaves_fails_the_call_and_resets_its_residual)
{
    gw_setting_t settings[] = {quiet[0], {"GRADWIRE_LOG", "off"}, {"GRADWIRE_TIMEOUT", "1"}};
    gw_world_t world = {.size = 2,
                        .transport = "loopback",
                        .settings = settings,
                        .setting_count = 3,
                        .body = lose_a_peer};
    gw_world_run(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout_allreduce");
    TCase *tc = tcase_create("layout_allreduce");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, exact_tensors_have_the_bits_of_raw_and_the_others_are_in_their_bound);
    tcase_add_test(tc, feedback_of_parts_is_real);
    tcase_add_test(tc, a_layout_that_changes_resets_residuals);
    tcase_add_test(tc, ranks_with_different_layouts_say_so_and_go_on);
    tcase_add_test(tc, posted_calls_with_a_layout_go_in_order);
    tcase_add_test(tc, a_layout_for_a_place_is_for_that_call_only);
    tcase_add_test(tc, a_codec_for_matrices_gets_each_with_its_rows);
    tcase_add_test(tc, figures_and_timeline_tell_the_codec_of_each_tensor);
    tcase_add_test(tc, a_nan_of_an_exact_tensor_stays_where_it_is);
    tcase_add_test(tc, a_decision_that_the_caller_made_is_carried_out);
    tcase_add_test(tc, a_peer_that_leaves_fails_the_call_and_resets_its_residual);
    suite_add_tcase(suite, tc);
    return gw_test_main(suite);
}
