/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads that the communicators of a context share: each is lent to one call at a time. */
#define _GNU_SOURCE /* CPU sets */
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* Polls of a borrowed worker before it sleeps: some ten microseconds, which is what waking it would
 * cost. */
enum { SPINS = 2000 };

enum { IDLE, GIVEN, QUIT };

/* A worker's own cache lines: two of them never write to one. */
struct gw__worker {
    _Alignas(128) atomic_int phase; /* IDLE: the last job is done */
    atomic_bool sleeping, borrowed;
    bool started; /* the borrower's */
    gw__job_fn job;
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

struct gw__pool {
    int threads;
    pid_t owner;
    atomic_int started;
    gw__worker_t worker[];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits for a job; spins only while somebody has borrowed the worker and is likely to give it one.
 */
static int next_phase(gw__worker_t *w)
{
    for (int i = 0; i < SPINS && atomic_load_explicit(&w->borrowed, memory_order_relaxed); i++) {
        int phase = atomic_load_explicit(&w->phase, memory_order_acquire);
        if (phase != IDLE)
            return phase;
        relax();
    }
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->sleeping, true);
    while (atomic_load(&w->phase) == IDLE)
        pthread_cond_wait(&w->wake, &w->lock);
    atomic_store(&w->sleeping, false);
    pthread_mutex_unlock(&w->lock);
    return atomic_load(&w->phase);
}

static void *work(void *pointer)
{
    gw__worker_t *w = pointer;
    while (next_phase(w) == GIVEN) {
        w->job(w->arg);
        atomic_store_explicit(&w->phase, IDLE, memory_order_release);
    }
    return NULL;
}

/* The worker looks at the phase after it said that it sleeps, and this at the latter after it wrote
 * the phase: one of them sees the other. */
static void set_phase(gw__worker_t *w, int phase)
{
    atomic_store(&w->phase, phase);
    if (!atomic_load(&w->sleeping))
        return;
    pthread_mutex_lock(&w->lock);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

gw__pool_t *gw__pool_create(int threads)
{
    size_t bytes = sizeof(gw__pool_t) + (size_t)threads * sizeof(gw__worker_t);
    gw__pool_t *pool = aligned_alloc(128, (bytes + 127) / 128 * 128);
    if (!pool)
        return NULL;
    pool->threads = threads;
    pool->owner = getpid();
    atomic_init(&pool->started, 0);
    for (int i = 0; i < threads; i++) {
        gw__worker_t *w = &pool->worker[i];
        atomic_init(&w->phase, IDLE);
        atomic_init(&w->sleeping, false);
        atomic_init(&w->borrowed, false);
        w->started = false;
        pthread_mutex_init(&w->lock, NULL);
        pthread_cond_init(&w->wake, NULL);
    }
    return pool;
}

void gw__pool_free(gw__pool_t *pool)
{
    if (!pool)
        return;
    for (int i = 0; i < pool->threads && pool->owner == getpid(); i++) {
        gw__worker_t *w = &pool->worker[i];
        if (w->started) {
            set_phase(w, QUIT);
            pthread_join(w->thread, NULL);
        }
        pthread_cond_destroy(&w->wake);
        pthread_mutex_destroy(&w->lock);
    }
    free(pool);
}

/* The application's signal handlers must never run on a thread that it does not know. */
static bool start(gw__pool_t *pool, gw__worker_t *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    w->started = pthread_create(&w->thread, NULL, work, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (w->started)
        atomic_fetch_add(&pool->started, 1);
    return w->started;
}

gw__worker_t *gw__pool_borrow(gw__pool_t *pool)
{
    for (int i = 0; i < pool->threads; i++) {
        gw__worker_t *w = &pool->worker[i];
        bool borrowed = false;
        if (!atomic_compare_exchange_strong(&w->borrowed, &borrowed, true))
            continue;
        if (w->started || start(pool, w))
            return w;
        atomic_store(&w->borrowed, false);
        return NULL;
    }
    return NULL;
}

void gw__worker_return(gw__worker_t *worker)
{
    atomic_store(&worker->borrowed, false);
}

void gw__worker_start(gw__worker_t *worker, gw__job_fn job, void *arg)
{
    worker->job = job;
    worker->arg = arg;
    set_phase(worker, GIVEN);
}

bool gw__worker_done(const gw__worker_t *worker)
{
    return atomic_load_explicit(&worker->phase, memory_order_acquire) == IDLE;
}

int gw__pool_started(const gw__pool_t *pool)
{
    return atomic_load(&pool->started);
}

int gw__cpus_allowed(void)
{
    cpu_set_t set;
    /* Fails on a machine with more CPUs than the set holds: there are enough then. */
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return CPU_SETSIZE;
    int count = CPU_COUNT(&set);
    return count > 0 ? count : 1;
}
