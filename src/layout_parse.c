/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a file of layouts: `buffer ELEMENTS [slot=N]`, then its tensors, one a line,
 * `tensor NAME SHAPE [at=OFFSET]`; # begins a comment. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layouts.h"
#include "rules.h"

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

/* The buffer that the lines are about. */
typedef struct draft {
    size_t elements, end; /* end: of its tensors so far */
    long slot;
    int line; /* 0: none was begun */
    gw_tensor_t *tensor;
    size_t count, capacity;
} draft_t;

/* ---- Words ---- */

static gw_status_t refuse(const reader_t *r, const word_t *word, const char *reason)
{
    char shown[48];
    size_t length = word->length < sizeof shown - 1 ? word->length : sizeof shown - 1;
    for (size_t i = 0; i < length; i++)
        shown[i] = isprint((unsigned char)word->text[i]) ? word->text[i] : '?';
    shown[length] = '\0';
    if (length > 0)
        snprintf(r->why, r->why_size, "line %d, column %zu: '%s': %s", r->line, word->column, shown,
                 reason);
    else
        snprintf(r->why, r->why_size, "line %d, column %zu: %s", r->line, word->column, reason);
    return GW_ERR_BAD_SETTING;
}

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

static word_t piece(const word_t *word, size_t from, size_t to)
{
    return (word_t){word->text + from, to - from, word->column + from};
}

