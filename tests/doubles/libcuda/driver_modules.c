/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and functions: kernels are those that were linked into the double, by name. */
#include <stdlib.h>
#include <string.h>

#include "driver_double.h"

enum { SHARED_UNASKED = 48 * 1024 };

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

CUmodule module_of(CUfunction function)
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
