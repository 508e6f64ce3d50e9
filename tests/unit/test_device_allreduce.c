/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces of device memory, ranks as threads: the bits of ranks whose memory is the host's, in
 * the order of the application's streams, and with errors that let these go on. */
#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

#include "comm_internal.h"
#include "device_seed.h"
#include "engine_gpu.h"
#include "gw_bound.h"
#include "gw_world.h"

enum { RANKS_MAX = 4, STEPS = 3, STREAMS = 3 };

/* Sanitizers take several times as long: every third case, of all numbers of ranks in turn. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEP = 3 };
#else
enum { STEP = 1 };
#endif

#define must(call)                                                                                 \
    do {                                                                                           \
        CUresult must_result = call;                                                               \
        gw_check(!must_result, "%s:%d: %s gives %d", __FILE__, __LINE__, #call, (int)must_result); \
    } while (0)

static gw_setting_t settings[] = {{"GRADWIRE_LOG", "off"},
                                  {"GRADWIRE_MIN_BYTES", "0"},
                                  {"GRADWIRE_TIMEOUT", "20"},
                                  {"GRADWIRE_RESIDUALS", "fp32"}};

static CUcontext context;

static void application(void)
{
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
}

static void *as_pointer(CUdeviceptr at)
{
    return (void *)(uintptr_t)at;
}

static CUdeviceptr as_device(const void *at)
{
    return (CUdeviceptr)(uintptr_t)at;
}

static const char *transport = "loopback";

static bool run(int ranks, void (*body)(gw_rank_t *rank), void *arg)
{
    gw_world_t world = {.size = ranks,
                        .transport = transport,
                        .settings = settings,
                        .setting_count = sizeof settings / sizeof *settings,
                        .body = body,
                        .arg = arg};
    gw_world_run(&world);
    for (int r = 0; r < ranks; r++)
        ck_assert_int_eq(world.created[r], GW_OK);
    return true;
}

/* ---- Where elements are ------------------------------------------------------------------------
 */

typedef enum where { HOST, DEVICE, MANAGED, PINNED } where_t;

/* A buffer of one rank, `odd` elements into its allocation. */
typedef struct buffer {
    where_t where;
    char *start, *at;
    size_t bytes;
} buffer_t;

static buffer_t buffer_new(where_t where, size_t bytes, size_t offset)
{
    buffer_t b = {.where = where, .bytes = bytes};
    CUdeviceptr at = 0;
    void *host = NULL;
    if (where == HOST)
        b.start = malloc(bytes + offset + 1);
    else if (where == PINNED)
        must(cuMemHostAlloc(&host, bytes + offset + 1, 0));
    else if (where == MANAGED)
        must(cuMemAllocManaged(&at, bytes + offset + 1, CU_MEM_ATTACH_GLOBAL));
    else
        must(cuMemAlloc_v2(&at, bytes + offset + 1));
    if (!b.start)
        b.start = host ? host : as_pointer(at);
    b.at = b.start + offset;
    return b;
}

static void buffer_free(buffer_t *b)
{
    if (b->where == HOST)
        free(b->start);
    else if (b->where == PINNED)
        must(cuMemFreeHost(b->start));
    else
        must(cuMemFree_v2(as_device(b->start)));
}

static void put(const buffer_t *b, const void *from)
{
    if (b->where == HOST || b->where == PINNED)
        memcpy(b->at, from, b->bytes);
    else if (b->bytes) {
        must(cuMemcpyHtoD_v2(as_device(b->at), from, b->bytes));
        must(cuStreamSynchronize(NULL)); /* such a copy may return before all of it is there */
    }
}

static void get(const buffer_t *b, void *to)
{
    if (b->where == HOST || b->where == PINNED)
        memcpy(to, b->at, b->bytes);
    else if (b->bytes)
        must(cuMemcpyDtoH_v2(to, as_device(b->at), b->bytes));
}

/* ---- The same bits -----------------------------------------------------------------------------
 */