/* Decimal digits, and nothing else. */
static bool read_number(const word_t *word, size_t *out)
{
    size_t value = 0;
    for (size_t i = 0; i < word->length; i++) {
        unsigned digit = (unsigned)(unsigned char)word->text[i] - '0';
        if (digit > 9 || value > ((SIZE_MAX >> 4) - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return word->length > 0;
}

/* "slot=3": the number behind the sign. False when the word is another one. */
static bool read_option(const word_t *word, const char *name, word_t *value)
{
    size_t length = strlen(name);
    if (word->length < length || memcmp(word->text, name, length) != 0)
        return false;
    *value = piece(word, length, word->length);
    return true;
}

static gw_status_t end_of_line(reader_t *r, const char *reason)
{
    word_t rest;
    gw_status_t status = next_word(r, &rest);
    return status == GW_OK && rest.length > 0 ? refuse(r, &rest, reason) : status;
}

/* ---- Buffers ---- */

/* The buffer that ends here goes to the list. */
static gw_status_t close_draft(const reader_t *r, draft_t *draft, gw__layouts_t *out)
{
    char reason[256] = "";
    gw_layout_t *layout;
    if (draft->line == 0)
        return GW_OK;
    gw_status_t status = gw_layout_create(draft->elements, draft->tensor, draft->count, &layout,
                                          reason, sizeof reason);
    if (status == GW_ERR_INVALID) {
        snprintf(r->why, r->why_size, "line %d, column 1: the buffer that begins here: %s",
                 draft->line, reason);
        return GW_ERR_BAD_SETTING;
    }
    if (status == GW_OK && gw__layouts_set(out, draft->elements, draft->slot, layout) != GW_OK) {
        gw_layout_free(layout);
        status = GW_ERR_NO_MEMORY;
    }
    if (status == GW_OK)
        out->entry[out->count - 1].line = draft->line;
    return status;
}

static void forget_tensors(draft_t *draft)
{
    for (size_t i = 0; i < draft->count; i++)
        free((char *)draft->tensor[i].name);
    draft->count = 0;
}

/* Whether these calls have a layout already. */
static gw_status_t check_new(const reader_t *r, const word_t *word, const draft_t *draft,
                             const gw__layouts_t *out)
{
    for (int i = 0; i < out->count; i++) {
        char reason[96];
        if (gw_layout_elements(out->entry[i].layout) != draft->elements ||
            out->entry[i].slot != draft->slot)
            continue;
        snprintf(reason, sizeof reason,
                 "described in line %d already; slot=N tells equal sizes apart",
                 out->entry[i].line);
        return refuse(r, word, reason);
    }
    if (out->count == GW__LAYOUTS_MAX)
        return refuse(r, word, "more than 1024 buffers");
    return GW_OK;
}

static gw_status_t read_buffer(reader_t *r, draft_t *draft, gw__layouts_t *out)
{
    word_t size, option, value;
    size_t slot = 0;
    gw_status_t status = close_draft(r, draft, out);
    forget_tensors(draft);
    draft->line = 0;
    if (status == GW_OK)
        status = next_word(r, &size);
    if (status == GW_OK && (!read_number(&size, &draft->elements) || draft->elements == 0))
        status = refuse(r, &size, "wanted the number of elements of the buffer");
    if (status == GW_OK)
        status = next_word(r, &option);
    if (status == GW_OK && option.length > 0 &&
        (!read_option(&option, "slot=", &value) || !read_number(&value, &slot) || slot == 0 ||
         slot > 1024))
        status = refuse(r, &option, "only slot=N may follow, a place of 1 to 1024");
    if (status == GW_OK)
        status = end_of_line(r, "nothing may follow");
    draft->slot = (long)slot;
    if (status == GW_OK)
        status = check_new(r, &size, draft, out);
    draft->end = 0;
    draft->line = status == GW_OK ? r->line : 0;
    return status;
}

/* ---- Tensors ---- */

/* "64x3x7x7", or "scalar". */
static gw_status_t read_shape(const reader_t *r, const word_t *word, gw_tensor_t *tensor)
{
    tensor->ndim = 0;
    if (equals(word, "scalar"))
        return GW_OK;
    for (size_t from = 0, to; from <= word->length; from = to + 1) {
        for (to = from; to < word->length && word->text[to] != 'x';)
            to++;
        word_t number = piece(word, from, to);
        if (tensor->ndim == GW_TENSOR_DIMS_MAX)
            return refuse(r, word, "more than 8 dimensions");
        if (!read_number(&number, &tensor->dim[tensor->ndim]) || tensor->dim[tensor->ndim] == 0)
            return refuse(r, word, "wanted a shape: 64x3x7x7, 64 or scalar");
        tensor->ndim++;
    }
    return GW_OK;
}

/* The name, malloc'ed; with or without quotation marks. */
static gw_status_t read_name(const reader_t *r, const word_t *word, const char **out)
{
    word_t text = *word;
    if (text.length == 0)
        return refuse(r, word, "wanted the name of a tensor, then its shape");
    if (text.length >= 2 && text.text[0] == '"' && text.text[text.length - 1] == '"')
        text = piece(word, 1, word->length - 1);
    if (memchr(text.text, '"', text.length))
        return refuse(r, word, "a quotation mark inside of a name");
    if (text.length >= GW_TENSOR_NAME_MAX)
        return refuse(r, word, "longer than 255 bytes, which no name is");
    *out = strndup(text.text, text.length);
    return *out ? GW_OK : GW_ERR_NO_MEMORY;
}

static gw_status_t grow(draft_t *draft)
{
    if (draft->count < draft->capacity)
        return GW_OK;
    size_t capacity = draft->capacity ? 2 * draft->capacity : 64;
    gw_tensor_t *more = realloc(draft->tensor, capacity * sizeof *more);
    if (!more)
        return GW_ERR_NO_MEMORY;
    draft->tensor = more;
    draft->capacity = capacity;
    return GW_OK;
}

/* What gw_layout_create would refuse is refused here, where the line is known. */
static gw_status_t place(const reader_t *r, const word_t *shape, const word_t *at, draft_t *draft,
                         gw_tensor_t *tensor)
{
    size_t size = gw__tensor_elements(tensor);
    if (size == 0)
        return refuse(r, shape, "more elements than memory has");
    if (tensor->offset < draft->end)
        return refuse(r, at, "before the end of the tensors above it");
    if (tensor->offset > draft->elements || size > draft->elements - tensor->offset) {
        char reason[128];
        snprintf(reason, sizeof reason,
                 "does not fit: %zu elements from %zu on, and the buffer has %zu", size,
                 tensor->offset, draft->elements);
        return refuse(r, shape, reason);
    }
    if (draft->count == GW_LAYOUT_TENSORS_MAX)
        return refuse(r, shape, "more than 65536 tensors in a buffer");
    draft->end = tensor->offset + size;
    return grow(draft);
}

static gw_status_t read_tensor(reader_t *r, const word_t *first, draft_t *draft)
{
    word_t name, shape, at, value;
    gw_tensor_t tensor = {.offset = draft->end};
    if (draft->line == 0)
        return refuse(r, first, "a line with buffer and its elements comes before its tensors");
    gw_status_t status = next_word(r, &name);
    if (status == GW_OK)
        status = next_word(r, &shape);
    if (status == GW_OK)
        status = read_shape(r, &shape, &tensor);
    if (status == GW_OK)
        status = next_word(r, &at);
    if (status == GW_OK && at.length > 0 &&
        (!read_option(&at, "at=", &value) || !read_number(&value, &tensor.offset)))
        status = refuse(r, &at, "only at=N may follow, the element with which the tensor begins");
    if (status == GW_OK)
        status = end_of_line(r, "nothing may follow");
    if (status == GW_OK)
        status = place(r, &shape, &at, draft, &tensor);
    if (status == GW_OK)
        status = read_name(r, &name, &tensor.name);
    if (status == GW_OK)
        draft->tensor[draft->count++] = tensor;
    return status;
}

/* ---- Lines ---- */

/* Text has no control characters but the tab, and the one that some systems end lines with. */
static gw_status_t check_bytes(const reader_t *r)
{
    word_t at = {r->text, 0, 1};
    if (r->length > GW__LAYOUTS_LINE_MAX)
        return refuse(r, &at, "a line longer than 1024 bytes");
    for (size_t i = 0; i < r->length; i++) {
        unsigned char c = (unsigned char)r->text[i];
        at.column = i + 1;
        if ((c < ' ' && c != '\t' && !(c == '\r' && i + 1 == r->length)) || c == 0x7F)
            return refuse(r, &at, "a character that is not text");
    }
    return GW_OK;
}

static gw_status_t read_line(reader_t *r, draft_t *draft, gw__layouts_t *out)
{
    word_t word;
    gw_status_t status = check_bytes(r);
    if (status == GW_OK)
        status = next_word(r, &word);
    if (status != GW_OK || word.length == 0)
        return status;
    if (equals(&word, "buffer"))
        return read_buffer(r, draft, out);
    if (equals(&word, "tensor"))
        return read_tensor(r, &word, draft);
    return refuse(r, &word, "a line begins with buffer or with tensor");
}

gw_status_t gw__layouts_parse(const char *text, size_t length, gw__layouts_t *out, char *why,
                              size_t why_size)
{
    gw__layouts_t layouts = {0};
    draft_t draft = {0};
    gw_status_t status = GW_OK;
    reader_t r = {.text = text, .why = why, .why_size = why_size};
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* the mark of some editors */
        text += 3;
        length -= 3;
    }
    for (size_t at = 0; at < length && status == GW_OK; at += r.length + 1) {
        const char *end = memchr(text + at, '\n', length - at);
        r = (reader_t){.text = text + at,
                       .length = end ? (size_t)(end - text) - at : length - at,
                       .line = r.line + 1,
                       .why = why,
                       .why_size = why_size};
        status = read_line(&r, &draft, &layouts);
    }
    if (status == GW_OK)
        status = close_draft(&r, &draft, &layouts);
    forget_tensors(&draft);
    free(draft.tensor);
    if (status == GW_OK)
        *out = layouts;
    else
        gw__layouts_free(&layouts);
    return status;
}

gw_status_t gw__layouts_read(const char *path, gw__layouts_t *out, char *why, size_t why_size)
{
    size_t length = 0;
    char *text = gw__text_load(path, GW__LAYOUTS_FILE_MAX, &length, why, why_size);
    if (!text)
        return GW_ERR_BAD_SETTING;
    gw_status_t status = gw__layouts_parse(text, length, out, why, why_size);
    free(text);
    return status;
}
