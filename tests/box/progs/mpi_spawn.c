/* SPDX-License-Identifier: Apache-2.0 */
/* Spawns two more ranks, joins both jobs in one communicator and sums over it. */
#include "mpi_prog.h"

enum { COUNT = 100000, SPAWNED = 2 };

static float in[COUNT], out[COUNT];

static bool exact(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(i % 999 + rank);
    MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, comm);
    for (int i = 0; i < COUNT; i++)
        if (out[i] != (float)(size * (i % 999) + size * (size - 1) / 2))
            return false;
    return true;
}

int main(int argc, char **argv)
{
    MPI_Comm parent, joint, merged;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&parent);
    bool child = parent != MPI_COMM_NULL;
    joint = parent;
    if (!child)
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, SPAWNED, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &joint,
                       MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(joint, child, &merged);
    bool all = prog_all(exact(merged), merged);
    if (!child && rank == 0)
        printf("merged %s\n", all ? "exact" : "lossy");
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&joint);
    MPI_Finalize();
    return 0;
}
