/* SPDX-License-Identifier: Apache-2.0 */
/* The double of libcuda.so.1: streams, events, values, host functions, captures and their order. */
#include "driver_help.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { SEEDS = 24 };

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static uint32_t *pinned_words(size_t count)
{
    void *at;
    must(cuMemHostAlloc(&at, 4 * count, CU_MEMHOSTALLOC_PORTABLE));
    memset(at, 0, 4 * count);
    return at;
}

static uint32_t load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Waits without any call of the driver. */
static void watch(const uint32_t *word, uint32_t value)
{
    for (int i = 0; load(word) != value; i++) {
        gw_check(i < 30000, "the word stays %u", load(word));
        sleep_ms(1);
    }
}

/* ---- When work runs ----------------------------------------------------------------------------
 */

START_TEST(nothing_runs_before_somebody_waits)
{
    driver_begin(0, DRIVER_NEVER);
    uint32_t *word = pinned_words(2);
    CUstream first = driver_stream(CU_STREAM_NON_BLOCKING),
             second = driver_stream(CU_STREAM_NON_BLOCKING);
    must(cuStreamWriteValue32_v2(first, (CUdeviceptr)&word[0], 1, 0));
    must(cuStreamWriteValue32_v2(second, (CUdeviceptr)&word[1], 1, 0));
    sleep_ms(30);
    gw_check(!load(&word[0]) && !load(&word[1]), "work ran by itself");
    must(cuStreamSynchronize(second));
    gw_check(!load(&word[0]) && load(&word[1]) == 1, "of the two, the second is wanted");
    must_give(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
    watch(&word[0], 1);
    while (cuStreamQuery(first))
        sleep_ms(1);
}
END_TEST

START_TEST(work_begins_by_itself_in_the_end)
{
    driver_begin(0, 20);
    uint32_t *word = pinned_words(2);
    CUdeviceptr data = driver_words(3, 1);
    must(driver_scale(data, data, 2, NULL));
    must(cuMemcpyDtoHAsync_v2(word, data, 4, NULL));
    must(cuStreamWriteValue32_v2(NULL, (CUdeviceptr)&word[1], 1, 0));
    watch(&word[1], 1);
    ck_assert_uint_eq(word[0], 7);
}
END_TEST

START_TEST(a_stream_keeps_its_order)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        driver_begin(seed, DRIVER_NEVER);
        CUstream stream = driver_stream(CU_STREAM_NON_BLOCKING);
        CUdeviceptr data = driver_words(1, 1);
        for (uint32_t factor = 2; factor < 6; factor++)
            must(driver_scale(data, data, factor, stream));
        must(cuStreamSynchronize(stream));
        ck_assert_uint_eq(driver_word(data), (((1 * 2 + 1) * 3 + 1) * 4 + 1) * 5 + 1);
    }
}
END_TEST

/* Two streams without order; 1 * 2 + 1 and 1 * 3 + 1 come in both orders. */
static uint32_t raced(uint64_t seed)
{
    driver_begin(seed, DRIVER_NEVER);
    CUdeviceptr data = driver_words(1, 1);
    must(driver_scale(data, data, 2, driver_stream(CU_STREAM_NON_BLOCKING)));
    must(driver_scale(data, data, 3, driver_stream(CU_STREAM_NON_BLOCKING)));
    must(cuCtxSynchronize());
    return driver_word(data);
}

START_TEST(the_seed_orders_streams)
{
    unsigned seen = 0;
    ck_assert_uint_eq(raced(0), 10);
    ck_assert_uint_eq(raced(1), 9);
    for (uint64_t seed = 2; seed < SEEDS; seed++)
        seen |= 1u << raced(seed);
    ck_assert_uint_eq(seen, 1u << 10 | 1u << 9);
}
END_TEST

