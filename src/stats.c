/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics: counters per communicator and size class, and what they look like as JSON. */
#include "stats.h"

#include <inttypes.h>
#include <sched.h>
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

/* ---- Adding
 * ---------------------------------------------------------------------------------------------- */

/* Of a page that this thread holds: no read-modify-write. Release, so that the sequence, made odd
 * before, is seen odd by whoever sees this. */
static inline void bump(_Atomic uint64_t *counter, uint64_t by)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + by, memory_order_release);
}

static void add_class(gw__stats_class_t *class, const gw__stats_call_t *call)
{
    if (!call->compressed) {
        bump(&class->passed, 1);
        return;
    }
    bump(&class->compressed, 1);
    bump(&class->raw_bytes, call->bytes);
    bump(&class->wire_bytes, call->wire_bytes);
    bump(&class->time_us, call->time_us);
}

static void add_compressed(gw__stats_counters_t *c, const gw__stats_call_t *call)
{
    bump(&c->compressed, 1);
    bump(&c->raw_bytes, call->bytes);
    bump(&c->plain_bytes, call->plain_bytes);
    bump(&c->wire_bytes, call->wire_bytes);
    bump(&c->encode_us, call->encode_us);
    bump(&c->wire_us, call->wire_us);
    bump(&c->decode_us, call->decode_us);
    bump(&c->wait_us, call->wait_us);
    bump(&c->poisoned_buckets, call->poisoned);
}

/* Makes the sequence odd; returns what it was. Hardly ever waits: see gw__stats_page_t. */
static uint64_t hold(gw__stats_page_t *page)
{
    uint64_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    for (;;) {
        sequence &= ~(uint64_t)1;
        if (atomic_compare_exchange_weak_explicit(&page->sequence, &sequence, sequence + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return sequence;
        if (sequence % 2 == 1)
            sched_yield();
    }
}

void gw__stats_page_add(gw__stats_page_t *page, const gw__stats_call_t *call)
{
    gw__stats_counters_t *c = &page->counters;
    uint64_t sequence = hold(page);
    bump(&c->errors, call->failed);
    bump(&c->residual_resets, call->residual_resets);
    if (call->compressed)
        add_compressed(c, call);
    else
        bump(&c->reasons[call->reason], 1);
    add_class(&page->classes[class_of(call->bytes)], call);
    if (call->compressed && call->plan &&
        !atomic_load_explicit(&page->plan, memory_order_relaxed)) {
        snprintf(page->codec_used, sizeof page->codec_used, "%s", call->codec ? call->codec : "");
        atomic_store_explicit(&page->plan, call->plan, memory_order_release);
    }
    atomic_store(&page->sequence, sequence + 2);
}

/* Several threads at once, so nothing but atomic additions. Bytes and times only in the rare case
 * that the page of a communicator found no memory. */
void gw__stats_loose_add(gw__stats_book_t *book, const gw__stats_call_t *call)
{
    gw__stats_counters_t *c = &book->loose;
    if (call->failed)
        atomic_fetch_add(&c->errors, 1);
    if (!call->compressed) {
        atomic_fetch_add(&c->reasons[call->reason], 1);
        return;
    }
    atomic_fetch_add(&c->raw_bytes, call->bytes);
    atomic_fetch_add(&c->plain_bytes, call->plain_bytes);
    atomic_fetch_add(&c->wire_bytes, call->wire_bytes);
    atomic_fetch_add(&c->encode_us, call->encode_us);
    atomic_fetch_add(&c->wire_us, call->wire_us);
    atomic_fetch_add(&c->decode_us, call->decode_us);
    atomic_fetch_add(&c->wait_us, call->wait_us);
    atomic_fetch_add(&c->residual_resets, call->residual_resets);
    atomic_fetch_add(&c->poisoned_buckets, call->poisoned);
    atomic_fetch_add(&c->compressed, 1);
}

/* ---- Reading
 * ---------------------------------------------------------------------------------------------- */

/* A page as it was at one moment. */
typedef struct snapshot {
    gw_stats_t total;
    struct {
        uint64_t calls, compressed, raw_bytes, wire_bytes, time_us;
    } classes[GW__STATS_CLASSES];
    const char *plan;
} snapshot_t;

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_acquire);
}

/* Adds counters to a sum. Each is read once, so calls = compressed + passed whatever goes on. */
static void gather(const gw__stats_counters_t *c, gw_stats_t *sum)
{
    uint64_t compressed = sum->compressed, passed = 0;
#define TAKE(name) sum->name += load(&c->name);
    GW__STATS_COUNTERS(TAKE)
#undef TAKE
    for (int r = 0; r < GW_REASON_COUNT; r++) {
        uint64_t n = load(&c->reasons[r]);
        sum->reasons[r] += n;
        passed += n;
    }
    sum->passed += passed;
    sum->calls += passed + sum->compressed - compressed;
}

