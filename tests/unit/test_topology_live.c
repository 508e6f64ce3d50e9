/* SPDX-License-Identifier: Apache-2.0 */
/* The map of the machine that the tests run on: what it says, and what reading it must leave alone.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "topology/topology_int.h"

#include "gw_test.h"

static gw_topology_t *load(void)
{
    gw_topology_t *t = NULL;
    char why[512] = "";
    gw_status_t status = gw_topology_load(NULL, &t, why, sizeof why);
    ck_assert_msg(status == GW_OK, "%s", why);
    return t;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

START_TEST(counts_agree_with_the_system)
{
    gw_topo_summary_t s;
    gw_topo_numa_t n;
    cpu_set_t set;
    gw_topology_t *t = load();
    gw_topology_summary(t, &s);
    ck_assert_str_eq(s.source, "this machine");
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    ck_assert_int_eq(s.cpus_allowed, CPU_COUNT(&set));
    ck_assert_int_ge(s.cpus, s.cpus_allowed);
    ck_assert_int_ge(s.packages, 1);
    ck_assert_int_ge(s.cores, 1);
    int allowed = 0, nodes = 0;
    for (; gw_topology_numa(t, nodes, &n) == GW_OK; nodes++)
        allowed += n.cpus_allowed;
    ck_assert_int_eq(nodes, s.numa_nodes);
    ck_assert_int_ge(allowed, s.cpus_allowed);
    gw_topology_free(t);
}
END_TEST

/* Every interface that the system lists is on the map, with the same state. */
START_TEST(interfaces_are_all_there)
{
    gw__netif_t *netifs;
    int count;
    gw_topology_t *t = load();
    ck_assert_int_eq(gw__netif_list(&netifs, &count), GW_OK);
    ck_assert_int_gt(count, 0);
    for (int k = 0; k < count; k++) {
        gw_topo_device_t d;
        int found = 0;
        for (int i = 0; gw_topology_device(t, i, &d) == GW_OK; i++)
            if (d.kind == GW_DEVICE_NIC && strcmp(d.name, netifs[k].name) == 0) {
                found++;
                ck_assert_int_eq(d.loopback, netifs[k].loopback);
                ck_assert_int_eq(d.up, netifs[k].up);
            }
        ck_assert_msg(found == 1, "%s: %d times", netifs[k].name, found);
    }
    free(netifs);
    gw_topology_free(t);
}
END_TEST

/* One CPU is left, and not number 0: the totals stay, the share shrinks, the binding is not
 * touched. */
START_TEST(restricted_to_the_last_cpu)
{
    cpu_set_t all, one, after;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    int last = -1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all))
            last = i;
    if (last < 1) {
        gw_test_skip("restricted_to_the_last_cpu", "one CPU only");
        return;
    }
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    gw_topo_summary_t before, restricted;
    gw_topology_t *t = load();
    gw_topology_summary(t, &before);
    gw_topology_free(t);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    t = load();
    gw_topology_summary(t, &restricted);
    ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
    ck_assert(CPU_EQUAL(&one, &after));
    ck_assert_int_eq(restricted.cpus_allowed, 1);
    ck_assert_int_eq(atoi(restricted.allowed_cpuset), last);
    ck_assert_int_eq(restricted.cpus, before.cpus);
    ck_assert_int_eq(restricted.devices, before.devices);
    gw_node_facts_t facts;
    ck_assert_int_eq(gw_node_facts_collect(t, NULL, &facts, NULL, 0), GW_OK);
    ck_assert_int_eq(facts.cpus_allowed, 1);
    ck_assert_int_eq(gw_node_facts_collect(NULL, NULL, &facts, NULL, 0), GW_OK);
    ck_assert_int_eq(facts.cpus_allowed, 1);
    gw_topology_free(t);
}
END_TEST

/* Whether a mapped file of this process contains one of the words. */
static const char *mapped(const char *const *words)
{
    static char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    ck_assert_ptr_nonnull(maps);
    const char *found = NULL;
    while (!found && fgets(line, sizeof line, maps))
        for (int i = 0; !found && words[i]; i++)
            if (strstr(line, words[i]))
                found = strchr(line, '/');
    fclose(maps);
    return found;
}

static const char *const foreign[] = {
    "hwloc_",  "libOpenCL", "libX11",    "libGL",   "libxcb", "libxml2",      "libicu",
    "libcuda", "libcudart", "libnvidia", "librocm", "libze_", "libpciaccess", NULL};

