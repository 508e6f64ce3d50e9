/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of the driver fails in turn: a status, a sentence that names it, and nothing left. */
#include "device_help.h"

enum { MOST = 260, RELEASES = 3 };

static const CUstream one = (CUstream)(uintptr_t)0x101, two = (CUstream)(uintptr_t)0x202;

/* What a walk through the whole device layer holds; what it has is given back at its end. */
typedef struct walk {
    fake_driver_t *fake;
    gw__device_t *device;
    gw__piece_t *pieces[3];
    gw__flag_t *flags[2];
    CUevent event;
    bool has_event;
    gw__stream_t queue;
} walk_t;

static gw_status_t in_context(walk_t *w)
{
    float *at = (float *)(uintptr_t)4096;
    gw_status_t status = gw__device_enter(w->device, &device_why);
    if (status != GW_OK)
        return status;
    status = gw__cuda_sum.add(&w->queue.queue, at, at, 100);
    if (status != GW_OK)
        device_why = w->queue.why;
    if (status == GW_OK)
        status = gw__flag_raise_after(w->flags[0], one, true, NULL, &device_why);
    if (status == GW_OK)
        status = gw__flag_raise_after(w->flags[0], one, false, NULL, &device_why);
    if (status == GW_OK)
        status = gw__flag_hold(w->flags[1], one, 1, &device_why);
    if (status == GW_IN_PROGRESS && !gw__device_has_memory_operations(w->device))
        status = GW_OK;
    gw__device_leave(w->device);
    return status;
}

static gw_status_t take(walk_t *w, int i, gw__pool_kind_t kind, CUstream stream)
{
    return gw__piece_take(w->device, kind, 300000, stream, &w->pieces[i], &device_why);
}

static gw_status_t give_after(walk_t *w, int i, CUstream stream)
{
    gw__piece_t *piece = w->pieces[i];
    w->pieces[i] = NULL;
    return gw__piece_give_after(w->device, piece, stream, &device_why);
}

/* A piece that is still in use: waited for in the stream; the second pool has no room for more. */
static gw_status_t memory(walk_t *w)
{
    gw_status_t status = take(w, 0, GW__POOL_DEVICE, one);
    if (status == GW_OK)
        status = take(w, 1, GW__POOL_PINNED, one);
    if (status == GW_OK)
        status = give_after(w, 0, one);
    w->fake->busy = true;
    if (status == GW_OK)
        status = take(w, 0, GW__POOL_DEVICE, two);
    w->fake->busy = false;
    return status;
}

static gw_status_t walk(walk_t *w)
{
    const gw__device_limits_t limits = {400000, 400000};
    gw__memory_t kind;
    gw_status_t status = gw__device_acquire(0, &limits, &w->device, &device_why);
    if (status == GW_OK)
        status = gw__device_kind(w, &kind, &device_why);
    if (status == GW_OK)
        status = memory(w);
    if (status == GW_OK)
        status = gw__event_take(w->device, &w->event, &device_why);
    w->has_event = w->device && status == GW_OK;
    for (int i = 0; status == GW_OK && i < 2; i++)
        status = gw__flag_take(w->device, &w->flags[i], &device_why);
    if (status == GW_OK)
        status = gw__device_queue(w->device, one, &w->queue, &device_why);
    if (status == GW_OK)
        status = gw__device_queue(w->device, CU_STREAM_LEGACY, &w->queue, &device_why);
    if (status == GW_ERR_UNSUPPORTED) /* as it must be: another context is current */
        status = GW_OK;
    return status == GW_OK ? in_context(w) : status;
}

static gw_status_t give_all(walk_t *w)
{
    gw_status_t status = GW_OK;
    for (int i = 0; i < 3; i++)
        if (w->pieces[i])
            gw__piece_give(w->device, w->pieces[i]);
    for (int i = 0; i < 2; i++)
        if (w->flags[i])
            well(gw__flag_give(w->flags[i]));
    if (w->has_event)
        gw__event_give(w->device, w->event);
    for (int i = 0; w->device && i < RELEASES; i++) {
        gw_status_t released = gw__device_release(w->device, &device_why);
        status = released == GW_OK ? status : released;
        if (released == GW_OK)
            w->device = NULL;
    }
    ck_assert_ptr_null(w->device);
    return status;
}

/* Calls whose failure nobody can do anything about, or after which there is nothing to do: the ends
 * of things, and a question about an event, which a lost context answers by an error. */
static bool may_be_silent(const char *call)
{
    static const char *const calls[] = {"cuCtxPopCurrent_v2", "cuThreadExchangeStreamCaptureMode",
                                        "cuEventQuery",       "cuEventDestroy_v2",
                                        "cuMemFree_v2",       "cuMemFreeHost",
                                        "cuLibraryUnload",    "cuModuleUnload",
                                        "cuStreamDestroy_v2", "cuDevicePrimaryCtxRelease_v2"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(call, calls[i]) == 0)
            return true;
    return false;
}

