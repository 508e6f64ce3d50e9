/* SPDX-License-Identifier: Apache-2.0 */
/* The one executor: what may run now, what of it runs next, and what an error does to the rest. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver_double.h"

enum { POLL_NS = 100 * 1000, HEADS = 256 };

const char *volatile executor_runs;
pthread_t executor_thread;
int64_t executor_since;

static pthread_cond_t submitted, ended;
static bool stops;

/* ---- What may run ------------------------------------------------------------------------------
 */

static bool head_is_before(CUstream stream, uint64_t seq)
{
    return stream->head && stream->head->seq < seq;
}

/* Whether all that the legacy stream stands for is before this work. */
static bool legacy_lets(const work_t *work)
{
    CUcontext context = work->stream->context;
    if (stream_waits_for_legacy(work->stream))
        return !context->legacy || !head_is_before(context->legacy, work->seq);
    for (CUstream s = context->streams; s && work->stream->legacy; s = s->next)
        if (stream_waits_for_legacy(s) && head_is_before(s, work->seq))
            return false;
    return true;
}

static bool is_ready(const work_t *work)
{
    if (work->stream->context->broken)
        return true;
    if (!legacy_lets(work))
        return false;
    if (work->kind == WORK_WAIT_MARK)
        return work->mark->done;
    return work->kind != WORK_WAIT_VALUE || value_is_there(work);
}

static bool is_wanted(const work_t *work)
{
    return work->seq <= work->stream->wanted || work->stream->context->broken;
}

static int64_t due_at(const work_t *work)
{
    return work->born + driver_settings.of.delay_ms * 1000000;
}

typedef struct look {
    work_t *ready[HEADS];
    unsigned count;
    bool somebody_waits; /* for some of it */
    bool value_missing;  /* wanted or due work waits for a value, which any other may write */
    int64_t again_at;    /* when to look again; INT64_MAX: at the next submission */
} look_t;

static void look_at(look_t *look, work_t *work, int64_t now)
{
    bool ready = is_ready(work), wanted = is_wanted(work) || due_at(work) <= now;
    look->somebody_waits |= is_wanted(work);
    if (!ready && work->kind == WORK_WAIT_VALUE && now + POLL_NS < look->again_at)
        look->again_at = now + POLL_NS;
    if (!ready && work->kind == WORK_WAIT_VALUE && wanted)
        look->value_missing = true;
    if (ready && !wanted && due_at(work) < look->again_at)
        look->again_at = due_at(work);
    if (ready && look->count < HEADS)
        look->ready[look->count++] = work;
}

static void look_around(look_t *look, int64_t now)
{
    look->count = 0;
    look->somebody_waits = look->value_missing = false;
    look->again_at = INT64_MAX;
    for (CUdevice d = 0; d < driver_settings.devices; d++)
        for (CUstream s = context_of(d)->streams; s; s = s->next)
            if (s->head && !s->busy)
                look_at(look, s->head, now);
}

static bool is_allowed(const look_t *look, const work_t *work, int64_t now)
{
    return is_wanted(work) || due_at(work) <= now || look->value_missing ||
           (look->somebody_waits && driver_settings.of.seed > 1);
}

/* NULL: nothing may run before again_at. */
static work_t *choose(int64_t *again_at)
{
    static look_t look;
    int64_t now = clock_ns();
    look_around(&look, now);
    *again_at = look.again_at;
    work_t *best = NULL;
    unsigned allowed = 0;
    for (unsigned i = 0; i < look.count; i++) {
        work_t *w = look.ready[i];
        if (!is_allowed(&look, w, now))
            continue;
        allowed++;
        bool better = !best || (driver_settings.of.seed == 0   ? w->seq < best->seq
                                : driver_settings.of.seed == 1 ? w->seq > best->seq
                                                               : draw() % allowed == 0);
        best = better ? w : best;
    }
    return best;
}

/* ---- Running -----------------------------------------------------------------------------------
 */

void context_break(CUcontext context, CUresult result)
{
    if (!context->broken)
        context->broken = result;
}

void work_end(work_t *work)
{
    CUstream stream = work->stream;
    stream->head = work->next;
    if (!stream->head)
        stream->tail = NULL;
    stream->busy = false;
    if (work->kind == WORK_RECORD) {
        work->mark->at = clock_ns();
        work->mark->done = true;
        work->mark->stream = NULL;
    }
    work_free(work);
    stream_free_if_done(stream);
    pthread_cond_broadcast(&ended);
    pthread_cond_signal(&submitted);
}

static void allocation_run(work_t *work)
{
    memory_t *m = memory_at_start(work->to);
    if (m && work->kind == WORK_ALLOCATE)
        m->state = MEMORY_LIVE;
    else if (m && work->kind == WORK_FREE)
        memory_free(m);
    else if (work->kind == WORK_FREE) {
        say("cuMemFreeAsync: %p was freed before its stream came to it", (void *)work->to);
        context_break(work->stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}

static void run(work_t *work)
{
    work->stream->busy = true;
    executor_since = clock_ns();
    if (work->stream->context->broken) {
        work_end(work);
        return;
    }
    switch (work->kind) {
    case WORK_HOST:
        host_run(work);
        return;
    case WORK_KERNEL:
        kernel_run(work);
        break;
    case WORK_COPY:
    case WORK_SET:
    case WORK_WRITE_VALUE:
        copy_run(work);
        break;
    case WORK_ALLOCATE:
    case WORK_FREE:
        allocation_run(work);
        break;
    case WORK_RECORD:
    case WORK_WAIT_MARK:
    case WORK_WAIT_VALUE:
        break;
    }
    executor_runs = NULL;
    work_end(work);
}

static void wait_until(int64_t at)
{
    struct timespec until = {at / 1000000000, at % 1000000000};
    if (at == INT64_MAX)
        pthread_cond_wait(&submitted, &driver_lock);
    else
        pthread_cond_timedwait(&submitted, &driver_lock, &until);
}

static void *executor(void *nothing)
{
    pthread_mutex_lock(&driver_lock);
    for (;;) {
        int64_t again_at = INT64_MAX;
        work_t *work = stops ? NULL : choose(&again_at);
        if (work) {
            run(work);
            continue;
        }
        memory_close();
        wait_until(again_at);
    }
    return nothing;
}

bool executor_start(void)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&submitted, &clock);
    pthread_cond_init(&ended, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&executor_thread, NULL, executor, NULL))
        return false;
    pthread_detach(executor_thread);
    return true;
}

void executor_wake(void)
{
    pthread_cond_signal(&submitted);
}

/* Whoever waited goes on with device memory closed, unless something runs. */
void executor_await(void)
{
    pthread_cond_wait(&ended, &driver_lock);
    if (!executor_runs)
        memory_close();
}

/* At exit; a kernel gets a second to end. */
void driver_stop(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    stops = true;
    while (executor_runs && !pthread_cond_timedwait(&ended, &driver_lock, &until))
        continue;
}
