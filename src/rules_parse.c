/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a file of rules: one rule a line, `condition ... -> codec`, # begins a comment. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rhythm.h"
#include "rules.h"
#include "settings.h"
#include "text.h"

/* The sentence about a place in the line, from 0. */
static gw_status_t refuse_at(const gw__line_t *line, size_t at, const char *reason)
{
    gw__word_t place = {line->text + at, 0, at + 1};
    return gw__line_refuse(line, &place, reason);
}

/* ---- Conditions ---- */

static bool read_number(const gw__word_t *word, bool bytes, uint64_t *out)
{
    char text[24];
    size_t value;
    if (word->length >= sizeof text || memchr(word->text, '\0', word->length))
        return false;
    memcpy(text, word->text, word->length);
    text[word->length] = '\0';
    if (!bytes && strspn(text, "0123456789") != word->length)
        return false;
    if (gw__parse_bytes(text, &value) != GW_OK)
        return false;
    *out = value;
    return true;
}

/* "4", "4..8", "4.." or "..8". */
static gw_status_t read_range(const gw__line_t *line, const gw__word_t *value, bool bytes,
                              uint64_t least, gw__range_t *out)
{
    gw__range_t range = {least, UINT64_MAX};
    size_t dots = 0;
    while (dots + 1 < value->length && memcmp(value->text + dots, "..", 2) != 0)
        dots++;
    bool open = dots + 1 < value->length;
    gw__word_t from = open ? gw__word_piece(value, 0, dots) : *value;
    gw__word_t to = open ? gw__word_piece(value, dots + 2, value->length) : *value;
    if (from.length + to.length == 0 || (from.length && !read_number(&from, bytes, &range.from)) ||
        (to.length && !read_number(&to, bytes, &range.to)))
        return gw__line_refuse(line, value,
                               bytes ? "wanted bytes or a range of them: 64K, 1M..64M, 1M.., ..64K"
                                     : "wanted a number or a range: 4, 2..8, 4.., ..8");
    if (range.from < least)
        return gw__line_refuse(line, value, "counted from 1");
    if (range.from > range.to)
        return gw__line_refuse(line, value, "a range that ends before it begins");
    *out = range;
    return GW_OK;
}

static gw_status_t read_bytes(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule)
{
    return read_range(line, value, true, 0, &rule->bytes);
}

static gw_status_t read_ranks(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule)
{
    return read_range(line, value, false, 1, &rule->ranks);
}

static gw_status_t read_comm(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule)
{
    return read_range(line, value, false, 0, &rule->comm);
}

static gw_status_t read_slot(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule)
{
    gw_status_t status = read_range(line, value, false, 1, &rule->slot);
    return status == GW_OK && rule->slot.from > GW__PERIOD_MAX
               ? gw__line_refuse(line, value, "a step has at most 1024 numbered calls")
               : status;
}

static gw_status_t read_collective(const gw__line_t *line, const gw__word_t *value,
                                   gw__rule_t *rule)
{
    (void)rule;
    return gw__word_is(value, "allreduce")
               ? GW_OK
               : gw__line_refuse(line, value, "the collective is allreduce");
}

/* "f32" or "f16,bf16". */
static gw_status_t read_dtype(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule)
{
    unsigned dtypes = 0;
    for (size_t from = 0, to; from <= value->length; from = to + 1) {
        for (to = from; to < value->length && value->text[to] != ',';)
            to++;
        gw__word_t name = gw__word_piece(value, from, to);
        int dtype = GW_BF16;
        while (dtype >= 0 && !gw__word_is(&name, gw_dtype_name((gw_dtype_t)dtype)))
            dtype--;
        if (dtype < 0)
            return gw__line_refuse(line, &name,
                                   "must be f32, f16 or bf16: no other type is compressed");
        dtypes |= 1u << dtype;
    }
    rule->dtypes = dtypes;
    return GW_OK;
}

/* A pattern, in quotation marks or without, into `size` bytes. */
static gw_status_t read_pattern(const gw__line_t *line, const gw__word_t *value, char *out,
                                size_t size, const char *too_long)
{
    gw__word_t text;
    if (!gw__word_unquote(value, &text))
        return gw__line_refuse(line, value, "a quotation mark inside of a name");
    if (text.length >= size)
        return gw__line_refuse(line, value, too_long);
    memcpy(out, text.text, text.length);
    out[text.length] = '\0';
    return GW_OK;
}

static gw_status_t read_name(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule)
{
    rule->has_name = true;
    return read_pattern(line, value, rule->name, sizeof rule->name,
                        "longer than 63 bytes, which no name is");
}

static gw_status_t read_tensor(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule)
{
    rule->has_tensor = true;
    return read_pattern(line, value, rule->tensor, sizeof rule->tensor,
                        "longer than 127 bytes; * stands for any characters");
}

/* A range that holds for any tensor does so for tensors only: like tensor=*. */
static gw_status_t read_of_tensor(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule,
                                  gw__range_t *out)
{
    gw_status_t status = read_range(line, value, false, 0, out);
    if (status == GW_OK && !rule->has_tensor && out->from == 0 && out->to == UINT64_MAX) {
        rule->has_tensor = true;
        strcpy(rule->tensor, "*");
    }
    return status;
}

static gw_status_t read_ndim(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule)
{
    return read_of_tensor(line, value, rule, &rule->ndim);
}

static gw_status_t read_elements(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule)
{
    return read_of_tensor(line, value, rule, &rule->elements);
}

