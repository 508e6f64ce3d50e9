/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a topology file into one that hwloc can be trusted with. hwloc believes what a file says
 * and stops the process on some contradictions; so the tree is checked first, and every set of CPUs
 * and memory nodes is made new from the processors and nodes themselves. Caches and unknown
 * decorations are left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology_int.h"

enum { MAX_INDEX = 16383 };

typedef struct mapper {
    const char *path;
    char *why;
    size_t why_size;
    gw__xml_t xml;
    gw__xml_object_t *root;
    gw__xml_object_t **all; /* for release */
    int count, size;
    hwloc_bitmap_t cpus, nodes; /* seen so far */
    gw_status_t status;
} mapper_t;

static const struct {
    const char *name;
    gw__xml_class_t kind;
    int rank; /* containment of normal types; -1: anywhere */
} types[] = {
    {"Machine", GW__XML_NORMAL, 0},  {"Package", GW__XML_NORMAL, 1}, {"Die", GW__XML_NORMAL, 2},
    {"Core", GW__XML_NORMAL, 3},     {"PU", GW__XML_NORMAL, 4},      {"Group", GW__XML_NORMAL, -1},
    {"NUMANode", GW__XML_MEMORY, 0}, {"Bridge", GW__XML_IO, 0},      {"PCIDev", GW__XML_IO, 1},
    {"OSDev", GW__XML_IO, 2},
};

/* What a file may contain and the map does not need; what is below moves up. */
static bool passed_over(const char *type)
{
    static const char *const names[] = {"L1Cache",  "L2Cache",  "L3Cache",  "L4Cache", "L5Cache",
                                        "L1iCache", "L2iCache", "L3iCache", "MemCache"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(type, names[i]) == 0)
            return true;
    return false;
}

static bool refuse(mapper_t *m, const gw__xml_node_t *node, const char *format, const char *detail)
{
    char reason[160];
    snprintf(reason, sizeof reason, format, detail);
    m->status = gw__why(m->why, m->why_size, GW_ERR_INVALID, "%s: line %d: %s", m->path, node->line,
                        reason);
    return false;
}

static bool no_memory(mapper_t *m)
{
    m->status = gw__why(m->why, m->why_size, GW_ERR_NO_MEMORY, "%s: out of memory", m->path);
    return false;
}

static gw__xml_object_t *add_object(mapper_t *m, const gw__xml_node_t *node, size_t type)
{
    if (m->count == m->size) {
        int size = m->size ? 2 * m->size : 256;
        void *all = realloc(m->all, (size_t)size * sizeof m->all[0]);
        if (!all)
            return NULL;
        m->all = all;
        m->size = size;
    }
    gw__xml_object_t *object = calloc(1, sizeof *object);
    if (!object)
        return NULL;
    m->all[m->count++] = object;
    *object = (gw__xml_object_t){.node = node,
                                 .type = types[type].name,
                                 .kind = types[type].kind,
                                 .rank = types[type].rank,
                                 .os_index = -1,
                                 .place = m->count};
    object->cpus = hwloc_bitmap_alloc();
    object->nodes = hwloc_bitmap_alloc();
    return object->cpus && object->nodes ? object : NULL;
}

/* A decimal number of at most `most`. */
static bool number(const char *text, unsigned long long most, unsigned long long *out)
{
    size_t digits = text ? strspn(text, "0123456789") : 0;
    if (digits == 0 || digits > 18 || text[digits] != '\0')
        return false;
    *out = strtoull(text, NULL, 10);
    return *out <= most;
}

static bool read_index(mapper_t *m, gw__xml_object_t *object, bool needed)
{
    const char *text = gw__xml_attr(object->node, "os_index");
    unsigned long long index;
    if (!text && !needed)
        return true;
    if (!text)
        return refuse(m, object->node, "%s without os_index", object->type);
    if (number(text, MAX_INDEX, &index))
        object->os_index = (int)index;
    else if (needed || strspn(text, "0123456789") != strlen(text))
        return refuse(m, object->node, "%s with an impossible os_index", object->type);
    return true;
}

/* A PU or memory node adds its number to its own set and to that of everything around it. */
static bool count_leaf(mapper_t *m, gw__xml_object_t *object)
{
    bool pu = object->kind == GW__XML_NORMAL;
    hwloc_bitmap_t seen = pu ? m->cpus : m->nodes;
    unsigned index = (unsigned)object->os_index;
    if (hwloc_bitmap_isset(seen, index))
        return refuse(m, object->node, "two %s objects with the same os_index", object->type);
    hwloc_bitmap_set(seen, index);
    for (gw__xml_object_t *o = object; o; o = o->parent)
        hwloc_bitmap_set(pu ? o->cpus : o->nodes, index);
    return true;
}

