/* SPDX-License-Identifier: Apache-2.0 */
/* Rules as objects: reading a file, matching a call, printing, the digest that ranks compare. */
#include "rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "text.h"

enum { ALL_DTYPES = 1 << GW_F32 | 1 << GW_F16 | 1 << GW_BF16 };

/* ---- Matching ---- */

static bool within(const gw__range_t *range, uint64_t value)
{
    return value >= range->from && value <= range->to;
}

/* Whether `name` is what the pattern says. Goes back to the last * only: short texts, no recursion.
 */
static bool fits(const char *pattern, const char *name)
{
    const char *star = NULL, *retry = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            retry = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static bool asked(const gw__range_t *range)
{
    return range->from != 0 || range->to != UINT64_MAX;
}

bool gw__rule_names_tensors(const gw__rule_t *rule)
{
    return rule->has_tensor || asked(&rule->ndim) || asked(&rule->elements);
}

static bool matches(const gw__rule_t *rule, const gw_call_t *call, const gw_comm_facts_t *facts)
{
    return (rule->dtypes >> call->dtype & 1) &&
           within(&rule->bytes, (uint64_t)call->count * gw_dtype_size(call->dtype)) &&
           within(&rule->ranks, (uint64_t)facts->size) && within(&rule->comm, facts->order) &&
           within(&rule->slot, (uint64_t)facts->slot) &&
           (!rule->has_name || fits(rule->name, facts->name ? facts->name : ""));
}

const gw__rule_t *gw__rules_match(const gw__rules_t *rules, const gw_call_t *call,
                                  const gw_comm_facts_t *facts)
{
    if ((unsigned)call->dtype > GW_F64)
        return NULL;
    for (int i = 0; i < rules->count; i++)
        if (!gw__rule_names_tensors(&rules->rule[i]) && matches(&rules->rule[i], call, facts))
            return &rules->rule[i];
    return NULL;
}

static bool matches_tensor(const gw__rule_t *rule, const gw_tensor_t *tensor)
{
    return within(&rule->ndim, (uint64_t)tensor->ndim) &&
           within(&rule->elements, gw__tensor_elements(tensor)) &&
           (!rule->has_tensor || fits(rule->tensor, tensor->name));
}

const gw__rule_t *gw__rules_match_tensor(const gw__rules_t *rules, const gw_call_t *call,
                                         const gw_comm_facts_t *facts, const gw_tensor_t *tensor)
{
    if ((unsigned)call->dtype > GW_F64)
        return NULL;
    for (int i = 0; i < rules->count; i++)
        if (matches_tensor(&rules->rule[i], tensor) && matches(&rules->rule[i], call, facts))
            return &rules->rule[i];
    return NULL;
}

unsigned gw__rules_facts(const gw__rules_t *rules)
{
    unsigned facts = 0;
    for (int i = 0; i < rules->count; i++) {
        const gw__rule_t *rule = &rules->rule[i];
        facts |= rule->has_name || asked(&rule->comm) ? GW_RULE_COMM : 0u;
        facts |= asked(&rule->slot) ? GW_RULE_SLOT : 0u;
    }
    return facts;
}

/* ---- Printing ---- */

static void append(char *out, size_t size, const char *format, ...) GW_PRINTF(3, 4);
static void append(char *out, size_t size, const char *format, ...)
{
    size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + used, size - used, format, args);
    va_end(args);
}

/* In the largest unit that divides it, where the number is one of bytes. */
static void append_number(char *out, size_t size, uint64_t value, bool bytes)
{
    static const char units[] = "KMG";
    int unit = 0;
    while (bytes && unit < 3 && value > 0 && value % 1024 == 0) {
        value /= 1024;
        unit++;
    }
    append(out, size, "%llu", (unsigned long long)value);
    if (unit > 0)
        append(out, size, "%c", units[unit - 1]);
}

static void append_range(char *out, size_t size, const char *name, const gw__range_t *range)
{
    bool bytes = name[0] == 'b';
    if (!asked(range))
        return;
    append(out, size, "%s=", name);
    if (range->from != 0 || range->to == 0)
        append_number(out, size, range->from, bytes);
    if (range->from != range->to)
        append(out, size, "..");
    if (range->from != range->to && range->to != UINT64_MAX)
        append_number(out, size, range->to, bytes);
    append(out, size, " ");
}

static void append_dtypes(char *out, size_t size, unsigned dtypes)
{
    if (dtypes == ALL_DTYPES)
        return;
    const char *separator = "dtype=";
    for (int i = 0; i <= GW_BF16; i++)
        if (dtypes >> i & 1) {
            append(out, size, "%s%s", separator, gw_dtype_name((gw_dtype_t)i));
            separator = ",";
        }
    append(out, size, " ");
}

void gw__rule_print(const gw__rule_t *rule, char *out, size_t size)
{
    if (size == 0)
        return;
    out[0] = '\0';
    append_dtypes(out, size, rule->dtypes);
    append_range(out, size, "bytes", &rule->bytes);
    append_range(out, size, "ranks", &rule->ranks);
    append_range(out, size, "comm", &rule->comm);
    if (rule->has_name)
        append(out, size, "name=\"%s\" ", rule->name);
    append_range(out, size, "slot", &rule->slot);
    if (rule->has_tensor)
        append(out, size, "tensor=\"%s\" ", rule->tensor);
    append_range(out, size, "ndim", &rule->ndim);
    append_range(out, size, "elements", &rule->elements);
    append(out, size, "-> %s", rule->exclude ? "exclude" : rule->coder.spec);
}

/* ---- Reading ---- */

uint64_t gw__rules_digest(const gw__rules_t *rules)
{
    char text[GW__RULES_TEXT_MAX];
    uint64_t hash = (uint64_t)rules->count;
    for (int i = 0; i < rules->count; i++) {
        gw__rule_print(&rules->rule[i], text, sizeof text);
        hash = gw__mix64(hash ^ gw__hash_text(text));
    }
    return hash;
}

gw_status_t gw__rules_read(const char *path, gw__rules_t *out, char *why, size_t why_size)
{
    size_t length = 0;
    char *text = gw__text_load(path, GW__RULES_FILE_MAX, &length, why, why_size);
    if (!text)
        return GW_ERR_BAD_SETTING;
    gw_status_t status = gw__rules_parse(text, length, out, why, why_size);
    free(text);
    return status;
}

void gw__rules_free(gw__rules_t *rules)
{
    free(rules->rule);
    *rules = (gw__rules_t){0};
}
