/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces that are under way or wait for their turn on a communicator. */
#ifndef GW_WORK_H
#define GW_WORK_H

#include <pthread.h>
#include <stdatomic.h>

#include <gradwire/comm.h>

#include "device_call.h"
#include "engine.h"
#include "parts.h"

/* One all-reduce, from posting to end. */
struct gw_work {
    gw_comm_t *comm;
    gw_call_t call;
    gw_decision_t decision;
    gw__engine_call_t job;
    const gw__split_t *split; /* the call goes in parts; NULL: as a whole */
    uint64_t part; /* not 0: this is no call of the application's but a part of one, and this is its
                      key for state that is kept from call to call; it is not counted, */
    float *residual;            /* and finds its residual here, or NULL */
    bool half;                  /* the residual is in bfloat16 */
    gw__device_call_t device;   /* of a call on device memory */
    gw_coder_t coder;           /* in force in this call, where a schedule changes it */
    const gw_coder_t *factored; /* of a call whose factors are summed; NULL: elements are */
    int slot;                   /* of its residual, -1: none */
    bool runs;                  /* the engine has it */
    bool detached;              /* nobody will wait for it */
    gw_status_t status;
    atomic_bool over; /* status is final and the communicator does not touch this any more */
    gw_work_t *next, *next_posted;
};

/*
 * The posted work of a communicator; it runs one after another, in the order of posting, which is
 * the same on all ranks. Who drives it: a borrowed worker, where there is one and the transport
 * lets any thread use it; otherwise the calling thread, in test, wait and blocking calls.
 */
typedef struct gw__queue {
    pthread_mutex_t lock; /* of first, last, driven and each work's being over */
    pthread_cond_t moved;
    gw_work_t *first, *last;
    bool driven;          /* the worker is at it, and alone */
    bool begun;           /* the first one; the driver's, or the calling thread's */
    gw__worker_t *driver; /* the calling thread's, like what follows */
    gw_work_t *posted;    /* all that the caller holds, over or not */
    gw_work_t *spare;     /* to be used again */
    atomic_bool abandoned;
} gw__queue_t;

void gw__queue_init(gw__queue_t *queue);

/* Gives up what is not over; then no work of this communicator may be touched. */
void gw__queue_free(gw__queue_t *queue, gw_comm_t *comm);

/* Runs a work that lies on the caller's stack, after all that was posted; returns its status. */
gw_status_t gw__work_run(gw_work_t *work);

/* Posts a copy of `work`. GW_ERR_NO_MEMORY. */
gw_status_t gw__work_post(const gw_work_t *work, gw_work_t **out);

/*
 * Posts a copy of a work that nobody will wait for. It goes on by itself; where no worker is free
 * for it, it is over on return. `over` tells the latter. GW_ERR_NO_MEMORY: nothing was posted.
 */
gw_status_t gw__work_detach(const gw_work_t *work, bool *over);

/* Forgets detached works that are over; returns whether there are others. By the calling thread. */
bool gw__work_sweep(gw_comm_t *comm);

/* The buffer by whose address a call is known. */
static inline const void *gw__work_place(const gw_work_t *work)
{
    if (work->device.through_host)
        return work->device.send;
    return work->call.send ? work->call.send : work->call.recv;
}

/* In allreduce.c: the job of the engine that a call is with this coder, but for its memory, number
 * and key; and the residual of a call, with its slot in the work; `beside` as in its key. */
gw__engine_call_t gw__call_job(const gw_work_t *work, const gw_coder_t *coder);
float *gw__call_residual(gw_work_t *work, gw__residual_store_t *store, size_t beside);

/* In allreduce.c: what the communicator says of a failure, once the caller learns of it: a driver
 * leaves that alone. */
void gw__call_report(const gw_work_t *work);

/* In allreduce.c: the first moves, and the next one, of a work whose turn it is. Returns
 * GW_IN_PROGRESS or the final status. */
void gw__call_begin(gw_work_t *work);
gw_status_t gw__call_step(gw_work_t *work);

#endif