static void copy(const gw__stats_page_t *page, snapshot_t *out)
{
    memset(out, 0, sizeof *out);
    gather(&page->counters, &out->total);
    for (int i = 0; i < GW__STATS_CLASSES; i++) {
        const gw__stats_class_t *c = &page->classes[i];
        out->classes[i].compressed = load(&c->compressed);
        out->classes[i].calls = load(&c->passed) + out->classes[i].compressed;
        out->classes[i].raw_bytes = load(&c->raw_bytes);
        out->classes[i].wire_bytes = load(&c->wire_bytes);
        out->classes[i].time_us = load(&c->time_us);
    }
    out->plan = atomic_load_explicit(&page->plan, memory_order_acquire);
}

/*
 * Reads a page between two calls. The thread that adds to it may stand still in the middle (even
 * for good: a signal handler of its own may be what reads), so after many attempts the copy is
 * taken as it is: the sums hold then too, bytes and times may be of one call more or less.
 */
static void snap(const gw__stats_page_t *page, snapshot_t *out)
{
    enum { ATTEMPTS = 1000 };
    for (int i = 0; i < ATTEMPTS; i++) {
        uint64_t sequence = atomic_load(&page->sequence);
        copy(page, out);
        if (sequence % 2 == 0 &&
            atomic_load_explicit(&page->sequence, memory_order_relaxed) == sequence)
            return;
        sched_yield();
    }
}

void gw__stats_page_read(const gw__stats_page_t *page, gw_stats_t *out)
{
    snapshot_t shot = {0};
    if (page)
        snap(page, &shot);
    *out = shot.total;
}

static void accumulate(gw_stats_t *sum, const gw_stats_t *part)
{
    sum->calls += part->calls;
    sum->passed += part->passed;
#define TAKE(name) sum->name += part->name;
    GW__STATS_COUNTERS(TAKE)
#undef TAKE
    for (int r = 0; r < GW_REASON_COUNT; r++)
        sum->reasons[r] += part->reasons[r];
}

void gw__stats_sum(const gw__stats_book_t *book, gw_stats_t *out)
{
    *out = book->retired;
    gather(&book->loose, out);
    for (const gw__stats_page_t *page = book->pages; page; page = page->next) {
        snapshot_t shot;
        snap(page, &shot);
        accumulate(out, &shot.total);
    }
}

/* ---- Pages
 * ---------------------------------------------------------------------------------------------- */

/* Takes the page of the communicator that was closed first out of the book; its calls stay in the
 * sum. False when all are open. */
static bool retire_one(gw__stats_book_t *book)
{
    for (gw__stats_page_t **at = &book->pages; *at; at = &(*at)->next) {
        gw__stats_page_t *page = *at;
        if (page->open)
            continue;
        gather(&page->counters, &book->retired);
        book->pages_retired++;
        book->page_count--;
        *at = page->next;
        free(page->layouts);
        free(page);
        return true;
    }
    return false;
}

gw__stats_page_t *gw__stats_page_new(gw__stats_book_t *book, uint32_t id, int size)
{
    while (book->page_count >= GW__STATS_COMMS && retire_one(book))
        continue;
    gw__stats_page_t *page = aligned_alloc(_Alignof(gw__stats_page_t), sizeof *page);
    if (!page) {
        book->pages_retired++;
        return NULL;
    }
    memset(page, 0, sizeof *page);
    page->id = id;
    page->size = size;
    page->open = true;
    page->failed_rank = -1;
    gw__stats_page_t **last = &book->pages;
    while (*last)
        last = &(*last)->next;
    *last = page;
    book->page_count++;
    return page;
}

void gw__stats_book_clear(gw__stats_book_t *book)
{
    while (book->pages) {
        gw__stats_page_t *page = book->pages;
        book->pages = page->next;
        free(page->layouts);
        free(page);
    }
    book->page_count = 0;
}

void gw__stats_page_layout(gw__stats_page_t *page, const char *object)
{
    size_t used = page->layouts_length, length = strlen(object);
    char *text = length < GW__STATS_LAYOUTS - used - 2 && used + 2 < GW__STATS_LAYOUTS
                     ? realloc(page->layouts, used + length + 3)
                     : NULL;
    if (!text) {
        page->layouts_left_out++;
        return;
    }
    page->layouts_length += (size_t)sprintf(text + used, used ? ", %s" : "%s", object);
    page->layouts = text;
}

/* ---- Printing
 * ---------------------------------------------------------------------------------------------- */

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

