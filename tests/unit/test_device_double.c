/* SPDX-License-Identifier: Apache-2.0 */
/* The device layer on the double of libcuda.so.1, or on a GPU: bytes of kernels, order of streams,
 * and the host and streams that wait for each other. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "device/device_flag.h"
#include "device/device_pool.h"
#include "device_seed.h"
#include "kernels.h"

enum { COUNT = 5000, BUCKET = 512, ROUNDS = 12 };

static gw__why_t why;

#define gives(expected, call)                                                                      \
    do {                                                                                           \
        gw_status_t gives_status = call;                                                           \
        gw_check(gives_status == (expected), "%s:%d: %s gives %s, not %s: %s", __FILE__, __LINE__, \
                 #call, gw_status_name(gives_status), gw_status_name(expected), why.text);         \
    } while (0)
#define well(call) gives(GW_OK, call)
#define must(call)                                                                                 \
    do {                                                                                           \
        CUresult must_result = call;                                                               \
        gw_check(!must_result, "%s:%d: %s gives %d", __FILE__, __LINE__, #call, (int)must_result); \
    } while (0)

/* ---- The application ---------------------------------------------------------------------------
 */

static CUcontext context; /* of the first device, current */

static void application(int devices)
{
    char text[16];
    snprintf(text, sizeof text, "%d", devices);
    setenv("GW_DOUBLE_DEVICES", text, 1);
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
}

