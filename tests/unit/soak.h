/* SPDX-License-Identifier: Apache-2.0 */
/* What a process holds, from /proc/self, and whether it grew; deliberate leaks that must be seen.
 */
#ifndef SOAK_H
#define SOAK_H

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct soak_usage {
    long rss_kib, descriptors, threads;
} soak_usage_t;

typedef enum soak_leak { LEAK_NOTHING, LEAK_MEMORY, LEAK_DESCRIPTOR, LEAK_THREAD } soak_leak_t;

static inline long soak_entries(const char *directory)
{
    long n = 0;
    DIR *d = opendir(directory);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static inline soak_usage_t soak_usage(void)
{
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2)
        abort();
    fclose(f);
    return (soak_usage_t){resident * (sysconf(_SC_PAGESIZE) / 1024), soak_entries("/proc/self/fd"),
                          soak_entries("/proc/self/task")};
}

/* What grew between the two by more than `rss_kib`, or by any descriptor or thread; NULL: nothing.
 * Sanitizers keep what was freed: a negative bound leaves memory out. */
static inline const char *soak_growth(soak_usage_t before, soak_usage_t after, long rss_kib)
{
    static _Thread_local char text[128];
    long memory = after.rss_kib - before.rss_kib, descriptors = after.descriptors;
    if (descriptors > before.descriptors)
        snprintf(text, sizeof text, "descriptors: %ld, then %ld", before.descriptors, descriptors);
    else if (after.threads > before.threads)
        snprintf(text, sizeof text, "threads: %ld, then %ld", before.threads, after.threads);
    else if (rss_kib >= 0 && memory > rss_kib)
        snprintf(text, sizeof text, "memory: %ld KiB more than %ld, allowed %ld", memory,
                 before.rss_kib, rss_kib);
    else
        return NULL;
    return text;
}

static inline void *soak_stay(void *arg)
{
    pause();
    return arg;
}

/* One deliberate leak, such as a cycle must not have. */
static inline void soak_leak(soak_leak_t leak)
{
    static void *volatile lost;
    pthread_t thread;
    if (leak == LEAK_MEMORY && (lost = malloc(1 << 20)) != NULL)
        memset(lost, 1, 1 << 20);
    if (leak == LEAK_DESCRIPTOR && dup(0) < 0)
        abort();
    if (leak == LEAK_THREAD && pthread_create(&thread, NULL, soak_stay, NULL) != 0)
        abort();
}

#endif
