/* SPDX-License-Identifier: Apache-2.0 */
/* Node grouping, the interface filter and the choice of an interface, on made-up facts. */
#include <arpa/inet.h>
#include <string.h>

#include "topology/topology_int.h"

#include "gw_test.h"

enum { DEF = GW_IFACE_DEFAULT_ROUTE, GATE = GW_IFACE_GATEWAY };

/* "eth0 10.0.0.1/24" with flags, distance and speed, added to a rank's facts. */
static void add(gw_node_facts_t *facts, const char *name, const char *address, int flags,
                int distance, uint32_t speed)
{
    char text[64];
    gw_node_iface_t iface = {
        .flags = (uint8_t)flags, .distance = (uint8_t)distance, .speed_mbit = speed};
    snprintf(iface.name, sizeof iface.name, "%s", name);
    snprintf(text, sizeof text, "%s", address);
    char *slash = strchr(text, '/');
    ck_assert_ptr_nonnull(slash);
    *slash = '\0';
    iface.prefix = (uint8_t)atoi(slash + 1);
    if (inet_pton(AF_INET, text, iface.addr) == 1)
        iface.family = 4;
    else if (inet_pton(AF_INET6, text, iface.addr) == 1)
        iface.family = 6;
    ck_assert_int_ne(iface.family, 0);
    if (gw__addr_link_local(iface.family, iface.addr))
        iface.flags |= GW_IFACE_LINK_LOCAL;
    facts->iface[facts->iface_count++] = iface;
}

/* A rank on `node` with the loopback that every machine has. */
static gw_node_facts_t rank_on(uint64_t node)
{
    gw_node_facts_t facts = {.node_id = node, .version = 1, .cpus_allowed = 2};
    snprintf(facts.host, sizeof facts.host, "host%u", (unsigned)node);
    add(&facts, "lo", "127.0.0.1/8", GW_IFACE_LOOPBACK, 3, 0);
    return facts;
}

static void expect(const gw_node_facts_t *facts, int size, int rank, const char *expected)
{
    char name[16] = "", why[1200] = "";
    gw_status_t status =
        gw_node_choose_iface(facts, size, rank, name, sizeof name, why, sizeof why);
    ck_assert_msg(status == GW_OK, "rank %d: %s", rank, why);
    ck_assert_str_eq(name, expected);
}

static void expect_none(const gw_node_facts_t *facts, int size, int rank, const char *reason)
{
    char name[16] = "kept", why[1200] = "";
    gw_status_t status =
        gw_node_choose_iface(facts, size, rank, name, sizeof name, why, sizeof why);
    ck_assert_int_eq(status, GW_ERR_NO_DEVICE);
    ck_assert_str_eq(name, "kept");
    ck_assert_msg(strstr(why, reason) != NULL, "\"%s\" is not in \"%s\"", reason, why);
}

/* The inner bridge of a container manager has the same address on every machine. */
START_TEST(docker_bridge_is_no_way)
{
    gw_node_facts_t f[2] = {rank_on(1), rank_on(2)};
    for (int flagged = 0; flagged < 2; flagged++) {
        for (int i = 0; i < 2; i++) {
            f[i] = rank_on((uint64_t)i + 1);
            add(&f[i], "docker0", "172.17.0.1/16", flagged ? GW_IFACE_BRIDGE : 0, 0, 100000);
            add(&f[i], "eth0", i ? "10.0.0.2/24" : "10.0.0.1/24", DEF, 1, 1000);
        }
        expect(f, 2, 0, "eth0");
        expect(f, 2, 1, "eth0");
    }
    f[0].iface_count = f[1].iface_count = 2;
    expect_none(f, 2, 0, "docker0 172.17.0.1/16 (bridge inside its node)");
    f[0].iface[1].flags = f[1].iface[1].flags = 0;
    expect_none(f, 2, 0,
                "docker0 172.17.0.1/16 (same address there, not the same network rank 1 "
                "on host2)");
}
END_TEST

