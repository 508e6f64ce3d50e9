/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces of codecs that sum factors. Each of the two sums is a call of the engine by itself,
 * of uncompressed binary32 and with a number of its own: whatever the engine does about peers that
 * are late, silent or gone holds here as well. Between them everything that decides follows from
 * the summed bytes, which are the same on all ranks.
 */
#include "factors.h"

#include <string.h>

#include "clock.h"
#include "comm_internal.h"
#include "memory.h"

/* Pieces of the memory begin at whole cache lines. */
static size_t aligned(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

bool gw__factors_serve(const gw_coder_t *coder, gw_dtype_t dtype, size_t count, size_t rows,
                       gw_factor_sizes_t *out)
{
    const gw_factor_ops_t *ops = coder->family->factors;
    return ops && ops->sizes(coder, dtype, count, rows, out);
}

static bool reserve(gw__factors_t *f)
{
    const gw_factor_sizes_t *s = &f->sizes;
    size_t first = aligned(s->first), second = aligned(s->second);
    size_t bytes = (first + second + s->scratch) * sizeof(float);
    if (bytes > f->memory_bytes) {
        gw__memory_unmap(f->memory, f->memory_bytes);
        f->memory_bytes = 0;
        f->memory = gw__memory_map(bytes);
        if (!f->memory)
            return false;
        f->memory_bytes = bytes;
    }
    f->io.first = f->memory;
    f->io.second = f->io.first + first;
    f->io.scratch = f->io.second + second;
    return true;
}

void gw__factors_free(gw__factors_t *f)
{
    gw__memory_unmap(f->memory, f->memory_bytes);
    f->memory = NULL;
    f->memory_bytes = 0;
}

/* The sum of `floats` numbers over all ranks, in place. */
static void begin_sum(gw_work_t *work, float *numbers, size_t floats)
{
    gw_comm_t *comm = work->comm;
    gw__engine_call_t *job = &work->job;
    const gw_coder_t *raw = &comm->engine.raw;
    gw_plan_kind_t plan = work->decision.plan;
    *job = (gw__engine_call_t){.coder = raw,
                               .send = numbers,
                               .recv = numbers,
                               .dtype = GW_F32,
                               .scale = 1.0f,
                               .number = job->number,
                               .key = job->key};
    size_t bytes = gw_frame_bound(raw, GW_F32, floats);
    size_t chunk = gw__pace_chunk(&comm->pace, plan, comm->size, floats, bytes);
    gw__plan_init(&job->plan, plan, comm->rank, comm->size, floats, raw->family->grain(raw), chunk);
    gw__engine_begin(&comm->engine, job);
}

static void add_figures(gw__engine_figures_t *to, const gw__engine_figures_t *of)
{
    to->wire_bytes += of->wire_bytes;
    to->encode_us += of->encode_us;
    to->decode_us += of->decode_us;
    to->wait_us += of->wait_us;
    to->wire_us += of->wire_us;
    to->time_us += of->time_us;
    to->poisoned += of->poisoned;
}

/* Counts computing between the exchanges since `began`. */
static void add_computing(gw__engine_figures_t *to, uint64_t *kind, int64_t began)
{
    uint64_t spent = (uint64_t)(gw__now_ns() - began) / 1000;
    *kind += spent;
    to->time_us += spent;
}

void gw__factors_begin(gw_work_t *work, const gw_factor_sizes_t *sizes, float *residual)
{
    gw__factors_t *f = &work->comm->factors;
    const gw__engine_call_t *job = &work->job;
    const gw_factor_ops_t *ops = job->coder->family->factors;
    int64_t began = gw__now_ns();
    memset(&f->figures, 0, sizeof f->figures);
    f->second = false;
    f->sizes = *sizes;
    f->io = (gw_factors_t){.src = job->send,
                           .dst = job->recv,
                           .dtype = job->dtype,
                           .count = work->call.count,
                           .rows = work->call.rows,
                           .ranks = work->comm->size,
                           .scale = job->scale,
                           .residual = residual,
                           .shared_key = job->key};
    /* What is kept lies behind the residual. */
    if (residual && sizes->warm > 0)
        f->io.warm = residual + work->call.count;
    bool room = reserve(f);
    work->factored = job->coder;
    if (room)
        ops->project(work->factored, &f->io);
    add_computing(&f->figures, &f->figures.encode_us, began);
    begin_sum(work, f->io.first, sizes->first);
    if (!room)
        gw__engine_give_up(&work->comm->engine, GW_ERR_NO_MEMORY, "no memory for the factors");
}

/* The engine has the result of a sum. GW_IN_PROGRESS: another one is under way now. */
static gw_status_t take_sum(gw_work_t *work)
{
    gw_comm_t *comm = work->comm;
    gw__factors_t *f = &comm->factors;
    const gw_factor_ops_t *ops = work->factored->family->factors;
    int64_t began = gw__now_ns();
    if (!f->second && ops->factor(work->factored, &f->io)) {
        add_computing(&f->figures, &f->figures.encode_us, began);
        f->second = true;
        work->job.number = comm->calls++;
        comm->parts.extra++;
        begin_sum(work, f->io.second, f->sizes.second);
        return GW_IN_PROGRESS;
    }
    ops->expand(work->factored, &f->io);
    f->figures.poisoned += f->io.poisoned;
    add_computing(&f->figures, &f->figures.decode_us, began);
    return GW_OK;
}

gw_status_t gw__factors_step(gw_work_t *work)
{
    gw_comm_t *comm = work->comm;
    gw__factors_t *f = &comm->factors;
    gw_status_t status = gw__engine_step(&comm->engine);
    if (status == GW_IN_PROGRESS)
        return status;
    add_figures(&f->figures, &comm->engine.figures);
    if (status == GW_OK)
        status = take_sum(work);
    if (status != GW_IN_PROGRESS)
        comm->engine.figures = f->figures;
    return status;
}
