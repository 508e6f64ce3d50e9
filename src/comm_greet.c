/* SPDX-License-Identifier: Apache-2.0 */
/* The first messages of a communicator: every rank greets every other twice, and proves that it is
 * the rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "comm_internal.h"

/* A call number that no early call has: the tag's upper half. */
#define GREETING_TAG ((uint64_t)0xFFFFFF << 24)

/* What travels in either turn. */
typedef struct words {
    uint8_t nonce[GW__NONCE_BYTES];
    uint8_t proof[GW__PROOF_BYTES];
} words_t;

/* What goes on with one peer; `theirs` is its nonce of the first turn. */
typedef struct greeting {
    gw_request_t send, recv;
    words_t out, in;
    uint8_t theirs[GW__NONCE_BYTES];
} greeting_t;

/*
 * A proof covers who speaks to whom in which communicator and turn, and the speaker's nonce; that
 * of the second turn covers the listener's nonce too, so that nothing recorded earlier passes for
 * it.
 */
static void prove(const gw_comm_t *comm, const uint8_t secret[GW__SECRET_BYTES], int turn, int from,
                  int to, const uint8_t *nonce, const uint8_t *answered, uint8_t *out)
{
    uint8_t text[64 + 2 * GW__NONCE_BYTES] = {0};
    snprintf((char *)text, 64, "greeting %d %d %d %d %u", turn, from, to, comm->size, comm->id);
    memcpy(text + 64, nonce, GW__NONCE_BYTES);
    if (turn > 0)
        memcpy(text + 64 + GW__NONCE_BYTES, answered, GW__NONCE_BYTES);
    gw__mac(secret, text, sizeof text, out);
}

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

/* Whether what came in is the rank's; takes its nonce in the first turn. */
static bool is_proven(const gw_comm_t *comm, const uint8_t secret[GW__SECRET_BYTES], int turn,
                      int rank, const uint8_t *own_nonce, greeting_t *g)
{
    uint8_t proof[GW__PROOF_BYTES];
    if (g->recv.length != sizeof g->in)
        return false;
    if (turn == 0)
        memcpy(g->theirs, g->in.nonce, sizeof g->theirs);
    prove(comm, secret, turn, rank, comm->rank, g->theirs, own_nonce, proof);
    return gw__proof_equal(proof, g->in.proof);
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
        snprintf(why, why_size, "%s carries no message to rank %d: %s%s", comm->transport->name, r,
                 gw_status_text(status),
                 status == GW_ERR_TIMEOUT && comm->context->settings.guard && comm->transport->seal
                     ? "; where the hosts reach each other by translated addresses, set "
                       "GRADWIRE_GUARD=off"
                     : "");
        return status;
    }
    return GW_OK;
}

/* One greeting to and from every peer. */
static void take_turn(gw_comm_t *comm, const uint8_t secret[GW__SECRET_BYTES], int turn,
                      const uint8_t *nonce, greeting_t *greetings, int64_t until)
{
    uint64_t tag = GREETING_TAG | (uint64_t)turn;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank)
            comm->transport->recv(comm->link, r, tag, &greetings[r].in, sizeof greetings[r].in,
                                  &greetings[r].recv);
    for (int j = 1; j < comm->size; j++) {
        int to = (comm->rank + j) % comm->size;
        greeting_t *g = &greetings[to];
        memcpy(g->out.nonce, nonce, sizeof g->out.nonce);
        prove(comm, secret, turn, comm->rank, to, nonce, g->theirs, g->out.proof);
        comm->transport->send(comm->link, to, tag, &g->out, sizeof g->out, &g->send);
    }
    finish_turn(comm, greetings, until);
}

static gw_status_t check_proofs(gw_comm_t *comm, const uint8_t secret[GW__SECRET_BYTES], int turn,
                                const uint8_t *nonce, greeting_t *greetings, char *why,
                                size_t why_size)
{
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && !is_proven(comm, secret, turn, r, nonce, &greetings[r])) {
            snprintf(why, why_size, "who answers as rank %d over %s does not know the job's secret",
                     r, comm->transport->name);
            return GW_ERR_PEER_REFUSED;
        }
    return GW_OK;
}

/*
 * Twice, because a transport may still be setting a connection up when the first message is
 * through, and needs both ends for that: when the second has arrived, the peer was there until the
 * set-up was over.
 */
gw_status_t gw__comm_greet(gw_comm_t *comm, const uint8_t secret[GW__SECRET_BYTES], char *why,
                           size_t why_size)
{
    uint8_t nonce[GW__NONCE_BYTES];
    greeting_t *greetings = calloc((size_t)comm->size, sizeof *greetings);
    if (!greetings)
        return GW_ERR_NO_MEMORY;
    int64_t until = gw__now_ns() + (int64_t)(comm->context->settings.timeout * 1e9);
    gw_status_t status = gw__secret_draw(nonce, sizeof nonce);
    for (int turn = 0; turn < 2 && status == GW_OK; turn++) {
        take_turn(comm, secret, turn, nonce, greetings, until);
        status = outcome_of(comm, greetings, why, why_size);
        if (status == GW_OK)
            status = check_proofs(comm, secret, turn, nonce, greetings, why, why_size);
    }
    if (status == GW_OK && comm->transport->seal)
        comm->transport->seal(comm->link);
    free(greetings);
    return status;
}
