/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a communicator. Steps of one all-gather each, which every rank reaches whatever went wrong
 * on it, so that all return the same status: settings; facts and parts of the secret; then for one
 * transport after the other, until one carries: who can use it; addresses' lengths; addresses; what
 * became of connecting; of greeting.
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

/* Making one communicator. */
typedef struct setup {
    gw_comm_t *comm;
    const gw_comm_params_t *params;
    const gw__hello_t *hellos; /* of all ranks */
    gw_status_t facts;         /* of looking for this rank's interfaces; its reason */
    char facts_why[256];
    uint8_t secret[GW__SECRET_BYTES];
    bool together; /* the last step failed or not by a decision that all ranks came to */
} setup_t;

/*
 * The i-th transport to try; NULL behind the last. The same on all ranks: settings were compared,
 * and all give an MPI communicator or none.
 */
static const char *candidate(const setup_t *setup, size_t i)
{
    static const char *const by_itself[] = {"ucx", "mpi"};
    const char *wanted = setup->params->transport;
    if (!wanted)
        wanted = setup->comm->context->settings.text[GW__SETTING_TRANSPORT];
    if (strcmp(wanted, "auto") != 0)
        return i == 0 ? wanted : NULL;
    return i < (setup->params->mpi_comm ? 2u : 1u) ? by_itself[i] : NULL;
}

/* Whether facts of the network are of use: to choose an interface, or to know its speed. */
static bool meets_network(const setup_t *setup)
{
    const gw_transport_t *transport;
    const char *name;
    for (size_t i = 0; (name = candidate(setup, i)); i++)
        if (gw_transport_find(name, &transport, NULL, 0) == GW_OK &&
            transport->flags & (GW_TRANSPORT_NETWORK | GW_TRANSPORT_OVER_MPI))
            return true;
    return false;
}

