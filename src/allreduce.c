/* SPDX-License-Identifier: Apache-2.0 */
/* The way of an all-reduce: decision, residual, plan, engine, figures. */
#include <stdio.h>
#include <string.h>

#include "comm_internal.h"
#include "frame.h"
#include "half_residual.h"
#include "hash.h"
#include "policy.h"
#include "reduce.h"

static gw__residual_key_t residual_key(const gw_call_t *call, gw_plan_kind_t plan,
                                       const gw_coder_t *coder, size_t beside)
{
    return (gw__residual_key_t){.collective = call->collective,
                                .op = call->op,
                                .dtype = call->dtype,
                                .plan = plan,
                                .count = call->count,
                                .coder = gw__hash_text(coder->spec),
                                .momentum = gw__keeps_momentum(coder),
                                .beside = beside};
}

static bool keeps_residual(const gw_coder_t *coder)
{
    return (coder->family->flags & GW_CODEC_FEEDBACK) && gw_coder_get(coder, "ef", 0.0) != 0.0;
}

static uint64_t plain_bytes(int size, size_t bytes)
{
    /* 2 (P-1)/P x bytes, to the nearest: whole multiples of P apart, so that nothing overflows. */
    uint64_t p = (uint64_t)size, whole = bytes / p, rest = bytes % p;
    return 2 * (p - 1) * whole + (2 * (p - 1) * rest + p / 2) / p;
}

static void count(gw_comm_t *comm, const gw_work_t *work, const gw__engine_figures_t *f)
{
    gw__stats_call_t entry = {.compressed = work->decision.compress,
                              .reason = work->decision.reason,
                              .bytes = work->call.count * gw_dtype_size(work->call.dtype),
                              .wire_bytes = f->wire_bytes,
                              .encode_us = f->encode_us,
                              .wire_us = f->wire_us,
                              .decode_us = f->decode_us,
                              .wait_us = f->wait_us,
                              .time_us = f->time_us,
                              .poisoned = f->poisoned,
                              .residual_resets = comm->residuals.resets +
                                                 comm->device_calls.residuals.resets -
                                                 comm->resets_counted,
                              .failed = work->status != GW_OK,
                              .failed_rank = comm->engine.failed_rank,
                              .error = comm->engine.error,
                              .plan = gw_plan_name(work->decision.plan),
                              .codec = work->decision.coder->spec};
    entry.plain_bytes = plain_bytes(comm->size, entry.bytes);
    comm->resets_counted += entry.residual_resets;
    gw__context_count(comm->context, comm->page, &entry);
}

static bool overlaps(const gw_call_t *call)
{
    size_t bytes = call->count * gw_dtype_size(call->dtype);
    uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    return call->send && send != recv && send < recv + bytes && recv < send + bytes;
}

static gw_status_t check(const gw_comm_t *comm, const gw_call_t *call)
{
    if (!comm || (!call->recv && call->count > 0))
        return GW_ERR_INVALID;
    if (comm->failed != GW_OK)
        return comm->failed;
    if ((call->dtype != GW_F32 && call->dtype != GW_F16 && call->dtype != GW_BF16) ||
        (call->op != GW_SUM && call->op != GW_AVG))
        return GW_ERR_UNSUPPORTED;
    return call->count > (SIZE_MAX >> 4) || overlaps(call) ? GW_ERR_INVALID : GW_OK;
}

/* A call on a communicator that failed before, which was counted as the error that it was. */
static void count_dead(gw_comm_t *comm, const gw_call_t *call)
{
    gw__stats_call_t entry = {.reason = GW_REASON_DISABLED,
                              .bytes = call->count * gw_dtype_size(call->dtype)};
    gw__context_count(comm->context, comm->page, &entry);
}

/*
 * A call that check() refused: nothing was sent. It is counted as passed, for it has to be counted.
 * Only this rank may know of it, so the others may wait for this one.
 */
