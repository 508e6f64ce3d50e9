/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads that the communicators of a context share: each is lent to one call at a time. */
#ifndef GW_POOL_H
#define GW_POOL_H

#include <stdbool.h>

/*
 * A call borrows workers when it begins and returns them when it ends; in between they are its
 * alone, so that communicators share no lock while they work. A worker has one job at a time.
 *
 * Threads are started when they are first borrowed. They take no signals, and run where the thread
 * that borrowed them first may run.
 */
typedef struct gw__pool gw__pool_t;
typedef struct gw__worker gw__worker_t;
typedef void (*gw__job_fn)(void *arg);

/* NULL: no memory. `threads` may be 0. */
gw__pool_t *gw__pool_create(int threads);

/* Ends the threads and frees. No worker may be borrowed. In a forked child, which has no threads,
 * it only frees. NULL is fine. */
void gw__pool_free(gw__pool_t *pool);

/* A worker that nobody uses, or NULL. Any thread. */
gw__worker_t *gw__pool_borrow(gw__pool_t *pool);

/* Any thread; the worker's job must be done. */
void gw__worker_return(gw__worker_t *worker);

/* Starts a job; the last one must be done. By the borrower. */
void gw__worker_start(gw__worker_t *worker, gw__job_fn job, void *arg);

/* Whether the last job is done; what it wrote can be read then. By the borrower. */
bool gw__worker_done(const gw__worker_t *worker);

/* CPUs that the calling thread may run on; at least 1. */
int gw__cpus_allowed(void);

/* How many threads the pool has started. Any thread. */
int gw__pool_started(const gw__pool_t *pool);

#endif
