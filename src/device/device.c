/* SPDX-License-Identifier: Apache-2.0 */
/* Device objects: one for each ordinal that is in use. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

#include "device_internal.h"

enum { DEVICES = 64, PINNED_BOUND = 1 << 30, SHARE_OF_DEVICE = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gw__device_t *devices[DEVICES];

/* ---- Contexts ----------------------------------------------------------------------------------
 */

gw_status_t gw__device_enter(gw__device_t *device, gw__why_t *why)
{
    return GW__CU(device->cu, why, cuCtxPushCurrent_v2, device->context);
}

void gw__device_leave(gw__device_t *device)
{
    CUcontext ours;
    device->cu->cuCtxPopCurrent_v2(&ours);
}

/* RELAXED also says that there is nothing to set back. */
CUstreamCaptureMode gw__device_relax(gw__device_t *device)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = device->cu->cuThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_SUCCESS ? mode : CU_STREAM_CAPTURE_MODE_RELAXED;
}

/* Tried twice: a thread that stays relaxed does not see an error in a capture of its own. */
void gw__device_strict(gw__device_t *device, CUstreamCaptureMode mode)
{
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        device->cu->cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        device->cu->cuThreadExchangeStreamCaptureMode(&mode);
}

/* ---- Making and freeing ------------------------------------------------------------------------
 */

/* Retaining a primary context that nobody uses would make one, with hundreds of MB. */
static gw_status_t retain(gw__device_t *d, gw__why_t *why)
{
    unsigned flags;
    int active = 0;
    gw_status_t status = GW__CU(d->cu, why, cuDeviceGet, &d->device, d->ordinal);
    if (status == GW_OK)
        status = GW__CU(d->cu, why, cuDevicePrimaryCtxGetState, d->device, &flags, &active);
    if (status == GW_OK && !active) {
        gw__why_print(why,
                      "the primary context of GPU %d is not in use, and Gradwire uses no other",
                      d->ordinal);
        return GW_ERR_UNSUPPORTED;
    }
    return status ? status : GW__CU(d->cu, why, cuDevicePrimaryCtxRetain, &d->context, d->device);
}

static gw_status_t measure(gw__device_t *d, gw__why_t *why)
{
    size_t bytes = 0;
    gw_status_t status = GW__CU(d->cu, why, cuDeviceGetAttribute, &d->multiprocessors,
                                CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->device);
    if (status == GW_OK)
        status = GW__CU(d->cu, why, cuDeviceGetAttribute, &d->threads,
                        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, d->device);
    if (status == GW_OK)
        status = GW__CU(d->cu, why, cuDeviceTotalMem_v2, &bytes, d->device);
    d->pools[GW__POOL_DEVICE].bound = bytes / SHARE_OF_DEVICE;
    d->pools[GW__POOL_PINNED].bound = PINNED_BOUND;
    return status;
}

/* What is inside of the context. */
static gw_status_t furnish(gw__device_t *d, gw__why_t *why)
{
    gw_status_t status = gw__device_enter(d, why);
    if (status != GW_OK)
        return status;
    CUstreamCaptureMode mode = gw__device_relax(d);
    status = gw__device_kernels_load(d, why);
    if (status == GW_OK)
        status = gw__flags_start(d, why);
    if (status != GW_OK) {
        gw__flags_free(d);
        gw__device_kernels_unload(d);
    }
    gw__device_strict(d, mode);
    gw__device_leave(d);
    return status;
}

