/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hardware map of recorded machines. Each tests/topologies/NAME.test says what NAME.xml must
 * give; the file lies beside it or in ../shared/topologies. Lines: `machine`, `numa`, `nic`, `gpu`
 * as render() writes them, `distance DEVICE CPUS N`, or `refused STATUS TEXT` for a file that must
 * not be taken.
 */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include <gradwire/topology.h>

#include "gw_test.h"

enum { MAX_TESTS = 128 };
static char names[MAX_TESTS][64];
static int name_count;

static const char *source_dir(void)
{
    const char *dir = getenv("GW_SOURCE");
    return dir ? dir : ".";
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void list_tests(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/topologies", source_dir());
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *dot = strrchr(e->d_name, '.');
        if (dot && strcmp(dot, ".test") == 0 && name_count < MAX_TESTS)
            snprintf(names[name_count++], sizeof names[0], "%.*s", (int)(dot - e->d_name),
                     e->d_name);
    }
    if (dir)
        closedir(dir);
    qsort(names, (size_t)name_count, sizeof names[0], by_name);
}

static bool find_xml(const char *name, char *out, size_t size)
{
    static const char *const places[] = {"tests/topologies", "../shared/topologies"};
    for (int i = 0; i < 2; i++) {
        snprintf(out, size, "%s/%s/%s.xml", source_dir(), places[i], name);
        if (access(out, R_OK) == 0)
            return true;
    }
    return false;
}

static void add_devices(const gw_topology_t *t, gw_device_kind_t kind, const char *word, char *out,
                        size_t size)
{
    gw_topo_device_t d;
    size_t len = strlen(out), start = len;
    for (int i = 0; gw_topology_device(t, i, &d) == GW_OK; i++)
        if (d.kind == kind)
            len += (size_t)snprintf(out + len, size - len, "%s %s,%s,%d,%d%s",
                                    len == start ? word : "", d.name, d.pci[0] ? d.pci : "-",
                                    d.numa, d.package, d.infiniband ? ",rdma" : "");
    if (len > start)
        snprintf(out + len, size - len, "\n");
}

/* The whole map as lines of text, so that a difference shows as a diff. */
static void render(const gw_topology_t *t, char *out, size_t size)
{
    gw_topo_summary_t s;
    gw_topo_numa_t n;
    gw_topology_summary(t, &s);
    size_t len = (size_t)snprintf(out, size,
                                  "machine packages=%d numa=%d cores=%d cpus=%d allowed=%s(%d) "
                                  "io=%d distances=%s\nnuma",
                                  s.packages, s.numa_nodes, s.cores, s.cpus, s.allowed_cpuset,
                                  s.cpus_allowed, s.io_visible, s.distances);
    for (int i = 0; gw_topology_numa(t, i, &n) == GW_OK; i++)
        len += (size_t)snprintf(out + len, size - len, " %d:package=%d:cpus=%s(%d):%lluM",
                                n.os_index, n.package, n.cpuset, n.cpus_allowed,
                                (unsigned long long)(n.memory_bytes >> 20));
    snprintf(out + len, size - len, "\n");
    add_devices(t, GW_DEVICE_NIC, "nic", out, size);
    add_devices(t, GW_DEVICE_GPU, "gpu", out, size);
}

static int device_by_name(const gw_topology_t *t, const char *name)
{
    gw_topo_device_t d;
    for (int i = 0; gw_topology_device(t, i, &d) == GW_OK; i++)
        if (strcmp(d.name, name) == 0)
            return i;
    return -1;
}

static void check_distance(const gw_topology_t *t, const char *line)
{
    char name[64], cpus[128];
    int expected;
    ck_assert_int_eq(sscanf(line, "distance %63s %127s %d", name, cpus, &expected), 3);
    int device = device_by_name(t, name);
    ck_assert_msg(device >= 0, "no device %s", name);
    int got = gw_topology_distance(t, device, strcmp(cpus, "-") == 0 ? NULL : cpus);
    ck_assert_msg(got == expected, "%s: got %d", line, got);
}

static void check_refusal(const char *xml, const char *line)
{
    char status_name[64], text[256], why[512] = "";
    ck_assert_int_eq(sscanf(line, "refused %63s %255[^\n]", status_name, text), 2);
    gw_topology_t *t = NULL;
    gw_status_t status = gw_topology_load(xml, &t, why, sizeof why);
    ck_assert_ptr_null(t);
    ck_assert_str_eq(gw_status_name(status), status_name);
    ck_assert_msg(strstr(why, text) != NULL, "%s is not in \"%s\"", text, why);
    ck_assert_msg(strstr(why, xml) != NULL, "the file is not named in \"%s\"", why);
}