START_TEST(no_driver_library_is_mapped)
{
    ck_assert_ptr_null(mapped(foreign));
    gw_topology_t *t = load();
    const char *found = mapped(foreign);
    ck_assert_msg(!found, "mapped: %s", found);
    gw_topology_free(t);
}
END_TEST

/* The same with the user's own list in the environment, which is kept and honoured. */
START_TEST(environment_is_as_before)
{
    ck_assert_int_eq(setenv("HWLOC_PLUGINS_BLACKLIST", "hwloc_other", 1), 0);
    char *before[1024];
    int count = 0, after = 0;
    while (environ[count]) {
        ck_assert_int_lt(count, 1024);
        before[count] = environ[count];
        count++;
    }
    gw_topology_t *t = load();
    ck_assert_str_eq(getenv("HWLOC_PLUGINS_BLACKLIST"), "hwloc_other");
    ck_assert_ptr_null(getenv("HWLOC_HIDE_ERRORS"));
    for (; environ[after]; after++) /* the user's list was put back as a copy */
        ck_assert(after < count && strcmp(environ[after], before[after]) == 0);
    ck_assert_int_eq(after, count);
    ck_assert_ptr_null(mapped(foreign));
    gw_topology_free(t);
}
END_TEST

/* Without our care hwloc does map them; otherwise the test above would prove nothing. */
START_TEST(plain_hwloc_maps_plugins)
{
    hwloc_topology_t hw;
    ck_assert_int_eq(hwloc_topology_init(&hw), 0);
    if (!mapped(foreign))
        gw_test_skip("plain_hwloc_maps_plugins", "hwloc has no plugins on this machine");
    hwloc_topology_destroy(hw);
}
END_TEST

static atomic_int stop_threads;

/* A thread of the application that reads variables all the time; their absence is counted. */
static void *read_environment(void *arg)
{
    long reads = 0;
    for (; !stop_threads; reads++)
        if (!getenv("GW_TEST_FIRST") || !getenv("GW_TEST_LAST"))
            ++*(int *)arg;
    return (void *)(intptr_t)reads;
}

START_TEST(readers_see_a_whole_environment)
{
    int missing = 0;
    void *reads;
    pthread_t thread;
    setenv("GW_TEST_FIRST", "1", 1);
    for (int i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof name, "GW_TEST_%d", i);
        setenv(name, "x", 1);
    }
    setenv("GW_TEST_LAST", "1", 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, read_environment, &missing), 0);
    for (int i = 0; i < 30; i++)
        gw_topology_free(load());
    stop_threads = 1;
    pthread_join(thread, &reads);
    ck_assert_int_eq(missing, 0);
    ck_assert_int_gt((long)(intptr_t)reads, 1000);
}
END_TEST

static void *load_in_thread(void *arg)
{
    gw_topology_t *t = NULL;
    if (gw_topology_load(NULL, &t, NULL, 0) == GW_OK)
        ++*(int *)arg;
    gw_topology_free(t);
    return NULL;
}

START_TEST(threads_load_at_the_same_time)
{
    pthread_t thread[4];
    int done[4] = {0};
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, load_in_thread, &done[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        ck_assert_int_eq(done[i], 1);
    }
}
END_TEST

/* Discovery adds less than 50 ms to a start; the best of five, because the machine is shared. */
START_TEST(reading_is_quick)
{
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double start = now_ms();
        gw_topology_t *t = load();
        double took = now_ms() - start;
        best = took < best ? took : best;
        gw_topology_free(t);
    }
    printf("# the map of this machine took %.1f ms\n", best);
    ck_assert_msg(best < 50, "%.1f ms", best);
}
END_TEST

/* Sends stdout and stderr into a file; its size tells whether anything was said. */
static int capture(int saved[2])
{
    char path[] = "/tmp/gw-quiet-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        saved[i] = dup(i + 1);
        dup2(fd, i + 1);
    }
    return fd;
}

static off_t release(int fd, int saved[2])
{
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        dup2(saved[i], i + 1);
        close(saved[i]);
    }
    off_t size = lseek(fd, 0, SEEK_END);
    close(fd);
    return size;
}

