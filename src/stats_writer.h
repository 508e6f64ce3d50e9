/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the stats file up to date: a thread of its own writes it, so that no call waits for a file
 * system. */
#ifndef GW_STATS_WRITER_H
#define GW_STATS_WRITER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <gradwire/status.h>

/*
 * The thread starts with the first figure, sleeps while nothing changes and writes at most once a
 * second: what a call counted is in the file a second later, also when no other call follows. It
 * takes no signals. Where no thread can be had, the callers write, when a second is over.
 */
typedef struct gw__stats_writer {
    gw_status_t (*write)(void *arg); /* writes the file; never runs twice at once */
    void *arg;
    pid_t process; /* a forked child has the figures, but not the thread, and writes nothing */
    atomic_bool changed, stop;
    atomic_int state;         /* of the thread */
    atomic_uint wanted, done; /* writes that were asked for */
    atomic_int result;
    _Atomic int64_t written; /* monotonic nanoseconds of the last write */
    pthread_mutex_t lock;    /* of a write */
    sem_t wake;
    pthread_t thread;
} gw__stats_writer_t;

/* Starts no thread yet. */
void gw__stats_writer_init(gw__stats_writer_t *writer, gw_status_t (*write)(void *arg), void *arg);

/* After figures changed, those stored sequentially consistently before. Any thread; costs two loads
 * but for once a second. */
void gw__stats_writer_changed(gw__stats_writer_t *writer);

/* Writes now, and returns what came of it. Any thread; waits 2 s at most when the thread runs (then
 * GW_ERR_TIMEOUT). Does nothing in a forked child. */
gw_status_t gw__stats_writer_now(gw__stats_writer_t *writer);

/* Ends the thread, writes a last time and frees. Does nothing in a forked child. */
void gw__stats_writer_close(gw__stats_writer_t *writer);

/* Makes `pattern` an absolute name, so that the file stays in one place when the application
 * changes its directory. malloc'ed; NULL: no memory, or no working directory. */
char *gw__stats_absolute(const char *pattern);

/* Replaces the file `pattern` (%r: the rank; without it ".rank" is appended when size > 1) by
 * `bytes` atomically. GW_ERR_INVALID: the name is too long. GW_ERR_IO, with the reason in errno. */
gw_status_t gw__stats_replace(const char *pattern, int rank, int size, const char *bytes,
                              size_t length);

#endif
