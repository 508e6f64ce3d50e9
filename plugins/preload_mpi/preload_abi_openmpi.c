/* SPDX-License-Identifier: Apache-2.0 */
/* The ABI of Open MPI: handles are addresses of objects that libmpi exports under fixed names. */
#include "preload_abi.h"

#include <stdlib.h>
#include <string.h>

gw__abi_t gw__abi;
#define TEXT(x)    TEXT_OF(x)
#define TEXT_OF(x) #x
const char gw__abi_family[] = "Open MPI " TEXT(OMPI_MAJOR_VERSION);
const char gw__abi_soname[] = "libmpi.so.40";

static const char *const op_names[] = {
    "ompi_mpi_op_max",  "ompi_mpi_op_min",     "ompi_mpi_op_sum",    "ompi_mpi_op_prod",
    "ompi_mpi_op_land", "ompi_mpi_op_band",    "ompi_mpi_op_lor",    "ompi_mpi_op_bor",
    "ompi_mpi_op_lxor", "ompi_mpi_op_bxor",    "ompi_mpi_op_maxloc", "ompi_mpi_op_minloc",
    "ompi_mpi_op_null", "ompi_mpi_op_replace", "ompi_mpi_op_no_op",
};
#define OP_COUNT (sizeof op_names / sizeof op_names[0])
static MPI_Op ops[OP_COUNT];

bool gw__abi_matches(const char *library_version)
{
    static const char prefix[] = "Open MPI v";
    if (strncmp(library_version, prefix, sizeof prefix - 1) != 0)
        return false;
    return atoi(library_version + sizeof prefix - 1) == OMPI_MAJOR_VERSION;
}

bool gw__abi_bind(gw__find_fn find)
{
    gw__abi.world = find("ompi_mpi_comm_world");
    gw__abi.self = find("ompi_mpi_comm_self");
    gw__abi.comm_null = find("ompi_mpi_comm_null");
    gw__abi.byte = find("ompi_mpi_byte");
    gw__abi.float32 = find("ompi_mpi_float");
    gw__abi.datatype_null = find("ompi_mpi_datatype_null");
    gw__abi.sum = find("ompi_mpi_op_sum");
    gw__abi.op_null = find("ompi_mpi_op_null");
    for (size_t i = 0; i < OP_COUNT; i++)
        ops[i] = find(op_names[i]);
    return gw__abi.world && gw__abi.self && gw__abi.comm_null && gw__abi.byte && gw__abi.float32 &&
           gw__abi.datatype_null && gw__abi.sum && gw__abi.op_null;
}

bool gw__abi_op_predefined(MPI_Op op)
{
    for (size_t i = 0; i < OP_COUNT; i++)
        if (ops[i] == op)
            return true;
    return false;
}
