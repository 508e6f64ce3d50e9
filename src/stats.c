/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics: counters per process and per communicator and size class, and their JSON file. */
#include "stats.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int class_of(size_t bytes)
{
    int class = 0;
    while (bytes > 1 && class < GW__STATS_CLASSES - 1) {
        bytes >>= 1;
        class ++;
    }
    return class;
}

void gw__stats_add(gw_stats_t *total, gw__stats_class_t *classes, const gw__stats_call_t *call)
{
    total->calls++;
    total->errors += call->failed;
    total->residual_resets += call->residual_resets;
    if (!call->compressed) {
        total->passed++;
        total->reasons[call->reason]++;
    } else {
        total->compressed++;
        total->raw_bytes += call->bytes;
        total->plain_bytes += call->plain_bytes;
        total->wire_bytes += call->wire_bytes;
        total->encode_us += call->encode_us;
        total->wire_us += call->wire_us;
        total->decode_us += call->decode_us;
        total->wait_us += call->wait_us;
        total->poisoned_buckets += call->poisoned;
    }
    if (!classes)
        return;
    gw__stats_class_t *class = &classes[class_of(call->bytes)];
    class->calls++;
    if (call->compressed) {
        class->compressed++;
        class->raw_bytes += call->bytes;
        class->wire_bytes += call->wire_bytes;
        class->time_us += call->time_us;
    }
}

gw__stats_page_t *gw__stats_page_new(gw__stats_book_t *book, uint32_t id, int size)
{
    int slot = -1;
    for (int i = 0; i < GW__STATS_COMMS && slot < 0; i++)
        if (!book->pages[i])
            slot = i;
    /* Full: the page of the communicator that was closed first makes room; its calls stay in the
     * total. */
    for (int i = 0; i < GW__STATS_COMMS && slot < 0; i++)
        if (!book->pages[i]->open) {
            free(book->pages[i]);
            memmove(&book->pages[i], &book->pages[i + 1],
                    (size_t)(GW__STATS_COMMS - 1 - i) * sizeof book->pages[0]);
            slot = GW__STATS_COMMS - 1;
            book->pages[slot] = NULL;
            book->pages_dropped++;
        }
    gw__stats_page_t *page = slot < 0 ? NULL : calloc(1, sizeof *page);
    if (!page) {
        book->pages_dropped++;
        return NULL;
    }
    page->id = id;
    page->size = size;
    page->used = page->open = true;
    book->pages[slot] = page;
    return page;
}

void gw__stats_book_clear(gw__stats_book_t *book)
{
    for (int i = 0; i < GW__STATS_COMMS; i++) {
        free(book->pages[i]);
        book->pages[i] = NULL;
    }
}

static void print_reasons(const gw_stats_t *s, FILE *out)
{
    bool first = true;
    fputs("\"reasons\": {", out);
    for (int r = GW_REASON_NONE + 1; r < GW_REASON_COUNT; r++)
        if (s->reasons[r] > 0) {
            fprintf(out, "%s\"%s\": %" PRIu64, first ? "" : ", ", gw_reason_name(r), s->reasons[r]);
            first = false;
        }
    fputs("}", out);
}

static void print_classes(const gw__stats_page_t *page, FILE *out)
{
    bool first = true;
    fputs("\"classes\": [", out);
    for (int i = 0; i < GW__STATS_CLASSES; i++) {
        const gw__stats_class_t *c = &page->classes[i];
        if (c->calls == 0)
            continue;
        uint64_t from = i == 0 ? 0 : (uint64_t)1 << i, to = ((uint64_t)2 << i) - 1;
        fprintf(out,
                "%s{\"bytes_from\": %" PRIu64 ", \"bytes_to\": %" PRIu64 ", \"calls\": %" PRIu64
                ", \"compressed\": %" PRIu64 ", \"raw_bytes\": %" PRIu64
                ", \"wire_bytes\": %" PRIu64 ", \"time_us\": %" PRIu64 "}",
                first ? "" : ", ", from, to, c->calls, c->compressed, c->raw_bytes, c->wire_bytes,
                c->time_us);
        first = false;
    }
    fputs("]", out);
}