/* The live system, also for a user without rights, a contradictory file and a broken one. */
START_TEST(nothing_is_printed)
{
    const char *source = getenv("GW_SOURCE");
    static const char *const files[] = {"vm-inconsistent", "truncated", "two-sockets"};
    int saved[2], fd = capture(saved);
    gw_topology_t *t = NULL;
    gw_status_t status[5];
    for (int i = 0; i < 3; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/tests/topologies/%s.xml", source ? source : ".", files[i]);
        t = NULL;
        status[i] = gw_topology_load(path, &t, NULL, 0);
        gw_topology_free(t);
    }
    status[3] = gw_topology_load(NULL, &t, NULL, 0);
    gw_topology_free(t);
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
        status[3] = GW_ERR_INTERNAL;
    status[4] = gw_topology_load(NULL, &t, NULL, 0);
    gw_topology_free(t);
    ck_assert_int_eq(release(fd, saved), 0);
    ck_assert_int_eq(status[0], GW_OK);
    ck_assert_int_eq(status[1], GW_ERR_INVALID);
    ck_assert_int_eq(status[2], GW_OK);
    ck_assert_int_eq(status[3], GW_OK);
    ck_assert_int_eq(status[4], GW_OK);
}
END_TEST

START_TEST(own_file_by_hwlocs_variable)
{
    char path[512], expected[600];
    const char *source = getenv("GW_SOURCE");
    gw_topo_summary_t s;
    gw_topology_t *t;
    char why[512];
    snprintf(path, sizeof path, "%s/tests/topologies/gpu-far.xml", source ? source : ".");
    setenv("HWLOC_XMLFILE", path, 1);
    t = load();
    gw_topology_summary(t, &s);
    snprintf(expected, sizeof expected, "this machine as %s describes it", path);
    ck_assert_str_eq(s.source, expected);
    ck_assert_int_eq(s.cpus, 4);
    gw_topo_device_t d;
    int loopback = 0;
    for (int i = 0; gw_topology_device(t, i, &d) == GW_OK; i++)
        loopback += d.loopback;
    ck_assert_int_ge(loopback, 1); /* the interfaces are the living ones */
    gw_topology_free(t);
    setenv("HWLOC_XMLFILE", "/nowhere.xml", 1);
    ck_assert_int_eq(gw_topology_load(NULL, &t, why, sizeof why), GW_ERR_IO);
    ck_assert_ptr_nonnull(strstr(why, "/nowhere.xml"));
}
END_TEST

START_TEST(facts_of_this_process)
{
    gw_node_facts_t a, b;
    char name[16], why[512] = "", host[64] = "";
    gw_topology_t *t = load();
    ck_assert_msg(gw_node_facts_collect(t, NULL, &a, why, sizeof why) == GW_OK, "%s", why);
    ck_assert_int_eq(gw_node_facts_collect(NULL, "", &b, why, sizeof why), GW_OK);
    ck_assert(a.node_id == b.node_id);
    ck_assert_int_eq(gw__facts_check(&a, 0, why, sizeof why), GW_OK);
    gethostname(host, sizeof host - 1);
    ck_assert_str_eq(a.host, host);
    ck_assert_int_eq(gw_node_choose_iface(&a, 1, 0, name, sizeof name, why, sizeof why), GW_OK);
    ck_assert_str_eq(name, "lo");
    ck_assert_int_eq(gw_node_facts_collect(t, "gw-none", &b, why, sizeof why), GW_ERR_NO_DEVICE);
    ck_assert_ptr_nonnull(strstr(why, "lo ("));
    ck_assert_int_eq(gw_node_facts_collect(t, "1.2.3.4/99", &b, why, sizeof why),
                     GW_ERR_BAD_SETTING);
    gw_topology_free(t);
}
END_TEST

/* ---- In a network namespace of its own, where the test may build what it likes ---- */

static bool run(const char *command)
{
    return system(command) == 0;
}

static const gw_node_iface_t *iface_of(const gw_node_facts_t *facts, const char *name)
{
    for (int i = 0; i < facts->iface_count; i++)
        if (strcmp(facts->iface[i].name, name) == 0)
            return &facts->iface[i];
    return NULL;
}

