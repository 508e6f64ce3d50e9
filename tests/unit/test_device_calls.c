/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces of device memory that are refused or fail: nothing is lost, nobody waits for ever. */
#include <unistd.h>

#include "comm_internal.h"
#include "device_seed.h"
#include "frame.h"
#include "gw_bound.h"
#include "gw_world.h"

enum { ELEMENTS = 3000, BYTES = 4 * ELEMENTS, RANKS = 3, CALLS = 3 };

#define must(call)                                                                                 \
    do {                                                                                           \
        CUresult must_result = call;                                                               \
        gw_check(!must_result, "%s:%d: %s gives %d", __FILE__, __LINE__, #call, (int)must_result); \
    } while (0)

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

static CUdeviceptr floats_new(float value)
{
    CUdeviceptr at;
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    must(cuMemAlloc_v2(&at, BYTES));
    must(cuMemsetD32_v2(at, bits, ELEMENTS));
    must(cuStreamSynchronize(NULL));
    return at;
}

static float float_at(CUdeviceptr at, size_t i)
{
    float value;
    must(cuMemcpyDtoH_v2(&value, at + 4 * i, 4));
    return value;
}

/* A world with these settings besides. */
static gw_world_t world_of(int ranks, void (*body)(gw_rank_t *rank), const char *codec,
                           const char *fault, const char *device)
{
    static gw_setting_t settings[8];
    size_t n = 0;
    settings[n++] = (gw_setting_t){"GRADWIRE_LOG", "off"};
    settings[n++] = (gw_setting_t){"GRADWIRE_MIN_BYTES", "0"};
    settings[n++] = (gw_setting_t){"GRADWIRE_THREADS", "1"};
    settings[n++] = (gw_setting_t){"GRADWIRE_TIMEOUT", "1"};
    settings[n++] = (gw_setting_t){"GRADWIRE_PLAN", "direct"};
    settings[n++] = (gw_setting_t){"GRADWIRE_CODEC", codec};
    settings[n++] = (gw_setting_t){"GRADWIRE_DEVICE", device ? device : "auto"};
    if (fault)
        settings[n++] = (gw_setting_t){"GRADWIRE_FAULT", fault};
    return (gw_world_t){.size = ranks,
                        .transport = fault ? "fault" : "loopback",
                        .settings = settings,
                        .setting_count = n,
                        .body = body};
}

static gw_status_t reduce_on(gw_comm_t *comm, CUstream stream, CUdeviceptr at)
{
    return gw_allreduce_on(comm, stream, NULL, as_pointer(at), ELEMENTS, GW_F32, GW_SUM);
}

/* The status of the calls so far, once they are over. */
static gw_status_t settle(gw_comm_t *comm)
{
    gw_status_t status = GW_IN_PROGRESS;
    while (status == GW_IN_PROGRESS) {
        status = gw_comm_query(comm);
        usleep(100);
    }
    return status;
}

static void expect(gw_comm_t *comm, gw_status_t status, gw_status_t expected, const char *part)
{
    gw_check(status == expected && strstr(gw_comm_error(comm), part), "%s: %s",
             gw_status_name(status), gw_comm_error(comm));
}

/* ---- Refused ------------------------------------------------------------------------------------
 */

static void refusals(gw_rank_t *rank)
{
    CUstream stream;
    CUgraph graph;
    gw_comm_t *comm = rank->comm;
    float *host = malloc(BYTES);
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr at = floats_new(1);
    expect(comm, gw_allreduce_on(comm, stream, NULL, host, ELEMENTS, GW_F32, GW_SUM),
           GW_ERR_UNSUPPORTED, "host memory knows no order of streams");
    expect(comm, gw_allreduce(comm, host, as_pointer(at), ELEMENTS, GW_F32, GW_SUM),
           GW_ERR_UNSUPPORTED, "come from host memory and go to device memory");
    expect(comm, gw_allreduce(comm, as_pointer(at), host, ELEMENTS, GW_F32, GW_SUM),
           GW_ERR_UNSUPPORTED, "come from device memory and go to host memory");
    must(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    expect(comm, reduce_on(comm, stream, at), GW_ERR_UNSUPPORTED, "is being captured");
    must(cuStreamEndCapture(stream, &graph));
    must(cuGraphDestroy(graph));
    gw_status_t status = reduce_on(comm, stream, at);
    gw_check(status == GW_OK, "afterwards: %s", gw_comm_error(comm));
    must(cuStreamSynchronize(stream));
    ck_assert_int_eq(settle(comm), GW_OK);
    ck_assert_float_eq_tol(float_at(at, ELEMENTS - 1), (float)rank->size, 0.01f);
    must(cuStreamDestroy_v2(stream));
    must(cuMemFree_v2(at));
    free(host);
}

START_TEST(what_cannot_be_done_is_refused)
{
    application();
    device_seed((uint64_t)_i, 0);
    gw_world_t world = world_of(2, refusals, "q8", NULL, NULL);
    gw_world_run(&world);
    ck_assert_uint_eq(device_live_bytes(), 0);
}
END_TEST

static void reduce_beside_a_capture(gw_rank_t *rank)
{
    CUstream stream;
    CUdeviceptr at = ((CUdeviceptr *)rank->arg)[rank->rank];
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < CALLS; i++)
        ck_assert_int_eq(reduce_on(rank->comm, stream, at), GW_OK);
    ck_assert_int_eq(settle(rank->comm), GW_OK);
}

/* Somebody else's capture, in its strictest mode, is not disturbed by calls beside it. */
START_TEST(a_capture_elsewhere_goes_on)
{
    CUstream captured;
    CUgraph graph;
    application();
    device_seed((uint64_t)_i, 0);
    CUdeviceptr at[2] = {floats_new(1), floats_new(1)};
    must(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    must(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    gw_world_t world = world_of(2, reduce_beside_a_capture, _i % 2 ? "lossless" : "q8", NULL, NULL);
    world.arg = at;
    gw_world_run(&world);
    must(cuStreamEndCapture(captured, &graph));
    must(cuGraphDestroy(graph));
    ck_assert_float_eq_tol(float_at(at[1], ELEMENTS - 1), 8.0f, 0.1f);
}
END_TEST

static void two_devices(gw_rank_t *rank)
{
    CUcontext second;
    CUdeviceptr at, other;
    must(cuCtxSetCurrent(context));
    at = floats_new(1);
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, as_pointer(at), ELEMENTS, GW_F32, GW_SUM),
                     GW_OK);
    must(cuDevicePrimaryCtxRetain(&second, 1));
    must(cuCtxSetCurrent(second));
    other = floats_new(1);
    expect(rank->comm, gw_allreduce(rank->comm, NULL, as_pointer(other), ELEMENTS, GW_F32, GW_SUM),
           GW_ERR_UNSUPPORTED, "memory of GPU 1, not of GPU 0");
    must(cuMemFree_v2(other));
    /* The default stream is the second device's now. */
    expect(rank->comm, reduce_on(rank->comm, NULL, at), GW_ERR_UNSUPPORTED, "another context");
    must(cuCtxSetCurrent(context));
    ck_assert_int_eq(reduce_on(rank->comm, CU_STREAM_PER_THREAD, at), GW_OK);
    must(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    ck_assert_float_eq_tol(float_at(at, 0), 4.0f, 0.1f);
    must(cuMemFree_v2(at));
}

START_TEST(a_communicator_has_one_device)
{
    setenv("GW_DOUBLE_DEVICES", "2", 1);
    application();
    int devices;
    must(cuDeviceGetCount(&devices));
    if (devices < 2) {
        gw_test_skip("memory of a second GPU", "there is one");
        return;
    }
    device_seed(0, 0);
    gw_world_t world = world_of(2, two_devices, "q8", NULL, NULL);
    gw_world_run(&world);
}
END_TEST

static void with_device_off(gw_rank_t *rank)
{
    must(cuCtxSetCurrent(context));
    CUdeviceptr at = floats_new(1);
    float host[4] = {1, 2, 3, 4};
    expect(rank->comm, gw_allreduce(rank->comm, NULL, as_pointer(at), ELEMENTS, GW_F32, GW_SUM),
           GW_ERR_UNSUPPORTED, "GRADWIRE_DEVICE=off");
    ck_assert_int_eq(gw_allreduce(rank->comm, NULL, host, 4, GW_F32, GW_SUM), GW_OK);
    must(cuMemFree_v2(at));
}

START_TEST(a_device_can_be_forbidden)
{
    application();
    device_seed(0, 0);
    gw_world_t world = world_of(2, with_device_off, "q8", NULL, "off");
    gw_world_run(&world);
}
END_TEST

static void alone(gw_rank_t *rank)
{
    CUstream stream;
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr from = floats_new(3), to = floats_new(0), on = floats_new(0);
    ck_assert_int_eq(
        gw_allreduce(rank->comm, as_pointer(from), as_pointer(to), ELEMENTS, GW_F32, GW_AVG),
        GW_OK);
    ck_assert_float_eq(float_at(to, ELEMENTS - 1), 3);
    ck_assert_int_eq(gw_allreduce_on(rank->comm, stream, as_pointer(from), as_pointer(on), ELEMENTS,
                                     GW_F32, GW_SUM),
                     GW_OK);
    must(cuStreamSynchronize(stream));
    ck_assert_float_eq(float_at(on, ELEMENTS - 1), 3);
    ck_assert_int_eq(gw_allreduce_on(rank->comm, stream, NULL, NULL, 0, GW_F32, GW_SUM), GW_OK);
    ck_assert_int_eq(settle(rank->comm), GW_OK);
    must(cuStreamDestroy_v2(stream));
    must(cuMemFree_v2(from));
    must(cuMemFree_v2(to));
    must(cuMemFree_v2(on));
}

START_TEST(one_rank_copies)
{
    application();
    device_seed((uint64_t)_i, 0);
    gw_world_t world = world_of(1, alone, "q8", NULL, NULL);
    gw_world_run(&world);
    ck_assert_uint_eq(device_live_bytes(), 0);
}
END_TEST

/* ---- Peers that fail ----------------------------------------------------------------------------
 */

typedef struct end {
    gw_status_t status[RANKS];
    int blamed[RANKS];
    char error[RANKS][512];
} end_t;

static void note(end_t *end, gw_rank_t *rank)
{
    end->status[rank->rank] = settle(rank->comm);
    end->blamed[rank->rank] = gw_comm_failed_rank(rank->comm);
    snprintf(end->error[rank->rank], sizeof end->error[0], "%s", gw_comm_error(rank->comm));
}

/* Calls until one fails; the stream goes on in any case. */
static void reduce_until_failure(gw_rank_t *rank)
{
    CUstream stream;
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr at = floats_new(1);
    for (int i = 0; i < CALLS; i++)
        if (reduce_on(rank->comm, stream, at) != GW_OK)
            break;
    must(cuStreamSynchronize(stream));
    note(rank->arg, rank);
    must(cuStreamDestroy_v2(stream));
    must(cuMemFree_v2(at));
}

START_TEST(streams_go_on_when_a_peer_dies)
{
    static const char *const codecs[] = {"q4", "lossless"};
    application();
    device_seed((uint64_t)_i, 0);
    end_t end;
    gw_world_t world =
        world_of(RANKS, reduce_until_failure, codecs[_i % 2], "over=loopback,kill=1@4", NULL);
    world.arg = &end;
    gw_world_run(&world);
    for (int r = 0; r < RANKS; r += 2)
        gw_check(end.status[r] == GW_ERR_PEER_FAILED && end.blamed[r] == 1, "rank %d: %s: %s", r,
                 gw_status_name(end.status[r]), end.error[r]);
    ck_assert_uint_eq(device_live_bytes(), 0);
}
END_TEST

/* A rank that never calls, and one that gives up waiting for it. */
static void free_early(gw_rank_t *rank)
{
    CUstream stream;
    if (rank->rank > 0) {
        usleep(300000);
        return;
    }
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr at = floats_new(1);
    for (int i = 0; i < CALLS; i++)
        ck_assert_int_eq(reduce_on(rank->comm, stream, at), GW_OK);
    gw_comm_free(rank->comm);
    rank->comm = NULL;
    must(cuStreamSynchronize(stream));
    must(cuStreamDestroy_v2(stream));
    must(cuMemFree_v2(at));
}

START_TEST(a_communicator_that_is_freed_lets_its_streams_go)
{
    application();
    device_seed((uint64_t)_i, 0);
    gw_world_t world = world_of(2, free_early, _i % 2 ? "q4" : "lossless", NULL, NULL);
    gw_world_run(&world);
    ck_assert_uint_eq(device_live_bytes(), 0);
}
END_TEST

/* ---- Frames that are damaged --------------------------------------------------------------------
 */

/* What rank 1 sends in place of its contributions: frames whose first bucket no encoder writes. */
static void send_damaged(const gw_rank_t *rank, const char *codec)
{
    static uint8_t frame[RANKS][BYTES];
    gw_comm_t *comm = rank->comm;
    gw_coder_t coder = gw_test_coder(codec);
    gw_work_t work = {.comm = comm,
                      .call = {GW_ALLREDUCE, GW_F32, GW_SUM, ELEMENTS, NULL, frame, 0},
                      .decision = {.plan = GW_PLAN_DIRECT, .coder = &coder}};
    gw__engine_call_t job = gw__call_job(&work, &coder);
    gw__task_t task[64];
    float *elements = calloc(ELEMENTS, sizeof *elements);
    gw_request_t request[RANKS];
    ck_assert_uint_le(gw__plan_max_tasks(GW_PLAN_DIRECT, rank->size), 64);
    uint32_t tasks = gw__plan_round(&job.plan, 0, task);
    for (uint32_t i = 0; i < tasks; i++) {
        int peer = task[i].peer;
        size_t length;
        if (task[i].kind != GW__TASK_SEND || task[i].stage != GW__PUSH)
            continue;
        gw_encode_t in = {.src = elements,
                          .src_dtype = GW_F32,
                          .wire_dtype = GW_F32,
                          .count = task[i].count,
                          .first = task[i].first};
        ck_assert_int_eq(gw_frame_encode(&coder, &in, frame[peer], BYTES, &length), GW_OK);
        memset(frame[peer] + GW_FRAME_HEADER, 0xFE, 8); /* numbers of the wrong sign, or none */
        memset(&request[peer], 0, sizeof request[peer]);
        comm->transport->send(comm->link, peer, gw__engine_tag(&job, task[i].channel, GW__PUSH),
                              frame[peer], length, &request[peer]);
    }
    for (int turn = 0; turn < 300; turn++) {
        comm->transport->progress(comm->link);
        usleep(1000);
    }
    free(elements);
}

static const char *const damaged[] = {"q4:ef=off", "q3r:ef=off", "sign", "fp8e4m3:ef=off"};
enum { DAMAGED = sizeof damaged / sizeof *damaged };
static const char *damaged_codec;

static void one_sends_damaged_frames(gw_rank_t *rank)
{
    must(cuCtxSetCurrent(context));
    if (rank->rank == 1)
        send_damaged(rank, damaged_codec);
    else
        reduce_until_failure(rank);
}

START_TEST(damaged_frames_are_blamed_on_their_sender)
{
    end_t end;
    application();
    device_seed((uint64_t)_i, 0);
    damaged_codec = damaged[_i];
    gw_world_t world = world_of(RANKS, one_sends_damaged_frames, damaged_codec, NULL, NULL);
    world.arg = &end;
    gw_world_run(&world);
    int seen = 0; /* the first to see it tells the other */
    for (int r = 0; r < RANKS; r += 2) {
        seen += end.status[r] == GW_ERR_FRAME_PAYLOAD;
        gw_check(end.blamed[r] == 1 && strstr(end.error[r], "payload not valid"),
                 "%s: rank %d blames %d: %s: %s", damaged_codec, r, end.blamed[r],
                 gw_status_name(end.status[r]), end.error[r]);
    }
    ck_assert_int_gt(seen, 0);
    ck_assert_uint_eq(device_live_bytes(), 0);
}
END_TEST

/* ---- A driver that fails ------------------------------------------------------------------------
 */

static const char *const functions[] = {
    "cuLaunchKernel",         "cuStreamWriteValue32_v2", "cuStreamWaitValue32_v2",
    "cuStreamWaitEvent",      "cuEventRecord",           "cuEventCreate",
    "cuMemAlloc_v2",          "cuMemHostAlloc",          "cuMemsetD8Async",
    "cuMemcpyDtoHAsync_v2",   "cuMemcpyHtoDAsync_v2",    "cuStreamCreateWithPriority",
    "cuStreamGetPriority",    "cuStreamQuery",           "cuCtxPushCurrent_v2",
    "cuPointerGetAttributes", "cuStreamIsCapturing"};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Calls of a function of which each fails once; ThreadSanitizer takes ten times as long. */
#if defined(__SANITIZE_THREAD__)
enum { CALLS_THAT_FAIL = 2 };
#else
enum { CALLS_THAT_FAIL = 6 };
#endif

/* Made before any rank begins, so that their numbers among such calls are known. */
static CUstream streams[2];

/* Nothing here may be one of the functions above: it would fail instead. */
static void reduce_with_a_driver_that_fails(gw_rank_t *rank)
{
    end_t *end = rank->arg;
    CUstream stream = streams[rank->rank];
    float host[ELEMENTS];
    must(cuCtxSetCurrent(context));
    CUdeviceptr at;
    must(cuMemAllocManaged(&at, BYTES, CU_MEM_ATTACH_GLOBAL));
    for (int i = 0; i < ELEMENTS; i++)
        host[i] = 1;
    must(cuMemcpyHtoD_v2(at, host, BYTES));
    must(cuStreamSynchronize(NULL));
    gw_status_t status = GW_OK;
    for (int i = 0; i < CALLS && status == GW_OK; i++)
        status = reduce_on(rank->comm, stream, at);
    must(cuStreamSynchronize(stream));
    gw_status_t told = settle(rank->comm);
    status = status != GW_OK ? status : told;
    end->status[rank->rank] = status;
    must(cuMemcpyDtoH_v2(host, at, BYTES));
    for (int i = 0; i < ELEMENTS && status == GW_OK; i++)
        gw_check(host[i] > 7.5f && host[i] < 8.5f, "rank %d: element %d is %g, not 8", rank->rank,
                 i, (double)host[i]);
    snprintf(end->error[rank->rank], sizeof end->error[0], "%s", gw_comm_error(rank->comm));
    must(cuMemFree_v2(at));
}

/* The test's own streams are made by the same function. */
static int made_by_the_test(const char *function)
{
    return strcmp(function, "cuStreamCreateWithPriority") == 0 ? 2 : 0;
}

/*
 * The n-th call of a function fails: it may not matter, else both ranks are told, and the streams
 * go on. Only who cannot give a result to its caller, although the exchange is over, is told alone.
 */
START_TEST(a_call_of_the_driver_that_fails_is_told)
{
    char which[64];
    const char *function = functions[_i % FUNCTIONS];
    bool through_host = _i / FUNCTIONS % 2;
    end_t end;
    snprintf(which, sizeof which, "%s:%d:%d", function,
             1 + made_by_the_test(function) + _i / FUNCTIONS, CUDA_ERROR_UNKNOWN);
    setenv("GW_DOUBLE_FAIL", which, 1);
    if (!device_seed(0, 0)) {
        if (_i == 0)
            gw_test_skip("a call of the driver that fails", "a GPU's do not");
        return;
    }
    application();
    for (int r = 0; r < 2; r++)
        must(cuStreamCreate(&streams[r], CU_STREAM_NON_BLOCKING));
    gw_world_t world = world_of(2, reduce_with_a_driver_that_fails,
                                through_host ? "lossless" : "q4:ef=on", NULL, NULL);
    world.arg = &end;
    gw_world_run(&world);
    bool alone = (end.status[0] != GW_OK) != (end.status[1] != GW_OK);
    gw_check(!alone || through_host, "%s: rank 0: %s (%s), rank 1: %s (%s)", which,
             gw_status_name(end.status[0]), end.error[0], gw_status_name(end.status[1]),
             end.error[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_calls");
    TCase *t = tcase_create("device_calls");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, what_cannot_be_done_is_refused, 0, 4);
    tcase_add_loop_test(t, a_capture_elsewhere_goes_on, 0, 4);
    tcase_add_test(t, a_communicator_has_one_device);
    tcase_add_test(t, a_device_can_be_forbidden);
    tcase_add_loop_test(t, one_rank_copies, 0, 3);
    tcase_add_loop_test(t, streams_go_on_when_a_peer_dies, 0, 6);
    tcase_add_loop_test(t, a_communicator_that_is_freed_lets_its_streams_go, 0, 4);
    tcase_add_loop_test(t, damaged_frames_are_blamed_on_their_sender, 0, DAMAGED);
    tcase_add_loop_test(t, a_call_of_the_driver_that_fails_is_told, 0, CALLS_THAT_FAIL * FUNCTIONS);
    suite_add_tcase(suite, t);
    return gw_test_main(suite);
}
