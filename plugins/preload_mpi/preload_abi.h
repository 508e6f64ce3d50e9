/* SPDX-License-Identifier: Apache-2.0 */
/* The one seam between the MPI shim and an MPI ABI: names, handles and classes of handles. */
#ifndef GW_PRELOAD_ABI_H
#define GW_PRELOAD_ABI_H

#include <mpi.h>

#include <gradwire/types.h>

/*
 * Handles that the shim needs, as values. On Open MPI they are addresses of objects in libmpi,
 * which must be looked up: a direct reference (MPI_FLOAT in mpi.h is one) would be a data symbol of
 * libmpi, and a preloaded object with such a symbol kills every program that has no MPI in it.
 */
typedef struct gw__abi {
    MPI_Comm world, self, comm_null;
    MPI_Datatype byte, float32, datatype_null;
    MPI_Op sum, op_null;
} gw__abi_t;

/* Valid after gw__abi_bind succeeded. */
extern gw__abi_t gw__abi;

extern const char gw__abi_family[]; /* for people: "Open MPI 4" */
extern const char gw__abi_soname[]; /* the library that has the real functions */

typedef void *(*gw__find_fn)(const char *symbol);

/* Whether the text of MPI_Get_library_version belongs to the MPI this shim was built for. */
bool gw__abi_matches(const char *library_version);

/* Fills gw__abi; false when a handle is not there. Any thread, idempotent. */
bool gw__abi_bind(gw__find_fn find);

/* Whether an operation is one that MPI defines. */
bool gw__abi_op_predefined(MPI_Op op);

#endif