START_TEST(nearest_then_fastest_then_first)
{
    gw_node_facts_t f[2] = {rank_on(1), rank_on(2)};
    add(&f[0], "eth0", "10.0.0.1/24", 0, 2, 100000);
    add(&f[0], "eth1", "10.0.1.1/24", 0, 0, 10000);
    add(&f[0], "eth2", "10.0.2.1/24", 0, 0, 25000);
    add(&f[0], "eth3", "10.0.3.1/24", 0, 0, 25000);
    add(&f[1], "eth0", "10.0.0.2/24", 0, 0, 10000);
    add(&f[1], "eth1", "10.0.1.2/24", 0, 2, 100000);
    add(&f[1], "eth2", "10.0.2.2/24", 0, 2, 100000);
    add(&f[1], "eth3", "10.0.3.2/24", 0, 2, 100000);
    expect(f, 2, 0, "eth2");
    expect(f, 2, 1, "eth0");
    f[0].iface[3].speed_mbit = 0;
    expect(f, 2, 0, "eth3");
}
END_TEST

START_TEST(ipv4_before_link_local_and_ipv6)
{
    gw_node_facts_t f[2] = {rank_on(1), rank_on(2)};
    for (int i = 0; i < 2; i++) {
        add(&f[i], "usb0", i ? "fe80::2/64" : "fe80::1/64", 0, 0, 100000);
        add(&f[i], "bmc0", i ? "169.254.3.2/16" : "169.254.3.1/16", 0, 0, 100000);
        add(&f[i], "eth1", i ? "fd00::2/64" : "fd00::1/64", 0, 0, 100000);
        add(&f[i], "eth0", i ? "10.0.0.2/24" : "10.0.0.1/24", 0, 2, 1000);
    }
    expect(f, 2, 0, "eth0");
    f[0].iface_count = f[1].iface_count = 4; /* without IPv4 */
    expect(f, 2, 0, "eth1");
    expect(f, 2, 1, "eth1");
    f[1].iface_count = 3; /* only one side has a routable address */
    expect_none(f, 2, 0, "eth1 fd00::1/64 (no network in common and no route to rank 1 on host2)");
    expect_none(f, 2, 1, "usb0 fe80::2/64 (link-local address)");
    expect_none(f, 2, 1, "bmc0 169.254.3.2/16 (link-local address)");
    expect_none(f, 2, 1, "lo 127.0.0.1/8 (loopback)");
}
END_TEST

START_TEST(other_subnets_need_a_route)
{
    gw_node_facts_t f[2] = {rank_on(1), rank_on(2)};
    add(&f[0], "eth0", "10.0.0.1/24", 0, 0, 1000);
    add(&f[0], "eth1", "10.1.0.1/24", DEF | GATE, 2, 1000);
    add(&f[1], "eth0", "10.2.0.1/24", DEF | GATE, 0, 1000);
    expect(f, 2, 0, "eth1");
    expect(f, 2, 1, "eth0");
    f[1].iface[1].flags = 0; /* no way back */
    expect_none(f, 2, 0, "eth1 10.1.0.1/24 (no network in common and no route to rank 1");
    f[0].iface[1].flags = f[1].iface[1].flags = GATE; /* static routes by a gateway */
    expect(f, 2, 0, "eth0");
    f[0].iface[1].flags = f[1].iface[1].flags = GW_IFACE_NAMED; /* the user knows */
    expect(f, 2, 1, "eth0");
}
END_TEST

/* Clouds give an interface a /32: nothing is a neighbour, the gateway leads everywhere. */
START_TEST(host_prefixes)
{
    gw_node_facts_t f[2] = {rank_on(1), rank_on(2)};
    add(&f[0], "ens4", "10.128.0.2/32", DEF | GATE, 0, 1000);
    add(&f[1], "ens4", "10.128.0.3/32", DEF | GATE, 0, 1000);
    expect(f, 2, 0, "ens4");
    f[0].iface[1].flags = 0;
    expect_none(f, 2, 0, "no network in common");
    f[0].iface[1].prefix = 16; /* the other side does not see a neighbour */
    expect_none(f, 2, 0, "no network in common");
    f[0].iface[1].prefix = 0;
    expect_none(f, 2, 0, "no network in common");
}
END_TEST

