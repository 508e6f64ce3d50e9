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

# Without a way to connect every communicator fails, each for the same reason: one line on each rank.
mapfile -t with < <(shimmed GRADWIRE_CODEC=q8 GRADWIRE_STATS="$work/none.%r.json" UCX_TLS=nonsense)
out=$(mpi "${with[@]}" -np 2 "$bin/mpi_comms" 2>"$work/err")
lacks "without a transport the sums are right" "$out" '^not ok'
contains "and some were made" "$out" '^ok'
check "the calls are counted as disabled" stats "$work/none.1.json" \
    "$consistent and s['compressed'] == 0 and r['disabled'] > 100 and 'mismatch' not in r"
equal "one line on each rank" 2 "$(grep -c gradwire "$work/err")"
equal "which names the likely cause" 2 "$(grep -c 'likely because of UCX_TLS=nonsense' "$work/err")"
finish
