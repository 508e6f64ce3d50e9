/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the stats file up to date: a thread of its own writes it, so that no call waits for a file
 * system. */
#define _GNU_SOURCE
#include "stats_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

#define PERIOD_NS INT64_C(1000000000)

enum { NONE, STARTING, RUNNING, FAILED }; /* of the thread */

void gw__stats_writer_init(gw__stats_writer_t *writer, gw_status_t (*write)(void *arg), void *arg)
{
    memset(writer, 0, sizeof *writer);
    writer->write = write;
    writer->arg = arg;
    writer->process = getpid();
    atomic_init(&writer->written, gw__now_ns() - PERIOD_NS);
    pthread_mutex_init(&writer->lock, NULL);
    sem_init(&writer->wake, 0, 0);
}

/* `changed` goes first: what is counted from here on asks for another write. */
static gw_status_t write_once(gw__stats_writer_t *writer)
{
    pthread_mutex_lock(&writer->lock);
    atomic_store(&writer->changed, false);
    gw_status_t status = writer->write(writer->arg);
    atomic_store(&writer->written, gw__now_ns());
    pthread_mutex_unlock(&writer->lock);
    return status;
}

/* ---- The thread
 * ------------------------------------------------------------------------------------------ */

static bool urgent(gw__stats_writer_t *writer)
{
    return atomic_load(&writer->stop) || atomic_load(&writer->wanted) != atomic_load(&writer->done);
}

/* Until there is something to write and a second has gone by, or somebody cannot wait. */
static void wait_for_turn(gw__stats_writer_t *writer)
{
    while (!urgent(writer) && !atomic_load(&writer->changed))
        sem_wait(&writer->wake);
    int64_t due = atomic_load(&writer->written) + PERIOD_NS;
    struct timespec until = {due / 1000000000, due % 1000000000};
    while (!urgent(writer) && gw__now_ns() < due)
        sem_clockwait(&writer->wake, CLOCK_MONOTONIC, &until);
}

static void *run(void *arg)
{
    gw__stats_writer_t *writer = arg;
    for (;;) {
        wait_for_turn(writer);
        if (atomic_load(&writer->stop))
            return NULL;
        unsigned wanted = atomic_load(&writer->wanted);
        atomic_store(&writer->result, write_once(writer));
        atomic_store(&writer->done, wanted);
    }
}

/* A small stack; the usual one where the thread-local data of all libraries does not fit there. */
static bool start(gw__stats_writer_t *writer)
{
    sigset_t all, before;
    pthread_attr_t small;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 * 1024);
    bool started = pthread_create(&writer->thread, &small, run, writer) == 0 ||
                   pthread_create(&writer->thread, NULL, run, writer) == 0;
    pthread_attr_destroy(&small);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_setname_np(writer->thread, "gradwire-stats");
    return started;
}

/* Callers write themselves; `changed` goes down again, so that the next one looks at the clock. */
static void write_when_due(gw__stats_writer_t *writer)
{
    if (gw__now_ns() - atomic_load(&writer->written) >= PERIOD_NS)
        write_once(writer);
    else
        atomic_store(&writer->changed, false);
}

static void notify(gw__stats_writer_t *writer)
{
    if (getpid() != writer->process)
        return;
    int none = NONE;
    if (atomic_compare_exchange_strong(&writer->state, &none, STARTING))
        atomic_store(&writer->state, start(writer) ? RUNNING : FAILED);
    if (atomic_load(&writer->state) == FAILED)
        write_when_due(writer);
    else
        sem_post(&writer->wake);
}

void gw__stats_writer_changed(gw__stats_writer_t *writer)
{
    if (!atomic_load(&writer->changed) && !atomic_exchange(&writer->changed, true))
        notify(writer);
}

/* Only what a signal handler may do as well: programs call MPI_Abort from theirs. */
static gw_status_t ask_thread(gw__stats_writer_t *writer)
{
    unsigned mine = atomic_fetch_add(&writer->wanted, 1) + 1;
    struct timespec pause = {0, 20000};
    int64_t deadline = gw__now_ns() + 2 * INT64_C(1000000000);
    sem_post(&writer->wake);
    while ((int)(atomic_load(&writer->done) - mine) < 0) {
        if (gw__now_ns() > deadline)
            return GW_ERR_TIMEOUT;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 1000000)
            pause.tv_nsec *= 2;
    }
    return (gw_status_t)atomic_load(&writer->result);
}

gw_status_t gw__stats_writer_now(gw__stats_writer_t *writer)
{
    if (getpid() != writer->process)
        return GW_OK;
    return atomic_load(&writer->state) == RUNNING ? ask_thread(writer) : write_once(writer);
}

void gw__stats_writer_close(gw__stats_writer_t *writer)
{
    if (getpid() != writer->process)
        return;
    if (atomic_load(&writer->state) == RUNNING) {
        atomic_store(&writer->stop, true);
        sem_post(&writer->wake);
        pthread_join(writer->thread, NULL);
    }
    write_once(writer);
    sem_destroy(&writer->wake);
    pthread_mutex_destroy(&writer->lock);
}

/* ---- The file
 * -------------------------------------------------------------------------------------------- */

char *gw__stats_absolute(const char *pattern)
{
    char *directory = pattern[0] == '/' ? strdup("") : getcwd(NULL, 0), *out = NULL;
    if (!directory)
        return NULL;
    if (asprintf(&out, "%s%s%s", directory, pattern[0] == '/' ? "" : "/", pattern) < 0)
        out = NULL;
    free(directory);
    return out;
}

static bool expand(const char *pattern, int rank, int size, char *out, size_t capacity)
{
    size_t used = 0;
    bool seen = false;
    for (const char *c = pattern; *c; c++) {
        char number[16];
        int n = 1;
        const char *piece = c;
        if (c[0] == '%' && c[1] == 'r') {
            n = snprintf(number, sizeof number, "%d", rank);
            piece = number;
            seen = true;
            c++;
        }
        if (used + (size_t)n >= capacity)
            return false;
        memcpy(out + used, piece, (size_t)n);
        used += (size_t)n;
    }
    out[used] = '\0';
    int n = seen || size <= 1 ? 0 : snprintf(out + used, capacity - used, ".%d", rank);
    return n >= 0 && used + (size_t)n < capacity;
}

static bool write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, bytes, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        length -= (size_t)n;
    }
    return true;
}

gw_status_t gw__stats_replace(const char *pattern, int rank, int size, const char *bytes,
                              size_t length)
{
    static atomic_uint writes; /* two contexts may write at once, and to one name */
    char path[4096], temporary[4200];
    struct stat old;
    if (!expand(pattern, rank, size, path, sizeof path))
        return GW_ERR_INVALID;
    /* A rename would put a file where a device (/dev/null) or a pipe was. */
    if (stat(path, &old) == 0 && !S_ISREG(old.st_mode)) {
        errno = S_ISDIR(old.st_mode) ? EISDIR : EEXIST;
        return GW_ERR_IO;
    }
    snprintf(temporary, sizeof temporary, "%s.%ld.%u.tmp", path, (long)getpid(),
             atomic_fetch_add(&writes, 1));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return GW_ERR_IO;
    bool good = write_all(fd, bytes, length);
    good = close(fd) == 0 && good;
    if (good && rename(temporary, path) == 0)
        return GW_OK;
    int why = errno;
    unlink(temporary);
    errno = why;
    return GW_ERR_IO;
}
