/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the settings: defaults, then the environment, then what the caller overrides. */
#include "settings.h"

#include "fault.h"
#include "frame.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/topology_int.h"

extern char **environ;

static const struct {
    const char *name, *def, *type, *help;
} table[GW__SETTING_COUNT] = {
#define ROW(id, name, def, type, help) {name, def, type, help},
    GW__SETTINGS_TABLE(ROW)
#undef ROW
};

/* Names with our prefix that belong to scripts or to single transports, not to this table. */
static const char *const foreign[] = {"GRADWIRE_UCX_", "GRADWIRE_BUILD"};

static bool is_foreign(const char *entry)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (strncmp(entry, foreign[i], strlen(foreign[i])) == 0)
            return true;
    return false;
}

static int find(const char *name, size_t length)
{
    for (int i = 0; i < GW__SETTING_COUNT; i++)
        if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0)
            return i;
    return -1;
}

/* Levenshtein distance of two short names; the longer part beyond 63 characters is ignored. */
static int distance(const char *a, size_t na, const char *b)
{
    int row[64];
    size_t nb = strlen(b);
    nb = nb > 63 ? 63 : nb;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[nb];
}

static const char *closest(const char *name, size_t length)
{
    int best = 0, best_distance = 1 << 20;
    for (int i = 0; i < GW__SETTING_COUNT; i++) {
        int d = distance(name, length, table[i].name);
        if (d < best_distance) {
            best = i;
            best_distance = d;
        }
    }
    return table[best].name;
}

static void set(gw__settings_t *s, int id, const char *value, gw__origin_t origin)
{
    snprintf(s->text[id], sizeof s->text[id], "%s", value);
    s->origin[id] = origin;
}

static void note_unknown(gw__settings_t *s, const char *entry, size_t length)
{
    size_t used = strlen(s->unknown);
    snprintf(s->unknown + used, sizeof s->unknown - used, "%s%.*s (did you mean %s?)",
             used ? ", " : "", (int)length, entry, closest(entry, length));
}

static void too_long(int id, char *why, size_t why_size)
{
    snprintf(why, why_size, "%s: value longer than %d bytes", table[id].name,
             GW__SETTING_TEXT_MAX - 1);
}

static gw_status_t read_environment(gw__settings_t *s, char *why, size_t why_size)
{
    /* Modules exchange the array for a moment while they are loaded, maybe in another thread. */
    for (char **e = __atomic_load_n(&environ, __ATOMIC_ACQUIRE); e && *e; e++) {
        const char *equals = strchr(*e, '=');
        if (!equals || strncmp(*e, "GRADWIRE_", 9) != 0 || is_foreign(*e))
            continue;
        size_t length = (size_t)(equals - *e);
        int id = find(*e, length);
        if (id < 0) {
            note_unknown(s, *e, length);
        } else if (strlen(equals + 1) >= GW__SETTING_TEXT_MAX) {
            too_long(id, why, why_size);
            return GW_ERR_BAD_SETTING;
        } else if (equals[1] != '\0') {
            set(s, id, equals + 1, GW__FROM_ENVIRONMENT);
        }
    }
    return GW_OK;
}

static gw_status_t read_overrides(gw__settings_t *s, const gw_setting_t *overrides, size_t count,
                                  char *why, size_t why_size)
{
    for (size_t i = 0; i < count; i++) {
        if (!overrides[i].name || !overrides[i].value) {
            snprintf(why, why_size, "setting %zu: has no name or no value", i);
            return GW_ERR_BAD_SETTING;
        }
        int id = find(overrides[i].name, strlen(overrides[i].name));
        if (id < 0 || strlen(overrides[i].value) >= GW__SETTING_TEXT_MAX) {
            if (id < 0)
                snprintf(why, why_size, "%s: no such setting, did you mean %s?", overrides[i].name,
                         closest(overrides[i].name, strlen(overrides[i].name)));
            else
                too_long(id, why, why_size);
            return GW_ERR_BAD_SETTING;
        }
        set(s, id, overrides[i].value, GW__FROM_OVERRIDE);
    }
    return GW_OK;
}

