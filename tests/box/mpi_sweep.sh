#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks x counts x bits x in place: bound, guards, equal bits. Then Inf and NaN.
. "$(dirname "$0")/mpi_lib.sh"

# run NAME NP ARGUMENTS ...: a program that prints its own TAP lines.
run() {
    local name=$1 np=$2 out rc
    shift 2
    mapfile -t with < <(shimmed GRADWIRE_MIN_BYTES=0 GRADWIRE_CODEC="$1")
    out=$(mpi "${with[@]}" -np "$np" "$bin/mpi_sweep" "$@" 2>&1)
    rc=$?
    echo "$out"
    failures=$((failures + $(grep -c '^not ok' <<<"$out")))
    if [ $rc -ne 0 ] || ! grep -q '^ok' <<<"$out"; then not_ok "$name ends well" "exit status $rc"; fi
}
for np in 1 2 3 4 5; do
    for codec in q1 q2 q3 q4 q8; do run "np=$np $codec" $np $codec; done
done
for codec in q4 q8 q4:ef=off; do run "poison $codec" 3 "$codec" poison; done
finish
