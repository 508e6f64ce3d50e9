/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a communicator. Three all-gathers, which every rank reaches whatever went wrong on it, so
 * that all return the same status: settings and facts; addresses' lengths; addresses and the
 * outcome.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm_internal.h"

/* What a rank tells first. */
typedef struct hello {
    char magic[8];
    int32_t status; /* of the local preparations */
    uint32_t comms_created;
    char agreement[GW_AGREEMENT_MAX];
    char why[256];
    gw_node_facts_t facts;
} hello_t;

/* What a rank tells once its link is open or has failed. */
typedef struct outcome {
    int32_t status;
    uint32_t address_length;
    char why[256];
} outcome_t;

static const char hello_magic[8] = "gwhello";

static void terminate(char *text, size_t size)
{
    text[size - 1] = '\0';
}

static void prepare_hello(gw_comm_t *comm, const gw_comm_params_t *params, hello_t *hello)
{
    memset(hello, 0, sizeof *hello);
    memcpy(hello->magic, hello_magic, sizeof hello->magic);
    pthread_mutex_lock(&comm->context->lock);
    hello->comms_created = comm->context->comms_created++;
    pthread_mutex_unlock(&comm->context->lock);
    hello->status = gw_context_agreement(comm->context, hello->agreement, sizeof hello->agreement);
    /* The threads of a loopback have no need of a network. */
    if (hello->status == GW_OK && !params->transport_arg)
        hello->status =
            gw__context_facts(comm->context, &hello->facts, hello->why, sizeof hello->why);
}

static gw_status_t check_hellos(gw_comm_t *comm, hello_t *all)
{
    const char **texts = calloc((size_t)comm->size, sizeof *texts);
    if (!texts)
        return GW_ERR_NO_MEMORY;
    gw_status_t status = GW_OK;
    for (int i = 0; i < comm->size; i++) {
        terminate(all[i].agreement, sizeof all[i].agreement);
        terminate(all[i].why, sizeof all[i].why);
        texts[i] =
            memcmp(all[i].magic, hello_magic, sizeof hello_magic) == 0 ? all[i].agreement : "";
    }
    status = gw_agreement_compare(texts, comm->size, comm->error, sizeof comm->error);
    free(texts);
    for (int i = 0; i < comm->size && status == GW_OK; i++)
        if (all[i].status != GW_OK) {
            status = all[i].status == GW_ERR_NO_DEVICE ? GW_ERR_NO_DEVICE : GW_ERR_PEER_REFUSED;
            comm->failed_rank = i;
            snprintf(comm->error, sizeof comm->error, "rank %d: %s", i,
                     all[i].why[0] ? all[i].why : gw_status_text((gw_status_t)all[i].status));
        }
    return status;
}

/* Interface and node structure from everybody's facts. */
static gw_status_t choose_devices(gw_comm_t *comm, const hello_t *all, gw_link_params_t *link,
                                  char *name, size_t name_size, char *why, size_t why_size)
{
    gw_node_facts_t *facts = calloc((size_t)comm->size, sizeof *facts);
    int *node = calloc((size_t)comm->size, sizeof *node), nodes = 0;
    gw_status_t status = facts && node ? GW_OK : GW_ERR_NO_MEMORY;
    for (int i = 0; i < comm->size && status == GW_OK; i++)
        facts[i] = all[i].facts;
    if (status == GW_OK)
        status = gw_node_group(facts, comm->size, node, &nodes);
    link->one_node = nodes == 1;
    if (status == GW_OK && nodes > 1) {
        status =
            gw_node_choose_iface(facts, comm->size, comm->rank, name, name_size, why, why_size);
        link->devices = name;
    }
    free(facts);
    free(node);
    return status;
}

/*
 * What the transport says. A warning during set-up is the reason of a failure, which all ranks are
 * told and log; any other is logged once, however many communicators meet it.
 */
static void take_log(void *arg, gw_log_level_t level, const char *format, ...)
{
    gw_comm_t *comm = arg;
    char text[512];
    va_list args;
    va_start(args, format);
    if (level != GW_LOG_WARN) {
        gw__log_write(&comm->context->log, level, format, args);
    } else {
        vsnprintf(text, sizeof text, format, args);
        if (comm->why && !comm->why[0])
            snprintf(comm->why, comm->why_size, "%s", text);
        else
            gw__context_warn_once(comm->context, text);
    }
    va_end(args);
}

/* From here on the transport's first warning goes to `why`. */
static void collect(gw_comm_t *comm, char *why, size_t why_size)
{
    comm->why = why;
    comm->why_size = why_size;
}

/* A warning about something that did not fail belongs in the log. */
static void collect_no_more(gw_comm_t *comm, gw_status_t status)
{
    if (status == GW_OK && comm->why[0]) {
        gw__context_warn_once(comm->context, comm->why);
        comm->why[0] = '\0';
    }
    comm->why = NULL;
}