START_TEST(recorded_machine)
{
    const char *name = names[_i];
    char xml[512], path[512], line[4096], why[512] = "";
    static char expected[16384], got[16384];
    if (!find_xml(name, xml, sizeof xml)) {
        gw_test_skip(name, "the recorded machine is not in ../shared/topologies");
        return;
    }
    snprintf(path, sizeof path, "%s/tests/topologies/%s.test", source_dir(), name);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    gw_topology_t *t = NULL;
    int lines = 0;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        lines++;
        if (strncmp(line, "refused ", 8) == 0) {
            check_refusal(xml, line);
            continue;
        }
        if (!t) {
            gw_status_t status = gw_topology_load(xml, &t, why, sizeof why);
            ck_assert_msg(status == GW_OK, "%s: %s", name, why);
        }
        if (strncmp(line, "distance ", 9) == 0)
            check_distance(t, line);
        else
            strcat(expected, line);
    }
    fclose(file);
    ck_assert_msg(lines > 0, "%s expects nothing", path);
    if (t) {
        render(t, got, sizeof got);
        ck_assert_msg(strcmp(got, expected) == 0, "%s\nexpected:\n%sgot:\n%s", name, expected, got);
        gw_topology_free(t);
    }
}
END_TEST

/* ---- Damaged files, made from a good one ---- */

static char *read_good(size_t *size)
{
    char path[512];
    ck_assert(find_xml("two-sockets", path, sizeof path));
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 65536);
    ck_assert(file && text);
    *size = fread(text, 1, 65535, file);
    fclose(file);
    return text;
}

/* Loads text as a file; "" in `why` on success. */
static gw_status_t load_text(const char *text, size_t size, char *why, size_t why_size)
{
    char path[] = "/tmp/gw-topology-XXXXXX";
    int fd = mkstemp(path);
    ck_assert(fd >= 0);
    ck_assert(write(fd, text, size) == (ssize_t)size);
    close(fd);
    gw_topology_t *t = NULL;
    why[0] = '\0';
    gw_status_t status = gw_topology_load(path, &t, why, why_size);
    unlink(path);
    ck_assert((status == GW_OK) == (t != NULL));
    ck_assert_msg(status == GW_OK || strstr(why, path), "no file in \"%s\"", why);
    gw_topology_free(t);
    return status;
}

START_TEST(every_truncation_is_refused)
{
    size_t size;
    char *text = read_good(&size), why[512];
    while (text[size - 1] == '\n')
        size--;
    for (size_t n = 0; n < size; n++)
        ck_assert_msg(load_text(text, n, why, sizeof why) == GW_ERR_INVALID, "%zu bytes", n);
    ck_assert_int_eq(load_text(text, size, why, sizeof why), GW_OK);
    free(text);
}
END_TEST

/* One damaged byte either gives a map or a reason; it never stops the process. */
START_TEST(damaged_bytes_do_not_crash)
{
    size_t size;
    char *good = read_good(&size), why[512];
    char *text = malloc(size);
    uint64_t seed = 7;
    int refused = 0;
    for (int round = 0; round < 1500; round++) {
        memcpy(text, good, size);
        for (uint64_t n = 1 + gw_test_random(&seed) % 3; n > 0; n--) {
            static const char bytes[] = "0123456789abcdef<>\"'&=/-,. xPC\n\x80\xff";
            text[gw_test_random(&seed) % size] = bytes[gw_test_random(&seed) % (sizeof bytes - 1)];
        }
        refused += load_text(text, size, why, sizeof why) != GW_OK;
    }
    ck_assert_int_gt(refused, 300);
    ck_assert_int_lt(refused, 1500);
    free(text);
    free(good);
}
END_TEST

/* Replaces the first `from` by `to`. */
static const struct damage {
    const char *from, *to, *reason; /* reason NULL: still a map */
} damages[] = {
    {"type=\"Core\"", "type=\"Chore\"", "unknown type"},
    {"type=\"Core\"", "type=\"Machine\"", "cannot hold one"},
    {"type=\"Core\"", "type=\"PU\"", "inside of a PU"},
    {"type=\"Core\"", "kind=\"1\"", "without a type"},
    {"type=\"NUMANode\" os_index=\"1\"", "type=\"NUMANode\" os_index=\"0\"", "same os_index"},
    {"type=\"NUMANode\" os_index=\"1\"", "type=\"NUMANode\"", "without os_index"},
    {"type=\"NUMANode\" os_index=\"1\"", "type=\"NUMANode\" os_index=\"-1\"",
     "impossible os_index"},
    {"pci_busid=\"0000:11:00.0\"", "pci_busid=\"zz\"", "PCI address"},
    {"pci_type=\"0200 ", "pci_type=\"", "PCI class"},
    {"bridge_type=\"0-1\"", "bridge_type=\"7-9\"", "bridge"},
    {"bridge_pci=\"", "other=\"", "range of buses"},
    {"osdev_type=\"2\"", "osdev_type=\"99\"", "OS device"},
    {"allowed_cpuset=\"0x", "allowed_cpuset=\"0q", "not a set"},
    {"allowed_cpuset=\"0x", "allowed_cpuset=\",0x", "not a set"}, /* hwloc asserts */
    {"allowed_cpuset=\"0x", "allowed_cpuset=\"0xf...f0x", "not a set"},
    {"version=\"2.0\"", "version=\"3.0\"", "version"},
    {"hwloc2.dtd\"", "hwloc2.dtd\" [<!ENTITY a \"b\">]", "definitions"},
    {"</topology>", "</topology><topology>", "more than one root"},
    {"</topology>", "text</topology>", NULL},
    {"</topology>", "<distances2 type=\"NUMANode\" nbobjs=\"2\"/></topology>", "distances"},
    {"</topology>", "<distances2 type=\"NUMANode\" nbobjs=\"99999999\"/></topology>", "distances"},
    {"gp_index=\"1\"", "gp_index=\"1\" gp_index=\"2\"", "given twice"},
    {"gp_index=\"1\"", "gp_index=\"1\" name=\"&unknown;\"", "entity"},
    {"gp_index=\"1\"", "gp_index=\"1\" name=\"&lt;&#10;&quot;\"", NULL},
    {"gp_index=\"1\"", "gp_index=1", "quoted"},
    {"<?xml", "<!-- recorded --><?xml", NULL},
    {"os_index=\"0\" cpuset=\"0x0000000f\"", "cpuset=\"0xf...f\"", NULL},
    {"local_memory=\"", "local_memory=\"99999999999999999999999", NULL},
};

