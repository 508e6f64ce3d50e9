#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The walls of the house: who may include whom, how long functions and files are, what the library exports and calls.
# Every check takes the tree that it looks at, so that a broken copy shows that it can fail.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

rooms=(include kernels codecs src transports plugins)

sources() {
    local root=$1 room
    for room in "${rooms[@]}"; do
        [ -d "$root/$room" ] && find "$root/$room" -name '*.[ch]'
    done
}

# Which rooms a room may name by "header.h"; src/cli and the plugins see public headers and their own only.
allowed_rooms() {
    case $1 in
    include) echo ;;
    kernels) echo kernels ;;
    codecs) echo kernels codecs ;;
    transports) echo transports ;;
    src/cli) echo src/cli ;;
    src) echo kernels codecs transports src ;;
    plugins) echo plugins ;;
    esac
}

room_of() {
    case $1 in
    src/cli/*) echo src/cli ;;
    *) echo "${1%%/*}" ;;
    esac
}

# Headers of other projects, and the places that may include each.
foreign_law='^mpi\.h$ plugins/ transports/mpi_
^ucp/ transports/
^uc[st]/ transports/
^hwloc\.h$ src/topology/
^hwloc/ src/topology/
^pmix plugins/
^nccl plugins/
^cuda kernels/cuda/'

check_includes() {
    local root=$1 bad=0 file rel room header where
    declare -A home=()
    while read -r file; do
        rel=${file#"$root"/}
        home[$(basename "$file")]=$rel
    done < <(sources "$root" | grep '\.h$')
    while read -r file; do
        rel=${file#"$root"/}
        room=$(room_of "$rel")
        while read -r header; do
            where=${home[$(basename "$header")]:-}
            [ -n "$where" ] || { echo "$rel: \"$header\" is not in the tree"; bad=1; continue; }
            grep -qw -- "$(room_of "$where")" <(allowed_rooms "$room" | tr ' ' '\n') ||
                { echo "$rel: room $room may not name $where"; bad=1; }
        done < <(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$file")
        while read -r header; do
            while read -r pattern places; do
                [[ $header =~ $pattern ]] || continue
                for place in $places; do [[ $rel == "$place"* ]] && continue 2; done
                echo "$rel: <$header> belongs to $places"
                bad=1
            done <<<"$foreign_law"
        done < <(sed -n 's/^ *# *include *<\([^>]*\)>.*/\1/p' "$file")
    done < <(sources "$root")
    return "$bad"
}

check_file_names() {
    local twice
    twice=$(find "$1" -name build -prune -o -name .git -prune -o -type f \
        ! -name README.md ! -name CMakeLists.txt ! -name '*.cmake' ! -name '*.pyc' ! -path '*/.ci/*' ! -path '*/tests/gpu/run' -printf '%f\n' | sort | uniq -d)
    [ -z "$twice" ] || { echo "used twice: $twice"; return 1; }
}

check_heads() {
    local bad=0 file
    while read -r file; do
        head -n 1 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || { echo "no SPDX line: $file"; bad=1; }
    done < <(sources "$1")
    return "$bad"
}

# Prints "LINES NAME" for every function: bodies begin with "{" and end with "}" in the first column.
function_lengths() {
    sources "$1" | grep '\.c$' | while read -r file; do
        awk -v file="$file" '/^\{/ { start = NR } /^\}/ && start { print NR - start - 1, file ":" start; start = 0 }' "$file"
    done
}

# share LIMIT PERMILLE: of the numbers on stdin at least PERMILLE thousandths are below or at LIMIT.
share() {
    awk -v limit="$1" -v permille="$2" '{ n++; if ($1 <= limit) under++ }
        END { if (n && under * 1000 < permille * n) { print under " of " n " within " limit; exit 1 } }'
}

check_functions() {
    function_lengths "$1" >"$gw_tmp/functions"
    awk '$1 > 120 { print "too long: " $0; bad = 1 } END { exit bad }' "$gw_tmp/functions" &&
        share 60 900 <"$gw_tmp/functions" && share 17 500 <"$gw_tmp/functions"
}

check_files() {
    sources "$1" | while read -r file; do echo "$(wc -l <"$file") $file"; done >"$gw_tmp/files"
    awk '$1 > 1000 { print "too long: " $0; bad = 1 } END { exit bad }' "$gw_tmp/files" && share 250 500 <"$gw_tmp/files"
}

check_exports() {
    local others
    others=$(nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | grep -vE "^($2)" || true)
    [ -z "$others" ] || { echo "exported: $others"; return 1; }
}

