/* SPDX-License-Identifier: Apache-2.0 */
/* libcuda.so.1: opened at run time, its functions by name, its results as statuses and sentences.
 */
#ifndef GW_DEVICE_DRIVER_H
#define GW_DEVICE_DRIVER_H

#include <gradwire/status.h>

#include "driver_api.h"

/* One sentence without a newline. Whoever passes NULL does not want it. */
typedef struct gw__why {
    char text[256];
} gw__why_t;

void gw__why_print(gw__why_t *why, const char *format, ...) GW_PRINTF(2, 3);

/*
 * The driver's functions. Those that came after CUDA 11.0 (the `since` of driver_api.h) are NULL
 * where the library has none; all others are there once gw__driver_start() has said GW_OK.
 */
enum { GW__DRIVER_OLDEST = 11000 };

typedef struct gw__driver {
#define GW__DRIVER_FIELD(name, since, params) CUresult(*name) params;
    GW_CU_FUNCTIONS(GW__DRIVER_FIELD)
#undef GW__DRIVER_FIELD
} gw__driver_t;

/*
 * The functions of a libcuda.so.1 that something else has loaded into this process, or NULL. Loads
 * nothing and calls nothing: where it is NULL, there is no pointer to device memory. Of a library
 * that is too old any function may be NULL. Any thread; takes no lock of Gradwire's.
 */
const gw__driver_t *gw__driver_loaded(void);

/*
 * Loads the library when need be and calls cuInit, once per process; later calls give the first
 * one's result. It is never unloaded. Any thread.
 *
 * GW_ERR_NO_MODULE: no library, one that is too old, no device, or this process was forked from one
 * that had started the driver (CUDA does not work there). Others as gw__driver_check().
 */
gw_status_t gw__driver_start(const gw__driver_t **out, gw__why_t *why);

/*
 * What a driver's result means to Gradwire; the sentence names the call and CUDA's error:
 *
 *     GW_OK                success
 *     GW_IN_PROGRESS       work is still under way (no sentence)
 *     GW_ERR_INVALID       the caller's handle, pointer or context is not what was asked for
 *     GW_ERR_UNSUPPORTED   this device or driver cannot do it, or not in a capturing stream
 *     GW_ERR_NO_MEMORY     of the device or the host
 *     GW_ERR_NO_MODULE     no driver, device or kernel that could be used
 *     GW_ERR_DEVICE        everything else: the context may be lost for good
 */
gw_status_t gw__driver_check(const char *call, CUresult result, gw__why_t *why);

/* Calls a function of a table and checks its result: GW__CU(cu, why, cuMemFree_v2, at). */
#define GW__CU(cu, why, call, ...) gw__driver_check(#call, (cu)->call(__VA_ARGS__), why)

#endif
