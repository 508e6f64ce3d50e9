/* SPDX-License-Identifier: Apache-2.0 */
/* A program with four kinds of all-reduce, of which only the last may be compressed. Prints what
 * rank 0 got: the first three as hashes of all bytes, the last as its error. */
#include "mpi_prog.h"

enum { COUNT = 1 << 20, COUNTERS = 8, ROUNDS = 3 };

static float in[COUNT], out[COUNT];

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    float loss = 1.0f / (float)(rank + 3), mean;
    int counters[COUNTERS], totals[COUNTERS];
    for (int i = 0; i < COUNTERS; i++)
        counters[i] = (i + 1) * 100000007 + rank;
    for (int i = 0; i < COUNT; i++)
        in[i] = prog_value(rank, i);
    uint64_t hash_max = 0;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Allreduce(&loss, &mean, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(counters, totals, COUNTERS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
        hash_max = prog_hash(out, sizeof out);
        MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    double worst = 0;
    for (int i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int r = 0; r < size; r++)
            sum += prog_value(r, i);
        worst = fmax(worst, fabs(sum - out[i]));
    }
    if (rank == 0) {
        printf("loss %016llx\n", (unsigned long long)prog_hash(&mean, sizeof mean));
        printf("counters %016llx\n", (unsigned long long)prog_hash(totals, sizeof totals));
        printf("max %016llx\n", (unsigned long long)hash_max);
        printf("error %.9f\n", worst);
    }
    if (argc > 1 && strcmp(argv[1], "leave") == 0)
        exit(0);
    MPI_Finalize();
    return 0;
}
