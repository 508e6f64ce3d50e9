#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo, short: its runs and its report on the quick task, and what it says when things do not go well. Prints TAP.
set -u

source_dir=${GW_SOURCE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
build=${GW_BUILD:-$source_dir/build}
bench=$source_dir/bench
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check WHAT LOG COMMAND ...: the log is shown when the command fails.
check() {
    local what=$1 log=$2
    shift 2
    if "$@"; then
        echo "ok - demo: $what"
    else
        echo "not ok - demo: $what"
        [ ! -s "$log" ] || tail -n 30 "$log" | sed 's/^/# /'
    fi
}

bad_options_fail() {
    local arguments
    for arguments in "--wrong" "--seeds 0" "--seeds" "--task both,lm" "--rate 1e9" "--local --rate 5"; do
        # shellcheck disable=SC2086 # words on purpose
        "$bench/demo" $arguments 2>>"$work/bad"
        [ $? -eq 2 ] || return 1
    done
    [ "$(wc -l <"$work/bad")" -eq 6 ] # one sentence each
}

# runs NAME [COMMAND ...]: the quick digits runs, through COMMAND where there is one; results in $work/NAME.
runs() {
    local name=$1
    shift
    mkdir -p "$work/$name/runs"
    env DEMO_OUT="$work/$name" DEMO_GRADWIRE="$build/bin/gradwire" DEMO_CODEC="${codec:-q4}" DEMO_SEEDS=1 DEMO_QUICK=1 \
        DEMO_TEXT=none DEMO_TASKS=digits DEMO_TRAINER="${trainer:-$bench/demo_train.py}" \
        "$@" "$bench/demo_runs" >"$work/$name.log" 2>&1
}

report() {
    /usr/bin/python3 "$bench/demo_report.py" --runs "$work/$1/runs" --out "$work/$1" --codec "${codec:-q4}" --link-mbit "$2" \
        >>"$work/$1.log" 2>&1
}

trains_on_this_machine() { runs local && report local 0; }
trains_in_the_lab() { runs lab "$bench/netlab/netlab" run --name "gwm$((BASHPID % 100000))" -- && report lab 1000; }

# in_report NAME EXPRESSION: a Python expression on `r`, the report.
in_report() {
    /usr/bin/python3 - "$work/$1/report.json" "$2" <<'PYTHON' 2>>"$work/$1.log"
import json, sys
r = json.load(open(sys.argv[1]))
sys.exit(0 if eval(sys.argv[2]) else 1)
PYTHON
}

report_is_complete() {
    in_report local 'all(k in r for k in "link_mbit ranks seeds task wire_ratio tasks".split()) and all(k in r[kind]
        for k in "loss_mean loss_std accuracy_mean accuracy_std step_ms allreduce_ms wire_bytes codec".split()
        for kind in ("plain", "compressed"))' && [ "$(head -c 4 "$work/local/report.png" | tail -c 3)" = PNG ]
}
gradients_are_compressed() { in_report "$1" 'r["compressed"]["calls"]["compressed"] == 240 and r["wire_ratio"] >= 7.5'; }
replicas_are_equal() { in_report local 'r["plain"]["identical"] and r["compressed"]["identical"]'; }
model_has_learnt() { in_report local 'r["plain"]["accuracy_mean"] > 0.9 and r["compressed"]["accuracy_mean"] > 0.9'; }
interface_saw_less() { in_report lab 'r["interface_ratio"] > 5 and r["link_mbit"] == 1000'; }

# The same sentence must not come out whatever happened: without compression the report says that and why.
disabled_is_said() {
    runs disabled env GRADWIRE_DISABLE=1 && report disabled 0 && grep -q 'NOTHING WAS COMPRESSED' "$work/disabled.log" &&
        in_report disabled 'r["wire_ratio"] == 1.0 and r["plain"]["loss_mean"] == r["compressed"]["loss_mean"]'
}
failed_run_fails() {
    echo 'raise SystemExit(3)' >"$work/broken.py"
    ! trainer=$work/broken.py runs broken && grep -q 'ended with status' "$work/broken.log" && ! report broken 0
}
bad_codec_fails() { ! codec=q99 runs codec && grep -q "q99" "$work/codec.log"; }

main() {
    check "bad options give one sentence each" "$work/bad" bad_options_fail
    if ! /usr/bin/python3 -c 'import torch, mpi4py, sklearn, matplotlib' 2>/dev/null || ! command -v mpirun >/dev/null; then
        echo "ok - demo: training # SKIP no torch, mpi4py, sklearn, matplotlib or mpirun"
        return
    fi
    check "both kinds train on this machine" "$work/local.log" trains_on_this_machine
    check "the report has its keys and a picture" "$work/local.log" report_is_complete
    check "all gradients went compressed" "$work/local.log" gradients_are_compressed local
    check "the replicas are bit for bit equal" "$work/local.log" replicas_are_equal
    check "the model has learnt" "$work/local.log" model_has_learnt
    check "a disabled Gradwire is not taken for compression" "$work/disabled.log" disabled_is_said
    check "a failed run fails the demo" "$work/broken.log" failed_run_fails
    check "an unknown codec fails the demo" "$work/codec.log" bad_codec_fails
    if "$bench/netlab/netlab" run --name "gwm$((BASHPID % 100000))" -- true 2>"$work/probe"; then
        check "both kinds train in the network lab" "$work/lab.log" trains_in_the_lab
        check "all gradients went compressed there" "$work/lab.log" gradients_are_compressed lab
        check "the node's interface saw less" "$work/lab.log" interface_saw_less
    else
        echo "ok - demo: in the network lab # SKIP $(sed 's/^netlab: //' "$work/probe")"
    fi
}

main
