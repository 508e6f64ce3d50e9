/* SPDX-License-Identifier: Apache-2.0 */
/* Codec specifications: text to coder and back, with errors that say what would be allowed. */
#define _GNU_SOURCE /* strcasestr */
#include "codecs.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the sentence for the user goes; out may be NULL. */
typedef struct reason {
    char *out;
    size_t size;
} reason_t;

static gw_status_t GW_PRINTF(3, 4)
    refuse(const reason_t *why, gw_status_t status, const char *format, ...)
{
    if (why->out && why->size) {
        va_list args;
        va_start(args, format);
        vsnprintf(why->out, why->size, format, args);
        va_end(args);
    }
    return status;
}

/* ---- Numbers ------------------------------------------------------------------------------------
 * Written with a decimal point, whatever locale the process has set.
 */

static double read_real(const char *text, char **end)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(plain);
    double value = strtod(text, end);
    uselocale(before);
    if (plain)
        freelocale(plain);
    return value;
}

static void print_real(double value, char *out, size_t size)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(plain);
    snprintf(out, size, "%.9g", value);
    uselocale(before);
    if (plain)
        freelocale(plain);
}

/* ---- The closest of some words ------------------------------------------------------------------
 */

typedef struct closest {
    const char *given;
    char best[32];
    unsigned distance;
} closest_t;

/* Edit distance; letters that lie near each other count as a nearer mistake (q9 is nearest to q8).
 */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned row[33];
    size_t m = strlen(b);
    for (size_t j = 0; j <= m; j++)
        row[j] = (unsigned)j * 400;
    for (size_t i = 0; a[i]; i++) {
        unsigned diagonal = row[0];
        row[0] += 400;
        for (size_t j = 0; j < m; j++) {
            unsigned change = a[i] == b[j] ? 0 : 400u + (unsigned)abs(a[i] - b[j]) % 256;
            unsigned best = diagonal + change;
            diagonal = row[j + 1];
            best = best < row[j] + 400 ? best : row[j] + 400;
            row[j + 1] = best < diagonal + 400 ? best : diagonal + 400;
        }
    }
    return row[m];
}

static void closest_try(closest_t *c, const char *word, size_t length)
{
    char copy[sizeof c->best];
    if (length >= sizeof copy || strlen(c->given) >= 64)
        return;
    memcpy(copy, word, length);
    copy[length] = 0;
    unsigned distance = edit_distance(c->given, copy);
    if (c->best[0] && distance >= c->distance)
        return;
    c->distance = distance;
    memcpy(c->best, copy, length + 1);
}

/* Tries all words of a list that is separated by one character. */
static void closest_among(closest_t *c, const char *list, char separator)
{
    for (const char *end; *list; list = *end ? end + 1 : end) {
        end = strchr(list, separator);
        if (!end)
            end = list + strlen(list);
        closest_try(c, list, (size_t)(end - list));
    }
}

/* Whether a text for people has this name, in capitals or not: "PowerSGD", and no common word. */
static bool has_name(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = text; (at = strcasestr(at, name)) != NULL; at++)
        if (isupper((unsigned char)*at) && (at == text || !isalnum((unsigned char)at[-1])) &&
            !isalnum((unsigned char)at[length]))
            return true;
    return false;
}

/* A word that stands for a whole family is closer to its codecs than its letters tell: the family's
 * own ("quant"), one that a paper gave it ("powersgd"), the beginning of its names ("fp8"). */
static bool closest_family(closest_t *c, const gw_codec_t *family)
{
    size_t length = strlen(c->given);
    if (length < 3 ||
        (strcmp(c->given, family->family) != 0 && strncmp(c->given, family->names, length) != 0 &&
         !has_name(family->summary, c->given)))
        return false;
    *c->best = 0;
    closest_try(c, family->names, strcspn(family->names, " "));
    return true;
}

/* ---- Names --------------------------------------------------------------------------------------
 */

void gw__coder_defaults(const gw_codec_t *family, gw_coder_t *coder)
{
    memset(coder, 0, sizeof *coder);
    coder->family = family;
    for (size_t i = 0; family->params[i].name; i++) {
        const gw_codec_param_t *p = &family->params[i];
        if (p->type == GW_PARAM_SWITCH)
            coder->value[i] = !strcmp(p->def, "on") || !strcmp(p->def, "1");
        else if (p->type != GW_PARAM_CHOICE) /* the default of a choice is its first word */
            coder->value[i] = read_real(p->def, NULL);
    }
}

