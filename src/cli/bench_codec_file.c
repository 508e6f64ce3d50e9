/* SPDX-License-Identifier: Apache-2.0 */
/* Files of recorded gradients: strict reading of .npy headers, and raw binary32. */
#include "bench_codec_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NPY_HEADER_MAX = 4096, NPY_DESCR_MAX = 64 };

/* NumPy pads headers to multiples of 64 bytes; a longer one than this does not describe one array
 * of numbers. */
typedef struct npy {
    const char *at, *end; /* what is left of the dictionary's text */
    char descr[NPY_DESCR_MAX];
    bool fortran;
    size_t count;
    const char *wrong; /* the first thing that was wrong */
} npy_t;

/* ---- The dictionary ----------------------------------------------------------------------------
 * {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }: each key once, in any order. */

static bool fail(npy_t *npy, const char *what)
{
    if (!npy->wrong)
        npy->wrong = what;
    return false;
}

static void skip_space(npy_t *npy)
{
    while (npy->at < npy->end && (*npy->at == ' ' || *npy->at == '\n'))
        npy->at++;
}

/* Takes `text` if it comes next. */
static bool take(npy_t *npy, const char *text)
{
    size_t length = strlen(text);
    skip_space(npy);
    if ((size_t)(npy->end - npy->at) < length || memcmp(npy->at, text, length) != 0)
        return false;
    npy->at += length;
    return true;
}

/* A string of printable characters in single or double quotes, without escapes. */
static bool take_string(npy_t *npy, char *out, size_t size)
{
    skip_space(npy);
    if (npy->at == npy->end || (*npy->at != '\'' && *npy->at != '"'))
        return false;
    char quote = *npy->at++;
    const char *close = memchr(npy->at, quote, (size_t)(npy->end - npy->at));
    size_t length = close ? (size_t)(close - npy->at) : size;
    if (length >= size)
        return false;
    for (size_t i = 0; i < length; i++)
        if (npy->at[i] < ' ' || npy->at[i] > '~' || npy->at[i] == '\\')
            return false;
    memcpy(out, npy->at, length);
    out[length] = '\0';
    npy->at = close + 1;
    return true;
}

static bool take_length(npy_t *npy, size_t *out)
{
    size_t value = 0;
    skip_space(npy);
    const char *begin = npy->at;
    for (; npy->at < npy->end && *npy->at >= '0' && *npy->at <= '9'; npy->at++) {
        if (value > (SIZE_MAX - 9) / 10)
            return fail(npy, "a length in its shape is too large");
        value = value * 10 + (size_t)(*npy->at - '0');
    }
    *out = value;
    return npy->at > begin;
}

/* "(3, 4)", "(12,)" or "()", which is one element. */
static bool take_shape(npy_t *npy)
{
    bool more = true;
    int lengths = 0;
    npy->count = 1;
    if (!take(npy, "("))
        return false;
    for (; !take(npy, ")"); lengths++) {
        size_t length;
        if (!more || !take_length(npy, &length))
            return false;
        if (length && npy->count > (SIZE_MAX >> 4) / length)
            return fail(npy, "its shape is too large");
        npy->count *= length;
        more = take(npy, ",");
    }
    return lengths != 1 || more; /* "(3)" is a number, not a tuple */
}

static bool take_entry(npy_t *npy, unsigned *seen)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[NPY_DESCR_MAX];
    unsigned which = 0;
    if (!take_string(npy, key, sizeof key) || !take(npy, ":"))
        return false;
    while (which < 3 && strcmp(key, keys[which]) != 0)
        which++;
    if (which == 3 || *seen & 1u << which)
        return fail(npy, "its header has a key that is unknown or given twice");
    *seen |= 1u << which;
    if (which == 0)
        return take_string(npy, npy->descr, sizeof npy->descr) ||
               fail(npy, "its descr is not one type; '<f4' or '<f2' is needed");
    if (which == 2)
        return take_shape(npy);
    npy->fortran = take(npy, "True");
    return npy->fortran || take(npy, "False");
}

static bool take_dictionary(npy_t *npy)
{
    unsigned seen = 0;
    if (!take(npy, "{"))
        return false;
    for (bool more = true; !take(npy, "}"); more = take(npy, ","))
        if (!more || !take_entry(npy, &seen))
            return false;
    skip_space(npy);
    return seen == 7 && npy->at == npy->end;
}

/* ---- The file ----------------------------------------------------------------------------------
 */

static bool GW_PRINTF(4, 5)
    refuse(const char *path, char *why, size_t size, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(why, size, "%.400s: %s", path, text);
    return false;
}

