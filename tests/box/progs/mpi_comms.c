/* SPDX-License-Identifier: Apache-2.0 */
/* Many communicators under the shim: cycles, two in turn, threads, foreign attributes, fork. Prints
 * TAP. */
#include "mpi_prog.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 40000, CYCLES = 12, ROUNDS = 60 };

static int world_rank, world_size;

/* Sums over a communicator and checks against the exact sum with an error that q8 keeps. */
static bool sum_right(MPI_Comm comm, int seed, bool in_place)
{
    int rank, size, *ranks;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    float *send = malloc(COUNT * sizeof *send), *recv = malloc(COUNT * sizeof *recv);
    ranks = malloc((size_t)size * sizeof *ranks);
    PMPI_Allgather(&world_rank, 1, MPI_INT, ranks, 1, MPI_INT, comm);
    for (size_t i = 0; i < COUNT; i++)
        send[i] = recv[i] = prog_value(world_rank + 8 * seed, i);
    int rc = in_place ? MPI_Allreduce(MPI_IN_PLACE, recv, COUNT, MPI_FLOAT, MPI_SUM, comm)
                      : MPI_Allreduce(send, recv, COUNT, MPI_FLOAT, MPI_SUM, comm);
    bool right = rc == MPI_SUCCESS && prog_same(prog_hash(recv, COUNT * sizeof *recv), comm);
    for (size_t i = 0; i < COUNT && right; i++) {
        double sum = 0;
        for (int r = 0; r < size; r++)
            sum += prog_value(ranks[r] + 8 * seed, i);
        right = fabs(sum - recv[i]) < 0.02 * (size + 1);
    }
    free(send);
    free(recv);
    free(ranks);
    return right;
}

static void cycles(void)
{
    bool good = true;
    for (int i = 0; i < CYCLES; i++) {
        MPI_Comm half, copy;
        MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &half);
        good = sum_right(half, i, i % 2) && good;
        MPI_Comm_dup(half, &copy);
        good = sum_right(copy, i + 1, false) && good;
        if (i % 2)
            MPI_Comm_free(&half);
        good = sum_right(copy, i + 2, true) && good;
        MPI_Comm_disconnect(&copy);
        if (i % 2 == 0)
            MPI_Comm_free(&half);
        good = good && half == MPI_COMM_NULL && copy == MPI_COMM_NULL;
    }
    prog_report(good, "%d cycles of split, dup, free and disconnect", CYCLES);
}

static void in_turn(void)
{
    MPI_Comm a, b;
    bool good = true;
    MPI_Comm_split(MPI_COMM_WORLD, 0, world_rank, &a);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &b);
    for (int i = 0; i < ROUNDS; i++)
        good = sum_right(i % 3 ? a : b, i, i % 2) && good;
    prog_report(good, "two communicators in turn, one of them in reverse order of ranks");
    MPI_Comm_free(&a);
    MPI_Comm_free(&b);
}

/* One group calls more often than the other, and one rank never reduces on the whole world. */
static void unequal_groups(void)
{
    MPI_Comm half;
    bool good = true;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0, world_rank, &half);
    for (int i = 0; i < (world_rank == 0 ? 0 : 7); i++)
        good = sum_right(half, i, false) && good;
    prog_report(good, "groups with different numbers of calls");
    MPI_Comm_free(&half);
}

static int copies;

static int copy_attribute(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static void attributes(void)
{
    int keyval, value = 7, before;
    MPI_Comm mine, copy;
    MPI_Comm_split(MPI_COMM_WORLD, 0, world_rank, &mine);
    MPI_Comm_create_keyval(copy_attribute, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_set_attr(mine, keyval, &value);
    bool good = sum_right(mine, 1, false);
    before = copies;
    MPI_Comm_dup(mine, &copy);
    good = sum_right(copy, 2, false) && good;
    prog_report(good && before == 0 && copies == 1,
                "the application's attribute callbacks run for its own dup only");
    MPI_Comm_free(&copy);
    MPI_Comm_free(&mine);
    MPI_Comm_free_keyval(&keyval);
}

static void *thread_main(void *argument)
{
    MPI_Comm comm = *(MPI_Comm *)argument;
    for (int i = 0; i < ROUNDS; i++)
        if (!sum_right(comm, i, i % 2))
            return argument;
    return NULL;
}

static void threads(int provided)
{
    MPI_Comm comm[2];
    pthread_t thread[2];
    void *failed[2];
    if (provided < MPI_THREAD_MULTIPLE) {
        if (world_rank == 0)
            printf(
                "ok - two threads on two communicators # SKIP MPI_THREAD_MULTIPLE not provided\n");
        return;
    }
    for (int i = 0; i < 2; i++)
        MPI_Comm_split(MPI_COMM_WORLD, 0, world_rank, &comm[i]);
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, thread_main, &comm[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], &failed[i]);
    prog_report(!failed[0] && !failed[1], "two threads on two communicators");
    for (int i = 0; i < 2; i++)
        MPI_Comm_free(&comm[i]);
}

static void forking(void)
{
    int status = -1;
    bool good = sum_right(MPI_COMM_WORLD, 1, false);
    pid_t child = fork();
    if (child == 0)
        exit(0);
    waitpid(child, &status, 0);
    FILE *echo = popen("echo hello", "r");
    char line[16] = "";
    good = echo && fgets(line, sizeof line, echo) && strcmp(line, "hello\n") == 0 && good;
    if (echo)
        pclose(echo);
    good = sum_right(MPI_COMM_WORLD, 2, false) && good;
    prog_report(good && WIFEXITED(status) && WEXITSTATUS(status) == 0,
                "fork with exit, and popen, between two calls");
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    cycles();
    in_turn();
    unequal_groups();
    attributes();
    threads(provided);
    forking();
    MPI_Finalize();
    return 0;
}
