/* SPDX-License-Identifier: Apache-2.0 */
/* A program that knows nothing of layouts: 20 steps of one all-reduce over a model's gradients,
 * which are a matrix, its bias, a convolution and a norm. Prints how each part fared in a step, and
 * in the running sum. */
#include <string.h>

#include "mpi_prog.h"

enum { STEPS = 20, PARTS = 4 };
static const int begin[PARTS + 1] = {0, 200 * 300, 200 * 300 + 3000, 81000, 81064};
static const char *const names[PARTS] = {"matrix", "bias", "conv", "norm"};

static float in[81064], out[81064];
static double total[81064];

/* The largest error of a part, of one step or of all so far. */
static double error_of(int part, int size, const double *sum, int steps)
{
    double worst = 0;
    for (int i = begin[part]; i < begin[part + 1]; i++) {
        double exact = 0;
        for (int r = 0; r < size; r++)
            exact += prog_value(r, i);
        worst = fmax(worst, fabs(exact - (sum ? sum[i] / steps : out[i])));
    }
    return worst;
}

static const char *grade(double error)
{
    return error < 1e-5 ? "exact" : error < 0.02 ? "fine" : "coarse";
}

int main(int argc, char **argv)
{
    int rank, size, same = 1, all;
    double first[PARTS] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < begin[PARTS]; i++)
            in[i] = out[i] = prog_value(rank, i);
        MPI_Allreduce(step % 2 ? MPI_IN_PLACE : in, out, begin[PARTS], MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
        for (int i = 0; i < begin[PARTS]; i++)
            total[i] += out[i];
        memcpy(in, out, sizeof in);
        MPI_Bcast(in, begin[PARTS], MPI_FLOAT, 0, MPI_COMM_WORLD);
        same &= memcmp(in, out, sizeof in) == 0;
        for (int p = 0; p < PARTS && rank == 0 && step == 1; p++)
            printf("%s %s\n", names[p], grade(first[p] = error_of(p, size, NULL, 1)));
    }
    MPI_Allreduce(&same, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    for (int p = 0; p < PARTS && rank == 0; p++) {
        double mean = error_of(p, size, total, STEPS);
        printf("mean of %s %s\n", names[p],
               mean < 1e-5           ? "exact"
               : mean * 5 < first[p] ? "near"
                                     : "far");
    }
    if (rank == 0)
        printf("%s\n", all ? "same bits" : "other bits");
    MPI_Finalize();
    return 0;
}
