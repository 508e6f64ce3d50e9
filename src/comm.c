/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator: made, asked, freed. */
#include "comm_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * How many workers a call of this communicator may have: a share of the CPUs that this process may
 * use, for the other ranks of the node compute at the same time. More than a few do not help, for
 * then the memory is the limit, and a trainer has its own threads.
 */
static int workers_of(const gw_comm_t *comm)
{
    enum { AUTO_MAX = 3 };
    int setting = comm->context->settings.threads;
    if (setting >= 0)
        return setting;
    int share = gw__cpus_allowed() / comm->local_ranks - 1;
    return share < 0 ? 0 : share < AUTO_MAX ? share : AUTO_MAX;
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
    comm->local_ranks = comm->size;
    gw__residual_init(&comm->residuals, context, NULL);
    gw__queue_init(&comm->queue);
    /* What can fail on one rank alone comes before the ranks agree. */
    gw_status_t status = gw__engine_init(&comm->engine, context, comm->rank, comm->size);
    comm->engine.idle = params->idle;
    comm->engine.idle_arg = params->idle_arg;
    if (status == GW_OK && (gw_rule_facts(context) & GW_RULE_SLOT))
        status = gw_call_order_create(&comm->order);
    if (status == GW_OK && params->size > 1)
        status = gw__comm_connect(comm, params);
    if (status == GW_OK) {
        gw__engine_attach(&comm->engine, comm->transport, comm->link);
        comm->engine.pool = gw__context_pool(context);
        comm->engine.hands_max = workers_of(comm);
    }
    if (status != GW_OK) {
        char text[sizeof comm->error + 64];
        snprintf(text, sizeof text, "communicator of %d ranks: %s; nothing is compressed on it",
                 comm->size, comm->error[0] ? comm->error : gw_status_text(status));
        gw__context_warn_once(context, text);
        gw_comm_free(comm);
        return status;
    }
    pthread_mutex_lock(&context->lock);
    if (comm->size == 1)
        comm->id = context->comms_created++;
    /* Where there are others, the name is the one that rank 0 told. */
    if (comm->size == 1 && params->name)
        snprintf(comm->name, sizeof comm->name, "%s", params->name);
    comm->named = comm->name[0] != '\0';
    if (!comm->named)
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
    gw__queue_free(&comm->queue, comm);
    if (comm->link)
        comm->transport->close(comm->link);
    gw__engine_free(&comm->engine);
    gw__factors_free(&comm->factors);
    gw__residual_free(&comm->residuals);
    gw__device_calls_free(comm);
    gw__parts_free(comm);
    gw_call_order_free(comm->order);
    pthread_mutex_lock(&comm->context->lock);
    if (comm->page)
        comm->page->open = false;
    pthread_mutex_unlock(&comm->context->lock);
    free(comm);
}

void gw_comm_reset_residuals(gw_comm_t *comm)
{
    gw__residual_clear(&comm->residuals);
    if (comm->device_calls.gpu.device)
        gw__residual_clear(&comm->device_calls.residuals);
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
    gw__stats_page_read(comm->page, out);
}

gw_status_t gw_comm_timeline(gw_comm_t *comm, size_t events)
{
    gw__timeline_t *timeline = events ? gw__timeline_new(events) : NULL;
    if (events && !timeline)
        return GW_ERR_NO_MEMORY;
    free(comm->engine.timeline);
    comm->engine.timeline = timeline;
    return GW_OK;
}

void gw_comm_timeline_print(const gw_comm_t *comm, int width, FILE *out)
{
    if (!comm->engine.timeline)
        return;
    gw__timeline_print(comm->engine.timeline, width, out);
    gw__parts_print(comm, out);
}
