#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank that dies or aborts: an MPI error through the caller's handler, and everybody gone in time.
. "$(dirname "$0")/mpi_lib.sh"
MPI_TIMEOUT=30

for transport in shm tcp; do
    mapfile -t with < <(shimmed GRADWIRE_TIMEOUT=5)
    [ $transport = tcp ] && with+=(-x UCX_TLS=tcp,self)
    out=$(mpi --enable-recovery "${with[@]}" -np 2 "$bin/mpi_death" kill 2>"$work/err")
    contains "$transport: a dead peer is MPI_ERR_OTHER, at once and for good" "$out" '^fine 1 other 1 1 quick 1$'
    contains "$transport: MPI_Error_string tells the reason" "$out" '^text ([0-9]+) \1 gradwire: rank 1: .{8}'
    contains "$transport: the log names the rank" "$(cat "$work/err")" 'gradwire.*rank 1'
    out=$(mpi --enable-recovery "${with[@]}" -np 2 "$bin/mpi_death" stop 2>"$work/err")
    contains "$transport: so is one that is stopped in a sum, in time" "$out" '^fine 1 other 1 1 quick 1$'
    contains "$transport: its rank is named" "$out" '^text ([0-9]+) \1 gradwire: rank 1: '
    began=$SECONDS
    mpi "${with[@]}" -np 3 "$bin/mpi_death" abort >"$work/out" 2>&1
    equal "$transport: MPI_Abort's code comes back" 3 $?
    check "$transport: MPI_Abort ends all ranks within 10 s" test $((SECONDS - began)) -le 10
done
finish