START_TEST(a_stream_may_be_destroyed_with_work_in_it)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        driver_begin(seed, DRIVER_NEVER);
        CUstream stream = driver_stream(CU_STREAM_NON_BLOCKING);
        CUdeviceptr data = driver_words(1, 1);
        must(driver_scale(data, data, 2, stream));
        must(cuStreamDestroy_v2(stream));
        must_give(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
        must(cuCtxSynchronize());
        ck_assert_uint_eq(driver_word(data), 3);
        must_give(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
        must_say("is no stream of the current context");
    }
}
END_TEST

START_TEST(streams_have_flags_and_priorities)
{
    CUstream stream;
    CUcontext context;
    unsigned flags;
    int least, greatest, priority;
    driver_begin(0, 0);
    must(cuCtxGetStreamPriorityRange(&least, &greatest));
    must(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
    must(cuStreamGetPriority(stream, &priority));
    must(cuStreamGetFlags(stream, &flags));
    must(cuStreamGetCtx(stream, &context));
    gw_check(greatest < least && priority == greatest && flags == CU_STREAM_NON_BLOCKING &&
                 context == driver_context,
             "priority %d, flags %u", priority, flags);
    must_give(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 2));
}
END_TEST

/* ---- The legacy default stream -----------------------------------------------------------------
 */

/* In which order a kernel of the legacy stream and one of another stand in the result. */
static uint32_t with_legacy(uint64_t seed, unsigned flags, bool legacy_first)
{
    driver_begin(seed, DRIVER_NEVER);
    CUstream stream = driver_stream(flags);
    CUdeviceptr data = driver_words(1, 1), word;
    must(driver_scale(data, data, 2, legacy_first ? NULL : stream));
    must(driver_scale(data, data, 3, legacy_first ? stream : NULL));
    must(cuStreamSynchronize(legacy_first ? stream : CU_STREAM_LEGACY));
    uint32_t now = 0;
    CUstream reader = driver_stream(CU_STREAM_NON_BLOCKING);
    must(cuMemHostAlloc((void **)&word, 4, 0));
    must(cuMemcpyDtoHAsync_v2((void *)word, data, 4, reader));
    must(cuStreamSynchronize(reader));
    now = *(uint32_t *)word;
    return now;
}

START_TEST(the_legacy_stream_waits_and_is_waited_for)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        ck_assert_uint_eq(with_legacy(seed, CU_STREAM_DEFAULT, true), 10);
        ck_assert_uint_eq(with_legacy(seed, CU_STREAM_DEFAULT, false), 10);
    }
    gw_check(with_legacy(0, CU_STREAM_NON_BLOCKING, true) == 4, "a stream that does not wait");
    gw_check(with_legacy(0, CU_STREAM_NON_BLOCKING, false) == 4, "nor is waited for");
}
END_TEST

static void *scale_in_own_stream(void *at)
{
    CUdeviceptr data = *(CUdeviceptr *)at;
    must(cuCtxSetCurrent(driver_context));
    must(driver_scale(data, data, 2, CU_STREAM_PER_THREAD));
    must(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

START_TEST(each_thread_has_a_stream)
{
    driver_begin(0, DRIVER_NEVER);
    pthread_t thread;
    CUdeviceptr data = driver_words(1, 1), other = driver_words(1, 1);
    uint32_t *word = pinned_words(1);
    must(driver_scale(other, other, 2, CU_STREAM_PER_THREAD));
    must(cuMemcpyDtoHAsync_v2(word, other, 4, CU_STREAM_PER_THREAD));
    pthread_create(&thread, NULL, scale_in_own_stream, &data);
    pthread_join(thread, NULL);
    gw_check(!load(word), "the other thread's stream ran too");
    ck_assert_uint_eq(driver_word(data), 3); /* by the legacy stream, which waits for all of them */
    ck_assert_uint_eq(load(word), 3);
}
END_TEST

/* ---- Events ------------------------------------------------------------------------------------
 */

START_TEST(events_order_streams)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        driver_begin(seed, DRIVER_NEVER);
        CUstream first = driver_stream(CU_STREAM_NON_BLOCKING),
                 second = driver_stream(CU_STREAM_NON_BLOCKING);
        CUevent event = driver_event();
        CUdeviceptr data = driver_words(1, 1);
        must(driver_scale(data, data, 2, first));
        must(cuEventRecord(event, first));
        must(cuStreamWaitEvent(second, event, 0));
        must(driver_scale(data, data, 3, second));
        must(cuEventDestroy_v2(event));
        must(cuStreamSynchronize(second));
        ck_assert_uint_eq(driver_word(data), 10);
    }
}
END_TEST

