/* SPDX-License-Identifier: Apache-2.0 */
/* The device layer on a fake driver: what is found, who owns memory, what is kept, who waits. */
#include "device_help.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gradwire/context.h>

/* ---- The library -------------------------------------------------------------------------------
 */

START_TEST(nothing_is_loaded_unasked)
{
    gw__memory_t memory;
    int word;
    ck_assert_ptr_null(gw__driver_loaded());
    well(gw__device_kind(&word, &memory, &device_why));
    ck_assert_int_eq(memory.kind, GW__MEMORY_HOST);
    ck_assert_int_eq(memory.ordinal, -1);
    ck_assert_ptr_null(dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW));
}
END_TEST

START_TEST(no_library_is_a_sentence)
{
    const gw__driver_t *cu;
    gw__device_t *device;
    char why[256] = "";
    int count = 7, version = 7;
    if (dlopen("libcuda.so.1", RTLD_NOW))
        return; /* this machine has one */
    gives(GW_ERR_NO_MODULE, gw__driver_start(&cu, &device_why));
    says("libcuda.so.1");
    gives(GW_ERR_NO_MODULE, gw__device_acquire(0, NULL, &device, &device_why));
    says("no CUDA driver");
    gives(GW_ERR_NO_MODULE, gw_device_count(&count, &version, why, sizeof why));
    ck_assert_ptr_nonnull(strstr(why, "libcuda.so.1"));
    ck_assert_int_eq(count, 7);
}
END_TEST

START_TEST(a_library_that_is_too_old_is_a_sentence)
{
    fake_driver_t *fake = device_fake("old");
    const gw__driver_t *cu;
    gw__memory_t memory;
    gives(GW_ERR_NO_MODULE, gw__driver_start(&cu, &device_why));
    says("CUDA 10.2 and lacks cuDevicePrimaryCtxRelease_v2: CUDA 11.0 or newer");
    /* But its device memory is known as such, so that nobody reads it. */
    fake->type = CU_MEMORYTYPE_DEVICE;
    well(gw__device_kind(fake, &memory, &device_why));
    ck_assert_int_eq(memory.kind, GW__MEMORY_DEVICE);
}
END_TEST

START_TEST(a_library_without_a_device_is_a_sentence)
{
    fake_driver_t *fake = device_fake("full");
    const gw__driver_t *cu;
    if (_i == 0)
        fake->devices = 0;
    fake->fail_at = _i;
    fake->fail_with = CUDA_ERROR_NO_DEVICE;
    gives(GW_ERR_NO_MODULE, gw__driver_start(&cu, &device_why));
    says(_i ? "cuInit: CUDA_ERROR_NO_DEVICE: there is no CUDA device" : "finds no device");
    int calls = fake->calls;
    gives(GW_ERR_NO_MODULE, gw__driver_start(&cu, &device_why));
    ck_assert_int_eq(fake->calls, calls);
}
END_TEST

static void *start(void *out)
{
    const gw__driver_t *cu = NULL;
    gw__driver_start(&cu, NULL);
    *(const gw__driver_t **)out = cu;
    return NULL;
}

