/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of cuda_queue.h on a GPU: the same tests by the driver, with memory that both share. */
#include "cuda_queue.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "gw_driver.h"
#include "kernel_check.h"

/*
 * The tests give kernels whatever memory they have: globals, the heap, the stack, pages of the
 * kernel checker. All of it is registered with the driver, so that a GPU sees it at the same
 * address. The heap is one piece that only grows (no mappings of malloc's own), and what it has
 * grown by is registered before the next launch. One process for all tests: CK_FORK=no.
 */

enum { STACK = 512 << 10, HEAP_STEP = 64 << 20 };

extern char __data_start[], _end[];

static gw__stream_t stream;
static char *heap_end;

__attribute__((constructor)) static void one_heap(void)
{
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    mallopt(M_TOP_PAD, HEAP_STEP);
    free(malloc(HEAP_STEP)); /* it has a step to begin with */
}

static void fail(const char *what, CUresult result)
{
    fprintf(stderr, "cuda_queue: %s: %d\n", what, (int)result);
    exit(1);
}

/* Whole pages. */
static void cover(const char *what, char *from, char *to)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *first = from - ((uintptr_t)from & (page - 1));
    size_t bytes = ((size_t)(to - first) + page - 1) & ~(page - 1);
    CUdeviceptr seen = 0;
    if (!bytes)
        return;
    CUresult result = cuMemHostRegister_v2(first, bytes, 0);
    if (!result)
        result = cuMemHostGetDevicePointer_v2(&seen, first, 0);
    if (result || seen != (CUdeviceptr)(uintptr_t)first)
        fail(what, result);
}

/* Where /proc/self/maps has a region of this name. */
static bool find_region(const char *name, char **from, char **to)
{
    char line[512];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && !found && fgets(line, sizeof line, f))
        found = strstr(line, name) && sscanf(line, "%p-%p", (void **)from, (void **)to) == 2;
    if (f)
        fclose(f);
    return found;
}

static void cover_stack(void)
{
    volatile char deep[STACK]; /* pages that are there */
    char *from, *to;
    memset((char *)deep, 0, sizeof deep);
    if (!find_region("[stack]", &from, &to))
        fail("no stack", CUDA_SUCCESS);
    cover("the stack", (char *)deep, to);
}

static void cover_heap(void)
{
    char *from, *to, *end = sbrk(0);
    if (!heap_end && find_region("[heap]", &from, &to))
        heap_end = from;
    if (heap_end && end > heap_end)
        cover("the heap", heap_end, end);
    heap_end = end;
}

void kernel_pages_made(void *at, size_t bytes)
{
    if (cuda_queue())
        cover("pages", at, (char *)at + bytes);
}

void kernel_pages_gone(void *at)
{
    if (cuda_queue())
        cuMemHostUnregister(at);
}

static gw_status_t launch(gw_cuda_queue_t *queue, const char *kernel, unsigned grid, unsigned block,
                          unsigned shared, void **args)
{
    gw__why_t why = {""};
    cover_heap();
    gw_status_t status = gw__device_enter(stream.device, &why);
    if (status == GW_OK) {
        status = stream.queue.launch(&stream.queue, kernel, grid, block, shared, args);
        CUresult result = cuStreamSynchronize(stream.stream);
        if (result)
            fail(kernel, result);
        gw__device_leave(stream.device);
    }
    if (status != GW_OK)
        fprintf(stderr, "%s: %s\n", kernel, *why.text ? why.text : stream.why.text);
    return status;
}

static bool start(void)
{
    gw__why_t why = {""};
    CUcontext context;
    CUstream made;
    gw__device_t *device;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return false;
    if (cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0))
        return false;
    cover_heap(); /* before the double of the driver takes pinned memory from it */
    if (gw__device_acquire(0, NULL, &device, &why) != GW_OK ||
        gw__device_queue(device, made, &stream, &why) != GW_OK) {
        fprintf(stderr, "cuda_queue: %s\n", why.text);
        exit(1);
    }
    cover("globals", __data_start, _end);
    cover_stack();
    return true;
}

gw_cuda_queue_t *cuda_queue(void)
{
    static gw_cuda_queue_t queue = {.launch = launch};
    static int state; /* 1: there is one; 2: there is none */
    if (!state)
        state = start() ? 1 : 2;
    return state == 1 ? &queue : NULL;
}