START_TEST(only_the_common_network_of_three)
{
    gw_node_facts_t f[3] = {rank_on(1), rank_on(2), rank_on(3)};
    add(&f[0], "fast", "10.9.0.1/24", 0, 0, 100000);
    add(&f[0], "eth0", "10.0.0.1/24", 0, 2, 1000);
    add(&f[1], "fast", "10.9.0.2/24", 0, 0, 100000);
    add(&f[1], "eth0", "10.0.0.2/24", 0, 2, 1000);
    add(&f[2], "eth7", "10.0.0.3/24", 0, 0, 1000);
    expect(f, 2, 0, "fast"); /* two of them share it */
    expect(f, 3, 0, "eth0");
    expect(f, 3, 1, "eth0");
    expect(f, 3, 2, "eth7");
}
END_TEST

/* Ranks of one node may have been given different interfaces; any of them makes the node reachable.
 */
START_TEST(a_node_is_reached_by_any_of_its_ranks)
{
    gw_node_facts_t f[3] = {rank_on(1), rank_on(2), rank_on(2)};
    add(&f[0], "eth0", "10.0.0.1/24", 0, 0, 1000);
    add(&f[1], "eth9", "10.7.0.2/24", 0, 0, 1000);
    add(&f[2], "eth0", "10.0.0.2/24", 0, 0, 1000);
    expect(f, 3, 0, "eth0");
    expect(f, 3, 2, "eth0");
    expect_none(f, 3, 1, "rank 1 on host2 has no interface that reaches all other nodes; tried: ");
}
END_TEST

START_TEST(one_node)
{
    gw_node_facts_t f[2] = {rank_on(1), rank_on(1)};
    expect(f, 1, 0, "lo");
    expect(f, 2, 1, "lo");
    add(&f[0], "eth0", "10.0.0.1/24", DEF, 0, 1000);
    expect(f, 2, 0, "lo");
    f[0].iface[0] = f[0].iface[1]; /* the setting left only eth0 */
    f[0].iface_count = 1;
    expect(f, 2, 0, "eth0");
    f[0].iface_count = 0;
    expect_none(f, 2, 0, "none, no interface is up");
}
END_TEST

START_TEST(groups_in_order_of_appearance)
{
    gw_node_facts_t f[5] = {rank_on(7), rank_on(3), rank_on(7), rank_on(9), rank_on(3)};
    int node[5], nodes = 0;
    /* equal names do not make a node */
    for (int i = 0; i < 5; i++)
        strcpy(f[i].host, "same");
    ck_assert_int_eq(gw_node_group(f, 5, node, &nodes), GW_OK);
    ck_assert_int_eq(nodes, 3);
    static const int expected[5] = {0, 1, 0, 2, 1};
    ck_assert_int_eq(memcmp(node, expected, sizeof node), 0);
    ck_assert_int_eq(gw_node_group(f, 0, node, &nodes), GW_ERR_INVALID);
    ck_assert_int_eq(gw_node_group(NULL, 1, node, &nodes), GW_ERR_INVALID);
}
END_TEST

/* What a peer sends is not believed. */
static void refuse(const gw_node_facts_t *f, const char *reason)
{
    int node[2], nodes = -1;
    char name[16], why[256] = "";
    ck_assert_int_eq(gw_node_group(f, 2, node, &nodes), GW_ERR_INVALID);
    ck_assert_int_eq(nodes, -1);
    ck_assert_int_eq(gw_node_choose_iface(f, 2, 0, name, sizeof name, why, sizeof why),
                     GW_ERR_INVALID);
    ck_assert_msg(strstr(why, reason) && strstr(why, "rank 1"), "%s", why);
}