/* Digits at the start of `text`; not strtoull, which takes blanks, signs and wraps "-1" round. */
static bool parse_digits(const char *text, uint64_t *value, const char **end)
{
    char *stop;
    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    *value = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

/* "12" or "0.5": not strtod, which reads the decimal point of the process's locale. */
static bool parse_seconds(const char *text, double *out)
{
    const char *end;
    uint64_t whole;
    if (!parse_digits(text, &whole, &end))
        return false;
    double value = (double)whole, unit = 0.1;
    if (*end == '.')
        for (end++; isdigit((unsigned char)*end); end++, unit /= 10)
            value += unit * (*end - '0');
    *out = value;
    return *end == '\0';
}

gw_status_t gw__parse_bytes(const char *text, size_t *out)
{
    const char *end;
    uint64_t value;
    if (!parse_digits(text, &value, &end))
        return GW_ERR_BAD_SETTING;
    unsigned shift = 0;
    if (*end == 'K' || *end == 'k')
        shift = 10;
    else if (*end == 'M' || *end == 'm')
        shift = 20;
    else if (*end == 'G' || *end == 'g')
        shift = 30;
    end += shift > 0;
    if (*end != '\0' || value > (SIZE_MAX >> 1 >> shift))
        return GW_ERR_BAD_SETTING;
    *out = (size_t)value << shift;
    return GW_OK;
}

/* "5000-5100", or one port. */
static bool parse_ports(const char *text, int *min, int *max)
{
    const char *end;
    uint64_t from, to;
    if (!parse_digits(text, &from, &end))
        return false;
    to = from;
    if (*end == '-' && !parse_digits(end + 1, &to, &end))
        return false;
    if (*end != '\0' || from < 1 || to > 65535 || from > to)
        return false;
    *min = (int)from;
    *max = (int)to;
    return true;
}

/* The position of `text` in a list "a|b|c", or -1. */
static int choice(const char *text, const char *list)
{
    size_t length = strlen(text);
    for (int i = 0; *list; i++) {
        size_t word = strcspn(list, "|");
        if (word == length && memcmp(list, text, length) == 0)
            return i;
        list += word + (list[word] == '|');
    }
    return -1;
}

static gw_status_t bad(const gw__settings_t *s, gw__setting_id_t id, const char *allowed, char *why,
                       size_t size)
{
    snprintf(why, size, "%s=%s: %s", table[id].name, s->text[id], allowed);
    return GW_ERR_BAD_SETTING;
}

static gw_status_t parse_choices(gw__settings_t *s, char *why, size_t size)
{
    static const gw__setting_id_t ids[] = {
        GW__SETTING_GATE,    GW__SETTING_PLAN,      GW__SETTING_LOG,
        GW__SETTING_DISABLE, GW__SETTING_TRANSPORT, GW__SETTING_CHECKSUM,
        GW__SETTING_GUARD,   GW__SETTING_DEVICE,    GW__SETTING_RESIDUALS};
    int value[GW__SETTING_COUNT] = {0};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        value[ids[i]] = choice(s->text[ids[i]], table[ids[i]].type);
        if (value[ids[i]] < 0) {
            char allowed[128];
            snprintf(allowed, sizeof allowed, "must be one of %s", table[ids[i]].type);
            return bad(s, ids[i], allowed, why, size);
        }
    }
    s->plan = (gw__plan_setting_t)value[GW__SETTING_PLAN];
    s->log_level = (gw_log_level_t)value[GW__SETTING_LOG];
    s->disabled = value[GW__SETTING_DISABLE] == 1;
    s->checksum = value[GW__SETTING_CHECKSUM] == 1;
    s->guard = value[GW__SETTING_GUARD] == 1;
    s->residuals = (gw__residuals_t)value[GW__SETTING_RESIDUALS];
    s->device = value[GW__SETTING_DEVICE] == 0;
    return GW_OK;
}

/* A quarter of the machine's memory: residuals take as much as the gradients that they belong to.
 */
static size_t default_residual_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages / 4 * (size_t)page : (size_t)1 << 30;
}

