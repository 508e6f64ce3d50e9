#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks with different settings, without the shim, or with a setting that cannot be used: named quickly, plain results.
. "$(dirname "$0")/mpi_lib.sh"
MPI_TIMEOUT=30

plain=$(mpi -np 3 "$bin/mpi_mixed")

# odd NAME PATTERN FIRST SECOND: two ranks with the options FIRST, one with SECOND (arrays by name).
odd() {
    local name=$1 pattern=$2 out began=$SECONDS
    local -n first=$3 second=$4
    out=$(mpi "${first[@]}" -np 2 "$bin/mpi_mixed" : "${second[@]}" -np 1 "$bin/mpi_mixed" 2>"$work/err")
    equal "$name: the results are those of plain MPI" "$plain" "$out"
    contains "$name: named" "$(cat "$work/err")" "$pattern"
    check "$name: within 10 s" test $((SECONDS - began)) -le 10
    lines=$(grep -c . "$work/err")
}
mapfile -t usual < <(shimmed GRADWIRE_STATS="$work/odd.%r.json")
none=()
mapfile -t q8 < <(shimmed GRADWIRE_CODEC=q8)
mapfile -t floor < <(shimmed GRADWIRE_MIN_BYTES=1024)
mapfile -t wrong < <(shimmed GRADWIRE_CODEC=q44)
mapfile -t disabled < <(shimmed GRADWIRE_DISABLE=1)

odd "another codec" 'rank 2.*q8' usual q8
equal "another codec: one line per rank" 3 "$lines"
check "another codec: counted as mismatch" stats "$work/odd.0.json" "$consistent and r['mismatch'] == 3 and s['compressed'] == 0"
odd "another GRADWIRE_MIN_BYTES" 'rank 2.*1024' usual floor
odd "no shim on a rank" 'rank 2.*without' usual none
equal "no shim on a rank: one line per rank that has it" 2 "$lines"
odd "a rank that is disabled" 'rank 2.*without' usual disabled
odd "an unusable codec on a rank" 'rank 2.*q44' usual wrong
# The other way round: the odd rank comes first, so rank 2 is right and ranks 0 and 1 are not.
odd "an unusable codec on two ranks" 'rank 0.*q44' wrong usual

out=$(mpi "${wrong[@]}" -np 3 "$bin/mpi_mixed" 2>"$work/err")
equal "an unusable codec everywhere: plain results" "$plain" "$out"
contains "an unusable codec everywhere: the reason" "$(cat "$work/err")" 'q44'

mapfile -t named < <(shimmed GRADWIRE_CODEC=q8 GRADWIRE_STATS="$work/auto.%r.json")
mapfile -t budget < <(shimmed GRADWIRE_CODEC=auto:bits=8 GRADWIRE_STATS="$work/auto.%r.json")
mpi "${named[@]}" -np 2 "$bin/mpi_mixed" : "${budget[@]}" -np 1 "$bin/mpi_mixed" >"$work/out" 2>"$work/err"
equal "a default by budget agrees with the codec that it is" "" "$(cat "$work/err")"
check "a default by budget: the figures name that codec" stats "$work/auto.2.json" \
    "$consistent and s['compressed'] > 0 and s['communicators'][0]['codec'] == 'q8'"

# Without PMIx (here: its variables taken away) ranks cannot compare; a job of one rank need not.
out=$(env -u PMIX_NAMESPACE LD_PRELOAD="$shim" timeout 30 "$bin/mpi_mixed" 2>&1)
contains "a program without a launcher runs in silence" "$out" '^loss'
lacks "a program without a launcher runs in silence " "$out" gradwire

mapfile -t with < <(shimmed GRADWIRE_LOG=info)
out=$(mpi "${with[@]}" -np 2 "$bin/mpi_mixed" 2>&1 >/dev/null)
contains "at level info one line proves activity" "$out" 'active on Open MPI'
finish