/* Whoever waits, waits for the newest record before; later records do not matter. */
START_TEST(a_wait_is_for_the_record_before_it)
{
    driver_begin(0, DRIVER_NEVER);
    CUstream first = driver_stream(CU_STREAM_NON_BLOCKING),
             second = driver_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = driver_event();
    uint32_t *word = pinned_words(2);
    must(cuStreamWaitEvent(second, event, 0)); /* never recorded: nothing to wait for */
    must(cuEventQuery(event));
    must(cuEventSynchronize(event));
    must(cuStreamWriteValue32_v2(first, (CUdeviceptr)&word[0], 1, 0));
    must(cuEventRecord(event, first));
    must(cuStreamWaitEvent(second, event, 0));
    must(cuStreamWriteValue32_v2(first, (CUdeviceptr)&word[1], 1, 0));
    must(cuEventRecord(event, first));
    must(cuStreamSynchronize(second));
    gw_check(load(&word[0]) == 1 && !load(&word[1]), "%u, %u", load(&word[0]), load(&word[1]));
    must(cuEventSynchronize(event));
    ck_assert_uint_eq(load(&word[1]), 1);
    must(cuEventQuery(event));
    must(cuEventDestroy_v2(event));
    must_give(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
}
END_TEST

START_TEST(events_tell_the_time)
{
    CUevent start, end;
    float ms = -1;
    driver_begin(0, DRIVER_NEVER);
    must(cuEventCreate(&start, CU_EVENT_DEFAULT));
    must(cuEventCreate(&end, CU_EVENT_DEFAULT));
    must_give(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, end));
    must(cuEventRecord(start, NULL));
    must(cuEventSynchronize(start));
    must(cuEventRecord(end, NULL));
    must_give(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, start, end));
    sleep_ms(5);
    must(cuEventSynchronize(end));
    must(cuEventElapsedTime(&ms, start, end));
    gw_check(ms >= 4.9f, "%f ms", (double)ms);
    must(cuEventRecord(driver_event(), NULL));
    must_give(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, driver_event(), end));
    must_give(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&start, CU_EVENT_INTERPROCESS));
}
END_TEST

/* ---- Stream-ordered memory ---------------------------------------------------------------------
 */

START_TEST(memory_is_allocated_and_freed_in_order)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        driver_begin(seed, DRIVER_NEVER);
        CUstream stream = driver_stream(CU_STREAM_NON_BLOCKING);
        CUdeviceptr at, data = driver_words(4, 1);
        must(cuMemAllocAsync(&at, 4, stream));
        must(driver_scale(at, data, 5, stream));
        must(driver_scale(data, at, 2, stream));
        must(cuMemFreeAsync(at, stream));
        must(cuStreamSynchronize(stream));
        ck_assert_uint_eq(driver_word(data), 43);
        must_give(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(data, at, 4));
        must_give(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(at, stream));
    }
}
END_TEST

/* ---- Values ------------------------------------------------------------------------------------
 */

