/* SPDX-License-Identifier: Apache-2.0 */
/* The settings that ranks must share: as text, and compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context_internal.h"

static const char *byte_order(void)
{
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? "little" : "big";
}

gw_status_t gw_context_agreement(const gw_context_t *context, char *out, size_t size)
{
    const gw__settings_t *s = &context->settings;
    char rules[48] = "none", layouts[64] = "";
    if (context->rules.count > 0)
        snprintf(rules, sizeof rules, "%d rules %016llx", context->rules.count,
                 (unsigned long long)context->rules.digest);
    /* Only where there are some: without, the text is that of versions that know no layouts. */
    if (context->layouts.count > 0)
        snprintf(layouts, sizeof layouts, ";GRADWIRE_LAYOUT=%d buffers %016llx",
                 context->layouts.count, (unsigned long long)context->layouts.digest);
    int used = snprintf(
        out, size,
        "version=%s;wire=%d;byte_order=%s;codec=%s;min_bytes=%zu;gate=%s;plan=%s;seed=%llu;"
        "transport=%s;disable=%d;GRADWIRE_CONFIG=%s%s",
        GW_VERSION, GW_WIRE_REVISION, byte_order(), s->coder.spec, s->min_bytes,
        s->text[GW__SETTING_GATE], s->text[GW__SETTING_PLAN], (unsigned long long)s->seed,
        s->text[GW__SETTING_TRANSPORT], s->disabled, rules, layouts);
    return used < 0 || (size_t)used >= size ? GW_ERR_NO_SPACE : GW_OK;
}

/* One "key=value" of an agreement text. */
typedef struct field {
    const char *key;
    size_t key_length;
    const char *value;
    size_t value_length;
} field_t;

static bool next_field(const char **cursor, field_t *out)
{
    const char *at = *cursor;
    if (*at == '\0')
        return false;
    size_t length = strcspn(at, ";");
    const char *equals = memchr(at, '=', length);
    out->key = at;
    out->key_length = equals ? (size_t)(equals - at) : length;
    out->value = equals ? equals + 1 : at + length;
    out->value_length = (size_t)(at + length - out->value);
    *cursor = at + length + (at[length] == ';');
    return true;
}

static bool find_field(const char *text, const field_t *key, field_t *out)
{
    while (next_field(&text, out))
        if (out->key_length == key->key_length && memcmp(out->key, key->key, key->key_length) == 0)
            return true;
    return false;
}

/* Bytes of "0.1" in "0.1.7"; all of what is no version. */
static size_t minor_length(const field_t *version)
{
    size_t dots = 0;
    for (size_t i = 0; i < version->value_length; i++) {
        dots += version->value[i] == '.';
        if (dots == 2)
            return i;
    }
    return version->value_length;
}

/* Whether two values of one key go together: equal ones, and versions that differ behind the second
 * number. */
static bool goes_with(const field_t *a, const field_t *b)
{
    size_t length_a = a->value_length, length_b = b->value_length;
    if (a->key_length == 7 && memcmp(a->key, "version", 7) == 0) {
        length_a = minor_length(a);
        length_b = minor_length(b);
    }
    return length_a == length_b && memcmp(a->value, b->value, length_a) == 0;
}

/* Whether all fields of both texts go together, in one order. */
static bool alike(const char *x, const char *y)
{
    field_t a, b;
    if (strcmp(x, y) == 0)
        return true;
    for (;;) {
        bool more_x = next_field(&x, &a), more_y = next_field(&y, &b);
        if (!more_x || !more_y)
            return more_x == more_y;
        if (a.key_length != b.key_length || memcmp(a.key, b.key, a.key_length) != 0 ||
            !goes_with(&a, &b))
            return false;
    }
}

static void append(char *out, size_t size, const char *format, ...) GW_PRINTF(3, 4);
static void append(char *out, size_t size, const char *format, ...)
{
    size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    if (used < size)
        vsnprintf(out + used, size - used, format, args);
    va_end(args);
}

/* Tells in which fields `mine` (of `rank`) and `common` (first seen on rank `other`) differ. */
static void explain(const char *mine, const char *common, int rank, int other, char *why,
                    size_t size)
{
    field_t a, b;
    size_t before = strlen(why);
    for (const char *cursor = mine; next_field(&cursor, &a);) {
        bool there = find_field(common, &a, &b);
        if (there && goes_with(&a, &b))
            continue;
        append(why, size, "; rank %d has %.*s=%.*s", rank, (int)a.key_length, a.key,
               (int)a.value_length, a.value);
        if (there)
            append(why, size, ", rank %d %.*s", other, (int)b.value_length, b.value);
    }
    for (const char *cursor = common; next_field(&cursor, &b);)
        if (!find_field(mine, &b, &a))
            append(why, size, "; rank %d does not have %.*s=%.*s of rank %d", rank,
                   (int)b.key_length, b.key, (int)b.value_length, b.value, other);
    /* Only a text that no Gradwire makes: its fields twice, or in another order. */
    if (strlen(why) == before)
        append(why, size, "; rank %d writes its settings in another form than rank %d", rank,
               other);
}

/* The first rank that has the text that most ranks have (the first such text on a tie), so that the
 * odd rank out is the one named. */
static int majority(const char *const *texts, int size)
{
    int best = 0, best_votes = 0;
    for (int i = 0; i < size; i++) {
        int votes = 0;
        if (texts[i][0] == '\0')
            continue;
        for (int j = 0; j < size; j++)
            votes += texts[j][0] && alike(texts[i], texts[j]);
        if (votes > best_votes) {
            best_votes = votes;
            best = i;
        }
        if (votes > size / 2)
            break;
    }
    return best;
}

gw_status_t gw_agreement_compare(const char *const *texts, int size, char *why, size_t why_size)
{
    char unused[1];
    if (!why || why_size == 0) {
        why = unused;
        why_size = sizeof unused;
    }
    why[0] = '\0';
    int model = majority(texts, size);
    const char *common = texts[model];
    int differ = 0, without = 0;
    for (int i = 0; i < size; i++) {
        if (common[0] && texts[i][0] && alike(texts[i], common))
            continue;
        /* A list of all ranks would be of no use to anybody: name the first few. */
        bool absent = texts[i][0] == '\0';
        if (differ + without < 4) {
            if (absent)
                append(why, why_size, "; rank %d runs without Gradwire", i);
            else
                explain(texts[i], common, i, model, why, why_size);
        }
        without += absent;
        differ += !absent;
    }
    if (differ + without == 0)
        return GW_OK;
    if (differ + without > 4)
        append(why, why_size, "; and %d more ranks differ", differ + without - 4);
    if (strncmp(why, "; ", 2) == 0)
        memmove(why, why + 2, strlen(why + 2) + 1);
    return GW_ERR_SETTINGS_DIFFER;
}
