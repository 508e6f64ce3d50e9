/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of memory a pointer is to. */
#ifndef GW_DEVICE_MEMORY_H
#define GW_DEVICE_MEMORY_H

#include "driver.h"

typedef enum gw__memory_kind {
    GW__MEMORY_HOST,    /* the heap, the stack, a file: nothing that CUDA knows of */
    GW__MEMORY_PINNED,  /* host memory that CUDA allocated or registered: copies need no bounce */
    GW__MEMORY_MANAGED, /* moves between host and device by itself */
    GW__MEMORY_DEVICE   /* the host must not touch it */
} gw__memory_kind_t;

typedef struct gw__memory {
    gw__memory_kind_t kind;
    int ordinal;       /* of the device that CUDA counts it to; -1: none */
    CUdeviceptr at;    /* where kernels see it; 0: host memory */
    CUcontext context; /* it was made in; NULL: of no context (host, stream-ordered memory) */
} gw__memory_t;

/* "host", "pinned", "managed", "device". */
const char *gw__memory_kind_name(gw__memory_kind_t kind);

/*
 * Asks the driver each time, as memory may be freed and come back as another kind. Where no
 * libcuda.so.1 is in the process, and where it was not started, all memory is the host's: nothing
 * is loaded and cuInit is not called. Of pages that the host lets a device see by itself (HMM, ATS)
 * the kind is host too. Any thread, any current context, also while a stream is captured.
 *
 * GW_ERR_DEVICE: as gw__driver_check().
 */
gw_status_t gw__device_kind(const void *pointer, gw__memory_t *out, gw__why_t *why);

#endif
