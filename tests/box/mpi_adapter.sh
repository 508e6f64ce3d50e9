#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The MPI adapter of the command-line tool, opened by hand.
. "$(dirname "$0")/mpi_lib.sh"

module=$GW_BUILD/lib/gradwire/mpi-openmpi.so
lacks "the adapter is not linked with MPI" "$(readelf -d "$module")" 'NEEDED.*libmpi'
equal "the adapter exports its table only" "gw_mpi_adapter_module" "$(nm -D --defined-only "$module" | awk '{ print $3 }')"
for np in 1 3; do
    contains "np=$np: sums, gather, maximum" "$(mpi -np $np "$bin/mpi_adapter_use" "$module" 2>&1)" "^Open MPI v4.*, $np ranks: right"
done
# The benchmark compares with MPI's own sum: a shim in the same process must not compress it.
contains "a preloaded shim does not touch it" \
    "$(mpi -x "LD_PRELOAD=$shim" -x GRADWIRE_MIN_BYTES=0 -np 2 "$bin/mpi_adapter_use" "$module" 2>&1)" "2 ranks: right"
finish
