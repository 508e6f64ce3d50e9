/* SPDX-License-Identifier: Apache-2.0 */
/* What the MPI test programs share: reproducible data, a hash, TAP lines from rank 0. */
#ifndef GW_MPI_PROG_H
#define GW_MPI_PROG_H

#include <mpi.h>

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Element `i` of rank `rank`: in (-1, 1), some exact zeros, the same wherever it is computed. */
static inline float prog_value(int rank, size_t i)
{
    uint64_t z = ((uint64_t)(rank + 1) << 40 ^ i) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return z % 61 == 0 ? 0.0f : (float)((double)(z >> 11) * 0x1p-52 - 1.0);
}

static inline uint64_t prog_hash(const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

/* True on every rank when `mine` is the same on all of them. */
static inline bool prog_same(uint64_t mine, MPI_Comm comm)
{
    uint64_t low, high;
    PMPI_Allreduce(&mine, &low, 1, MPI_UINT64_T, MPI_MIN, comm);
    PMPI_Allreduce(&mine, &high, 1, MPI_UINT64_T, MPI_MAX, comm);
    return low == high;
}

/* True on every rank when `mine` is true on all of them. */
static inline bool prog_all(bool mine, MPI_Comm comm)
{
    int own = mine, all = 0;
    PMPI_Allreduce(&own, &all, 1, MPI_INT, MPI_LAND, comm);
    return all != 0;
}

/* One TAP line from world rank 0. Collective: `good` counts only when it holds on every rank. */
__attribute__((format(printf, 2, 3))) static inline bool prog_report(bool good, const char *format,
                                                                     ...)
{
    int rank;
    va_list arguments;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    good = prog_all(good, MPI_COMM_WORLD);
    if (rank == 0) {
        va_start(arguments, format);
        printf("%s - ", good ? "ok" : "not ok");
        vprintf(format, arguments);
        printf("\n");
        va_end(arguments);
        fflush(stdout);
    }
    return good;
}

#endif
