/* SPDX-License-Identifier: Apache-2.0 */
/* `gradwire topo`: the hardware map, and what this process would use of it. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* What both formats print. */
typedef struct page {
    FILE *out;
    gw_topology_t *topology;
    gw_topo_summary_t summary;
    bool live;             /* of this machine: there is a process to speak of */
    gw_node_facts_t facts; /* valid when live and why is empty */
    char why[512];
} page_t;

static const char *const distance_text[] = {"same NUMA node", "same package", "another package",
                                            "unknown locality"};

static const struct {
    uint8_t flag;
    const char *text;
} iface_flags[] = {
    {GW_IFACE_LOOPBACK, "loopback"},     {GW_IFACE_BRIDGE, "bridge"},
    {GW_IFACE_LINK_LOCAL, "link-local"}, {GW_IFACE_INFINIBAND, "infiniband"},
    {GW_IFACE_DEFAULT_ROUTE, "default"}, {GW_IFACE_GATEWAY, "gateway"},
    {GW_IFACE_NAMED, "named"},
};
enum { IFACE_FLAGS = sizeof iface_flags / sizeof iface_flags[0] };

static void iface_address(const gw_node_iface_t *iface, char *out, size_t size)
{
    char text[INET6_ADDRSTRLEN];
    inet_ntop(iface->family == 4 ? AF_INET : AF_INET6, iface->addr, text, sizeof text);
    snprintf(out, size, "%s/%u", text, iface->prefix);
}

/* Whether an interface can serve between nodes at all. */
static bool leads_out(const gw_node_iface_t *iface)
{
    return !(iface->flags & (GW_IFACE_LOOPBACK | GW_IFACE_BRIDGE | GW_IFACE_LINK_LOCAL));
}

/* ---- Text ---- */

static void print_speed(double mbit, char *out, size_t size)
{
    if (mbit <= 0)
        snprintf(out, size, "unknown");
    else if (mbit < 1000)
        snprintf(out, size, "%g Mbit/s", mbit);
    else
        snprintf(out, size, "%g Gbit/s", mbit / 1000);
}

static void print_memory(uint64_t bytes, char *out, size_t size)
{
    if (bytes == 0)
        snprintf(out, size, "memory unknown");
    else
        snprintf(out, size, "%.1f GiB", (double)bytes / (1024.0 * 1024.0 * 1024.0));
}

/* The devices of one kind that are nearest to a NUMA node, as "eth0 mlx5_0". */
static void print_near(const page_t *page, int numa, gw_device_kind_t kind)
{
    gw_topo_device_t d;
    int n = 0;
    for (int i = 0; gw_topology_device(page->topology, i, &d) == GW_OK; i++)
        if (d.kind == kind && d.numa == numa)
            fprintf(page->out, "%s%s", n++ ? " " : "", d.name);
    if (n == 0)
        fputs("none", page->out);
}

static void text_numa(const page_t *page)
{
    gw_topo_numa_t n;
    fputs("\nNUMA nodes\n", page->out);
    for (int i = 0; gw_topology_numa(page->topology, i, &n) == GW_OK; i++) {
        char memory[32], package[32] = "several packages";
        print_memory(n.memory_bytes, memory, sizeof memory);
        if (n.package >= 0)
            snprintf(package, sizeof package, "package %d", n.package);
        fprintf(page->out, "  %-3d %s, %s, CPUs %s (%d to use)\n", n.os_index, package, memory,
                n.cpuset[0] ? n.cpuset : "none", n.cpus_allowed);
        fputs("      NICs near it: ", page->out);
        print_near(page, n.os_index, GW_DEVICE_NIC);
        fputs("\n      GPUs near it: ", page->out);
        print_near(page, n.os_index, GW_DEVICE_GPU);
        fputc('\n', page->out);
    }
}

static void print_state(const page_t *page, const gw_topo_device_t *d, char *out, size_t size)
{
    const char *link = d->up ? "up" : "down";
    if (!page->live)
        link = "recorded";
    else if (strcmp(d->name, d->pci) == 0)
        link = "no interface here"; /* no driver, or it belongs to another network namespace */
    snprintf(out, size, "%s%s%s%s%s", link, d->loopback ? ", loopback" : "",
             d->bridge ? ", bridge" : "",
             d->virtual_link && !d->loopback && !d->bridge ? ", virtual" : "",
             d->infiniband ? ", InfiniBand" : "");
}

