/* SPDX-License-Identifier: Apache-2.0 */
/* Words of pinned memory by which a stream and the host wait for each other. */
#ifndef GW_DEVICE_FLAG_H
#define GW_DEVICE_FLAG_H

#include <stdatomic.h>

#include "device.h"

/*
 * A flag counts, modulo 2^32, how often it was raised. It serves one direction all its life: raised
 * by one stream at a time and awaited by the host, or raised by the host and awaited by streams.
 *
 * The driver calls host functions of all streams on one thread, so one that waited for a peer
 * would hold up the very work that the peer needs. Here a host function raises a flag and ends;
 * waiting is done by the stream (a memory operation) or by a thread of ours, never by a host
 * function.
 */
typedef struct gw__flag {
    _Atomic uint32_t *word; /* in pinned memory, a cache line of its own */
    CUdeviceptr at;         /* the same word for the device */
    gw__device_t *device;
    _Atomic uint32_t asked; /* how often a stream was asked to raise it */
    bool taken;
} gw__flag_t;

/* A flag that was never raised. GW_ERR_NO_MEMORY and others as gw__driver_check(). Any thread. */
gw_status_t gw__flag_take(gw__device_t *device, gw__flag_t **out, gw__why_t *why);

/* GW_IN_PROGRESS: a stream has yet to raise it; nothing has happened. No stream may be waiting for
 * it any more, which nobody checks. Any thread. */
gw_status_t gw__flag_give(gw__flag_t *flag);

/*
 * Stream to host. The flag is raised when all work that is in the stream now has ended, whose
 * writes the host then sees. `wake`: by a host function, which wakes whoever sleeps in
 * gw__flag_await(); otherwise by the stream itself where it can, which is sooner and takes no
 * thread. `count` (may be NULL) is what the flag will then have reached. Between gw__device_enter()
 * and _leave(); one thread at a time. An error: it will not be raised.
 */
gw_status_t gw__flag_raise_after(gw__flag_t *flag, CUstream stream, bool wake, uint32_t *count,
                                 gw__why_t *why);

/* How often it was raised. */
uint32_t gw__flag_count(const gw__flag_t *flag);

/* Whether it was raised `count` times. */
bool gw__flag_reached(const gw__flag_t *flag, uint32_t count);

/* Sleeps until it was raised `count` times, or for `timeout_ms` (0: looks once). GW_IN_PROGRESS:
 * not yet. A flag that the stream raises without `wake` is looked at every millisecond. Any thread
 * that is no host function. */
gw_status_t gw__flag_await(const gw__flag_t *flag, uint32_t count, unsigned timeout_ms);

/* Host to stream. What the host wrote before is seen by work behind gw__flag_hold(). Any thread,
 * any context; calls no function of the driver. */
void gw__flag_raise(gw__flag_t *flag);

/*
 * Work that is put on the stream from now on begins once the flag was raised `count` times. The
 * host goes on at once. Between gw__device_enter() and _leave().
 *
 * GW_IN_PROGRESS: it was not raised so often yet, and this device's streams cannot wait for memory
 * (gw__device_has_memory_operations): nothing was put on the stream. The caller waits by
 * gw__flag_await() on a thread of its own and puts the work there afterwards.
 */
gw_status_t gw__flag_hold(gw__flag_t *flag, CUstream stream, uint32_t count, gw__why_t *why);

#endif
