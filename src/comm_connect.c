/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a communicator. Steps of one all-gather each, which every rank reaches whatever went wrong
 * on it, so that all return the same status: settings; facts and parts of the secret; addresses'
 * lengths; addresses; what became of connecting; of greeting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm_internal.h"
#include "comm_peers.h"
#include "hash.h"

/* Ranks of one node with the same value see each other's processes and segments of memory. */
static uint64_t memory_space(void)
{
    static const char *const paths[] = {"/proc/self/ns/ipc", "/proc/self/ns/pid",
                                        "/proc/self/ns/user"};
    uint64_t all = 0;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char text[64] = "";
        if (readlink(paths[i], text, sizeof text - 1) <= 0)
            return 0;
        all = gw__mix64(all ^ gw__hash_text(text));
    }
    return all;
}

static bool same_memory(const gw__hello_t *all, int size)
{
    bool same = all[0].memory != 0;
    for (int i = 1; i < size; i++)
        same = same && all[i].memory == all[0].memory;
    return same;
}

static void prepare_hello(gw_comm_t *comm, const gw_comm_params_t *params, gw__hello_t *hello)
{
    gw__hello_init(hello);
    pthread_mutex_lock(&comm->context->lock);
    hello->comms_created = comm->context->comms_created++;
    pthread_mutex_unlock(&comm->context->lock);
    if (params->name)
        snprintf(hello->name, sizeof hello->name, "%s", params->name);
    hello->speed = gw__context_speed(comm->context);
    hello->memory = memory_space();
    hello->status = gw__secret_draw(hello->secret, sizeof hello->secret);
    if (hello->status != GW_OK)
        snprintf(hello->why, sizeof hello->why, "the kernel gives no random bytes");
    /* The threads of a loopback have no need of a network. */
    else if (!params->transport_arg)
        hello->status =
            gw__context_facts(comm->context, &hello->facts, hello->why, sizeof hello->why);
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

/* Nobody who is not given all parts knows it, and it is as random as the best of them. */
static void join_secret(const gw__hello_t *all, int size, uint8_t secret[GW__SECRET_BYTES])
{
    memset(secret, 0, GW__SECRET_BYTES);
    for (int i = 0; i < size; i++)
        for (int j = 0; j < GW__SECRET_BYTES; j++)
            secret[j] ^= all[i].secret[j];
}

static gw_status_t open_link(gw_comm_t *comm, const gw_comm_params_t *params,
                             const gw__hello_t *all, const uint8_t secret[GW__SECRET_BYTES],
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
    char device[64] = "";
    gw_link_params_t link = {.rank = comm->rank,
                             .size = comm->size,
                             .port_min = comm->context->settings.port_min,
                             .port_max = comm->context->settings.port_max,
                             .timeout = comm->context->settings.timeout,
                             .guard = comm->context->settings.guard,
                             .secret = secret + GW__SECRET_BYTES - GW_TRANSPORT_SECRET,
                             .arg = params->transport_arg,
                             .log = take_log,
                             .log_arg = comm,
                             .faults = comm->context->settings.text[GW__SETTING_FAULT]};
    if (!params->transport_arg)
        status = gw__hellos_route(all, comm->size, comm->rank, &link.one_node, device,
                                  sizeof device, why, why_size);
    if (device[0])
        link.devices = device;
    link.one_memory = link.one_node && same_memory(all, comm->size);
    if (status == GW_OK)
        status = comm->transport->open(&link, &comm->link);
    if (status != GW_OK && !why[0])
        snprintf(why, why_size, "transport %.64s: %s", wanted, gw_status_text(status));
    return status;
}

/* All-gathers what became of a step; the first rank that failed decides for all. */
static gw_status_t agree(gw_comm_t *comm, const gw_comm_params_t *params, gw__outcome_t *mine,
                         gw__outcome_t *all)
{
    gw_status_t status = params->allgather(params->allgather_arg, mine, all, sizeof *mine);
    return status != GW_OK ? status
                           : gw__outcomes_check(all, comm->size, &comm->failed_rank, comm->error,
                                                sizeof comm->error);
}

static gw_status_t exchange_addresses(gw_comm_t *comm, const gw_comm_params_t *params,
                                      const uint8_t secret[GW__SECRET_BYTES], const void *mine,
                                      const gw__outcome_t *lengths)
{
    size_t longest = 1, size = (size_t)comm->size;
    for (int i = 0; i < comm->size; i++)
        if (lengths[i].address_length > longest)
            longest = lengths[i].address_length;
    uint8_t *bytes = calloc(size + 1, longest);
    gw_address_t *addresses = calloc(size, sizeof *addresses);
    gw__outcome_t result = {0}, *results = calloc(size, sizeof *results);
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
    result.status = gw__comm_greet(comm, secret, result.why, sizeof result.why);
    status = agree(comm, params, &result, results);
done:
    free(results);
    free(addresses);
    free(bytes);
    return status;
}

static gw_status_t connect_link(gw_comm_t *comm, const gw_comm_params_t *params,
                                const gw__hello_t *hellos)
{
    uint8_t address[GW_TRANSPORT_ADDRESS_MAX], secret[GW__SECRET_BYTES];
    gw__outcome_t mine = {0}, *all = calloc((size_t)comm->size, sizeof *all);
    if (!all)
        return GW_ERR_NO_MEMORY;
    join_secret(hellos, comm->size, secret);
    collect(comm, mine.why, sizeof mine.why);
    mine.status = open_link(comm, params, hellos, secret, mine.why, sizeof mine.why);
    size_t length = sizeof address;
    if (mine.status == GW_OK)
        mine.status = comm->transport->address(comm->link, address, &length);
    collect_no_more(comm, mine.status);
    mine.address_length = mine.status == GW_OK ? (uint32_t)length : 0;
    gw_status_t status = agree(comm, params, &mine, all);
    if (status == GW_OK)
        status = exchange_addresses(comm, params, secret, address, all);
    free(all);
    return status;
}

/* Whether all ranks run with the same settings. */
static gw_status_t call_roll(gw_comm_t *comm, const gw_comm_params_t *params)
{
    gw__roll_call_t mine = {{0}}, *all = calloc((size_t)comm->size, sizeof *all);
    if (!all)
        return GW_ERR_NO_MEMORY;
    gw_context_agreement(comm->context, mine.agreement, sizeof mine.agreement);
    gw_status_t status = params->allgather(params->allgather_arg, &mine, all, sizeof mine);
    if (status == GW_OK)
        status = gw__roll_calls_check(all, comm->size, comm->error, sizeof comm->error);
    free(all);
    return status;
}

static gw_status_t connect_all(gw_comm_t *comm, const gw_comm_params_t *params)
{
    gw__hello_t *mine = calloc(1, sizeof *mine), *all = calloc((size_t)comm->size, sizeof *all);
    gw_status_t status = mine && all ? GW_OK : GW_ERR_NO_MEMORY;
    if (status == GW_OK) {
        prepare_hello(comm, params, mine);
        status = params->allgather(params->allgather_arg, mine, all, sizeof *mine);
    }
    if (status == GW_OK)
        status =
            gw__hellos_check(all, comm->size, &comm->failed_rank, comm->error, sizeof comm->error);
    if (status == GW_OK) {
        comm->id = all[0].comms_created;
        snprintf(comm->name, sizeof comm->name, "%s", all[0].name);
        gw__pace_of(all, comm->size, comm->rank, params->transport_arg != NULL, &comm->pace,
                    &comm->local_ranks);
        status = connect_link(comm, params, all);
    }
    free(mine);
    free(all);
    return status;
}

gw_status_t gw__comm_connect(gw_comm_t *comm, const gw_comm_params_t *params)
{
    gw_status_t status = call_roll(comm, params);
    if (status == GW_OK)
        status = connect_all(comm, params);
    if (status != GW_OK && comm->link) {
        comm->transport->close(comm->link);
        comm->link = NULL;
    }
    return status;
}
