/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics: counters per process and per communicator and size class, and their JSON file. */
#ifndef GW_STATS_H
#define GW_STATS_H

#include <stdio.h>

#include <gradwire/context.h>

enum { GW__STATS_CLASSES = 48, GW__STATS_COMMS = 64 };

/* Calls whose bytes lie in [2^i, 2^(i+1)). */
typedef struct gw__stats_class {
    uint64_t calls, compressed, raw_bytes, wire_bytes, time_us;
} gw__stats_class_t;

/* One communicator's page. Pages of freed communicators are kept until the book is full. */
typedef struct gw__stats_page {
    uint32_t id;
    int size;
    bool used, open;
    char name[64], codec[128], transport[64], plan[16];
    gw_stats_t total;
    gw__stats_class_t classes[GW__STATS_CLASSES];
} gw__stats_page_t;

typedef struct gw__stats_book {
    int rank, size;
    int64_t written; /* monotonic second of the last write */
    gw_stats_t total;
    gw__stats_page_t *pages[GW__STATS_COMMS];
    uint64_t pages_dropped; /* communicators without a page of their own */
} gw__stats_book_t;

/* One finished call. */
typedef struct gw__stats_call {
    bool compressed;
    gw_reason_t reason;
    size_t bytes;
    uint64_t plain_bytes, wire_bytes, encode_us, wire_us, decode_us, wait_us, time_us;
    uint64_t poisoned, residual_resets;
    bool failed;
    const char *plan; /* static name; NULL: none */
} gw__stats_call_t;

/* Adds one call to counters and, with `classes`, to its size class. */
void gw__stats_add(gw_stats_t *total, gw__stats_class_t *classes, const gw__stats_call_t *call);

/* A page for a new communicator, or NULL when there is no memory or room; the book owns it. */
gw__stats_page_t *gw__stats_page_new(gw__stats_book_t *book, uint32_t id, int size);

void gw__stats_book_clear(gw__stats_book_t *book);

/* Writes the book as one JSON object. */
void gw__stats_print(const gw__stats_book_t *book, FILE *out);

/* Replaces the file of GRADWIRE_STATS (`pattern`, with %r for the rank) atomically. GW_ERR_IO. */
gw_status_t gw__stats_write(const gw__stats_book_t *book, const char *pattern);

#endif
