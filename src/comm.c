/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator and its all-reduce: policy, residual, plan, engine, figures. */
#include "comm_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "policy.h"

/*
 * Elements of a chunk: 1 MiB of fp32 is 130 KiB at 4 bits, large enough to hide the cost of a
 * message and small enough to stay in the second-level cache between the steps of a round. With
 * many ranks a round holds a chunk of every shard, so the chunk shrinks, down to messages of 16 KiB
 * at 4 bits.
 */
static size_t chunk_elements(gw_plan_kind_t plan, int size)
{
    size_t chunk = 256 * 1024;
    for (int p = 2; plan == GW_PLAN_DIRECT && p < size && chunk > 32 * 1024; p *= 2)
        chunk /= 2;
    return chunk;
}

gw_status_t gw_comm_create(gw_context_t *context, const gw_comm_params_t *params, gw_comm_t **out)
{
    if (!context || !params || !out || params->size < 1 || params->rank < 0 ||
        params->rank >= params->size || (params->size > 1 && !params->allgather))
        return GW_ERR_INVALID;
    gw_comm_t *comm = calloc(1, sizeof *comm);
    if (!comm)
        return GW_ERR_NO_MEMORY;
    comm->context = context;
    comm->rank = params->rank;
    comm->size = params->size;
    comm->failed_rank = -1;
    gw__residual_init(&comm->residuals, context);
    /* What can fail on one rank alone comes before the ranks agree. */
    gw_status_t status = gw__engine_init(&comm->engine, context, comm->rank, comm->size);
    comm->engine.idle = params->idle;
    comm->engine.idle_arg = params->idle_arg;
    if (status == GW_OK && params->size > 1)
        status = gw__comm_connect(comm, params);
    if (status == GW_OK)
        gw__engine_attach(&comm->engine, comm->transport, comm->link);
    if (status != GW_OK) {
        char text[sizeof comm->error + 64];
        snprintf(text, sizeof text, "communicator of %d ranks: %s", comm->size,
                 comm->error[0] ? comm->error : gw_status_text(status));
        gw__context_warn_once(context, text);
        gw_comm_free(comm);
        return status;
    }
    pthread_mutex_lock(&context->lock);
    if (comm->size == 1)
        comm->id = context->comms_created++;
    if (params->name)
        snprintf(comm->name, sizeof comm->name, "%s", params->name);
    else
        snprintf(comm->name, sizeof comm->name, "%u", comm->id);
    comm->page = gw__stats_page_new(&context->stats, comm->id, comm->size);
    if (comm->page) {
        snprintf(comm->page->name, sizeof comm->page->name, "%s", comm->name);
        snprintf(comm->page->codec, sizeof comm->page->codec, "%s", context->settings.coder.spec);
        snprintf(comm->page->transport, sizeof comm->page->transport, "%s",
                 comm->transport ? comm->transport->name : "none");
    }
    pthread_mutex_unlock(&context->lock);
    gw_context_log(context, GW_LOG_INFO, "communicator %u: rank %d of %d, codec %s, transport %s",
                   comm->id, comm->rank, comm->size, context->settings.coder.spec,
                   comm->transport ? comm->transport->name : "none");
    *out = comm;
    return GW_OK;
}

void gw_comm_free(gw_comm_t *comm)
{
    if (!comm)
        return;
    if (comm->link)
        comm->transport->close(comm->link);
    gw__engine_free(&comm->engine);
    gw__residual_free(&comm->residuals);
    pthread_mutex_lock(&comm->context->lock);
    if (comm->page)
        comm->page->open = false;
    pthread_mutex_unlock(&comm->context->lock);
    free(comm);
}

static gw__residual_key_t residual_key(const gw_call_t *call, gw_plan_kind_t plan,
                                       const gw_coder_t *coder)
{
    return (gw__residual_key_t){.collective = call->collective,
                                .op = call->op,
                                .dtype = call->dtype,
                                .plan = plan,
                                .count = call->count,
                                .coder = gw__hash_text(coder->spec)};
}

static bool keeps_residual(const gw_coder_t *coder)
{
    return (coder->family->flags & GW_CODEC_FEEDBACK) && gw_coder_get(coder, "ef", 0.0) != 0.0;
}

/* Runs a call over the link; fills `figures`. */
static gw_status_t run(gw_comm_t *comm, const gw_coder_t *coder, gw_plan_kind_t plan,
                       const gw_call_t *call, gw__engine_figures_t *figures)
{
    gw__engine_call_t work = {.coder = coder,
                              .send = call->send ? call->send : call->recv,
                              .recv = call->recv,
                              .dtype = call->dtype,
                              .scale = call->op == GW_AVG ? 1.0f / (float)comm->size : 1.0f,
                              .number = comm->calls++};
    work.key =
        gw__mix64(gw__mix64(comm->context->settings.seed ^ (uint64_t)comm->id << 40) ^ work.number);
    gw__plan_init(&work.plan, plan, comm->rank, comm->size, call->count,
                  coder->family->grain(coder), chunk_elements(plan, comm->size));
    int slot = -1;
    gw__residual_key_t key = residual_key(call, plan, coder);
    if (keeps_residual(coder))
        work.residual = gw__residual_acquire(&comm->residuals, &key, work.send, &slot);
    gw_status_t status = gw__engine_run(&comm->engine, &work);
    *figures = comm->engine.figures;
    if (status == GW_OK)
        return GW_OK;
    gw__residual_reset(&comm->residuals, slot);
    comm->failed = status;
    comm->failed_rank = comm->engine.failed_rank;
    snprintf(comm->error, sizeof comm->error, "%s", comm->engine.error);
    gw_context_log(comm->context, GW_LOG_WARN, "all-reduce %llu of %zu elements failed: %s",
                   (unsigned long long)work.number, call->count, comm->error);
    return status;
}