/* Whether an object of this kind may stand below `parent`. */
static bool fits(mapper_t *m, const gw__xml_object_t *object)
{
    const gw__xml_object_t *up = object->parent;
    bool io = object->kind == GW__XML_IO;
    if (up->kind == GW__XML_IO ? !io || (up->rank > 0 && up->rank >= object->rank)
                               : up->kind == GW__XML_MEMORY)
        return refuse(m, object->node, "%s where none can be", object->type);
    if (up->rank == 4 && up->kind == GW__XML_NORMAL && !io)
        return refuse(m, object->node, "%s inside of a PU", object->type);
    if (object->kind != GW__XML_NORMAL || object->rank < 0)
        return true;
    while (up->rank < 0)
        up = up->parent;
    if (up->rank >= object->rank)
        return refuse(m, object->node, "%s inside of an object that cannot hold one", object->type);
    return true;
}

static bool check_io(mapper_t *m, const gw__xml_object_t *object)
{
    const gw__xml_node_t *node = object->node;
    const char *busid = gw__xml_attr(node, "pci_busid"), *type = gw__xml_attr(node, "pci_type");
    const char *bridge = gw__xml_attr(node, "bridge_type"), *osdev;
    unsigned domain, bus, dev, func, cls, id[5];
    bool pci = strcmp(object->type, "PCIDev") == 0 || (bridge && strcmp(bridge, "1-1") == 0);
    if (pci && (!busid || sscanf(busid, "%8x:%2x:%2x.%1x", &domain, &bus, &dev, &func) != 4))
        return refuse(m, node, "%s without a PCI address", object->type);
    if (pci && (!type || sscanf(type, "%4x [%4x:%4x] [%4x:%4x] %2x", &cls, &id[0], &id[1], &id[2],
                                &id[3], &id[4]) != 6))
        return refuse(m, node, "%s without a PCI class", object->type);
    if (strcmp(object->type, "Bridge") == 0) {
        const char *range = gw__xml_attr(node, "bridge_pci");
        if (!bridge || (strcmp(bridge, "0-1") != 0 && strcmp(bridge, "1-1") != 0))
            return refuse(m, node, "a bridge of an unknown kind%s", "");
        if (!range || sscanf(range, "%8x:[%2x-%2x]", &domain, &bus, &dev) != 3)
            return refuse(m, node, "a bridge without its range of buses%s", "");
    }
    unsigned long long kind;
    osdev = gw__xml_attr(node, "osdev_type");
    if (strcmp(object->type, "OSDev") == 0 && !number(osdev, 5, &kind))
        return refuse(m, node, "an OS device of an unknown kind%s", "");
    return true;
}

static bool add_children(mapper_t *m, const gw__xml_node_t *node, gw__xml_object_t *parent);

static bool add_one(mapper_t *m, const gw__xml_node_t *node, gw__xml_object_t *parent)
{
    const char *type = gw__xml_attr(node, "type");
    if (!type)
        return refuse(m, node, "an object without a type%s", "");
    if (strcmp(type, "Misc") == 0)
        return true;
    if (passed_over(type))
        return add_children(m, node, parent);
    size_t t = 0, most = sizeof types / sizeof types[0];
    while (t < most && strcmp(types[t].name, type) != 0)
        t++;
    if (t == most)
        return refuse(m, node, "an object of the unknown type \"%.40s\"", type);
    gw__xml_object_t *object = add_object(m, node, t);
    if (!object)
        return no_memory(m);
    object->parent = parent;
    bool pu = strcmp(type, "PU") == 0, numa = object->kind == GW__XML_MEMORY;
    if ((parent && !fits(m, object)) || !read_index(m, object, pu || numa))
        return false;
    if (object->kind == GW__XML_IO && !check_io(m, object))
        return false;
    if ((pu || numa) && !count_leaf(m, object))
        return false;
    if (parent) {
        gw__xml_object_t **link = &parent->first;
        object->next = *link;
        *link = object; /* the order is set when all is known */
    } else {
        m->root = object;
    }
    return add_children(m, node, object);
}

static bool add_children(mapper_t *m, const gw__xml_node_t *node, gw__xml_object_t *parent)
{
    for (const gw__xml_node_t *n = node->first; n; n = n->next)
        if (strcmp(n->tag, "object") == 0 && !add_one(m, n, parent))
            return false;
    return true;
}

static int order_of(const gw__xml_object_t *object)
{
    if (object->kind == GW__XML_NORMAL)
        return hwloc_bitmap_first(object->cpus);
    if (object->kind == GW__XML_MEMORY)
        return object->os_index;
    return object->place;
}

static int by_order(const void *a, const void *b)
{
    const gw__xml_object_t *x = *(gw__xml_object_t *const *)a, *y = *(gw__xml_object_t *const *)b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return (order_of(x) > order_of(y)) - (order_of(x) < order_of(y));
}

/* hwloc wants siblings in the order of their first CPU. */
static bool sort_children(mapper_t *m, gw__xml_object_t *parent)
{
    size_t n = 0, i = 0;
    for (gw__xml_object_t *o = parent->first; o; o = o->next)
        n++;
    if (n < 2)
        return true;
    gw__xml_object_t **list = malloc(n * sizeof list[0]);
    if (!list)
        return no_memory(m);
    for (gw__xml_object_t *o = parent->first; o; o = o->next)
        list[i++] = o;
    qsort(list, n, sizeof list[0], by_order);
    for (i = 0; i < n; i++)
        list[i]->next = i + 1 < n ? list[i + 1] : NULL;
    parent->first = list[0];
    free(list);
    return true;
}