static void fail_at(int at, const char *which, CUresult with, gw_status_t expected)
{
    fake_driver_t *fake = device_begin(which);
    walk_t w = {.fake = fake};
    fake->fail_at = at;
    fake->fail_with = with;
    gw_status_t status = walk(&w), released = give_all(&w);
    status = status == GW_OK ? released : status;
    if (!fake->failed) {
        gw_check(status == GW_OK, "nothing failed, and yet: %s", device_why.text);
        gw_check(at > fake->calls, "call %d of %d did not fail", at, fake->calls);
    } else if (status == GW_OK) {
        gw_check(may_be_silent(fake->failed), "call %d, %s: nobody was told", at, fake->failed);
    } else {
        gw_check(status == expected, "call %d, %s: %s", at, fake->failed, gw_status_name(status));
        gw_check(strstr(device_why.text, fake->failed), "call %d, %s: %s", at, fake->failed,
                 device_why.text);
    }
    gw_check(at < MOST - 1 || !fake->failed, "%d calls are more than are tried", fake->calls);
    device_end(fake);
}

START_TEST(every_call_fails_in_turn)
{
    fail_at(_i, "full", CUDA_ERROR_UNKNOWN, GW_ERR_DEVICE);
}
END_TEST

START_TEST(every_call_of_an_older_driver_fails_in_turn)
{
    fail_at(_i, "plain", CUDA_ERROR_UNKNOWN, GW_ERR_DEVICE);
}
END_TEST

START_TEST(every_call_has_no_memory_in_turn)
{
    fail_at(_i, "full", CUDA_ERROR_OUT_OF_MEMORY, GW_ERR_NO_MEMORY);
}
END_TEST

/* The walk goes where it says, or a call that fails would prove nothing. */
START_TEST(the_walk_makes_every_call)
{
    static const char *const all[] = {"cuInit",
                                      "cuDeviceGetCount",
                                      "cuDeviceGet",
                                      "cuCtxPushCurrent_v2",
                                      "cuLibraryLoadData",
                                      "cuLibraryGetModule",
                                      "cuModuleGetFunction",
                                      "cuFuncGetAttribute",
                                      "cuMemHostAlloc",
                                      "cuMemHostGetDevicePointer_v2",
                                      "cuStreamCreate",
                                      "cuStreamWaitValue32_v2",
                                      "cuStreamWriteValue32_v2",
                                      "cuStreamSynchronize",
                                      "cuMemAlloc_v2",
                                      "cuEventCreate",
                                      "cuEventRecord",
                                      "cuStreamWaitEvent",
                                      "cuStreamGetCtx",
                                      "cuCtxGetCurrent",
                                      "cuLaunchKernel",
                                      "cuLaunchHostFunc",
                                      "cuPointerGetAttributes",
                                      "cuDevicePrimaryCtxRetain",
                                      "cuDevicePrimaryCtxGetState",
                                      "cuDeviceGetAttribute",
                                      "cuDeviceTotalMem_v2",
                                      "cuEventQuery",
                                      "cuThreadExchangeStreamCaptureMode"};
    fake_driver_t *fake = device_begin("full");
    walk_t w = {.fake = fake};
    well(walk(&w));
    well(give_all(&w));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool made = false;
        for (int c = 0; c < FAKE_NAMES; c++)
            made = made || (fake->names[c] && strcmp(fake->names[c], all[i]) == 0);
        gw_check(made, "%s is not called", all[i]);
    }
    device_end(fake);
}
END_TEST

/* Planted: a context that stays, an object, a piece or a capture mode that is not given back. */
START_TEST(what_is_left_is_seen)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_t *device;
    gw__piece_t *piece;
    well(gw__device_acquire(0, NULL, &device, &device_why));
    ck_assert_str_eq(device_left(fake), "the device is retained");
    if (_i == 1)
        well(gw__device_enter(device, &device_why));
    well(gw__device_release(device, &device_why));
    if (_i == 2)
        fake->relaxed++;
    if (_i == 3) {
        well(gw__device_acquire(0, NULL, &device, &device_why));
        well(gw__piece_take(device, GW__POOL_DEVICE, 1, one, &piece, &device_why));
        fake->alive[FAKE_RETAINED] = fake->alive[FAKE_LIBRARIES] = 0;
    }
    static const char *const seen[] = {NULL, "another context is current", "captures are relaxed",
                                       "device memory"};
    const char *left = device_left(fake);
    gw_check(seen[_i] ? left && strcmp(left, seen[_i]) == 0 : !left, "%s", left ? left : "nothing");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_faults");
    TCase *t = tcase_create("device_faults");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_walk_makes_every_call);
    tcase_add_loop_test(t, every_call_fails_in_turn, 1, MOST);
    tcase_add_loop_test(t, every_call_of_an_older_driver_fails_in_turn, 1, MOST);
    tcase_add_loop_test(t, every_call_has_no_memory_in_turn, 1, MOST);
    tcase_add_loop_test(t, what_is_left_is_seen, 0, 4);
    suite_add_tcase(suite, t);
    return gw_test_main(suite);
}