static gw_status_t turn_down(gw_comm_t *comm, const gw_call_t *call, gw_status_t status,
                             const char *why)
{
    if (!comm)
        return status;
    if (comm->failed != GW_OK) {
        count_dead(comm, call);
        return status;
    }
    if (!why && status == GW_ERR_INVALID && overlaps(call))
        why = "its send and receive buffers overlap";
    snprintf(comm->error, sizeof comm->error, "all-reduce refused: %s",
             why ? why : gw_status_text(status));
    gw__stats_call_t entry = {.reason = GW_REASON_UNSUPPORTED_CALL,
                              .bytes = call->count * gw_dtype_size(call->dtype),
                              .failed = true,
                              .failed_rank = -1,
                              .error = comm->error};
    gw__context_count(comm->context, comm->page, &entry);
    gw__context_warn_once(comm->context, comm->error);
    return status;
}

static size_t chunk_of(const gw_work_t *work, const gw_coder_t *coder)
{
    const gw_comm_t *comm = work->comm;
    const gw_call_t *call = &work->call;
    size_t bytes = gw_frame_bound(coder, call->dtype, call->count);
    return gw__pace_chunk(&comm->pace, work->decision.plan, comm->size, call->count, bytes);
}

/* Whether a shard is added and encoded by one task. */
static bool reduces(const gw__engine_call_t *job)
{
    return job->plan.kind == GW_PLAN_DIRECT && !job->momentum &&
           (job->coder->family->reduce || gw__reduce_cuts(job->coder));
}

gw__engine_call_t gw__call_job(const gw_work_t *work, const gw_coder_t *coder)
{
    const gw_comm_t *comm = work->comm;
    const gw_call_t *call = &work->call;
    gw__engine_call_t job = {.coder = coder,
                             .send = call->send ? call->send : call->recv,
                             .recv = call->recv,
                             .dtype = call->dtype,
                             .scale = call->op == GW_AVG ? 1.0f / (float)comm->size : 1.0f};
    gw__plan_init(&job.plan, work->decision.plan, comm->rank, comm->size, call->count,
                  coder->family->grain(coder), chunk_of(work, coder));
    job.plan.reduces = reduces(&job);
    return job;
}

float *gw__call_residual(gw_work_t *work, gw__residual_store_t *store, size_t beside)
{
    const gw_coder_t *coder = work->decision.coder;
    gw__residual_key_t key = residual_key(&work->call, work->decision.plan, coder, beside);
    work->slot = -1;
    key.half = work->half = work->comm->context->settings.residuals == GW__RESIDUALS_BF16 &&
                            gw__half_residual_serves(coder);
    if (!keeps_residual(coder))
        return NULL;
    return gw__residual_acquire(store, &key, gw__work_place(work), &work->slot);
}

static void begin(gw_work_t *work)
{
    gw_comm_t *comm = work->comm;
    const gw_call_t *call = &work->call;
    const gw_coder_t *base = work->decision.coder, *coder = base;
    gw_factor_sizes_t factors = {.warm = 0};
    if (!work->device.on || work->device.through_host)
        work->slot = -1;
    work->factored = NULL;
    work->status = GW_IN_PROGRESS;
    if (comm->broken != GW_OK) {
        count_dead(comm, call);
        work->status = comm->broken;
        return;
    }
    work->runs = call->count > 0 && comm->size > 1;
    if (!work->runs)
        return;
    if (work->split) {
        gw__parts_begin(work);
        return;
    }
    if (base->family->at_call) {
        base->family->at_call(base, comm->calls - comm->parts.extra, &work->coder);
        coder = &work->coder;
    }
    gw__engine_call_t *job = &work->job;
    float *residual;
    *job = gw__call_job(work, coder);
    job->number = comm->calls++;
    job->key =
        gw__mix64(gw__mix64(comm->context->settings.seed ^ (uint64_t)comm->id << 40) ^ job->number);
    bool factored = gw__factors_serve(coder, call->dtype, call->count, call->rows, &factors);
    if (work->device.on && !work->device.through_host) {
        job->gpu = gw__device_call_gpu(work);
        residual = work->device.residual;
    } else if (work->part) {
        residual = work->residual;
    } else {
        residual = gw__call_residual(work, &comm->residuals, factors.warm);
    }
    if (work->half)
        job->half_residual = residual;
    else
        job->residual = residual;
    if (job->residual && gw__keeps_momentum(base))
        job->momentum = job->residual + call->count;
    job->plan.reduces = reduces(job);
    if (factored)
        gw__factors_begin(work, &factors, job->residual);
    else
        gw__engine_begin(&comm->engine, job);
}