START_TEST(facts_of_peers_are_checked)
{
    gw_node_facts_t good = rank_on(2);
    add(&good, "eth0", "10.0.0.1/24", 0, 0, 0);
    gw_node_facts_t f[2] = {good, good};
    f[1].version = 2;
    refuse(f, "version");
    f[1] = good;
    memset(f[1].host, 'x', sizeof f[1].host);
    refuse(f, "host name");
    f[1] = good;
    f[1].host[0] = '\0';
    refuse(f, "host name");
    f[1] = good;
    f[1].iface_count = GW_NODE_FACTS_IFACES + 1;
    refuse(f, "too many");
    f[1] = good;
    memset(f[1].iface[1].name, 'x', 16);
    refuse(f, "interface name");
    f[1] = good;
    strcpy(f[1].iface[1].name, "a\nb");
    refuse(f, "interface name");
    f[1] = good;
    f[1].iface[1].family = 10;
    refuse(f, "family");
    f[1] = good;
    f[1].iface[1].prefix = 33;
    refuse(f, "prefix");
    f[1] = good;
    f[1].iface[1].distance = 4;
    refuse(f, "distance");
    f[1] = good;
    f[1].iface[1] = (gw_node_iface_t){0}; /* an entry that is not used */
    expect(f, 2, 0, "lo");
}
END_TEST

/* Random bytes give an answer or an error, and never leave the buffers (run under ASan). */
START_TEST(random_facts_do_not_crash)
{
    uint64_t seed = 3;
    gw_node_facts_t f[3];
    int node[3], nodes, good = 0;
    for (int round = 0; round < 20000; round++) {
        for (int i = 0; i < 3; i++) {
            f[i] = rank_on(gw_test_random(&seed) % 3);
            for (int k = 0; k < 3; k++) {
                gw_node_iface_t *iface = &f[i].iface[f[i].iface_count++];
                for (size_t b = 0; b < sizeof *iface; b++)
                    ((uint8_t *)iface)[b] = (uint8_t)(gw_test_random(&seed) % 7);
                strcpy(iface->name, "eth0");
                iface->family = gw_test_random(&seed) & 1 ? 4 : 6;
                iface->distance &= 3;
            }
            if (gw_test_random(&seed) % 20 == 0)
                ((uint8_t *)&f[i])[gw_test_random(&seed) % sizeof f[i]] = 0xff;
        }
        char name[16], why[64];
        good += gw_node_group(f, 3, node, &nodes) == GW_OK;
        gw_status_t status = gw_node_choose_iface(f, 3, 1, name, sizeof name, why, sizeof why);
        ck_assert(status == GW_OK || status == GW_ERR_NO_DEVICE || status == GW_ERR_INVALID);
    }
    ck_assert_int_gt(good, 10000);
}
END_TEST

START_TEST(small_buffers_and_bad_arguments)
{
    gw_node_facts_t f[1] = {rank_on(1)};
    char name[16], why[64];
    ck_assert_int_eq(gw_node_choose_iface(f, 1, 0, name, 2, why, sizeof why), GW_ERR_NO_SPACE);
    ck_assert_int_eq(gw_node_choose_iface(f, 1, 0, name, 3, NULL, 0), GW_OK);
    ck_assert_int_eq(gw_node_choose_iface(f, 1, 1, name, 16, why, sizeof why), GW_ERR_INVALID);
    ck_assert_int_eq(gw_node_choose_iface(f, 1, -1, name, 16, why, sizeof why), GW_ERR_INVALID);
    ck_assert_int_eq(gw_node_choose_iface(NULL, 1, 0, name, 16, why, sizeof why), GW_ERR_INVALID);
    ck_assert_int_eq(gw_node_facts_collect(NULL, NULL, NULL, why, sizeof why), GW_ERR_INVALID);
}
END_TEST

/* ---- GRADWIRE_INTERFACES ---- */

