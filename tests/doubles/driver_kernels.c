/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, functions and launches: kernels are those that were linked into the double, by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_double.h"

enum { SHARED_UNASKED = 48 * 1024, ARGS_MOST = 64 };

struct CUfunc_st {
    CUfunction next;
    const gw_double_kernel_t *kernel;
    int shared_most;
};

struct CUmod_st {
    CUmodule next;
    CUcontext context;
    CUfunction functions;
    CUlibrary library; /* NULL: loaded by itself */
};

struct CUlib_st {
    CUlibrary next;
};

static CUmodule modules;
static CUlibrary libraries;

/* ---- Images ------------------------------------------------------------------------------------
 */

/* What nvcc makes (a fat binary, its wrapper, an ELF file, PTX), and the double's own. Their code
 * is not looked at. */
static bool is_image(const void *image)
{
    static const unsigned char starts[][4] = {{0x50, 0xED, 0x55, 0xBA},
                                              {0xB1, 0x43, 0x62, 0x46},
                                              {0x7F, 'E', 'L', 'F'},
                                              {'/', '/', '\n', '/'},
                                              {'.', 'v', 'e', 'r'}};
    if (!strncmp(image, GW_DRIVER_IMAGE, strlen(GW_DRIVER_IMAGE)))
        return true;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (!memcmp(image, starts[i], 4))
            return true;
    return false;
}

static CUmodule module_new(CUcontext context, CUlibrary library)
{
    CUmodule module = calloc(1, sizeof *module);
    if (!module)
        return NULL;
    module->context = context;
    module->library = library;
    module->next = modules;
    modules = module;
    return module;
}

static void module_free(CUmodule module)
{
    CUmodule *at = &modules;
    while (*at != module)
        at = &(*at)->next;
    *at = module->next;
    for (CUfunction f = module->functions, next; f; f = next) {
        next = f->next;
        free(f);
    }
    free(module);
}

static bool is_module(CUmodule module)
{
    CUmodule m = modules;
    while (m && m != module)
        m = m->next;
    return m;
}

static CUresult load(const char *call, CUmodule *module, const void *image)
{
    CUcontext context;
    CUresult result = enter(call, &context);
    if (result)
        return result;
    result = capture_forbids();
    if (!result && (!module || !image))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && !is_image(image))
        result = refuse(CUDA_ERROR_INVALID_IMAGE, "neither of nvcc nor of the double");
    if (result)
        return leave(result);
    *module = module_new(context, NULL);
    return leave(*module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return load(__func__, module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values)
{
    return load(__func__, module, image);
}

CUresult cuModuleUnload(CUmodule module)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (!is_module(module) || module->library)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    module_free(module);
    return leave(CUDA_SUCCESS);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit_options,
                           void **jit_values, unsigned jit_count, CUlibraryOption *options,
                           void **values, unsigned count)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    if (!library || !image)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (!is_image(image))
        return leave(refuse(CUDA_ERROR_INVALID_IMAGE, "neither of nvcc nor of the double"));
    CUlibrary made = calloc(1, sizeof *made);
    if (!made)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    made->next = libraries;
    libraries = made;
    *library = made;
    return leave(CUDA_SUCCESS);
}

static CUlibrary *place_of(CUlibrary library)
{
    CUlibrary *at = &libraries;
    while (*at && *at != library)
        at = &(*at)->next;
    return *at ? at : NULL;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    CUlibrary *at = place_of(library);
    if (!at)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    for (CUmodule m = modules, next; m; m = next) {
        next = m->next;
        if (m->library == library)
            module_free(m);
    }
    *at = library->next;
    free(library);
    return leave(CUDA_SUCCESS);
}

/* One module for each context that asks. */
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (!module || !place_of(library))
        return leave(module ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
    CUmodule m = modules;
    while (m && (m->library != library || m->context != context))
        m = m->next;
    if (!m)
        m = module_new(context, library);
    *module = m;
    return leave(m ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* ---- Functions ---------------------------------------------------------------------------------
 */

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (!function || !name)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (!is_module(module))
        return leave(CUDA_ERROR_INVALID_HANDLE);
    const gw_double_kernel_t *kernel = gw_double_find(name);
    if (!kernel)
        return leave(refuse(CUDA_ERROR_NOT_FOUND, "no kernel %s is linked into the double", name));
    CUfunction f = module->functions;
    while (f && f->kernel != kernel)
        f = f->next;
    if (!f) {
        f = calloc(1, sizeof *f);
        if (!f)
            return leave(CUDA_ERROR_OUT_OF_MEMORY);
        *f = (struct CUfunc_st){module->functions, kernel, SHARED_UNASKED};
        module->functions = f;
    }
    *function = f;
    return leave(CUDA_SUCCESS);
}

/* NULL: no function of any module. */
static CUmodule module_of(CUfunction function)
{
    for (CUmodule m = modules; m; m = m->next)
        for (CUfunction f = m->functions; f; f = f->next)
            if (f == function)
                return m;
    return NULL;
}

CUresult cuFuncGetAttribute(int *out, CUfunction_attribute attribute, CUfunction function)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (!out || !module_of(function))
        return leave(out ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *out = GW_DOUBLE_THREADS_MOST;
        return leave(CUDA_SUCCESS);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *out = 32;
        return leave(CUDA_SUCCESS);
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *out = 90;
        return leave(CUDA_SUCCESS);
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *out = function->shared_most;
        return leave(CUDA_SUCCESS);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *out = 0;
        return leave(CUDA_SUCCESS);
    }
    return leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int number)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (!module_of(function))
        return leave(CUDA_ERROR_INVALID_HANDLE);
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || number < 0 ||
        number > GW_DOUBLE_SHARED_MOST)
        return leave(CUDA_ERROR_INVALID_VALUE);
    function->shared_most = number;
    return leave(CUDA_SUCCESS);
}

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
