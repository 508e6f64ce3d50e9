/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a rank between two large sums.
 *   mpi_death kill     rank 1 dies; rank 0, whose handler returns, prints what its next two calls
 * give mpi_death abort    rank 0 calls MPI_Abort while the others go on */
#include "mpi_prog.h"

#include <signal.h>
#include <unistd.h>

enum { COUNT = 1 << 18 };

static float in[COUNT], out[COUNT];
static int last; /* what the last sum returned */

static int sum(void)
{
    int rc = MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), class = rc;
    last = rc;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    return class;
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    bool dies = argc > 1 && strcmp(argv[1], "kill") == 0;
    bool fine = true;
    for (int i = 0; i < 3; i++)
        fine = sum() == MPI_SUCCESS && fine;
    if (dies && rank == 1)
        raise(SIGKILL);
    if (!dies && rank == 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    if (!dies)
        for (;;)
            sum();
    double began = MPI_Wtime();
    int first = sum(), second = sum();
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(last, text, &length);
    printf("text %zu %d %s\n", strlen(text), length, text);
    printf("fine %d other %d %d quick %d\n", fine, first == MPI_ERR_OTHER, second == MPI_ERR_OTHER,
           MPI_Wtime() - began < 7);
    fflush(stdout);
    _exit(0); /* MPI_Finalize would wait for the dead */
}
