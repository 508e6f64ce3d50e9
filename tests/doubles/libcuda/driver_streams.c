/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: queues of work with numbers of one order, and who waits for whom. */
#include <stdlib.h>

#include "driver_double.h"

static uint64_t last_seq;

/* ---- Work --------------------------------------------------------------------------------------
 */

work_t *work_new(work_kind_t kind)
{
    work_t *work = calloc(1, sizeof *work);
    if (work)
        work->kind = kind;
    return work;
}

void mark_drop(mark_t *mark)
{
    if (mark && !--mark->refs)
        free(mark);
}

void work_free(work_t *work)
{
    mark_drop(work->mark);
    free(work->args);
    free(work->owned);
    free(work);
}

CUresult submit(CUcontext context, CUstream handle, work_t *work)
{
    CUstream stream = stream_of(context, handle);
    bool captured = false;
    CUresult result = stream ? capture_submit(stream, work, &captured) : CUDA_ERROR_INVALID_HANDLE;
    if (result || captured) {
        work_free(work);
        return result;
    }
    work->stream = stream;
    work->seq = ++last_seq;
    work->born = clock_ns();
    if (work->kind == WORK_RECORD) {
        work->mark->stream = stream;
        work->mark->seq = work->seq;
    }
    if (stream->tail)
        stream->tail->next = work;
    else
        stream->head = work;
    stream->tail = work;
    executor_wake();
    return CUDA_SUCCESS;
}

/* ---- Streams -----------------------------------------------------------------------------------
 */

static CUstream stream_new(CUcontext context, unsigned flags, int priority)
{
    CUstream stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

static CUstream own_stream(CUcontext context, bool legacy)
{
    for (CUstream s = context->streams; s; s = s->next)
        if (legacy ? s->legacy : s->per_thread && pthread_equal(s->owner, pthread_self()))
            return s;
    CUstream stream = stream_new(context, CU_STREAM_DEFAULT, 0);
    if (stream && legacy) {
        stream->legacy = true;
        context->legacy = stream;
    } else if (stream) {
        stream->per_thread = true;
        stream->owner = pthread_self();
    }
    return stream;
}

CUstream stream_of(CUcontext context, CUstream handle)
{
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return own_stream(context, handle != CU_STREAM_PER_THREAD);
    for (CUstream s = context->streams; s; s = s->next)
        if (s == handle && !s->destroyed)
            return s;
    refuse(CUDA_ERROR_INVALID_HANDLE, "%p is no stream of the current context", (void *)handle);
    return NULL;
}

/* Whether it and the legacy stream wait for each other. */
bool stream_waits_for_legacy(CUstream stream)
{
    return !stream->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

uint64_t stream_last(CUstream stream)
{
    return stream->tail ? stream->tail->seq : 0;
}

bool stream_is_done(CUstream stream, uint64_t seq)
{
    return !stream->head || stream->head->seq > seq;
}

/* All that must run before work number seq of the stream. Numbers only rise, so what is submitted
 * from now on does not belong to it. */
void stream_want(CUstream stream, uint64_t seq)
{
    if (stream->wanted >= seq)
        return;
    stream->wanted = seq;
    for (work_t *w = stream->head; w && w->seq <= seq; w = w->next) {
        if (w->kind == WORK_WAIT_MARK && !w->mark->done)
            stream_want(w->mark->stream, w->mark->seq);
        for (CUstream s = stream->context->streams; s && stream->legacy; s = s->next)
            if (stream_waits_for_legacy(s))
                stream_want(s, w->seq);
        if (stream_waits_for_legacy(stream) && stream->context->legacy)
            stream_want(stream->context->legacy, w->seq);
    }
}

void stream_wait(CUstream stream, uint64_t seq)
{
    stream_want(stream, seq);
    stream->waiters++;
    executor_wake();
    while (!stream_is_done(stream, seq))
        executor_await();
    stream->waiters--;
    stream_free_if_done(stream);
}

void stream_wait_all(CUcontext context)
{
    uint64_t seq = last_seq;
    for (CUstream s = context->streams; s; s = s->next)
        stream_want(s, seq);
    executor_wake();
    for (CUstream s = context->streams; s;)
        if (stream_is_done(s, seq)) {
            s = s->next;
        } else {
            executor_await();
            s = context->streams; /* the list may have changed */
        }
}

void stream_free_if_done(CUstream stream)
{
    if (!stream->destroyed || stream->head || stream->waiters)
        return;
    CUstream *at = &stream->context->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    free(stream);
}

/* ---- Calls -------------------------------------------------------------------------------------
 */

CUresult enter_of_stream(const char *call, CUstream handle, CUstream *stream)
{
    CUcontext context;
    CUresult result = enter(call, &context);
    if (result)
        return result;
    *stream = stream_of(context, handle);
    return *stream ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    if (!stream || flags > CU_STREAM_NON_BLOCKING)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *stream = stream_new(context, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
    driver_counts.streams++;
    return leave(*stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
    CUstream stream;
    CUresult result = enter_of_stream(__func__, handle, &stream);
    if (result)
        return result;
    if (stream->legacy || stream->per_thread)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    capture_leave(stream);
    stream->destroyed = true;
    stream_free_if_done(stream);
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    CUstream stream;
    CUresult result = enter_of_stream(__func__, handle, &stream);
    if (result)
        return result;
    if (!priority)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *priority = stream->priority;
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
    CUstream stream;
    CUresult result = enter_of_stream(__func__, handle, &stream);
    if (result)
        return result;
    if (!flags)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *flags = stream->flags;
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    CUstream stream;
    CUresult result = enter_of_stream(__func__, handle, &stream);
    if (result)
        return result;
    if (!context)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *context = stream->context;
    return leave(CUDA_SUCCESS);
}

/* Asking makes the work wanted: whoever polls comes to an end. */
CUresult cuStreamQuery(CUstream handle)
{
    CUstream stream;
    CUresult result = enter_of_stream(__func__, handle, &stream);
    if (result)
        return result;
    result = capture_forbids_stream(stream);
    if (result)
        return leave(result);
    stream_want(stream, stream_last(stream));
    executor_wake();
    return leave(stream->head ? CUDA_ERROR_NOT_READY : stream->context->broken);
}

CUresult cuStreamSynchronize(CUstream handle)
{
    CUstream stream;
    CUresult result = enter_of_stream(__func__, handle, &stream);
    if (result)
        return result;
    CUcontext context = stream->context;
    result = capture_forbids_stream(stream);
    if (result)
        return leave(result);
    stream_wait(stream, stream_last(stream));
    return leave(context->broken);
}
