/* SPDX-License-Identifier: Apache-2.0 */
/* Host functions, on one thread for all streams, and the watchdog that names who waits too long. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* dladdr */
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "driver_double.h"

static pthread_cond_t given;
static work_t *first, **last = &first;
static unsigned waiting;
static CUhostFn runs;
static int64_t runs_since;

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *argument)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (!fn)
        return leave(CUDA_ERROR_INVALID_VALUE);
    work_t *work = work_new(WORK_HOST);
    if (!work)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    work->fn = fn;
    work->argument = argument;
    driver_counts.host_functions++;
    return leave(submit(context, stream, work));
}

void host_run(work_t *work)
{
    work->next_host = NULL;
    *last = work;
    last = &work->next_host;
    waiting++;
    pthread_cond_signal(&given);
}

static work_t *take(void)
{
    work_t *work = first;
    first = work->next_host;
    if (!first)
        last = &first;
    waiting--;
    return work;
}

/* A function is not called after an error of its context. */
static void call(work_t *work)
{
    if (!work->stream->context->broken) {
        runs = work->fn;
        runs_since = clock_ns();
        pthread_mutex_unlock(&driver_lock);
        driver_in_host_function = true;
        work->fn(work->argument);
        driver_in_host_function = false;
        pthread_mutex_lock(&driver_lock);
        runs = NULL;
    }
    work_end(work);
}

static void *host_thread(void *nothing)
{
    pthread_mutex_lock(&driver_lock);
    for (;;) {
        while (!first)
            pthread_cond_wait(&given, &driver_lock);
        call(take());
    }
    return nothing;
}

/* ---- The watchdog ------------------------------------------------------------------------------
 */

static void name_function(void *fn, char *name, size_t size)
{
    Dl_info info;
    if (!dladdr(fn, &info) || !info.dli_fname)
        snprintf(name, size, "%p", fn);
    else if (info.dli_sname && info.dli_saddr == fn)
        snprintf(name, size, "%s of %s", info.dli_sname, info.dli_fname);
    else
        snprintf(name, size, "%s+0x%zx", info.dli_fname,
                 (size_t)((char *)fn - (char *)info.dli_fbase));
}

static double seconds_since(int64_t then)
{
    return (double)(clock_ns() - then) / 1e9;
}

/* Nothing can end it: whoever it waits for may need this very thread. */
static void look_at_host_function(int64_t patience)
{
    char name[300];
    if (!runs || clock_ns() - runs_since < patience)
        return;
    name_function((void *)runs, name, sizeof name);
    say("host function %s has run for %.1f s, and %u wait behind it on the driver's one thread: a "
        "host function may not wait for others (signal from it, and let the stream wait)",
        name, seconds_since(runs_since), waiting);
    abort();
}

static void look_at_value(work_t *work, int64_t patience)
{
    if (work->kind != WORK_WAIT_VALUE || clock_ns() - work->born < patience || work->warned)
        return;
    work->warned = true;
    say("a stream has waited for %.1f s for the value %llu at %p: nobody has written it",
        seconds_since(work->born), (unsigned long long)work->value, (void *)work->to);
}

static void look_around(int64_t patience)
{
    static int64_t named;
    look_at_host_function(patience);
    if (executor_runs && clock_ns() - executor_since > patience && named != executor_since) {
        named = executor_since;
        say("%s has run for %.1f s", executor_runs, seconds_since(executor_since));
    }
    for (CUdevice d = 0; d < driver_settings.devices; d++)
        for (CUstream s = context_of(d)->streams; s; s = s->next)
            if (s->head)
                look_at_value(s->head, patience);
}

static void *watchdog(void *nothing)
{
    for (;;) {
        pthread_mutex_lock(&driver_lock);
        int64_t patience = driver_settings.of.patience_ms * 1000000;
        look_around(patience);
        pthread_mutex_unlock(&driver_lock);
        int64_t pause = patience / 8 < 100000000 ? patience / 8 + 1000000 : 100000000;
        nanosleep(&(struct timespec){0, pause}, NULL);
    }
    return nothing;
}

bool host_start(void)
{
    pthread_t thread;
    pthread_cond_init(&given, NULL);
    if (pthread_create(&thread, NULL, host_thread, NULL))
        return false;
    pthread_detach(thread);
    if (pthread_create(&thread, NULL, watchdog, NULL))
        return false;
    pthread_detach(thread);
    return true;
}

bool driver_start(void)
{
    faults_watch();
    return executor_start() && host_start();
}