/* An error of the engine is the communicator's: nothing can be sent on it any more. */
static void fail(gw_comm_t *comm, const gw_work_t *work)
{
    gw__residual_reset(work->job.gpu ? &comm->device_calls.residuals : &comm->residuals,
                       work->slot);
    comm->broken = work->status;
    gw_context_log(comm->context, GW_LOG_WARN, "all-reduce %llu of %zu elements failed: %s",
                   (unsigned long long)work->job.number, work->call.count, comm->engine.error);
}

void gw__call_report(const gw_work_t *work)
{
    gw_comm_t *comm = work->comm;
    if (work->status == GW_OK || comm->failed != GW_OK)
        return;
    comm->failed = work->status;
    comm->failed_rank = comm->engine.failed_rank;
    snprintf(comm->error, sizeof comm->error, "%s", comm->engine.error);
}

static gw_status_t step(gw_work_t *work)
{
    gw_comm_t *comm = work->comm;
    const gw_call_t *call = &work->call;
    static const gw__engine_figures_t nothing;
    if (work->status != GW_IN_PROGRESS)
        return work->status;
    if (work->runs) {
        gw_status_t status = work->split      ? gw__parts_step(work)
                             : work->factored ? gw__factors_step(work)
                                              : gw__engine_step(&comm->engine);
        if (status == GW_IN_PROGRESS)
            return status;
        work->status = status;
        if (status != GW_OK && !work->split)
            fail(comm, work);
    } else {
        if (call->send && call->send != call->recv && call->count > 0)
            memcpy(call->recv, call->send, call->count * gw_dtype_size(call->dtype));
        work->status = GW_OK;
    }
    if (!work->part)
        count(comm, work,
              work->split  ? &comm->parts.figures
              : work->runs ? &comm->engine.figures
                           : &nothing);
    return work->status;
}

/* ---- Calls on device memory that go through the host ------------------------------------------
 */

/* What went wrong is this rank's own: the call begins all the same, so that the peers are told. */
static void give_up(gw_work_t *work, gw_status_t status, const gw__why_t *why)
{
    begin(work);
    if (work->status == GW_IN_PROGRESS)
        gw__engine_give_up(&work->comm->engine, status, why->text);
}

static void begin_copy(gw_work_t *work)
{
    gw__why_t why = {""};
    gw_status_t status = gw__device_call_copy(work, false, &why);
    work->status = GW_IN_PROGRESS;
    work->comm->engine.idle_steps = 0;
    if (status != GW_OK) {
        work->device.copied_in = true;
        give_up(work, status, &why);
    }
}

/* The result is there and cannot be given to the caller. */
static gw_status_t lose(gw_work_t *work, gw_status_t status, const gw__why_t *why)
{
    gw_comm_t *comm = work->comm;
    work->status =
        gw__engine_fail(&comm->engine, status, comm->rank, "rank %d: %s", comm->rank, why->text);
    fail(comm, work);
    return status;
}

static gw_status_t step_copy_in(gw_work_t *work)
{
    gw__why_t why = {""};
    gw_status_t status = gw__device_call_copied(work, &why);
    if (status == GW_IN_PROGRESS)
        return status;
    work->device.copied_in = true;
    if (status == GW_OK)
        begin(work);
    else
        give_up(work, status, &why);
    return GW_IN_PROGRESS;
}

