/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and events of a device that are kept from call to call. */
#ifndef GW_DEVICE_POOL_H
#define GW_DEVICE_POOL_H

#include "device.h"

/*
 * A call takes all memory that it needs as one piece when it begins, before it lets any stream
 * wait, and gives it back when all work on it is in the stream. Whoever holds a piece and asks for
 * another of the same kind may wait for himself.
 *
 * A pool keeps what it has allocated until the device object goes, or until it is in the way of a
 * larger piece. Once it has seen the largest call nothing is allocated any more. Allocating may
 * make the driver wait for work under way; taking a piece that is there does not.
 */
typedef enum gw__pool_kind { GW__POOL_DEVICE, GW__POOL_PINNED } gw__pool_kind_t;

typedef struct gw__piece {
    struct gw__piece *next;
    char *host;      /* its address for the host; NULL: device memory */
    CUdeviceptr at;  /* its address for kernels and copies, a multiple of 256 */
    size_t bytes;    /* at least what was asked for */
    CUevent last;    /* recorded behind its last use */
    CUstream stream; /* that used it last: not to be called, it may be gone */
    gw__pool_kind_t kind;
    bool taken, used; /* used: `last` was recorded, and has not been seen to be done */
    bool lost;        /* nobody knows when its last use ends */
} gw__piece_t;

/*
 * For work on one stream: where the last use of a piece has not ended, the stream is made to wait
 * for it (device memory only; pinned memory is given when its last use has ended, so that the host
 * may write to it at once). The contents are anything. `stream` counts in the device's context.
 *
 * GW_IN_PROGRESS: what there is is in use and the bound allows no more; ask again.
 * GW_ERR_NO_MEMORY: more than the bound, or the driver has none. Others as gw__driver_check().
 * Any thread.
 */
gw_status_t gw__piece_take(gw__device_t *device, gw__pool_kind_t kind, size_t bytes,
                           CUstream stream, gw__piece_t **out, gw__why_t *why);

/* Given back behind all work that is in the stream now; work on other streams must have been made
 * to come before it. An error: the stream does not say when it ends, so nobody gets the piece again
 * before the device object goes. Any thread. */
gw_status_t gw__piece_give_after(gw__device_t *device, gw__piece_t *piece, CUstream stream,
                                 gw__why_t *why);

/* Given back by a caller who has not used it, or who knows that all work on it has ended. */
void gw__piece_give(gw__device_t *device, gw__piece_t *piece);

/* An event without a time, from those that were given back or a new one. Waits on a stream that
 * were put there keep their meaning when it is recorded again. GW_ERR_NO_MEMORY and others as
 * gw__driver_check(). Any thread. */
gw_status_t gw__event_take(gw__device_t *device, CUevent *out, gw__why_t *why);
void gw__event_give(gw__device_t *device, CUevent event);

#endif
