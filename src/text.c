/* SPDX-License-Identifier: Apache-2.0 */
/* Lines and words of the files that users write. */
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- A file ---- */

/* At most `size` bytes; more in the file shows as `size`. -1 with errno. */
static ssize_t read_all(int fd, char *out, size_t size)
{
    size_t used = 0;
    while (used < size) {
        ssize_t got = read(fd, out + used, size - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

char *gw__text_load(const char *path, size_t most, size_t *length, char *why, size_t why_size)
{
    struct stat info;
    char *text = NULL;
    ssize_t got = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &info) != 0) {
        snprintf(why, why_size, "cannot be read: %s", strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        snprintf(why, why_size, "is not a file of text");
    } else if (!(text = malloc(most + 1))) {
        snprintf(why, why_size, "out of memory");
    } else if ((got = read_all(fd, text, most + 1)) < 0) {
        snprintf(why, why_size, "cannot be read: %s", strerror(errno));
    } else if ((size_t)got > most) {
        snprintf(why, why_size, "is larger than %zu bytes", most);
        got = -1;
    }
    if (fd >= 0)
        close(fd);
    if (got < 0) {
        free(text);
        return NULL;
    }
    *length = (size_t)got;
    return text;
}

/* ---- Lines ---- */

/* Text has no control characters but the tab, and the one that some systems end lines with. */
static gw_status_t check_bytes(const gw__line_t *line)
{
    if (line->length > GW__TEXT_LINE_MAX) {
        gw__word_t end = {line->text, 0, GW__TEXT_LINE_MAX + 1};
        return gw__line_refuse(line, &end, "a line longer than 1024 bytes");
    }
    for (size_t i = 0; i < line->length; i++) {
        unsigned char c = (unsigned char)line->text[i];
        bool end = c == '\r' && i + 1 == line->length;
        gw__word_t at = {line->text + i, 0, i + 1};
        if ((c < ' ' && c != '\t' && !end) || c == 0x7F)
            return gw__line_refuse(line, &at, "a character that is not text");
    }
    return GW_OK;
}

gw_status_t gw__text_lines(const char *text, size_t length,
                           gw_status_t (*read)(gw__line_t *line, void *arg), void *arg, char *why,
                           size_t why_size)
{
    gw_status_t status = GW_OK;
    gw__line_t line = {.why = why, .why_size = why_size};
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        length -= 3;
    }
    for (size_t at = 0; at < length && status == GW_OK; at += line.length + 1) {
        const char *end = memchr(text + at, '\n', length - at);
        line.text = text + at;
        line.length = end ? (size_t)(end - text) - at : length - at;
        line.at = 0;
        line.number++;
        status = check_bytes(&line);
        if (status == GW_OK)
            status = read(&line, arg);
    }
    return status;
}

gw_status_t gw__line_refuse(const gw__line_t *line, const gw__word_t *word, const char *reason)
{
    char shown[48];
    size_t length = word->length < sizeof shown - 1 ? word->length : sizeof shown - 1;
    for (size_t i = 0; i < length; i++)
        shown[i] = isprint((unsigned char)word->text[i]) ? word->text[i] : '?';
    shown[length] = '\0';
    if (length > 0)
        snprintf(line->why, line->why_size, "line %d, column %zu: '%s': %s", line->number,
                 word->column, shown, reason);
    else
        snprintf(line->why, line->why_size, "line %d, column %zu: %s", line->number, word->column,
                 reason);
    return GW_ERR_BAD_SETTING;
}

/* ---- Words ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

gw_status_t gw__line_word(gw__line_t *line, gw__word_t *out)
{
    bool quoted = false;
    while (line->at < line->length && is_blank(line->text[line->at]))
        line->at++;
    *out = (gw__word_t){line->text + line->at, 0, line->at + 1};
    if (line->at == line->length || line->text[line->at] == '#')
        return GW_OK;
    while (line->at < line->length && (quoted || !is_blank(line->text[line->at])))
        quoted ^= line->text[line->at++] == '"';
    out->length = (size_t)(line->text + line->at - out->text);
    return quoted ? gw__line_refuse(line, out, "a quotation mark is not closed") : GW_OK;
}

gw_status_t gw__line_end(gw__line_t *line, const char *reason)
{
    gw__word_t rest;
    gw_status_t status = gw__line_word(line, &rest);
    return status == GW_OK && rest.length > 0 ? gw__line_refuse(line, &rest, reason) : status;
}

bool gw__word_is(const gw__word_t *word, const char *text)
{
    return strlen(text) == word->length && memcmp(text, word->text, word->length) == 0;
}

gw__word_t gw__word_piece(const gw__word_t *word, size_t from, size_t to)
{
    return (gw__word_t){word->text + from, to - from, word->column + from};
}

bool gw__word_unquote(const gw__word_t *word, gw__word_t *out)
{
    bool quoted = word->length >= 2 && word->text[0] == '"' && word->text[word->length - 1] == '"';
    *out = quoted ? gw__word_piece(word, 1, word->length - 1) : *word;
    return !memchr(out->text, '"', out->length);
}
