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

# Where UCX finds no way on one rank, all ranks go over MPI, and each says why once.
mapfile -t with < <(shimmed GRADWIRE_CODEC=q8 GRADWIRE_STATS="$work/instead.%r.json" GRADWIRE_TRANSPORT=auto)
out=$(mpi "${with[@]}" -np 1 "$bin/mpi_comms" : "${with[@]}" -x UCX_TLS=nonsense -np 1 "$bin/mpi_comms" 2>"$work/err")
lacks "over mpi instead of ucx the sums are right" "$out" '^not ok'
contains "and all were made" "$out" '^ok - fork with exit'
for rank in 0 1; do
    check "rank $rank went over mpi" stats "$work/instead.$rank.json" \
        "$consistent and s['compressed'] > 100 and 'disabled' not in r and all(c['transport'] == 'mpi' for c in s['communicators'])"
done
equal "one line on each rank that says why" 2 "$(grep -c 'gradwire.*rank 1: .*likely because of UCX_TLS=nonsense.*over mpi instead' "$work/err")"

# With 256 descriptors some communicators get UCX and the others MPI; all compress.
mapfile -t with < <(shimmed GRADWIRE_CODEC=q8 GRADWIRE_STATS="$work/many.%r.json" GRADWIRE_TRANSPORT=auto)
out=$(ulimit -n 256 && mpi "${with[@]}" -np 2 "$bin/mpi_many" 200 2>"$work/err")
contains "200 communicators alive at once" "$out" '^ok'
check "all of them compress" stats "$work/many.1.json" "s['calls'] == 400 and s['compressed'] == 400 and s['errors'] == 0"
check "over ucx while that has descriptors, then over mpi" stats "$work/many.1.json" \
    "{'ucx', 'mpi'} == {c['transport'] for c in s['communicators']}"
equal "one line on each rank that says so" 2 "$(grep -c 'gradwire.*file descriptors.*over mpi instead' "$work/err")"

# Without a way to connect every communicator fails, each for the same reason: one line on each rank.
mapfile -t with < <(shimmed GRADWIRE_CODEC=q8 GRADWIRE_STATS="$work/none.%r.json" UCX_TLS=nonsense GRADWIRE_TRANSPORT=ucx)
out=$(mpi "${with[@]}" -np 2 "$bin/mpi_comms" 2>"$work/err")
lacks "without a transport the sums are right" "$out" '^not ok'
contains "and some were made" "$out" '^ok'
check "the calls are counted as disabled" stats "$work/none.1.json" \
    "$consistent and s['compressed'] == 0 and r['disabled'] > 100 and 'mismatch' not in r"
equal "one line on each rank" 2 "$(grep -c gradwire "$work/err")"
equal "which names the likely cause" 2 "$(grep -c 'likely because of UCX_TLS=nonsense' "$work/err")"
finish
