/* SPDX-License-Identifier: Apache-2.0 */
/* Actors of a fault test, processes or threads, in memory that all share; an all-gather that goes
 * on without the dead. */
#ifndef TRANSPORT_GROUPS_H
#define TRANSPORT_GROUPS_H

#include <gradwire/gradwire.h>

#include <stdatomic.h>
#include <sys/types.h>

enum { ACTORS = 4, GATHER_MAX = 16384 };

/* Some actors that gather. */
typedef struct group {
    int size, member[ACTORS];
    atomic_int round[ACTORS]; /* by place in the group */
    unsigned char table[2][ACTORS][GATHER_MAX];
} group_t;

/* An actor's place in a group; `before` is called with the number of each gather, from 1. */
typedef struct seat {
    struct stage *stage;
    group_t *group;
    int place;
    void (*before)(struct stage *stage, int gather);
} seat_t;

/* What became of one actor. */
typedef struct verdict {
    char failure[512]; /* "" or what was not as it should be */
    char error[256];   /* gw_comm_error of the call that failed */
    gw_status_t status;
    double took, closed; /* seconds */
} verdict_t;

typedef struct stage {
    int size;      /* ranks of the first group; one more actor is the spare of the second */
    int victim;    /* rank that the fault is about */
    bool threads;  /* actors are threads of one process */
    unsigned seed; /* of this repetition */
    const void *scene;
    gw_loopback_t *world[2];
    pid_t pid[ACTORS];
    atomic_bool dead[ACTORS], finished[ACTORS];
    atomic_bool armed;     /* the victim is in the call, and about to be struck */
    _Atomic double struck; /* when it happened; 0: not yet, or not known */
    _Atomic double
        still; /* seconds that the machine stood still in, as a watcher outside saw them */
    group_t first, second;
    verdict_t verdict[ACTORS];
} stage_t;

/* Monotonic seconds. */
double stage_now(void);

/* Room for a stage of `size` ranks and the spare. */
stage_t *stage_new(int size, bool threads);
void stage_free(stage_t *stage);

/* Runs `fn` as each actor and waits for them. A process that was stopped gets SIGCONT once all
 * others have finished; one that hangs for `patience` seconds is killed and has failed; a thread
 * that does so ends the program by SIGABRT. */
void stage_run(stage_t *stage, void (*fn)(stage_t *stage, int actor), double patience);

/* The out-of-band all-gather: zeros stand for the dead. GW_ERR_TIMEOUT after 20 s. */
gw_status_t stage_gather(void *seat, const void *mine, void *all, size_t bytes);

/* Notes what went wrong first. */
void stage_fail(stage_t *stage, int actor, const char *format, ...) GW_PRINTF(3, 4);

#endif
