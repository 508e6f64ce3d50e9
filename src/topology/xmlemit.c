/* SPDX-License-Identifier: Apache-2.0 */
/* Writes checked objects in the one layout that hwloc's built-in reader understands. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology_int.h"

void gw__text_add(gw__text_t *text, const char *format, ...)
{
    for (int pass = 0; !text->failed && pass < 2; pass++) {
        va_list args;
        va_start(args, format);
        size_t room = text->size - text->len;
        int n = vsnprintf(text->data ? text->data + text->len : NULL, room, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n < room) {
            text->len += (size_t)n;
            return;
        }
        size_t size = 2 * text->size + (size_t)(n < 0 ? 0 : n) + 4096;
        char *data = n < 0 ? NULL : realloc(text->data, size);
        text->failed = !data;
        if (data) {
            text->data = data;
            text->size = size;
        }
    }
}

/* A value between quotes. Names are plain text: what is not ASCII may not even be UTF-8. */
static void add_value(gw__text_t *text, const char *name, const char *value)
{
    gw__text_add(text, " %s=\"", name);
    for (; *value; value++) {
        switch (*value) {
        case '<':
            gw__text_add(text, "&lt;");
            break;
        case '>':
            gw__text_add(text, "&gt;");
            break;
        case '&':
            gw__text_add(text, "&amp;");
            break;
        case '"':
            gw__text_add(text, "&quot;");
            break;
        default:
            gw__text_add(text, "%c", *value < ' ' || *value > '~' ? '?' : *value);
        }
    }
    gw__text_add(text, "\"");
}

static void copy_attr(gw__text_t *text, const gw__xml_node_t *node, const char *name)
{
    const char *value = gw__xml_attr(node, name);
    if (value)
        add_value(text, name, value);
}

static void copy_number(gw__text_t *text, const gw__xml_node_t *node, const char *name)
{
    const char *value = gw__xml_attr(node, name);
    size_t digits = value ? strspn(value, "0123456789") : 0;
    if (digits > 0 && digits <= 18 && value[digits] == '\0')
        add_value(text, name, value);
}

static void add_set(gw__text_t *text, const char *name, hwloc_const_bitmap_t set)
{
    char *value;
    if (hwloc_bitmap_asprintf(&value, set) < 0) {
        text->failed = true;
        return;
    }
    gw__text_add(text, " %s=\"%s\" complete_%s=\"%s\"", name, value, name, value);
    free(value);
}

static void add_allowed(gw__text_t *text, const char *name, hwloc_const_bitmap_t set)
{
    char *value;
    if (hwloc_bitmap_asprintf(&value, set) < 0) {
        text->failed = true;
        return;
    }
    gw__text_add(text, " %s=\"%s\"", name, value);
    free(value);
}