static gw_status_t step_through_host(gw_work_t *work)
{
    gw__why_t why = {""};
    gw_status_t status = GW_OK;
    if (!work->device.copied_in)
        return step_copy_in(work);
    if (!work->device.copying_out) {
        status = step(work);
        if (status != GW_OK)
            return status;
        work->device.copying_out = true;
        status = gw__device_call_copy(work, true, &why);
    }
    if (status == GW_OK)
        status = gw__device_call_copied(work, &why);
    return status == GW_OK || status == GW_IN_PROGRESS ? status : lose(work, status, &why);
}

void gw__call_begin(gw_work_t *work)
{
    if (work->device.through_host && work->comm->broken == GW_OK)
        begin_copy(work);
    else
        begin(work);
}

gw_status_t gw__call_step(gw_work_t *work)
{
    bool copies = work->device.through_host && work->comm->broken == GW_OK;
    gw_status_t status = copies ? step_through_host(work) : step(work);
    if (status != GW_IN_PROGRESS)
        gw__device_call_end(work);
    return status;
}

/* Whether what such a call exchanges can be carried by the plan: its frames or, of a codec that
 * sums factors, binary32. */
static bool carries(gw_plan_kind_t plan, const gw_coder_t *coder, gw_dtype_t dtype)
{
    return !gw__plan_merges(plan) || coder->family->factors || gw__frame_merges(coder, dtype);
}

/* A call that the caller's codec would not make smaller. */
static void pass_by(const gw_work_t *work, gw_decision_t *decision)
{
    const gw_coder_t *raw = &work->comm->engine.raw;
    bool fits = carries(decision->plan, raw, work->call.dtype);
    *decision = (gw_decision_t){.reason = GW_REASON_TOO_SMALL,
                                .plan = fits ? decision->plan : GW_PLAN_DIRECT,
                                .coder = raw};
}

/* A call with a layout goes in parts. */
static gw_status_t divide(gw_work_t *work, const gw_comm_facts_t *facts)
{
    gw_status_t status = gw__parts_prepare(work, facts);
    return status == GW_OK ? GW_OK : turn_down(work->comm, &work->call, status, NULL);
}

/* The caller's codec has payloads that his plan cannot add. */
static gw_status_t refuse_plan(gw_work_t *work)
{
    char why[GW_CODEC_SPEC_MAX + 128];
    snprintf(why, sizeof why,
             "plan %s adds payloads as they are, which %s cannot for %s; direct takes any codec",
             gw_plan_name(work->decision.plan), work->decision.coder->spec,
             gw_dtype_name(work->call.dtype));
    return turn_down(work->comm, &work->call, GW_ERR_UNSUPPORTED, why);
}

/* Checks a call and decides on it, unless its caller has; `given`: the facts that he did it with,
 * or NULL. */
static gw_status_t decide(gw_work_t *work, const gw_comm_facts_t *given)
{
    gw_comm_t *comm = work->comm;
    gw_status_t status = check(comm, &work->call);
    if (status != GW_OK)
        return turn_down(comm, &work->call, status, NULL);
    if (given && !work->decision.compress)
        return GW_OK;
    if (work->decision.coder) { /* given by the caller */
        if (!carries(work->decision.plan, work->decision.coder, work->call.dtype))
            return refuse_plan(work);
        work->decision.compress = work->call.count > 0 && comm->size > 1;
        if (!work->decision.compress)
            work->decision.reason =
                work->call.count == 0 ? GW_REASON_ZERO_COUNT : GW_REASON_SINGLE_RANK;
        else if (!gw__policy_gains(work->decision.coder, &work->call))
            pass_by(work, &work->decision);
        return divide(work, given);
    }
    gw_comm_facts_t facts = {.size = comm->size,
                             .order = comm->id,
                             .name = comm->named ? comm->name : "",
                             .slot = gw_call_order_next(comm->order, &work->call)};
    work->decision = gw__parts_decide(comm, &work->call, &facts);
    if (!work->decision.compress)
        work->decision.coder = &comm->engine.raw;
    return divide(work, &facts);
}