static gw__netif_t netif(const char *name, const char *addr4, int prefix4)
{
    gw__netif_t n = {.up = true, .prefix4 = (uint8_t)prefix4};
    snprintf(n.name, sizeof n.name, "%s", name);
    n.has4 = addr4 && inet_pton(AF_INET, addr4, n.addr4) == 1;
    return n;
}

/* The names that the filter leaves, in order. */
static gw_status_t filtered(const char *setting, char *out, size_t size, char *why, size_t why_size)
{
    gw__netif_t n[4] = {netif("lo", "127.0.0.1", 8), netif("eth0", "10.0.0.1", 24),
                        netif("docker0", "172.17.0.1", 16), netif("eth1", "192.168.3.4", 24)};
    n[0].loopback = n[2].bridge = n[3].has6 = true;
    inet_pton(AF_INET6, "fd00::5", n[3].addr6);
    n[3].prefix6 = 64;
    gw_node_facts_t facts = {.version = 1};
    gw_status_t status = gw__facts_fill(NULL, n, 4, setting, &facts, why, why_size);
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < facts.iface_count; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%s/%d", len ? " " : "",
                                facts.iface[i].name, facts.iface[i].family);
    return status;
}

static const struct {
    const char *setting, *left;
} filters[] = {
    {NULL, "eth0/4 eth1/4 eth1/6 lo/4 docker0/4"},
    {"", "eth0/4 eth1/4 eth1/6 lo/4 docker0/4"},
    {"eth0", "eth0/4"},
    {"eth1,lo", "eth1/4 eth1/6 lo/4"},
    {"^docker0", "eth0/4 eth1/4 eth1/6 lo/4"},
    {"^docker0,eth0", "eth1/4 eth1/6 lo/4"},
    {"10.0.0.0/8", "eth0/4"},
    {"10.0.0.0/8,192.168.0.0/16", "eth0/4 eth1/4"},
    {"^172.16.0.0/12,127.0.0.0/8", "eth0/4 eth1/4 eth1/6"},
    {"10.0.0.1", "eth0/4"},
    {"fd00::/8", "eth1/6"},
    {"0.0.0.0/0", "eth0/4 eth1/4 lo/4 docker0/4"},
    {"nothere,eth0", "eth0/4"},
    {"^nothere", "eth0/4 eth1/4 eth1/6 lo/4 docker0/4"},
    {"192.168.3.0/30", NULL}, /* .4 lies outside: nothing left */
    {"nothere", NULL},
    {"^0.0.0.0/0,fd00::/8", NULL},
};

START_TEST(filter_leaves)
{
    char left[256], why[1024] = "";
    gw_status_t status = filtered(filters[_i].setting, left, sizeof left, why, sizeof why);
    if (filters[_i].left) {
        ck_assert_msg(status == GW_OK, "%s", why);
        ck_assert_str_eq(left, filters[_i].left);
        return;
    }
    ck_assert_int_eq(status, GW_ERR_NO_DEVICE);
    ck_assert_str_eq(left, "");
    ck_assert_msg(strstr(why, filters[_i].setting) && strstr(why, "eth0 (10.0.0.1/24)") &&
                      strstr(why, "docker0 (172.17.0.1/16)"),
                  "%s", why);
}
END_TEST

static const char *const bad_filters[] = {
    ",",          "eth0,",       "^",           "^^eth0",      "eth0,^eth1",
    "eth 0",      "10.0.0.0/33", "10.0.0.0/",   "10.0.0.0/-1", "10.0.0.0/8x",
    "fd00::/129", "fd00::zz/64", "256.1.1.1/8", "a/b",         "averyveryverylongname",
    "eth0\t",
};

START_TEST(filter_refuses)
{
    char left[256], why[1024] = "";
    ck_assert_int_eq(filtered(bad_filters[_i], left, sizeof left, why, sizeof why),
                     GW_ERR_BAD_SETTING);
    ck_assert_msg(strstr(why, "GRADWIRE_INTERFACES") != NULL, "%s", why);
    ck_assert_msg(strstr(why, bad_filters[_i]) != NULL, "%s", why);
}
END_TEST

