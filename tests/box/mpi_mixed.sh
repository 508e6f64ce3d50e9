#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One program with a loss, counters, a float MAX and a large float SUM: only the last is compressed.
. "$(dirname "$0")/mpi_lib.sh"

plain=$(mpi -np 3 "$bin/mpi_mixed")
mapfile -t with < <(shimmed GRADWIRE_STATS="$work/stats.json")
got=$(mpi "${with[@]}" -np 3 "$bin/mpi_mixed" 2>"$work/err")
exact='^(loss|counters|max) '
equal "loss, counters and MAX are bit-equal to plain MPI" "$(grep -E "$exact" <<<"$plain")" "$(grep -E "$exact" <<<"$got")"
# Values in (-1, 1): a push is off by a unit of 2/15 at most with its residual, the pull by one of 6/15.
error=$(awk '$1 == "error" { print $2 }' <<<"$got")
check "the large SUM is lossy and close (error ${error:-none})" \
    awk -v e="${error:-0}" 'BEGIN { exit !(e > 0.001 && e < 0.8) }'
equal "nothing is printed" "" "$(cat "$work/err")"
for rank in 0 1 2; do
    file=$work/stats.json.$rank
    check "rank $rank: calls = compressed + passed, reasons add up" stats "$file" "$consistent"
    check "rank $rank: 12 calls, 3 compressed, with their reasons" stats "$file" \
        's["calls"] == 12 and s["compressed"] == 3 and r["too_small"] == 3 and r["dtype"] == 3 and r["op"] == 3'
    check "rank $rank: bytes of the compressed calls, ratio over 7" stats "$file" \
        's["raw_bytes"] == 3 * 4 * 2**20 and s["wire_bytes"] > 0 and s["plain_bytes"] / s["wire_bytes"] > 7'
done

mapfile -t with < <(shimmed GRADWIRE_STATS="$work/left.%r.json")
mpi "${with[@]}" -np 2 "$bin/mpi_mixed" leave >"$work/out" 2>&1
check "a program that leaves without MPI_Finalize has its figures" stats "$work/left.0.json" \
    's["calls"] == 12 and s["compressed"] == 3'
mapfile -t with < <(shimmed GRADWIRE_DISABLE=1 GRADWIRE_STATS="$work/disabled.json")
got=$(mpi "${with[@]}" -np 3 "$bin/mpi_mixed" 2>&1)
equal "GRADWIRE_DISABLE=1 is plain MPI, without a word" "$plain" "$got"
got=$(LD_PRELOAD=$shim GRADWIRE_STATS=$work/single.json timeout 60 "$bin/mpi_mixed" 2>&1)
equal "a single rank is exact" "error 0.000000000" "$(grep error <<<"$got")"
check "a single rank counts single_rank" stats "$work/single.json" "$consistent and r == {'single_rank': 12}"
finish
