/* SPDX-License-Identifier: Apache-2.0 */
/* Events: the newest mark that was recorded, and who waits for which mark. */
#include <stdlib.h>

#include "driver_double.h"

struct CUevent_st {
    CUevent next;
    CUcontext context;
    unsigned flags;
    mark_t *mark; /* NULL: never recorded */
};

static CUevent events;

static CUevent *place_of(CUevent event)
{
    CUevent *at = &events;
    while (*at && *at != event)
        at = &(*at)->next;
    return *at ? at : NULL;
}

static CUresult enter_of_event(const char *call, CUevent event, CUcontext *context)
{
    CUresult result = enter(call, context);
    if (result)
        return result;
    if (!event || !place_of(event))
        return leave(refuse(CUDA_ERROR_INVALID_HANDLE, "%p is no event", (void *)event));
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    CUcontext context;
    CUresult result = enter(__func__, &context);
    if (result)
        return result;
    bool timed_between_processes = (flags & 6) == CU_EVENT_INTERPROCESS;
    if (!event || flags > 7 || timed_between_processes)
        return leave(CUDA_ERROR_INVALID_VALUE);
    CUevent made = calloc(1, sizeof *made);
    if (!made)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    made->context = context;
    made->flags = flags;
    made->next = events;
    events = made;
    driver_counts.events++;
    *event = made;
    return leave(CUDA_SUCCESS);
}

/* Those who wait for the mark already are not disturbed. */
CUresult cuEventDestroy_v2(CUevent event)
{
    CUcontext context;
    CUresult result = enter_of_event(__func__, event, &context);
    if (result)
        return result;
    *place_of(event) = event->next;
    mark_drop(event->mark);
    free(event);
    return leave(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CUcontext context;
    CUresult result = enter_of_event(__func__, event, &context);
    if (result)
        return result;
    if (event->context != context)
        return leave(refuse(CUDA_ERROR_INVALID_HANDLE, "the event is another context's"));
    work_t *work = work_new(WORK_RECORD);
    mark_t *mark = work ? calloc(1, sizeof *mark) : NULL;
    if (!mark) {
        free(work);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    mark->refs = 2; /* of the work and of this function, then of the event */
    work->mark = mark;
    result = submit(context, stream, work);
    if (result) {
        mark_drop(mark);
        return leave(result);
    }
    mark_drop(event->mark);
    event->mark = mark;
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    CUcontext context;
    CUresult result = enter_of_event(__func__, event, &context);
    if (result)
        return result;
    if (flags > 1)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (!event->mark || is_ignored(__func__))
        return leave(stream_of(context, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
    work_t *work = work_new(WORK_WAIT_MARK);
    if (!work)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    work->mark = event->mark;
    work->mark->refs++;
    return leave(submit(context, stream, work));
}

static bool is_done(const mark_t *mark)
{
    return !mark || mark->done;
}

/* Asking makes the work wanted: whoever polls comes to an end. */
CUresult cuEventQuery(CUevent event)
{
    CUcontext context;
    CUresult result = enter_of_event(__func__, event, &context);
    if (result)
        return result;
    result = capture_forbids_event(event->mark);
    if (result || is_done(event->mark))
        return leave(result);
    stream_want(event->mark->stream, event->mark->seq);
    executor_wake();
    return leave(CUDA_ERROR_NOT_READY);
}

CUresult cuEventSynchronize(CUevent event)
{
    CUcontext context;
    CUresult result = enter_of_event(__func__, event, &context);
    if (result)
        return result;
    result = capture_forbids_event(event->mark);
    if (!result && !is_done(event->mark))
        stream_wait(event->mark->stream, event->mark->seq);
    return leave(result ? result : context->broken);
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    CUcontext context;
    CUresult result = enter_of_event(__func__, start, &context);
    if (result)
        return result;
    if (!ms)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (!place_of(end) || !start->mark || !end->mark ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return leave(CUDA_ERROR_INVALID_HANDLE);
    if (!start->mark->done || !end->mark->done)
        return leave(CUDA_ERROR_NOT_READY);
    *ms = (float)((double)(end->mark->at - start->mark->at) / 1e6);
    return leave(CUDA_SUCCESS);
}
