/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks for transport tests: forked processes with shared memory as their channel outside, or
 * threads. */
#ifndef TRANSPORT_RANKS_H
#define TRANSPORT_RANKS_H

#include "transport_body.h"

#include <stdatomic.h>
#include <sys/types.h>

#define RANKS_MAX 4

/* What the processes of one test share. */
typedef struct ranks {
    int size;
    pid_t pid[RANKS_MAX];
    atomic_int round[RANKS_MAX];
    unsigned char table[2][RANKS_MAX][8192];
    body_rank_t body[RANKS_MAX]; /* `failure` and `carrier` are read by the parent */
    int exit_status[RANKS_MAX];  /* as of waitpid */
} ranks_t;

/* What one rank does; it has me->gather. Its result is me->failure. */
typedef void (*ranks_fn)(body_rank_t *me);

/* Runs `fn` in `size` forked processes and waits, at most a minute. Free with ranks_free. */
ranks_t *ranks_fork(int size, const char *part, ranks_fn fn);
void ranks_free(ranks_t *ranks);

/* Runs `fn` in `size` threads of this process; the loopback's all-gather is the channel outside. A
 * failure is written to `failure`, else that is "". */
void ranks_threads(int size, const gw_transport_t *transport, const char *part, ranks_fn fn,
                   char failure[320], char carrier[64]);

#endif
