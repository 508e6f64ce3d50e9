/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens libcuda.so.1. What is found is published by one exchange of a pointer, and whoever comes
 * second throws his own away: there is no lock that a fork could leave taken in the child.
 */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "driver.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define LIBRARY "libcuda.so.1"

void gw__why_print(gw__why_t *why, const char *format, ...)
{
    va_list args;
    if (!why)
        return;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
}

/* ---- Results -----------------------------------------------------------------------------------
 */

static const struct {
    CUresult result;
    const char *name, *sentence;
} results[] = {
#define RESULT(name, number, sentence) {name, #name, sentence},
    GW_CU_RESULTS(RESULT)
#undef RESULT
};

enum { RESULTS = sizeof results / sizeof *results };

static void describe(const char *call, CUresult result, gw__why_t *why)
{
    for (size_t i = 0; i < RESULTS; i++)
        if (results[i].result == result) {
            gw__why_print(why, "%s: %s: %s", call, results[i].name, results[i].sentence);
            return;
        }
    gw__why_print(why, "%s: CUDA error %d", call, (int)result);
}

static gw_status_t status_of(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return GW_OK;
    case CUDA_ERROR_NOT_READY:
        return GW_IN_PROGRESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return GW_ERR_NO_MEMORY;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_ILLEGAL_STATE:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
        return GW_ERR_INVALID;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_NOT_FOUND:
        return GW_ERR_NO_MODULE;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_CAPTURED_EVENT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
        return GW_ERR_UNSUPPORTED;
    default:
        return GW_ERR_DEVICE;
    }
}

gw_status_t gw__driver_check(const char *call, CUresult result, gw__why_t *why)
{
    gw_status_t status = status_of(result);
    if (status < 0)
        describe(call, result, why);
    return status;
}

/* ---- Functions ---------------------------------------------------------------------------------
 */

typedef struct found {
    gw__driver_t cu;
    void *library;
    const char *missing; /* the first function that must be there and is not */
    gw_status_t status;  /* of the start */
    gw__why_t why;
    pid_t pid; /* who has started it */
} found_t;

typedef CUresult (*address_fn)(const char *, void **, int, uint64_t,
                               CUdriverProcAddressQueryResult *);

/* The driver's own search takes names without their version: cuMemAlloc of CUDA 3.2 is
 * cuMemAlloc_v2. Older drivers have the exported names alone. */
static void *address_of(void *library, address_fn search, const char *name, int since)
{
    char base[64];
    void *fn = NULL;
    CUdriverProcAddressQueryResult ignored;
    size_t length = strlen(name);
    bool versioned = length > 3 && name[length - 3] == '_' && name[length - 2] == 'v';
    snprintf(base, sizeof base, "%.*s", (int)(versioned ? length - 3 : length), name);
    if (search && search(base, &fn, since, CU_GET_PROC_ADDRESS_DEFAULT, &ignored) == CUDA_SUCCESS &&
        fn)
        return fn;
    return dlsym(library, name);
}

static void find_functions(found_t *f)
{
    address_fn search = (address_fn)(uintptr_t)dlsym(f->library, "cuGetProcAddress_v2");
#define FIND(name, since, params)                                                                  \
    f->cu.name = (CUresult(*) params)(uintptr_t)address_of(f->library, search, #name, since);      \
    if (!f->cu.name && since <= GW__DRIVER_OLDEST && !f->missing)                                  \
        f->missing = #name;
    GW_CU_FUNCTIONS(FIND)
#undef FIND
}

/* NULL: not there, or no memory; dlerror() tells. */
static found_t *open_library(int flags)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | flags);
    found_t *f = library ? calloc(1, sizeof *f) : NULL;
    if (!f) {
        if (library)
            dlclose(library);
        return NULL;
    }
    f->library = library;
    find_functions(f);
    return f;
}

