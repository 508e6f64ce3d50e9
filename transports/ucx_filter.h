/* SPDX-License-Identifier: Apache-2.0 */
/* Socket filters that keep strangers away from UCX's listening ports: which packets the kernel
 * drops before TCP sees them. Pure functions. */
#ifndef GW_UCX_FILTER_H
#define GW_UCX_FILTER_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

/* A host address from which connections may come. */
typedef struct ucx_source {
    uint8_t family;   /* 4 or 6 */
    uint8_t addr[16]; /* network order */
} ucx_source_t;

enum {
    GW__UCX_FILTER_MAX = 1024, /* instructions */
    GW__UCX_REQUEST_MIN = 42   /* bytes of the shortest connection request of UCX's */
};

/* Everything is dropped: nobody connects. Returns the number of instructions in `out`. */
int gw__ucx_filter_closed(struct sock_filter out[GW__UCX_FILTER_MAX]);

/*
 * For a listening socket of UCX and, as they inherit it, the connections that it accepts:
 *
 * - a connection is begun from one of the `count` sources only (`count` < 0: from anywhere), and
 * from this host's loopback only where `loopback`;
 * - where `requests`, a segment that begins like UCX's connection request and is none in full is
 *   dropped. Whatever begins otherwise UCX turns away by itself. Only while nothing long is sent:
 *   later a segment may begin with any bytes.
 *
 * More IPv4 addresses than fit are covered by ranges; IPv6 addresses count by their /64, in which
 * hosts change their addresses. Reorders `sources`. Returns the number of instructions.
 */
int gw__ucx_filter_open(ucx_source_t *sources, int count, bool loopback, bool requests,
                        struct sock_filter out[GW__UCX_FILTER_MAX]);

#endif
