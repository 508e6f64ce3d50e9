/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a device object share. */
#ifndef GW_DEVICE_INTERNAL_H
#define GW_DEVICE_INTERNAL_H

#include <pthread.h>
#include <stdint.h>

#include "device.h"
#include "device_flag.h"
#include "device_pool.h"

/* ---- Kernels (device_kernels.c) ---------------------------------------------------------------
 */

enum { GW__DEVICE_KERNELS_MOST = 256, GW__DEVICE_IMAGES_MOST = 32 };

typedef struct gw__device_kernels {
    CUlibrary libraries[GW__DEVICE_IMAGES_MOST]; /* NULL where the driver has no libraries */
    CUmodule modules[GW__DEVICE_IMAGES_MOST];
    CUfunction functions[GW__DEVICE_KERNELS_MOST]; /* in the order of the table of names */
    unsigned threads[GW__DEVICE_KERNELS_MOST];     /* of a block, at most: registers are few */
    unsigned images, count;
    size_t spilled;
} gw__device_kernels_t;

/* Loads every image and every kernel, so that nothing is loaded later (which could make the driver
 * wait for streams that wait for us). In the context. An error leaves what must be unloaded. */
gw_status_t gw__device_kernels_load(gw__device_t *device, gw__why_t *why);
void gw__device_kernels_unload(gw__device_t *device);

/* ---- Memory (device_pool.c) -------------------------------------------------------------------
 */

typedef struct gw__pool {
    gw__piece_t *first;
    size_t bound, held, in_use, peak;
    unsigned pieces, taken;
} gw__pool_pieces_t;

typedef struct gw__events {
    CUevent *idle; /* room for `made` of them */
    unsigned waiting, made, room;
} gw__events_t;

/* Whether nothing of it is taken and no work on it under way; with the lock held. */
bool gw__pools_idle(gw__device_t *device);
/* In the context. */
void gw__pools_free(gw__device_t *device);

/* ---- Flags (device_flag.c) --------------------------------------------------------------------
 */

enum { GW__FLAGS_IN_SLAB = 64, GW__FLAG_BYTES = 64 };

typedef struct gw__flag_slab {
    struct gw__flag_slab *next;
    char *page;
    gw__flag_t flags[GW__FLAGS_IN_SLAB];
} gw__flag_slab_t;

/* In the context: makes the first page, and finds out whether streams can wait for its words. */
gw_status_t gw__flags_start(gw__device_t *device, gw__why_t *why);
void gw__flags_free(gw__device_t *device);

/* ---- The object (device.c) --------------------------------------------------------------------
 */

struct gw__device {
    const gw__driver_t *cu;
    int ordinal;
    unsigned references; /* under the lock of device.c */
    CUdevice device;
    CUcontext context;
    int multiprocessors, threads; /* threads: that a multiprocessor has at a time */
    bool memory_operations;
    gw__device_kernels_t kernels;
    pthread_mutex_t lock; /* of all below; held for no longer than a look, but when they grow */
    gw__pool_pieces_t pools[2];
    gw__events_t events;
    gw__flag_slab_t *slabs;
    unsigned flags_taken, slab_count;
    unsigned long long allocations;
};

/*
 * For what a capture somewhere in the process would forbid (allocating, loading, freeing), as the
 * default mode of captures does: such work is no part of anybody's stream. Gives the mode back
 * that gw__device_strict() wants.
 */
CUstreamCaptureMode gw__device_relax(gw__device_t *device);
void gw__device_strict(gw__device_t *device, CUstreamCaptureMode mode);

#endif
