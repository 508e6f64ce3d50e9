/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a file of rules: one rule a line, `condition ... -> codec`, # begins a comment. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rules.h"
#include "settings.h"

/* One line, and where the sentence about it goes. */
typedef struct reader {
    const char *text;
    size_t length, at;
    int line;
    char *why;
    size_t why_size;
} reader_t;

typedef struct word {
    const char *text;
    size_t length, column; /* column from 1 */
} word_t;

/* ---- Errors ---- */

/* What is shown of a word: its beginning, without what does not print. */
static void show(const word_t *word, char *out, size_t size)
{
    size_t length = word->length < size - 1 ? word->length : size - 1;
    for (size_t i = 0; i < length; i++)
        out[i] = isprint((unsigned char)word->text[i]) ? word->text[i] : '?';
    out[length] = '\0';
}

static gw_status_t refuse(const reader_t *r, const word_t *word, const char *reason)
{
    char shown[48];
    show(word, shown, sizeof shown);
    snprintf(r->why, r->why_size, "line %d, column %zu: '%s': %s", r->line, word->column, shown,
             reason);
    return GW_ERR_BAD_SETTING;
}

static gw_status_t refuse_at(const reader_t *r, size_t at, const char *reason)
{
    snprintf(r->why, r->why_size, "line %d, column %zu: %s", r->line, at + 1, reason);
    return GW_ERR_BAD_SETTING;
}

/* ---- Words ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word: to the next blank outside of quotation marks. length 0: no more on this line. */
static gw_status_t next_word(reader_t *r, word_t *out)
{
    bool quoted = false;
    while (r->at < r->length && is_blank(r->text[r->at]))
        r->at++;
    *out = (word_t){r->text + r->at, 0, r->at + 1};
    if (r->at == r->length || r->text[r->at] == '#')
        return GW_OK;
    while (r->at < r->length && (quoted || !is_blank(r->text[r->at])))
        quoted ^= r->text[r->at++] == '"';
    out->length = (size_t)(r->text + r->at - out->text);
    return quoted ? refuse(r, out, "a quotation mark is not closed") : GW_OK;
}

static bool equals(const word_t *word, const char *text)
{
    return strlen(text) == word->length && memcmp(text, word->text, word->length) == 0;
}

/* A piece of a word. */
static word_t piece(const word_t *word, size_t from, size_t to)
{
    return (word_t){word->text + from, to - from, word->column + from};
}

/* ---- Conditions ---- */

static bool read_number(const word_t *word, bool bytes, uint64_t *out)
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
static gw_status_t read_range(const reader_t *r, const word_t *value, bool bytes, uint64_t least,
                              gw__range_t *out)
{
    gw__range_t range = {least, UINT64_MAX};
    size_t dots = 0;
    while (dots + 1 < value->length && memcmp(value->text + dots, "..", 2) != 0)
        dots++;
    bool open = dots + 1 < value->length;
    word_t from = open ? piece(value, 0, dots) : *value;
    word_t to = open ? piece(value, dots + 2, value->length) : *value;
    if (from.length + to.length == 0 || (from.length && !read_number(&from, bytes, &range.from)) ||
        (to.length && !read_number(&to, bytes, &range.to)))
        return refuse(r, value,
                      bytes ? "wanted bytes or a range of them: 64K, 1M..64M, 1M.., ..64K"
                            : "wanted a number or a range: 4, 2..8, 4.., ..8");
    if (range.from < least)
        return refuse(r, value, "counted from 1");
    if (range.from > range.to)
        return refuse(r, value, "a range that ends before it begins");
    *out = range;
    return GW_OK;
}

static gw_status_t read_bytes(const reader_t *r, const word_t *value, gw__rule_t *rule)
{
    return read_range(r, value, true, 0, &rule->bytes);
}

static gw_status_t read_ranks(const reader_t *r, const word_t *value, gw__rule_t *rule)
{
    return read_range(r, value, false, 0, &rule->ranks);
}

static gw_status_t read_comm(const reader_t *r, const word_t *value, gw__rule_t *rule)
{
    return read_range(r, value, false, 0, &rule->comm);
}

static gw_status_t read_slot(const reader_t *r, const word_t *value, gw__rule_t *rule)
{
    return read_range(r, value, false, 1, &rule->slot);
}

