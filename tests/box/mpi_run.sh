#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `gradwire run`, before the launcher and behind it: settings reach the ranks, exit status comes back, mistakes are
# found before anything starts.
. "$(dirname "$0")/mpi_lib.sh"

program=$bin/mpi_mixed
exact='^(loss|counters|max) '
plain=$(mpi -np 2 "$program" | grep -E "$exact")
compressed="$consistent and s['compressed'] == 3"
# variables COMMAND ...: what a rank finds in its environment.
show='echo "[$GRADWIRE_CODEC][$GRADWIRE_MIN_BYTES][$GRADWIRE_LOG][$LD_PRELOAD][${UCX_ERROR_SIGNALS-unset}][$UCX_WARN_UNUSED_ENV_VARS][${MINE-}]"'
run() { timeout -k 5 60 "$gradwire" run "$@"; }

out=$(run --codec q8 --stats "$work/front.%r.json" -- mpirun -np 2 "$program" 2>&1)
equal "gradwire run -- mpirun: results" "$plain" "$(grep -E "$exact" <<<"$out")"
check "gradwire run -- mpirun: compressed with the codec given" stats "$work/front.1.json" \
    "$compressed and s['communicators'][0]['codec'].startswith('q8')"
out=$(mpi -np 2 "$gradwire" run --stats="$work/behind.%r.json" "$program" 2>&1)
equal "mpirun gradwire run, without --: results" "$plain" "$(grep -E "$exact" <<<"$out")"
check "mpirun gradwire run: compressed" stats "$work/behind.0.json" "$compressed"
out=$(run --stats "$work/single.json" -- "$program" 2>&1)
check "gradwire run of one process" stats "$work/single.json" "$consistent and r == {'single_rank': 12}"

expected="[q8:bucket=64][4K][info][$shim][][n][]"
equal "the variables of a rank" "$expected" \
    "$(run --codec q8:bucket=64 --min-bytes 4K --log info -- mpirun -np 1 bash -c "$show" 2>&1)"
equal "the variables of a program" "$expected" \
    "$(run --codec=q8:bucket=64 --min-bytes=4K --log=info -- bash -c "$show" 2>&1)"
equal "every context of an MPMD job" "$(printf '%s\n%s' "$expected" "$expected")" \
    "$(run --codec q8:bucket=64 --min-bytes 4K --log info -- mpirun -np 1 bash -c "$show" : -np 1 bash -c "$show" 2>&1)"
equal "variables in mca_base_env_list stay and ours join them" "${expected%\[\]}[mine]" \
    "$(run --codec q8:bucket=64 --min-bytes 4K --log info -- mpirun --mca mca_base_env_list "MINE=mine" -np 1 bash -c "$show" 2>&1)"
equal "the same list in the environment" "${expected%\[\]}[mine]" \
    "$(OMPI_MCA_mca_base_env_list='MINE=mine' run --codec q8:bucket=64 --min-bytes 4K --log info -- mpirun -np 1 bash -c "$show" 2>&1)"
tool=$bin/libmpi_tool.so
contains "an LD_PRELOAD that exists is kept" "$(LD_PRELOAD=$tool run -- bash -c "$show" 2>&1)" "\[$shim:$tool\]"
contains "an LD_PRELOAD that exists is kept for ranks" "$(LD_PRELOAD=$tool run -- mpirun -np 1 bash -c "$show" 2>&1)" "\[$shim:$tool\]"
contains "-x LD_PRELOAD of the user is kept" "$(run -- mpirun -x "LD_PRELOAD=$tool" -np 1 bash -c "$show" 2>&1)" "\[$shim:$tool\]"
contains "not twice" "$(run -- bash -c "$gradwire run -- bash -c '$show'" 2>&1)" "\[$shim\]"
contains "-x of the user wins" "$(run --codec q4 -- mpirun -x GRADWIRE_CODEC=q8 -np 1 bash -c "$show" 2>&1)" '^\[q8\]'
contains "UCX variables of the user stay" "$(UCX_ERROR_SIGNALS=SIGBUS run -- bash -c "$show" 2>&1)" '\[SIGBUS\]'
mkdir "$work/open"
printf '#!/bin/sh\n[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit; }\necho "[$LD_PRELOAD] $1 $2"\n' >"$work/open/mpirun"
chmod +x "$work/open/mpirun"
equal "a launcher that is a script is known by its version and not preloaded itself" "[] -x LD_PRELOAD=$shim" \
    "$(PATH="$work/open:$PATH" run -- mpirun -np 1 prog 2>&1)"

