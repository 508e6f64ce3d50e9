/* SPDX-License-Identifier: Apache-2.0 */
/* `gradwire bench allreduce`: what its measuring and its checking share. */
#ifndef GW_BENCH_ALLREDUCE_H
#define GW_BENCH_ALLREDUCE_H

#include <gradwire/mpi_adapter.h>

#include "cli.h"

typedef struct gw_bench {
    const gw_mpi_adapter_t *mpi;
    gw_context_t *context;
    gw_comm_t *comm;
    gw_coder_t coder, raw;
    gw_dtype_t dtype;
    gw_plan_kind_t plan, raw_plan; /* of the size at hand */
    int rank, size;
    size_t elements; /* of the size at hand */
    void *send, *recv;
} gw_bench_t;

/* How far a result is from the exact sum. */
typedef struct gw_bench_error {
    double rel_l2, max_err;
    bool within; /* every element inside the end-to-end bound of the codec */
} gw_bench_error_t;

/* The element that rank `rank` contributes at index i: roughly normal, the same wherever it is
 * computed. */
float gw_bench_element(int rank, size_t i);

/* Fills `out` with this rank's elements in the benchmark's dtype. */
void gw_bench_fill(const gw_bench_t *bench, int rank, size_t first, size_t count, void *out);

/* Compares bench->recv with the exact sum; `coder` and `plan` made it. False: no memory. */
bool gw_bench_compare(const gw_bench_t *bench, const gw_coder_t *coder, gw_plan_kind_t plan,
                      gw_bench_error_t *out);

/* Whether all ranks hold the same bytes in recv. */
bool gw_bench_identical(const gw_bench_t *bench);

#endif