static uint64_t plain_bytes(int size, size_t bytes)
{
    /* 2 (P-1)/P x bytes, to the nearest: whole multiples of P apart, so that nothing overflows. */
    uint64_t p = (uint64_t)size, whole = bytes / p, rest = bytes % p;
    return 2 * (p - 1) * whole + (2 * (p - 1) * rest + p / 2) / p;
}

static void count(gw_comm_t *comm, const gw_call_t *call, const gw_decision_t *decision,
                  const gw__engine_figures_t *f, gw_status_t status)
{
    gw__stats_call_t entry = {.compressed = decision->compress,
                              .reason = decision->reason,
                              .bytes = call->count * gw_dtype_size(call->dtype),
                              .wire_bytes = f->wire_bytes,
                              .encode_us = f->encode_us,
                              .wire_us = f->wire_us,
                              .decode_us = f->decode_us,
                              .wait_us = f->wait_us,
                              .time_us = f->time_us,
                              .poisoned = f->poisoned,
                              .residual_resets =
                                  comm->residuals.resets - comm->stats.residual_resets,
                              .failed = status != GW_OK,
                              .plan = gw__plan_kind_name(decision->plan)};
    entry.plain_bytes = plain_bytes(comm->size, entry.bytes);
    gw__stats_add(&comm->stats, NULL, &entry);
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

/*
 * A call that check() refused: nothing was sent. It is counted as passed, for it has to be counted;
 * the error of a communicator that failed before was counted then. Only this rank may know of it,
 * so the others may wait for this one.
 */
static gw_status_t turn_down(gw_comm_t *comm, const gw_call_t *call, gw_status_t status)
{
    if (!comm)
        return status;
    bool dead = comm->failed != GW_OK;
    gw__stats_call_t entry = {.reason = dead ? GW_REASON_DISABLED : GW_REASON_UNSUPPORTED_CALL,
                              .bytes = call->count * gw_dtype_size(call->dtype),
                              .failed = !dead};
    gw__stats_add(&comm->stats, NULL, &entry);
    gw__context_count(comm->context, comm->page, &entry);
    if (dead)
        return status;
    bool buffers = status == GW_ERR_INVALID && overlaps(call);
    snprintf(comm->error, sizeof comm->error, "all-reduce refused: %s",
             buffers ? "its send and receive buffers overlap" : gw_status_text(status));
    gw__context_warn_once(comm->context, comm->error);
    return status;
}

static gw_status_t all_reduce(gw_comm_t *comm, const gw_call_t *call, const gw_coder_t *coder,
                              const gw_decision_t *decision)
{
    gw__engine_figures_t figures = {0};
    gw_status_t status = GW_OK;
    if (call->count > 0 && comm->size > 1)
        status = run(comm, coder, decision->plan, call, &figures);
    else if (call->send && call->send != call->recv && call->count > 0)
        memcpy(call->recv, call->send, call->count * gw_dtype_size(call->dtype));
    count(comm, call, decision, &figures, status);
    return status;
}

gw_status_t gw_allreduce(gw_comm_t *comm, const void *send, void *recv, size_t count_,
                         gw_dtype_t dtype, gw_op_t op)
{
    gw_call_t call = {GW_ALLREDUCE, dtype, op, count_, send, recv};
    gw_status_t status = check(comm, &call);
    if (status != GW_OK)
        return turn_down(comm, &call, status);
    gw_comm_facts_t facts = {.size = comm->size};
    gw_decision_t decision = gw_decide(comm->context, &call, &facts);
    return all_reduce(comm, &call, decision.compress ? decision.coder : &comm->engine.raw,
                      &decision);
}

gw_status_t gw_allreduce_with(gw_comm_t *comm, const gw_coder_t *coder, gw_plan_kind_t plan,
                              const void *send, void *recv, size_t count_, gw_dtype_t dtype,
                              gw_op_t op)
{
    gw_call_t call = {GW_ALLREDUCE, dtype, op, count_, send, recv};
    if (!coder)
        return GW_ERR_INVALID;
    gw_status_t status = check(comm, &call);
    if (status != GW_OK)
        return turn_down(comm, &call, status);
    gw_decision_t decision = {
        .compress = count_ > 0 && comm->size > 1, .plan = plan, .coder = coder};
    if (!decision.compress)
        decision.reason = count_ == 0 ? GW_REASON_ZERO_COUNT : GW_REASON_SINGLE_RANK;
    return all_reduce(comm, &call, coder, &decision);
}

void gw_comm_reset_residuals(gw_comm_t *comm)
{
    gw__residual_clear(&comm->residuals);
}

const char *gw_comm_error(const gw_comm_t *comm)
{
    return comm->error;
}

int gw_comm_failed_rank(const gw_comm_t *comm)
{
    return comm->failed_rank;
}

const char *gw_comm_describe(gw_comm_t *comm, int peer)
{
    if (!comm->link || peer < 0 || peer >= comm->size || peer == comm->rank)
        return "none";
    snprintf(comm->description, sizeof comm->description, "%s %s", comm->transport->name,
             comm->transport->describe(comm->link, peer));
    return comm->description;
}

void gw_comm_stats(const gw_comm_t *comm, gw_stats_t *out)
{
    *out = comm->stats;
}