static void prepare_hello(setup_t *setup, gw__hello_t *hello)
{
    gw_comm_t *comm = setup->comm;
    const gw_comm_params_t *params = setup->params;
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
    if (meets_network(setup))
        setup->facts = gw__context_facts(comm->context, &hello->facts, setup->facts_why,
                                         sizeof setup->facts_why);
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

/* Whether this rank can use a transport. Comes before the first step of it that others would wait
 * in. */
static gw_status_t get_ready(setup_t *setup, const char *name, char *why, size_t why_size)
{
    const gw_transport_t *transport = NULL;
    gw_status_t status = gw_transport_find(name, &transport, why, why_size);
    if (status == GW_OK && transport->probe)
        status = transport->probe(why, why_size);
    if (status == GW_OK && transport->flags & GW_TRANSPORT_NETWORK && setup->facts != GW_OK) {
        status = setup->facts;
        snprintf(why, why_size, "%s", setup->facts_why);
    }
    if (status == GW_OK && transport->flags & GW_TRANSPORT_OVER_MPI && !setup->params->mpi_comm) {
        status = GW_ERR_INVALID;
        snprintf(why, why_size, "transport %.64s: no MPI communicator was given", name);
    }
    setup->comm->transport = transport;
    return status;
}

static gw_status_t open_link(setup_t *setup, char *why, size_t why_size)
{
    gw_comm_t *comm = setup->comm;
    gw_status_t status = GW_OK;
    char device[64] = "";
    gw_link_params_t link = {.rank = comm->rank,
                             .size = comm->size,
                             .port_min = comm->context->settings.port_min,
                             .port_max = comm->context->settings.port_max,
                             .local_ranks = comm->local_ranks,
                             .timeout = comm->context->settings.timeout,
                             .guard = comm->context->settings.guard,
                             .secret = setup->secret + GW__SECRET_BYTES - GW_TRANSPORT_SECRET,
                             .arg = setup->params->transport_arg,
                             .log = take_log,
                             .log_arg = comm,
                             .faults = comm->context->settings.text[GW__SETTING_FAULT],
                             .mpi_comm = setup->params->mpi_comm};
    if (comm->transport->flags & GW_TRANSPORT_NETWORK)
        status = gw__hellos_route(setup->hellos, comm->size, comm->rank, &link.one_node, device,
                                  sizeof device, why, why_size);
    if (device[0])
        link.devices = device;
    link.one_memory = link.one_node && same_memory(setup->hellos, comm->size);
    if (status == GW_OK)
        status = comm->transport->open(&link, &comm->link);
    if (status != GW_OK && !why[0])
        snprintf(why, why_size, "transport %.64s: %s", comm->transport->name,
                 gw_status_text(status));
    return status;
}

/* All-gathers what became of a step; the first rank that failed decides for all. */
static gw_status_t agree(setup_t *setup, gw__outcome_t *mine, gw__outcome_t *all)
{
    gw_comm_t *comm = setup->comm;
    const gw_comm_params_t *params = setup->params;
    gw_status_t status = params->allgather(params->allgather_arg, mine, all, sizeof *mine);
    setup->together = status == GW_OK;
    return status != GW_OK ? status
                           : gw__outcomes_check(all, comm->size, &comm->failed_rank, comm->error,
                                                sizeof comm->error);
}

static gw_status_t exchange_addresses(setup_t *setup, const void *mine,
                                      const gw__outcome_t *lengths)
{
    gw_comm_t *comm = setup->comm;
    const gw_comm_params_t *params = setup->params;
    size_t longest = 1, size = (size_t)comm->size;
    for (int i = 0; i < comm->size; i++)
        if (lengths[i].address_length > longest)
            longest = lengths[i].address_length;
    uint8_t *bytes = calloc(size + 1, longest);
    gw_address_t *addresses = calloc(size, sizeof *addresses);
    gw__outcome_t result = {0}, *results = calloc(size, sizeof *results);
    gw_status_t status = bytes && addresses && results ? GW_OK : GW_ERR_NO_MEMORY;
    setup->together = false;
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
    status = agree(setup, &result, results);
    if (status != GW_OK)
        goto done;
    result.status = gw__comm_greet(comm, setup->secret, result.why, sizeof result.why);
    status = agree(setup, &result, results);
done:
    free(results);
    free(addresses);
    free(bytes);
    return status;
}

static gw_status_t connect_link(setup_t *setup, gw__outcome_t *all)
{
    gw_comm_t *comm = setup->comm;
    uint8_t address[GW_TRANSPORT_ADDRESS_MAX];
    gw__outcome_t mine = {0};
    collect(comm, mine.why, sizeof mine.why);
    mine.status = open_link(setup, mine.why, sizeof mine.why);
    size_t length = sizeof address;
    if (mine.status == GW_OK)
        mine.status = comm->transport->address(comm->link, address, &length);
    collect_no_more(comm, mine.status);
    mine.address_length = mine.status == GW_OK ? (uint32_t)length : 0;
    gw_status_t status = agree(setup, &mine, all);
    if (status == GW_OK)
        status = exchange_addresses(setup, address, all);
    return status;
}

/* One transport, from looking for it to the last greeting. */
static gw_status_t try_transport(setup_t *setup, const char *name, gw__outcome_t *all)
{
    gw_comm_t *comm = setup->comm;
    gw__outcome_t mine = {0};
    mine.status = get_ready(setup, name, mine.why, sizeof mine.why);
    gw_status_t status = agree(setup, &mine, all);
    if (status == GW_OK)
        status = connect_link(setup, all);
    if (status == GW_OK)
        return GW_OK;
    if (comm->link)
        comm->transport->close(comm->link);
    comm->link = NULL;
    comm->transport = NULL;
    return status;
}

/*
 * Every rank learns the same of every step, so all go on to the next transport together, or none
 * does.
 */
static gw_status_t find_transport(setup_t *setup)
{
    gw_comm_t *comm = setup->comm;
    gw__outcome_t *all = calloc((size_t)comm->size, sizeof *all);
    char reason[sizeof comm->error] = "", line[sizeof comm->error + 96];
    gw_status_t status = all ? GW_OK : GW_ERR_NO_MEMORY;
    const char *name = candidate(setup, 0), *next;
    for (size_t i = 0; all && name; name = next) {
        status = try_transport(setup, name, all);
        next = candidate(setup, ++i);
        if (status == GW_OK || !setup->together || !next)
            break;
        snprintf(reason, sizeof reason, "%s", comm->error);
        comm->error[0] = '\0';
        comm->failed_rank = -1;
    }
    free(all);
    if (status == GW_OK && reason[0]) {
        snprintf(line, sizeof line, "communicator of %d ranks: %s; it goes over %s instead",
                 comm->size, reason, comm->transport->name);
        gw__context_warn_once(comm->context, line);
    }
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
    setup_t setup = {.comm = comm, .params = params};
    gw__hello_t *mine = calloc(1, sizeof *mine), *all = calloc((size_t)comm->size, sizeof *all);
    gw_status_t status = mine && all ? GW_OK : GW_ERR_NO_MEMORY;
    if (status == GW_OK) {
        prepare_hello(&setup, mine);
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
        setup.hellos = all;
        join_secret(all, comm->size, setup.secret);
        status = find_transport(&setup);
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
    return status;
}