static gw_status_t read_collective(const reader_t *r, const word_t *value, gw__rule_t *rule)
{
    (void)rule;
    return equals(value, "allreduce") ? GW_OK : refuse(r, value, "the collective is allreduce");
}

/* "f32" or "f16,bf16". */
static gw_status_t read_dtype(const reader_t *r, const word_t *value, gw__rule_t *rule)
{
    unsigned dtypes = 0;
    for (size_t from = 0, to; from <= value->length; from = to + 1) {
        for (to = from; to < value->length && value->text[to] != ',';)
            to++;
        word_t name = piece(value, from, to);
        int dtype = GW_BF16;
        while (dtype >= 0 && !equals(&name, gw_dtype_name((gw_dtype_t)dtype)))
            dtype--;
        if (dtype < 0)
            return refuse(r, &name, "must be f32, f16 or bf16: no other type is compressed");
        dtypes |= 1u << dtype;
    }
    rule->dtypes = dtypes;
    return GW_OK;
}

/* A pattern, in quotation marks or without, into `size` bytes. */
static gw_status_t read_pattern(const reader_t *r, const word_t *value, char *out, size_t size,
                                const char *too_long)
{
    word_t text = *value;
    bool quoted = text.length >= 2 && text.text[0] == '"' && text.text[text.length - 1] == '"';
    if (quoted)
        text = piece(value, 1, value->length - 1);
    if (memchr(text.text, '"', text.length))
        return refuse(r, value, "a quotation mark inside of a name");
    if (text.length >= size)
        return refuse(r, value, too_long);
    memcpy(out, text.text, text.length);
    out[text.length] = '\0';
    return GW_OK;
}

static gw_status_t read_name(const reader_t *r, const word_t *value, gw__rule_t *rule)
{
    rule->has_name = true;
    return read_pattern(r, value, rule->name, sizeof rule->name,
                        "longer than 63 bytes, which no name is");
}

static gw_status_t read_tensor(const reader_t *r, const word_t *value, gw__rule_t *rule)
{
    rule->has_tensor = true;
    return read_pattern(r, value, rule->tensor, sizeof rule->tensor,
                        "longer than 127 bytes; * stands for any characters");
}

/* A range that holds for any tensor does so for tensors only: like tensor=*. */
static gw_status_t read_of_tensor(const reader_t *r, const word_t *value, gw__rule_t *rule,
                                  gw__range_t *out)
{
    gw_status_t status = read_range(r, value, false, 0, out);
    if (status == GW_OK && !rule->has_tensor && out->from == 0 && out->to == UINT64_MAX) {
        rule->has_tensor = true;
        strcpy(rule->tensor, "*");
    }
    return status;
}

static gw_status_t read_ndim(const reader_t *r, const word_t *value, gw__rule_t *rule)
{
    return read_of_tensor(r, value, rule, &rule->ndim);
}

static gw_status_t read_elements(const reader_t *r, const word_t *value, gw__rule_t *rule)
{
    return read_of_tensor(r, value, rule, &rule->elements);
}

