/* SPDX-License-Identifier: Apache-2.0 */
/* Ten steps of six all-reduces on MPI_COMM_WORLD and of one on a communicator whose name differs
 * between the ranks and changes on the way. Prints how wrong each result is. */
#include "mpi_prog.h"

enum { LARGE = 1 << 18, SMALL = 1 << 15, STEPS = 10 };

static float in[LARGE], out[LARGE];

/* A sum of `count` elements; returns its largest error. */
static double sum(int count, MPI_Comm comm, int size)
{
    double worst = 0;
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, comm);
    for (int i = 0; i < count; i++) {
        double exact = 0;
        for (int r = 0; r < size; r++)
            exact += prog_value(r, i);
        worst = fmax(worst, fabs(exact - out[i]));
    }
    return worst;
}

int main(int argc, char **argv)
{
    int rank, size, flag = 1, flags;
    MPI_Comm tensor;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &tensor);
    MPI_Comm_set_name(tensor, rank == 0 ? "tensor parallel" : "something else");
    for (int i = 0; i < LARGE; i++)
        in[i] = prog_value(rank, i);
    for (int step = 0; step < STEPS; step++) {
        static const int counts[] = {LARGE, LARGE, SMALL, LARGE, SMALL};
        if (rank == 0)
            printf("step %d:", step);
        for (int i = 0; i < 5; i++) {
            double error = sum(counts[i], MPI_COMM_WORLD, size);
            if (rank == 0)
                printf(" %s", error < 1e-5 ? "exact" : error < 0.05 ? "fine" : "coarse");
        }
        MPI_Allreduce(&flag, &flags, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        double error = sum(LARGE, tensor, size);
        if (rank == 0)
            printf(" tensor %s\n", error < 1e-5 ? "exact" : error < 0.05 ? "fine" : "coarse");
        if (step == 4)
            MPI_Comm_set_name(tensor, rank == 1 ? "tensor parallel" : "renamed");
    }
    MPI_Comm_free(&tensor);
    MPI_Finalize();
    return 0;
}
