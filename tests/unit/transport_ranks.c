/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks for transport tests: forked processes with shared memory as their channel outside, or
 * threads. */
#include "transport_ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct seat {
    ranks_t *ranks;
    int rank;
} seat_t;

/* Others may still be waiting for the end of what this rank sent. */
static void progress(body_rank_t *me)
{
    if (me->link && me->carrier[0]) /* the part is over */
        me->transport->progress(me->link);
    usleep(200);
}

/*
 * Two tables in turn: a rank that writes round r + 2 has seen all others arrive at r + 1, so they
 * have read r.
 */
static gw_status_t gather(void *arg, const void *mine, void *all, size_t bytes)
{
    seat_t *seat = arg;
    ranks_t *ranks = seat->ranks;
    double until = body_now() + 30;
    int round = atomic_load(&ranks->round[seat->rank]) + 1;
    unsigned char(*table)[8192] = ranks->table[round % 2];
    if (bytes > sizeof(table[0]))
        return GW_ERR_NO_SPACE;
    memcpy(table[seat->rank], mine, bytes);
    atomic_store(&ranks->round[seat->rank], round);
    for (int i = 0; i < ranks->size; i++) {
        while (atomic_load(&ranks->round[i]) < round) {
            if (body_now() > until)
                return GW_ERR_TIMEOUT;
            progress(&ranks->body[seat->rank]);
        }
        memcpy((unsigned char *)all + (size_t)i * bytes, table[i], bytes);
    }
    return GW_OK;
}

static void wait_for(ranks_t *ranks, int rank, double until)
{
    while (waitpid(ranks->pid[rank], &ranks->exit_status[rank], WNOHANG) == 0) {
        if (body_now() > until) {
            kill(ranks->pid[rank], SIGKILL);
            snprintf(ranks->body[rank].failure, sizeof(ranks->body[rank].failure),
                     "hung and was killed");
            waitpid(ranks->pid[rank], &ranks->exit_status[rank], 0);
            return;
        }
        usleep(1000);
    }
}

ranks_t *ranks_fork(int size, const char *part, ranks_fn fn)
{
    ranks_t *ranks =
        mmap(NULL, sizeof(*ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ranks == MAP_FAILED)
        abort();
    ranks->size = size;
    for (int i = 0; i < size; i++) {
        ranks->body[i] = (body_rank_t){.part = part, .rank = i, .size = size, .gather = gather};
        pid_t pid = fork();
        if (pid != 0) {
            ranks->pid[i] = pid; /* the child must not write here: it shares the memory */
            continue;
        }
        seat_t seat = {ranks, i};
        ranks->body[i].gather_arg = &seat;
        fn(&ranks->body[i]);
        fflush(NULL);
        _exit(0);
    }
    double until = body_now() + 60;
    for (int i = 0; i < size; i++)
        wait_for(ranks, i, until);
    return ranks;
}

void ranks_free(ranks_t *ranks)
{
    munmap(ranks, sizeof(*ranks));
}

typedef struct strand {
    body_rank_t body;
    gw_loopback_rank_t rank;
    ranks_fn fn;
    pthread_t thread;
} strand_t;

static void *strand_main(void *arg)
{
    strand_t *strand = arg;
    strand->fn(&strand->body);
    return NULL;
}

void ranks_threads(int size, const gw_transport_t *transport, const char *part, ranks_fn fn,
                   char failure[320], char carrier[64])
{
    strand_t strands[RANKS_MAX] = {0};
    gw_loopback_t *world = NULL;
    if (gw_loopback_create(size, &world) != GW_OK)
        abort();
    for (int i = 0; i < size; i++) {
        strands[i].rank = (gw_loopback_rank_t){world, i};
        strands[i].fn = fn;
        strands[i].body = (body_rank_t){.transport = transport,
                                        .part = part,
                                        .rank = i,
                                        .size = size,
                                        .arg = world,
                                        .gather = gw_loopback_allgather,
                                        .gather_arg = &strands[i].rank};
        if (pthread_create(&strands[i].thread, NULL, strand_main, &strands[i]) != 0)
            abort();
    }
    failure[0] = '\0';
    for (int i = 0; i < size; i++)
        pthread_join(strands[i].thread, NULL);
    for (int i = 0; i < size; i++)
        if (strands[i].body.failure[0] && !failure[0])
            snprintf(failure, 320, "%s, rank %d: %s", part, i, strands[i].body.failure);
    snprintf(carrier, 64, "%s", strands[0].body.carrier);
    gw_loopback_free(world);
}