static bool read_at(int fd, size_t offset, void *dst, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)dst + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = 0;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* Reads the header into `text` and sets the offset behind it. */
static const char *read_header(gw_bench_file_t *file, size_t bytes, char *text, size_t *length)
{
    uint8_t fixed[12] = {0};
    if (bytes < 10 || !read_at(file->fd, 0, fixed, bytes < 12 ? 10 : 12))
        return "it ends inside its header";
    if (fixed[6] < 1 || fixed[6] > 3 || fixed[7] != 0)
        return "its format is not 1.0, 2.0 or 3.0";
    size_t before = fixed[6] == 1 ? 10 : 12;
    *length = fixed[8] | (size_t)fixed[9] << 8;
    if (fixed[6] > 1)
        *length |= (size_t)fixed[10] << 16 | (size_t)fixed[11] << 24;
    if (*length > NPY_HEADER_MAX)
        return "its header is longer than 4096 bytes";
    if (bytes < before + *length || !read_at(file->fd, before, text, *length))
        return "it ends inside its header";
    file->offset = before + *length;
    return NULL;
}

static bool open_npy(const char *path, gw_bench_file_t *file, size_t bytes, char *why, size_t size)
{
    char text[NPY_HEADER_MAX];
    size_t length = 0;
    const char *wrong = read_header(file, bytes, text, &length);
    if (wrong)
        return refuse(path, why, size, "not a usable .npy file: %s", wrong);
    npy_t npy = {.at = text, .end = text + length};
    if (!take_dictionary(&npy))
        return refuse(path, why, size, "not a usable .npy file: %s",
                      npy.wrong ? npy.wrong
                                : "its header is not a dictionary of descr, fortran_order, shape");
    bool single = strcmp(npy.descr, "<f4") == 0;
    if (!single && strcmp(npy.descr, "<f2") != 0)
        return refuse(
            path, why, size,
            "holds elements of type '%.40s'; '<f4' (float32) or '<f2' (float16) is needed",
            npy.descr);
    if (npy.fortran)
        return refuse(path, why, size, "is in Fortran order; save numpy.ascontiguousarray of it");
    if (npy.count == 0)
        return refuse(path, why, size, "holds no elements");
    size_t element = single ? 4 : 2, has = bytes - file->offset;
    if (has != npy.count * element)
        return refuse(
            path, why, size, "is %s: its shape needs %zu bytes behind the header, %zu are there",
            has < npy.count * element ? "truncated" : "too long", npy.count * element, has);
    file->count = npy.count;
    file->dtype = single ? GW_F32 : GW_F16;
    return true;
}

static bool open_raw(const char *path, gw_bench_file_t *file, size_t bytes, char *why, size_t size)
{
    if (bytes % 4)
        return refuse(
            path, why, size,
            "its %zu bytes are no whole number of raw float32 (4 bytes each), and it is no "
            ".npy file",
            bytes);
    file->count = bytes / 4;
    file->dtype = GW_F32;
    return true;
}

static bool has_suffix(const char *text, const char *suffix)
{
    size_t a = strlen(text), b = strlen(suffix);
    return a >= b && strcmp(text + a - b, suffix) == 0;
}

static bool open_content(const char *path, gw_bench_file_t *file, char *why, size_t size)
{
    char magic[6] = "";
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return refuse(path, why, size, "%s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return refuse(path, why, size,
                      "is %s; a file of gradients is needed (.npy, or raw float32)",
                      S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    size_t bytes = (size_t)st.st_size;
    if (bytes == 0)
        return refuse(path, why, size,
                      "is empty; a file of gradients is needed (.npy, or raw float32)");
    bool has_start = bytes >= sizeof magic && read_at(file->fd, 0, magic, sizeof magic);
    bool has_magic = has_start && memcmp(magic, "\x93NUMPY", sizeof magic) == 0;
    if (has_start && memcmp(magic, "PK\3\4", 4) == 0)
        return refuse(
            path, why, size,
            "is a zip archive, as .npz and .pt files are; one array is needed (numpy.save)");
    file->npy = has_magic || has_suffix(path, ".npy");
    if (file->npy && !has_magic)
        return refuse(path, why, size, "is named .npy but does not begin as an .npy file does");
    return file->npy ? open_npy(path, file, bytes, why, size)
                     : open_raw(path, file, bytes, why, size);
}

bool gw_bench_file_open(const char *path, gw_bench_file_t *out, char *why, size_t size)
{
    /* Not blocking: a FIFO without a writer would wait for ever before it can be refused. */
    gw_bench_file_t file = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.fd < 0)
        return refuse(path, why, size, "%s; allowed are normal, gradient and the name of a file",
                      strerror(errno));
    if (!open_content(path, &file, why, size)) {
        close(file.fd);
        return false;
    }
    *out = file;
    return true;
}

void gw_bench_file_close(gw_bench_file_t *file)
{
    close(file->fd);
    file->fd = -1;
}

bool gw_bench_file_read(const gw_bench_file_t *file, size_t first, size_t count, void *dst)
{
    size_t element = file->dtype == GW_F32 ? 4 : 2;
    return read_at(file->fd, file->offset + first * element, dst, count * element);
}
