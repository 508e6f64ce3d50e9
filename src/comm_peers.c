/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of what came from peers while a communicator is made. */
#include "comm_peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/transport.h>

static const char hello_magic[8] = "gwhello";

/* These texts go to the log: they end, and hold nothing that moves a terminal's cursor. */
static void clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (unsigned char *c = (unsigned char *)text; *c; c++)
        if (*c < ' ' || *c == 0x7F)
            *c = '?';
}

void gw__hello_init(gw__hello_t *hello)
{
    memset(hello, 0, sizeof *hello);
    memcpy(hello->magic, hello_magic, sizeof hello->magic);
}

gw_status_t gw__roll_calls_check(gw__roll_call_t *all, int size, char *why, size_t why_size)
{
    const char **texts = calloc((size_t)size, sizeof *texts);
    if (!texts)
        return GW_ERR_NO_MEMORY;
    for (int i = 0; i < size; i++) {
        clean(all[i].agreement, sizeof all[i].agreement);
        texts[i] = all[i].agreement;
    }
    gw_status_t status = gw_agreement_compare(texts, size, why, why_size);
    free(texts);
    return status;
}

static void tell(int rank, int32_t status, const char *reason, char *why, size_t why_size)
{
    snprintf(why, why_size, "rank %d: %s", rank,
             reason[0] ? reason : gw_status_text((gw_status_t)status));
}

gw_status_t gw__hellos_check(gw__hello_t *all, int size, int *failed_rank, char *why,
                             size_t why_size)
{
    for (int i = 0; i < size; i++) {
        clean(all[i].name, sizeof all[i].name);
        clean(all[i].why, sizeof all[i].why);
    }
    for (int i = 0; i < size; i++) {
        bool known = memcmp(all[i].magic, hello_magic, sizeof hello_magic) == 0;
        if (known && all[i].status == GW_OK)
            continue;
        *failed_rank = i;
        tell(i, all[i].status, known ? all[i].why : "its greeting is not one of Gradwire's", why,
             why_size);
        return known && all[i].status == GW_ERR_NO_DEVICE ? GW_ERR_NO_DEVICE : GW_ERR_PEER_REFUSED;
    }
    return GW_OK;
}

gw_status_t gw__outcomes_check(gw__outcome_t *all, int size, int *failed_rank, char *why,
                               size_t why_size)
{
    for (int i = 0; i < size; i++)
        clean(all[i].why, sizeof all[i].why);
    for (int i = 0; i < size; i++) {
        if (all[i].status == GW_OK && all[i].address_length <= GW_TRANSPORT_ADDRESS_MAX)
            continue;
        *failed_rank = i;
        tell(i, all[i].status, all[i].status == GW_OK ? "address longer than any is" : all[i].why,
             why, why_size);
        return all[i].status == GW_ERR_NO_DEVICE || all[i].status == GW_ERR_NO_MODULE
                   ? (gw_status_t)all[i].status
                   : GW_ERR_PEER_REFUSED;
    }
    return GW_OK;
}

gw_status_t gw__hellos_route(const gw__hello_t *all, int size, int rank, bool *one_node,
                             char *device, size_t device_size, char *why, size_t why_size)
{
    gw_node_facts_t *facts = calloc((size_t)size, sizeof *facts);
    int *node = calloc((size_t)size, sizeof *node), nodes = 0;
    gw_status_t status = facts && node ? GW_OK : GW_ERR_NO_MEMORY;
    for (int i = 0; i < size && status == GW_OK; i++)
        facts[i] = all[i].facts;
    if (status == GW_OK)
        status = gw_node_group(facts, size, node, &nodes);
    *one_node = nodes == 1;
    device[0] = '\0';
    if (status == GW_OK && nodes > 1)
        status = gw_node_choose_iface(facts, size, rank, device, device_size, why, why_size);
    free(facts);
    free(node);
    return status;
}
