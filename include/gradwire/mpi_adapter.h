/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI adapter contract: the little of MPI that the command-line tool needs, as a table in a
 * module. */
#ifndef GRADWIRE_MPI_ADAPTER_H
#define GRADWIRE_MPI_ADAPTER_H

#include <gradwire/types.h>

#define GW_MPI_ADAPTER_ABI 2

/*
 * MPI by function pointers. The module holds code for one MPI ABI and is not linked with MPI: first
 * open `soname` of that MPI with dlopen(RTLD_NOW | RTLD_GLOBAL), then the module
 * ("gradwire/mpi-openmpi.so" with "libmpi.so.40"), then call what GW_MPI_ADAPTER_SYMBOL names. All
 * functions are collective over MPI_COMM_WORLD unless stated and belong to one thread. They use the
 * PMPI names: a preloaded shim neither sees nor compresses them. MPI's errors end the job, as is
 * MPI's habit; GW_ERR_IO is for those that return.
 */
typedef struct gw_mpi_adapter {
    int abi;            /* GW_MPI_ADAPTER_ABI */
    const char *family; /* "Open MPI" */
    const char *soname; /* "libmpi.so.40" */

    /* Starts MPI (MPI_THREAD_FUNNELED or more), unless that was done. GW_ERR_NO_MODULE: the libmpi
     * in this process is not the one the module was built for, in `why` (may be NULL). */
    gw_status_t (*init)(char *why, size_t size);
    gw_status_t (*finalize)(void);

    int (*rank)(void); /* local */
    int (*size)(void); /* local */

    gw_status_t (*barrier)(void);

    /* `bytes` bytes of every rank, in order of rank, to `all`: a gw_allgather_fn; `arg` is not
     * used. */
    gw_status_t (*allgather)(void *arg, const void *mine, void *all, size_t bytes);

    /* MPI's own sum of `count` elements of GW_F32 or GW_F64; send NULL: in place.
     * GW_ERR_UNSUPPORTED for types that MPI has not, GW_ERR_INVALID for a count that MPI's int
     * cannot hold (nothing was sent). */
    gw_status_t (*allreduce_sum)(const void *send, void *recv, size_t count, gw_dtype_t dtype);

    /* The same for GW_F32, as short as the benchmark wants it. */
    gw_status_t (*allreduce_f32_sum)(const float *send, float *recv, size_t count);

    /* The largest value of all ranks, on every rank. */
    double (*max_double)(double value);

    double (*wtime)(void); /* seconds; local */
    const char *(*library_version)(
        void); /* "Open MPI v4.1.4"; local, before init as well; static */

    /* The address of MPI_COMM_WORLD, for gw_comm_params_t's mpi_comm; local, static. */
    void *(*world)(void);
} gw_mpi_adapter_t;

/* The symbol that an adapter module exports: `const gw_mpi_adapter_t *gw_mpi_adapter_module(void)`.
 */
typedef const gw_mpi_adapter_t *(*gw_mpi_adapter_module_fn)(void);
#define GW_MPI_ADAPTER_SYMBOL "gw_mpi_adapter_module"

#endif