static void check_namespace(void)
{
    gw_node_facts_t facts;
    gw_topo_device_t d;
    gw_topology_t *t = load();
    ck_assert_int_eq(gw_node_facts_collect(t, NULL, &facts, NULL, 0), GW_OK);
    ck_assert_ptr_nonnull(iface_of(&facts, "lo"));
    ck_assert_int_eq(iface_of(&facts, "gwv0")->flags, GW_IFACE_DEFAULT_ROUTE | GW_IFACE_GATEWAY);
    ck_assert_int_eq(iface_of(&facts, "gwbr")->flags, GW_IFACE_BRIDGE);
    ck_assert_int_eq(iface_of(&facts, "gwv1")->flags, GW_IFACE_LINK_LOCAL);
    int seen = 0;
    for (int i = 0; gw_topology_device(t, i, &d) == GW_OK; i++) {
        if (strcmp(d.name, "gwv0") == 0) {
            seen++;
            ck_assert(d.up && d.virtual_link && !d.bridge && !d.loopback);
            ck_assert_int_eq(d.numa, GW_NUMA_UNKNOWN);
            ck_assert_str_eq(d.pci, "");
            ck_assert_str_eq(d.address, "10.77.0.1/24");
            ck_assert(d.speed_mbit == 10000); /* what the driver says of a veth */
            ck_assert_int_eq(gw_topology_distance(t, i, NULL), 3);
        }
        if (strcmp(d.name, "gwbr") == 0)
            seen += d.bridge;
    }
    ck_assert_int_eq(seen, 2);
    gw_topology_free(t);
    /* the bridge that carries the default route is the machine's own way out */
    ck_assert(run("ip route replace default via 172.31.0.9 dev gwbr"));
    ck_assert_int_eq(gw_node_facts_collect(NULL, NULL, &facts, NULL, 0), GW_OK);
    ck_assert_int_eq(iface_of(&facts, "gwbr")->flags, GW_IFACE_DEFAULT_ROUTE | GW_IFACE_GATEWAY);
}

START_TEST(network_namespace)
{
    gw_node_facts_t outside, inside;
    ck_assert_int_eq(gw_node_facts_collect(NULL, NULL, &outside, NULL, 0), GW_OK);
    if (!run("command -v ip >/dev/null") || unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("sysfs", "/sys", "sysfs", 0, NULL) != 0 ||
        !run("ip link set lo up && ip link add gwv0 type veth peer name gwv1 2>/dev/null")) {
        gw_test_skip("network_namespace", "needs root, iproute2 and network namespaces");
        return;
    }
    ck_assert_int_eq(gw_node_facts_collect(NULL, NULL, &inside, NULL, 0), GW_OK);
    ck_assert(inside.node_id != outside.node_id); /* the same boot, the same host name */
    ck_assert(unshare(CLONE_NEWUTS) == 0);
    uint64_t id = inside.node_id;
    ck_assert_int_eq(gw_node_facts_collect(NULL, NULL, &inside, NULL, 0), GW_OK);
    ck_assert(inside.node_id != id);
    ck_assert(run("ip link add gwbr type bridge && ip link add gwp type veth peer name gwq && "
                  "ip link set gwq up && ip link set gwp master gwbr up && ip addr add "
                  "172.31.0.1/16 dev gwbr && "
                  "ip link set gwbr up && ip link set gwv1 addrgenmode none && "
                  "ip link set gwv0 addrgenmode none && ip link set gwbr addrgenmode none && "
                  "ip addr add 10.77.0.1/24 dev gwv0 && ip link set gwv0 up && "
                  "ip addr add 169.254.9.9/16 dev gwv1 && ip link set gwv1 up && "
                  "ip route add default via 10.77.0.9"));
    check_namespace();
}
END_TEST

/* ---- The parsers of what the kernel writes ---- */

