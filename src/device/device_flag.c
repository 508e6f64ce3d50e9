/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flags lie in pages of pinned memory that live as long as the device object. A host function is
 * given a flag of its own and only counts it up, so nothing is allocated for it; behind the count
 * it touches nothing of the flag but its address.
 */
#define _GNU_SOURCE /* syscall */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "device_internal.h"

enum { PAGE = GW__FLAGS_IN_SLAB * GW__FLAG_BYTES, LOOK_NS = 1000000 };

_Static_assert(sizeof(_Atomic uint32_t) == 4, "a word that the device and futex() see");

/* ---- Pages -------------------------------------------------------------------------------------
 */

static void slab_free(gw__device_t *d, gw__flag_slab_t *slab)
{
    if (slab->page)
        d->cu->cuMemFreeHost(slab->page);
    free(slab);
}

static gw_status_t slab_pin(gw__device_t *d, gw__flag_slab_t *slab, CUdeviceptr *at, gw__why_t *why)
{
    void *page = NULL;
    gw_status_t status = GW__CU(d->cu, why, cuMemHostAlloc, &page, PAGE,
                                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    slab->page = page;
    if (status == GW_OK)
        status = GW__CU(d->cu, why, cuMemHostGetDevicePointer_v2, at, page, 0);
    return status;
}

/* In the context. */
static gw_status_t slab_add(gw__device_t *d, gw__why_t *why)
{
    CUdeviceptr at = 0;
    gw__flag_slab_t *slab = calloc(1, sizeof *slab);
    if (!slab) {
        gw__why_print(why, "no memory for flags");
        return GW_ERR_NO_MEMORY;
    }
    gw_status_t status = slab_pin(d, slab, &at, why);
    if (status != GW_OK) {
        slab_free(d, slab);
        return status;
    }
    memset(slab->page, 0, PAGE);
    for (int i = 0; i < GW__FLAGS_IN_SLAB; i++) {
        gw__flag_t *flag = &slab->flags[i];
        flag->word = (_Atomic uint32_t *)(void *)(slab->page + i * GW__FLAG_BYTES);
        flag->at = at + (CUdeviceptr)(i * GW__FLAG_BYTES);
        flag->device = d;
    }
    slab->next = d->slabs;
    d->slabs = slab;
    d->slab_count++;
    d->allocations++;
    return GW_OK;
}

static gw__flag_t *idle_flag(gw__device_t *d)
{
    for (gw__flag_slab_t *slab = d->slabs; slab; slab = slab->next)
        for (int i = 0; i < GW__FLAGS_IN_SLAB; i++)
            if (!slab->flags[i].taken)
                return &slab->flags[i];
    return NULL;
}

static gw_status_t grow(gw__device_t *d, gw__why_t *why)
{
    gw_status_t status = gw__device_enter(d, why);
    if (status != GW_OK)
        return status;
    CUstreamCaptureMode mode = gw__device_relax(d);
    status = slab_add(d, why);
    gw__device_strict(d, mode);
    gw__device_leave(d);
    return status;
}

gw_status_t gw__flag_take(gw__device_t *device, gw__flag_t **out, gw__why_t *why)
{
    gw_status_t status = GW_OK;
    pthread_mutex_lock(&device->lock);
    gw__flag_t *flag = idle_flag(device);
    if (!flag && (status = grow(device, why)) == GW_OK)
        flag = idle_flag(device);
    if (flag) {
        atomic_store(flag->word, 0);
        atomic_store(&flag->asked, 0);
        flag->taken = true;
        device->flags_taken++;
        *out = flag;
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

gw_status_t gw__flag_give(gw__flag_t *flag)
{
    gw__device_t *d = flag->device;
    if (!gw__flag_reached(flag, atomic_load(&flag->asked)))
        return GW_IN_PROGRESS;
    pthread_mutex_lock(&d->lock);
    flag->taken = false;
    d->flags_taken--;
    pthread_mutex_unlock(&d->lock);
    return GW_OK;
}

void gw__flags_free(gw__device_t *device)
{
    while (device->slabs) {
        gw__flag_slab_t *slab = device->slabs;
        device->slabs = slab->next;
        slab_free(device, slab);
    }
}

/* ---- What streams can do -----------------------------------------------------------------------
 */

/* The device's attribute speaks of an older form of these calls, so they are tried: a wait for what
 * is there already, and a write. */
static gw_status_t try_operations(gw__device_t *d, CUstream stream, gw__flag_t *flag,
                                  gw__why_t *why)
{
    gw_status_t status =
        GW__CU(d->cu, why, cuStreamWaitValue32_v2, stream, flag->at, 0, CU_STREAM_WAIT_VALUE_GEQ);
    if (status == GW_OK)
        status = GW__CU(d->cu, why, cuStreamWriteValue32_v2, stream, flag->at, 1,
                        CU_STREAM_WRITE_VALUE_DEFAULT);
    gw_status_t waited = GW__CU(d->cu, status == GW_OK ? why : NULL, cuStreamSynchronize, stream);
    if (status == GW_OK)
        status = waited;
    if (status == GW_OK)
        d->memory_operations = atomic_load(flag->word) == 1;
    return status == GW_ERR_UNSUPPORTED ? GW_OK : status;
}

static gw_status_t probe(gw__device_t *d, gw__why_t *why)
{
    CUstream stream;
    if (!d->cu->cuStreamWaitValue32_v2 || !d->cu->cuStreamWriteValue32_v2)
        return GW_OK;
    gw_status_t status = GW__CU(d->cu, why, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    if (status != GW_OK)
        return status;
    status = try_operations(d, stream, &d->slabs->flags[0], why);
    gw_status_t destroyed = GW__CU(d->cu, status == GW_OK ? why : NULL, cuStreamDestroy_v2, stream);
    return status == GW_OK ? destroyed : status;
}

gw_status_t gw__flags_start(gw__device_t *device, gw__why_t *why)
{
    gw_status_t status = slab_add(device, why);
    return status == GW_OK ? probe(device, why) : status;
}

/* ---- Stream to host ----------------------------------------------------------------------------
 */

static long futex(const _Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

/* On the driver's thread: may neither wait nor call the driver. */
static void raise_on_host(void *argument)
{
    _Atomic uint32_t *word = ((gw__flag_t *)argument)->word;
    atomic_fetch_add_explicit(word, 1, memory_order_release);
    futex(word, FUTEX_WAKE, INT_MAX, NULL);
}

gw_status_t gw__flag_raise_after(gw__flag_t *flag, CUstream stream, bool wake, uint32_t *count,
                                 gw__why_t *why)
{
    const gw__driver_t *cu = flag->device->cu;
    uint32_t next = atomic_load(&flag->asked) + 1;
    gw_status_t status;
    if (wake || !flag->device->memory_operations)
        status = GW__CU(cu, why, cuLaunchHostFunc, stream, raise_on_host, flag);
    else
        status = GW__CU(cu, why, cuStreamWriteValue32_v2, stream, flag->at, next,
                        CU_STREAM_WRITE_VALUE_DEFAULT);
    if (status != GW_OK)
        return status;
    atomic_store(&flag->asked, next);
    if (count)
        *count = next;
    return GW_OK;
}

uint32_t gw__flag_count(const gw__flag_t *flag)
{
    return atomic_load_explicit(flag->word, memory_order_acquire);
}

bool gw__flag_reached(const gw__flag_t *flag, uint32_t count)
{
    return (int32_t)(gw__flag_count(flag) - count) >= 0;
}

/* Not for long: a stream's own write wakes nobody. */
static void doze(const _Atomic uint32_t *word, uint32_t seen, int64_t most_ns)
{
    const struct timespec time = {0, most_ns < LOOK_NS ? most_ns : LOOK_NS};
    if (futex(word, FUTEX_WAIT, seen, &time) && errno != EAGAIN && errno != EINTR &&
        errno != ETIMEDOUT)
        nanosleep(&time, NULL);
}

gw_status_t gw__flag_await(const gw__flag_t *flag, uint32_t count, unsigned timeout_ms)
{
    const int64_t end = gw__now_ns() + timeout_ms * INT64_C(1000000);
    for (;;) {
        uint32_t seen = gw__flag_count(flag);
        int64_t left = end - gw__now_ns();
        if ((int32_t)(seen - count) >= 0)
            return GW_OK;
        if (left <= 0)
            return GW_IN_PROGRESS;
        doze(flag->word, seen, left);
    }
}

/* ---- Host to stream ----------------------------------------------------------------------------
 */

void gw__flag_raise(gw__flag_t *flag)
{
    atomic_fetch_add_explicit(flag->word, 1, memory_order_release);
    futex(flag->word, FUTEX_WAKE, INT_MAX, NULL);
}

gw_status_t gw__flag_hold(gw__flag_t *flag, CUstream stream, uint32_t count, gw__why_t *why)
{
    if (gw__flag_reached(flag, count))
        return GW_OK;
    if (!flag->device->memory_operations)
        return GW_IN_PROGRESS;
    return GW__CU(flag->device->cu, why, cuStreamWaitValue32_v2, stream, flag->at, count,
                  CU_STREAM_WAIT_VALUE_GEQ);
}