static gw_status_t parse_numbers(gw__settings_t *s, char *why, size_t size)
{
    if (gw__parse_bytes(s->text[GW__SETTING_MIN_BYTES], &s->min_bytes) != GW_OK)
        return bad(s, GW__SETTING_MIN_BYTES, "must be a number of bytes, like 65536 or 64K", why,
                   size);
    s->residual_bytes = default_residual_bytes();
    if (s->text[GW__SETTING_RESIDUAL_BYTES][0] != '\0' &&
        gw__parse_bytes(s->text[GW__SETTING_RESIDUAL_BYTES], &s->residual_bytes) != GW_OK)
        return bad(s, GW__SETTING_RESIDUAL_BYTES, "must be a number of bytes, like 4G", why, size);
    const char *end;
    uint64_t threads = 0;
    bool automatic = strcmp(s->text[GW__SETTING_THREADS], "auto") == 0;
    if (!automatic && (!parse_digits(s->text[GW__SETTING_THREADS], &threads, &end) ||
                       *end != '\0' || threads > GW__THREADS_MAX))
        return bad(s, GW__SETTING_THREADS, "must be auto or a number of 0 to 64", why, size);
    s->threads = automatic ? -1 : (int)threads;
    if (!parse_digits(s->text[GW__SETTING_SEED], &s->seed, &end) || *end != '\0')
        return bad(s, GW__SETTING_SEED, "must be a number of 0 to 2^64-1", why, size);
    if (s->text[GW__SETTING_PORTS][0] != '\0' &&
        !parse_ports(s->text[GW__SETTING_PORTS], &s->port_min, &s->port_max))
        return bad(s, GW__SETTING_PORTS, "must be a range of ports, like 5000-5100", why, size);
    if (!parse_seconds(s->text[GW__SETTING_TIMEOUT], &s->timeout) || s->timeout < 0.1 ||
        s->timeout > 1e6)
        return bad(s, GW__SETTING_TIMEOUT, "must be seconds, 0.1 to 1000000", why, size);
    return GW_OK;
}

/* The names of the codecs that can be summed without decoding, as in "raw or randomk". */
static void name_merging(char *out, size_t size)
{
    const gw_codec_t *family;
    size_t used = 0, last = 0;
    for (size_t i = 0; (family = gw_codec_at(i)) != NULL && used < size; i++) {
        if (!family->merge)
            continue;
        last = used;
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", family->names);
    }
    if (last > 0 && used + 2 < size) {
        memmove(out + last + 4, out + last + 2, used - last - 1);
        memcpy(out + last, " or ", 4);
    }
}

gw_status_t gw__settings_allow(const gw__settings_t *s, const gw_coder_t *coder, char *why,
                               size_t why_size)
{
    if (s->plan < GW__PLAN_ONLY_RING || gw__frame_merges(coder, GW_F32) || coder->family->factors)
        return GW_OK;
    char names[128] = "";
    name_merging(names, sizeof names);
    snprintf(why, why_size,
             "sums are made without decoding, which the codec %s does not allow; use the codec %s, "
             "or GRADWIRE_PLAN=auto",
             coder->spec, names);
    return GW_ERR_BAD_SETTING;
}

gw_status_t gw__settings_read(gw__settings_t *out, const gw_setting_t *overrides, size_t count,
                              char *why, size_t why_size)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < GW__SETTING_COUNT; i++)
        set(out, i, table[i].def, GW__FROM_DEFAULT);
    gw_status_t status = read_environment(out, why, why_size);
    if (status == GW_OK)
        status = read_overrides(out, overrides, count, why, why_size);
    if (status == GW_OK)
        status = parse_choices(out, why, why_size);
    if (status == GW_OK)
        status = parse_numbers(out, why, why_size);
    if (status != GW_OK)
        return status;
    gw__ifilter_t filter;
    status = gw__ifilter_parse(out->text[GW__SETTING_INTERFACES], &filter, why, why_size);
    if (status != GW_OK)
        return status;
    char reason[320], allowed[384];
    if (gw_coder_parse(out->text[GW__SETTING_CODEC], &out->coder, reason, sizeof reason) != GW_OK)
        return bad(out, GW__SETTING_CODEC, reason, why, why_size);
    if (gw__settings_allow(out, &out->coder, allowed, sizeof allowed) != GW_OK)
        return bad(out, GW__SETTING_PLAN, allowed, why, why_size);
    gw__fault_spec_t faults;
    if (gw__fault_parse(out->text[GW__SETTING_FAULT], &faults, reason, sizeof reason) != GW_OK)
        return bad(out, GW__SETTING_FAULT, reason, why, why_size);
    return GW_OK;
}
