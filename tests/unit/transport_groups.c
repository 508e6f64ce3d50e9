/* SPDX-License-Identifier: Apache-2.0 */
/* Actors of a fault test, processes or threads, in memory that all share; an all-gather that goes
 * on without the dead. */
#include "transport_groups.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double stage_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

stage_t *stage_new(int size, bool threads)
{
    stage_t *stage =
        mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stage == MAP_FAILED)
        abort();
    stage->size = size;
    stage->threads = threads;
    stage->victim = 1;
    stage->first.size = stage->second.size = size;
    int place = 0;
    for (int i = 0; i < size; i++)
        stage->first.member[i] = i;
    for (int i = 0; i <= size; i++)
        if (i != stage->victim)
            stage->second.member[place++] = i;
    for (int w = 0; w < 2; w++)
        if (gw_loopback_create(size, &stage->world[w]) != GW_OK)
            abort();
    return stage;
}

void stage_free(stage_t *stage)
{
    for (int w = 0; w < 2; w++)
        gw_loopback_free(stage->world[w]);
    munmap(stage, sizeof(*stage));
}

void stage_fail(stage_t *stage, int actor, const char *format, ...)
{
    char *failure = stage->verdict[actor].failure;
    va_list args;
    if (failure[0])
        return;
    va_start(args, format);
    vsnprintf(failure, sizeof(stage->verdict[actor].failure), format, args);
    va_end(args);
}

/* Two tables in turn: who writes round r + 2 has seen all others at r + 1, so they have read r. */
gw_status_t stage_gather(void *arg, const void *mine, void *all, size_t bytes)
{
    seat_t *seat = arg;
    group_t *group = seat->group;
    int round = atomic_load(&group->round[seat->place]) + 1;
    unsigned char(*table)[GATHER_MAX] = group->table[round % 2];
    double until = stage_now() + 20;
    if (seat->before)
        seat->before(seat->stage, round);
    if (bytes > GATHER_MAX)
        return GW_ERR_NO_SPACE;
    memcpy(table[seat->place], mine, bytes);
    atomic_store(&group->round[seat->place], round);
    for (int i = 0; i < group->size; i++) {
        unsigned char *to = (unsigned char *)all + (size_t)i * bytes;
        bool there;
        while (!(there = atomic_load(&group->round[i]) >= round) &&
               !atomic_load(&seat->stage->dead[group->member[i]])) {
            if (stage_now() > until)
                return GW_ERR_TIMEOUT;
            usleep(200);
        }
        if (there)
            memcpy(to, table[i], bytes);
        else
            memset(to, 0, bytes);
    }
    return GW_OK;
}

typedef struct strand {
    stage_t *stage;
    int actor;
    void (*fn)(stage_t *stage, int actor);
    pthread_t thread;
} strand_t;

static void *strand_main(void *arg)
{
    strand_t *strand = arg;
    strand->fn(strand->stage, strand->actor);
    atomic_store(&strand->stage->finished[strand->actor], true);
    return NULL;
}

/* A millisecond that took this long: the machine itself stood still (virtual ones do), and nobody
 * in it could keep a deadline. */
#define STILL 0.25

static void wait_and_watch(stage_t *stage)
{
    double before = stage_now();
    usleep(1000);
    double took = stage_now() - before;
    if (took > STILL)
        atomic_store(&stage->still, atomic_load(&stage->still) + took);
}

/* Threads cannot be killed one by one. */
static void give_up(const stage_t *stage, int actor, double patience)
{
    fprintf(stderr, "actor %d of %d has not come back for %.1f s\n", actor, stage->size, patience);
    abort();
}

static void run_threads(stage_t *stage, void (*fn)(stage_t *stage, int actor), double patience)
{
    strand_t strands[ACTORS];
    for (int i = 0; i <= stage->size; i++) {
        strands[i] = (strand_t){stage, i, fn, 0};
        if (pthread_create(&strands[i].thread, NULL, strand_main, &strands[i]) != 0)
            abort();
    }
    double until = stage_now() + patience;
    for (int i = 0; i <= stage->size; i++)
        while (!atomic_load(&stage->finished[i])) {
            wait_and_watch(stage);
            if (stage_now() > until)
                give_up(stage, i, patience);
        }
    for (int i = 0; i <= stage->size; i++)
        pthread_join(strands[i].thread, NULL);
}

static void start_process(stage_t *stage, int actor, void (*fn)(stage_t *stage, int actor))
{
    fflush(NULL); /* or the child would print it again */
    pid_t pid = fork();
    if (pid < 0)
        abort();
    if (pid > 0) {
        stage->pid[actor] = pid;
        return;
    }
    fn(stage, actor);
    atomic_store(&stage->finished[actor], true);
    _exit(0);
}

/* Whether a process has ended; notes an end that it was not to have. */
static bool reap(stage_t *stage, int actor)
{
    int status;
    if (waitpid(stage->pid[actor], &status, WNOHANG) == 0)
        return false;
    if (status != 0 && !atomic_load(&stage->dead[actor]))
        stage_fail(stage, actor, "ended with status %#x", (unsigned)status);
    return true;
}

static void run_processes(stage_t *stage, void (*fn)(stage_t *stage, int actor), double patience)
{
    bool gone[ACTORS] = {false};
    for (int i = 0; i <= stage->size; i++)
        start_process(stage, i, fn);
    double until = stage_now() + patience;
    for (int left = stage->size + 1; left > 0; wait_and_watch(stage)) {
        for (int i = 0; i <= stage->size; i++)
            if (!gone[i] && reap(stage, i)) {
                gone[i] = true;
                left--;
            }
        if (left == 1 && !gone[stage->victim])
            kill(stage->pid[stage->victim], SIGCONT);
        for (int i = 0; stage_now() > until && i <= stage->size; i++)
            if (!gone[i]) {
                stage_fail(stage, i, "hung and was killed");
                kill(stage->pid[i], SIGKILL);
            }
    }
}

void stage_run(stage_t *stage, void (*fn)(stage_t *stage, int actor), double patience)
{
    if (stage->threads)
        run_threads(stage, fn, patience);
    else
        run_processes(stage, fn, patience);
}