static gw_status_t find_family(const char *name, gw_coder_t *out, const reason_t *why)
{
    const gw_codec_t *family;
    closest_t closest = {.given = name};
    char all[256] = "";
    bool found = false;
    for (size_t i = 0; (family = gw_codec_at(i)); i++) {
        gw__coder_defaults(family, out);
        if (family->match(name, out))
            return GW_OK;
        if (!found)
            closest_among(&closest, family->names, ' ');
        found = found || closest_family(&closest, family);
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", used ? " " : "", family->names);
    }
    if (!*name)
        return refuse(why, GW_ERR_NOT_FOUND, "codec name missing; codecs: %s", all);
    if (strchr(name, '='))
        return refuse(why, GW_ERR_NOT_FOUND,
                      "no codec '%.40s'; parameters follow a colon, as in q4:bucket=64,ef=off",
                      name);
    return refuse(why, GW_ERR_NOT_FOUND, "no codec '%.40s'; closest: '%s'; codecs: %s", name,
                  closest.best, all);
}

static gw_status_t find_param(const gw_codec_t *family, const char *name, const char *key,
                              size_t *index, const reason_t *why)
{
    closest_t closest = {.given = key};
    char all[256] = "";
    for (size_t i = 0; family->params[i].name; i++) {
        if (!strcmp(family->params[i].name, key)) {
            *index = i;
            return GW_OK;
        }
        closest_try(&closest, family->params[i].name, strlen(family->params[i].name));
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", family->params[i].name);
    }
    if (!all[0])
        return refuse(why, GW_ERR_BAD_SETTING, "'%.40s': codec %s has no parameters", key, name);
    return refuse(why, GW_ERR_BAD_SETTING,
                  "codec %s has no parameter '%.40s'; closest: '%s'; parameters: %s", name, key,
                  closest.best, all);
}

/* ---- Values -------------------------------------------------------------------------------------
 */

static bool read_choice(const char *choices, const char *text, double *out)
{
    size_t length = strlen(text);
    int index = 0;
    if (strchr(text, '|'))
        return false;
    for (const char *at = choices; at; at = strchr(at, '|'), index++) {
        at += *at == '|';
        if (length && !strncmp(at, text, length) && (at[length] == '|' || !at[length])) {
            *out = index;
            return true;
        }
    }
    return false;
}

/* Reals have the nine digits that their printed form has: what is printed reads back to the bit. */
static bool read_number(const gw_codec_param_t *p, const char *text, double *out)
{
    char *end, digits[40];
    if (text[0] == '\0' || !strchr("0123456789.-", text[0]) || strpbrk(text, "xXpP"))
        return false;
    if (p->type == GW_PARAM_INT && strspn(text, "-0123456789") != strlen(text))
        return false;
    *out = read_real(text, &end);
    if (*end || !isfinite(*out) || *out < p->min || *out > p->max)
        return false;
    if (p->type == GW_PARAM_REAL) {
        print_real(*out, digits, sizeof digits);
        *out = read_real(digits, NULL);
    }
    return true;
}

static gw_status_t read_value(const gw_codec_param_t *p, const char *text, double *out,
                              const reason_t *why)
{
    switch (p->type) {
    case GW_PARAM_SWITCH:
        *out = !strcmp(text, "on") || !strcmp(text, "1");
        if (*out || !strcmp(text, "off") || !strcmp(text, "0"))
            return GW_OK;
        return refuse(why, GW_ERR_BAD_SETTING, "%s=%.40s: allowed are on and off", p->name, text);
    case GW_PARAM_CHOICE:
        if (read_choice(p->choices, text, out))
            return GW_OK;
        return refuse(why, GW_ERR_BAD_SETTING, "%s=%.40s: allowed is one of %s", p->name, text,
                      p->choices);
    default:
        if (read_number(p, text, out))
            return GW_OK;
        if (p->type == GW_PARAM_INT)
            return refuse(why, GW_ERR_BAD_SETTING,
                          "%s=%.40s: allowed is a whole number from %.0f to %.0f", p->name, text,
                          p->min, p->max);
        return refuse(why, GW_ERR_BAD_SETTING, "%s=%.40s: allowed is a number from %.9g to %.9g",
                      p->name, text, p->min, p->max);
    }
}

static void print_value(const gw_codec_param_t *p, double value, char *out, size_t size)
{
    if (p->type == GW_PARAM_SWITCH) {
        bool digit = !strcmp(p->def, "0") || !strcmp(p->def, "1");
        snprintf(out, size, "%s", digit ? (value != 0 ? "1" : "0") : value != 0 ? "on" : "off");
    } else if (p->type == GW_PARAM_CHOICE) {
        const char *at = p->choices;
        for (int i = 0; i < (int)value && strchr(at, '|'); i++)
            at = strchr(at, '|') + 1;
        snprintf(out, size, "%.*s", (int)strcspn(at, "|"), at);
    } else if (p->type == GW_PARAM_INT) {
        snprintf(out, size, "%.0f", value);
    } else {
        print_real(value, out, size);
    }
}