START_TEST(filter_refuses_long_lists)
{
    char text[4096] = "", left[256], why[1024];
    for (int i = 0; i < 40; i++)
        strcat(text, i ? ",eth0" : "eth0");
    ck_assert_int_eq(filtered(text, left, sizeof left, why, sizeof why), GW_ERR_BAD_SETTING);
    memset(text, 'x', sizeof text - 1);
    ck_assert_int_eq(filtered(text, left, sizeof left, why, sizeof why), GW_ERR_BAD_SETTING);
}
END_TEST

/* A machine with more addresses than fit keeps the useful ones and a loopback. */
START_TEST(more_interfaces_than_fit)
{
    gw__netif_t n[60];
    for (int i = 0; i < 60; i++) {
        char name[16], addr[32];
        snprintf(name, sizeof name, i < 40 ? "docker%d" : "eth%d", i);
        snprintf(addr, sizeof addr, "10.0.%d.1", i);
        n[i] = netif(name, addr, 24);
        n[i].bridge = i < 40;
    }
    n[59] = netif("lo", "127.0.0.1", 8);
    n[59].loopback = true;
    gw_node_facts_t facts = {.version = 1};
    ck_assert_int_eq(gw__facts_fill(NULL, n, 60, NULL, &facts, NULL, 0), GW_OK);
    ck_assert_int_eq(facts.iface_count, GW_NODE_FACTS_IFACES);
    for (int i = 0; i < 15; i++)
        ck_assert(strncmp(facts.iface[i].name, "eth", 3) == 0);
    ck_assert_str_eq(facts.iface[15].name, "lo");
}
END_TEST

START_TEST(down_interfaces_do_not_count)
{
    gw__netif_t n[2] = {netif("eth0", "10.0.0.1", 24), netif("eth1", NULL, 0)};
    n[0].up = false;
    gw_node_facts_t facts = {.version = 1};
    ck_assert_int_eq(gw__facts_fill(NULL, n, 2, NULL, &facts, NULL, 0), GW_OK);
    ck_assert_int_eq(facts.iface_count, 0);
    char why[256];
    ck_assert_int_eq(gw__facts_fill(NULL, n, 2, "eth0", &facts, why, sizeof why), GW_ERR_NO_DEVICE);
    ck_assert_str_eq(why, "GRADWIRE_INTERFACES=eth0 leaves no interface; there are: eth0 "
                          "(10.0.0.1/24, down), eth1 (no address)");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topology_facts");
    TCase *choice = tcase_create("choice");
    tcase_add_test(choice, docker_bridge_is_no_way);
    tcase_add_test(choice, nearest_then_fastest_then_first);
    tcase_add_test(choice, ipv4_before_link_local_and_ipv6);
    tcase_add_test(choice, other_subnets_need_a_route);
    tcase_add_test(choice, host_prefixes);
    tcase_add_test(choice, only_the_common_network_of_three);
    tcase_add_test(choice, a_node_is_reached_by_any_of_its_ranks);
    tcase_add_test(choice, one_node);
    tcase_add_test(choice, groups_in_order_of_appearance);
    tcase_add_test(choice, facts_of_peers_are_checked);
    tcase_add_test(choice, random_facts_do_not_crash);
    tcase_add_test(choice, small_buffers_and_bad_arguments);
    suite_add_tcase(suite, choice);
    TCase *filter = tcase_create("filter");
    tcase_add_loop_test(filter, filter_leaves, 0, sizeof filters / sizeof filters[0]);
    tcase_add_loop_test(filter, filter_refuses, 0, sizeof bad_filters / sizeof bad_filters[0]);
    tcase_add_test(filter, filter_refuses_long_lists);
    tcase_add_test(filter, more_interfaces_than_fit);
    tcase_add_test(filter, down_interfaces_do_not_count);
    suite_add_tcase(suite, filter);
    return gw_test_main(suite);
}
