/* SPDX-License-Identifier: Apache-2.0 */
/* The adapter of one MPI ABI: the MPI of the command-line tool. Compiled with that MPI's header,
 * linked with none. */
#include <mpi.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/mpi_adapter.h>

static gw_status_t status_of(int rc)
{
    return rc == MPI_SUCCESS ? GW_OK : GW_ERR_IO;
}

static const char *library_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if (!text[0]) {
        PMPI_Get_library_version(text, &length);
        text[strcspn(text, ",\n")] = 0;
    }
    return text;
}

static bool right_library(void)
{
    static const char prefix[] = "Open MPI v";
    const char *version = library_version();
    return strncmp(version, prefix, sizeof prefix - 1) == 0 &&
           atoi(version + sizeof prefix - 1) == OMPI_MAJOR_VERSION;
}

static gw_status_t init(char *why, size_t size)
{
    int done = 0, provided = 0;
    if (!right_library()) {
        if (why)
            snprintf(why, size, "built for Open MPI %d, found %s", OMPI_MAJOR_VERSION,
                     library_version());
        return GW_ERR_NO_MODULE;
    }
    PMPI_Initialized(&done);
    if (done)
        return GW_OK;
    return status_of(PMPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided));
}

static gw_status_t finalize(void)
{
    return status_of(PMPI_Finalize());
}

static int rank(void)
{
    int value = -1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &value);
    return value;
}

static int size(void)
{
    int value = 0;
    PMPI_Comm_size(MPI_COMM_WORLD, &value);
    return value;
}

static gw_status_t barrier(void)
{
    return status_of(PMPI_Barrier(MPI_COMM_WORLD));
}

static gw_status_t allgather(void *arg, const void *mine, void *all, size_t bytes)
{
    if (bytes > INT_MAX)
        return GW_ERR_INVALID;
    return status_of(
        PMPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD));
}

static gw_status_t allreduce_sum(const void *send, void *recv, size_t count, gw_dtype_t dtype)
{
    if (dtype != GW_F32 && dtype != GW_F64)
        return GW_ERR_UNSUPPORTED;
    if (count > INT_MAX)
        return GW_ERR_INVALID;
    return status_of(PMPI_Allreduce(send ? send : MPI_IN_PLACE, recv, (int)count,
                                    dtype == GW_F32 ? MPI_FLOAT : MPI_DOUBLE, MPI_SUM,
                                    MPI_COMM_WORLD));
}

static gw_status_t allreduce_f32_sum(const float *send, float *recv, size_t count)
{
    return allreduce_sum(send, recv, count, GW_F32);
}

static double max_double(double value)
{
    double largest = value;
    PMPI_Allreduce(&value, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return largest;
}

static double wtime(void)
{
    return PMPI_Wtime();
}

static void *world(void)
{
    static MPI_Comm comm;
    comm = MPI_COMM_WORLD;
    return &comm;
}

static const gw_mpi_adapter_t adapter = {
    .abi = GW_MPI_ADAPTER_ABI,
    .family = "Open MPI",
    .soname = "libmpi.so.40",
    .init = init,
    .finalize = finalize,
    .rank = rank,
    .size = size,
    .barrier = barrier,
    .allgather = allgather,
    .allreduce_sum = allreduce_sum,
    .allreduce_f32_sum = allreduce_f32_sum,
    .max_double = max_double,
    .wtime = wtime,
    .library_version = library_version,
    .world = world,
};

GW_API const gw_mpi_adapter_t *gw_mpi_adapter_module(void);

const gw_mpi_adapter_t *gw_mpi_adapter_module(void)
{
    return &adapter;
}
