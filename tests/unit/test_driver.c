/* SPDX-License-Identifier: Apache-2.0 */
/* The double of libcuda.so.1: devices, memory, copies, launches, as the driver's manual has them.
 */
#include "driver_help.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- Devices and contexts ----------------------------------------------------------------------
 */

START_TEST(calls_want_init_and_a_context)
{
    int count, value;
    CUdeviceptr at;
    must_give(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    must_give(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    must(cuInit(0));
    must(cuInit(0));
    must(cuDeviceGetCount(&count));
    ck_assert_int_eq(count, 1);
    must_give(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&at, 64));
    must_give(CUDA_ERROR_INVALID_DEVICE,
              cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1));
    must(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    ck_assert_int_eq(value, 32);
    driver_begin(0, 0);
    must(cuMemAlloc_v2(&at, 64));
}
END_TEST

START_TEST(contexts_are_a_stack)
{
    CUcontext first, second, now;
    CUdevice device;
    setenv("GW_DOUBLE_DEVICES", "2", 1);
    driver_begin(0, 0);
    must(cuDevicePrimaryCtxRetain(&first, 0));
    must(cuDevicePrimaryCtxRetain(&second, 1));
    ck_assert_ptr_eq(first, driver_context);
    must(cuCtxPushCurrent_v2(second));
    must(cuCtxGetDevice(&device));
    ck_assert_int_eq(device, 1);
    must(cuCtxPopCurrent_v2(&now));
    ck_assert_ptr_eq(now, second);
    must(cuCtxGetCurrent(&now));
    ck_assert_ptr_eq(now, first);
    must(cuCtxSetCurrent(NULL));
    must_give(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    must_give(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&now));
    must(cuDevicePrimaryCtxRelease_v2(1));
    must_give(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(second));
}
END_TEST

START_TEST(there_may_be_no_device)
{
    int count;
    setenv("GW_DOUBLE_DEVICES", "0", 1);
    must_give(CUDA_ERROR_NO_DEVICE, cuInit(0));
    must_give(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
}
END_TEST

static void count_devices(void)
{
    int count;
    if (cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED)
        abort();
}

START_TEST(a_forked_process_has_no_driver)
{
    char text[256];
    driver_begin(0, 0);
    ck_assert_int_eq(driver_child(count_devices, text, sizeof text), 0);
}
END_TEST

START_TEST(functions_are_found_by_name_and_version)
{
    void *fn;
    CUdriverProcAddressQueryResult status;
    must(cuGetProcAddress_v2("cuMemAlloc", &fn, 12000, 0, &status));
    ck_assert_ptr_eq(fn, (void *)cuMemAlloc_v2);
    must(cuGetProcAddress_v2("cuStreamWaitValue32", &fn, 12000, 0, NULL));
    ck_assert_ptr_eq(fn, (void *)cuStreamWaitValue32_v2);
    must(cuGetProcAddress_v2("cuMemAllocAsync", &fn, 11010, 0, &status));
    ck_assert(!fn && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    must(cuGetProcAddress_v2("cuMemAllo", &fn, 12000, 0, &status));
    ck_assert(!fn && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    must(cuGetProcAddress_v2("cuStreamGetCaptureInfo", &fn, 13000, 0, &status));
    ck_assert(!fn && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    must_give(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &fn, 99000, 0, &status));
}
END_TEST

START_TEST(results_have_names)
{
    const char *text;
    must(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    ck_assert_str_eq(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    must(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    ck_assert_str_eq(text, "out of memory");
    must_give(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
    ck_assert_ptr_null(text);
}
END_TEST

/* ---- Memory ------------------------------------------------------------------------------------
 */

typedef struct facts {
    unsigned type;
    int managed, device;
    void *host;
    CUdeviceptr start;
    size_t bytes;
} facts_t;

static facts_t facts_of(const void *at)
{
    facts_t facts;
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&facts.type, &facts.managed, &facts.device,
                      &facts.host, &facts.start,   &facts.bytes};
    memset(&facts, 0xAB, sizeof facts);
    must(cuPointerGetAttributes(6, attributes, values, (CUdeviceptr)at));
    return facts;
}

static void must_be(const void *at, unsigned type, int managed, bool host)
{
    facts_t facts = facts_of(at);
    gw_check(facts.type == type && facts.managed == managed, "type %u, managed %d", facts.type,
             facts.managed);
    gw_check(facts.host == (host ? at : NULL), "host pointer %p", facts.host);
    gw_check(facts.device == (type ? 0 : CU_DEVICE_INVALID), "device %d", facts.device);
}

START_TEST(pointers_are_told_apart)
{
    CUdeviceptr device, managed;
    void *pinned;
    static char registered[8192], other[64];
    unsigned type;
    driver_begin(0, 0);
    must(cuMemAlloc_v2(&device, 1000));
    must(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
    must(cuMemHostAlloc(&pinned, 1000, CU_MEMHOSTALLOC_PORTABLE));
    must(cuMemHostRegister_v2(registered, sizeof registered, 0));
    must_be((char *)device + 999, CU_MEMORYTYPE_DEVICE, 0, false);
    must_be((char *)managed + 500, CU_MEMORYTYPE_DEVICE, 1, true);
    must_be((char *)pinned + 1, CU_MEMORYTYPE_HOST, 0, true);
    must_be(registered + 8191, CU_MEMORYTYPE_HOST, 0, true);
    must_be(other, 0, 0, false);
    must_be(NULL, 0, 0, false);
    must_be((char *)device + 1000, 0, 0, false);
    ck_assert_uint_eq(facts_of((char *)device + 7).start, device);
    ck_assert_uint_eq(facts_of((char *)device + 7).bytes, 1000);
    must_give(CUDA_ERROR_INVALID_VALUE,
              cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)other));
    must(cuMemFree_v2(device));
    must_be((char *)device, 0, 0, false);
    must(cuMemHostUnregister(registered));
    must_be(registered, 0, 0, false);
    must(cuMemFreeHost(pinned));
    must(cuMemFree_v2(managed));
}
END_TEST

START_TEST(memory_is_limited_aligned_and_not_used_again)
{
    CUdeviceptr at, again;
    size_t available, bytes;
    setenv("GW_DOUBLE_MEMORY", "1", 1);
    driver_begin(0, 0);
    must_give(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&at, (1 << 20) + 1));
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&at, 0));
    for (int i = 0; i < 300; i++) {
        must(cuMemAlloc_v2(&at, 1000000));
        ck_assert_uint_eq(at % 512, 0);
        must_give(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&again, 50000));
        must(cuMemFree_v2(at));
        must(cuMemAlloc_v2(&again, 1000000));
        ck_assert_uint_ne(at, again);
        must(cuMemGetInfo_v2(&available, &bytes));
        ck_assert_uint_eq(bytes - available, 1000000);
        must(cuMemFree_v2(again));
    }
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(again));
    must_say("freed before?");
    must(cuMemFree_v2(0));
}
END_TEST

START_TEST(host_memory_is_registered_once)
{
    static char some[10000];
    CUdeviceptr at;
    void *pinned;
    driver_begin(0, 0);
    must(cuMemHostRegister_v2(some + 1, 5000, 0));
    must_give(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(some + 5000, 10, 0));
    must_give(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(some, 9000, 0));
    must(cuMemHostGetDevicePointer_v2(&at, some + 1, 0));
    ck_assert_uint_eq(at, (CUdeviceptr)(some + 1));
    must_give(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(some));
    must(cuMemHostUnregister(some + 1));
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&at, some + 1, 0));
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2((void *)4096, 10, 0));
    must(cuMemHostAlloc(&pinned, 100, 0));
    must_give(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pinned));
    must(cuMemFreeHost(pinned));
}
END_TEST