START_TEST(route_tables)
{
    gw__netif_t n[3] = {{.name = "eth0"}, {.name = "eth1"}, {.name = "eth2"}};
    gw__netif_read_routes4("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n"
                           "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0 \n"
                           "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0 \n"
                           "eth1\t0000000A\t0102000A\t0003\t0\t0\t0\t000000FF\t0\t0\t0 \n"
                           "eth2\t00000000\t010200C0\t0203\t0\t0\t0\t00000000\t0\t0\t0 \n"
                           "garbage\n\n",
                           n, 3);
    ck_assert(n[0].default4 && n[0].gateway4);
    ck_assert(!n[1].default4 && n[1].gateway4);
    ck_assert(!n[2].default4 && !n[2].gateway4); /* a route that rejects */
    const char *zero = "00000000000000000000000000000000";
    char text[1024];
    snprintf(text, sizeof text,
             "%s 00 %s 00 fd000000000000000000000000000001 00000400 00000001 00000000 00000003  "
             "eth1\n"
             "fd000000000000000000000000000000 40 %s 00 %s 00000100 00000001 00000000 00000001  "
             "eth0\n"
             "%s 00 %s 00 %s ffffffff 00000001 00000000 00200200       lo\n",
             zero, zero, zero, zero, zero, zero, zero);
    gw__netif_read_routes6(text, n, 3);
    ck_assert(n[1].default6 && n[1].gateway6 && !n[0].default6 && !n[0].gateway6);
}
END_TEST

static void make(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *c = full + 1; *c; c++)
        if (*c == '/') {
            *c = '\0';
            mkdir(full, 0755);
            *c = '/';
        }
    FILE *file = fopen(full, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static gw__netif_t read_sysfs(const char *root, const char *name)
{
    gw__netif_t n = {0};
    snprintf(n.name, sizeof n.name, "%s", name);
    gw__netif_read_sysfs(root, &n);
    return n;
}

/* A sysfs made of files: cards, bridges with and without a card, a bond below a bridge. */
START_TEST(sysfs_of_interfaces)
{
    char root[] = "/tmp/gw-sysfs-XXXXXX", command[128];
    ck_assert_ptr_nonnull(mkdtemp(root));
    make(root, "eth0/speed", "25000\n");
    make(root, "eth0/device/vendor", "");
    make(root, "ib0/type", "32\n");
    make(root, "ib0/device/vendor", "");
    make(root, "eth1/speed", "-1\n");
    make(root, "eth1/device/infiniband/mlx5_0", "");
    make(root, "docker0/bridge/stp_state", "");
    make(root, "docker0/lower_veth1/x", "");
    make(root, "veth1/speed", "10000\n");
    make(root, "br0/bridge/stp_state", "");
    make(root, "br0/lower_bond0/x", "");
    make(root, "bond0/lower_eth0/x", "");
    make(root, "loop0/bridge/x", "");
    make(root, "loop0/lower_loop0/x", "");
    gw__netif_t n = read_sysfs(root, "eth0");
    ck_assert(n.speed_mbit == 25000 && !n.virtual_link && !n.bridge && !n.infiniband);
    n = read_sysfs(root, "ib0");
    ck_assert(n.infiniband && !n.virtual_link);
    n = read_sysfs(root, "eth1");
    ck_assert(n.infiniband && n.speed_mbit == 0);
    n = read_sysfs(root, "veth1");
    ck_assert(n.virtual_link && n.speed_mbit == 10000);
    n = read_sysfs(root, "docker0");
    ck_assert(n.bridge && n.virtual_link);
    n = read_sysfs(root, "br0"); /* the host's own bridge has a card in it */
    ck_assert(!n.bridge && n.virtual_link);
    n = read_sysfs(root, "loop0");
    ck_assert(n.bridge);
    n = read_sysfs(root, "virbr0"); /* not in this sysfs: judged by its name */
    ck_assert(n.bridge);
    n = read_sysfs(root, "ens1");
    ck_assert(!n.bridge);
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert(run(command));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topology_live");
    TCase *live = tcase_create("live");
    tcase_set_timeout(live, 60);
    tcase_add_test(live, counts_agree_with_the_system);
    tcase_add_test(live, interfaces_are_all_there);
    tcase_add_test(live, restricted_to_the_last_cpu);
    tcase_add_test(live, no_driver_library_is_mapped);
    tcase_add_test(live, environment_is_as_before);
    tcase_add_test(live, plain_hwloc_maps_plugins);
    tcase_add_test(live, readers_see_a_whole_environment);
    tcase_add_test(live, threads_load_at_the_same_time);
    tcase_add_test(live, reading_is_quick);
    tcase_add_test(live, nothing_is_printed);
    tcase_add_test(live, own_file_by_hwlocs_variable);
    tcase_add_test(live, facts_of_this_process);
    tcase_add_test(live, network_namespace);
    tcase_add_test(live, route_tables);
    tcase_add_test(live, sysfs_of_interfaces);
    suite_add_tcase(suite, live);
    return gw_test_main(suite);
}
