#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Long lives under the shim: memory, descriptors and threads stay as they are after a warm-up; other processes in the
# middle; leaving without MPI_Finalize; twenty jobs in a row.
. "$(dirname "$0")/mpi_lib.sh"
MPI_TIMEOUT=120

# soak WHAT [LEAK]: two ranks; the output in $out, the exit status in $rc.
soak() {
    mapfile -t with < <(shimmed GRADWIRE_STATS="$work/$1.%r.json" GRADWIRE_MIN_BYTES=1K)
    out=$(mpi "${with[@]}" -np 2 "$bin/soak_mpi" "$@" 2>"$work/err")
    rc=$?
}
# held: the lines of the program are lines of this test.
held() {
    echo "$out"
    failures=$((failures + $(grep -c '^not ok' <<<"$out")))
    check "$1: ends well" test $rc -eq 0
}

soak comms
held comms
check "comms: all were compressed" stats "$work/comms.0.json" "$consistent and s['compressed'] == 500"
check "comms: the latest 64 have a page" stats "$work/comms.1.json" \
    "len(s['communicators']) == 64 and s['communicators_dropped'] == 436 and s['residual_bytes'] == 0"
for leak in memory descriptor thread; do
    soak comms $leak
    contains "comms: a leak of one $leak per cycle is seen" "$out" '^not ok - 500 communicators: nothing grew'
done
soak calls
held calls
check "calls: all are counted" stats "$work/calls.0.json" "$consistent and s['calls'] == 10000 and s['compressed'] > 9000"
soak others
held others
check "others: the figures are the parents'" stats "$work/others.0.json" "$consistent and s['calls'] == 20"
check "others: one file a rank" test "$(find "$work" -name 'others*' | wc -l)" -eq 2
soak threads
held threads
check "threads: all are counted" stats "$work/threads.0.json" "$consistent and s['calls'] == 400"

soak leave
echo "$out"
check "leave: the figures are complete" stats "$work/leave.0.json" "$consistent and s['calls'] == 1"
check "leave: nobody hangs" test $rc -ne 124

# Descriptors for some of the communicators only: the others go over MPI, on all ranks alike.
out=$(ulimit -n 200; soak alive; echo "$out"; exit $rc)
rc=$?
held alive
check "alive: all were compressed, some over MPI" stats "$work/alive.0.json" \
    "$consistent and s['passed'] == 0 and s['errors'] == 0 and {c['transport'] for c in s['communicators']} == {'ucx', 'mpi'}"

# Twenty jobs in a row, none of which finalizes.
good=0
for i in $(seq 20); do
    "$gradwire" run --stats "$work/job.$i.%r.json" -- timeout -k 5 60 mpirun -np 2 "$bin/soak_mpi" leave >"$work/out" 2>&1
    stats "$work/job.$i.1.json" "$consistent and s['compressed'] == 1" >/dev/null 2>&1 && good=$((good + 1))
done
equal "twenty jobs in a row, each compressed" 20 $good
finish