/* ---- Copies ------------------------------------------------------------------------------------
 */

static void fill(char *at, size_t bytes, unsigned first)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(first + i * 7);
}

START_TEST(copies_go_between_all_places)
{
    enum { BYTES = 5003 };
    CUdeviceptr from, to, managed;
    void *pinned;
    static char in[BYTES], out[BYTES];
    for (uint64_t seed = 0; seed < 8; seed++) {
        driver_begin(seed, 0);
        fill(in, BYTES, (unsigned)seed);
        must(cuMemAlloc_v2(&from, BYTES));
        must(cuMemAlloc_v2(&to, BYTES + 1));
        must(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
        must(cuMemHostAlloc(&pinned, BYTES, 0));
        must(cuMemcpyHtoDAsync_v2(from, in, BYTES, NULL));
        must(cuMemcpyDtoDAsync_v2(to + 1, from, BYTES, NULL));
        must(cuMemcpyAsync(managed, to + 1, BYTES, NULL));
        must(cuMemcpyDtoHAsync_v2(pinned, managed, BYTES, NULL));
        must(cuMemcpy((CUdeviceptr)out, (CUdeviceptr)pinned, BYTES));
        gw_check(!memcmp(in, out, BYTES), "seed %d", (int)seed);
        must(cuMemsetD8_v2(from, 0x5A, BYTES));
        must(cuMemcpyDtoH_v2(out, from, BYTES));
        gw_check(out[0] == 0x5A && out[BYTES - 1] == 0x5A, "filled bytes");
        must(cuMemcpyHtoD_v2(from, in, BYTES));
        must(cuMemcpyDtoD_v2(to, from, BYTES));
        must(cuMemcpyDtoH_v2(out, to, BYTES));
        gw_check(!memcmp(in, out, BYTES), "synchronous, seed %d", (int)seed);
        must(cuMemFree_v2(from));
        must(cuMemFree_v2(to));
        must(cuMemFree_v2(managed));
        must(cuMemFreeHost(pinned));
    }
}
END_TEST

START_TEST(copies_stay_inside)
{
    CUdeviceptr device;
    static char host[4096];
    driver_begin(0, 0);
    must(cuMemAlloc_v2(&device, 1000));
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(device + 1, host, 1000));
    must_say("1000 bytes at");
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(host, device, 1001));
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2((CUdeviceptr)host, host, 10));
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(host, (CUdeviceptr)host, 10));
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(device + 2, 1, 10));
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(device, 1, 1001));
    must(cuMemFree_v2(device));
    must_give(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(device, host, 1));
    must(cuMemcpyHtoD_v2(0, NULL, 0));
}
END_TEST