typedef struct call {
    const char *spec;
    gw_dtype_t dtype;
    gw_plan_kind_t plan;
    gw_op_t op;
    size_t count, odd;
    bool in_place;
    uint8_t *in[RANKS_MAX][STEPS];
    uint8_t *out[RANKS_MAX][STEPS];
} call_t;

typedef struct trial {
    call_t call;
    where_t where[RANKS_MAX];
} trial_t;

/* Rows of zeros among the others. */
static void fill(call_t *c, int ranks, uint64_t seed)
{
    float *x = malloc(4 * c->count + 4);
    size_t bytes = c->count * gw_dtype_size(c->dtype);
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < STEPS; s++) {
            uint64_t state = seed * 1000 + (uint64_t)(r * STEPS + s);
            for (size_t i = 0; i < c->count; i++)
                x[i] = gw_test_normal(&state) * (i / 300 % 3 ? 1.0f : 0.0f);
            if (s == 1 && r == 1 && c->count)
                x[c->count / 2] = NAN;
            c->in[r][s] = malloc(bytes + 1);
            c->out[r][s] = calloc(1, bytes + 1);
            gw_test_narrow(x, c->count, c->dtype, c->in[r][s]);
        }
    free(x);
}

static void drop(call_t *c, int ranks)
{
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < STEPS; s++) {
            free(c->in[r][s]);
            free(c->out[r][s]);
        }
}

static void reduce_steps(gw_rank_t *rank)
{
    trial_t *t = rank->arg;
    call_t *c = &t->call;
    size_t element = gw_dtype_size(c->dtype), bytes = c->count * element;
    gw_coder_t coder = gw_test_coder(c->spec);
    if (context)
        must(cuCtxSetCurrent(context));
    buffer_t send = buffer_new(t->where[rank->rank], bytes, c->odd * element);
    buffer_t recv = buffer_new(t->where[rank->rank], bytes, c->odd * element);
    for (int s = 0; s < STEPS; s++) {
        put(c->in_place ? &recv : &send, c->in[rank->rank][s]);
        gw_status_t status =
            gw_allreduce_with(rank->comm, &coder, c->plan, c->in_place ? NULL : send.at, recv.at,
                              c->count, c->dtype, c->op);
        gw_check(status == GW_OK, "%s, %zu elements: %s", c->spec, c->count,
                 gw_comm_error(rank->comm));
        get(&recv, c->out[rank->rank][s]);
    }
    buffer_free(&send);
    buffer_free(&recv);
}

/* The outputs of all ranks and steps are those of the host's run. */
static void compare(const call_t *got, const call_t *want, int ranks, const char *what)
{
    size_t bytes = got->count * gw_dtype_size(got->dtype);
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < STEPS; s++)
            gw_check(!memcmp(got->out[r][s], want->out[0][s], bytes),
                     "%s: rank %d of %d, step %d: other bits (%s, %s, %zu elements of type %d, %s, "
                     "%zu elements odd)",
                     what, r, ranks, s, got->spec, gw_plan_name(got->plan), got->count,
                     (int)got->dtype, got->in_place ? "in place" : "not in place", got->odd);
}

static void check_bits(call_t shape, int ranks, uint64_t seed)
{
    static const struct {
        const char *name;
        where_t where[RANKS_MAX];
    } worlds[] = {{"all on the device", {DEVICE, DEVICE, DEVICE, DEVICE}},
                  {"rank 1 on the host", {DEVICE, HOST, DEVICE, MANAGED}},
                  {"rank 0 on the host", {PINNED, DEVICE, HOST, DEVICE}}};
    trial_t host = {.call = shape};
    fill(&host.call, ranks, seed);
    run(ranks, reduce_steps, &host);
    compare(&host.call, &host.call, ranks, "all on the host");
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        trial_t t = {.call = shape};
        memcpy(t.where, worlds[w].where, sizeof t.where);
        fill(&t.call, ranks, seed);
        run(ranks, reduce_steps, &t);
        compare(&t.call, &host.call, ranks, worlds[w].name);
        drop(&t.call, ranks);
    }
    drop(&host.call, ranks);
}

