/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of src/ know of a communicator. */
#ifndef GW_COMM_INTERNAL_H
#define GW_COMM_INTERNAL_H

#include <gradwire/comm.h>
#include <gradwire/topology.h>

#include "context_internal.h"
#include "engine.h"
#include "factors.h"
#include "pace.h"
#include "parts.h"
#include "residual.h"
#include "secret.h"
#include "work.h"

struct gw_comm {
    gw_context_t *context;
    int rank, size;
    uint32_t id;   /* rank 0's count of communicators: equal on all ranks */
    char name[64]; /* rank 0's, or a number */
    bool named;
    gw_call_order_t *order; /* NULL: no rule asks for the place of a call */
    const gw_transport_t *transport;
    gw_link_t *link;
    int local_ranks; /* of this communicator on this node, own one included */
    gw__pace_t pace;
    gw__engine_t engine;
    gw__queue_t queue;
    gw__factors_t factors;
    gw__residual_store_t residuals;
    gw__device_calls_t device_calls;
    gw__parts_t parts;
    gw__stats_page_t *page;  /* owned by the context's book; NULL: there was no memory */
    uint64_t resets_counted; /* of the residual store, in the figures */
    uint64_t calls;          /* calls that went over the link */
    gw_status_t broken;      /* sticky; belongs to whoever drives the calls, like engine */
    gw_status_t failed;      /* the same as far as the caller was told, with rank and sentence */
    int failed_rank;
    char error[512];
    char *why; /* while the link is set up: takes the transport's first warning; else NULL */
    size_t why_size;
    char description[96];
};

/*
 * The collective part of making a communicator: compares settings, exchanges facts, opens the link,
 * exchanges addresses. Fills transport, link and id. All ranks return the same status; `error`
 * tells why.
 */
gw_status_t gw__comm_connect(gw_comm_t *comm, const gw_comm_params_t *params);

/*
 * Opens the connections to all peers by greeting each of them, and lets both sides prove that they
 * know `secret`. A route that does not carry messages shows here, where all ranks can still agree
 * to go without, and not in the middle of the first call. Then closes the transport to newcomers.
 * Bounded by GRADWIRE_TIMEOUT. GW_ERR_PEER_REFUSED: the peer at the other end is not the rank.
 */
gw_status_t gw__comm_greet(gw_comm_t *comm, const uint8_t secret[GW__SECRET_BYTES], char *why,
                           size_t why_size);

#endif