/* What arrives when the source changes right after an asynchronous copy. */
static uint32_t late_word(uint64_t seed, bool pinned)
{
    void *word;
    uint32_t pageable = 1;
    driver_begin(seed, DRIVER_NEVER);
    must(cuMemHostAlloc(&word, 4, 0));
    uint32_t *source = pinned ? word : &pageable;
    CUdeviceptr at = driver_words(0, 1);
    *source = 1;
    must(cuMemcpyHtoDAsync_v2(at, source, 4, NULL));
    *source = 2;
    uint32_t arrived = driver_word(at);
    must(cuMemFreeHost(word));
    return arrived;
}

START_TEST(memory_of_the_host_is_read_late_or_at_once)
{
    unsigned seen = 0;
    for (uint64_t seed = 0; seed < 2; seed++)
        gw_check(late_word(seed, true) == 2, "pinned memory is read at once");
    ck_assert_uint_eq(late_word(0, false), 2);
    ck_assert_uint_eq(late_word(1, false), 1);
    for (uint64_t seed = 2; seed < 20; seed++)
        seen |= 1u << late_word(seed, false);
    ck_assert_uint_eq(seen, 6);
}
END_TEST

/* It has been read when the call returns, but need not have arrived for other streams. */
START_TEST(synchronous_copies_read_at_once)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        uint32_t word = 1, other = 7;
        driver_begin(seed, DRIVER_NEVER);
        CUstream stream = driver_stream(CU_STREAM_NON_BLOCKING);
        CUdeviceptr at = driver_words(0, 1);
        must(cuMemcpyHtoD_v2(at, &word, 4));
        word = 2;
        must(cuMemcpyDtoHAsync_v2(&other, at, 4, stream));
        must(cuStreamSynchronize(stream));
        gw_check(seed > 1 || other == seed, "seed %d: %u", (int)seed, other);
        gw_check(other < 2 && driver_word(at) == 1, "seed %d", (int)seed);
    }
}
END_TEST

