/* SPDX-License-Identifier: Apache-2.0 */
/* A small strict reader for the subset of XML that hwloc writes: elements, attributes, text,
 * comments. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "topology_int.h"

enum {
    MAX_FILE = 64 * 1024 * 1024,
    MAX_DEPTH = 128,
    MAX_ATTRS = 64,
    MAX_NODES = 1000000,
    BLOCK = 64 * 1024
};

typedef struct gw__xml_block {
    struct gw__xml_block *next;
    size_t used, size;
    _Alignas(16) char data[];
} gw__xml_block_t;

typedef struct parser {
    const char *path;
    char *p;
    int line, depth, nodes;
    gw__xml_t *xml;
    gw__xml_node_t *open; /* innermost element that is not closed yet */
    const char *error;
} parser_t;

static void *take(gw__xml_t *xml, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    gw__xml_block_t *block = xml->blocks;
    if (!block || block->size - block->used < bytes) {
        size_t size = bytes > BLOCK ? bytes : BLOCK;
        block = malloc(sizeof *block + size);
        if (!block)
            return NULL;
        *block = (gw__xml_block_t){.next = xml->blocks, .size = size};
        xml->blocks = block;
    }
    void *out = block->data + block->used;
    block->used += bytes;
    return out;
}

void gw__xml_free(gw__xml_t *xml)
{
    while (xml->blocks) {
        gw__xml_block_t *next = xml->blocks->next;
        free(xml->blocks);
        xml->blocks = next;
    }
    free(xml->text);
    *xml = (gw__xml_t){0};
}

const char *gw__xml_attr(const gw__xml_node_t *node, const char *name)
{
    for (int i = 0; i < node->attr_count; i++)
        if (strcmp(node->attr[2 * i], name) == 0)
            return node->attr[2 * i + 1];
    return NULL;
}

static bool fail(parser_t *parser, const char *reason)
{
    parser->error = reason;
    return false;
}

static void skip_spaces(parser_t *parser)
{
    for (; *parser->p && strchr(" \t\r\n", *parser->p); parser->p++)
        parser->line += *parser->p == '\n';
}

/* Moves behind `end`, counting lines. */
static bool skip_past(parser_t *parser, const char *end, const char *reason)
{
    char *found = strstr(parser->p, end);
    if (!found)
        return fail(parser, reason);
    for (; parser->p < found + strlen(end); parser->p++)
        parser->line += *parser->p == '\n';
    return true;
}