static bool check_root(mapper_t *m)
{
    const gw__xml_node_t *root = m->xml.root, *machine = NULL;
    if (strcmp(root->tag, "topology") != 0)
        return refuse(m, root, "the root element is not a topology but \"%.40s\"", root->tag);
    const char *version = gw__xml_attr(root, "version");
    if (!version)
        return refuse(m, root,
                      "the format of hwloc 1 is not read; convert the file with lstopo of "
                      "hwloc 2: lstopo --input OLD.xml NEW.xml%s",
                      "");
    if (strncmp(version, "2.", 2) != 0)
        return refuse(m, root, "format version \"%.20s\" is not known; wanted 2.x", version);
    for (const gw__xml_node_t *n = root->first; n; n = n->next) {
        if (strcmp(n->tag, "object") != 0)
            continue;
        const char *type = gw__xml_attr(n, "type");
        if (machine || !type || strcmp(type, "Machine") != 0)
            return refuse(m, n, "one object of type Machine must hold everything%s", "");
        machine = n;
    }
    if (!machine)
        return refuse(m, root, "no machine in it%s", "");
    if (!add_one(m, machine, NULL))
        return false;
    if (hwloc_bitmap_iszero(m->cpus))
        return refuse(m, machine, "no processor (PU) in it%s", "");
    for (int i = 0; i < m->count; i++)
        if (!sort_children(m, m->all[i]))
            return false;
    return true;
}

/* Whether hwloc's reader of sets can be given this text: its count of the groups, checked by an
 * assertion, misses a comma at the beginning. */
static bool is_set(const char *text)
{
    static const char infinite[] = "0xf...f";
    size_t prefix = strncmp(text, infinite, sizeof infinite - 1) == 0 ? sizeof infinite - 1 : 0;
    const char *groups = text + prefix;
    if (prefix > 0 && *groups == '\0')
        return true;
    if ((prefix > 0) != (*groups == ',') || *groups == '\0')
        return false;
    size_t length = strlen(groups);
    return length < 8192 && strspn(groups, "0123456789abcdefABCDEFx,") == length;
}

/* The set that the root names as allowed, within what is there; everything when it names nothing.
 */
static bool allowed_set(mapper_t *m, const char *name, hwloc_bitmap_t all, hwloc_bitmap_t out)
{
    const char *text = gw__xml_attr(m->root->node, name);
    hwloc_bitmap_copy(out, all);
    if (!text)
        return true;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    bool good = set && is_set(text) && hwloc_bitmap_sscanf(set, text) == 0;
    if (good)
        hwloc_bitmap_and(out, all, set);
    hwloc_bitmap_free(set);
    if (!good)
        return refuse(m, m->root->node, "%s is not a set", name);
    if (hwloc_bitmap_iszero(out))
        hwloc_bitmap_copy(out, all);
    return true;
}

static bool emit(mapper_t *m, gw__text_t *text)
{
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc(), nodes = hwloc_bitmap_alloc();
    bool good = cpus && nodes;
    /* a machine that reports no memory node has one */
    if (good && hwloc_bitmap_iszero(m->nodes))
        hwloc_bitmap_set(m->nodes, 0);
    good = good && allowed_set(m, "allowed_cpuset", m->cpus, cpus) &&
           allowed_set(m, "allowed_nodeset", m->nodes, nodes);
    if (good) {
        gw__text_add(text, "<topology version=\"2.0\">\n");
        good = gw__xml_emit(text, m->root, cpus, nodes) == 0;
        for (const gw__xml_node_t *n = m->xml.root->first; good && n; n = n->next)
            if (strncmp(n->tag, "distances2", 10) == 0 && gw__xml_emit_distances(text, n) != 0)
                good = refuse(m, n, "distances that do not add up%s", "");
        gw__text_add(text, "</topology>\n");
    }
    if ((!good || text->failed) && m->status == GW_OK)
        good = no_memory(m);
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(nodes);
    return good;
}

gw_status_t gw__xml_rewrite(const char *path, char **out, char *why, size_t why_size)
{
    mapper_t m = {.path = path, .why = why, .why_size = why_size};
    gw__text_t text = {0};
    m.status = gw__xml_read(path, &m.xml, why, why_size);
    m.cpus = hwloc_bitmap_alloc();
    m.nodes = hwloc_bitmap_alloc();
    if (m.status == GW_OK && (!m.cpus || !m.nodes))
        no_memory(&m);
    bool good = m.status == GW_OK && check_root(&m) && emit(&m, &text);
    for (int i = 0; i < m.count; i++) {
        hwloc_bitmap_free(m.all[i]->cpus);
        hwloc_bitmap_free(m.all[i]->nodes);
        free(m.all[i]);
    }
    free(m.all);
    hwloc_bitmap_free(m.cpus);
    hwloc_bitmap_free(m.nodes);
    gw__xml_free(&m.xml);
    if (good)
        *out = text.data;
    else
        free(text.data);
    return m.status;
}
