/* SPDX-License-Identifier: Apache-2.0 */
/* The ends that a job can take after some calls: stats_end HOW BEFORE [PAUSE]
 * BEFORE calls, PAUSE milliseconds without one, then on rank 1 the end HOW; rank 0 waits for it. */
#include "mpi_prog.h"

#include <signal.h>
#include <unistd.h>

enum { COUNT = 1 << 15 };

static float x[COUNT];

static void on_term(int sig)
{
    (void)sig;
    MPI_Abort(MPI_COMM_WORLD, 5);
}

static void end(const char *how)
{
    if (strcmp(how, "MPI_Abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    else if (strcmp(how, "handler") == 0)
        signal(SIGTERM, on_term), raise(SIGTERM);
    else if (strcmp(how, "SIGTERM") == 0)
        raise(SIGTERM);
    else if (strcmp(how, "SIGINT") == 0)
        raise(SIGINT);
    else if (strcmp(how, "SIGKILL") == 0)
        raise(SIGKILL);
    else if (strcmp(how, "abort") == 0)
        abort();
    else if (strcmp(how, "_exit") == 0)
        _exit(4);
    else if (strcmp(how, "exit") == 0)
        exit(4);
    else if (strcmp(how, "fatal") == 0)
        MPI_Allreduce(x, x + 1, COUNT - 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); /* overlap */
    fprintf(stderr, "%s was survived\n", how);
    exit(9);
}

int main(int argc, char **argv)
{
    int rank;
    if (argc < 3)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < atoi(argv[2]); i++)
        MPI_Allreduce(MPI_IN_PLACE, x, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    usleep(1000 * (useconds_t)(argc > 3 ? atoi(argv[3]) : 0));
    if (rank == 1)
        end(argv[1]);
    pause();
    return 0;
}