run -- bash -c 'exit 7'
equal "exit status of a program" 7 $?
run -- mpirun -np 2 bash -c 'exit 9' >/dev/null 2>&1
equal "exit status through mpirun" 9 $?
run -- "$work/none" 2>"$work/err"
equal "exit status of a command that is not there" 127 $?
run -- "$work" 2>"$work/err"
equal "exit status of a command that cannot run" 126 $?

# refused NAME PATTERN ARGUMENTS ...: exit status 2, a reason, and the command was not started.
refused() {
    local name=$1 pattern=$2 rc
    shift 2
    rm -f "$work/started"
    run "$@" mpirun -np 1 touch "$work/started" >"$work/err" 2>&1
    rc=$?
    equal "$name: refused" "2 none" "$rc $([ -e "$work/started" ] && echo started || echo none)"
    contains "$name: the reason" "$(cat "$work/err")" "$pattern"
}
refused "a codec that does not exist" 'q44' --codec q44 --
refused "a codec parameter that does not exist" 'bukket' --codec q4:bukket=3
refused "a number that is none" 'many' --min-bytes many --
refused "a log level that is none" 'loud' --log loud --
refused "an option that does not exist" '--codecs' --codecs q4 --
refused "an option without its value" 'usage' --stats
"$gradwire" run >/dev/null 2>"$work/err"
equal "no command" 2 $?
printf 'bytes=1M -> q4\nbites=2M -> q4\n' >"$work/rules"
refused "a rule with a mistake" "rules: line 2, column 1: 'bites'" --config "$work/rules" --
refused "a file of rules that is not there" 'cannot be read' --config "$work/no-such-rules" --

# Another MPI's launcher.
printf '#!/bin/sh\n[ "$1" = --version ] && { echo "HYDRA build details: 4.0"; exit; }\necho "plain[$LD_PRELOAD]$*"\n' >"$work/mpiexec"
chmod +x "$work/mpiexec"
out=$(run -- "$work/mpiexec" -n 2 prog 2>"$work/err")
equal "another MPI's launcher runs as it is" "plain[]-n 2 prog" "$out"
contains "another MPI's launcher: said once" "$(cat "$work/err")" 'no shim for this MPI \(HYDRA'

# Ranks on another node, whose daemon is started with an empty environment.
netlab=$GW_SOURCE/bench/netlab/netlab
in_lab() { timeout -k 5 60 "$netlab" run --name "gwr$((BASHPID % 100000))" -- bash -c "$1" 2>&1; }
out=$(in_lab "exec $gradwire run --codec q8 --stats $work/lab.%r.json -- \$NETLAB_MPIRUN -np 2 $program")
if [ $? -eq 77 ]; then
    skip "gradwire run reaches another node" "no network lab here"
else
    equal "gradwire run -- mpirun reaches another node: results" "$plain" "$(grep -E "$exact" <<<"$out")"
    check "gradwire run -- mpirun reaches another node: compressed there" stats "$work/lab.1.json" \
        "$compressed and s['communicators'][0]['codec'].startswith('q8')"
    out=$(in_lab "exec \$NETLAB_MPIRUN -np 2 $gradwire run --codec q8 --stats $work/lab2.%r.json -- $program")
    check "mpirun gradwire run reaches another node" stats "$work/lab2.1.json" "$compressed"
fi
finish
