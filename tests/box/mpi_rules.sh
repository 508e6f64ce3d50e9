#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rules by size, place of the call, order and name of the communicator; ranks with other rules; ranks of other versions.
. "$(dirname "$0")/mpi_lib.sh"
MPI_TIMEOUT=60

# with_rules RULES [VARIABLE ...]: the program under the rules; its lines in $out, warnings in $work/err.
with_rules() {
    printf '%b' "$1" >"$work/rules"
    shift
    mapfile -t with < <(shimmed GRADWIRE_CONFIG="$work/rules" GRADWIRE_STATS="$work/rules.%r.json" "$@")
    out=$(mpi "${with[@]}" -np 2 "$bin/mpi_rules" 2>"$work/err")
}
lines() { grep -c "$1" <<<"$out"; }

with_rules 'bytes=..200K -> q8   # the small ones\n'
equal "by size: small ones at 8 bits, large ones at 4" 10 "$(lines ': coarse coarse fine coarse fine tensor coarse')"
with_rules 'name="tensor*" -> exclude\n'
equal "by name: rank 0's name of the first call counts, whatever the others have" 10 "$(lines 'tensor exact')"
equal "by name: other communicators are left as they are" 10 "$(lines ': coarse coarse coarse coarse coarse')"
check "by name: counted as excluded on both" stats "$work/rules.1.json" "$consistent and r['excluded'] == 10"
with_rules 'name="something else" -> exclude\n'
equal "by name: that of another rank does not" 0 "$(lines 'tensor exact')"
with_rules 'comm=1 -> q8\n'
equal "by order: the second communicator" 10 "$(lines ': coarse coarse coarse coarse coarse tensor fine')"
with_rules 'slot=2 -> exclude\nslot=5 -> q8\n'
equal "by place: not before three steps" 3 "$(lines ': coarse coarse coarse coarse coarse')"
equal "by place: the second of two equal calls from then on" 7 "$(lines ': coarse exact coarse coarse fine')"
check "by place: rank 0 counts it" stats "$work/rules.0.json" "$consistent and r['excluded'] == 7"
check "by place: rank 1 counts the same" stats "$work/rules.1.json" "$consistent and r['excluded'] == 7"
equal "nothing is printed" "" "$(cat "$work/err")"
with_rules 'bytes=..200K -> q8\n' GRADWIRE_MIN_BYTES=256K
equal "the floor holds whatever the rules say" 10 "$(lines ': coarse coarse exact coarse exact')"

# Another file on one rank.
plain=$(mpi -np 2 "$bin/mpi_rules")
printf -- '-> q8\n' >"$work/other"
mapfile -t with < <(shimmed GRADWIRE_CONFIG="$work/rules")
mapfile -t other < <(shimmed GRADWIRE_CONFIG="$work/other")
out=$(mpi "${with[@]}" -np 1 "$bin/mpi_rules" : "${other[@]}" -np 1 "$bin/mpi_rules" 2>"$work/err")
equal "other rules on a rank: the results are those of plain MPI" "$plain" "$out"
contains "other rules on a rank: named" "$(cat "$work/err")" 'rank 1 has GRADWIRE_CONFIG=1 rules'
printf -- '-> q4\n\nbytes=1M q8\n' >"$work/other"
out=$(mpi "${with[@]}" -np 1 "$bin/mpi_rules" : "${other[@]}" -np 1 "$bin/mpi_rules" 2>"$work/err")
equal "a bad file on a rank: the results are those of plain MPI" "$plain" "$out"
contains "a bad file on a rank: line and column" "$(cat "$work/err")" "rank 1 .*other: line 3, column 10: 'q8'"

out=$("$gradwire" run --config "$work/other" -- mpirun -np 2 true 2>&1)
equal "gradwire run starts nothing with a bad file" 2 "$?"
contains "gradwire run says where" "$out" "line 3, column 10"
out=$(cd "$work" && timeout 60 "$gradwire" run --config rules --min-bytes 64K -- mpirun --wdir / -np 2 "$bin/mpi_rules" 2>&1)
equal "gradwire run --config takes a path of this directory" 10 "$(lines ': coarse coarse fine coarse fine')"
out=$(GRADWIRE_CONFIG=$work/rules "$gradwire" info)
contains "gradwire info shows the rules" "$out" 'line 1 +bytes=\.\.200K -> q8'

# A library that says it is of another version: the same shim and modules with another number in them. (Its last character
# stays: the linker lets the text "0" end with it.)
version_of() {
    cp -r "$GW_BUILD/lib" "$work/$1"
    sed -i "s/\\x000\\.1\\.0\\x00/\\x00$1\\x00/g" "$work/$1/libgradwire.so" "$work/$1/libgradwire-openmpi.so"
    mapfile -t foreign < <(printf -- '-x\nLD_PRELOAD=%s\n' "$work/$1/libgradwire-openmpi.so")
}
mapfile -t own < <(shimmed)
version_of 0.2.0
out=$(mpi "${own[@]}" -np 1 "$bin/mpi_rules" : "${foreign[@]}" -np 1 "$bin/mpi_rules" 2>"$work/err")
equal "0.1.0 and 0.2.0: the results are those of plain MPI" "$plain" "$out"
contains "0.1.0 and 0.2.0: the rank and both versions are named" "$(cat "$work/err")" 'rank 1 has version=0\.2\.0, rank 0 0\.1\.0'
finish
