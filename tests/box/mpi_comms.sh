#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Communicators come and go, threads use two at once, processes fork.
. "$(dirname "$0")/mpi_lib.sh"

for np in 2 4; do
    rm -f "$work"/stats.*
    mapfile -t with < <(shimmed GRADWIRE_CODEC=q8 GRADWIRE_STATS="$work/stats.%r.json")
    out=$(mpi "${with[@]}" -np $np "$bin/mpi_comms" 2>&1)
    rc=$?
    sed -E "s/^((not )?ok - )/\1np=$np: /" <<<"$out"
    failures=$((failures + $(grep -c '^not ok' <<<"$out")))
    [ $rc -eq 0 ] || not_ok "np=$np: mpi_comms ends well" "exit status $rc"
    check "np=$np: the figures add up, most calls were compressed" stats "$work/stats.1.json" \
        "$consistent and s['compressed'] > 100 and s['errors'] == 0"
done
finish