START_TEST(streams_wait_for_values_of_the_host)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        driver_begin(seed, 1);
        CUstream stream = driver_stream(CU_STREAM_NON_BLOCKING);
        uint32_t *word = pinned_words(4);
        must(cuStreamWaitValue32_v2(stream, (CUdeviceptr)&word[0], 5, CU_STREAM_WAIT_VALUE_GEQ));
        must(cuStreamWriteValue32_v2(stream, (CUdeviceptr)&word[2], 9, 0));
        store(&word[0], 4);
        sleep_ms(10);
        must_give(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
        ck_assert_uint_eq(load(&word[2]), 0);
        store(&word[0], 6);
        must(cuStreamSynchronize(stream));
        ck_assert_uint_eq(load(&word[2]), 9);
    }
}
END_TEST

/* A stream waits for `value` while the word is `is`; one that shall not pass is let go. */
static void must_pass(bool expected, uint64_t is, uint64_t value, unsigned condition, bool wide)
{
    CUdeviceptr at = driver_words(0, 2);
    CUstream stream = driver_stream(CU_STREAM_NON_BLOCKING),
             helper = driver_stream(CU_STREAM_NON_BLOCKING);
    uint64_t other = condition == CU_STREAM_WAIT_VALUE_AND   ? UINT64_MAX
                     : condition == CU_STREAM_WAIT_VALUE_NOR ? 0
                                                             : value;
    must(cuMemcpyHtoD_v2(at, &is, 8));
    must(cuCtxSynchronize());
    must(wide ? cuStreamWaitValue64_v2(stream, at, value, condition)
              : cuStreamWaitValue32_v2(stream, at, (uint32_t)value, condition));
    if (expected) {
        must(cuStreamSynchronize(stream));
        return;
    }
    for (int i = 0; i < 10; i++) {
        must_give(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
        sleep_ms(1);
    }
    must(cuStreamWriteValue64_v2(helper, at, other, 0));
    must(cuStreamSynchronize(stream));
}

START_TEST(conditions_are_those_of_the_driver)
{
    driver_begin(0, 0);
    must_pass(true, 5, 5, CU_STREAM_WAIT_VALUE_GEQ, false);
    must_pass(false, 4, 5, CU_STREAM_WAIT_VALUE_GEQ, false);
    must_pass(true, 3, 0xFFFFFFFF, CU_STREAM_WAIT_VALUE_GEQ, false); /* cyclic */
    must_pass(false, 3, 0xFFFFFFFF, CU_STREAM_WAIT_VALUE_GEQ, true);
    must_pass(true, (uint64_t)1 << 40, 7, CU_STREAM_WAIT_VALUE_GEQ, true);
    must_pass(false, (uint64_t)1 << 40, 7, CU_STREAM_WAIT_VALUE_GEQ, false);
    must_pass(false, 6, 5, CU_STREAM_WAIT_VALUE_EQ, false);
    must_pass(true, ((uint64_t)1 << 33) + 5, 5, CU_STREAM_WAIT_VALUE_EQ, false);
    must_pass(true, 6, 2, CU_STREAM_WAIT_VALUE_AND, true);
    must_pass(false, 6, 1, CU_STREAM_WAIT_VALUE_AND, true);
    must_pass(false, 0xFFFFFFF0, 0xF, CU_STREAM_WAIT_VALUE_NOR, false);
    must_pass(true, 0xFFFFFFF0, 0x7, CU_STREAM_WAIT_VALUE_NOR, false);
}
END_TEST

START_TEST(values_have_their_places)
{
    driver_begin(0, 0);
    uint32_t host = 0;
    CUdeviceptr managed, data = driver_words(0, 4);
    must(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
    must_give(CUDA_ERROR_INVALID_VALUE,
              cuStreamWaitValue32_v2(NULL, (CUdeviceptr)&host, 1, CU_STREAM_WAIT_VALUE_EQ));
    must_give(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(NULL, managed, 1, 0));
    must_give(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64_v2(NULL, data + 4, 1, 0));
    must_give(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2(NULL, data, 1, 4));
    must(cuStreamWriteValue32_v2(NULL, data + 12, 77, 0));
    ck_assert_uint_eq(driver_word(data + 12), 77);
}
END_TEST

START_TEST(a_driver_may_lack_values)
{
    int can = 7;
    setenv("GW_DOUBLE_MEMOPS", "0", 1);
    driver_begin(0, 0);
    must(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
    ck_assert_int_eq(can, 0);
    must_give(CUDA_ERROR_NOT_SUPPORTED, cuStreamWriteValue32_v2(NULL, driver_words(0, 1), 1, 0));
}
END_TEST

/* Two streams that wait for each other's values in turn: while one waits, others must go on. */
START_TEST(streams_play_ping_pong)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        driver_begin(seed, DRIVER_NEVER);
        CUdeviceptr ball = driver_words(0, 1);
        CUstream side[2] = {driver_stream(CU_STREAM_NON_BLOCKING),
                            driver_stream(CU_STREAM_NON_BLOCKING)};
        for (uint32_t i = 0; i < 10; i++) {
            must(cuStreamWaitValue32_v2(side[i % 2], ball, i, CU_STREAM_WAIT_VALUE_EQ));
            must(cuStreamWriteValue32_v2(side[i % 2], ball, i + 1, 0));
        }
        must(cuStreamSynchronize(side[1]));
        ck_assert_uint_eq(driver_word(ball), 10);
    }
}
END_TEST

/* ---- Host functions ----------------------------------------------------------------------------
 */

typedef struct note {
    uint32_t seen, called;
    const uint32_t *word;
    pthread_t thread;
    CUresult result;
} note_t;

static void take_note(void *argument)
{
    note_t *note = argument;
    note->seen = load(note->word);
    note->thread = pthread_self();
    note->called++;
}

START_TEST(host_functions_have_their_place_and_one_thread)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        driver_begin(seed, DRIVER_NEVER);
        uint32_t *word = pinned_words(2);
        CUstream stream[2];
        note_t note[2] = {{.word = &word[0]}, {.word = &word[1]}};
        for (uint32_t i = 0; i < 2; i++) {
            stream[i] = driver_stream(CU_STREAM_NON_BLOCKING);
            must(cuStreamWriteValue32_v2(stream[i], (CUdeviceptr)&word[i], 1, 0));
            must(cuLaunchHostFunc(stream[i], take_note, &note[i]));
            must(cuStreamWriteValue32_v2(stream[i], (CUdeviceptr)&word[i], 2, 0));
        }
        must(cuCtxSynchronize());
        for (uint32_t i = 0; i < 2; i++)
            gw_check(note[i].called == 1 && note[i].seen == 1 && load(&word[i]) == 2,
                     "called %u, saw %u", note[i].called, note[i].seen);
        gw_check(pthread_equal(note[0].thread, note[1].thread) &&
                     !pthread_equal(note[0].thread, pthread_self()),
                 "threads of host functions");
    }
}
END_TEST

