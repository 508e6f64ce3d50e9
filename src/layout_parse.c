/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a file of layouts: `buffer ELEMENTS [slot=N]`, then its tensors, one a line,
 * `tensor NAME SHAPE [at=OFFSET]`; # begins a comment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layouts.h"
#include "text.h"

/* What was read, and the buffer that the lines are about. */
typedef struct draft {
    gw__layouts_t done;
    size_t elements, end; /* end: of its tensors so far */
    long slot;
    int line; /* 0: none was begun */
    gw_tensor_t *tensor;
    size_t count, capacity;
    char *why;
    size_t why_size;
} draft_t;

/* ---- Numbers ---- */

/* Decimal digits, and nothing else. */
static bool read_number(const gw__word_t *word, size_t *out)
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
static bool read_option(const gw__word_t *word, const char *name, gw__word_t *value)
{
    size_t length = strlen(name);
    if (word->length < length || memcmp(word->text, name, length) != 0)
        return false;
    *value = gw__word_piece(word, length, word->length);
    return true;
}

/* ---- Buffers ---- */

/* The buffer that ends here goes to the list. */
static gw_status_t close_draft(draft_t *draft)
{
    char reason[256] = "";
    gw_layout_t *layout;
    if (draft->line == 0)
        return GW_OK;
    gw_status_t status = gw_layout_create(draft->elements, draft->tensor, draft->count, &layout,
                                          reason, sizeof reason);
    if (status == GW_ERR_INVALID) {
        snprintf(draft->why, draft->why_size, "line %d, column 1: the buffer that begins here: %s",
                 draft->line, reason);
        return GW_ERR_BAD_SETTING;
    }
    if (status == GW_OK &&
        gw__layouts_set(&draft->done, draft->elements, draft->slot, layout) != GW_OK) {
        gw_layout_free(layout);
        status = GW_ERR_NO_MEMORY;
    }
    if (status == GW_OK)
        draft->done.entry[draft->done.count - 1].line = draft->line;
    return status;
}

static void forget_tensors(draft_t *draft)
{
    for (size_t i = 0; i < draft->count; i++)
        free((char *)draft->tensor[i].name);
    draft->count = 0;
}

/* Whether these calls have a layout already. */
static gw_status_t check_new(const gw__line_t *line, const gw__word_t *word, const draft_t *draft)
{
    const gw__layouts_t *done = &draft->done;
    for (int i = 0; i < done->count; i++) {
        char reason[96];
        if (gw_layout_elements(done->entry[i].layout) != draft->elements ||
            done->entry[i].slot != draft->slot)
            continue;
        snprintf(reason, sizeof reason,
                 "described in line %d already; slot=N tells equal sizes apart",
                 done->entry[i].line);
        return gw__line_refuse(line, word, reason);
    }
    if (done->count == GW__LAYOUTS_MAX)
        return gw__line_refuse(line, word, "more than 1024 buffers");
    return GW_OK;
}

static gw_status_t read_buffer(gw__line_t *line, draft_t *draft)
{
    gw__word_t size, option, value;
    size_t slot = 0;
    gw_status_t status = close_draft(draft);
    forget_tensors(draft);
    draft->line = 0;
    if (status == GW_OK)
        status = gw__line_word(line, &size);
    if (status == GW_OK && (!read_number(&size, &draft->elements) || draft->elements == 0))
        status = gw__line_refuse(line, &size, "wanted the number of elements of the buffer");
    if (status == GW_OK)
        status = gw__line_word(line, &option);
    if (status == GW_OK && option.length > 0 &&
        (!read_option(&option, "slot=", &value) || !read_number(&value, &slot) || slot == 0 ||
         slot > 1024))
        status = gw__line_refuse(line, &option, "only slot=N may follow, a place of 1 to 1024");
    if (status == GW_OK)
        status = gw__line_end(line, "nothing may follow");
    draft->slot = (long)slot;
    if (status == GW_OK)
        status = check_new(line, &size, draft);
    draft->end = 0;
    draft->line = status == GW_OK ? line->number : 0;
    return status;
}

/* ---- Tensors ---- */

