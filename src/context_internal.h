/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of src/ know of a context. */
#ifndef GW_CONTEXT_INTERNAL_H
#define GW_CONTEXT_INTERNAL_H

#include <pthread.h>

#include <gradwire/context.h>
#include <gradwire/topology.h>

#include "layouts.h"
#include "log.h"
#include "pace.h"
#include "pool.h"
#include "rules.h"
#include "settings.h"
#include "stats.h"
#include "stats_writer.h"

enum { GW__TOLD = 32 };

struct gw_context {
    gw__settings_t settings;
    gw__rules_t rules;     /* of GRADWIRE_CONFIG */
    gw__layouts_t layouts; /* of GRADWIRE_LAYOUT */
    gw__log_t log;
    pthread_mutex_t lock;   /* of everything below */
    gw__stats_book_t stats; /* counters of the process and of its communicators */
    size_t residual_bytes;  /* held by the residual stores of all communicators */
    size_t residual_slots;
    uint32_t comms_created;
    uint64_t told[GW__TOLD]; /* hashes of what was warned of once, the latest */
    unsigned told_count;
    gw_node_facts_t *facts; /* of this process, read on first need; NULL before */
    gw_status_t facts_status;
    char facts_why[256];
    gw__speed_t speed;         /* of this rank, measured once */
    gw__pool_t *pool;          /* made on first need */
    char *stats_file;          /* absolute, with %r; NULL: none is wanted */
    gw__stats_writer_t writer; /* of that file; used only when one is wanted */
    bool told_unwritable;    /* the file could not be written, and the log says so; the writer's */
    struct gw_context *next; /* all contexts of the process, for the last write at exit */
};

/* Counts one finished call on a communicator's page, by one thread at a time, or without a page in
 * the context. Takes no lock, unless the call failed. The stats file has it within a second, and
 * the first failure of a communicator at once, as the process may be about to end. */
void gw__context_count(gw_context_t *context, gw__stats_page_t *page, const gw__stats_call_t *call);

/* This process's hardware facts, read once per context. On an error the sentence in `why`. Any
 * thread. */
gw_status_t gw__context_facts(gw_context_t *context, gw_node_facts_t *out, char *why,
                              size_t why_size);

/* How fast this rank encodes and decodes. Any thread. */
gw__speed_t gw__context_speed(gw_context_t *context);

/* The worker threads of this context's communicators, started when they are borrowed. NULL: no
 * memory. Any thread. */
gw__pool_t *gw__context_pool(gw_context_t *context);

/* Logs a warning, unless the same text was logged by this before. Any thread. */
void gw__context_warn_once(gw_context_t *context, const char *text);

/* Adds or gives back `bytes` of the residual budget; false when that would pass the bound. Any
 * thread. */
bool gw__context_take_residual(gw_context_t *context, size_t bytes);
void gw__context_give_residual(gw_context_t *context, size_t bytes);

#endif