static char *take_name(parser_t *parser)
{
    char *start = parser->p;
    size_t len =
        strspn(start, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:");
    if (len == 0 || len > 64) {
        fail(parser, "a name was expected");
        return NULL;
    }
    char *name = take(parser->xml, len + 1);
    if (!name)
        return NULL;
    memcpy(name, start, len);
    name[len] = '\0';
    parser->p += len;
    return name;
}

/* Replaces one entity at *in; 0 when it is not one that a text of hwloc contains. */
static char entity(const char **in)
{
    static const struct {
        const char *text;
        char c;
    } known[] = {{"&lt;", '<'},    {"&gt;", '>'},   {"&amp;", '&'},  {"&quot;", '"'},
                 {"&apos;", '\''}, {"&#10;", '\n'}, {"&#13;", '\r'}, {"&#9;", '\t'}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(*in, known[i].text, strlen(known[i].text)) == 0) {
            *in += strlen(known[i].text);
            return known[i].c;
        }
    return 0;
}

/* Unescapes in place; the result is never longer. */
static bool unescape(parser_t *parser, char *text)
{
    char *out = text;
    for (const char *in = text; *in;) {
        if (*in == '&') {
            char c = entity(&in);
            if (!c)
                return fail(parser, "an entity that is not known");
            *out++ = c;
        } else {
            *out++ = *in++;
        }
    }
    *out = '\0';
    return true;
}

static bool take_value(parser_t *parser, const char **out)
{
    char quote = *parser->p;
    if (quote != '"' && quote != '\'')
        return fail(parser, "an attribute without a quoted value");
    char *start = ++parser->p;
    for (; *parser->p != quote; parser->p++) {
        if (*parser->p == '\0')
            return fail(parser, "the file ends inside an attribute");
        if (*parser->p == '<')
            return fail(parser, "< inside an attribute");
        parser->line += *parser->p == '\n';
    }
    *parser->p++ = '\0';
    *out = start;
    return unescape(parser, start);
}

static bool take_attributes(parser_t *parser, gw__xml_node_t *node)
{
    const char *attr[2 * MAX_ATTRS];
    int count = 0;
    for (skip_spaces(parser); *parser->p != '>' && *parser->p != '/'; skip_spaces(parser)) {
        if (*parser->p == '\0')
            return fail(parser, "the file ends inside a tag");
        if (count == MAX_ATTRS)
            return fail(parser, "too many attributes");
        attr[2 * count] = take_name(parser);
        if (!attr[2 * count])
            return false;
        skip_spaces(parser);
        if (*parser->p != '=')
            return fail(parser, "an attribute without a value");
        parser->p++;
        skip_spaces(parser);
        if (!take_value(parser, &attr[2 * count + 1]))
            return false;
        for (int i = 0; i < count; i++)
            if (strcmp(attr[2 * i], attr[2 * count]) == 0)
                return fail(parser, "an attribute given twice");
        count++;
    }
    node->attr = take(parser->xml, (size_t)count * 2 * sizeof attr[0] + 1);
    if (!node->attr)
        return false;
    memcpy(node->attr, attr, (size_t)count * 2 * sizeof attr[0]);
    node->attr_count = count;
    return true;
}

static bool open_tag(parser_t *parser)
{
    gw__xml_node_t *node = take(parser->xml, sizeof *node);
    if (!node)
        return false;
    *node = (gw__xml_node_t){.line = parser->line, .text = "", .parent = parser->open};
    if (++parser->nodes > MAX_NODES)
        return fail(parser, "too many elements");
    if (!parser->open && parser->xml->root)
        return fail(parser, "more than one root element");
    parser->p++;
    if (!(node->tag = take_name(parser)) || !take_attributes(parser, node))
        return false;
    if (!node->parent)
        parser->xml->root = node;
    else if (node->parent->last)
        node->parent->last = node->parent->last->next = node;
    else
        node->parent->first = node->parent->last = node;
    if (*parser->p == '/') {
        if (parser->p[1] != '>')
            return fail(parser, "a stray / in a tag");
        parser->p += 2;
        return true;
    }
    parser->p++;
    parser->open = node;
    return ++parser->depth <= MAX_DEPTH || fail(parser, "elements nested too deeply");
}

static bool close_tag(parser_t *parser)
{
    parser->p += 2;
    char *name = take_name(parser);
    if (!name)
        return false;
    skip_spaces(parser);
    if (*parser->p != '>')
        return fail(parser, "a closing tag that does not end");
    if (!parser->open || strcmp(parser->open->tag, name) != 0)
        return fail(parser, "a closing tag that fits no opening one");
    parser->p++;
    parser->open = parser->open->parent;
    parser->depth--;
    return true;
}

/* Character data up to the next tag; kept where an element has nothing else. */
static bool take_text(parser_t *parser)
{
    char *start = parser->p;
    size_t len = strcspn(start, "<");
    for (size_t i = 0; i < len; i++)
        parser->line += start[i] == '\n';
    parser->p += len;
    if (strspn(start, " \t\r\n") >= len)
        return true;
    if (!parser->open)
        return fail(parser, "text outside of the root element");
    if (*parser->p == '\0')
        return fail(parser, "the file ends before everything is closed");
    char *text = take(parser->xml, len + 1);
    if (!text)
        return false;
    memcpy(text, start, len);
    text[len] = '\0';
    parser->open->text = text;
    return unescape(parser, text);
}

static bool parse_next(parser_t *parser)
{
    char *p = parser->p;
    if (*p != '<')
        return take_text(parser);
    if (strncmp(p, "<!--", 4) == 0)
        return skip_past(parser, "-->", "a comment that does not end");
    if (strncmp(p, "<?", 2) == 0)
        return skip_past(parser, "?>", "a declaration that does not end");
    if (strncmp(p, "<!DOCTYPE", 9) == 0) {
        if (memchr(p, '[', strcspn(p, ">")))
            return fail(parser, "a document type with definitions of its own");
        return skip_past(parser, ">", "a document type that does not end");
    }
    if (p[1] == '!')
        return fail(parser, "a section that hwloc does not write");
    return p[1] == '/' ? close_tag(parser) : open_tag(parser);
}

static gw_status_t read_file(const char *path, gw__xml_t *xml, char *why, size_t why_size)
{
    FILE *file = fopen(path, "re");
    struct stat info;
    if (!file || fstat(fileno(file), &info) != 0 || S_ISDIR(info.st_mode)) {
        const char *reason = file ? "not a file" : strerror(errno);
        if (file)
            fclose(file);
        return gw__why(why, why_size, GW_ERR_IO, "%s: %s", path, reason);
    }
    size_t len = 0, size = 64 * 1024;
    gw_status_t status = GW_OK;
    xml->text = malloc(size);
    for (size_t n = 1; xml->text && n > 0; len += n) {
        if (len + 1 == size) {
            char *more = size <= MAX_FILE ? realloc(xml->text, size *= 2) : NULL;
            if (!more)
                break;
            xml->text = more;
        }
        n = fread(xml->text + len, 1, size - 1 - len, file);
    }
    if (!xml->text)
        status = GW_ERR_NO_MEMORY;
    else if (ferror(file))
        status = gw__why(why, why_size, GW_ERR_IO, "%s: %s", path, strerror(errno));
    else if (!feof(file))
        status = gw__why(why, why_size, GW_ERR_INVALID, "%s: larger than a topology can be", path);
    else if (len == 0)
        status = gw__why(why, why_size, GW_ERR_INVALID, "%s: the file is empty", path);
    else if (memchr(xml->text, '\0', len))
        status = gw__why(why, why_size, GW_ERR_INVALID, "%s: binary data, not XML", path);
    if (xml->text)
        xml->text[len] = '\0';
    fclose(file);
    return status;
}

gw_status_t gw__xml_read(const char *path, gw__xml_t *out, char *why, size_t why_size)
{
    *out = (gw__xml_t){0};
    gw_status_t status = read_file(path, out, why, why_size);
    if (status != GW_OK)
        return status;
    parser_t parser = {.path = path, .p = out->text, .line = 1, .xml = out};
    skip_spaces(&parser);
    if (*parser.p != '<')
        return gw__why(why, why_size, GW_ERR_INVALID, "%s: not XML", path);
    bool good = true;
    while (good && *parser.p)
        good = parse_next(&parser);
    if (good && (parser.open || !out->root))
        good = fail(&parser, "the file ends before everything is closed");
    if (good)
        return GW_OK;
    if (!parser.error)
        return gw__why(why, why_size, GW_ERR_NO_MEMORY, "%s: out of memory", path);
    return gw__why(why, why_size, GW_ERR_INVALID, "%s: line %d: %s", path, parser.line,
                   parser.error);
}
