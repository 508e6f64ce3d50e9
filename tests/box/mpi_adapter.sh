#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The MPI adapter of the command-line tool, opened by hand, and `gradwire bench allreduce`, which stands on it.
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

# bench_on RANK VARIABLE: the benchmark of two ranks, of which one has another setting. No rank may wait for one that has stopped.
bench_on() {
    local sizes=(-b 64K -e 64K -n 2)
    mpi -np 2 bash -c "[ \$OMPI_COMM_WORLD_RANK != $1 ] || export $2; exec $gradwire bench allreduce ${sizes[*]}" 2>&1
    echo "exit status $?"
}
contains "bench allreduce: a row, equal on all ranks" "$(bench_on 0 GRADWIRE_SEED=0)" '^ +65536 .* yes '
out=$(bench_on 1 GRADWIRE_CODEC=q9)
contains "bench allreduce: a bad setting on one rank is told by that rank" "$out" "^gradwire bench allreduce: rank 1: GRADWIRE_CODEC=q9: no codec"
contains "bench allreduce: a bad setting on one rank ends both" "$out" '^exit status 1$'
out=$(bench_on 1 GRADWIRE_SEED=1)
contains "bench allreduce: settings that differ end both" "$out" '^exit status 1$'
contains "bench allreduce: settings that differ are told once" "$(grep -c '^gradwire bench allreduce: ' <<<"$out")" '^1$'
finish
