/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes that programs make with CUDA, each of which the driver's double must show and name. */
#include "driver_help.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { SEEDS = 24 };

static char text[32768];

static bool ended_badly(int status)
{
    return WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status));
}

#define child_must_say(body, part)                                                                 \
    do {                                                                                           \
        gw_check(ended_badly(driver_child(body, text, sizeof text)), #body " ends well:\n%s",      \
                 text);                                                                            \
        gw_check(strstr(text, part), "no word of \"%s\" in:\n%s", part, text);                     \
    } while (0)

static CUresult launch(const char *name, unsigned block, void **args)
{
    return cuLaunchKernel(driver_function(name), 1, 1, 1, block, 1, 1, 0, NULL, args, NULL);
}

/* ---- A missing wait ----------------------------------------------------------------------------
 */

/* One stream makes 1 * 5 + 1, the other doubles it and adds 1: right is 13. */
static bool pipeline_is_right(uint64_t seed, bool wait)
{
    driver_begin(seed, DRIVER_NEVER);
    CUstream first = driver_stream(CU_STREAM_NON_BLOCKING),
             second = driver_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr in = driver_words(1, 1), middle = driver_words(0, 1), out = driver_words(0, 1);
    CUevent event = driver_event();
    must(driver_scale(middle, in, 5, first));
    must(cuEventRecord(event, first));
    if (wait)
        must(cuStreamWaitEvent(second, event, 0));
    must(driver_scale(out, middle, 2, second));
    must(cuStreamSynchronize(second));
    uint32_t result = driver_word(out);
    must(cuCtxSynchronize());
    return result == 13;
}

START_TEST(a_missing_event_wait_gives_another_result)
{
    int wrong = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        gw_check(pipeline_is_right(seed, true), "with the wait, seed %d", (int)seed);
        wrong += !pipeline_is_right(seed, false);
    }
    gw_check(!pipeline_is_right(0, false) && !pipeline_is_right(1, false), "seeds 0 and 1 hide it");
    gw_check(wrong >= SEEDS / 3, "only %d of %d seeds show it", wrong, SEEDS);
}
END_TEST

START_TEST(a_missing_synchronization_shows_old_bytes)
{
    void *at;
    driver_begin(0, DRIVER_NEVER);
    CUdeviceptr data = driver_words(7, 1);
    must(cuMemHostAlloc(&at, 4, 0));
    *(uint32_t *)at = 0;
    must(cuMemcpyDtoHAsync_v2(at, data, 4, NULL));
    gw_check(*(uint32_t *)at == 0, "the copy ran before anyone waited");
    must(cuStreamSynchronize(NULL));
    gw_check(*(uint32_t *)at == 7, "after the wait");
}
END_TEST

START_TEST(memory_before_its_allocation_is_a_missing_wait)
{
    driver_begin(0, DRIVER_NEVER);
    CUstream first = driver_stream(CU_STREAM_NON_BLOCKING),
             second = driver_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at, data = driver_words(1, 1);
    must(cuMemAllocAsync(&at, 4, first));
    must(driver_scale(at, data, 2, second));
    must_give(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(second));
    must_say("kernel driver_scale: parameter 0");
    must_say("its stream has not come to the allocation: a missing wait");
}
END_TEST

/* ---- Wrong addresses ---------------------------------------------------------------------------
 */

