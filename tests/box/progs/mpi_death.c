/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a rank between two large sums, or in one.
 *   mpi_death kill     rank 1 dies; rank 0, whose handler returns, prints what its next two calls
 *                      give
 *   mpi_death stop     the same, but rank 1 is stopped in the middle of a sum
 *   mpi_death abort    rank 0 calls MPI_Abort while the others go on
 */
#include "mpi_prog.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

enum { COUNT = 1 << 18, MANY = 1 << 24 };

static float in[MANY], out[MANY];
static int count = COUNT;
static int last; /* what the last sum returned */

static int sum(void)
{
    int rc = MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), class = rc;
    last = rc;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    return class;
}

static void stop(int signal)
{
    (void)signal;
    raise(SIGSTOP);
}

/*
 * A sum in the middle of which rank 1 is stopped: half as long after its beginning as the one
 * before took. (At the edges of a sum a stopped rank is a late one, for which rank 0 waits.) Rank 0
 * leaves with the first error, and the seconds that the failed sum took.
 */
static double sum_until_stopped(int rank, long *pid)
{
    double took = 0;
    count = MANY;
    *pid = (long)getpid();
    MPI_Bcast(pid, 1, MPI_LONG, 1, MPI_COMM_WORLD);
    signal(SIGALRM, stop);
    for (int i = 0;; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        if (rank == 1 && i == 2) {
            struct itimerval once = {.it_value = {.tv_usec = (suseconds_t)(took * 0.5e6)}};
            setitimer(ITIMER_REAL, &once, NULL);
        }
        if (sum() != MPI_SUCCESS)
            return MPI_Wtime() - began;
        took = MPI_Wtime() - began;
        took = took < 0.9 ? took : 0.9;
    }
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    bool stops = argc > 1 && strcmp(argv[1], "stop") == 0;
    bool dies = stops || (argc > 1 && strcmp(argv[1], "kill") == 0);
    long victim = 0;
    bool fine = true;
    for (int i = 0; i < 3; i++)
        fine = sum() == MPI_SUCCESS && fine;
    double took = stops ? sum_until_stopped(rank, &victim) : 0;
    if (dies && rank == 1)
        raise(SIGKILL);
    if (!dies && rank == 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    if (!dies)
        for (;;)
            sum();
    double began = MPI_Wtime() - took;
    int first = sum(), second = sum();
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(last, text, &length);
    printf("text %zu %d %s\n", strlen(text), length, text);
    printf("fine %d other %d %d quick %d\n", fine, first == MPI_ERR_OTHER, second == MPI_ERR_OTHER,
           MPI_Wtime() - began < 7);
    fflush(stdout);
    if (victim > 0)
        kill((pid_t)victim, SIGKILL);
    _exit(0); /* MPI_Finalize would wait for the dead */
}
