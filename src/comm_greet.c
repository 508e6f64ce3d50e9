/* SPDX-License-Identifier: Apache-2.0 */
/* The first messages of a communicator: every rank greets every other twice. */
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "comm_internal.h"

/* A call number that no early call has: the tag's upper half. */
#define GREETING_TAG ((uint64_t)0xFFFFFF << 24)

typedef struct greeting {
    gw_request_t send, recv;
    char out, in;
} greeting_t;

static int pending(const greeting_t *greetings, int size, int self)
{
    int count = 0;
    for (int r = 0; r < size; r++)
        if (r != self)
            count += (greetings[r].send.status == GW_IN_PROGRESS) +
                     (greetings[r].recv.status == GW_IN_PROGRESS);
    return count;
}

/* Waits for one turn of greetings; what is not done in time is taken back. */
static void finish_turn(gw_comm_t *comm, greeting_t *greetings, int64_t until)
{
    while (pending(greetings, comm->size, comm->rank) > 0) {
        if (comm->transport->progress(comm->link) > 0)
            continue;
        if (gw__now_ns() > until)
            break;
        gw__engine_idle(&comm->engine);
        comm->transport->wait(comm->link, 1000);
    }
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank)
            continue;
        comm->transport->cancel(comm->link, &greetings[r].send);
        comm->transport->cancel(comm->link, &greetings[r].recv);
    }
}

static gw_status_t outcome_of(gw_comm_t *comm, const greeting_t *greetings, char *why,
                              size_t why_size)
{
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank ||
            (greetings[r].send.status == GW_OK && greetings[r].recv.status == GW_OK))
            continue;
        gw_status_t status =
            greetings[r].send.status != GW_OK ? greetings[r].send.status : greetings[r].recv.status;
        if (status == GW_ERR_CANCELED)
            status = GW_ERR_TIMEOUT;
        snprintf(why, why_size, "%s carries no message to rank %d: %s", comm->transport->name, r,
                 gw_status_text(status));
        return status;
    }
    return GW_OK;
}

/*
 * Twice, because a transport may still be setting a connection up when the first message is
 * through, and needs both ends for that: when the second has arrived, the peer was there until the
 * set-up was over.
 */
gw_status_t gw__comm_greet(gw_comm_t *comm, char *why, size_t why_size)
{
    greeting_t *greetings = calloc((size_t)comm->size, sizeof *greetings);
    if (!greetings)
        return GW_ERR_NO_MEMORY;
    int64_t until = gw__now_ns() + (int64_t)(comm->context->settings.timeout * 1e9);
    gw_status_t status = GW_OK;
    for (int turn = 0; turn < 2 && status == GW_OK; turn++) {
        uint64_t tag = GREETING_TAG | (uint64_t)turn;
        for (int r = 0; r < comm->size; r++)
            if (r != comm->rank)
                comm->transport->recv(comm->link, r, tag, &greetings[r].in, 1, &greetings[r].recv);
        for (int j = 1; j < comm->size; j++) {
            greeting_t *g = &greetings[(comm->rank + j) % comm->size];
            comm->transport->send(comm->link, (comm->rank + j) % comm->size, tag, &g->out, 1,
                                  &g->send);
        }
        finish_turn(comm, greetings, until);
        status = outcome_of(comm, greetings, why, why_size);
    }
    free(greetings);
    return status;
}