/* Served by kernels, and, the last ones, through the host. */
static const char *const specs[] = {"q4",
                                    "q8:ef=off",
                                    "q3r",
                                    "fp16",
                                    "bf16:ef=on",
                                    "fp8e4m3",
                                    "nvfp4",
                                    "sign",
                                    "natural",
                                    "raw",
                                    "topk",
                                    "randomk",
                                    "block:size=64,domain=1024",
                                    "topblock:size=16,domain=4096,ratio=0.2",
                                    "lossless",
                                    "lowrank"};
enum { SPECS = sizeof specs / sizeof *specs, THROUGH_HOST = 2 };
static const gw_dtype_t types[] = {GW_F32, GW_F16, GW_BF16};
static const size_t counts[] = {0, 1, 33, 1500, 9001};
enum { COUNTS = sizeof counts / sizeof *counts };

START_TEST(the_bits_are_those_of_the_host)
{
    gw_coder_t coder = gw_test_coder(specs[_i]);
    ck_assert_int_eq(gw__gpu_serves(&coder, GW_PLAN_DIRECT), _i < SPECS - THROUGH_HOST);
    device_seed((uint64_t)_i, 0);
    application();
    int number = 0;
    for (int ranks = 2; ranks <= 4; ranks++)
        for (size_t n = 0; n < COUNTS; n++, number++) {
            if ((number + _i) % STEP)
                continue;
            check_bits((call_t){.spec = specs[_i],
                                .dtype = types[(number + _i) % 3],
                                .plan = number % 4 == 3 ? GW_PLAN_GATHER : GW_PLAN_DIRECT,
                                .op = number % 2 ? GW_AVG : GW_SUM,
                                .count = counts[n],
                                .odd = (size_t)number % 5,
                                .in_place = number % 3 == 1},
                       ranks, (uint64_t)number);
        }
}
END_TEST

/* Plans that add frames as they are go through the host. */
START_TEST(ring_and_tree_too)
{
    device_seed(2, 0);
    application();
    for (int ranks = 2; ranks <= 4; ranks++) {
        check_bits((call_t){"raw", GW_F32, GW_PLAN_RING, GW_SUM, 3000, 1, false, {{0}}, {{0}}},
                   ranks, 1);
        check_bits((call_t){"randomk", GW_F32, GW_PLAN_TREE, GW_AVG, 3000, 1, true, {{0}}, {{0}}},
                   ranks, 2);
    }
}
END_TEST

/* Frames go from and to the memory that kernels read and write. */
START_TEST(over_ucx)
{
    application();
    device_seed(2, 0);
    transport = "ucx";
    check_bits((call_t){.spec = "q4", .count = 200001, .odd = 1}, 3, 1);
    check_bits((call_t){.spec = "lossless", .dtype = GW_BF16, .count = 9001}, 2, 2);
}
END_TEST

/* ---- Residuals ---------------------------------------------------------------------------------
 */

typedef struct kept {
    trial_t trial;
    size_t bytes[RANKS_MAX]; /* of residuals, at the end */
} kept_t;

static void reduce_and_measure(gw_rank_t *rank)
{
    kept_t *k = rank->arg;
    void *trial = &k->trial;
    rank->arg = trial;
    reduce_steps(rank);
    k->bytes[rank->rank] = rank->context->residual_bytes;
}

static kept_t keep(call_t shape, const char *how, where_t where)
{
    kept_t k = {.trial = {.call = shape, .where = {where, where}}};
    settings[3].value = how;
    fill(&k.trial.call, 2, 1);
    run(2, reduce_and_measure, &k);
    settings[3].value = "fp32";
    return k;
}

static bool same_step(const kept_t *a, const kept_t *b, int step)
{
    size_t bytes = a->trial.call.count * gw_dtype_size(a->trial.call.dtype);
    return !memcmp(a->trial.call.out[0][step], b->trial.call.out[0][step], bytes);
}

