#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# GRADWIRE_LAYOUT under an unmodified MPI program: what stays exact, what is shown, files that are wrong or differ between ranks.
. "$(dirname "$0")/mpi_lib.sh"
MPI_TIMEOUT=60

cat >"$work/layout" <<'END'
# matrix, bias, convolution, norm
buffer 81064
tensor fc.weight 200x300
tensor fc.bias 3000
tensor conv.weight 50x40x3x3
tensor "norm" 64
END

# program NP [VARIABLE ...]: the program; its lines in $out, warnings in $work/err.
program() {
    local np=$1
    shift
    mapfile -t with < <(shimmed GRADWIRE_STATS="$work/stats.%r.json" "$@")
    out=$(mpi "${with[@]}" -np "$np" "$bin/mpi_layout" 2>"$work/err")
}

plain=$(mpi -np 2 "$bin/mpi_layout")
contains "plain MPI: all exact" "$plain" 'matrix exact'
program 2 GRADWIRE_CODEC=q2
contains "without a layout: the bias is as coarse as the rest" "$out" '^bias coarse'
check "without a layout: the figures have none" stats "$work/stats.0.json" "$consistent and 'layouts' not in s['communicators'][0]"
bytes_without=$(python3 -c "import json; print(json.load(open('$work/stats.0.json'))['wire_bytes'])")
for np in 2 3 4; do
    program "$np" GRADWIRE_CODEC=q2 GRADWIRE_LAYOUT="$work/layout"
    equal "$np ranks: one dimension is exact, the others are not, their mean is near, all ranks have the same bits" \
        "matrix coarse,bias exact,conv coarse,norm exact,mean of matrix near,mean of bias exact,mean of conv near,mean of norm exact,same bits" \
        "$(paste -sd , <<<"$out")"
    equal "$np ranks: nothing is printed" "" "$(cat "$work/err")"
    check "$np ranks: a call counts once" stats "$work/stats.$((np - 1)).json" "$consistent and s['compressed'] == 20 and s['errors'] == 0 and s['residual_resets'] == 0"
done
program 2 GRADWIRE_CODEC=q2 GRADWIRE_LAYOUT="$work/layout"
# 3,064 of 81,064 elements at 32 bits and not at 2.125: that and no more.
check "the price is that of the exact elements" stats "$work/stats.0.json" \
    "0 < s['wire_bytes'] - $bytes_without < 20 * 3064 * 4 * 1.05"
check "the figures tell codec and reason of each tensor" stats "$work/stats.1.json" \
    "[(t['name'], t['shape'], t['codec'], t['why']) for t in s['communicators'][0]['layouts'][0]['tensors']] == \
     [('fc.weight', [200, 300], 'q2', 'codec of the call'), ('fc.bias', [3000], 'raw', 'one dimension'),
      ('conv.weight', [50, 40, 3, 3], 'q2', 'codec of the call'), ('norm', [64], 'raw', 'one dimension')]"

program 2 GRADWIRE_CODEC=q2:ef=off,force=1 GRADWIRE_LAYOUT="$work/layout"
contains "without feedback the mean is far" "$out" '^mean of matrix far'

printf 'tensor=fc* ndim=2 -> q8\nelements=64 -> q8\ntensor=conv* -> exclude\n' >"$work/rules"
program 2 GRADWIRE_CODEC=q2 GRADWIRE_LAYOUT="$work/layout" GRADWIRE_CONFIG="$work/rules"
equal "rules by name, dimensions and elements" "matrix fine bias exact conv exact norm fine" \
    "$(head -4 <<<"$out" | paste -sd ' ')"
printf 'tensor=* -> raw\n' >"$work/rules"
program 2 GRADWIRE_LAYOUT="$work/layout" GRADWIRE_CONFIG="$work/rules"
equal "all exact: the results are those of plain MPI" "$plain" "$out"
check "all exact: the call reaches MPI" stats "$work/stats.0.json" "$consistent and r['excluded'] == 20"

# Files that differ, that are wrong, that are there on one rank only.
sed 's/200x300/300x200/' "$work/layout" >"$work/other"
mapfile -t one < <(shimmed GRADWIRE_LAYOUT="$work/layout")
mapfile -t other < <(shimmed GRADWIRE_LAYOUT="$work/other")
mapfile -t none < <(shimmed)
out=$(mpi "${one[@]}" -np 1 "$bin/mpi_layout" : "${other[@]}" -np 1 "$bin/mpi_layout" 2>"$work/err")
equal "another shape on a rank: the results are those of plain MPI" "$plain" "$out"
contains "another shape on a rank: named" "$(cat "$work/err")" 'rank 1 has GRADWIRE_LAYOUT=1 buffers'
out=$(mpi "${one[@]}" -np 1 "$bin/mpi_layout" : "${none[@]}" -np 1 "$bin/mpi_layout" 2>"$work/err")
equal "no layout on a rank: the results are those of plain MPI" "$plain" "$out"
contains "no layout on a rank: named" "$(cat "$work/err")" 'rank 1 does not have GRADWIRE_LAYOUT=1 buffers'
printf 'buffer 81064\n\ntensor x 200y300\n' >"$work/bad"
mapfile -t other < <(shimmed GRADWIRE_LAYOUT="$work/bad")
out=$(mpi "${one[@]}" -np 1 "$bin/mpi_layout" : "${other[@]}" -np 1 "$bin/mpi_layout" 2>"$work/err")
equal "a bad file on a rank: the results are those of plain MPI" "$plain" "$out"
contains "a bad file on a rank: line and column" "$(cat "$work/err")" "rank 1 .*bad: line 3, column 10: '200y300'"

out=$("$gradwire" run --layout "$work/bad" -- mpirun -np 2 true 2>&1)
equal "gradwire run starts nothing with a bad file" 2 "$?"
contains "gradwire run says where" "$out" 'GRADWIRE_LAYOUT=.*line 3, column 10'
out=$(cd "$work" && timeout 60 "$gradwire" run --codec q2 --layout layout -- mpirun --wdir / -np 2 "$bin/mpi_layout" 2>&1)
contains "gradwire run --layout takes a path of this directory" "$out" '^bias exact'
out=$(GRADWIRE_CODEC=q2 GRADWIRE_LAYOUT=$work/layout "$gradwire" info)
contains "gradwire info shows what goes how" "$out" 'fc\.weight +200x300 at 0: q2 \(codec of the call\)'
contains "gradwire info shows what stays exact" "$out" 'fc\.bias +3000 at 60000: exact \(one dimension\)'
check "gradwire info --json has it" python3 -c "
import json, subprocess, os
os.environ['GRADWIRE_LAYOUT'] = '$work/layout'
l = json.loads(subprocess.check_output(['$gradwire', 'info', '--json']))['layouts'][0]
assert l['elements'] == 81064 and l['line'] == 2 and l['tensors'][3]['codec'] == 'raw', l"
finish