# What a library inside somebody's trainer must never call.
check_calls() {
    local calls
    calls=$(nm -D --undefined-only "$1" | awk '{ print $2 }' | sed 's/@.*//' |
        grep -xE 'exit|_exit|_Exit|quick_exit|abort|__assert_fail|printf|__printf_chk|puts|putchar|stdout|system|popen|fork|vfork|rand|srand|random|drand48' || true)
    [ -z "$calls" ] || { echo "calls: $calls"; return 1; }
}

# Objects of the baseline may not hold AVX code: it would end the process on an older CPU.
check_baseline() {
    local object bad=0
    for object in "$@"; do
        objdump -d --no-show-raw-insn "$object" | grep -qE '%[yz]mm[0-9]|\sv[a-z0-9]+(ps|ss|pd|sd|dq|qu)\s' &&
            { echo "AVX code in $object"; bad=1; }
    done
    return "$bad"
}

# check_manual TABLE FILE: what stands between the table's markers in FILE is what the program prints.
check_manual() {
    diff <(sed -n "/<!-- $1 -->/,/<!-- \\/$1 -->/p" "$2" | sed '1d;$d') <("$GW_BUILD/bin/gradwire" info --markdown "$1")
}

# What is for people, on one tier: --markdown needs no settings and has always the best one.
matrix_on() {
    GRADWIRE_KERNELS=$1 "$GW_BUILD/bin/gradwire" info | sed -n '/^payload bits/,/^$/p'
}

check_matrix_on() {
    matrix_on "$1" | grep -q '^  q4 ' && diff <(matrix_on best) <(matrix_on "$1")
}

# block NAME FILE: what stands between the markers of that name.
block() {
    sed -n "/<!-- $1 -->/,/<!-- \\/$1 -->/p" "$2" | sed '1d;$d'
}

codec_names() {
    "$GW_BUILD/bin/gradwire" info --markdown codecs | sed -n 's/^| \(`[^`]*`\) .*/\1/p'
}

# check_convergence FILE: the command that made the table, its columns, and a row with figures for every codec of the program.
# It may have rows of others.
check_convergence() {
    local name row bad=0 cell=[0-9]+\\.[0-9]{4} head='| codec | digits: bytes an element | digits: loss | digits: accuracy, % | digits: against raw'
    head+=' | lm: bytes an element | lm: loss | lm: accuracy, % | lm: against raw |'
    block convergence "$1" >"$gw_tmp/block"
    grep -q '^    bench/convergence' "$gw_tmp/block" || { echo 'the command is missing'; bad=1; }
    grep -qxF "$head" "$gw_tmp/block" || { echo "the head of the table is not: $head"; bad=1; }
    while read -r name; do
        row=$(grep -F "| $name |" "$gw_tmp/block")
        [ "$(tr -cd '|' <<<"$row" | wc -c)" -eq 10 ] && [[ $row =~ $cell ]] || # shellcheck disable=SC2015
            { echo "$name has no row with figures: bench/convergence --readme codecs/README.md"; bad=1; }
    done < <(codec_names)
    ! grep FAILED "$gw_tmp/block" && return "$bad"
}

# check_budgets FILE: bits and codecs of the table are what auto:bits=N gives.
check_budgets() {
    diff <(block budgets "$1" | sed -n 's/^| \([0-9.]*\) | `\([^`]*\)` |.*/\1 \2/p') \
        <("$GW_BUILD/bin/gradwire" info | sed -n 's/^  bits=\([0-9.]*\) *\(.*\)/\1 \2/p') &&
        [ "$(block budgets "$1" | grep -c '^| [0-9.]* | `')" -ge 7 ]
}

# Both tables with an empty line between them.
check_both_tables() {
    local info=$GW_BUILD/bin/gradwire
    diff <("$info" info --markdown) <("$info" info --markdown settings; echo; "$info" info --markdown codecs)
}

baseline_objects() {
    find "$GW_BUILD" -path "$GW_BUILD/asan" -prune -o -path "$GW_BUILD/tsan" -prune -o -name '*.o' -print |
        grep -E '/(src|codecs|transports|kernels)/CMakeFiles/' | grep -vE 'avx|/x86/'
}

# A small tree that breaks one law.
broken() {
    rm -rf "$gw_tmp/tree"
    mkdir -p "$gw_tmp/tree/$(dirname "$1")" "$gw_tmp/tree/src"
    printf '/* SPDX-License-Identifier: Apache-2.0 */\n' >"$gw_tmp/tree/src/engine.h"
    printf '%b' "$2" >"$gw_tmp/tree/$1"
    echo "$gw_tmp/tree"
}

long_function() {
    printf 'int f(void)\n{\n'
    for _ in $(seq 130); do echo '    g();'; done
    printf '}\n'
}