static gw_status_t open_link(gw_comm_t *comm, const gw_comm_params_t *params, const hello_t *all,
                             char *why, size_t why_size)
{
    const char *wanted =
        params->transport ? params->transport : comm->context->settings.text[GW__SETTING_TRANSPORT];
    if (strcmp(wanted, "auto") == 0)
        wanted = "ucx";
    gw_status_t status = gw_transport_find(wanted, &comm->transport, why, why_size);
    if (status == GW_OK && comm->transport->probe)
        status = comm->transport->probe(why, why_size);
    if (status != GW_OK)
        return status;
    char device[64];
    gw_link_params_t link = {.rank = comm->rank,
                             .size = comm->size,
                             .timeout = comm->context->settings.timeout,
                             .arg = params->transport_arg,
                             .log = take_log,
                             .log_arg = comm};
    if (!params->transport_arg)
        status = choose_devices(comm, all, &link, device, sizeof device, why, why_size);
    if (status == GW_OK)
        status = comm->transport->open(&link, &comm->link);
    if (status != GW_OK && !why[0])
        snprintf(why, why_size, "transport %.64s: %s", wanted, gw_status_text(status));
    return status;
}

/* All-gathers what became of a step; the first rank that failed decides for all. */
static gw_status_t agree(gw_comm_t *comm, const gw_comm_params_t *params, outcome_t *mine,
                         outcome_t *all)
{
    gw_status_t status = params->allgather(params->allgather_arg, mine, all, sizeof *mine);
    for (int i = 0; i < comm->size && status == GW_OK; i++) {
        terminate(all[i].why, sizeof all[i].why);
        if (all[i].status == GW_OK && all[i].address_length <= GW_TRANSPORT_ADDRESS_MAX)
            continue;
        status = all[i].status == GW_ERR_NO_DEVICE || all[i].status == GW_ERR_NO_MODULE
                     ? (gw_status_t)all[i].status
                     : GW_ERR_PEER_REFUSED;
        comm->failed_rank = i;
        const char *reason = all[i].status == GW_OK ? "address longer than any is" : all[i].why;
        snprintf(comm->error, sizeof comm->error, "rank %d: %s", i,
                 reason[0] ? reason : gw_status_text((gw_status_t)all[i].status));
    }
    return status;
}

static gw_status_t exchange_addresses(gw_comm_t *comm, const gw_comm_params_t *params,
                                      const void *mine, const outcome_t *lengths)
{
    size_t longest = 1, size = (size_t)comm->size;
    for (int i = 0; i < comm->size; i++)
        if (lengths[i].address_length > longest)
            longest = lengths[i].address_length;
    uint8_t *bytes = calloc(size + 1, longest);
    gw_address_t *addresses = calloc(size, sizeof *addresses);
    outcome_t result = {0}, *results = calloc(size, sizeof *results);
    gw_status_t status = bytes && addresses && results ? GW_OK : GW_ERR_NO_MEMORY;
    /* Without memory for the all-gather itself the others cannot be told: they get the error of the
     * transport. */
    if (status != GW_OK)
        goto done;
    memcpy(bytes + size * longest, mine, lengths[comm->rank].address_length);
    status = params->allgather(params->allgather_arg, bytes + size * longest, bytes, longest);
    if (status != GW_OK)
        goto done;
    for (size_t i = 0; i < size; i++)
        addresses[i] = (gw_address_t){bytes + i * longest, lengths[i].address_length};
    collect(comm, result.why, sizeof result.why);
    result.status = comm->transport->connect(comm->link, addresses);
    collect_no_more(comm, result.status);
    status = agree(comm, params, &result, results);
    if (status != GW_OK)
        goto done;
    result.status = gw__comm_greet(comm, result.why, sizeof result.why);
    status = agree(comm, params, &result, results);
done:
    free(results);
    free(addresses);
    free(bytes);
    return status;
}

static gw_status_t connect_link(gw_comm_t *comm, const gw_comm_params_t *params,
                                const hello_t *hellos)
{
    uint8_t address[GW_TRANSPORT_ADDRESS_MAX];
    outcome_t mine = {0}, *all = calloc((size_t)comm->size, sizeof *all);
    if (!all)
        return GW_ERR_NO_MEMORY;
    collect(comm, mine.why, sizeof mine.why);
    mine.status = open_link(comm, params, hellos, mine.why, sizeof mine.why);
    size_t length = sizeof address;
    if (mine.status == GW_OK)
        mine.status = comm->transport->address(comm->link, address, &length);
    collect_no_more(comm, mine.status);
    mine.address_length = mine.status == GW_OK ? (uint32_t)length : 0;
    gw_status_t status = agree(comm, params, &mine, all);
    if (status == GW_OK)
        status = exchange_addresses(comm, params, address, all);
    free(all);
    return status;
}

gw_status_t gw__comm_connect(gw_comm_t *comm, const gw_comm_params_t *params)
{
    hello_t *mine = calloc(1, sizeof *mine), *all = calloc((size_t)comm->size, sizeof *all);
    gw_status_t status = mine && all ? GW_OK : GW_ERR_NO_MEMORY;
    if (status == GW_OK) {
        prepare_hello(comm, params, mine);
        status = params->allgather(params->allgather_arg, mine, all, sizeof *mine);
    }
    if (status == GW_OK)
        status = check_hellos(comm, all);
    if (status == GW_OK) {
        comm->id = all[0].comms_created;
        status = connect_link(comm, params, all);
    }
    if (status != GW_OK && comm->link) {
        comm->transport->close(comm->link);
        comm->link = NULL;
    }
    free(mine);
    free(all);
    return status;
}
