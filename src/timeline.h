/* SPDX-License-Identifier: Apache-2.0 */
/* What happened when in one call: recorded by the engine, drawn as text. */
#ifndef GW_TIMELINE_H
#define GW_TIMELINE_H

#include <stdint.h>
#include <stdio.h>

#include "plan.h"

/* One task of the engine. Times are monotonic nanoseconds. */
typedef struct gw__event {
    gw__task_kind_t kind;
    gw__stage_t stage;
    int lane; /* of computing: 0 the engine's own thread, then its workers */
    int peer; /* of messages */
    uint32_t round;
    int64_t begin_ns, end_ns;
} gw__event_t;

typedef struct gw__timeline {
    size_t capacity, count, dropped;
    bool relays;              /* an exchange is one with all peers */
    int64_t begin_ns, end_ns; /* of the call; end 0: under way */
    gw__event_t event[];
} gw__timeline_t;

/* Room for so many events; NULL: no memory. Free with free(). */
gw__timeline_t *gw__timeline_new(size_t capacity);

/* Forgets the last call; the next one begins now. `relays`: those whom it sends to are not those
 * whom it receives from. */
void gw__timeline_begin(gw__timeline_t *timeline, int64_t now_ns, bool relays);

/* Appends; what has no room is counted and left out. */
void gw__timeline_add(gw__timeline_t *timeline, const gw__event_t *event);

/* One line per lane and peer, `width` columns long, whose columns hold the last digit of the round;
 * and how much of the computing ran while frames were on their way. */
void gw__timeline_print(const gw__timeline_t *timeline, int width, FILE *out);

#endif
