/* SPDX-License-Identifier: Apache-2.0 */
/* What the transport `fault` does to messages: its specification as text and parsed. */
#ifndef GW_FAULT_H
#define GW_FAULT_H

#include <gradwire/transport.h>

/* Something that happens to one rank once it has sent so many messages; rank -1: to nobody. */
typedef struct gw__fault_event {
    int rank, peer; /* peer: `error` only */
    uint64_t after;
} gw__fault_event_t;

typedef struct gw__fault_spec {
    char over[32]; /* the transport below */
    uint64_t seed;
    int only;      /* rank whose messages are touched; -1: everybody's */
    uint64_t from; /* so many messages of a rank pass untouched first */
    /* By chance, 0 to 1, for each message. */
    double delay, reorder, truncate, corrupt, drop, duplicate;
    int64_t delay_ns;
    size_t reach; /* `corrupt` stays within the first so many bytes; 0: anywhere */
    gw__fault_event_t kill, mute, freeze, error;
} gw__fault_spec_t;

/* Parses a specification (see README.md); NULL or "" is one without faults. GW_ERR_BAD_SETTING with
 * a sentence in `why`. */
gw_status_t gw__fault_parse(const char *text, gw__fault_spec_t *out, char *why, size_t why_size);

#endif
