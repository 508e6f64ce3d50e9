/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one line per call, to stderr or a file, rate limited. */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

gw_status_t gw__log_open(gw__log_t *log, gw_log_level_t level, const char *path)
{
    memset(log, 0, sizeof *log);
    log->level = level;
    log->fd = STDERR_FILENO;
    log->rank = -1;
    if (path && path[0]) {
        /* A pipe without a reader must not hold the program up, now or when it is full. */
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
        if (fd < 0)
            return GW_ERR_IO;
        log->fd = fd;
        log->owns_fd = true;
    }
    pthread_mutex_init(&log->lock, NULL);
    return GW_OK;
}

void gw__log_close(gw__log_t *log)
{
    if (log->owns_fd)
        close(log->fd);
    pthread_mutex_destroy(&log->lock);
}

void gw__log_set_rank(gw__log_t *log, int rank)
{
    pthread_mutex_lock(&log->lock);
    log->rank = rank;
    pthread_mutex_unlock(&log->lock);
}

/* Whether one more line may pass now; counts it either way. Caller holds the lock. */
static bool admit(gw__log_t *log, gw_log_level_t level, unsigned *dropped)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *dropped = 0;
    if (now.tv_sec != log->window) {
        log->window = now.tv_sec;
        log->lines = 0;
        *dropped = log->dropped;
        log->dropped = 0;
    }
    if (level < GW_LOG_DEBUG && log->lines >= GW__LOG_PER_SECOND) {
        log->dropped++;
        return false;
    }
    log->lines++;
    return true;
}

void gw__log_write(gw__log_t *log, gw_log_level_t level, const char *format, va_list args)
{
    static const char *const words[] = {"", "warning: ", "", ""};
    if (level > log->level || level == GW_LOG_OFF)
        return;
    int saved = errno;
    char line[1024];
    unsigned dropped;
    pthread_mutex_lock(&log->lock);
    if (admit(log, level, &dropped)) {
        int used = log->rank < 0
                       ? snprintf(line, sizeof line, "gradwire: %s", words[level])
                       : snprintf(line, sizeof line, "gradwire[%d]: %s", log->rank, words[level]);
        if (dropped > 0)
            used +=
                snprintf(line + used, sizeof line - (size_t)used, "(%u lines dropped) ", dropped);
        int text = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
        used += text < 0 ? 0 : text;
        if ((size_t)used > sizeof line - 2)
            used = (int)sizeof line - 2;
        line[used++] = '\n';
        /* A log that cannot be written must not disturb the trainer. */
        ssize_t ignored = write(log->fd, line, (size_t)used);
        (void)ignored;
    }
    pthread_mutex_unlock(&log->lock);
    errno = saved;
}
