/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces that are under way or wait for their turn on a communicator. */
#include "work.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "comm_internal.h"

enum {
    TEST_STEPS = 16,      /* of one test, at most, while something moves */
    LOOK_NS = 1000 * 1000 /* how often a waiting caller gives its own library a turn */
};

void gw__queue_init(gw__queue_t *queue)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void append(gw__queue_t *queue, gw_work_t *work)
{
    work->next = NULL;
    if (queue->last)
        queue->last->next = work;
    else
        queue->first = work;
    queue->last = work;
}

/* The first one is over. The lock is held where a driver may be. */
static void remove_first(gw__queue_t *queue)
{
    gw_work_t *work = queue->first;
    queue->first = work->next;
    if (!queue->first)
        queue->last = NULL;
    queue->begun = false;
    atomic_store_explicit(&work->over, true, memory_order_release);
}

/* One step of the first work. */
static gw_status_t step_first(gw__queue_t *queue)
{
    gw_work_t *work = queue->first;
    if (!queue->begun)
        gw__call_begin(work);
    queue->begun = true;
    return gw__call_step(work);
}

/* The life of a driver: everything posted, then it is driven no more. */
static void drive(void *arg)
{
    gw_comm_t *comm = arg;
    gw__queue_t *queue = &comm->queue;
    comm->engine.elsewhere = true;
    pthread_mutex_lock(&queue->lock);
    while (queue->first && !atomic_load(&queue->abandoned)) {
        pthread_mutex_unlock(&queue->lock);
        while (step_first(queue) == GW_IN_PROGRESS && !atomic_load(&queue->abandoned))
            gw__engine_rest(&comm->engine);
        pthread_mutex_lock(&queue->lock);
        if (queue->first->status != GW_IN_PROGRESS)
            remove_first(queue);
        pthread_cond_broadcast(&queue->moved);
    }
    queue->driven = comm->engine.elsewhere = false;
    pthread_cond_broadcast(&queue->moved);
    pthread_mutex_unlock(&queue->lock);
}

static bool may_be_driven(const gw_comm_t *comm, bool alone)
{
    return comm->engine.pool && (alone || comm->engine.hands_max > 0) && comm->transport &&
           !(comm->transport->flags & GW_TRANSPORT_CALLER_ONLY);
}

/* `alone`: nobody else will drive, so that a worker is worth having on a single CPU too. */
static void start_driver(gw_comm_t *comm, bool alone)
{
    gw__queue_t *queue = &comm->queue;
    if (!queue->driver && may_be_driven(comm, alone))
        queue->driver = gw__pool_borrow(comm->engine.pool);
    if (!queue->driver)
        return;
    while (!gw__worker_done(queue->driver)) /* it has said that it ends, and will at once */
        sched_yield();
    pthread_mutex_lock(&queue->lock);
    queue->driven = true;
    pthread_mutex_unlock(&queue->lock);
    gw__worker_start(queue->driver, drive, comm);
}

static bool is_over(const gw_work_t *work)
{
    return atomic_load_explicit(&work->over, memory_order_acquire);
}

/* Waits for a driver; true when there is none any more. */
static bool wait_for_driver(gw_comm_t *comm, const gw_work_t *work)
{
    gw__queue_t *queue = &comm->queue;
    pthread_mutex_lock(&queue->lock);
    while (queue->driven && !is_over(work)) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&queue->moved, &queue->lock, &until);
        if (!comm->engine.idle)
            continue;
        pthread_mutex_unlock(&queue->lock);
        comm->engine.idle(comm->engine.idle_arg);
        pthread_mutex_lock(&queue->lock);
    }
    bool alone = !queue->driven;
    pthread_mutex_unlock(&queue->lock);
    return alone;
}

/* The calling thread drives, until `work` is over. */
static void drive_here(gw_comm_t *comm, const gw_work_t *work)
{
    while (!is_over(work)) {
        if (step_first(&comm->queue) != GW_IN_PROGRESS)
            remove_first(&comm->queue);
        else
            gw__engine_rest(&comm->engine);
    }
}

static void finish(gw_comm_t *comm, const gw_work_t *work)
{
    if (!is_over(work) && wait_for_driver(comm, work))
        drive_here(comm, work);
}

gw_status_t gw__work_run(gw_work_t *work)
{
    gw_comm_t *comm = work->comm;
    gw__queue_t *queue = &comm->queue;
    if (queue->posted) {
        /* Behind what was posted, in the order in which all ranks run them. */
        pthread_mutex_lock(&queue->lock);
        append(queue, work);
        pthread_mutex_unlock(&queue->lock);
        finish(comm, work);
    } else {
        gw__call_begin(work);
        while (gw__call_step(work) == GW_IN_PROGRESS)
            gw__engine_rest(&comm->engine);
    }
    gw__call_report(work);
    return work->status;
}

