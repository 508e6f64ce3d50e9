#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank inside a compressed call still serves MPI: peers may need that before they enter the call.
. "$(dirname "$0")/mpi_lib.sh"
MPI_TIMEOUT=30

# run_case PATH-ARGUMENTS CASE LIBRARIES-BEHIND-THE-SHIM: prints what the program printed.
run_case() {
    # shellcheck disable=SC2086
    mpi $1 -x GRADWIRE_TRANSPORT=ucx -x "LD_PRELOAD=$shim${3:+:$3}" -x "GRADWIRE_STATS=$work/stats.json" -np 2 "$bin/mpi_progress" "$2" 2>&1
}

for path in "" "--mca btl self,tcp"; do
    for what in collective message large; do
        rm -f "$work"/stats.json*
        out=$(run_case "$path" $what "")
        contains "$what, ${path:-default paths}: ends" "$out" '^done [0-9.]+$'
        check "$what, ${path:-default paths}: the sums were compressed" stats "$work/stats.json.0" 's["compressed"] == 5'
        echo "# $what, ${path:-default paths}: $out ms a round"
    done
done

# The negative: with a probe that does nothing the same programs hang.
MPI_TIMEOUT=6
out=$(run_case "" collective "$bin/libmpi_no_probe.so")
equal "without the probe the collective hangs" 124 $?
out=$(run_case "--mca btl self,tcp" large "$bin/libmpi_no_probe.so")
equal "without the probe the message hangs" 124 $?
finish