tap 'rooms name only the rooms that they may' check_includes "$GW_SOURCE"
tap_fails 'a kernel that names the engine is caught' check_includes "$(broken kernels/k.c '#include "engine.h"\n')"
tap_fails 'hwloc outside the topology room is caught' check_includes "$(broken src/x.c '#include <hwloc.h>\n')"
tap_fails 'a plugin that reaches into src is caught' check_includes "$(broken plugins/p.c '#include "engine.h"\n')"
tap 'file names are unique' check_file_names "$GW_SOURCE"
tap_fails 'a file name used twice is caught' check_file_names "$(broken codecs/engine.h '')"
tap 'every source begins with its licence' check_heads "$GW_SOURCE"
tap_fails 'a source without its licence is caught' check_heads "$(broken src/y.c 'int y;\n')"
tap 'functions keep their length' check_functions "$GW_SOURCE"
tap_fails 'a function of 130 lines is caught' check_functions "$(broken src/z.c "$(long_function)\n")"
tap 'files keep their length' check_files "$GW_SOURCE"
tap_fails 'a file of 1,100 lines is caught' check_files "$(broken src/w.c "$(yes '\n' | head -n 1100 | tr -d '\n')")"
tap 'libgradwire exports gw_ names only' check_exports "$GW_BUILD/lib/libgradwire.so" gw_
tap_fails 'other exported names are caught' check_exports "$GW_BUILD/lib/libgradwire.so" gw_comm
tap 'libgradwire never prints, exits or aborts' check_calls "$GW_BUILD/lib/libgradwire.so"
tap_fails 'a program that prints is caught' check_calls "$GW_BUILD/bin/gradwire"
if [ "$(uname -m)" = x86_64 ]; then
    mapfile -t objects < <(baseline_objects)
    tap 'there are baseline objects to look at' test "${#objects[@]}" -gt 20
    tap 'baseline objects hold no AVX code' check_baseline "${objects[@]}"
    mapfile -t avx < <(find "$GW_BUILD/kernels" -name '*avx2*.o')
    tap_fails 'AVX code is caught' check_baseline "${avx[@]}"
else
    tap_skip 'baseline objects hold no AVX code' 'not an x86-64 machine'
fi
tap "the README's settings are the program's" check_manual settings "$GW_SOURCE/README.md"
sed 's/65536/65537/' "$GW_SOURCE/README.md" >"$gw_tmp/README.md"
tap_fails 'a README with another default is caught' check_manual settings "$gw_tmp/README.md"
tap "the matrix in codecs/README.md is the program's" check_manual codecs "$GW_SOURCE/codecs/README.md"
sed 's/^| `q4` | quant | 4.125 /| `q4` | quant | 4.124 /' "$GW_SOURCE/codecs/README.md" >"$gw_tmp/README.md"
tap_fails 'a matrix with another size is caught' check_manual codecs "$gw_tmp/README.md"
sed '/^| `topblock` | block | 32 /d' "$GW_SOURCE/codecs/README.md" >"$gw_tmp/README.md"
tap_fails 'a matrix that lacks a codec is caught' check_manual codecs "$gw_tmp/README.md"
tap 'codecs/README.md has a convergence run of every codec' check_convergence "$GW_SOURCE/codecs/README.md"
sed '/<!-- convergence -->/,$ { /^| `topblock` |/d }' "$GW_SOURCE/codecs/README.md" >"$gw_tmp/README.md"
tap_fails 'a convergence table that lacks a codec is caught' check_convergence "$gw_tmp/README.md"
sed '/<!-- convergence -->/,$ { s/^\(| `topblock` |\).*/\1 - | - | - | - | - | - | - | - |/ }' "$GW_SOURCE/codecs/README.md" >"$gw_tmp/README.md"
tap_fails 'a row without figures is caught' check_convergence "$gw_tmp/README.md"
sed 's/^| codec | digits: bytes an element /| codec /' "$GW_SOURCE/codecs/README.md" >"$gw_tmp/README.md"
tap_fails 'a convergence table of other columns is caught' check_convergence "$gw_tmp/README.md"
sed '/^    bench\/convergence/d' "$GW_SOURCE/codecs/README.md" >"$gw_tmp/README.md"
tap_fails 'a convergence table without its command is caught' check_convergence "$gw_tmp/README.md"
tap 'the defaults by budget in codecs/README.md are those of the program' check_budgets "$GW_SOURCE/codecs/README.md"
sed 's/^| 8 | `q8` |/| 8 | `q7` |/' "$GW_SOURCE/codecs/README.md" >"$gw_tmp/README.md"
tap_fails 'another default is caught' check_budgets "$gw_tmp/README.md"
tap 'the matrix is the same on the reference kernels' check_matrix_on ref
tap '--markdown by itself prints both tables' check_both_tables
tap_fails '--markdown of another word is wrong usage' "$GW_BUILD/bin/gradwire" info --markdown transports
tap_done