static const struct {
    const char *name;
    gw_status_t (*read)(const gw__line_t *line, const gw__word_t *value, gw__rule_t *rule);
} conditions[] = {{"collective", read_collective},
                  {"dtype", read_dtype},
                  {"bytes", read_bytes},
                  {"ranks", read_ranks},
                  {"comm", read_comm},
                  {"name", read_name},
                  {"slot", read_slot},
                  {"tensor", read_tensor},
                  {"ndim", read_ndim},
                  {"elements", read_elements}};
enum { CONDITIONS = sizeof conditions / sizeof conditions[0] };

/* An arrow that is not a word by itself; inside of quotation marks it belongs to a name, and behind
 * what does not print the trouble is another one. */
static gw_status_t check_arrow(const gw__line_t *line, const gw__word_t *word)
{
    bool quoted = false;
    for (size_t i = 0; i + 1 < word->length; i++) {
        quoted ^= word->text[i] == '"';
        if (quoted || memcmp(word->text + i, "->", 2) != 0)
            continue;
        if (i > 0 && !isprint((unsigned char)word->text[i - 1]))
            continue;
        if (i == 0)
            return refuse_at(line, word->column + 1, "a blank is missing behind ->");
        return refuse_at(line, word->column - 1 + i,
                         "a blank is missing before -> (a name that holds it stands in quotation "
                         "marks)");
    }
    return GW_OK;
}

static gw_status_t read_condition(const gw__line_t *line, const gw__word_t *word, unsigned *seen,
                                  gw__rule_t *rule)
{
    const char *sign = memchr(word->text, '=', word->length);
    size_t length = sign ? (size_t)(sign - word->text) : word->length;
    gw__word_t name = gw__word_piece(word, 0, length);
    int i = 0;
    while (i < CONDITIONS && !gw__word_is(&name, conditions[i].name))
        i++;
    if (i == CONDITIONS)
        return gw__line_refuse(
            line, &name,
            "no such condition; there are collective, dtype, bytes, ranks, comm, name, "
            "slot, tensor, ndim and elements, then -> and a codec or exclude");
    if (length + 1 >= word->length)
        return gw__line_refuse(line, word, "a condition is written name=value");
    if (*seen >> i & 1)
        return gw__line_refuse(line, &name, "given twice in one rule");
    *seen |= 1u << i;
    gw__word_t value = gw__word_piece(word, length + 1, word->length);
    return conditions[i].read(line, &value, rule);
}

/* ---- Lines ---- */

static gw_status_t read_target(gw__line_t *line, gw__rule_t *rule)
{
    gw__word_t word;
    char spec[GW_CODEC_SPEC_MAX], reason[320] = "";
    gw_status_t status = gw__line_word(line, &word);
    if (status != GW_OK)
        return status;
    if (word.length == 0)
        return refuse_at(line, word.column - 1, "a codec or exclude is missing behind ->");
    rule->exclude = gw__word_is(&word, "exclude");
    if (word.length >= sizeof spec)
        return gw__line_refuse(line, &word, "longer than any codec specification");
    memcpy(spec, word.text, word.length);
    spec[word.length] = '\0';
    if (!rule->exclude && gw_coder_parse(spec, &rule->coder, reason, sizeof reason) != GW_OK)
        return gw__line_refuse(line, &word, reason);
    return gw__line_end(line, "nothing may follow the codec");
}

/* `found` is false for a line that holds no rule. */
static gw_status_t read_line(gw__line_t *line, gw__rule_t *rule, bool *found)
{
    gw__word_t word;
    unsigned seen = 0;
    const gw__range_t all = {0, UINT64_MAX};
    *rule = (gw__rule_t){.line = line->number,
                         .dtypes = 1 << GW_F32 | 1 << GW_F16 | 1 << GW_BF16,
                         .bytes = all,
                         .ranks = all,
                         .comm = all,
                         .slot = all,
                         .ndim = all,
                         .elements = all};
    *found = false;
    for (;;) {
        gw_status_t status = gw__line_word(line, &word);
        if (status == GW_OK && word.length == 0 && !*found)
            return GW_OK;
        if (status == GW_OK && word.length == 0)
            status = refuse_at(line, word.column - 1, "-> and a codec or exclude are missing");
        *found = true;
        if (status == GW_OK && gw__word_is(&word, "->"))
            return read_target(line, rule);
        if (status == GW_OK)
            status = check_arrow(line, &word);
        if (status == GW_OK)
            status = read_condition(line, &word, &seen, rule);
        if (status != GW_OK)
            return status;
    }
}

static gw_status_t add(gw__rules_t *rules, const gw__line_t *line, const gw__rule_t *rule)
{
    if (rules->count == GW__RULES_MAX)
        return refuse_at(line, 0, "more than 256 rules");
    if (rules->count % 16 == 0) {
        size_t size = (size_t)(rules->count + 16) * sizeof *rules->rule;
        gw__rule_t *more = realloc(rules->rule, size);
        if (!more)
            return GW_ERR_NO_MEMORY;
        rules->rule = more;
    }
    rules->rule[rules->count++] = *rule;
    return GW_OK;
}

static gw_status_t read_rule(gw__line_t *line, void *arg)
{
    gw__rule_t rule;
    bool found = false;
    gw_status_t status = read_line(line, &rule, &found);
    return status == GW_OK && found ? add(arg, line, &rule) : status;
}

gw_status_t gw__rules_parse(const char *text, size_t length, gw__rules_t *out, char *why,
                            size_t why_size)
{
    gw__rules_t rules = {0};
    gw_status_t status = gw__text_lines(text, length, read_rule, &rules, why, why_size);
    if (status != GW_OK) {
        free(rules.rule);
        return status;
    }
    rules.digest = gw__rules_digest(&rules);
    *out = rules;
    return GW_OK;
}