/* What stands in `place` afterwards: ours, or that of the thread that was first. */
static found_t *publish(_Atomic(found_t *) *place, found_t *ours)
{
    found_t *theirs = NULL;
    if (atomic_compare_exchange_strong(place, &theirs, ours))
        return ours;
    if (ours->library)
        dlclose(ours->library);
    free(ours);
    return theirs;
}

static int may_be_it(struct dl_phdr_info *object, size_t size, void *nothing)
{
    static const char stem[] = "libcuda.so";
    const char *slash = strrchr(object->dlpi_name, '/');
    return strncmp(slash ? slash + 1 : object->dlpi_name, stem, sizeof stem - 1) == 0;
}

/* How many objects were ever loaded, as the first one has it. */
static int count_loads(struct dl_phdr_info *object, size_t size, void *out)
{
    *(unsigned long long *)out = object->dlpi_adds;
    return 1;
}

/* Whether an object that was loaded since the last look might be the library. dlopen() alone would
 * search the file system each time (42 us; this takes 20 ns while nothing is loaded). */
static bool appeared(void)
{
    static _Atomic unsigned long long seen;
    unsigned long long loads = 0;
    dl_iterate_phdr(count_loads, &loads);
    if (atomic_load_explicit(&seen, memory_order_relaxed) == loads)
        return false;
    if (dl_iterate_phdr(may_be_it, NULL))
        return true;
    atomic_store_explicit(&seen, loads, memory_order_relaxed);
    return false;
}

const gw__driver_t *gw__driver_loaded(void)
{
    static _Atomic(found_t *) loaded;
    found_t *f = atomic_load_explicit(&loaded, memory_order_acquire);
    if (!f && appeared()) {
        f = open_library(RTLD_NOLOAD);
        f = f ? publish(&loaded, f) : NULL;
    }
    return f ? &f->cu : NULL;
}

/* ---- Start -------------------------------------------------------------------------------------
 */

static gw_status_t too_old(const found_t *f, gw__why_t *why)
{
    int version = 0;
    if (f->cu.cuDriverGetVersion)
        f->cu.cuDriverGetVersion(&version);
    gw__why_print(why, LIBRARY " is for CUDA %d.%d and lacks %s: CUDA %d.%d or newer is needed",
                  version / 1000, version % 1000 / 10, f->missing, GW__DRIVER_OLDEST / 1000,
                  GW__DRIVER_OLDEST % 1000 / 10);
    return GW_ERR_NO_MODULE;
}

static gw_status_t start(const found_t *f, gw__why_t *why)
{
    int devices = 0;
    if (f->missing)
        return too_old(f, why);
    gw_status_t status = GW__CU(&f->cu, why, cuInit, 0);
    if (status == GW_OK)
        status = GW__CU(&f->cu, why, cuDeviceGetCount, &devices);
    if (status == GW_OK && devices < 1) {
        gw__why_print(why, LIBRARY " finds no device");
        status = GW_ERR_NO_MODULE;
    }
    return status;
}

static found_t *started(void)
{
    static _Atomic(found_t *) place;
    found_t *f = atomic_load_explicit(&place, memory_order_acquire);
    if (f)
        return f;
    f = open_library(0);
    if (f) {
        f->status = start(f, &f->why);
    } else {
        f = calloc(1, sizeof *f);
        if (!f)
            return NULL;
        const char *error = dlerror();
        f->status = GW_ERR_NO_MODULE;
        gw__why_print(&f->why, "no CUDA driver (%s)", error ? error : "no memory");
    }
    f->pid = getpid();
    return publish(&place, f);
}

gw_status_t gw__driver_start(const gw__driver_t **out, gw__why_t *why)
{
    const found_t *f = started();
    if (!f) {
        gw__why_print(why, LIBRARY ": no memory for its functions");
        return GW_ERR_NO_MEMORY;
    }
    if (f->status != GW_OK) {
        gw__why_print(why, "%s", f->why.text);
        return f->status;
    }
    if (f->pid != getpid()) {
        gw__why_print(why, "this process was forked from one that had started CUDA");
        return GW_ERR_NO_MODULE;
    }
    *out = &f->cu;
    return GW_OK;
}