START_TEST(damage_has_its_reason)
{
    const struct damage *d = &damages[_i];
    size_t size;
    char *good = read_good(&size), why[512], text[16384];
    char *at = strstr(good, d->from);
    ck_assert_ptr_nonnull(at);
    int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, d->to,
                     at + strlen(d->from));
    gw_status_t status = load_text(text, (size_t)n, why, sizeof why);
    if (d->reason) {
        ck_assert_int_eq(status, GW_ERR_INVALID);
        ck_assert_msg(strstr(why, d->reason) != NULL, "\"%s\" is not in \"%s\"", d->reason, why);
    } else {
        ck_assert_msg(status == GW_OK, "%s", why);
    }
    free(good);
}
END_TEST

START_TEST(deep_nesting_is_refused)
{
    static char text[65536];
    char why[512];
    size_t len = (size_t)snprintf(text, sizeof text, "<topology version=\"2.0\">");
    for (int i = 0; i < 1000; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "<object type=\"Group\">");
    ck_assert_int_eq(load_text(text, len, why, sizeof why), GW_ERR_INVALID);
    ck_assert_msg(strstr(why, "too deeply") != NULL, "%s", why);
}
END_TEST

START_TEST(missing_files_and_arguments)
{
    gw_topology_t *t = NULL;
    char why[256];
    ck_assert_int_eq(gw_topology_load("/nowhere/at/all.xml", &t, why, sizeof why), GW_ERR_IO);
    ck_assert_str_eq(why, "/nowhere/at/all.xml: No such file or directory");
    ck_assert_int_eq(gw_topology_load("/tmp", &t, why, sizeof why), GW_ERR_IO);
    ck_assert_int_eq(gw_topology_load("/nowhere", &t, NULL, 0), GW_ERR_IO);
    ck_assert_int_eq(gw_topology_load(NULL, NULL, why, sizeof why), GW_ERR_INVALID);
    ck_assert_ptr_null(t);
    gw_topology_free(NULL);
    ck_assert_int_eq(gw_topology_distance(NULL, 0, NULL), 3);
}
END_TEST

/* Indices behind the end and sets that are none are answers, not crashes. */
START_TEST(questions_out_of_range)
{
    char xml[512];
    gw_topology_t *t;
    gw_topo_numa_t n;
    gw_topo_device_t d;
    ck_assert(find_xml("two-sockets", xml, sizeof xml));
    ck_assert_int_eq(gw_topology_load(xml, &t, NULL, 0), GW_OK);
    ck_assert_int_eq(gw_topology_numa(t, 2, &n), GW_ERR_NOT_FOUND);
    ck_assert_int_eq(gw_topology_numa(t, -1, &n), GW_ERR_NOT_FOUND);
    ck_assert_int_eq(gw_topology_device(t, 1, &d), GW_ERR_NOT_FOUND);
    ck_assert_int_eq(gw_topology_device(t, -1, &d), GW_ERR_NOT_FOUND);
    ck_assert_int_eq(gw_topology_distance(t, 0, "not a set"), 3);
    ck_assert_int_eq(gw_topology_distance(t, 0, ""), 3);
    ck_assert_int_eq(gw_topology_distance(t, 9, "0"), 3);
    gw_topology_free(t);
}
END_TEST

int main(void)
{
    list_tests();
    Suite *suite = suite_create("topology");
    TCase *files = tcase_create("files");
    tcase_set_timeout(files, 60);
    tcase_add_loop_test(files, recorded_machine, 0, name_count);
    tcase_add_test(files, every_truncation_is_refused);
    tcase_add_test(files, damaged_bytes_do_not_crash);
    tcase_add_loop_test(files, damage_has_its_reason, 0, sizeof damages / sizeof damages[0]);
    tcase_add_test(files, deep_nesting_is_refused);
    tcase_add_test(files, missing_files_and_arguments);
    tcase_add_test(files, questions_out_of_range);
    suite_add_tcase(suite, files);
    if (name_count < 10) {
        printf("not ok - topology: only %d machines in tests/topologies\n", name_count);
        return EXIT_FAILURE;
    }
    return gw_test_main(suite);
}