static void signal_word(void *argument)
{
    store(argument, 1);
}

/* What the device layer does: signal from the host function, wait in the stream. */
START_TEST(a_host_function_signals_and_the_stream_waits)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        driver_begin(seed, 1);
        CUstream stream = driver_stream(CU_STREAM_NON_BLOCKING);
        uint32_t *word = pinned_words(3);
        CUdeviceptr data = driver_words(1, 1);
        must(driver_scale(data, data, 4, stream));
        must(cuLaunchHostFunc(stream, signal_word, &word[0]));
        must(cuStreamWaitValue32_v2(stream, (CUdeviceptr)&word[1], 1, CU_STREAM_WAIT_VALUE_GEQ));
        must(cuMemcpyDtoHAsync_v2(&word[2], data, 4, stream));
        watch(&word[0], 1);
        ck_assert_uint_eq(load(&word[2]), 0);
        store(&word[1], 1); /* the peer has come */
        must(cuStreamSynchronize(stream));
        ck_assert_uint_eq(load(&word[2]), 5);
    }
}
END_TEST

START_TEST(host_functions_are_not_called_after_an_error)
{
    driver_begin(0, DRIVER_NEVER);
    uint32_t *word = pinned_words(1), host = 0;
    CUdeviceptr data = driver_words(0, 1);
    CUstream stream = driver_stream(CU_STREAM_NON_BLOCKING);
    must(driver_scale(data, (CUdeviceptr)&host, 2, stream));
    must(cuLaunchHostFunc(stream, signal_word, word));
    must_give(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    ck_assert_uint_eq(load(word), 0);
}
END_TEST

/* ---- Captures ----------------------------------------------------------------------------------
 */

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status;
    must(cuStreamIsCapturing(stream, &status));
    return status;
}

