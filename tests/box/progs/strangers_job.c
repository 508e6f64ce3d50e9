/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job without MPI, for strangers to attack: makes communicators over UCX, sums with each, checks
 * the sums. Ranks gather over files, so that no listening port is there but those of the transport.
 *
 *     strangers_job RANK SIZE DIRECTORY ROUNDS PAUSE_MS SECONDS
 *
 * Every all-gather waits PAUSE_MS, which keeps each step of the set-up open for strangers; the last
 * communicator is used for SECONDS.
 */
#include <gradwire/gradwire.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 100003 };

typedef struct job {
    int rank, size, gathers, pause_ms;
    const char *directory;
} job_t;

static float data[COUNT];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int publish(const job_t *job, const void *mine, size_t bytes)
{
    char name[512], part[544];
    snprintf(name, sizeof name, "%s/%d.%d", job->directory, job->gathers, job->rank);
    snprintf(part, sizeof part, "%s.part", name);
    FILE *file = fopen(part, "w");
    if (!file || fwrite(mine, 1, bytes, file) != bytes || fclose(file) != 0)
        return -1;
    return rename(part, name);
}

static int read_other(const job_t *job, int rank, void *out, size_t bytes)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%d.%d", job->directory, job->gathers, rank);
    for (double until = now() + 60; now() < until; usleep(500)) {
        FILE *file = fopen(name, "r");
        if (!file)
            continue;
        size_t got = fread(out, 1, bytes, file);
        fclose(file);
        return got == bytes ? 0 : -1;
    }
    return -1;
}

static gw_status_t gather(void *arg, const void *mine, void *all, size_t bytes)
{
    job_t *job = arg;
    usleep((useconds_t)job->pause_ms * 1000);
    if (publish(job, mine, bytes) != 0)
        return GW_ERR_IO;
    for (int i = 0; i < job->size; i++)
        if (read_other(job, i, (char *)all + (size_t)i * bytes, bytes) != 0)
            return GW_ERR_IO;
    job->gathers++;
    return GW_OK;
}

/* Whole numbers, which the codec `raw` sums exactly. */
static int sum_once(const job_t *job, gw_comm_t *comm)
{
    for (int i = 0; i < COUNT; i++)
        data[i] = (float)(i % 1000 + job->rank);
    if (gw_allreduce(comm, NULL, data, COUNT, GW_F32, GW_SUM) != GW_OK) {
        fprintf(stderr, "rank %d: %s\n", job->rank, gw_comm_error(comm));
        return -1;
    }
    int more = job->size * (job->size - 1) / 2;
    for (int i = 0; i < COUNT; i++)
        if (data[i] != (float)(job->size * (i % 1000) + more)) {
            fprintf(stderr, "rank %d: element %d is %g\n", job->rank, i, (double)data[i]);
            return -1;
        }
    return 0;
}

/* One communicator: sums for `seconds`, or three times. All ranks count the same way. */
static int one_round(job_t *job, gw_context_t *context, double seconds)
{
    gw_comm_t *comm = NULL;
    gw_comm_params_t params = {.rank = job->rank,
                               .size = job->size,
                               .allgather = gather,
                               .allgather_arg = job,
                               .transport = "ucx"};
    double began = now();
    gw_status_t status = gw_comm_create(context, &params, &comm);
    if (status != GW_OK) {
        fprintf(stderr, "rank %d: %s\n", job->rank, gw_status_text(status));
        return -1;
    }
    fprintf(stderr, "rank %d: made in %.1f ms\n", job->rank, (now() - began) * 1e3);
    int failed = 0, turns = seconds > 0 ? (int)(seconds * 100) : 3;
    for (int i = 0; i < turns && !failed; i++) {
        failed = sum_once(job, comm);
        if (seconds > 0)
            usleep(10000);
    }
    gw_comm_free(comm);
    return failed;
}

int main(int argc, char **argv)
{
    char why[256];
    gw_context_t *context;
    gw_setting_t settings[] = {{"GRADWIRE_CODEC", "raw"}};
    if (argc != 7)
        return 2;
    job_t job = {.rank = atoi(argv[1]),
                 .size = atoi(argv[2]),
                 .directory = argv[3],
                 .pause_ms = atoi(argv[5])};
    int rounds = atoi(argv[4]), failed = 0;
    if (gw_context_create(settings, 1, &context, why, sizeof why) != GW_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    for (int i = 0; i < rounds && !failed; i++)
        failed = one_round(&job, context, i == rounds - 1 ? atof(argv[6]) : 0);
    gw_context_free(context);
    if (!failed)
        printf("rank %d done\n", job.rank);
    return failed ? 1 : 0;
}
