/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: what the driver refuses at once, what it refuses when it comes to it, and the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_double.h"

/* ---- Launches ----------------------------------------------------------------------------------
 */

/* A copy of all arguments behind a table of their places, as the driver takes them at the call. */
static void **copy_args(const gw_double_kernel_t *kernel, void *const *args)
{
    size_t bytes = (kernel->count + 1) * sizeof(void *);
    for (unsigned i = 0; i < kernel->count; i++)
        bytes += (kernel->params[i].bytes + 15) / 16 * 16 + 16;
    void **table = calloc(1, bytes);
    char *at = (char *)(table + kernel->count + 1);
    for (unsigned i = 0; table && i < kernel->count; i++) {
        at += -(uintptr_t)at & 15;
        table[i] = at;
        memcpy(at, args[i], kernel->params[i].bytes);
        at += kernel->params[i].bytes;
    }
    return table;
}

static CUresult check_launch(CUcontext context, CUfunction function, const unsigned *sizes,
                             unsigned shared, void **args, void **extra)
{
    CUmodule module = module_of(function);
    if (!module)
        return refuse(CUDA_ERROR_INVALID_HANDLE, "%p is no function", (void *)function);
    const gw_double_kernel_t *kernel = function->kernel;
    if (module->context != context)
        return refuse(CUDA_ERROR_INVALID_HANDLE, "%s is another context's", kernel->name);
    if (extra)
        return refuse(CUDA_ERROR_NOT_SUPPORTED, "%s: the double takes no extra", kernel->name);
    if (sizes[1] != 1 || sizes[2] != 1 || sizes[4] != 1 || sizes[5] != 1)
        return refuse(CUDA_ERROR_NOT_SUPPORTED, "%s: the double has one dimension", kernel->name);
    if (!sizes[0] || sizes[0] > INT32_MAX || !sizes[3] || sizes[3] > GW_DOUBLE_THREADS_MOST)
        return refuse(CUDA_ERROR_INVALID_VALUE, "%s: %u blocks of %u threads", kernel->name,
                      sizes[0], sizes[3]);
    if (shared > (unsigned)function->shared_most)
        return refuse(CUDA_ERROR_INVALID_VALUE,
                      "%s: %u bytes of shared memory, but cuFuncSetAttribute allowed %d",
                      kernel->name, shared, function->shared_most);
    for (unsigned i = 0; i < kernel->count; i++)
        if (!args || !args[i])
            return refuse(CUDA_ERROR_INVALID_VALUE, "%s: argument %u of %u is missing",
                          kernel->name, i, kernel->count);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **args, void **extra)
{
    const unsigned sizes[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z};
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    result = check_launch(context, function, sizes, shared_bytes, args, extra);
    if (result)
        return leave(result);
    work_t *work = work_new(WORK_KERNEL);
    void **table = work ? copy_args(function->kernel, args) : NULL;
    if (!table) {
        free(work);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    work->args = table;
    work->kernel = function->kernel;
    work->grid = grid_x;
    work->block = block_x;
    work->shared = shared_bytes;
    driver_counts.launches++;
    return leave(submit(context, stream, work));
}

/* ---- Running -----------------------------------------------------------------------------------
 */

/* What is wrong with an address that a kernel is given; NULL: nothing. */
static const char *fault_of(const void *at, CUcontext context, bool surely_an_address)
{
    const memory_t *m = memory_find(at);
    if (m && m->state == MEMORY_FREED)
        return "use after free";
    if (m && m->state == MEMORY_EARLY)
        return "its stream has not come to the allocation: a missing wait";
    if (m && m->kind == MEMORY_DEVICE && m->context != context)
        return "memory of another device";
    if (m || !at)
        return NULL;
    if (memory_is_ours(at))
        return "no allocation";
    return surely_an_address || memory_is_mapped(at) ? "memory of the host" : NULL;
}

static bool refuse_address(const work_t *work, unsigned param, size_t offset, const void *at,
                           bool surely)
{
    char where[200];
    const char *fault = fault_of(at, work->stream->context, surely);
    if (!fault)
        return false;
    memory_describe(at, where, sizeof where);
    say("kernel %s: parameter %u, byte %zu is %s: %s", work->kernel->name, param, offset, where,
        fault);
    return true;
}

/*
 * Parameters that are pointers, and every word of structs that looks like one: an address that is
 * mapped, or the arena's. A struct that holds a list of pointers must be 0 where it holds none.
 */
static bool addresses_are_right(const work_t *work)
{
    for (unsigned i = 0; i < work->kernel->count; i++) {
        const gw_double_param_t *param = &work->kernel->params[i];
        for (size_t at = 0; at + sizeof(void *) <= param->bytes; at += sizeof(void *)) {
            const void *word;
            memcpy(&word, (char *)work->args[i] + at, sizeof word);
            if (refuse_address(work, i, at, word, param->pointer))
                return false;
        }
    }
    return true;
}

void kernel_run(work_t *work)
{
    static char name[128];
    char why[512];
    CUcontext context = work->stream->context;
    if (!addresses_are_right(work)) {
        context_break(context, CUDA_ERROR_ILLEGAL_ADDRESS);
        return;
    }
    snprintf(name, sizeof name, "kernel %s", work->kernel->name);
    executor_runs = name;
    memory_open();
    uint64_t seed = driver_settings.of.seed < 2 ? driver_settings.of.seed : draw() | 2;
    pthread_mutex_unlock(&driver_lock);
    bool ok = gw_double_launch(work->kernel, work->grid, work->block, work->shared, seed,
                               work->args, why, sizeof why);
    pthread_mutex_lock(&driver_lock);
    if (!ok) {
        say("kernel %s", why);
        context_break(context, CUDA_ERROR_LAUNCH_FAILED);
    } else if (!memory_check(name)) {
        context_break(context, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}