START_TEST(captures_are_told_apart)
{
    driver_begin(0, DRIVER_NEVER);
    CUstream stream = driver_stream(CU_STREAM_NON_BLOCKING),
             other = driver_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = driver_event();
    CUdeviceptr data = driver_words(1, 1);
    CUgraph graph = NULL, seen = NULL;
    CUstreamCaptureStatus status;
    uint64_t id = 0;
    ck_assert_int_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    must(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    must(driver_scale(data, data, 2, stream));
    must(cuEventRecord(event, stream));
    must(cuStreamWaitEvent(other, event, 0));
    ck_assert_int_eq(status_of(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    must(cuStreamGetCaptureInfo_v2(other, &status, &id, &seen, NULL, NULL));
    gw_check(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id, "status %d", (int)status);
    must_give(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &graph));
    must(cuStreamEndCapture(stream, &graph));
    ck_assert_ptr_eq(graph, seen);
    ck_assert_int_eq(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
    must(cuGraphDestroy(graph));
    ck_assert_uint_eq(driver_word(data), 1); /* what was captured did not run */
}
END_TEST

typedef CUresult (*call_fn)(CUstream stream, CUevent event);

static CUresult capture_allocates(CUstream stream, CUevent event)
{
    CUdeviceptr at;
    return cuMemAlloc_v2(&at, 64);
}

static CUresult capture_synchronizes(CUstream stream, CUevent event)
{
    return cuStreamSynchronize(stream);
}

static CUresult capture_asks(CUstream stream, CUevent event)
{
    return cuStreamQuery(stream);
}

static CUresult capture_asks_event(CUstream stream, CUevent event)
{
    return cuEventQuery(event);
}

static CUresult capture_uses_legacy(CUstream stream, CUevent event)
{
    return cuLaunchHostFunc(NULL, signal_word, NULL);
}

START_TEST(what_no_capture_may_see_ends_it)
{
    static const struct {
        call_fn call;
        CUresult result;
    } cases[] = {{capture_allocates, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
                 {capture_synchronizes, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
                 {capture_asks, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
                 {capture_asks_event, CUDA_ERROR_CAPTURED_EVENT},
                 {capture_uses_legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT}};
    driver_begin(0, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUstream stream = driver_stream(CU_STREAM_DEFAULT);
        CUevent event = driver_event();
        CUgraph graph = (CUgraph)1;
        must(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        must(cuEventRecord(event, stream));
        CUresult result = cases[i].call(stream, event);
        gw_check(result == cases[i].result, "case %zu gives %d", i, (int)result);
        ck_assert_int_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        must_give(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
        gw_check(!graph && status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE, "after its end");
    }
}
END_TEST

START_TEST(a_relaxed_thread_may_allocate_in_a_capture)
{
    driver_begin(0, 0);
    CUstream stream = driver_stream(CU_STREAM_DEFAULT);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus status;
    CUdeviceptr at;
    CUgraph graph;
    must(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    must_give(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    must(cuThreadExchangeStreamCaptureMode(&mode));
    ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    must(cuMemAlloc_v2(&at, 64));
    must(cuThreadExchangeStreamCaptureMode(&mode));
    must(cuStreamEndCapture(stream, &graph));
    must(cuGraphDestroy(graph));
}
END_TEST

/* ---- Many threads ------------------------------------------------------------------------------
 */

static void *rank(void *argument)
{
    CUdeviceptr *data = argument;
    must(cuCtxSetCurrent(driver_context));
    CUstream stream[2] = {driver_stream(CU_STREAM_NON_BLOCKING),
                          driver_stream(CU_STREAM_NON_BLOCKING)};
    uint32_t count = 500, value = 1, result = 0;
    void *args[] = {data, &count, &value};
    CUfunction add = driver_function("driver_add");
    for (int i = 0; i < 20; i++) {
        CUevent event = driver_event();
        must(cuLaunchKernel(add, 2, 1, 1, 64, 1, 1, 0, stream[i % 2], args, NULL));
        must(cuEventRecord(event, stream[i % 2]));
        must(cuStreamWaitEvent(stream[1 - i % 2], event, 0));
        must(cuEventDestroy_v2(event));
    }
    must(cuStreamSynchronize(stream[0]));
    must(cuMemcpyDtoHAsync_v2(&result, *data + 499 * 4, 4, stream[0]));
    must(cuStreamSynchronize(stream[0]));
    gw_check(result == 20, "%u", result);
    must(cuStreamDestroy_v2(stream[0]));
    must(cuStreamDestroy_v2(stream[1]));
    return NULL;
}

START_TEST(ranks_as_threads_share_a_device)
{
    enum { RANKS = 4 };
    for (uint64_t seed = 0; seed < 4; seed++) {
        pthread_t thread[RANKS];
        CUdeviceptr data[RANKS];
        driver_begin(seed, 1);
        for (int i = 0; i < RANKS; i++)
            data[i] = driver_words(0, 500);
        for (int i = 0; i < RANKS; i++)
            pthread_create(&thread[i], NULL, rank, &data[i]);
        for (int i = 0; i < RANKS; i++)
            pthread_join(thread[i], NULL);
    }
}
END_TEST

static void add_order(TCase *tests)
{
    tcase_add_test(tests, nothing_runs_before_somebody_waits);
    tcase_add_test(tests, work_begins_by_itself_in_the_end);
    tcase_add_test(tests, a_stream_keeps_its_order);
    tcase_add_test(tests, the_seed_orders_streams);
    tcase_add_test(tests, a_stream_may_be_destroyed_with_work_in_it);
    tcase_add_test(tests, streams_have_flags_and_priorities);
    tcase_add_test(tests, the_legacy_stream_waits_and_is_waited_for);
    tcase_add_test(tests, each_thread_has_a_stream);
    tcase_add_test(tests, events_order_streams);
    tcase_add_test(tests, a_wait_is_for_the_record_before_it);
    tcase_add_test(tests, events_tell_the_time);
    tcase_add_test(tests, memory_is_allocated_and_freed_in_order);
}

int main(void)
{
    Suite *suite = suite_create("driver_streams");
    TCase *tests = tcase_create("streams");
    tcase_set_timeout(tests, 120);
    add_order(tests);
    tcase_add_test(tests, streams_wait_for_values_of_the_host);
    tcase_add_test(tests, conditions_are_those_of_the_driver);
    tcase_add_test(tests, values_have_their_places);
    tcase_add_test(tests, a_driver_may_lack_values);
    tcase_add_test(tests, streams_play_ping_pong);
    tcase_add_test(tests, host_functions_have_their_place_and_one_thread);
    tcase_add_test(tests, a_host_function_signals_and_the_stream_waits);
    tcase_add_test(tests, host_functions_are_not_called_after_an_error);
    tcase_add_test(tests, captures_are_told_apart);
    tcase_add_test(tests, what_no_capture_may_see_ends_it);
    tcase_add_test(tests, a_relaxed_thread_may_allocate_in_a_capture);
    tcase_add_test(tests, ranks_as_threads_share_a_device);
    suite_add_tcase(suite, tests);
    return gw_test_main(suite);
}
