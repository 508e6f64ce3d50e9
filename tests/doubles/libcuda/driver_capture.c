/* SPDX-License-Identifier: Apache-2.0 */
/* Captures, as far as telling them apart goes: work is counted and dropped, graphs cannot run. */
#include <stdlib.h>

#include "driver_double.h"

typedef struct capture {
    struct capture *next;
    uint64_t id;
    CUstream origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    CUgraph graph;
    bool invalid;
} capture_t;

struct CUgraph_st {
    uint64_t works;
};

static capture_t *captures;
static uint64_t last_id;
static __thread CUstreamCaptureMode mode_of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;

static capture_t *capture_of(uint64_t id)
{
    capture_t *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static void for_all_streams(CUcontext context, uint64_t from, uint64_t to)
{
    for (CUstream s = context->streams; s; s = s->next)
        if (s->capture == from)
            s->capture = to;
}

/* A capture of a stream that waits for the legacy one. */
static capture_t *blocking_capture(CUcontext context)
{
    for (CUstream s = context->streams; s; s = s->next)
        if (s->capture && stream_waits_for_legacy(s))
            return capture_of(s->capture);
    return NULL;
}

static CUresult forbid(capture_t *capture, CUresult result, const char *why)
{
    capture->invalid = true;
    return refuse(result, "%s, which ends the capture", why);
}

/* ---- What other calls ask ----------------------------------------------------------------------
 */

CUresult capture_forbids(void)
{
    for (capture_t *c = captures; c && mode_of_thread != CU_STREAM_CAPTURE_MODE_RELAXED;
         c = c->next) {
        bool own = pthread_equal(c->thread, pthread_self());
        if (own ? c->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                : c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                      mode_of_thread == CU_STREAM_CAPTURE_MODE_GLOBAL)
            return forbid(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                          "called while a stream is capturing");
    }
    return CUDA_SUCCESS;
}

CUresult capture_forbids_stream(CUstream stream)
{
    capture_t *c = stream->legacy ? blocking_capture(stream->context) : capture_of(stream->capture);
    if (!c)
        return CUDA_SUCCESS;
    return stream->legacy
               ? forbid(c, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                        "the legacy stream waits for one that is capturing")
               : forbid(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is capturing");
}

CUresult capture_forbids_event(const mark_t *mark)
{
    if (!mark || !mark->capture)
        return CUDA_SUCCESS;
    capture_t *c = capture_of(mark->capture);
    if (c)
        c->invalid = true;
    return refuse(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a capture");
}

/* An event of a capture draws whoever waits for it into the capture. */
static CUresult join(CUstream stream, const work_t *work)
{
    uint64_t id = work->kind == WORK_WAIT_MARK ? work->mark->capture : 0;
    capture_t *into = capture_of(id), *in = capture_of(stream->capture);
    if (in && work->kind == WORK_WAIT_MARK && !id && !work->mark->done)
        return forbid(in, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                      "waits for an event of before the capture");
    if (id && !into)
        return refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the event's capture has ended");
    if (into && in && into != in)
        return forbid(in, CUDA_ERROR_STREAM_CAPTURE_MERGE, "waits for an event of another capture");
    if (into && stream->legacy)
        return forbid(into, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy stream cannot join");
    if (into)
        stream->capture = id;
    return CUDA_SUCCESS;
}

CUresult capture_submit(CUstream stream, work_t *work, bool *captured)
{
    *captured = false;
    if (!captures)
        return work->kind == WORK_WAIT_MARK && work->mark->capture
                   ? refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the event's capture has ended")
                   : CUDA_SUCCESS;
    if (stream->legacy && blocking_capture(stream->context))
        return capture_forbids_stream(stream);
    CUresult result = join(stream, work);
    capture_t *c = capture_of(stream->capture);
    if (result || !c)
        return result;
    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (work->kind == WORK_RECORD)
        work->mark->capture = c->id;
    c->graph->works++;
    *captured = true;
    return CUDA_SUCCESS;
}

void capture_leave(CUstream stream)
{
    capture_t *c = capture_of(stream->capture);
    if (c)
        c->invalid = true;
    stream->capture = 0;
}

/* ---- Calls -------------------------------------------------------------------------------------
 */

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    CUstream stream;
    CUresult result = enter_of_stream(__func__, handle, &stream);
    if (result)
        return result;
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (stream->legacy)
        return leave(refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy stream cannot"));
    if (stream->capture)
        return leave(refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is capturing already"));
    capture_t *c = calloc(1, sizeof *c);
    CUgraph graph = c ? calloc(1, sizeof *graph) : NULL;
    if (!graph) {
        free(c);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *c = (capture_t){captures, ++last_id, stream, mode, pthread_self(), graph, false};
    captures = c;
    stream->capture = c->id;
    return leave(CUDA_SUCCESS);
}

static void capture_free(capture_t *capture)
{
    capture_t **at = &captures;
    while (*at != capture)
        at = &(*at)->next;
    *at = capture->next;
    free(capture);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    CUstream stream;
    CUresult result = enter_of_stream(__func__, handle, &stream);
    if (result)
        return result;
    capture_t *c = capture_of(stream->capture);
    if (!graph || !c)
        return leave(graph ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_VALUE);
    if (c->origin != stream)
        return leave(refuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "it began on another stream"));
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return leave(refuse(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "it began in another thread"));
    *graph = c->invalid ? NULL : c->graph;
    result = c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    if (c->invalid)
        free(c->graph);
    for_all_streams(stream->context, c->id, 0);
    capture_free(c);
    return leave(result);
}

static CUresult status_of(CUstream stream, CUstreamCaptureStatus *status, capture_t **capture)
{
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy && blocking_capture(stream->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    capture_t *c = *capture = capture_of(stream->capture);
    *status = !c           ? CU_STREAM_CAPTURE_STATUS_NONE
              : c->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    CUstream stream;
    capture_t *capture;
    CUresult result = enter_of_stream(__func__, handle, &stream);
    return result ? result : leave(status_of(stream, status, &capture));
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
    CUstream stream;
    capture_t *capture;
    CUresult result = enter_of_stream(__func__, handle, &stream);
    if (result)
        return result;
    result = status_of(stream, status, &capture);
    if (result || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return leave(result);
    if (id)
        *id = capture->id;
    if (graph)
        *graph = capture->graph;
    if (nodes)
        *nodes = NULL;
    if (count)
        *count = 0;
    return leave(CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return leave(CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode before = mode_of_thread;
    mode_of_thread = *mode;
    *mode = before;
    return leave(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph graph)
{
    CUresult result = enter(__func__, NULL);
    if (result)
        return result;
    free(graph);
    return leave(graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