static void destroy(gw__device_t *d)
{
    if (d->context)
        d->cu->cuDevicePrimaryCtxRelease_v2(d->device);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static gw_status_t create(const gw__driver_t *cu, int ordinal, gw__device_t **out, gw__why_t *why)
{
    gw__device_t *d = calloc(1, sizeof *d);
    if (!d) {
        gw__why_print(why, "no memory for GPU %d", ordinal);
        return GW_ERR_NO_MEMORY;
    }
    d->cu = cu;
    d->ordinal = ordinal;
    pthread_mutex_init(&d->lock, NULL);
    gw_status_t status = retain(d, why);
    if (status == GW_OK)
        status = measure(d, why);
    if (status == GW_OK)
        status = furnish(d, why);
    if (status != GW_OK) {
        destroy(d);
        return status;
    }
    *out = d;
    return GW_OK;
}

static void raise_bounds(gw__device_t *d, const gw__device_limits_t *limits)
{
    const size_t asked[] = {limits->device_bytes, limits->pinned_bytes};
    bool first = d->references == 0;
    pthread_mutex_lock(&d->lock);
    for (int kind = 0; kind < 2; kind++)
        if (asked[kind] && (first || asked[kind] > d->pools[kind].bound))
            d->pools[kind].bound = asked[kind];
    pthread_mutex_unlock(&d->lock);
}

gw_status_t gw__device_acquire(int ordinal, const gw__device_limits_t *limits, gw__device_t **out,
                               gw__why_t *why)
{
    const gw__driver_t *cu;
    /* First of all: a forked child stops here, and never meets a lock that was taken. */
    gw_status_t status = gw__driver_start(&cu, why);
    if (status != GW_OK)
        return status;
    if (ordinal < 0 || ordinal >= DEVICES) {
        gw__why_print(why, "there is no GPU %d", ordinal);
        return GW_ERR_INVALID;
    }
    pthread_mutex_lock(&lock);
    gw__device_t *d = devices[ordinal];
    if (!d)
        status = create(cu, ordinal, &d, why);
    if (status == GW_OK) {
        if (limits)
            raise_bounds(d, limits);
        d->references++;
        devices[ordinal] = d;
        *out = d;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static bool idle(gw__device_t *d)
{
    pthread_mutex_lock(&d->lock);
    bool yes = d->flags_taken == 0 && gw__pools_idle(d);
    pthread_mutex_unlock(&d->lock);
    return yes;
}

static gw_status_t clear(gw__device_t *d, gw__why_t *why)
{
    gw_status_t status = gw__device_enter(d, why);
    if (status != GW_OK)
        return status;
    CUstreamCaptureMode mode = gw__device_relax(d);
    bool may = idle(d);
    if (may) {
        gw__pools_free(d);
        gw__flags_free(d);
        gw__device_kernels_unload(d);
    }
    gw__device_strict(d, mode);
    gw__device_leave(d);
    return may ? GW_OK : GW_IN_PROGRESS;
}

gw_status_t gw__device_release(gw__device_t *device, gw__why_t *why)
{
    gw_status_t status = GW_OK;
    if (!device)
        return GW_OK;
    pthread_mutex_lock(&lock);
    if (device->references == 1)
        status = clear(device, why);
    if (status == GW_OK && --device->references == 0) {
        devices[device->ordinal] = NULL;
        destroy(device);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- What it tells -----------------------------------------------------------------------------
 */

int gw__device_ordinal(const gw__device_t *device)
{
    return device->ordinal;
}

bool gw__device_has_memory_operations(const gw__device_t *device)
{
    return device->memory_operations;
}

gw_status_t gw__device_owns(const gw__device_t *device, const gw__memory_t *memory, gw__why_t *why)
{
    if (memory->kind == GW__MEMORY_HOST)
        gw__why_print(why, "memory of the host that GPU %d cannot read", device->ordinal);
    else if (memory->kind == GW__MEMORY_PINNED)
        return GW_OK;
    else if (memory->ordinal >= 0 && memory->ordinal != device->ordinal)
        gw__why_print(why, "memory of GPU %d, not of GPU %d", memory->ordinal, device->ordinal);
    else if (memory->context && memory->context != device->context)
        gw__why_print(why, "memory of another context of GPU %d than its primary one",
                      device->ordinal);
    else
        return GW_OK;
    return GW_ERR_UNSUPPORTED;
}

void gw__device_figures(gw__device_t *device, gw__device_figures_t *out)
{
    pthread_mutex_lock(&device->lock);
    const gw__pool_pieces_t *of_device = &device->pools[GW__POOL_DEVICE],
                            *pinned = &device->pools[GW__POOL_PINNED];
    *out = (gw__device_figures_t){
        .multiprocessors = device->multiprocessors,
        .kernels = device->kernels.count,
        .spilled = device->kernels.spilled,
        .device_bytes = of_device->held,
        .device_bound = of_device->bound,
        .pinned_bytes = pinned->held,
        .pinned_bound = pinned->bound,
        .device_peak = of_device->peak,
        .pinned_peak = pinned->peak,
        .allocations = device->allocations,
        .pieces = of_device->pieces + pinned->pieces,
        .pieces_taken = of_device->taken + pinned->taken,
        .events = device->events.made,
        .events_taken = device->events.made - device->events.waiting,
        .flags = device->slab_count * GW__FLAGS_IN_SLAB,
        .flags_taken = device->flags_taken,
    };
    pthread_mutex_unlock(&device->lock);
}