/* 16 bits take half the memory and have their own bits, the same on the host and the device; pinned
 * memory has those of binary32. */
START_TEST(residuals_of_all_kinds)
{
    static const char *const codecs[] = {"q4", "q3r", "sign", "bf16:ef=on"};
    application();
    device_seed(2, 0);
    call_t shape = {.spec = codecs[_i], .dtype = types[_i % 3], .count = 9001, .odd = 1};
    kept_t host = keep(shape, "fp32", HOST), pinned = keep(shape, "pinned", DEVICE),
           half = keep(shape, "bf16", HOST), device = keep(shape, "bf16", DEVICE);
    compare(&pinned.trial.call, &host.trial.call, 2, "pinned residuals");
    compare(&device.trial.call, &half.trial.call, 2, "residuals in 16 bits");
    gw_check(same_step(&half, &host, 0), "the first step has no residual");
    gw_check(!same_step(&half, &host, 1), "the residual is not rounded");
    for (int r = 0; r < 2; r++) {
        ck_assert_uint_eq(host.bytes[r], 4 * shape.count);
        ck_assert_uint_eq(pinned.bytes[r], 4 * shape.count);
        ck_assert_uint_eq(half.bytes[r], 2 * shape.count);
        ck_assert_uint_eq(device.bytes[r], 2 * shape.count);
    }
    kept_t *all[] = {&host, &pinned, &half, &device};
    for (int i = 0; i < 4; i++)
        drop(&all[i]->trial.call, 2);
    ck_assert_uint_eq(device_live_bytes(), 0);
}
END_TEST

/* ---- In the order of streams -------------------------------------------------------------------
 */

enum { CALLS = 12, ELEMENTS = 5000 };

/* Each call's elements are made by work that is still on the stream, and used by work behind it. */
typedef struct ordered {
    int streams;
    const char *spec;
    uint64_t seed;
    float *seen[RANKS_MAX]; /* the first and the last of each result, by the stream itself */
} ordered_t;

static void reduce_on_streams(gw_rank_t *rank)
{
    ordered_t *o = rank->arg;
    CUstream stream[STREAMS];
    CUdeviceptr at[STREAMS];
    must(cuCtxSetCurrent(context));
    for (int s = 0; s < o->streams; s++) {
        must(cuStreamCreate(&stream[s], CU_STREAM_NON_BLOCKING));
        must(cuMemAlloc_v2(&at[s], 4 * ELEMENTS));
    }
    for (int i = 0; i < CALLS; i++) {
        int s = i % o->streams;
        float value = (float)(i + 1) * (float)(1 << rank->rank);
        unsigned bits;
        memcpy(&bits, &value, sizeof bits);
        must(cuMemsetD32Async(at[s], bits, ELEMENTS, stream[s]));
        gw_status_t status = gw_allreduce_on(rank->comm, stream[s], NULL, as_pointer(at[s]),
                                             ELEMENTS, GW_F32, GW_SUM);
        gw_check(status == GW_OK, "call %d: %s: %s", i, gw_status_name(status),
                 gw_comm_error(rank->comm));
        must(cuMemcpyDtoHAsync_v2(&o->seen[rank->rank][2 * i], at[s], 4, stream[s]));
        must(cuMemcpyDtoHAsync_v2(&o->seen[rank->rank][2 * i + 1], at[s] + 4 * (ELEMENTS - 1), 4,
                                  stream[s]));
    }
    for (int s = 0; s < o->streams; s++)
        must(cuStreamSynchronize(stream[s]));
    gw_status_t status = GW_IN_PROGRESS;
    while (status == GW_IN_PROGRESS)
        status = gw_comm_query(rank->comm);
    ck_assert_int_eq(status, GW_OK);
    for (int s = 0; s < o->streams; s++) {
        must(cuStreamDestroy_v2(stream[s]));
        must(cuMemFree_v2(at[s]));
    }
}