static void text_nic(const page_t *page, const gw_topo_device_t *d)
{
    char speed[32], state[96];
    print_speed(d->speed_mbit, speed, sizeof speed);
    print_state(page, d, state, sizeof state);
    fprintf(page->out, "%-11s %-22s %s\n", speed, d->address[0] ? d->address : "-", state);
}

static void text_devices(const page_t *page, gw_device_kind_t kind, const char *heading)
{
    bool nics = kind == GW_DEVICE_NIC;
    gw_topo_device_t d;
    int n = 0;
    fprintf(page->out, "\n%s\n", heading);
    for (int i = 0; gw_topology_device(page->topology, i, &d) == GW_OK; i++) {
        if (d.kind != kind)
            continue;
        char numa[16] = "-";
        const char *distance = distance_text[gw_topology_distance(page->topology, i, NULL)];
        if (d.numa >= 0)
            snprintf(numa, sizeof numa, "%d", d.numa);
        if (n++ == 0)
            fprintf(page->out, "  %-16s %-13s %-5s %s\n", "name", "PCI", "NUMA",
                    nics ? "distance          speed       address                state"
                         : "distance");
        fprintf(page->out, "  %-16s %-13s %-5s ", d.name, d.pci[0] ? d.pci : "-", numa);
        fprintf(page->out, nics ? "%-17s " : "%s\n", distance);
        if (nics)
            text_nic(page, &d);
    }
    if (n == 0)
        fputs("  none\n", page->out);
}

static void text_iface(const page_t *page, const gw_node_iface_t *iface)
{
    char address[64], speed[32];
    iface_address(iface, address, sizeof address);
    print_speed(iface->speed_mbit, speed, sizeof speed);
    fprintf(page->out, "    %-15s %-22s speed %s, %s", iface->name, address, speed,
            distance_text[iface->distance & 3]);
    if (iface->flags & GW_IFACE_DEFAULT_ROUTE)
        fputs(", default route", page->out);
    fputc('\n', page->out);
}

static void text_process(const page_t *page)
{
    fputs("\nThis process\n", page->out);
    if (page->why[0]) {
        fprintf(page->out, "  %s\n", page->why);
        return;
    }
    int n = 0;
    fprintf(page->out, "  node %016llx (%s): ranks with the same number are on one node\n",
            (unsigned long long)page->facts.node_id, page->facts.host);
    fprintf(page->out, "  CPUs to use: %u (%s)\n", page->facts.cpus_allowed,
            page->summary.allowed_cpuset);
    fputs("  ways to other nodes:\n", page->out);
    for (int i = 0; i < page->facts.iface_count; i++)
        if (leads_out(&page->facts.iface[i])) {
            text_iface(page, &page->facts.iface[i]);
            n++;
        }
    if (n == 0)
        fputs("    none; ranks on other nodes cannot be reached from here\n", page->out);
}

static void print_text(const page_t *page)
{
    const gw_topo_summary_t *s = &page->summary;
    fprintf(page->out, "%s\n  packages %d, NUMA nodes %d, cores %d, CPUs %d, to use %d (%s)\n",
            s->source, s->packages, s->numa_nodes, s->cores, s->cpus, s->cpus_allowed,
            s->allowed_cpuset);
    fprintf(page->out, "  PCI %s; distances between GPUs: %s\n",
            s->io_visible ? "visible" : "not visible: locality of devices may be unknown",
            s->distances);
    text_numa(page);
    text_devices(page, GW_DEVICE_NIC, "Network interfaces");
    text_devices(page, GW_DEVICE_GPU, "GPUs");
    fputs(page->live ? "\nDistances are those from the CPUs this process may use.\n"
                     : "\nDistances are those from the CPUs allowed in the file.\n",
          page->out);
    if (page->live)
        text_process(page);
}

/* ---- JSON ---- */