/* ---- Launches ----------------------------------------------------------------------------------
 */

static CUresult launch(const char *name, unsigned grid, unsigned block, unsigned shared,
                       void **args)
{
    return cuLaunchKernel(driver_function(name), grid, 1, 1, block, 1, 1, shared, NULL, args, NULL);
}

START_TEST(kernels_take_their_arguments_at_the_launch)
{
    enum { COUNT = 1000 };
    static uint32_t out[COUNT];
    driver_begin(0, DRIVER_NEVER);
    CUdeviceptr data = driver_words(5, COUNT);
    uint32_t count = COUNT, value = 3;
    void *args[] = {&data, &count, &value};
    must(launch("driver_add", 3, 64, 0, args));
    value = count = 0;
    must(cuMemcpyDtoH_v2(out, data, sizeof out));
    for (int i = 0; i < COUNT; i++)
        gw_check(out[i] == 8, "word %d: %u", i, out[i]);
}
END_TEST

START_TEST(structs_of_pointers_are_looked_at)
{
    struct {
        CUdeviceptr at[3];
        uint64_t count;
    } list = {{0}, 2};
    driver_begin(0, 0);
    list.at[0] = driver_words(5, 100);
    list.at[1] = driver_words(6, 100);
    CUdeviceptr to = driver_words(0, 100);
    uint32_t count = 100, host = 0;
    void *args[] = {&list, &to, &count};
    must(launch("driver_sum", 2, 32, 0, args));
    ck_assert_uint_eq(driver_word(to + 396), 11);
    list.at[1] = (CUdeviceptr)&host;
    must(launch("driver_sum", 2, 32, 0, args));
    must_give(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    must_say("kernel driver_sum: parameter 0, byte 8 is");
    must_say("memory of the host");
}
END_TEST

START_TEST(pinned_and_managed_memory_are_for_kernels_too)
{
    CUdeviceptr managed;
    void *pinned;
    static uint32_t registered[64];
    uint32_t count = 1, value = 4;
    driver_begin(0, 0);
    must(cuMemAllocManaged(&managed, 4, CU_MEM_ATTACH_GLOBAL));
    must(cuMemHostAlloc(&pinned, 4, CU_MEMHOSTALLOC_DEVICEMAP));
    must(cuMemHostRegister_v2(registered, sizeof registered, 0));
    *(uint32_t *)managed = 1;
    *(uint32_t *)pinned = 2;
    registered[63] = 3;
    CUdeviceptr all[] = {managed, (CUdeviceptr)pinned, (CUdeviceptr)(registered + 63)};
    for (int i = 0; i < 3; i++) {
        void *args[] = {&all[i], &count, &value};
        must(launch("driver_add", 1, 32, 0, args));
    }
    must(cuCtxSynchronize());
    ck_assert_uint_eq(*(uint32_t *)managed, 5);
    ck_assert_uint_eq(*(uint32_t *)pinned, 6);
    ck_assert_uint_eq(registered[63], 7);
    must(cuMemFreeHost(pinned));
    must(cuMemHostUnregister(registered));
}
END_TEST

START_TEST(launches_that_no_driver_takes)
{
    CUfunction function;
    int value;
    driver_begin(0, 0);
    CUdeviceptr data = driver_words(0, 64);
    void *args[] = {&data, &data}, *few[] = {&data, NULL};
    must_give(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, driver_module, "driver_non"));
    must_give(CUDA_ERROR_INVALID_VALUE, launch("double_reverse", 0, 32, 0, args));
    must_give(CUDA_ERROR_INVALID_VALUE, launch("double_reverse", 1, 1025, 0, args));
    must_give(CUDA_ERROR_INVALID_VALUE, launch("double_reverse", 1, 32, 0, few));
    must_say("argument 1 of 2 is missing");
    must_give(CUDA_ERROR_INVALID_VALUE, launch("double_reverse", 1, 32, 50000, args));
    must_say("cuFuncSetAttribute allowed 49152");
    function = driver_function("double_reverse");
    must(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
    must(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
    ck_assert_int_eq(value, 60000);
    must(launch("double_reverse", 1, 32, 50000, args));
    must(cuCtxSynchronize());
    must(cuModuleUnload(driver_module));
    must_give(CUDA_ERROR_INVALID_HANDLE,
              cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    must_give(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&driver_module, "nothing"));
}
END_TEST

START_TEST(libraries_hold_for_every_context)
{
    CUlibrary library;
    CUmodule module, again;
    static const unsigned char fat_binary[8] = {0x50, 0xED, 0x55, 0xBA};
    driver_begin(0, 0);
    must(cuLibraryLoadData(&library, fat_binary, NULL, NULL, 0, NULL, NULL, 0));
    must(cuLibraryGetModule(&module, library));
    must(cuLibraryGetModule(&again, library));
    ck_assert_ptr_eq(module, again);
    must(cuModuleUnload(driver_module));
    driver_module = module;
    CUdeviceptr data = driver_words(1, 1);
    must(driver_scale(data, data, 5, NULL));
    ck_assert_uint_eq(driver_word(data), 6);
    must_give(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    must(cuLibraryUnload(library));
    must_give(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetModule(&module, library));
}
END_TEST

START_TEST(an_error_of_a_kernel_stays)
{
    CUdeviceptr at;
    uint32_t count = 1, value = 1;
    CUdeviceptr host = (CUdeviceptr)&count;
    void *args[] = {&host, &count, &value};
    driver_begin(0, DRIVER_NEVER);
    CUfunction add = driver_function("driver_add");
    must(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    must(cuMemAlloc_v2(&at, 64));
    must_give(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
    must_give(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&at, 64));
    must_give(CUDA_ERROR_ILLEGAL_ADDRESS,
              cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
}
END_TEST

/* ---- For those who test with it ----------------------------------------------------------------
 */

START_TEST(calls_fail_on_demand_and_are_counted)
{
    CUdeviceptr at;
    gw_driver_counts_t before, after;
    setenv("GW_DOUBLE_FAIL", "cuMemAlloc_v2:2:2", 1);
    driver_begin(0, 0);
    gw_driver_count(&before);
    must(cuMemAlloc_v2(&at, 64));
    must_give(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&at, 64));
    must(cuMemAlloc_v2(&at, 64));
    must(driver_scale(at, at, 1, NULL));
    must(cuCtxSynchronize());
    gw_driver_count(&after);
    ck_assert_uint_eq(after.allocations - before.allocations, 2);
    ck_assert_uint_eq(after.live_bytes, 128);
    ck_assert_uint_eq(after.launches, 1);
    must(cuDevicePrimaryCtxRelease_v2(0));
    gw_driver_count(&after);
    ck_assert_uint_eq(after.live_bytes, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("driver");
    TCase *tests = tcase_create("driver");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, calls_want_init_and_a_context);
    tcase_add_test(tests, contexts_are_a_stack);
    tcase_add_test(tests, there_may_be_no_device);
    tcase_add_test(tests, a_forked_process_has_no_driver);
    tcase_add_test(tests, functions_are_found_by_name_and_version);
    tcase_add_test(tests, results_have_names);
    tcase_add_test(tests, pointers_are_told_apart);
    tcase_add_test(tests, memory_is_limited_aligned_and_not_used_again);
    tcase_add_test(tests, host_memory_is_registered_once);
    tcase_add_test(tests, copies_go_between_all_places);
    tcase_add_test(tests, copies_stay_inside);
    tcase_add_test(tests, memory_of_the_host_is_read_late_or_at_once);
    tcase_add_test(tests, synchronous_copies_read_at_once);
    tcase_add_test(tests, kernels_take_their_arguments_at_the_launch);
    tcase_add_test(tests, structs_of_pointers_are_looked_at);
    tcase_add_test(tests, pinned_and_managed_memory_are_for_kernels_too);
    tcase_add_test(tests, launches_that_no_driver_takes);
    tcase_add_test(tests, libraries_hold_for_every_context);
    tcase_add_test(tests, an_error_of_a_kernel_stays);
    tcase_add_test(tests, calls_fail_on_demand_and_are_counted);
    suite_add_tcase(suite, tests);
    return gw_test_main(suite);
}
