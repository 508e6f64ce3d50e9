#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Other tools in the same process, and another MPI than ours.
. "$(dirname "$0")/mpi_lib.sh"

tool=$bin/libmpi_tool.so
exact='^(loss|counters|max) '
plain=$(mpi -np 2 "$bin/mpi_mixed" | grep -E "$exact")

# chain NAME PRELOAD CHAIN TOOL_SEES CALLS
chain() {
    local name=$1 out
    rm -f "$work"/stats.*
    out=$(mpi -x "LD_PRELOAD=$2" -x "TOOL_CHAIN=$3" -x "GRADWIRE_STATS=$work/stats.%r.json" -np 2 "$bin/mpi_mixed" 2>"$work/err")
    equal "$name: results" "$plain" "$(grep -E "$exact" <<<"$out")"
    contains "$name: the tool sees each call once and none of ours" "$(cat "$work/err")" "^tool saw $4 all-reduce and 0 other calls"
    if [ -n "$5" ]; then
        check "$name: $5 calls counted here" stats "$work/stats.0.json" "$consistent and s['calls'] == $5"
    fi
}
# 12 calls, of which 3 are compressed and reach no MPI function.
chain "shim, then a PMPI tool" "$shim:$tool" pmpi 9 12
chain "shim, then a tool that calls the first in line" "$shim:$tool" first 9 12
# A tool in front has a Finalize that does not chain: figures come at exit.
chain "a tool that chains, then the shim" "$tool:$shim" next 12 12

out=$(mpi -x "LD_PRELOAD=$shim:$tool" -x TOOL_CHAIN=error -np 2 "$bin/mpi_semantics" 2>/dev/null)
# MPI_ERR_LASTCODE is of class 14, unknown.
contains "the code that the next in line returns comes back" "$out" '^double rc 14 '

err=$( { LD_LIBRARY_PATH=$bin LD_PRELOAD=$shim "$bin/mpi_stub_program" >"$work/out"; } 2>&1)
equal "another MPI: the program runs" "rc 0 out 1 2 3 comm 4000000" "$(cat "$work/out")"
equal "another MPI: one line" 1 "$(grep -c . <<<"$err")"
contains "another MPI: it says which" "$err" 'Open MPI.*MPICH Version: 4.0.2'

# The shim alone in a directory: its library is missing.
mkdir "$work/alone"
cp "$shim" "$work/alone/"
out=$(mpi -x "LD_PRELOAD=$work/alone/$(basename "$shim")" -np 1 "$bin/mpi_mixed" 2>"$work/err" | grep -E "$exact")
equal "a missing library: plain results" "$(mpi -np 1 "$bin/mpi_mixed" | grep -E "$exact")" "$out"
equal "a missing library: one line" 1 "$(grep -c 'gradwire: cannot open its library' "$work/err")"

# libmpi in no global scope: the program opens a module that uses it, as Python does.
out=$(mpi -x "LD_PRELOAD=$shim" -x "GRADWIRE_STATS=$work/local.%r.json" -np 2 "$bin/mpi_local" "$bin/libmpi_mixed_module.so" 2>&1)
equal "libmpi opened RTLD_LOCAL: results" "$plain" "$(grep -E "$exact" <<<"$out")"
check "libmpi opened RTLD_LOCAL: compressed" stats "$work/local.0.json" "$consistent and s['compressed'] == 3"

# Communicators that join two jobs: settings were compared within each job only.
out=$(mpi -x "LD_PRELOAD=$shim" -x "GRADWIRE_STATS=$work/spawn.%r.json" -np 2 "$bin/mpi_spawn" 2>&1)
contains "a communicator with spawned ranks is exact" "$out" '^merged exact'
check "a communicator with spawned ranks counts mismatch" stats "$work/spawn.0.json" "$consistent and r['mismatch'] >= 1"

[ -x "$bin/mpi_pmix_abi" ] && ok "the PMIx declarations match pmix.h" || skip "the PMIx declarations match pmix.h" "no pmix.h"
finish