static void print_classes(const snapshot_t *shot, FILE *out)
{
    bool first = true;
    fputs("\"classes\": [", out);
    for (int i = 0; i < GW__STATS_CLASSES; i++) {
        if (shot->classes[i].calls == 0)
            continue;
        uint64_t from = i == 0 ? 0 : (uint64_t)1 << i, to = ((uint64_t)2 << i) - 1;
        fprintf(out,
                "%s{\"bytes_from\": %" PRIu64 ", \"bytes_to\": %" PRIu64 ", \"calls\": %" PRIu64
                ", \"compressed\": %" PRIu64 ", \"raw_bytes\": %" PRIu64
                ", \"wire_bytes\": %" PRIu64 ", \"time_us\": %" PRIu64 "}",
                first ? "" : ", ", from, to, shot->classes[i].calls, shot->classes[i].compressed,
                shot->classes[i].raw_bytes, shot->classes[i].wire_bytes, shot->classes[i].time_us);
        first = false;
    }
    fputs("]", out);
}

static void print_text(const char *name, const char *text, FILE *out)
{
    fprintf(out, "\"%s\": ", name);
    gw_json_string(out, text);
    fputs(", ", out);
}

static void print_page(const gw__stats_page_t *page, const snapshot_t *shot, FILE *out)
{
    fprintf(out, "{\"id\": %" PRIu32 ", \"size\": %d, ", page->id, page->size);
    print_text("name", page->name, out);
    print_text("codec", shot->plan && page->codec_used[0] ? page->codec_used : page->codec, out);
    print_text("transport", page->transport, out);
    print_text("plan", shot->plan ? shot->plan : "", out);
    fprintf(out,
            "\"calls\": %" PRIu64 ", \"compressed\": %" PRIu64 ", \"errors\": %" PRIu64
            ", \"residual_resets\": %" PRIu64 ", ",
            shot->total.calls, shot->total.compressed, shot->total.errors,
            shot->total.residual_resets);
    if (page->failed_rank >= 0)
        fprintf(out, "\"failed_rank\": %d, ", page->failed_rank);
    if (page->error[0])
        print_text("last_error", page->error, out);
    print_classes(shot, out);
    if (page->layouts)
        fprintf(out, ", \"layouts\": [%s]", page->layouts);
    if (page->layouts_left_out > 0)
        fprintf(out, ", \"layouts_left_out\": %zu", page->layouts_left_out);
    fputs("}", out);
}

/* The pages as an array. Adds all of them to `sum`, so that both are of the same moment; returns
 * how many there was no room for. */
static uint64_t print_pages(const gw__stats_book_t *book, gw_stats_t *sum, FILE *out)
{
    int listed = 0;
    fputs("\"communicators\": [", out);
    for (const gw__stats_page_t *page = book->pages; page; page = page->next) {
        snapshot_t shot;
        snap(page, &shot);
        accumulate(sum, &shot.total);
        if (listed++ >= GW__STATS_COMMS)
            continue;
        fputs(listed > 1 ? ", " : "", out);
        print_page(page, &shot, out);
    }
    fputs("]", out);
    return listed > GW__STATS_COMMS ? (uint64_t)(listed - GW__STATS_COMMS) : 0;
}

static void print_sums(const gw_stats_t *s, FILE *out)
{
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
            ", \"poisoned_buckets\": %" PRIu64 ", ",
            s->errors, s->residual_resets, s->poisoned_buckets);
}

gw_status_t gw__stats_print(const gw__stats_book_t *book, size_t residual_bytes,
                            size_t residual_slots, FILE *out)
{
    char *pages = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&pages, &length);
    if (!memory)
        return GW_ERR_NO_MEMORY;
    gw_stats_t sum = book->retired;
    gather(&book->loose, &sum);
    uint64_t unlisted = print_pages(book, &sum, memory) + book->pages_retired;
    gw_status_t status = ferror(memory) ? GW_ERR_NO_MEMORY : GW_OK;
    if (fclose(memory) != 0)
        status = GW_ERR_NO_MEMORY;
    if (status == GW_OK) {
        fprintf(out, "{\"version\": \"%s\", \"rank\": %d, \"size\": %d, \"pid\": %ld, ", GW_VERSION,
                book->rank, book->size, (long)getpid());
        print_sums(&sum, out);
        fprintf(out, "\"residual_bytes\": %zu, \"residual_slots\": %zu, ", residual_bytes,
                residual_slots);
        fwrite(pages, 1, length, out);
        fprintf(out, ", \"communicators_dropped\": %" PRIu64 "}\n", unlisted);
    }
    free(pages);
    return status;
}
