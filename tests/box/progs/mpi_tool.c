/* SPDX-License-Identifier: Apache-2.0 */
/* A second tool in LD_PRELOAD, which counts the calls of MPI_Allreduce that it sees. TOOL_CHAIN
 * says how it goes on: "pmpi" (PMPI_Allreduce), "next" (the next library in line), "first" (whoever
 * is first in line, as some do by mistake), "error" (returns a code of its own). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int seen, others;

static int go_on(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
                 MPI_Comm comm)
{
    const char *chain = getenv("TOOL_CHAIN");
    __typeof__(MPI_Allreduce) *next = PMPI_Allreduce;
    if (chain && strcmp(chain, "next") == 0)
        *(void **)&next = dlsym(RTLD_NEXT, "MPI_Allreduce");
    else if (chain && strcmp(chain, "first") == 0)
        *(void **)&next = dlsym(RTLD_DEFAULT, "MPI_Allreduce");
    int rc = next(send, recv, count, type, op, comm);
    return chain && strcmp(chain, "error") == 0 ? MPI_ERR_LASTCODE : rc;
}

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm)
{
    seen++;
    return go_on(send, recv, count, type, op, comm);
}

int MPI_Allgather(const void *send, int sent, MPI_Datatype type, void *recv, int received,
                  MPI_Datatype recv_type, MPI_Comm comm)
{
    others++;
    return PMPI_Allgather(send, sent, type, recv, received, recv_type, comm);
}

int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        fprintf(stderr, "tool saw %d all-reduce and %d other calls\n", seen, others);
    return PMPI_Finalize();
}
