/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one line per call, to stderr or a file, rate limited. */
#ifndef GW_LOG_H
#define GW_LOG_H

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>

#include <gradwire/types.h>

typedef struct gw__log {
    pthread_mutex_t lock;
    gw_log_level_t level;
    int fd;         /* where lines go */
    bool owns_fd;   /* close it at the end */
    int rank;       /* -1: not known yet */
    int64_t window; /* second in which `lines` counts */
    unsigned lines, dropped;
} gw__log_t;

/* Opens `path` for appending, or stderr for NULL and "". GW_ERR_IO: errno tells. */
gw_status_t gw__log_open(gw__log_t *log, gw_log_level_t level, const char *path);
void gw__log_close(gw__log_t *log);

/* The rank that lines carry from now on; -1: none. Any thread. */
void gw__log_set_rank(gw__log_t *log, int rank);

/* Writes one line when `level` is enabled; keeps errno. Any thread. At most GW__LOG_PER_SECOND
 * lines a second below debug; what was dropped is told in the next line that passes. */
enum { GW__LOG_PER_SECOND = 50 };
void gw__log_write(gw__log_t *log, gw_log_level_t level, const char *format, va_list args);

#endif
