/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics: counters per communicator and size class, and what they look like as JSON. */
#ifndef GW_STATS_H
#define GW_STATS_H

#include <stdatomic.h>
#include <stdio.h>

#include <gradwire/context.h>

/* COMMS: communicators that are listed one by one. */
enum { GW__STATS_CLASSES = 48, GW__STATS_COMMS = 64 };

/* The counters that a call adds to, named as in gw_stats_t. `calls` and `passed` are not kept: they
 * are sums of these, so that figures that were read while they changed still add up. */
#define GW__STATS_COUNTERS(X)                                                                      \
    X(compressed)                                                                                  \
    X(raw_bytes)                                                                                   \
    X(plain_bytes)                                                                                 \
    X(wire_bytes)                                                                                  \
    X(encode_us)                                                                                   \
    X(wire_us)                                                                                     \
    X(decode_us)                                                                                   \
    X(wait_us)                                                                                     \
    X(errors)                                                                                      \
    X(residual_resets)                                                                             \
    X(poisoned_buckets)

typedef struct gw__stats_counters {
#define GW__STATS_MEMBER(name) _Atomic uint64_t name;
    GW__STATS_COUNTERS(GW__STATS_MEMBER)
#undef GW__STATS_MEMBER
    _Atomic uint64_t reasons[GW_REASON_COUNT];
} gw__stats_counters_t;

/* Calls whose bytes lie in [2^i, 2^(i+1)). */
typedef struct gw__stats_class {
    _Atomic uint64_t passed, compressed, raw_bytes, wire_bytes, time_us;
} gw__stats_class_t;

/*
 * One communicator's page. Who adds to it holds `sequence` odd; a thread that drives posted calls
 * and the caller's own may do so at once. Nobody else waits for that. Pages of freed communicators
 * are kept until there are GW__STATS_COMMS.
 */
typedef struct gw__stats_page {
    struct gw__stats_page *next; /* in the order of creation */
    uint32_t id;
    int size;
    bool open;
    char name[64], codec[128], transport[64];
    int failed_rank; /* of the last error, with its sentence; -1: none */
    char error[256];
    char *layouts; /* JSON objects, comma separated: how calls with a layout go; NULL: none */
    size_t layouts_length, layouts_left_out; /* bytes; objects that there was no room for */
    _Alignas(64) _Atomic uint64_t sequence;  /* odd while a call is added */
    char codec_used[128];     /* of the first compressed call; written once, before plan */
    const char *_Atomic plan; /* of the first compressed call; NULL: none yet */
    gw__stats_counters_t counters;
    gw__stats_class_t classes[GW__STATS_CLASSES];
} gw__stats_page_t;

/* All pages of a context. What is not atomic is guarded by the owner's lock. */
typedef struct gw__stats_book {
    int rank, size;
    gw__stats_page_t *pages;
    int page_count;
    gw_stats_t retired;                      /* of pages that made room */
    uint64_t pages_retired;                  /* their number */
    _Alignas(64) gw__stats_counters_t loose; /* calls that belong to no page; any thread adds */
} gw__stats_book_t;

/* One finished call. */
typedef struct gw__stats_call {
    bool compressed;
    gw_reason_t reason;
    size_t bytes;
    uint64_t plain_bytes, wire_bytes, encode_us, wire_us, decode_us, wait_us, time_us;
    uint64_t poisoned, residual_resets;
    bool failed;
    int failed_rank;   /* with `error`; -1: none */
    const char *error; /* of a call that failed: a sentence, copied; NULL: none */
    const char *plan;  /* static name; NULL: none */
    const char *codec; /* its specification */
} gw__stats_call_t;

/* Adds one call to a page, or to the loose counters. Any thread. The last store is sequentially
 * consistent: whoever reads after it sees the call. */
void gw__stats_page_add(gw__stats_page_t *page, const gw__stats_call_t *call);
void gw__stats_loose_add(gw__stats_book_t *book, const gw__stats_call_t *call);

/* One page's figures as they were between two calls; zeros for NULL. Any thread. */
void gw__stats_page_read(const gw__stats_page_t *page, gw_stats_t *out);

/* A page for a new communicator, or NULL when there is no memory; the book owns it. When the
 * communicator is freed its owner sets `open` to false. Under the owner's lock. */
gw__stats_page_t *gw__stats_page_new(gw__stats_book_t *book, uint32_t id, int size);

/* Adds a JSON object about calls with a layout to a page; counted and left out beyond
 * GW__STATS_LAYOUTS bytes in all. Under the owner's lock. */
enum { GW__STATS_LAYOUTS = 1 << 20 };
void gw__stats_page_layout(gw__stats_page_t *page, const char *object);

/* Under the owner's lock. */
void gw__stats_book_clear(gw__stats_book_t *book);

/* The sum of all pages and of the loose counters. Under the owner's lock. */
void gw__stats_sum(const gw__stats_book_t *book, gw_stats_t *out);

/* Writes the book as one JSON object; the residual store's figures are the context's. Under the
 * owner's lock. GW_ERR_NO_MEMORY. */
gw_status_t gw__stats_print(const gw__stats_book_t *book, size_t residual_bytes,
                            size_t residual_slots, FILE *out);

#endif