void gw__coder_print(gw_coder_t *coder)
{
    const gw_codec_t *family = coder->family;
    gw_coder_t plain; /* what the bare name means */
    gw__coder_defaults(family, &plain);
    family->name(coder, coder->spec, sizeof coder->spec);
    family->match(coder->spec, &plain);
    char separator = ':';
    for (size_t i = 0; family->params[i].name; i++) {
        char text[48];
        if (coder->value[i] == plain.value[i])
            continue;
        print_value(&family->params[i], coder->value[i], text, sizeof text);
        size_t used = strlen(coder->spec);
        snprintf(coder->spec + used, sizeof coder->spec - used, "%c%s=%s", separator,
                 family->params[i].name, text);
        separator = ',';
    }
}

/* ---- Specifications -----------------------------------------------------------------------------
 */

/* Whether the coder is still the one that was named: `topk` may become `topk+q8`, `q4` never q3.
 * `was`: the name that it had before its parameters. */
static gw_status_t check_name(const gw_coder_t *coder, const char *was, const char *key,
                              const char *value, const reason_t *why)
{
    char now[GW_CODEC_SPEC_MAX];
    coder->family->name(coder, now, sizeof now);
    if (!strncmp(now, was, strlen(was)))
        return GW_OK;
    return refuse(why, GW_ERR_BAD_SETTING, "%s=%.40s: %.40s says otherwise; what is meant is %s",
                  key, value, was, now);
}

/* `text` is "key=value,key=value"; it is cut up in place. */
static gw_status_t parse_params(gw_coder_t *coder, const char *name, char *text,
                                const reason_t *why)
{
    bool seen[GW_CODEC_MAX_PARAMS] = {false};
    char was[GW_CODEC_SPEC_MAX];
    coder->family->name(coder, was, sizeof was);
    for (char *next; text; text = next) {
        next = strchr(text, ',');
        if (next)
            *next++ = 0;
        char *value = strchr(text, '=');
        if (!value || value == text)
            return refuse(why, GW_ERR_BAD_SETTING, "'%.40s': a parameter is written key=value",
                          text);
        *value++ = 0;
        size_t i = 0;
        gw_status_t status = find_param(coder->family, name, text, &i, why);
        if (!status && seen[i])
            status = refuse(why, GW_ERR_BAD_SETTING, "%s is given twice", text);
        if (!status)
            status = read_value(&coder->family->params[i], value, &coder->value[i], why);
        if (!status)
            status = check_name(coder, was, text, value, why);
        if (status)
            return status;
        seen[i] = true;
    }
    return GW_OK;
}

/* `params` is what stands behind "auto:", or NULL. */
static gw_status_t resolve_auto(const char *params, const char **spec, const reason_t *why)
{
    gw_codec_param_t bits = {"bits", GW_PARAM_REAL, "4", 0, 32, NULL, NULL};
    double budget = 0;
    if (!params)
        return refuse(why, GW_ERR_BAD_SETTING,
                      "auto needs a budget, the bits that an element may take: auto:bits=4");
    if (strncmp(params, "bits=", 5) != 0 || strchr(params, ','))
        return refuse(why, GW_ERR_BAD_SETTING,
                      "'%.40s': auto has one parameter, bits, as in auto:bits=4; other parameters "
                      "belong to a codec that is named",
                      params);
    gw_codec_budget_at(0, &bits.min);
    gw_status_t status = read_value(&bits, params + strlen("bits="), &budget, why);
    if (!status)
        *spec = gw__budget_find(budget);
    return status;
}

gw_status_t gw_coder_parse(const char *spec, gw_coder_t *out, char *why_out, size_t why_size)
{
    reason_t why = {why_out, why_size};
    char copy[GW_CODEC_SPEC_MAX], reason[256] = "";
    gw_coder_t coder;
    if (!spec)
        return refuse(&why, GW_ERR_INVALID, "no codec specification given");
    if (strlen(spec) >= sizeof copy)
        return refuse(&why, GW_ERR_BAD_SETTING, "codec specification longer than %d characters",
                      GW_CODEC_SPEC_MAX - 1);
    memcpy(copy, spec, strlen(spec) + 1);
    char *params = strchr(copy, ':');
    if (params)
        *params++ = 0;
    if (!strcmp(copy, "auto")) {
        gw_status_t status = resolve_auto(params, &spec, &why);
        return status ? status : gw_coder_parse(spec, out, why_out, why_size);
    }
    gw_status_t status = find_family(copy, &coder, &why);
    if (!status && params)
        status = parse_params(&coder, copy, params, &why);
    if (status)
        return status;
    if (coder.family->check && coder.family->check(&coder, reason, sizeof reason))
        return refuse(&why, GW_ERR_BAD_SETTING, "%s", reason);
    gw__coder_print(&coder);
    *out = coder;
    return GW_OK;
}

double gw_coder_get(const gw_coder_t *coder, const char *param, double otherwise)
{
    for (size_t i = 0; coder->family->params[i].name; i++)
        if (!strcmp(coder->family->params[i].name, param))
            return coder->value[i];
    return otherwise;
}
