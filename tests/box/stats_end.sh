#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# However a job ends, a stats file that parses is there. It is complete where the process has a word in its end, and
# where a second went by since the last call; else it is that of the last second.
. "$(dirname "$0")/mpi_lib.sh"
MPI_TIMEOUT=30

# ends HOW PAUSE: runs two ranks whose second one ends so, 20 sums after the start.
ends() {
    rm -f "$work"/s.*
    mapfile -t with < <(shimmed GRADWIRE_STATS="$work/s.%r.json")
    mpi "${with[@]}" -np 2 "$bin/stats_end" "$1" 20 "$2" >"$work/out" 2>&1
    rc=$?
    left+=$(find "$work" -name '*.tmp')
}
left=
complete() { stats "$1" "$consistent and s['compressed'] == $2 and s['communicators'][0]['calls'] == $2"; }

for how in MPI_Abort handler exit; do
    ends $how 0
    check "$how: ends the job" test $rc -ne 0 -a $rc -ne 124
    check "$how: complete" complete "$work/s.1.json" 20
done
for how in SIGTERM SIGINT SIGKILL abort _exit; do
    ends $how 300
    check "$how: ends the job" test $rc -ne 0 -a $rc -ne 124
    check "$how: a file that parses and adds up" stats "$work/s.1.json" \
        "$consistent and 1 <= s['compressed'] <= 20"
done
# The end of a rank whose last call was two seconds ago, and of its peer, which mpirun kills.
for how in SIGKILL _exit; do
    ends $how 2000
    for rank in 0 1; do
        check "$how after a pause: rank $rank is complete" complete "$work/s.$rank.json" 20
    done
done
# An error of Gradwire's under MPI_ERRORS_ARE_FATAL: the process ends inside MPI.
ends fatal 0
check "a fatal error: ends the job" test $rc -ne 0 -a $rc -ne 124
check "a fatal error: is in the file, with its sentence" stats "$work/s.1.json" \
    "$consistent and s['errors'] == 1 and 'overlap' in s['communicators'][0]['last_error']"
equal "nothing but the files is left" "" "$left"

# The check sees a file that lacks calls, and one that is cut.
ends exit 0
if complete "$work/s.1.json" 21 >/dev/null; then not_ok "a missing call is seen"; else ok "a missing call is seen"; fi
head -c 300 "$work/s.1.json" >"$work/cut.json"
if stats "$work/cut.json" "$consistent" >/dev/null 2>&1; then not_ok "a cut file is seen"; else ok "a cut file is seen"; fi
finish