static gw_status_t post(const gw_work_t *work, bool alone, gw_work_t **out)
{
    gw_comm_t *comm = work->comm;
    gw__queue_t *queue = &comm->queue;
    gw_work_t *posted = queue->spare;
    if (posted)
        queue->spare = posted->next_posted;
    else if (!(posted = malloc(sizeof *posted)))
        return GW_ERR_NO_MEMORY;
    *posted = *work;
    posted->detached = false;
    posted->status = GW_IN_PROGRESS;
    posted->next_posted = queue->posted;
    queue->posted = posted;
    pthread_mutex_lock(&queue->lock);
    append(queue, posted);
    bool driven = queue->driven;
    pthread_mutex_unlock(&queue->lock);
    if (!driven)
        start_driver(comm, alone);
    if (!queue->driver && step_first(queue) != GW_IN_PROGRESS)
        remove_first(queue);
    *out = posted;
    return GW_OK;
}

gw_status_t gw__work_post(const gw_work_t *work, gw_work_t **out)
{
    return post(work, false, out);
}

/* Takes a work that is over back. Without any the driver is free for others. */
static gw_status_t settle(gw_work_t **pointer)
{
    gw_work_t *work = *pointer;
    gw__queue_t *queue = &work->comm->queue;
    gw_status_t status = work->status;
    gw__call_report(work);
    for (gw_work_t **p = &queue->posted; *p; p = &(*p)->next_posted)
        if (*p == work) {
            *p = work->next_posted;
            break;
        }
    work->next_posted = queue->spare;
    queue->spare = work;
    *pointer = NULL;
    if (!queue->posted && queue->driver) {
        while (!gw__worker_done(queue->driver))
            sched_yield();
        gw__worker_return(queue->driver);
        queue->driver = NULL;
    }
    return status;
}

static void test_here(gw_comm_t *comm, const gw_work_t *work)
{
    for (int i = 0; i < TEST_STEPS && !is_over(work); i++) {
        if (step_first(&comm->queue) != GW_IN_PROGRESS)
            remove_first(&comm->queue);
        else if (comm->engine.idle_steps > 0)
            break;
    }
    gw__engine_idle(&comm->engine);
}

gw_status_t gw_work_test(gw_work_t **work, bool *done)
{
    if (!work || !done)
        return GW_ERR_INVALID;
    *done = true;
    if (!*work)
        return GW_OK;
    gw_comm_t *comm = (*work)->comm;
    if (!is_over(*work)) {
        pthread_mutex_lock(&comm->queue.lock);
        bool driven = comm->queue.driven;
        pthread_mutex_unlock(&comm->queue.lock);
        if (!driven)
            test_here(comm, *work);
    }
    *done = is_over(*work);
    return *done ? settle(work) : GW_OK;
}

gw_status_t gw_work_wait(gw_work_t **work)
{
    if (!work)
        return GW_ERR_INVALID;
    if (!*work)
        return GW_OK;
    finish((*work)->comm, *work);
    return settle(work);
}

gw_status_t gw__work_detach(const gw_work_t *work, bool *over)
{
    gw_work_t *posted;
    gw_status_t status = post(work, true, &posted);
    if (status != GW_OK)
        return status;
    posted->detached = true;
    *over = !work->comm->queue.driver;
    if (*over)
        finish(work->comm, posted);
    return GW_OK;
}

bool gw__work_sweep(gw_comm_t *comm)
{
    bool others = false;
    for (gw_work_t *work = comm->queue.posted, *next; work; work = next) {
        gw_work_t *mine = work;
        next = work->next_posted;
        if (work->detached && is_over(work))
            settle(&mine);
        else
            others |= work->detached;
    }
    return others;
}

static void free_list(gw_work_t *work)
{
    while (work) {
        gw_work_t *next = work->next_posted;
        free(work);
        work = next;
    }
}

void gw__queue_free(gw__queue_t *queue, gw_comm_t *comm)
{
    atomic_store(&queue->abandoned, true);
    if (queue->driver) {
        while (!gw__worker_done(queue->driver))
            sched_yield();
        gw__worker_return(queue->driver);
    }
    if (queue->first && queue->begun)
        gw__engine_abandon(&comm->engine);
    for (gw_work_t *work = queue->first; work; work = work->next)
        gw__device_call_end(work); /* a stream may wait for it */
    free_list(queue->posted);
    free_list(queue->spare);
    pthread_cond_destroy(&queue->moved);
    pthread_mutex_destroy(&queue->lock);
}