/* "64x3x7x7", or "scalar". */
static gw_status_t read_shape(const gw__line_t *line, const gw__word_t *word, gw_tensor_t *tensor)
{
    tensor->ndim = 0;
    if (gw__word_is(word, "scalar"))
        return GW_OK;
    for (size_t from = 0, to; from <= word->length; from = to + 1) {
        for (to = from; to < word->length && word->text[to] != 'x';)
            to++;
        gw__word_t number = gw__word_piece(word, from, to);
        if (tensor->ndim == GW_TENSOR_DIMS_MAX)
            return gw__line_refuse(line, word, "more than 8 dimensions");
        if (!read_number(&number, &tensor->dim[tensor->ndim]) || tensor->dim[tensor->ndim] == 0)
            return gw__line_refuse(line, word, "wanted a shape: 64x3x7x7, 64 or scalar");
        tensor->ndim++;
    }
    return GW_OK;
}

/* The name, malloc'ed; with or without quotation marks. */
static gw_status_t read_name(const gw__line_t *line, const gw__word_t *word, const char **out)
{
    gw__word_t text;
    if (word->length == 0)
        return gw__line_refuse(line, word, "wanted the name of a tensor, then its shape");
    if (!gw__word_unquote(word, &text))
        return gw__line_refuse(line, word, "a quotation mark inside of a name");
    if (text.length >= GW_TENSOR_NAME_MAX)
        return gw__line_refuse(line, word, "longer than 255 bytes, which no name is");
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
static gw_status_t place(const gw__line_t *line, const gw__word_t *shape, const gw__word_t *at,
                         draft_t *draft, gw_tensor_t *tensor)
{
    size_t size = gw__tensor_elements(tensor);
    if (size == 0)
        return gw__line_refuse(line, shape, "more elements than memory has");
    if (tensor->offset < draft->end)
        return gw__line_refuse(line, at, "before the end of the tensors above it");
    if (tensor->offset > draft->elements || size > draft->elements - tensor->offset) {
        char reason[128];
        snprintf(reason, sizeof reason,
                 "does not fit: %zu elements from %zu on, and the buffer has %zu", size,
                 tensor->offset, draft->elements);
        return gw__line_refuse(line, shape, reason);
    }
    if (draft->count == GW_LAYOUT_TENSORS_MAX)
        return gw__line_refuse(line, shape, "more than 65536 tensors in a buffer");
    draft->end = tensor->offset + size;
    return grow(draft);
}

static gw_status_t read_tensor(gw__line_t *line, const gw__word_t *first, draft_t *draft)
{
    gw__word_t name, shape, at, value;
    gw_tensor_t tensor = {.offset = draft->end};
    if (draft->line == 0)
        return gw__line_refuse(line, first,
                               "a line with buffer and its elements comes before its tensors");
    gw_status_t status = gw__line_word(line, &name);
    if (status == GW_OK)
        status = gw__line_word(line, &shape);
    if (status == GW_OK)
        status = read_shape(line, &shape, &tensor);
    if (status == GW_OK)
        status = gw__line_word(line, &at);
    if (status == GW_OK && at.length > 0 &&
        (!read_option(&at, "at=", &value) || !read_number(&value, &tensor.offset)))
        status = gw__line_refuse(line, &at,
                                 "only at=N may follow, the element with which the tensor begins");
    if (status == GW_OK)
        status = gw__line_end(line, "nothing may follow");
    if (status == GW_OK)
        status = place(line, &shape, &at, draft, &tensor);
    if (status == GW_OK)
        status = read_name(line, &name, &tensor.name);
    if (status == GW_OK)
        draft->tensor[draft->count++] = tensor;
    return status;
}

/* ---- Lines ---- */

static gw_status_t read_line(gw__line_t *line, void *arg)
{
    draft_t *draft = arg;
    gw__word_t word;
    gw_status_t status = gw__line_word(line, &word);
    if (status != GW_OK || word.length == 0)
        return status;
    if (gw__word_is(&word, "buffer"))
        return read_buffer(line, draft);
    if (gw__word_is(&word, "tensor"))
        return read_tensor(line, &word, draft);
    return gw__line_refuse(line, &word, "a line begins with buffer or with tensor");
}

gw_status_t gw__layouts_parse(const char *text, size_t length, gw__layouts_t *out, char *why,
                              size_t why_size)
{
    draft_t draft = {.why = why, .why_size = why_size};
    gw_status_t status = gw__text_lines(text, length, read_line, &draft, why, why_size);
    if (status == GW_OK)
        status = close_draft(&draft);
    forget_tensors(&draft);
    free(draft.tensor);
    if (status == GW_OK)
        *out = draft.done;
    else
        gw__layouts_free(&draft.done);
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
    if (status != GW_OK || out->count > 0)
        return status;
    snprintf(why, why_size,
             "no buffer is described; a line with buffer and its elements begins one");
    return GW_ERR_BAD_SETTING;
}