static const struct {
    const char *name;
    gw_status_t (*read)(const reader_t *r, const word_t *value, gw__rule_t *rule);
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
static gw_status_t check_arrow(const reader_t *r, const word_t *word)
{
    bool quoted = false;
    for (size_t i = 0; i + 1 < word->length; i++) {
        quoted ^= word->text[i] == '"';
        if (quoted || memcmp(word->text + i, "->", 2) != 0)
            continue;
        if (i > 0 && !isprint((unsigned char)word->text[i - 1]))
            continue;
        if (i == 0)
            return refuse_at(r, word->column + 1, "a blank is missing behind ->");
        return refuse_at(r, word->column - 1 + i,
                         "a blank is missing before -> (a name that holds it stands in quotation "
                         "marks)");
    }
    return GW_OK;
}

static gw_status_t read_condition(const reader_t *r, const word_t *word, unsigned *seen,
                                  gw__rule_t *rule)
{
    const char *sign = memchr(word->text, '=', word->length);
    size_t length = sign ? (size_t)(sign - word->text) : word->length;
    word_t name = piece(word, 0, length);
    int i = 0;
    while (i < CONDITIONS && !equals(&name, conditions[i].name))
        i++;
    if (i == CONDITIONS)
        return refuse(r, &name,
                      "no such condition; there are collective, dtype, bytes, ranks, comm, name, "
                      "slot, tensor, ndim and elements, then -> and a codec or exclude");
    if (length + 1 >= word->length)
        return refuse(r, word, "a condition is written name=value");
    if (*seen >> i & 1)
        return refuse(r, &name, "given twice in one rule");
    *seen |= 1u << i;
    word_t value = piece(word, length + 1, word->length);
    return conditions[i].read(r, &value, rule);
}

/* ---- Lines ---- */

static gw_status_t read_target(reader_t *r, gw__rule_t *rule)
{
    word_t word, rest;
    char spec[GW_CODEC_SPEC_MAX], reason[256] = "";
    gw_status_t status = next_word(r, &word);
    if (status != GW_OK)
        return status;
    if (word.length == 0)
        return refuse_at(r, word.column - 1, "a codec or exclude is missing behind ->");
    rule->exclude = equals(&word, "exclude");
    if (word.length >= sizeof spec)
        return refuse(r, &word, "longer than any codec specification");
    memcpy(spec, word.text, word.length);
    spec[word.length] = '\0';
    if (!rule->exclude && gw_coder_parse(spec, &rule->coder, reason, sizeof reason) != GW_OK)
        return refuse(r, &word, reason);
    status = next_word(r, &rest);
    if (status == GW_OK && rest.length > 0)
        status = refuse(r, &rest, "nothing may follow the codec");
    return status;
}

/* `found` is false for a line that holds no rule. */
static gw_status_t read_line(reader_t *r, gw__rule_t *rule, bool *found)
{
    word_t word;
    unsigned seen = 0;
    const gw__range_t all = {0, UINT64_MAX};
    *rule = (gw__rule_t){.line = r->line,
                         .dtypes = 1 << GW_F32 | 1 << GW_F16 | 1 << GW_BF16,
                         .bytes = all,
                         .ranks = all,
                         .comm = all,
                         .slot = all,
                         .ndim = all,
                         .elements = all};
    *found = false;
    for (;;) {
        gw_status_t status = next_word(r, &word);
        if (status == GW_OK && word.length == 0 && !*found)
            return GW_OK;
        if (status == GW_OK && word.length == 0)
            status = refuse_at(r, word.column - 1, "-> and a codec or exclude are missing");
        *found = true;
        if (status == GW_OK && equals(&word, "->"))
            return read_target(r, rule);
        if (status == GW_OK)
            status = check_arrow(r, &word);
        if (status == GW_OK)
            status = read_condition(r, &word, &seen, rule);
        if (status != GW_OK)
            return status;
    }
}

/* Text has no control characters but the tab, and the one that some systems end lines with. */
static gw_status_t check_bytes(const reader_t *r)
{
    if (r->length > GW__RULES_LINE_MAX)
        return refuse_at(r, GW__RULES_LINE_MAX, "a line longer than 1024 bytes");
    for (size_t i = 0; i < r->length; i++) {
        unsigned char c = (unsigned char)r->text[i];
        bool end = c == '\r' && i + 1 == r->length;
        if ((c < ' ' && c != '\t' && !end) || c == 0x7F)
            return refuse_at(r, i, "a character that is not text");
    }
    return GW_OK;
}

static gw_status_t add(gw__rules_t *rules, const reader_t *r, const gw__rule_t *rule)
{
    if (rules->count == GW__RULES_MAX)
        return refuse_at(r, 0, "more than 256 rules");
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

gw_status_t gw__rules_parse(const char *text, size_t length, gw__rules_t *out, char *why,
                            size_t why_size)
{
    gw__rules_t rules = {0};
    gw_status_t status = GW_OK;
    reader_t r = {.text = text, .why = why, .why_size = why_size};
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* the mark of some editors */
        text += 3;
        length -= 3;
    }
    for (size_t at = 0; at < length && status == GW_OK; at += r.length + 1) {
        const char *end = memchr(text + at, '\n', length - at);
        gw__rule_t rule;
        bool found = false;
        r = (reader_t){.text = text + at,
                       .length = end ? (size_t)(end - text) - at : length - at,
                       .line = r.line + 1,
                       .why = why,
                       .why_size = why_size};
        status = check_bytes(&r);
        if (status == GW_OK)
            status = read_line(&r, &rule, &found);
        if (status == GW_OK && found)
            status = add(&rules, &r, &rule);
    }
    if (status != GW_OK) {
        free(rules.rule);
        return status;
    }
    rules.digest = gw__rules_digest(&rules);
    *out = rules;
    return GW_OK;
}
