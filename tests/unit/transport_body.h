/* SPDX-License-Identifier: Apache-2.0 */
/* The transport contract as a test body that one rank runs: in a thread or in a process, over any
 * transport. */
#ifndef TRANSPORT_BODY_H
#define TRANSPORT_BODY_H

#include <gradwire/transport.h>

/* One rank of one run. Fill everything above `failure`; body_run leaves "" there, or what went
 * wrong first. */
typedef struct body_rank {
    const gw_transport_t *transport;
    const char *part; /* one of body_parts */
    int rank, size;
    const char *devices;
    bool one_node, guard;
    const uint8_t *secret;
    double timeout;     /* of connect and close; 0: 10 s */
    void *arg;          /* of the transport */
    const char *faults; /* of the transport `fault` */
    void *mpi_comm;     /* the address of an MPI_Comm; NULL: none */
    gw_status_t (*gather)(void *arg, const void *mine, void *all, size_t bytes);
    void *gather_arg;
    char failure[256];
    char carrier[64]; /* what describe() said of the last peer */
    gw_link_t *link;
} body_rank_t;

/* The names of all parts, NULL at the end. */
extern const char *const body_parts[];

/* Opens a link, runs the part, closes. Never waits without bound unless `gather` does. */
void body_run(body_rank_t *me);

/* Notes what went wrong, unless something has before. */
void body_fail(body_rank_t *me, const char *format, ...) GW_PRINTF(2, 3);

/* The params of a link as body_open makes them, and the exchange of addresses. */
gw_link_params_t body_params(const body_rank_t *me);

/* Opens and connects; for tests that go on by themselves. Nonzero on failure, with the reason in
 * me->failure. */
int body_open(body_rank_t *me);

/* Progresses until the request is final or `seconds` are over; its status then. */
gw_status_t body_finish(body_rank_t *me, gw_request_t *req, double seconds);

double body_now(void);

#endif