static void add_io(gw__text_t *text, const gw__xml_node_t *node)
{
    static const char *const names[] = {"bridge_type", "bridge_pci", "pci_busid", "pci_type",
                                        "osdev_type"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        copy_attr(text, node, names[i]);
    if (gw__xml_attr(node, "bridge_type"))
        copy_number(text, node, "depth");
}

static void add_infos(gw__text_t *text, const gw__xml_node_t *node)
{
    for (const gw__xml_node_t *n = node->first; n; n = n->next) {
        const char *name = gw__xml_attr(n, "name"), *value = gw__xml_attr(n, "value");
        if (strcmp(n->tag, "info") != 0 || !name || !value || strlen(name) > 256)
            continue;
        gw__text_add(text, "<info");
        add_value(text, "name", name);
        add_value(text, "value", value);
        gw__text_add(text, "/>\n");
    }
}

/* The memory nodes near a normal object: its own, and those of what is around it. */
static void add_nodeset(gw__text_t *text, const gw__xml_object_t *object,
                        hwloc_const_bitmap_t nodes)
{
    hwloc_bitmap_t set = hwloc_bitmap_dup(object->nodes);
    if (!set) {
        text->failed = true;
        return;
    }
    for (const gw__xml_object_t *up = object->parent; up && object->kind != GW__XML_MEMORY;
         up = up->parent)
        for (const gw__xml_object_t *o = up->first; o; o = o->next)
            if (o->kind == GW__XML_MEMORY)
                hwloc_bitmap_set(set, (unsigned)o->os_index);
    if (!object->parent && hwloc_bitmap_iszero(set))
        hwloc_bitmap_copy(set, nodes);
    add_set(text, "nodeset", set);
    hwloc_bitmap_free(set);
}

/* The nearest normal object around, which gives a memory node its CPUs. */
static hwloc_const_bitmap_t cpus_of(const gw__xml_object_t *object)
{
    while (object->kind != GW__XML_NORMAL || hwloc_bitmap_iszero(object->cpus))
        object = object->parent;
    return object->cpus;
}

static void add_head(gw__text_t *text, const gw__xml_object_t *object, hwloc_const_bitmap_t cpus,
                     hwloc_const_bitmap_t nodes)
{
    const gw__xml_node_t *node = object->node;
    gw__text_add(text, "<object type=\"%s\"", object->type);
    if (object->os_index >= 0)
        gw__text_add(text, " os_index=\"%d\"", object->os_index);
    if (object->kind != GW__XML_IO) {
        add_set(text, "cpuset", cpus_of(object));
        if (!object->parent) {
            add_allowed(text, "allowed_cpuset", cpus);
            add_allowed(text, "allowed_nodeset", nodes);
        }
        add_nodeset(text, object, nodes);
    }
    copy_number(text, node, "gp_index");
    copy_attr(text, node, "name");
    copy_attr(text, node, "subtype");
    if (object->kind == GW__XML_MEMORY)
        copy_number(text, node, "local_memory");
    if (object->kind == GW__XML_IO)
        add_io(text, node);
    if (object->rank < 0)
        copy_number(text, node, "kind");
    gw__text_add(text, ">\n");
}

int gw__xml_emit(gw__text_t *text, const gw__xml_object_t *object, hwloc_const_bitmap_t cpus,
                 hwloc_const_bitmap_t nodes)
{
    /* an object that lost all its processors leaves its devices and memory to the one around it */
    bool shown = object->kind != GW__XML_NORMAL || !hwloc_bitmap_iszero(object->cpus);
    if (shown)
        add_head(text, object, cpus, nodes);
    if (shown)
        add_infos(text, object->node);
    if (!object->parent && hwloc_bitmap_iszero(object->nodes)) {
        gw__text_add(text, "<object type=\"NUMANode\" os_index=\"0\"");
        add_set(text, "cpuset", object->cpus);
        add_set(text, "nodeset", nodes);
        gw__text_add(text, "/>\n");
    }
    for (const gw__xml_object_t *o = object->first; o; o = o->next)
        gw__xml_emit(text, o, cpus, nodes);
    if (shown)
        gw__text_add(text, "</object>\n");
    return text->failed ? -1 : 0;
}

/* Appends the words of all children `tag` to a list of its own; how many, or -1 for other
 * characters. */
static long gather(const gw__xml_node_t *node, const char *tag, gw__text_t *out)
{
    long words = 0;
    for (const gw__xml_node_t *n = node->first; n; n = n->next) {
        if (strcmp(n->tag, tag) != 0)
            continue;
        for (const char *p = n->text; *(p += strspn(p, " \t\r\n"));) {
            size_t len = strcspn(p, " \t\r\n");
            size_t good =
                strspn(p, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz:");
            if (good < len || len > 40)
                return -1;
            gw__text_add(out, "%.*s ", (int)len, p);
            words++;
            p += len;
        }
    }
    return words;
}

static void add_list(gw__text_t *text, const char *tag, const gw__text_t *list)
{
    gw__text_add(text, "<%s length=\"%zu\">%s</%s>\n", tag, list->len, list->data, tag);
}

int gw__xml_emit_distances(gw__text_t *text, const gw__xml_node_t *node)
{
    const char *type = gw__xml_attr(node, "type"), *count = gw__xml_attr(node, "nbobjs");
    bool hetero = strcmp(node->tag, "distances2hetero") == 0;
    if (!hetero && strcmp(node->tag, "distances2") != 0)
        return -1;
    if (!hetero && (!type || (strcmp(type, "NUMANode") != 0 && strcmp(type, "OSDev") != 0)))
        return 0; /* distances between what the map leaves out */
    long nbobjs = count && strspn(count, "0123456789") == strlen(count) && strlen(count) < 5
                      ? strtol(count, NULL, 10)
                      : 0;
    if (nbobjs < 2 || nbobjs > 1024)
        return -1;
    gw__text_t indexes = {0}, values = {0};
    bool good = gather(node, "indexes", &indexes) == nbobjs &&
                gather(node, "u64values", &values) == nbobjs * nbobjs;
    if (good) {
        gw__text_add(text, "<%s", node->tag);
        if (!hetero)
            copy_attr(text, node, "type");
        copy_number(text, node, "nbobjs");
        copy_number(text, node, "kind");
        copy_attr(text, node, "name");
        if (!hetero)
            copy_attr(text, node, "indexing");
        gw__text_add(text, ">\n");
        add_list(text, "indexes", &indexes);
        add_list(text, "u64values", &values);
        gw__text_add(text, "</%s>\n", node->tag);
    }
    free(indexes.data);
    free(values.data);
    return good ? 0 : -1;
}
