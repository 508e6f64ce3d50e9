/* SPDX-License-Identifier: Apache-2.0 */
/* Programs in which one rank waits for MPI on a rank that is already inside a compressed sum.
 *   mpi_progress collective   rank 0 ends a non-blocking collective after the sum, rank 1 before it
 *   mpi_progress message      rank 0 sends 200 kB across the sum, rank 1 receives before it
 *   mpi_progress large        the same with 32 MB
 * Rank 0 prints "done" and the milliseconds of a round in the middle. */
#include "mpi_prog.h"

enum { COUNT = 100000, ROUNDS = 5 };

static float values[COUNT];

static void sum(void)
{
    MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void across_collective(int rank)
{
    char small[8] = "";
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, small, sizeof small, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD, &request);
    if (rank == 0)
        sum();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank != 0)
        sum();
}

static void across_message(int rank, char *message, int length)
{
    MPI_Request request;
    if (rank == 0)
        MPI_Isend(message, length, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request);
    else if (rank == 1)
        MPI_Recv(message, length, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sum();
    if (rank == 0)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int rank, length;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bool collective = argc > 1 && strcmp(argv[1], "collective") == 0;
    length = argc > 1 && strcmp(argv[1], "large") == 0 ? 32000000 : 200000;
    char *message = calloc(1, (size_t)length);
    double took[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double began = MPI_Wtime();
        if (collective)
            across_collective(rank);
        else
            across_message(rank, message, length);
        took[i] = MPI_Wtime() - began;
    }
    qsort(took, ROUNDS, sizeof took[0], ascending);
    if (rank == 0)
        printf("done %.1f\n", took[ROUNDS / 2] * 1e3);
    free(message);
    MPI_Finalize();
    return 0;
}
