/* SPDX-License-Identifier: Apache-2.0 */
/* What peers send while a communicator is made: a byte says which message, the rest is in it. Every
 * check comes to an end, and after one that passes the values are within their bounds. */
#include "fuzz.h"

#include "comm_peers.h"

enum { RANKS = 4 };

/* Texts, one a line. */
static void roll_calls(const uint8_t *data, size_t size)
{
    gw__roll_call_t all[RANKS] = {{{0}}};
    char why[400];
    for (int r = 0; r < RANKS; r++) {
        const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
        size_t length = end ? (size_t)(end - data) : size;
        size_t kept = length < sizeof all[r].agreement ? length : sizeof all[r].agreement;
        if (kept)
            memcpy(all[r].agreement, data, kept);
        data += length + (end != NULL);
        size -= length + (end != NULL);
    }
    gw_status_t status = gw__roll_calls_check(all, RANKS, why, sizeof why);
    fuzz_require(status == GW_OK || status == GW_ERR_SETTINGS_DIFFER);
    fuzz_require(status == GW_OK || (memchr(why, '\0', sizeof why) && why[0]));
    /* The whole text is there for everybody to read. */
    for (int r = 0; r < RANKS; r++)
        fuzz_require(memchr(all[r].agreement, '\0', sizeof all[r].agreement));
}

/* Honest facts of four ranks on two nodes. */
static void fill_facts(gw_node_facts_t *facts, int rank)
{
    *facts = (gw_node_facts_t){.node_id = (uint64_t)rank / 2 + 1, .version = 1, .iface_count = 3};
    snprintf(facts->host, sizeof facts->host, "host%d", rank / 2);
    facts->cpus_allowed = 4;
    facts->iface[0] = (gw_node_iface_t){.name = "lo", .family = 4, .prefix = 8, .flags = 1};
    facts->iface[1] = (gw_node_iface_t){.name = "eth0", .family = 4, .prefix = 24};
    facts->iface[2] = (gw_node_iface_t){.name = "eth1", .family = 6, .prefix = 64};
    memcpy(facts->iface[0].addr, (uint8_t[]){127, 0, 0, 1}, 4);
    memcpy(facts->iface[1].addr, (uint8_t[]){10, 0, 0, (uint8_t)(rank / 2 + 1)}, 4);
    memcpy(facts->iface[2].addr, (uint8_t[]){0xFD, [15] = (uint8_t)(rank / 2 + 1)}, 16);
}

static void route(const gw__hello_t *all)
{
    gw_status_t first = GW_OK;
    for (int r = 0; r < RANKS; r++) {
        char device[64], why[400] = "";
        bool one_node = false;
        gw_status_t status =
            gw__hellos_route(all, RANKS, r, &one_node, device, sizeof device, why, sizeof why);
        fuzz_require(status == GW_OK || status == GW_ERR_INVALID || status == GW_ERR_NO_DEVICE);
        fuzz_require(memchr(device, '\0', sizeof device));
        fuzz_require(status != GW_OK || one_node == !device[0]);
        if (r == 0)
            first = status;
        /* Facts that no Gradwire makes are refused by everybody alike. */
        fuzz_require((status == GW_ERR_INVALID) == (first == GW_ERR_INVALID));
    }
}

/* Patches of three bytes each, offset and value, on honest facts; a rank's status and texts first.
 */
static void hellos(const uint8_t *data, size_t size)
{
    gw__hello_t *all = fuzz_alloc(RANKS * sizeof *all);
    gw_node_facts_t facts[RANKS];
    int failed = -1;
    char why[400] = "";
    for (int r = 0; r < RANKS; r++) {
        gw__hello_init(&all[r]);
        fill_facts(&facts[r], r);
    }
    gw__hello_t *liar = &all[size % RANKS];
    fuzz_take(&data, &size, &liar->status, sizeof liar->status);
    fuzz_take(&data, &size, liar->name, 16);
    fuzz_take(&data, &size, liar->magic, size % 2 ? 0 : 8);
    for (; size >= 3; data += 3, size -= 3)
        ((uint8_t *)facts)[(data[0] | (size_t)data[1] << 8) % sizeof facts] = data[2];
    if (size)
        memset(liar->why, data[0], sizeof liar->why);
    for (int r = 0; r < RANKS; r++)
        all[r].facts = facts[r];
    gw_status_t status = gw__hellos_check(all, RANKS, &failed, why, sizeof why);
    fuzz_require(status == GW_OK || (failed == liar - all && why[0]));
    fuzz_require(status == GW_OK || status == GW_ERR_NO_DEVICE || status == GW_ERR_PEER_REFUSED);
    for (int r = 0; r < RANKS; r++)
        fuzz_require(memchr(all[r].name, '\0', sizeof all[r].name));
    route(all);
    free(all);
}

static void outcomes(const uint8_t *data, size_t size)
{
    gw__outcome_t *all = fuzz_alloc(RANKS * sizeof *all);
    int failed = -1;
    char why[400] = "";
    for (int r = 0; r < RANKS; r++) {
        memset(&all[r], 0, sizeof all[r]);
        fuzz_take(&data, &size, &all[r].status, sizeof all[r].status);
        fuzz_take(&data, &size, &all[r].address_length, sizeof all[r].address_length);
        fuzz_take(&data, &size, all[r].why, size > 600 ? sizeof all[r].why : 8);
    }
    gw_status_t status = gw__outcomes_check(all, RANKS, &failed, why, sizeof why);
    fuzz_require(status == GW_OK || (status < 0 && failed >= 0 && failed < RANKS && why[0]));
    for (int r = 0; r < RANKS && status == GW_OK; r++)
        fuzz_require(all[r].status == GW_OK && all[r].address_length <= GW_TRANSPORT_ADDRESS_MAX);
    free(all);
}

static void no_log(void *arg, gw_log_level_t level, const char *format, ...)
{
    (void)arg, (void)level, (void)format;
}

/* The bytes as rank 1's address, beside an honest one of rank 0. */
static void addresses(const uint8_t *data, size_t size)
{
    const gw_transport_t *transport;
    gw_loopback_t *world;
    gw_link_t *link;
    uint8_t own[GW_TRANSPORT_ADDRESS_MAX];
    size_t length = sizeof own;
    fuzz_require(gw_transport_find("loopback", &transport, NULL, 0) == GW_OK);
    fuzz_require(gw_loopback_create(2, &world) == GW_OK);
    gw_link_params_t params = {.size = 2, .timeout = 0.1, .arg = world, .log = no_log};
    fuzz_require(transport->open(&params, &link) == GW_OK);
    fuzz_require(transport->address(link, own, &length) == GW_OK);
    uint8_t *other = fuzz_alloc(size);
    if (size)
        memcpy(other, data, size);
    gw_address_t all[2] = {{own, length}, {other, size}};
    gw_status_t status = transport->connect(link, all);
    fuzz_require(status <= 0);
    transport->close(link);
    gw_loopback_free(world);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const messages[])(const uint8_t *, size_t) = {roll_calls, hellos, outcomes,
                                                                addresses};
    if (size > 0)
        messages[data[0] % 4](data + 1, size - 1);
    return 0;
}