static CUstream stream_new(void)
{
    CUstream stream;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static gw__device_t *device_of(int ordinal)
{
    gw__device_t *device = NULL;
    well(gw__device_acquire(ordinal, NULL, &device, &why));
    return device;
}

static void current_is(CUcontext expected)
{
    CUcontext now;
    must(cuCtxGetCurrent(&now));
    ck_assert_ptr_eq(now, expected);
}

/* Work may still be under way, which ends by itself. */
static void release(gw__device_t *device)
{
    gw_status_t status = GW_IN_PROGRESS;
    for (int i = 0; status == GW_IN_PROGRESS && i < 10000; i++) {
        status = gw__device_release(device, &why);
        if (status == GW_IN_PROGRESS)
            usleep(1000);
    }
    well(status);
}

/* ---- Memory ------------------------------------------------------------------------------------
 */

static void expect_kind(const void *at, gw__memory_kind_t kind, int ordinal)
{
    gw__memory_t memory;
    well(gw__device_kind(at, &memory, &why));
    gw_check(memory.kind == kind, "%s, not %s", gw__memory_kind_name(memory.kind),
             gw__memory_kind_name(kind));
    if (kind == GW__MEMORY_DEVICE || kind == GW__MEMORY_HOST)
        ck_assert_int_eq(memory.ordinal, ordinal);
}

static void *as_pointer(CUdeviceptr at)
{
    return (void *)(uintptr_t)at;
}

START_TEST(kinds_of_memory)
{
    CUdeviceptr device, managed;
    void *pinned, *plain = calloc(1, 4096);
    expect_kind(plain, GW__MEMORY_HOST, -1); /* cuInit was not called */
    application(1);
    must(cuMemAlloc_v2(&device, 4096));
    must(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    must(cuMemHostAlloc(&pinned, 4096, 0));
    expect_kind(plain, GW__MEMORY_HOST, -1);
    expect_kind(&plain, GW__MEMORY_HOST, -1);
    expect_kind(as_pointer(device), GW__MEMORY_DEVICE, 0);
    expect_kind(as_pointer(device + 4095), GW__MEMORY_DEVICE, 0);
    expect_kind(as_pointer(managed + 8), GW__MEMORY_MANAGED, 0);
    expect_kind((char *)pinned + 100, GW__MEMORY_PINNED, 0);
    must(cuMemHostRegister_v2(plain, 4096, 0));
    expect_kind(plain, GW__MEMORY_PINNED, 0);
    must(cuMemHostUnregister(plain));
    expect_kind(plain, GW__MEMORY_HOST, -1); /* nothing is remembered */
    free(plain);
}
END_TEST

START_TEST(memory_of_another_device_is_refused)
{
    CUcontext second;
    CUdeviceptr at;
    gw__memory_t memory;
    application(2);
    must(cuDevicePrimaryCtxRetain(&second, 1));
    must(cuCtxSetCurrent(second));
    must(cuMemAlloc_v2(&at, 64));
    gw__device_t *first = device_of(0), *other = device_of(1);
    well(gw__device_kind(as_pointer(at), &memory, &why));
    well(gw__device_owns(other, &memory, &why));
    gives(GW_ERR_UNSUPPORTED, gw__device_owns(first, &memory, &why));
    ck_assert_str_eq(why.text, "memory of GPU 1, not of GPU 0");
    current_is(second);
    release(first);
    release(other);
    current_is(second);
}
END_TEST

/* ---- Kernels -----------------------------------------------------------------------------------
 */

typedef struct ground {
    gw__device_t *device;
    CUstream stream;
    gw__stream_t queue;
    gw__piece_t *device_piece, *pinned;
    gw__flag_t *flag;
} ground_t;

static ground_t ground_new(gw__device_t *device, size_t bytes)
{
    ground_t g = {.device = device, .stream = stream_new()};
    well(gw__device_queue(device, g.stream, &g.queue, &why));
    well(gw__piece_take(device, GW__POOL_DEVICE, bytes, g.stream, &g.device_piece, &why));
    well(gw__piece_take(device, GW__POOL_PINNED, bytes, g.stream, &g.pinned, &why));
    well(gw__flag_take(device, &g.flag, &why));
    return g;
}

static void ground_free(ground_t *g)
{
    well(gw__piece_give_after(g->device, g->device_piece, g->stream, &why));
    well(gw__piece_give_after(g->device, g->pinned, g->stream, &why));
    well(gw__flag_give(g->flag));
    must(cuStreamDestroy_v2(g->stream));
}

/* Elements up, encoded, the payload down, and the host told: all later, in the stream. */
static uint32_t encode(ground_t *g, const gw_quant_spec_t *spec, size_t bytes, bool wake)
{
    CUdeviceptr at = g->device_piece->at, payload = at + 4 * COUNT;
    gw_cuda_result_t *result = as_pointer(payload + (bytes + 255) / 256 * 256);
    uint32_t count;
    g->queue.queue.state = &g->queue;
    well(gw__device_enter(g->device, &why));
    must(cuMemcpyHtoDAsync_v2(at, g->pinned->host, 4 * COUNT, g->stream));
    must(cuMemsetD32Async((CUdeviceptr)(uintptr_t)result, 0, 2, g->stream));
    well(gw__cuda_quant.encode(&g->queue.queue, spec, as_pointer(at), NULL, COUNT, 0, 1,
                               as_pointer(payload), result));
    must(cuMemcpyDtoHAsync_v2(g->pinned->host + 4 * COUNT, payload, bytes, g->stream));
    well(gw__flag_raise_after(g->flag, g->stream, wake, &count, &why));
    gw__device_leave(g->device);
    return count;
}

START_TEST(kernels_give_the_bytes_of_ref)
{
    static float src[COUNT];
    static uint8_t want[8 * COUNT];
    const gw_quant_spec_t spec = {4, BUCKET, false, true};
    size_t bytes =
        gw__quant_bytes(4, BUCKET) * (COUNT / BUCKET) + gw__quant_bytes(4, COUNT % BUCKET);
    device_seed((uint64_t)_i, 0);
    application(1);
    gw__device_t *device = device_of(0);
    ground_t g[2] = {ground_new(device, 16 * COUNT), ground_new(device, 16 * COUNT)};
    for (int i = 0; i < COUNT; i++)
        src[i] = (float)((i * 7919) % 1000 - 500) / 64;
    gw__kernels_of("ref")->quant.encode(&spec, src, NULL, COUNT, 0, 1, want);
    uint32_t counts[2];
    for (int r = 0; r < 2; r++) {
        memcpy(g[r].pinned->host, src, sizeof src);
        counts[r] = encode(&g[r], &spec, bytes, r);
    }
    for (int r = 1; r >= 0; r--) {
        well(gw__flag_await(g[r].flag, counts[r], 60000));
        gw_check(!memcmp(g[r].pinned->host + 4 * COUNT, want, bytes), "stream %d: other bytes", r);
        ground_free(&g[r]);
    }
    current_is(context);
    release(device);
}
END_TEST

/* ---- Memory that goes from stream to stream ----------------------------------------------------
 */

/* Fills a piece, reads it back through the stream, and gives it back; `behind` the work, or at
 * once, which is wrong. */
static void use(gw__device_t *device, CUstream stream, unsigned value, unsigned *out, bool behind)
{
    gw__piece_t *piece;
    well(gw__piece_take(device, GW__POOL_DEVICE, 4000, stream, &piece, &why));
    well(gw__device_enter(device, &why));
    must(cuMemsetD32Async(piece->at, value, 1000, stream));
    must(cuMemcpyDtoHAsync_v2(out, piece->at + 3996, 4, stream));
    gw__device_leave(device);
    if (behind)
        well(gw__piece_give_after(device, piece, stream, &why));
    else
        gw__piece_give(device, piece);
}

/* How many of many uses by three streams saw another's value. */
static int wrong_values(bool behind)
{
    enum { STREAMS = 3, USES = 60 };
    const gw__device_limits_t limits = {64 * 1024, 0}; /* one piece for all */
    gw__device_t *device;
    CUstream streams[STREAMS];
    void *pinned;
    int wrong = 0;
    application(1);
    must(cuMemHostAlloc(&pinned, USES * sizeof(unsigned), 0));
    unsigned *out = pinned;
    well(gw__device_acquire(0, &limits, &device, &why));
    for (int s = 0; s < STREAMS; s++)
        streams[s] = stream_new();
    for (unsigned i = 0; i < USES; i++)
        use(device, streams[i % STREAMS], i, &out[i], behind);
    must(cuCtxSynchronize());
    for (unsigned i = 0; i < USES; i++)
        wrong += out[i] != i;
    gw__device_figures_t figures;
    gw__device_figures(device, &figures);
    ck_assert_uint_eq(figures.pieces, 1);
    release(device);
    return wrong;
}

START_TEST(a_piece_is_not_used_before_its_last_use_has_ended)
{
    device_seed((uint64_t)_i, 10);
    ck_assert_int_eq(wrong_values(true), 0);
}
END_TEST

/* Planted: pieces that are given back at once are mixed up, which must be seen. */
START_TEST(a_piece_that_is_given_back_too_early_is_seen)
{
    if (!device_seed(2, 10)) {
        gw_test_skip("pieces given back too early", "a GPU may run them in the right order");
        return;
    }
    ck_assert_int_gt(wrong_values(false), 0);
}
END_TEST

/* ---- Peers -------------------------------------------------------------------------------------
 */

typedef struct rank {
    pthread_t thread;
    struct rank *peer;
    ground_t g;
    gw__flag_t *arrived; /* raised by the peer's thread when it has put its value */
    unsigned value, sum;
    bool held; /* false: planted, the stream does not wait for the peer */
    int wrong;
} rank_t;

/* What the engine will do: the stream reads out, tells the host and waits; the host sends. Streams
 * that cannot wait get the rest of the work from this thread when the peer has been here. */
static void exchange(rank_t *r, uint32_t round)
{
    unsigned *mine = (unsigned *)(void *)r->g.pinned->host;
    CUdeviceptr at = r->g.device_piece->at;
    uint32_t count, there = 2 * round - 1; /* the peer raises twice a round */
    well(gw__device_enter(r->g.device, &why));
    must(cuMemsetD32Async(at, r->value + round, 1, r->g.stream));
    must(cuMemcpyDtoHAsync_v2(mine, at, 4, r->g.stream));
    well(gw__flag_raise_after(r->g.flag, r->g.stream, round % 2, &count, &why));
    gw_status_t status = r->held ? gw__flag_hold(r->arrived, r->g.stream, there, &why) : GW_OK;
    bool later = status == GW_IN_PROGRESS;
    gives(later ? GW_IN_PROGRESS : GW_OK, status);
    if (!later)
        must(cuMemcpyHtoDAsync_v2(at + 4, mine + 1, 4, r->g.stream));
    well(gw__flag_await(r->g.flag, count, 60000));
    ((unsigned *)(void *)r->peer->g.pinned->host)[1] = mine[0];
    gw__flag_raise(r->peer->arrived);
    if (later) {
        well(gw__flag_await(r->arrived, there, 60000));
        well(gw__flag_hold(r->arrived, r->g.stream, there, &why));
        must(cuMemcpyHtoDAsync_v2(at + 4, mine + 1, 4, r->g.stream));
    }
    must(cuMemcpyDtoHAsync_v2(mine + 2, at + 4, 4, r->g.stream));
    well(gw__flag_raise_after(r->g.flag, r->g.stream, true, &count, &why));
    gw__device_leave(r->g.device);
    well(gw__flag_await(r->g.flag, count, 60000));
    r->wrong += mine[2] != r->peer->value + round;
}

static void *rank_run(void *argument)
{
    rank_t *r = argument;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        usleep(r->value == 100 ? 3000 : 0); /* one is late */
        exchange(r, round);
        /* The next round's value may come as soon as both have read this one. */
        gw__flag_raise(r->peer->arrived);
        well(gw__flag_await(r->arrived, 2 * round, 60000));
    }
    return NULL;
}

static int wrong_sums(bool held)
{
    rank_t ranks[2];
    application(1);
    gw__device_t *device = device_of(0);
    for (int i = 0; i < 2; i++) {
        ranks[i] = (rank_t){.peer = &ranks[!i], .held = held, .value = i ? 200 : 100};
        ranks[i].g = ground_new(device, 256);
        memset(ranks[i].g.pinned->host, 0, 256);
        well(gw__flag_take(device, &ranks[i].arrived, &why));
    }
    for (int i = 0; i < 2; i++)
        pthread_create(&ranks[i].thread, NULL, rank_run, &ranks[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        well(gw__flag_give(ranks[i].arrived));
        ground_free(&ranks[i].g);
    }
    current_is(context);
    release(device);
    return ranks[0].wrong + ranks[1].wrong;
}

START_TEST(streams_wait_for_peers)
{
    device_seed((uint64_t)_i, 0);
    ck_assert_int_eq(wrong_sums(true), 0);
}
END_TEST

START_TEST(streams_that_cannot_wait_are_served_by_the_host)
{
    setenv("GW_DOUBLE_MEMOPS", "0", 1);
    device_seed((uint64_t)_i, 0);
    ck_assert_int_eq(wrong_sums(true), 0);
}
END_TEST

/* Planted: a stream that does not wait reads what is not there yet. */
START_TEST(a_stream_that_does_not_wait_is_seen)
{
    if (!device_seed(2, 0)) {
        gw_test_skip("a stream that does not wait", "a GPU may be late enough");
        return;
    }
    ck_assert_int_gt(wrong_sums(false), 0);
}
END_TEST

/* ---- Captures, and the end ---------------------------------------------------------------------
 */

START_TEST(a_capture_elsewhere_is_not_disturbed)
{
    CUgraph graph;
    gw__piece_t *piece;
    gw__flag_t *flag;
    application(1);
    CUstream captured = stream_new(), stream = stream_new();
    must(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    gw__device_t *device = device_of(0);
    well(gw__piece_take(device, GW__POOL_DEVICE, 1000, stream, &piece, &why));
    gw__piece_give(device, piece);
    well(gw__flag_take(device, &flag, &why));
    well(gw__flag_give(flag));
    release(device);
    must(cuStreamEndCapture(captured, &graph));
    must(cuGraphDestroy(graph));
}
END_TEST

START_TEST(it_is_not_freed_before_its_work_has_ended)
{
    gw__piece_t *piece;
    gw__flag_t *flag;
    device_seed(0, 0);
    application(1);
    CUstream stream = stream_new();
    gw__device_t *device = device_of(0);
    if (!gw__device_has_memory_operations(device)) {
        gw_test_skip("a device object that is freed", "streams cannot wait for memory");
        return;
    }
    well(gw__flag_take(device, &flag, &why));
    well(gw__piece_take(device, GW__POOL_DEVICE, 1000, stream, &piece, &why));
    well(gw__device_enter(device, &why));
    well(gw__flag_hold(flag, stream, 1, &why));
    must(cuMemsetD32Async(piece->at, 7, 250, stream));
    gw__device_leave(device);
    well(gw__piece_give_after(device, piece, stream, &why));
    gives(GW_IN_PROGRESS, gw__device_release(device, &why)); /* the flag */
    gw__flag_raise(flag);
    must(cuStreamSynchronize(stream));
    well(gw__flag_give(flag));
    release(device);
    ck_assert_uint_eq(device_live_bytes(), 0);
    current_is(context);
}
END_TEST

/* A kernel that touches what it may not ends the context: everything says so, nothing hangs. */
START_TEST(a_broken_context_is_an_error_and_can_be_left)
{
    static float host[64];
    gw__stream_t queue;
    gw__piece_t *piece;
    application(1);
    CUstream stream = stream_new();
    gw__device_t *device = device_of(0);
    well(gw__device_queue(device, stream, &queue, &why));
    well(gw__piece_take(device, GW__POOL_DEVICE, 1000, stream, &piece, &why));
    well(gw__device_enter(device, &why));
    well(gw__cuda_sum.add(&queue.queue, as_pointer(0x10), host, 64));
    ck_assert_int_ne(cuStreamSynchronize(stream), CUDA_SUCCESS);
    gives(GW_ERR_DEVICE, gw__cuda_sum.add(&queue.queue, as_pointer(piece->at), host, 64));
    ck_assert_ptr_nonnull(strstr(queue.why.text, "gw_cuda_sum_add: cuLaunchKernel: CUDA_ERROR_"));
    gw__device_leave(device);
    gives(GW_ERR_DEVICE, gw__piece_give_after(device, piece, stream, &why));
    gw_status_t status = gw__device_release(device, &why);
    ck_assert(status == GW_OK || status == GW_ERR_DEVICE);
    current_is(context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_double");
    TCase *t = tcase_create("device_double");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, kinds_of_memory);
    tcase_add_test(t, memory_of_another_device_is_refused);
    tcase_add_loop_test(t, kernels_give_the_bytes_of_ref, 0, 6);
    tcase_add_loop_test(t, a_piece_is_not_used_before_its_last_use_has_ended, 0, 10);
    tcase_add_test(t, a_piece_that_is_given_back_too_early_is_seen);
    tcase_add_loop_test(t, streams_wait_for_peers, 0, 6);
    tcase_add_loop_test(t, streams_that_cannot_wait_are_served_by_the_host, 0, 4);
    tcase_add_test(t, a_stream_that_does_not_wait_is_seen);
    tcase_add_test(t, a_capture_elsewhere_is_not_disturbed);
    tcase_add_test(t, it_is_not_freed_before_its_work_has_ended);
    tcase_add_test(t, a_broken_context_is_an_error_and_can_be_left);
    suite_add_tcase(suite, t);
    return gw_test_main(suite);
}