static void json_text(const page_t *page, const char *key, const char *value)
{
    fprintf(page->out, "\"%s\": ", key);
    gw_json_string(page->out, value);
}

static const char *json_bool(bool value)
{
    return value ? "true" : "false";
}

static void json_near(const page_t *page, const char *key, int numa, gw_device_kind_t kind)
{
    gw_topo_device_t d;
    int n = 0;
    fprintf(page->out, ", \"%s\": [", key);
    for (int i = 0; gw_topology_device(page->topology, i, &d) == GW_OK; i++)
        if (d.kind == kind && d.numa == numa) {
            fputs(n++ ? ", " : "", page->out);
            gw_json_string(page->out, d.name);
        }
    fputc(']', page->out);
}

static void json_numa(const page_t *page)
{
    gw_topo_numa_t n;
    fputs(", \"numa\": [", page->out);
    for (int i = 0; gw_topology_numa(page->topology, i, &n) == GW_OK; i++) {
        fprintf(page->out,
                "%s{\"os_index\": %d, \"package\": %d, \"memory_bytes\": %llu, "
                "\"cpus_allowed\": %d, ",
                i ? ", " : "", n.os_index, n.package, (unsigned long long)n.memory_bytes,
                n.cpus_allowed);
        json_text(page, "cpuset", n.cpuset);
        json_near(page, "near_nics", n.os_index, GW_DEVICE_NIC);
        json_near(page, "near_gpus", n.os_index, GW_DEVICE_GPU);
        fputc('}', page->out);
    }
    fputc(']', page->out);
}

static void json_devices(const page_t *page)
{
    gw_topo_device_t d;
    fputs(", \"devices\": [", page->out);
    for (int i = 0; gw_topology_device(page->topology, i, &d) == GW_OK; i++) {
        fprintf(page->out, "%s{\"kind\": \"%s\", ", i ? ", " : "",
                d.kind == GW_DEVICE_NIC ? "nic" : "gpu");
        json_text(page, "name", d.name);
        fputs(", ", page->out);
        json_text(page, "pci", d.pci);
        fprintf(page->out,
                ", \"numa\": %d, \"package\": %d, \"distance\": %d, \"speed_mbit\": %g, "
                "\"up\": %s, \"loopback\": %s, \"bridge\": %s, \"virtual\": %s, "
                "\"infiniband\": %s, ",
                d.numa, d.package, gw_topology_distance(page->topology, i, NULL), d.speed_mbit,
                json_bool(d.up), json_bool(d.loopback), json_bool(d.bridge),
                json_bool(d.virtual_link), json_bool(d.infiniband));
        json_text(page, "address", d.address);
        fputc('}', page->out);
    }
    fputc(']', page->out);
}

static void json_iface(const page_t *page, const gw_node_iface_t *iface, bool first)
{
    char address[64];
    int n = 0;
    iface_address(iface, address, sizeof address);
    fputs(first ? "{" : ", {", page->out);
    json_text(page, "name", iface->name);
    fputs(", ", page->out);
    json_text(page, "address", address);
    fprintf(page->out, ", \"family\": %u, \"speed_mbit\": %u, \"distance\": %u, \"remote\": %s",
            iface->family, iface->speed_mbit, iface->distance, json_bool(leads_out(iface)));
    fputs(", \"flags\": [", page->out);
    for (int i = 0; i < IFACE_FLAGS; i++)
        if (iface->flags & iface_flags[i].flag)
            fprintf(page->out, "%s\"%s\"", n++ ? ", " : "", iface_flags[i].text);
    fputs("]}", page->out);
}

/* The process is null for a map from a file, and an error where its facts could not be had. */
static void json_process(const page_t *page)
{
    fputs(", \"process\": ", page->out);
    if (!page->live) {
        fputs("null", page->out);
        return;
    }
    fputc('{', page->out);
    if (page->why[0]) {
        json_text(page, "error", page->why);
    } else {
        json_text(page, "host", page->facts.host);
        fprintf(page->out, ", \"node_id\": \"%016llx\", \"cpus_allowed\": %u, \"interfaces\": [",
                (unsigned long long)page->facts.node_id, page->facts.cpus_allowed);
        for (int i = 0; i < page->facts.iface_count; i++)
            json_iface(page, &page->facts.iface[i], i == 0);
        fputc(']', page->out);
    }
    fputc('}', page->out);
}

