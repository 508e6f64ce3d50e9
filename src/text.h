/* SPDX-License-Identifier: Apache-2.0 */
/* The files that users write for Gradwire, rules and layouts: their lines, the words of a line, and
 * the sentence that says where one is wrong. # begins a comment. */
#ifndef GW_SRC_TEXT_H
#define GW_SRC_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include <gradwire/status.h>

enum { GW__TEXT_LINE_MAX = 1024 }; /* bytes of one line */

/* A line, how far it was read, and where the sentence about it goes. */
typedef struct gw__line {
    const char *text;
    size_t length, at;
    int number; /* from 1 */
    char *why;
    size_t why_size;
} gw__line_t;

typedef struct gw__word {
    const char *text;
    size_t length, column; /* column from 1 */
} gw__word_t;

/* A whole file of at most `most` bytes, malloc'ed, no NUL behind it. NULL with a sentence in
 * `why`: not there, not a regular file, too long, or memory. */
char *gw__text_load(const char *path, size_t most, size_t *length, char *why, size_t why_size);

/*
 * Calls `read` for each line of the text, until one fails. A line that is too long or holds what is
 * not text is refused before. The mark that some editors put at the head of UTF-8 is passed over.
 */
gw_status_t gw__text_lines(const char *text, size_t length,
                           gw_status_t (*read)(gw__line_t *line, void *arg), void *arg, char *why,
                           size_t why_size);

/* The next word: to the next blank outside of quotation marks. Length 0: no more on this line. */
gw_status_t gw__line_word(gw__line_t *line, gw__word_t *out);

/* Fails with `reason` when another word follows. */
gw_status_t gw__line_end(gw__line_t *line, const char *reason);

/* The sentence about a word, or with length 0 about the place where one is missing; returns
 * GW_ERR_BAD_SETTING. What does not print is shown as '?'. */
gw_status_t gw__line_refuse(const gw__line_t *line, const gw__word_t *word, const char *reason);

bool gw__word_is(const gw__word_t *word, const char *text);

/* The bytes of a word from `from` to before `to`. */
gw__word_t gw__word_piece(const gw__word_t *word, size_t from, size_t to);

/* Takes quotation marks off; false when one stands inside of the word. */
bool gw__word_unquote(const gw__word_t *word, gw__word_t *out);

#endif
