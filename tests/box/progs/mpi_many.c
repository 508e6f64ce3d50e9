/* SPDX-License-Identifier: Apache-2.0 */
/* Many communicators alive at once, two large sums on each. `mpi_many COUNT`; prints TAP. */
#include "mpi_prog.h"

enum { COUNT = 20000, MOST = 4096 };

static float values[COUNT];

static bool sum_right(MPI_Comm comm, int size)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(i % 16);
    if (MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_FLOAT, MPI_SUM, comm) != MPI_SUCCESS)
        return false;
    for (int i = 0; i < COUNT; i++)
        if (fabsf(values[i] - (float)(size * (i % 16))) > 0.1f * (float)size)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    static MPI_Comm comms[MOST];
    int size, rank, count = argc > 1 ? atoi(argv[1]) : 2;
    bool good = count > 0 && count <= MOST;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < count && good; i++)
        good = MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comms[i]) == MPI_SUCCESS;
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < count && good; i++)
            good = sum_right(comms[i], size);
    prog_report(good, "%d communicators at once", count);
    for (int i = 0; i < count && good; i++)
        MPI_Comm_free(&comms[i]);
    MPI_Finalize();
    return 0;
}