/* Decides on a call and takes what it needs. With an error nothing is to be done any more. */
static gw_status_t prepare(gw_work_t *work, const gw_comm_facts_t *given)
{
    gw__why_t why = {""};
    gw_status_t status = decide(work, given);
    if (status != GW_OK)
        return status;
    status = gw__device_call_prepare(work, &why);
    return status == GW_OK ? GW_OK : turn_down(work->comm, &work->call, status, why.text);
}

static gw_status_t all_reduce(gw_work_t *work, const gw_comm_facts_t *facts)
{
    gw_status_t status = prepare(work, facts);
    return status == GW_OK ? gw__work_run(work) : status;
}

gw_status_t gw_allreduce(gw_comm_t *comm, const void *send, void *recv, size_t count_,
                         gw_dtype_t dtype, gw_op_t op)
{
    gw_work_t work = {.comm = comm, .call = {GW_ALLREDUCE, dtype, op, count_, send, recv, 0}};
    return all_reduce(&work, NULL);
}

gw_status_t gw_allreduce_with(gw_comm_t *comm, const gw_coder_t *coder, gw_plan_kind_t plan,
                              const void *send, void *recv, size_t count_, gw_dtype_t dtype,
                              gw_op_t op)
{
    gw_work_t work = {.comm = comm,
                      .call = {GW_ALLREDUCE, dtype, op, count_, send, recv, 0},
                      .decision = {.plan = plan, .coder = coder}};
    return coder ? all_reduce(&work, NULL) : GW_ERR_INVALID;
}

gw_status_t gw_allreduce_decided(gw_comm_t *comm, const gw_call_t *call,
                                 const gw_comm_facts_t *facts, const gw_decision_t *decision)
{
    if (!comm || !call || !facts || !decision)
        return GW_ERR_INVALID;
    gw_work_t work = {.comm = comm, .call = *call, .decision = *decision};
    if (!decision->compress || !decision->coder)
        work.decision.coder = &comm->engine.raw;
    return all_reduce(&work, facts);
}

gw_status_t gw_iallreduce(gw_comm_t *comm, const void *send, void *recv, size_t count_,
                          gw_dtype_t dtype, gw_op_t op, gw_work_t **out)
{
    gw_work_t work = {.comm = comm, .call = {GW_ALLREDUCE, dtype, op, count_, send, recv, 0}};
    gw_status_t status = out ? prepare(&work, NULL) : GW_ERR_INVALID;
    if (status != GW_OK)
        return status;
    status = gw__work_post(&work, out);
    if (status != GW_OK)
        gw__device_call_end(&work);
    return status;
}

gw_status_t gw_allreduce_on(gw_comm_t *comm, void *stream, const void *send, void *recv,
                            size_t count_, gw_dtype_t dtype, gw_op_t op)
{
    gw_work_t work = {.comm = comm,
                      .call = {GW_ALLREDUCE, dtype, op, count_, send, recv, 0},
                      .device = {.in_order = true, .stream = stream}};
    bool over;
    if (comm)
        gw_comm_query(comm);
    gw_status_t status = prepare(&work, NULL);
    if (status != GW_OK)
        return status;
    status = gw__work_detach(&work, &over);
    if (status != GW_OK) {
        gw__device_call_end(&work);
        return turn_down(comm, &work.call, status, NULL);
    }
    if (!over && work.device.awaited)
        gw__device_call_hold(comm, stream, work.device.awaited);
    return over ? gw_comm_query(comm) : GW_OK;
}

gw_status_t gw_comm_query(gw_comm_t *comm)
{
    if (!comm)
        return GW_ERR_INVALID;
    bool others = gw__work_sweep(comm);
    if (comm->failed != GW_OK)
        return comm->failed;
    return others ? GW_IN_PROGRESS : GW_OK;
}