START_TEST(a_pointer_of_the_host_is_refused)
{
    uint32_t count = 1, value = 1, *host = malloc(64);
    void *args[] = {&host, &count, &value};
    driver_begin(0, 0);
    must(launch("driver_add", 32, args));
    must_give(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
    must_say("kernel driver_add: parameter 0");
    must_say("memory of the host");
    free(host);
}
END_TEST

START_TEST(use_after_free_is_refused)
{
    uint32_t count = 1, value = 1;
    driver_begin(0, DRIVER_NEVER);
    CUdeviceptr data = driver_words(0, 1);
    void *args[] = {&data, &count, &value};
    must(launch("driver_add", 32, args));
    must(cuMemFree_v2(data)); /* the kernel has not run */
    must_give(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
    must_say("kernel driver_add: parameter 0");
    must_say("use after free");
}
END_TEST

/* The kernel finds the address in memory, where nobody looks before it runs. */
static void use_after_free_through_memory(void)
{
    uint32_t value = 1;
    driver_begin(0, 0);
    CUdeviceptr data = driver_words(0, 1), table = driver_words(0, 2);
    void *args[] = {&table, &value};
    must(cuMemcpyHtoD_v2(table, &data, sizeof data));
    must(launch("driver_through", 1, args));
    must(cuCtxSynchronize());
    must(cuMemFree_v2(data));
    must(launch("driver_through", 1, args));
    cuCtxSynchronize();
}

START_TEST(use_after_free_in_a_kernel_ends_the_program)
{
    child_must_say(use_after_free_through_memory, "kernel driver_through touched");
    gw_check(strstr(text, "inside of the freed allocation"), "%s", text);
}
END_TEST

static void copy_from_freed(bool pinned)
{
    void *from = NULL;
    driver_begin(0, DRIVER_NEVER);
    CUdeviceptr to = driver_words(0, 1), source = 0;
    if (pinned)
        must(cuMemHostAlloc(&from, 4, 0));
    else
        source = driver_words(0, 1);
    must(cuMemcpyAsync(to, pinned ? (CUdeviceptr)from : source, 4, NULL));
    if (pinned)
        must(cuMemFreeHost(from));
    else
        must(cuMemFree_v2(source));
    must_give(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
    must_say("a copy of 4 bytes is at");
}

START_TEST(a_copy_from_freed_device_memory_fails)
{
    copy_from_freed(false);
    must_say("inside of the freed allocation");
}
END_TEST

START_TEST(a_copy_from_freed_pinned_memory_fails)
{
    copy_from_freed(true);
}
END_TEST

/* Seven words, of which the kernel writes eight. */
static void write_one_more(void)
{
    uint32_t count = 7;
    driver_begin(0, 0);
    CUdeviceptr data = driver_words(0, 7);
    void *args[] = {&data, &count};
    must(launch("driver_one_more", 32, args));
    if (cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS)
        abort();
}

START_TEST(a_write_behind_the_end_is_named)
{
    child_must_say(write_one_more, "kernel driver_one_more");
    gw_check(strstr(text, "0 bytes behind the end of the allocation"), "%s", text);
    gw_check(strstr(text, "of 28 bytes"), "%s", text);
}
END_TEST

/* Nothing may stand open from the kernel before. */
static void touch_device_memory(void)
{
    driver_begin(0, 0);
    CUdeviceptr data = driver_words(0, 1);
    *(volatile uint32_t *)data = 1;
}

static void read_device_memory_by_libc(void)
{
    char bytes[4];
    driver_begin(0, 0);
    CUdeviceptr data = driver_words(0, 1);
    memcpy(bytes, (const void *)data, 4);
    if (bytes[0] == 3)
        puts("3");
}

START_TEST(the_host_may_not_touch_device_memory)
{
    child_must_say(touch_device_memory, "code of the host touched");
    child_must_say(read_device_memory_by_libc, "code of the host touched");
    gw_check(strstr(text, "inside of the allocation"), "%s", text);
}
END_TEST

START_TEST(nor_may_system_calls)
{
    int ends[2];
    driver_begin(0, 0);
    CUdeviceptr data = driver_words(0, 1);
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq((int)write(ends[1], (const void *)data, 4), -1);
}
END_TEST

/* ---- Wrong kernels -----------------------------------------------------------------------------
 */

START_TEST(a_barrier_that_not_all_reach_is_an_error)
{
    driver_begin(0, 0);
    CUdeviceptr data = driver_words(0, 32);
    void *args[] = {&data};
    must(launch("driver_no_barrier", 32, args));
    must_give(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(NULL));
    must_say("kernel driver_no_barrier: block 0, thread 0 waits at the barrier of the block");
    must_give(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
}
END_TEST

/* ---- Wrong host functions ----------------------------------------------------------------------
 */

static uint32_t arrived[2];

static void wait_for_peer(void *argument)
{
    uint32_t *own = argument, *other = own == arrived ? arrived + 1 : arrived;
    __atomic_store_n(own, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(other, __ATOMIC_ACQUIRE))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Two ranks whose host functions meet: with a thread for each it would end. */
static void meet_in_host_functions(void)
{
    gw_driver_setting_t setting;
    gw_driver_get(&setting);
    setting.patience_ms = 300;
    gw_driver_set(&setting);
    driver_begin(0, 0);
    for (int i = 0; i < 2; i++)
        must(cuLaunchHostFunc(driver_stream(CU_STREAM_NON_BLOCKING), wait_for_peer, arrived + i));
    must(cuCtxSynchronize());
}

START_TEST(a_host_function_that_waits_for_a_peer_is_named)
{
    child_must_say(meet_in_host_functions, "host function ");
    gw_check(strstr(text, "test_driver_planted+0x"), "%s", text);
    gw_check(strstr(text, "1 wait behind it on the driver's one thread"), "%s", text);
    gw_check(strstr(text, "may not wait for others"), "%s", text);
}
END_TEST

static void call_cuda(void *argument)
{
    *(CUresult *)argument = cuStreamQuery(NULL);
}

START_TEST(a_host_function_may_not_call_cuda)
{
    CUresult result = CUDA_SUCCESS;
    driver_begin(0, 0);
    must(cuLaunchHostFunc(NULL, call_cuda, &result));
    must(cuCtxSynchronize());
    ck_assert_int_eq(result, CUDA_ERROR_NOT_PERMITTED);
    must_say("cuStreamQuery: called by a host function");
}
END_TEST

START_TEST(a_value_that_nobody_writes_is_named)
{
    void *word;
    gw_driver_setting_t setting;
    gw_driver_get(&setting);
    setting.patience_ms = 100;
    gw_driver_set(&setting);
    driver_begin(0, 0);
    must(cuMemHostAlloc(&word, 4, 0));
    *(uint32_t *)word = 0;
    must(cuStreamWaitValue32_v2(NULL, (CUdeviceptr)word, 9, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; !strstr(gw_driver_said(), "for the value 9 at") && i < 30000; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    must_say("nobody has written it");
    __atomic_store_n((uint32_t *)word, 9, __ATOMIC_RELEASE);
    must(cuCtxSynchronize());
}
END_TEST

/* ---- What ThreadSanitizer sees -----------------------------------------------------------------
 */

#if defined(__SANITIZE_THREAD__)
/* The host writes the source of a copy that may be reading it. */
static void write_under_a_copy(void)
{
    static uint32_t words[1000];
    driver_begin(0, 0);
    CUdeviceptr data = driver_words(0, 1000);
    must(cuMemHostRegister_v2(words, sizeof words, 0));
    must(cuMemcpyHtoDAsync_v2(data, words, sizeof words, NULL));
    nanosleep(&(struct timespec){0, 200000000}, NULL);
    words[999] = 1;
    must(cuCtxSynchronize());
    exit(0);
}

START_TEST(a_write_under_a_copy_is_a_race)
{
    child_must_say(write_under_a_copy, "data race");
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("driver_planted");
    TCase *tests = tcase_create("planted");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_missing_event_wait_gives_another_result);
    tcase_add_test(tests, a_missing_synchronization_shows_old_bytes);
    tcase_add_test(tests, memory_before_its_allocation_is_a_missing_wait);
    tcase_add_test(tests, a_pointer_of_the_host_is_refused);
    tcase_add_test(tests, use_after_free_is_refused);
    tcase_add_test(tests, use_after_free_in_a_kernel_ends_the_program);
    tcase_add_test(tests, a_copy_from_freed_device_memory_fails);
    tcase_add_test(tests, a_copy_from_freed_pinned_memory_fails);
    tcase_add_test(tests, a_write_behind_the_end_is_named);
    tcase_add_test(tests, the_host_may_not_touch_device_memory);
    tcase_add_test(tests, nor_may_system_calls);
    tcase_add_test(tests, a_barrier_that_not_all_reach_is_an_error);
    tcase_add_test(tests, a_host_function_that_waits_for_a_peer_is_named);
    tcase_add_test(tests, a_host_function_may_not_call_cuda);
    tcase_add_test(tests, a_value_that_nobody_writes_is_named);
#if defined(__SANITIZE_THREAD__)
    tcase_add_test(tests, a_write_under_a_copy_is_a_race);
#endif
    suite_add_tcase(suite, tests);
    return gw_test_main(suite);
}
