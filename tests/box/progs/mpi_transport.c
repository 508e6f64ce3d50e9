/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of transports over MPI: every part of the common test body, then closing as things
 * go wrong. Prints TAP. */
#include "mpi_prog.h"

#include "transport_body.h"

static int world_rank, world_size;

static gw_status_t gather(void *arg, const void *mine, void *all, size_t bytes)
{
    (void)arg;
    PMPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    return GW_OK;
}

static body_rank_t rank_of(const gw_transport_t *transport, const char *part, MPI_Comm *comm)
{
    return (body_rank_t){.transport = transport,
                         .part = part,
                         .rank = world_rank,
                         .size = world_size,
                         .gather = gather,
                         .mpi_comm = comm};
}

static void run_part(const gw_transport_t *transport, const char *part)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    body_rank_t me = rank_of(transport, part, &comm);
    body_run(&me);
    if (me.failure[0])
        fprintf(stderr, "rank %d, %s: %s\n", world_rank, part, me.failure);
    prog_report(!me.failure[0] && strncmp(me.carrier, "Open MPI v", 10) == 0, "%s", part);
}

/* The largest status of all ranks that a request of this rank ended with would hide the others'. */
static void report_status(body_rank_t *me, bool good, const char *name)
{
    if (!good)
        fprintf(stderr, "rank %d, %s: %s\n", world_rank, name, me->failure);
    prog_report(good, "%s", name);
}

/* A send that nobody takes, half gone: taken back, its memory is free, and the next message to the
 * same peer arrives whole. */
static void taken_back(const gw_transport_t *transport)
{
    enum { LONG = 4 << 20 };
    MPI_Comm comm = MPI_COMM_WORLD;
    body_rank_t me = rank_of(transport, "", &comm);
    bool good = body_open(&me) == 0;
    unsigned char *memory = malloc(LONG);
    gw_request_t first = {0}, second = {0}, third = {0};
    memset(memory, 1, LONG);
    if (world_rank == 0) {
        good = good && transport->send(me.link, 1, 7, memory, LONG, &first) == GW_IN_PROGRESS;
        transport->cancel(me.link, &first);
        good = good && first.status == GW_ERR_CANCELED;
        memset(memory, 2, LONG);
        transport->send(me.link, 1, 7, memory, LONG / 2, &second);
        good = good && body_finish(&me, &second, 20) == GW_OK;
    } else if (world_rank == 1) {
        PMPI_Barrier(MPI_COMM_SELF);
        transport->recv(me.link, 0, 7, memory, LONG, &second);
        good = good && body_finish(&me, &second, 20) == GW_OK && second.length == LONG / 2;
        for (size_t i = 0; i < LONG / 2 && good; i++)
            good = memory[i] == 2;
        transport->recv(me.link, 0, 7, memory, LONG, &third);
        good = good && transport->progress(me.link) >= 0 && third.status == GW_IN_PROGRESS;
        transport->cancel(me.link, &third);
    }
    report_status(&me, good, "a send that is half gone is taken back");
    transport->close(me.link);
    free(memory);
}

/* A rank that closes ends what waits for it, and nothing else. */
static void left_alone(const gw_transport_t *transport)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    body_rank_t me = rank_of(transport, "", &comm);
    bool good = body_open(&me) == 0;
    char byte = 5, early = 0, never = 0;
    gw_request_t out = {0}, in = {0}, waits = {0};
    if (world_rank == 0) {
        transport->send(me.link, 1, 1, &byte, 1, &out);
        good = good && body_finish(&me, &out, 10) == GW_OK;
    } else if (world_rank == 1) {
        transport->recv(me.link, 0, 2, &never, 1, &waits);
        good = good && body_finish(&me, &waits, 10) == GW_ERR_PEER_FAILED;
        good = good && transport->recv(me.link, 0, 1, &early, 1, &in) == GW_OK && early == 5;
        good = good && transport->recv(me.link, 0, 1, &never, 1, &waits) == GW_ERR_PEER_FAILED;
        good = good && transport->send(me.link, 0, 1, &byte, 1, &out) == GW_ERR_PEER_FAILED;
    }
    double began = body_now();
    transport->close(me.link);
    good = good && body_now() - began < 10.5;
    report_status(&me, good, "a rank that closes ends what waits for it");
}

/* Nobody else closes: bounded, also when it is the only one. */
static void close_alone(const gw_transport_t *transport)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    body_rank_t me = rank_of(transport, "", &comm);
    me.timeout = 2;
    bool good = body_open(&me) == 0;
    PMPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0) {
        double began = body_now();
        good = transport->close(me.link) == GW_OK && good;
        good = good && body_now() - began > 1.5 && body_now() - began < 3;
    }
    report_status(&me, good, "close waits for the others as long as its bound, not longer");
    if (world_rank != 0)
        transport->close(me.link);
}

static void many_links(const gw_transport_t *transport)
{
    bool good = true;
    for (int i = 0; i < 300 && good; i++) {
        MPI_Comm comm = MPI_COMM_WORLD;
        body_rank_t me = rank_of(transport, "", &comm);
        good = body_open(&me) == 0 && transport->close(me.link) == GW_OK;
    }
    prog_report(good, "300 links one after the other");
}

int main(int argc, char **argv)
{
    const gw_transport_t *transport = NULL;
    char why[256] = "";
    bool none = gw_transport_find("mpi", &transport, why, sizeof why) != GW_OK;
    if (none || transport->probe(why, sizeof why) != GW_ERR_NO_MODULE) {
        fprintf(stderr, "before MPI_Init: %s\n", why);
        return 1;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (!prog_report(transport->probe(why, sizeof why) == GW_OK,
                     "usable between Init and Finalize"))
        return 1;
    for (int i = 0; body_parts[i]; i++)
        run_part(transport, body_parts[i]);
    taken_back(transport);
    left_alone(transport);
    close_alone(transport);
    many_links(transport);
    MPI_Finalize();
    return transport->probe(why, sizeof why) == GW_ERR_NO_MODULE ? 0 : 1;
}