/* How many of the values seen are wrong; the first one in words. */
static int wrong_values(ordered_t o, int ranks, char *what, size_t size)
{
    const gw_setting_t with[] = {{"GRADWIRE_LOG", "off"},
                                 {"GRADWIRE_MIN_BYTES", "0"},
                                 {"GRADWIRE_THREADS", "1"},
                                 {"GRADWIRE_CODEC", o.spec}};
    void *pinned;
    int wrong = 0;
    device_seed(o.seed, 0);
    must(cuMemHostAlloc(&pinned, RANKS_MAX * CALLS * 2 * sizeof(float), 0));
    for (int r = 0; r < ranks; r++)
        o.seen[r] = (float *)pinned + r * CALLS * 2;
    gw_world_t world = {.size = ranks,
                        .transport = "loopback",
                        .settings = with,
                        .setting_count = sizeof with / sizeof *with,
                        .body = reduce_on_streams,
                        .arg = &o};
    gw_world_run(&world);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < 2 * CALLS; i++) {
            float want = (float)(i / 2 + 1) * (float)((1 << ranks) - 1);
            if (fabsf(o.seen[r][i] - want) <= 1e-2f * want)
                continue;
            if (wrong++ == 0)
                snprintf(what, size, "%s, %d streams: rank %d, call %d: %g, not %g", o.spec,
                         o.streams, r, i / 2, (double)o.seen[r][i], (double)want);
        }
    must(cuMemFreeHost(pinned));
    return wrong;
}

static void check_order(ordered_t o, int ranks)
{
    char what[256] = "";
    int wrong = wrong_values(o, ranks, what, sizeof what);
    gw_check(wrong == 0, "%d wrong values: %s", wrong, what);
}

START_TEST(results_come_in_the_order_of_streams)
{
    application();
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int streams = 1; streams <= STREAMS; streams += 2) {
            check_order((ordered_t){.streams = streams, .spec = "q8", .seed = (uint64_t)_i}, ranks);
            check_order((ordered_t){.streams = streams, .spec = "lossless", .seed = (uint64_t)_i},
                        ranks);
        }
}
END_TEST

/* Streams that cannot wait for memory: the thread that calls does. */
START_TEST(streams_that_cannot_wait_are_waited_for)
{
    setenv("GW_DOUBLE_MEMOPS", "0", 1);
    application();
    for (int ranks = 2; ranks <= 3; ranks++)
        check_order((ordered_t){.streams = 3, .spec = "q8", .seed = (uint64_t)_i}, ranks);
}
END_TEST

/* Planted: a wait that does nothing, of the communicator's stream for the elements and of the
 * application's for the result. */
START_TEST(waits_that_are_left_out_are_seen)
{
    char what[256] = "";
    setenv("GW_DOUBLE_IGNORE", _i ? "cuStreamWaitValue32_v2" : "cuStreamWaitEvent", 1);
    application();
    if (!device_seed(2, 0)) {
        gw_test_skip("waits that are left out", "a GPU may be late enough");
        return;
    }
    ck_assert_int_gt(
        wrong_values((ordered_t){.streams = 1, .spec = "q8", .seed = 2}, 2, what, sizeof what), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_allreduce");
    TCase *t = tcase_create("device_allreduce");
    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, the_bits_are_those_of_the_host, 0, SPECS);
    tcase_add_test(t, ring_and_tree_too);
#if defined(GW_WITH_UCX)
    tcase_add_test(t, over_ucx);
#endif
    tcase_add_loop_test(t, residuals_of_all_kinds, 0, 4);
    tcase_add_loop_test(t, results_come_in_the_order_of_streams, 0, 4);
    tcase_add_loop_test(t, streams_that_cannot_wait_are_waited_for, 0, 3);
    tcase_add_loop_test(t, waits_that_are_left_out_are_seen, 0, 2);
    suite_add_tcase(suite, t);
    return gw_test_main(suite);
}
