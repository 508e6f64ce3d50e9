/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the specification of the transport `fault`: "over=loopback,seed=7,drop=0.01,kill=2@100". */
#include "fault.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM_MAX = 63, RANK_MAX = 1 << 20 };

/* What is left of a value while it is read. */
typedef struct cursor {
    const char *at;
} cursor_t;

static bool number(cursor_t *c, uint64_t most, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)c->at[0]))
        return false;
    errno = 0;
    unsigned long long value = strtoull(c->at, &end, 10);
    if (errno != 0 || value > most)
        return false;
    c->at = end;
    *out = value;
    return true;
}

static bool rank_number(cursor_t *c, int *out)
{
    uint64_t value;
    if (!number(c, RANK_MAX, &value))
        return false;
    *out = (int)value;
    return true;
}

static bool sign(cursor_t *c, char wanted)
{
    if (*c->at != wanted)
        return false;
    c->at++;
    return true;
}

/* "1", "0.25": not strtod, which reads the decimal point of the process's locale. */
static bool decimal(cursor_t *c, double *out)
{
    uint64_t whole;
    if (!number(c, 1000000, &whole))
        return false;
    double value = (double)whole, unit = 0.1;
    if (sign(c, '.'))
        for (; isdigit((unsigned char)*c->at); c->at++, unit /= 10)
            value += unit * (*c->at - '0');
    *out = value;
    return true;
}

static bool chance(cursor_t *c, double *out)
{
    double value;
    if (!decimal(c, &value) || value > 1.0)
        return false;
    *out = value;
    return true;
}

static bool duration(cursor_t *c, int64_t *ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    double value;
    if (!decimal(c, &value))
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t length = strlen(units[i].name);
        if (strncmp(c->at, units[i].name, length) != 0)
            continue;
        c->at += length;
        *ns = (int64_t)(value * units[i].ns);
        return true;
    }
    return false;
}

static bool read_over(cursor_t *c, gw__fault_spec_t *s)
{
    size_t length = strlen(c->at);
    if (length == 0 || length >= sizeof(s->over) || strcmp(c->at, "fault") == 0)
        return false;
    memcpy(s->over, c->at, length + 1);
    c->at += length;
    return true;
}

static bool read_seed(cursor_t *c, gw__fault_spec_t *s)
{
    return number(c, UINT64_MAX, &s->seed);
}

static bool read_only(cursor_t *c, gw__fault_spec_t *s)
{
    return rank_number(c, &s->only);
}

static bool read_from(cursor_t *c, gw__fault_spec_t *s)
{
    return number(c, UINT64_MAX, &s->from);
}

static bool read_delay(cursor_t *c, gw__fault_spec_t *s)
{
    s->delay = 1.0;
    return duration(c, &s->delay_ns) && (!sign(c, ':') || chance(c, &s->delay));
}

static bool read_corrupt(cursor_t *c, gw__fault_spec_t *s)
{
    uint64_t reach = 0;
    if (!chance(c, &s->corrupt) || (sign(c, ':') && !number(c, SIZE_MAX, &reach)))
        return false;
    s->reach = (size_t)reach;
    return true;
}

#define READ_CHANCE(field)                                                                         \
    static bool read_##field(cursor_t *c, gw__fault_spec_t *s)                                     \
    {                                                                                              \
        return chance(c, &s->field);                                                               \
    }
READ_CHANCE(reorder)
READ_CHANCE(truncate)
READ_CHANCE(drop)
READ_CHANCE(duplicate)

/* RANK@MESSAGES */
#define READ_EVENT(field)                                                                          \
    static bool read_##field(cursor_t *c, gw__fault_spec_t *s)                                     \
    {                                                                                              \
        return rank_number(c, &s->field.rank) && sign(c, '@') &&                                   \
               number(c, UINT64_MAX, &s->field.after);                                             \
    }
READ_EVENT(kill)
READ_EVENT(mute)
READ_EVENT(freeze)

static bool read_error(cursor_t *c, gw__fault_spec_t *s)
{
    return rank_number(c, &s->error.rank) && sign(c, '-') && rank_number(c, &s->error.peer) &&
           s->error.peer != s->error.rank && sign(c, '@') && number(c, UINT64_MAX, &s->error.after);
}

static const struct word {
    const char *key;
    bool (*read)(cursor_t *c, gw__fault_spec_t *s);
    const char *form; /* of its value, for the sentence */
} words[] = {
    {"over", read_over, "the name of a transport other than fault"},
    {"seed", read_seed, "a number"},
    {"only", read_only, "a rank"},
    {"from", read_from, "a number of messages"},
    {"delay", read_delay, "a time like 5ms, and a chance after a colon if not all wait"},
    {"reorder", read_reorder, "a chance of 0 to 1"},
    {"truncate", read_truncate, "a chance of 0 to 1"},
    {"corrupt", read_corrupt, "a chance of 0 to 1, and after a colon the bytes it stays within"},
    {"drop", read_drop, "a chance of 0 to 1"},
    {"duplicate", read_duplicate, "a chance of 0 to 1"},
    {"kill", read_kill, "RANK@MESSAGES"},
    {"mute", read_mute, "RANK@MESSAGES"},
    {"freeze", read_freeze, "RANK@MESSAGES"},
    {"error", read_error, "RANK-RANK@MESSAGES"},
};

static gw_status_t read_item(const char *item, gw__fault_spec_t *s, char *why, size_t why_size)
{
    const char *equals = strchr(item, '=');
    size_t length = equals ? (size_t)(equals - item) : strlen(item);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strlen(words[i].key) != length || memcmp(words[i].key, item, length) != 0)
            continue;
        cursor_t c = {equals ? equals + 1 : ""};
        if (words[i].read(&c, s) && *c.at == '\0')
            return GW_OK;
        snprintf(why, why_size, "\"%s\": %s takes %s", item, words[i].key, words[i].form);
        return GW_ERR_BAD_SETTING;
    }
    snprintf(why, why_size,
             "\"%s\": no such fault; known are over, seed, only, from, delay, reorder, truncate, "
             "corrupt, drop, duplicate, kill, mute, freeze, error",
             item);
    return GW_ERR_BAD_SETTING;
}

gw_status_t gw__fault_parse(const char *text, gw__fault_spec_t *out, char *why, size_t why_size)
{
    gw__fault_spec_t spec = {.over = "ucx",
                             .only = -1,
                             .kill.rank = -1,
                             .mute.rank = -1,
                             .freeze.rank = -1,
                             .error.rank = -1};
    char item[ITEM_MAX + 1];
    for (const char *at = text ? text : ""; *at;) {
        size_t length = strcspn(at, ",");
        if (length > ITEM_MAX || (at[length] == ',' && at[length + 1] == '\0')) {
            snprintf(why, why_size, "\"%.40s\": %s", at,
                     length > ITEM_MAX ? "longer than any fault is" : "ends in a comma");
            return GW_ERR_BAD_SETTING;
        }
        memcpy(item, at, length);
        item[length] = '\0';
        gw_status_t status = read_item(item, &spec, why, why_size);
        if (status != GW_OK)
            return status;
        at += length + (at[length] == ',');
    }
    *out = spec;
    return GW_OK;
}
