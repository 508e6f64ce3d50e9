#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# User operations and types, every predefined kind, inter-communicators and errors: as plain MPI has them.
. "$(dirname "$0")/mpi_lib.sh"

plain=$(mpi -np 2 "$bin/mpi_semantics" 2>/dev/null)
mapfile -t with < <(shimmed GRADWIRE_STATS="$work/stats.%r.json" GRADWIRE_MIN_BYTES=0)
got=$(mpi "${with[@]}" -np 2 "$bin/mpi_semantics" 2>"$work/err")
check "the program ran to its end" grep -q '^alternate' <<<"$plain"
while read -r name _; do
    equal "$name" "$(grep "^$name " <<<"$plain")" "$(grep "^$name " <<<"$got")"
done < <(awk '!seen[$1]++' <<<"$plain")
equal "nothing else is printed" "" "$(cat "$work/err")"
check "the figures name the reasons" stats "$work/stats.0.json" "$consistent and r['op_user'] == 1 \
    and r['datatype_user'] == 2 and r['intercomm'] == 1 and r['single_rank'] == 1 and r['zero_count'] == 1 \
    and r['op'] >= 53 and r['dtype'] >= 37 and r['unsupported_call'] >= 3 and s['compressed'] == 50"
finish