static void print_page(const gw__stats_page_t *page, bool first, FILE *out)
{
    fprintf(out, "%s{\"id\": %" PRIu32 ", \"size\": %d, \"name\": ", first ? "" : ", ", page->id,
            page->size);
    gw_json_string(out, page->name);
    fputs(", \"codec\": ", out);
    gw_json_string(out, page->codec);
    fputs(", \"transport\": ", out);
    gw_json_string(out, page->transport);
    fputs(", \"plan\": ", out);
    gw_json_string(out, page->plan);
    fputs(", ", out);
    print_classes(page, out);
    fputs("}", out);
}

void gw__stats_print(const gw__stats_book_t *book, FILE *out)
{
    const gw_stats_t *s = &book->total;
    fprintf(out, "{\"version\": \"%s\", \"rank\": %d, \"size\": %d, \"pid\": %ld, ", GW_VERSION,
            book->rank, book->size, (long)getpid());
    fprintf(out, "\"calls\": %" PRIu64 ", \"compressed\": %" PRIu64 ", \"passed\": %" PRIu64 ", ",
            s->calls, s->compressed, s->passed);
    print_reasons(s, out);
    fprintf(out,
            ", \"raw_bytes\": %" PRIu64 ", \"plain_bytes\": %" PRIu64 ", \"wire_bytes\": %" PRIu64,
            s->raw_bytes, s->plain_bytes, s->wire_bytes);
    fprintf(out,
            ", \"encode_us\": %" PRIu64 ", \"wire_us\": %" PRIu64 ", \"decode_us\": %" PRIu64
            ", \"wait_us\": %" PRIu64,
            s->encode_us, s->wire_us, s->decode_us, s->wait_us);
    fprintf(out,
            ", \"errors\": %" PRIu64 ", \"residual_resets\": %" PRIu64
            ", \"poisoned_buckets\": %" PRIu64 ", \"communicators\": [",
            s->errors, s->residual_resets, s->poisoned_buckets);
    bool first = true;
    for (int i = 0; i < GW__STATS_COMMS; i++)
        if (book->pages[i]) {
            print_page(book->pages[i], first, out);
            first = false;
        }
    fprintf(out, "], \"communicators_dropped\": %" PRIu64 "}\n", book->pages_dropped);
}

/* The file's name: %r replaced; without it ".rank" is appended when there is more than one rank. */
static bool expand(const gw__stats_book_t *book, const char *pattern, char *out, size_t size)
{
    size_t used = 0;
    bool seen = false;
    for (const char *c = pattern; *c; c++) {
        char number[16];
        int n = 1;
        const char *piece = c;
        if (c[0] == '%' && c[1] == 'r') {
            n = snprintf(number, sizeof number, "%d", book->rank);
            piece = number;
            seen = true;
            c++;
        }
        if (used + (size_t)n >= size)
            return false;
        memcpy(out + used, piece, (size_t)n);
        used += (size_t)n;
    }
    out[used] = '\0';
    int n = seen || book->size <= 1 ? 0 : snprintf(out + used, size - used, ".%d", book->rank);
    return n >= 0 && used + (size_t)n < size;
}

gw_status_t gw__stats_write(const gw__stats_book_t *book, const char *pattern)
{
    static atomic_uint writes; /* two contexts may write at once, and to one name */
    char path[4096], temporary[4200];
    if (!expand(book, pattern, path, sizeof path))
        return GW_ERR_INVALID;
    snprintf(temporary, sizeof temporary, "%s.%ld.%u.tmp", path, (long)getpid(),
             atomic_fetch_add(&writes, 1));
    FILE *out = fopen(temporary, "we");
    if (!out)
        return GW_ERR_IO;
    gw__stats_print(book, out);
    bool failed = ferror(out) != 0;
    failed |= fclose(out) != 0;
    if (failed || rename(temporary, path) != 0) {
        unlink(temporary);
        return GW_ERR_IO;
    }
    return GW_OK;
}