START_TEST(threads_start_one_driver)
{
    enum { THREADS = 8 };
    const gw__driver_t *cu[THREADS];
    pthread_t threads[THREADS];
    device_fake("full");
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, start, &cu[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_ptr_nonnull(cu[0]);
    for (int i = 1; i < THREADS; i++)
        ck_assert_ptr_eq(cu[i], cu[0]);
    ck_assert_ptr_nonnull(cu[0]->cuLaunchKernel);
}
END_TEST

static int status_in_child(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        gw__device_t *device;
        gw_status_t got = gw__device_acquire(0, NULL, &device, &device_why);
        _exit(got == GW_OK                                                       ? 0
              : got == GW_ERR_NO_MODULE && strstr(device_why.text, "was forked") ? 1
                                                                                 : 2);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

START_TEST(a_fork_is_seen)
{
    gw__device_t *device;
    device_fake("full");
    ck_assert_int_eq(status_in_child(), 0); /* nobody had started it */
    well(gw__device_acquire(0, NULL, &device, &device_why));
    ck_assert_int_eq(status_in_child(), 1);
    well(gw__device_release(device, &device_why));
}
END_TEST

START_TEST(results_are_statuses)
{
    gives(GW_OK, gw__driver_check("cuX", CUDA_SUCCESS, &device_why));
    gives(GW_IN_PROGRESS, gw__driver_check("cuX", CUDA_ERROR_NOT_READY, &device_why));
    ck_assert_str_eq(device_why.text, "");
    gives(GW_ERR_NO_MEMORY, gw__driver_check("cuX", CUDA_ERROR_OUT_OF_MEMORY, &device_why));
    ck_assert_str_eq(device_why.text, "cuX: CUDA_ERROR_OUT_OF_MEMORY: out of memory");
    gives(GW_ERR_INVALID, gw__driver_check("cuX", CUDA_ERROR_INVALID_HANDLE, &device_why));
    gives(GW_ERR_UNSUPPORTED,
          gw__driver_check("cuX", CUDA_ERROR_STREAM_CAPTURE_ISOLATION, &device_why));
    gives(GW_ERR_DEVICE, gw__driver_check("cuX", CUDA_ERROR_ILLEGAL_ADDRESS, &device_why));
    gives(GW_ERR_DEVICE, gw__driver_check("cuX", (CUresult)12345, &device_why));
    ck_assert_str_eq(device_why.text, "cuX: CUDA error 12345");
}
END_TEST

/* ---- Memory ------------------------------------------------------------------------------------
 */

START_TEST(kinds_of_memory)
{
    static const struct {
        unsigned type, managed;
        gw__memory_kind_t kind;
        const char *name;
    } kinds[] = {{0, 0, GW__MEMORY_HOST, "host"},
                 {CU_MEMORYTYPE_HOST, 0, GW__MEMORY_PINNED, "pinned"},
                 {CU_MEMORYTYPE_DEVICE, 0, GW__MEMORY_DEVICE, "device"},
                 {CU_MEMORYTYPE_DEVICE, 1, GW__MEMORY_MANAGED, "managed"},
                 {CU_MEMORYTYPE_HOST, 1, GW__MEMORY_MANAGED, "managed"}};
    fake_driver_t *fake = device_begin("full");
    gw__memory_t memory;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fake->type = kinds[i].type;
        fake->managed = kinds[i].managed;
        fake->ordinal = kinds[i].type ? 1 : CU_DEVICE_INVALID;
        well(gw__device_kind(fake, &memory, &device_why));
        ck_assert_int_eq(memory.kind, kinds[i].kind);
        ck_assert_str_eq(gw__memory_kind_name(memory.kind), kinds[i].name);
        ck_assert_int_eq(memory.ordinal, kinds[i].type ? 1 : -1);
    }
    ck_assert_int_eq(fake->calls, 5); /* one each, and no cuInit */
    well(gw__device_kind(NULL, &memory, &device_why));
    ck_assert_int_eq(fake->calls, 5);
    fake->fail_with = CUDA_ERROR_NOT_INITIALIZED; /* a process that has not started CUDA */
    fake->fail_at = 6;
    well(gw__device_kind(fake, &memory, &device_why));
    ck_assert_int_eq(memory.kind, GW__MEMORY_HOST);
    fake->fail_with = CUDA_ERROR_ILLEGAL_ADDRESS;
    fake->fail_at = 7;
    gives(GW_ERR_DEVICE, gw__device_kind(fake, &memory, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(memory_of_others_is_refused)
{
    fake_driver_t *fake = device_begin("full");
    gw__memory_t memory = {GW__MEMORY_DEVICE, 0, 4096, device_primary};
    gw__device_t *device;
    well(gw__device_acquire(0, NULL, &device, &device_why));
    well(gw__device_owns(device, &memory, &device_why));
    memory.context = NULL; /* stream-ordered memory has none */
    well(gw__device_owns(device, &memory, &device_why));
    memory.context = device_other;
    gives(GW_ERR_UNSUPPORTED, gw__device_owns(device, &memory, &device_why));
    says("another context of GPU 0");
    memory.ordinal = 1;
    gives(GW_ERR_UNSUPPORTED, gw__device_owns(device, &memory, &device_why));
    says("memory of GPU 1, not of GPU 0");
    memory.kind = GW__MEMORY_PINNED;
    well(gw__device_owns(device, &memory, &device_why));
    memory.kind = GW__MEMORY_HOST;
    gives(GW_ERR_UNSUPPORTED, gw__device_owns(device, &memory, &device_why));
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

/* It may come at any time, and is looked for without a search of the file system. */
START_TEST(a_library_that_comes_later_is_seen)
{
    gw__memory_t memory;
    for (int i = 0; i < 3; i++) {
        well(gw__device_kind(&memory, &memory, &device_why));
        ck_assert_int_eq(memory.kind, GW__MEMORY_HOST);
    }
    void *other = dlopen("libm.so.6", RTLD_NOW);
    well(gw__device_kind(&memory, &memory, &device_why));
    ck_assert_int_eq(memory.kind, GW__MEMORY_HOST);
    fake_driver_t *fake = device_fake("full");
    fake->type = CU_MEMORYTYPE_DEVICE;
    well(gw__device_kind(&memory, &memory, &device_why));
    ck_assert_int_eq(memory.kind, GW__MEMORY_DEVICE);
    if (other)
        dlclose(other);
}
END_TEST

/* ---- The object --------------------------------------------------------------------------------
 */

START_TEST(one_object_for_a_device)
{
    static const char *const fakes[] = {"full", "plain"};
    fake_driver_t *fake = device_begin(fakes[_i]);
    gw__device_t *first, *second, *other;
    well(gw__device_acquire(0, NULL, &first, &device_why));
    int calls = fake->calls;
    well(gw__device_acquire(0, NULL, &second, &device_why));
    ck_assert_ptr_eq(first, second);
    ck_assert_int_eq(fake->calls, calls);
    well(gw__device_acquire(1, NULL, &other, &device_why));
    ck_assert_ptr_ne(first, other);
    ck_assert_int_eq(gw__device_ordinal(other), 1);
    ck_assert_int_eq(fake->alive[FAKE_RETAINED], 2);
    ck_assert_int_eq(fake->alive[_i ? FAKE_LIBRARIES : FAKE_MODULES], 0);
    ck_assert(fake->alive[_i ? FAKE_MODULES : FAKE_LIBRARIES] >= 12);
    ck_assert_int_eq(gw__device_has_memory_operations(first), !_i);
    gives(GW_ERR_INVALID, gw__device_acquire(2, NULL, &other, &device_why));
    gives(GW_ERR_INVALID, gw__device_acquire(-1, NULL, &other, &device_why));
    gives(GW_ERR_INVALID, gw__device_acquire(64, NULL, &other, &device_why));
    says("no GPU 64");
    well(gw__device_release(other, &device_why));
    well(gw__device_release(first, &device_why));
    ck_assert_int_eq(fake->alive[FAKE_RETAINED], 1);
    well(gw__device_release(second, &device_why));
    well(gw__device_release(NULL, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(no_primary_context_is_made)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_t *device;
    fake->inactive = true;
    gives(GW_ERR_UNSUPPORTED, gw__device_acquire(0, NULL, &device, &device_why));
    says("primary context of GPU 0 is not in use");
    device_end(fake);
}
END_TEST

START_TEST(launches_go_to_the_stream)
{
    fake_driver_t *fake = device_begin("full");
    CUstream stream = (CUstream)(uintptr_t)0x77;
    gw__device_t *device;
    gw__stream_t queue;
    gw__device_figures_t figures;
    float *at = (float *)(uintptr_t)4096;
    fake->spilled = 3;
    well(gw__device_acquire(0, NULL, &device, &device_why));
    well(gw__device_queue(device, stream, &queue, &device_why));
    well(gw__device_enter(device, &device_why));
    well(gw__cuda_sum.add(&queue.queue, at, at, 100000000));
    gw__device_leave(device);
    ck_assert_str_eq(fake->kernel, "gw_cuda_sum_add");
    ck_assert_ptr_eq(fake->stream, stream);
    ck_assert_uint_eq(fake->grid, 7 * 2048 / GW_CUDA_BLOCK);
    ck_assert_uint_eq(fake->block, GW_CUDA_BLOCK);
    gives(GW_ERR_INTERNAL, queue.queue.launch(&queue.queue, "gw_cuda_sum_ad", 1, 32, 0, NULL));
    gives(GW_ERR_INTERNAL, queue.queue.launch(&queue.queue, "zzz", 1, 32, 0, NULL));
    ck_assert_str_eq(queue.why.text, "gw_cuda_sum_ad: there is no such kernel");
    gw__device_figures(device, &figures);
    ck_assert_uint_ge(figures.kernels, 15);
    ck_assert_uint_eq(figures.spilled, 3 * figures.kernels);
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(blocks_have_no_more_threads_than_registers_allow)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_t *device;
    gw__stream_t queue;
    float *at = (float *)(uintptr_t)4096;
    fake->threads = 200;
    well(gw__device_acquire(0, NULL, &device, &device_why));
    well(gw__device_queue(device, (CUstream)(uintptr_t)0x77, &queue, &device_why));
    well(gw__device_enter(device, &device_why));
    well(gw__cuda_sum.add(&queue.queue, at, at, 100000000));
    ck_assert_uint_eq(fake->block, 192);
    queue.queue.block = 64;
    well(gw__cuda_sum.add(&queue.queue, at, at, 100000000));
    ck_assert_uint_eq(fake->block, 64);
    gw__device_leave(device);
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(streams_of_other_contexts_are_refused)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_t *device;
    gw__stream_t queue;
    well(gw__device_acquire(0, NULL, &device, &device_why));
    fake->of_stream = device_other;
    gives(GW_ERR_UNSUPPORTED,
          gw__device_queue(device, (CUstream)(uintptr_t)0x77, &queue, &device_why));
    says("stream is of another context");
    gives(GW_ERR_UNSUPPORTED, gw__device_queue(device, NULL, &queue, &device_why));
    gives(GW_ERR_UNSUPPORTED, gw__device_queue(device, CU_STREAM_LEGACY, &queue, &device_why));
    fake->stack[0] = device_primary;
    well(gw__device_queue(device, NULL, &queue, &device_why));
    fake->depth = 0; /* a thread without a context: of whoever enters next */
    well(gw__device_queue(device, CU_STREAM_PER_THREAD, &queue, &device_why));
    well(gw__device_release(device, &device_why));
    ck_assert_int_eq(fake->depth, 0);
    fake->stack[fake->depth++] = device_other;
    device_end(fake);
}
END_TEST

/* ---- Pieces and events -------------------------------------------------------------------------
 */

static const CUstream one = (CUstream)(uintptr_t)0x101, two = (CUstream)(uintptr_t)0x202;

static gw__piece_t *taken(gw__device_t *device, gw__pool_kind_t kind, size_t bytes, CUstream stream)
{
    gw__piece_t *piece = NULL;
    well(gw__piece_take(device, kind, bytes, stream, &piece, &device_why));
    ck_assert(piece->bytes >= bytes && piece->taken);
    ck_assert_int_eq(piece->host != NULL, kind == GW__POOL_PINNED);
    return piece;
}

START_TEST(pieces_are_kept)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_limits_t limits = {1 << 20, 1 << 20};
    gw__device_t *device;
    gw__device_figures_t before, after;
    well(gw__device_acquire(0, &limits, &device, &device_why));
    for (int round = 0; round < 20; round++)
        for (int kind = 0; kind < 2; kind++) {
            gw__piece_t *piece = taken(device, kind, 100000 + 10 * (size_t)round, one);
            well(gw__piece_give_after(device, piece, one, &device_why));
            if (!round)
                gw__device_figures(device, &before);
        }
    gw__device_figures(device, &after);
    ck_assert_uint_eq(after.allocations, before.allocations);
    ck_assert_uint_eq(after.pieces, 2);
    ck_assert_uint_eq(after.pieces_taken, 0);
    ck_assert_uint_eq(after.device_bytes, after.device_peak);
    ck_assert_uint_eq(after.device_bound, 1 << 20);
    ck_assert_int_eq(fake->alive[FAKE_EVENTS], 2);
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(a_piece_in_use_waits_in_the_stream)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_limits_t limits = {300000, 300000};
    gw__device_t *device;
    well(gw__device_acquire(0, &limits, &device, &device_why));
    gw__piece_t *first = taken(device, GW__POOL_DEVICE, 131072, one);
    well(gw__piece_give_after(device, first, one, &device_why));
    fake->busy = true;
    fake->waits = 0;
    /* The same stream takes it at once, and waits all the same. */
    ck_assert_ptr_eq(taken(device, GW__POOL_DEVICE, 131072, one), first);
    ck_assert_int_eq(fake->waits, 1);
    well(gw__piece_give_after(device, first, one, &device_why));
    /* Another one gets memory of its own while the bound allows it, */
    gw__piece_t *second = taken(device, GW__POOL_DEVICE, 131072, two);
    ck_assert_ptr_ne(second, first);
    ck_assert_int_eq(fake->waits, 1);
    /* and then waits for the first. */
    ck_assert_ptr_eq(taken(device, GW__POOL_DEVICE, 131072, two), first);
    ck_assert_int_eq(fake->waits, 2);
    gw__piece_give(device, first);
    gw__piece_give(device, second);
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(pinned_memory_is_given_when_it_is_free)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_limits_t limits = {300000, 300000};
    gw__device_t *device;
    gw__piece_t *none = NULL;
    well(gw__device_acquire(0, &limits, &device, &device_why));
    gw__piece_t *first = taken(device, GW__POOL_PINNED, 200000, one);
    well(gw__piece_give_after(device, first, one, &device_why));
    fake->busy = true;
    gives(GW_IN_PROGRESS, gw__piece_take(device, GW__POOL_PINNED, 200000, one, &none, &device_why));
    gives(GW_ERR_NO_MEMORY,
          gw__piece_take(device, GW__POOL_PINNED, 300001, one, &none, &device_why));
    says("pinned memory on GPU 0 are more than the bound of 300000");
    gives(GW_IN_PROGRESS, gw__device_release(device, &device_why));
    fake->busy = false;
    ck_assert_ptr_eq(taken(device, GW__POOL_PINNED, 200000, one), first);
    gives(GW_IN_PROGRESS, gw__device_release(device, &device_why));
    gw__piece_give(device, first);
    ck_assert_ptr_null(none);
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(small_pieces_make_room_for_a_large_one)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_limits_t limits = {1000000, 0};
    gw__device_t *device;
    gw__device_figures_t figures;
    gw__piece_t *none = NULL;
    well(gw__device_acquire(0, &limits, &device, &device_why));
    gw__piece_t *small = taken(device, GW__POOL_DEVICE, 70000, one);
    gw__piece_t *other = taken(device, GW__POOL_DEVICE, 70000, one);
    gw__piece_give(device, other);
    /* Not while somebody holds one: freeing may wait for work that waits for him. */
    gives(GW_IN_PROGRESS,
          gw__piece_take(device, GW__POOL_DEVICE, 1000000, one, &none, &device_why));
    ck_assert_int_eq(fake->alive[FAKE_DEVICE_MEMORY], 2);
    gw__piece_give(device, small);
    gw__piece_t *large = taken(device, GW__POOL_DEVICE, 1000000, one);
    ck_assert_int_eq(fake->alive[FAKE_DEVICE_MEMORY], 1);
    gw__device_figures(device, &figures);
    ck_assert_uint_eq(figures.device_bytes, 1000000);
    gives(GW_ERR_NO_MEMORY,
          gw__piece_take(device, GW__POOL_DEVICE, 1000001, one, &none, &device_why));
    gives(GW_ERR_NO_MEMORY,
          gw__piece_take(device, GW__POOL_DEVICE, SIZE_MAX, one, &none, &device_why));
    gw__piece_give(device, large);
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(a_piece_whose_end_is_unknown_is_not_used_again)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_t *device;
    well(gw__device_acquire(0, NULL, &device, &device_why));
    gw__piece_t *piece = taken(device, GW__POOL_DEVICE, 1000, one);
    fake->fail_at = fake->calls + 2; /* after the context is entered */
    fake->fail_with = CUDA_ERROR_INVALID_HANDLE;
    gives(GW_ERR_INVALID, gw__piece_give_after(device, piece, one, &device_why));
    ck_assert_str_eq(fake->failed, "cuEventRecord");
    gw__piece_t *next = taken(device, GW__POOL_DEVICE, 1000, one);
    ck_assert_ptr_ne(next, piece);
    gw__piece_give(device, next);
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(events_are_kept)
{
    enum { EVENTS = 40 };
    fake_driver_t *fake = device_begin("full");
    gw__device_t *device;
    gw__device_figures_t figures;
    CUevent events[EVENTS];
    well(gw__device_acquire(0, NULL, &device, &device_why));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < EVENTS; i++)
            well(gw__event_take(device, &events[i], &device_why));
        gives(GW_IN_PROGRESS, gw__device_release(device, &device_why));
        for (int i = 0; i < EVENTS; i++)
            gw__event_give(device, events[i]);
    }
    gw__device_figures(device, &figures);
    ck_assert_uint_eq(figures.events, EVENTS);
    ck_assert_uint_eq(figures.events_taken, 0);
    ck_assert_int_eq(fake->alive[FAKE_EVENTS], EVENTS);
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

/* ---- Flags -------------------------------------------------------------------------------------
 */

START_TEST(a_stream_raises_a_flag)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_t *device;
    gw__flag_t *flag;
    uint32_t count = 0;
    well(gw__device_acquire(0, NULL, &device, &device_why));
    well(gw__flag_take(device, &flag, &device_why));
    fake->keep_host = true;
    well(gw__flag_raise_after(flag, one, true, &count, &device_why));
    ck_assert_uint_eq(count, 1);
    gives(GW_IN_PROGRESS, gw__flag_await(flag, 1, 0));
    gives(GW_IN_PROGRESS, gw__flag_await(flag, 1, 5));
    gives(GW_IN_PROGRESS, gw__flag_give(flag));
    int calls = fake->calls;
    fake->host(fake->argument);
    ck_assert_int_eq(fake->calls, calls); /* a host function calls no driver */
    well(gw__flag_await(flag, 1, 1000));
    well(gw__flag_raise_after(flag, one, false, &count, &device_why)); /* a stream write */
    ck_assert_uint_eq(count, 2);
    ck_assert(gw__flag_reached(flag, 2) && gw__flag_reached(flag, 1) && !gw__flag_reached(flag, 3));
    well(gw__flag_give(flag));
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(a_stream_is_held_or_the_host_is)
{
    static const char *const fakes[] = {"full", "full", "plain"};
    fake_driver_t *fake = device_begin(fakes[_i]);
    gw__device_t *device;
    gw__flag_t *flag;
    uint32_t count;
    fake->no_operations = _i == 1;
    well(gw__device_acquire(0, NULL, &device, &device_why));
    ck_assert_int_eq(gw__device_has_memory_operations(device), _i == 0);
    well(gw__flag_take(device, &flag, &device_why));
    fake->waits = 0;
    gives(_i ? GW_IN_PROGRESS : GW_OK, gw__flag_hold(flag, one, 1, &device_why));
    ck_assert_int_eq(fake->waits, !_i);
    gw__flag_raise(flag);
    int calls = fake->calls;
    well(gw__flag_hold(flag, one, 1, &device_why)); /* it is there: nothing to wait for */
    ck_assert_int_eq(fake->calls, calls);
    well(gw__flag_give(flag));
    /* Raising works on all. */
    well(gw__flag_take(device, &flag, &device_why));
    ck_assert_uint_eq(gw__flag_count(flag), 0);
    well(gw__flag_raise_after(flag, one, false, &count, &device_why));
    ck_assert_int_eq(fake->host != NULL, _i != 0);
    well(gw__flag_await(flag, count, 0));
    well(gw__flag_give(flag));
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(flags_count_round_the_end)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_t *device;
    gw__flag_t *flag;
    well(gw__device_acquire(0, NULL, &device, &device_why));
    well(gw__flag_take(device, &flag, &device_why));
    atomic_store(flag->word, UINT32_MAX);
    ck_assert(!gw__flag_reached(flag, 0));
    gw__flag_raise(flag);
    ck_assert(gw__flag_reached(flag, 0) && gw__flag_reached(flag, UINT32_MAX));
    atomic_store(&flag->asked, 0);
    well(gw__flag_give(flag));
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

START_TEST(there_are_as_many_flags_as_wanted)
{
    enum { FLAGS = 200 };
    fake_driver_t *fake = device_begin("full");
    gw__device_t *device;
    gw__device_figures_t figures;
    gw__flag_t *flags[FLAGS];
    well(gw__device_acquire(0, NULL, &device, &device_why));
    for (int i = 0; i < FLAGS; i++) {
        well(gw__flag_take(device, &flags[i], &device_why));
        for (int j = 0; j < i; j++)
            gw_check(flags[i]->word != flags[j]->word, "flags %d and %d are one", i, j);
    }
    gives(GW_IN_PROGRESS, gw__device_release(device, &device_why));
    for (int i = 0; i < FLAGS; i++)
        well(gw__flag_give(flags[i]));
    gw__device_figures(device, &figures);
    ck_assert_uint_eq(figures.flags, 256);
    ck_assert_uint_eq(figures.flags_taken, 0);
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

static void *raise_late(void *flag)
{
    usleep(20000);
    gw__flag_raise(flag);
    return NULL;
}

START_TEST(the_host_sleeps_until_a_flag_is_raised)
{
    fake_driver_t *fake = device_begin("full");
    gw__device_t *device;
    gw__flag_t *flag;
    pthread_t thread;
    well(gw__device_acquire(0, NULL, &device, &device_why));
    well(gw__flag_take(device, &flag, &device_why));
    pthread_create(&thread, NULL, raise_late, flag);
    well(gw__flag_await(flag, 1, 60000));
    pthread_join(thread, NULL);
    well(gw__flag_give(flag));
    well(gw__device_release(device, &device_why));
    device_end(fake);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, nothing_is_loaded_unasked);
    tcase_add_test(t, no_library_is_a_sentence);
    tcase_add_test(t, a_library_that_is_too_old_is_a_sentence);
    tcase_add_loop_test(t, a_library_without_a_device_is_a_sentence, 0, 2);
    tcase_add_test(t, threads_start_one_driver);
    tcase_add_test(t, a_fork_is_seen);
    tcase_add_test(t, results_are_statuses);
    tcase_add_test(t, kinds_of_memory);
    tcase_add_test(t, a_library_that_comes_later_is_seen);
    tcase_add_test(t, memory_of_others_is_refused);
    tcase_add_loop_test(t, one_object_for_a_device, 0, 2);
    tcase_add_test(t, no_primary_context_is_made);
    tcase_add_test(t, launches_go_to_the_stream);
    tcase_add_test(t, blocks_have_no_more_threads_than_registers_allow);
    tcase_add_test(t, streams_of_other_contexts_are_refused);
    tcase_add_test(t, pieces_are_kept);
    tcase_add_test(t, a_piece_in_use_waits_in_the_stream);
    tcase_add_test(t, pinned_memory_is_given_when_it_is_free);
    tcase_add_test(t, small_pieces_make_room_for_a_large_one);
    tcase_add_test(t, a_piece_whose_end_is_unknown_is_not_used_again);
    tcase_add_test(t, events_are_kept);
    tcase_add_test(t, a_stream_raises_a_flag);
    tcase_add_loop_test(t, a_stream_is_held_or_the_host_is, 0, 3);
    tcase_add_test(t, flags_count_round_the_end);
    tcase_add_test(t, there_are_as_many_flags_as_wanted);
    tcase_add_test(t, the_host_sleeps_until_a_flag_is_raised);
    suite_add_tcase(suite, t);
    return gw_test_main(suite);
}
