/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels on one device: loaded once, found by name, launched on streams of the application. */
#include <string.h>

#include "device_internal.h"

/* All `extern "C" __global__` functions of kernels/cuda, sorted; written when the build is
 * configured. */
#include <gradwire_kernel_names.h>

static const char *const names[] = {GW_CUDA_KERNEL_NAMES};
enum { NAMES = sizeof names / sizeof *names, WARP = 32 };
_Static_assert(NAMES <= (int)GW__DEVICE_KERNELS_MOST, "the table of a device is too short");

/* ---- Loading -----------------------------------------------------------------------------------
 */

static gw_status_t load_image(gw__device_t *d, const gw_cuda_image_t *image, gw__why_t *why)
{
    gw__device_kernels_t *k = &d->kernels;
    CUlibrary *library = &k->libraries[k->images];
    CUmodule *module = &k->modules[k->images];
    bool new = d->cu->cuLibraryLoadData && d->cu->cuLibraryGetModule && d->cu->cuLibraryUnload;
    gw_status_t status;
    if (!new) {
        status = GW__CU(d->cu, why, cuModuleLoadDataEx, module, image->data, 0, NULL, NULL);
    } else {
        status = GW__CU(d->cu, why, cuLibraryLoadData, library, image->data, NULL, NULL, 0, NULL,
                        NULL, 0);
        if (status == GW_OK)
            status = GW__CU(d->cu, why, cuLibraryGetModule, module, *library);
    }
    if (status == GW_OK || *library)
        k->images++;
    return status;
}

static gw_status_t load_images(gw__device_t *d, gw__why_t *why)
{
    const gw_cuda_image_t *image;
    gw_status_t status = GW_OK;
    if (!gw__cuda_image(0)) {
        gw__why_print(why, "this build has no kernels for GPUs");
        return GW_ERR_NO_MODULE;
    }
    for (size_t i = 0; status == GW_OK && (image = gw__cuda_image(i)); i++) {
        if (i == GW__DEVICE_IMAGES_MOST)
            return GW_ERR_INTERNAL;
        gw__why_t what = {""};
        status = load_image(d, image, &what);
        if (status != GW_OK)
            gw__why_print(why, "kernels of %s for GPU %d: %.180s", image->family, d->ordinal,
                          what.text);
    }
    return status;
}

/* The image of gw_cuda_<family>_<verb>; NULL: none. */
static CUmodule module_of(const gw__device_t *d, const char *name)
{
    const char *family = name + strlen("gw_cuda_");
    const gw_cuda_image_t *image;
    for (size_t i = 0; (image = gw__cuda_image(i)); i++) {
        size_t length = strlen(image->family);
        if (strncmp(family, image->family, length) == 0 && family[length] == '_')
            return d->kernels.modules[i];
    }
    return NULL;
}

/* Asking for an attribute makes a driver that loads lazily load the kernel. */
static gw_status_t load_kernel(gw__device_t *d, unsigned i, gw__why_t *why)
{
    CUmodule module = module_of(d, names[i]);
    int spilled = 0, threads = 0;
    if (!module) {
        gw__why_print(why, "no image of kernels has %s", names[i]);
        return GW_ERR_INTERNAL;
    }
    CUfunction *function = &d->kernels.functions[i];
    gw_status_t status = GW__CU(d->cu, why, cuModuleGetFunction, function, module, names[i]);
    if (status == GW_OK)
        status = GW__CU(d->cu, why, cuFuncGetAttribute, &spilled,
                        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, *function);
    if (status == GW_OK)
        status = GW__CU(d->cu, why, cuFuncGetAttribute, &threads,
                        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, *function);
    d->kernels.spilled += (size_t)spilled;
    d->kernels.threads[i] = (unsigned)threads / WARP * WARP;
    return status;
}

gw_status_t gw__device_kernels_load(gw__device_t *device, gw__why_t *why)
{
    gw_status_t status = load_images(device, why);
    for (unsigned i = 0; status == GW_OK && i < NAMES; i++) {
        status = load_kernel(device, i, why);
        device->kernels.count += status == GW_OK;
    }
    return status;
}

void gw__device_kernels_unload(gw__device_t *device)
{
    gw__device_kernels_t *k = &device->kernels;
    while (k->images > 0) {
        k->images--;
        if (k->libraries[k->images])
            device->cu->cuLibraryUnload(k->libraries[k->images]);
        else
            device->cu->cuModuleUnload(k->modules[k->images]);
    }
}

/* ---- Launching ---------------------------------------------------------------------------------
 */

/* NAMES: no such kernel. */
static unsigned find(const char *name)
{
    unsigned from = 0, to = NAMES;
    while (from < to) {
        unsigned middle = (from + to) / 2;
        int order = strcmp(name, names[middle]);
        if (order == 0)
            return middle;
        if (order < 0)
            to = middle;
        else
            from = middle + 1;
    }
    return NAMES;
}

/* With fewer threads in a block than asked for, where it has no registers for all: whatever their
 * number, blocks of a grid take what there is to do between them. */
static gw_status_t launch(gw_cuda_queue_t *queue, const char *kernel, unsigned grid, unsigned block,
                          unsigned shared, void **args)
{
    gw__stream_t *s = queue->state;
    gw__why_t why = {""};
    unsigned i = find(kernel);
    gw_status_t status = GW_ERR_INTERNAL;
    if (i < NAMES && block > s->device->kernels.threads[i])
        block = s->device->kernels.threads[i];
    if (i < NAMES)
        status = GW__CU(s->device->cu, &why, cuLaunchKernel, s->device->kernels.functions[i], grid,
                        1, 1, block, 1, 1, shared, s->stream, args, NULL);
    if (status != GW_OK && !s->why.text[0])
        gw__why_print(&s->why, "%s: %.180s", kernel,
                      i < NAMES ? why.text : "there is no such kernel");
    return status;
}

/* The default streams are those of the current context; without one, of whoever enters next. */
static gw_status_t context_of(gw__device_t *device, CUstream stream, CUcontext *out, gw__why_t *why)
{
    gw_status_t status;
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        status = GW__CU(device->cu, why, cuCtxGetCurrent, out);
        if (status == GW_OK && !*out)
            *out = device->context;
        return status;
    }
    status = gw__device_enter(device, why);
    if (status != GW_OK)
        return status;
    status = GW__CU(device->cu, why, cuStreamGetCtx, stream, out);
    gw__device_leave(device);
    return status;
}

gw_status_t gw__device_queue(gw__device_t *device, CUstream stream, gw__stream_t *out,
                             gw__why_t *why)
{
    CUcontext context = NULL;
    gw_status_t status = context_of(device, stream, &context, why);
    if (status != GW_OK)
        return status;
    if (context != device->context) {
        gw__why_print(why, "the stream is of another context than the primary one of GPU %d",
                      device->ordinal);
        return GW_ERR_UNSUPPORTED;
    }
    unsigned at_a_time =
        (unsigned)(device->threads > GW_CUDA_BLOCK ? device->threads : GW_CUDA_BLOCK);
    *out = (gw__stream_t){
        .queue = {.launch = launch,
                  .blocks = (unsigned)device->multiprocessors * (at_a_time / GW_CUDA_BLOCK),
                  .state = out},
        .device = device,
        .stream = stream};
    return GW_OK;
}