static void print_json(const page_t *page)
{
    const gw_topo_summary_t *s = &page->summary;
    fputc('{', page->out);
    json_text(page, "source", s->source);
    fprintf(page->out,
            ", \"packages\": %d, \"numa_nodes\": %d, \"cores\": %d, \"cpus\": %d, "
            "\"cpus_allowed\": %d, ",
            s->packages, s->numa_nodes, s->cores, s->cpus, s->cpus_allowed);
    json_text(page, "allowed_cpuset", s->allowed_cpuset);
    fprintf(page->out, ", \"io_visible\": %s, ", json_bool(s->io_visible));
    json_text(page, "distances", s->distances);
    json_numa(page);
    json_devices(page);
    json_process(page);
    fputs("}\n", page->out);
}

/* ---- The command ---- */

static const struct {
    const char *name;
    void (*print)(const page_t *page);
} formats[] = {{"text", print_text}, {"json", print_json}};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static void usage(FILE *out)
{
    fputs("usage: gradwire topo [--of FORMAT] [--input XML] [--output FILE]\n\n"
          "  --of FORMAT    text (default) or json\n"
          "  --input XML    a machine recorded by hwloc (lstopo FILE.xml) instead of this one\n"
          "  --output FILE  write there instead of to the terminal\n",
          out);
}

static int find_format(const char *name)
{
    for (int i = 0; i < FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0)
            return i;
    fprintf(stderr, "gradwire topo: no format \"%s\"; there are:", name);
    for (int i = 0; i < FORMATS; i++)
        fprintf(stderr, " %s", formats[i].name);
    fputc('\n', stderr);
    return -1;
}

/* Writes the page to `path` (NULL: stdout); false after a message. */
static bool write_page(page_t *page, int format, const char *path)
{
    page->out = path ? fopen(path, "we") : stdout;
    if (page->out) {
        formats[format].print(page);
        bool bad = fflush(page->out) != 0 || ferror(page->out);
        if (path)
            bad = fclose(page->out) != 0 || bad;
        if (!bad)
            return true;
    }
    fprintf(stderr, "gradwire topo: %s: %s\n", path ? path : "standard output", strerror(errno));
    return false;
}

static int show(const char *input, const char *output, int format)
{
    page_t page = {.live = !input};
    gw_status_t status = gw_topology_load(input, &page.topology, page.why, sizeof page.why);
    if (status != GW_OK) {
        fprintf(stderr, "gradwire topo: %s\n", page.why);
        return 1;
    }
    gw_topology_summary(page.topology, &page.summary);
    page.why[0] = '\0';
    if (page.live)
        status = gw_node_facts_collect(page.topology, getenv("GRADWIRE_INTERFACES"), &page.facts,
                                       page.why, sizeof page.why);
    if (status != GW_OK && !page.why[0])
        snprintf(page.why, sizeof page.why, "%s", gw_status_text(status));
    bool written = write_page(&page, format, output);
    gw_topology_free(page.topology);
    if (status != GW_OK)
        fprintf(stderr, "gradwire topo: %s\n", page.why);
    return written && status == GW_OK ? 0 : 1;
}

int gw_cli_topo(int argc, char **argv)
{
    static const struct option options[] = {{"of", required_argument, NULL, 'f'},
                                            {"input", required_argument, NULL, 'i'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *input = NULL, *output = NULL;
    static char name[] = "gradwire topo";
    int format = 0;
    argv[0] = name; /* getopt's messages begin with it */
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "i:o:h", options, NULL)) != -1;) {
        if (c == 'f' && (format = find_format(optarg)) < 0)
            return 2;
        if (c == 'i')
            input = optarg;
        if (c == 'o')
            output = optarg;
        if (c == 'h' || c == '?') {
            usage(c == 'h' ? stdout : stderr);
            return c == 'h' ? 0 : 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "gradwire topo: unexpected argument: %s\n", argv[optind]);
        usage(stderr);
        return 2;
    }
    return show(input, output, format);
}
