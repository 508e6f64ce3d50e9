#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/convergence from outside, with a trainer of one step: verdicts, tables, picture, what is kept, what is refused.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
convergence=$GW_SOURCE/bench/convergence
export PYTHONDONTWRITEBYTECODE=1 GRADWIRE_BUILD=$GW_BUILD

if ! /usr/bin/python3 -c 'import torch, mpi4py, numpy, sklearn, matplotlib' 2>/dev/null || ! command -v mpirun >/dev/null; then
    tap_skip 'bench/convergence' 'no torch, mpi4py, sklearn, matplotlib or mpirun'
    tap_done
fi

# Its loss is 1 + seed / 100 and a tenth of the sum's relative error; FAKE_* make it go wrong for one codec.
cat >"$gw_tmp/trainer.py" <<'PY'
import argparse, json, os, time
from mpi4py import MPI
import numpy as np
parser = argparse.ArgumentParser()
for name in ("--task", "--text", "--out"):
    parser.add_argument(name)
for name in ("--seed", "--steps"):
    parser.add_argument(name, type=int)
o = parser.parse_args()
comm = MPI.COMM_WORLD
chosen = lambda what: os.environ.get("GRADWIRE_CODEC") == os.environ.get("FAKE_" + what)
if chosen("EXIT"):
    raise SystemExit("Error: told to fail")
if chosen("SLEEP"):
    time.sleep(100)
x = [np.random.default_rng(r).standard_normal(1 << 17).astype(np.float32) for r in range(comm.size)]
exact, total = sum(x), x[comm.rank].copy()
if not chosen("IDLE"):
    comm.Allreduce(MPI.IN_PLACE, total)
loss = 1 + o.seed / 100 + 0.1 * float(np.linalg.norm(total - exact) / np.linalg.norm(exact))
if comm.rank == 0:
    json.dump({"task": o.task, "title": "One step", "seed": o.seed, "steps": o.steps or 1, "parameters": 1 << 17, "baseline": 2.3,
               "baseline_name": "nothing", "loss": float("nan") if chosen("NAN") else loss, "accuracy": 1 - loss / 3,
               "identical": not chosen("DIFFER"), "validation_curve": [[1, loss]]}, open(o.out, "w"))
PY

# try STATUS ARGUMENTS...: keeps both outputs, compares the exit status.
try() {
    local expected=$1 status=0
    shift
    "$convergence" --no-build --task digits --out "$gw_tmp/out" --trainer "$gw_tmp/trainer.py" "$@" >"$gw_tmp/said" 2>"$gw_tmp/err" ||
        status=$?
    [ "$status" -eq "$expected" ] && return
    echo "exit status $status, not $expected"
    cat "$gw_tmp/said" "$gw_tmp/err"
    return 1
}

# runs DONE TODO ARGUMENTS...: how many it finds and how many it makes.
runs() {
    local done=$1 todo=$2
    shift 2
    try 0 "$@" || return 1
    grep -q ": $done are there already, $todo to do" "$gw_tmp/said" && return
    cat "$gw_tmp/said"
    return 1
}

# says WORDS STATUS ARGUMENTS...
says() {
    local words=$1
    shift
    try "$@" || return 1
    grep -qF -- "$words" "$gw_tmp/said" "$gw_tmp/err" && return
    cat "$gw_tmp/said" "$gw_tmp/err"
    return 1
}

# in_table EXPRESSION: on `t`, table.json, and `c`, the cells of digits by codec.
in_table() {
    /usr/bin/python3 - "$gw_tmp/out/table.json" "$1" <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))
c = {row["codec"]: row["tasks"].get("digits") for row in t["codecs"]}
assert eval(sys.argv[2]), c
PY
}

bad_option() {
    local words=$1 status=0
    shift
    "$convergence" "$@" >"$gw_tmp/said" 2>"$gw_tmp/err" || status=$?
    [ "$status" -eq 2 ] && [ "$(wc -l <"$gw_tmp/err")" -eq 1 ] && grep -qF -- "$words" "$gw_tmp/err"
}

tables_agree() {
    [ "$(head -c 4 "$gw_tmp/out/convergence.png" | tail -c 3)" = PNG ] && [ "$(wc -l <"$gw_tmp/out/table.csv")" -eq 4 ] &&
        grep -q '^q8,digits,2,1,1.01.*,inside' "$gw_tmp/out/table.csv" &&
        grep -qxF '| codec | digits: bytes an element | digits: loss | digits: accuracy, % | digits: against raw |' "$gw_tmp/out/table.md" &&
        grep -qE '^\| `raw` \| 4.000 \| 1.0150 ± 0.0071 \| 66.17 ± 0.24 \| base \|$' "$gw_tmp/out/table.md" &&
        grep -qE '^\| `q2` \| 0.267 \| 1.0[0-9]* ± 0.0071 \| .* \| HIGHER \(\+[0-9.]*%\) \|$' "$gw_tmp/out/table.md"
}

changed_program() {
    mkdir -p "$gw_tmp/build"
    cp -r "$GW_BUILD/bin" "$GW_BUILD/lib" "$gw_tmp/build/" && echo >>"$gw_tmp/build/lib/libgradwire-openmpi.so"
    GRADWIRE_BUILD=$gw_tmp/build runs 0 6 --codec 'q8 q2' --seeds 2 --report-only || return 1
    GRADWIRE_BUILD=$gw_tmp/build runs 6 0 --codec 'q8 q2' --seeds 2 --report-only --reuse
}

changed_trainer() {
    cp "$gw_tmp/trainer.py" "$gw_tmp/kept"
    echo '# changed' >>"$gw_tmp/trainer.py"
    runs 0 6 --codec 'q8 q2' --seeds 2 --report-only
    local status=$?
    mv "$gw_tmp/kept" "$gw_tmp/trainer.py"
    return "$status"
}

torn_line() {
    truncate -s -9 "$gw_tmp/out/results.jsonl" && runs 5 1 --codec 'q8 q2' --seeds 2 && runs 6 0 --codec 'q8 q2' --seeds 2
}

same_table_again() {
    cp "$gw_tmp/out/table.md" "$gw_tmp/first" && runs 6 0 --codec 'q8 q2' --seeds 2 && diff "$gw_tmp/first" "$gw_tmp/out/table.md"
}

readme_block() {
    printf 'before\n<!-- convergence -->\nold\n<!-- /convergence -->\nbehind\n' >"$gw_tmp/page.md"
    runs 6 0 --codec 'q8 q2' --seeds 2 --readme "$gw_tmp/page.md" && grep -q '^| `q2` ' "$gw_tmp/page.md" &&
        [ "$(head -n 2 "$gw_tmp/page.md" | tail -n 1) $(tail -n 1 "$gw_tmp/page.md") $(grep -c old "$gw_tmp/page.md")" = '<!-- convergence --> behind 0' ]
}

# Interrupted in the middle of its second run, by a person's Ctrl-C: what is finished is there, and the ranks are gone.
interrupted() {
    rm -rf "$gw_tmp/out"
    FAKE_SLEEP=q8 /usr/bin/python3 - "$convergence" "$gw_tmp" <<'PY'
import os, signal, subprocess, sys, time
convergence, tmp = sys.argv[1:]
done, second = f"{tmp}/out/results.jsonl", f"{tmp}/out/runs/digits-1-q8.log"
process = subprocess.Popen([convergence, "--no-build", "--task", "digits", "--out", f"{tmp}/out", "--codec", "q8", "--trainer",
                            f"{tmp}/trainer.py", "--seeds", "1"], start_new_session=True, stdout=subprocess.DEVNULL,
                           preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
                           stderr=subprocess.PIPE, text=True)
for _ in range(1200):
    if os.path.exists(second) and len(open(second).read()) > 100:
        break
    time.sleep(0.1)
time.sleep(1)
os.killpg(process.pid, signal.SIGINT)
said = process.communicate(timeout=90)[1]
assert process.returncode == 130 and "goes on from there" in said, (process.returncode, said)
assert len(open(done).read().splitlines()) == 1
ranks = subprocess.run(["pgrep", "-f", f"{tmp}/trainer.py"], capture_output=True, text=True).stdout
assert not ranks, ranks
PY
}

# 36 codecs, many of them beside each other: no name lies on another.
names_apart() {
    /usr/bin/python3 - "$GW_SOURCE/bench" "$1" <<'PY'
import itertools, random, sys
sys.path.insert(0, sys.argv[1])
import convergence_picture
from plot_labels import overlap
random.seed(5)
cell = lambda size, loss, verdict: {"seeds": 3, "bytes_per_element": size, "loss_mean": loss, "loss_std": 0.003, "loss_shift": loss - 0.13,
                                    "accuracy_mean": 1.1 - loss, "accuracy_shift": 0.13 - loss, "accuracy_std": 0.002, "verdict": verdict}
rows = [("raw", cell(4, 0.13, "base"))] + [(f"q{i}r", cell(0.14 + 0.12 * i, 0.13 + random.gauss(0, 0.002), "inside")) for i in range(1, 26)]
rows += [(f"topk+{i}", cell(0.03 + 0.01 * i, 0.2 * i, "higher")) for i in range(1, 11)]
about = {"title": "None", "parameters": 300000, "steps": 240}
figure = convergence_picture.figure_of({"ranks": 2, "seeds": 3, "tasks": {"digits": about},
                                        "codecs": [{"codec": name, "tasks": {"digits": c}} for name, c in rows]})
for axes in figure.axes:
    assert len(axes.texts) == len(rows), len(axes.texts)
    if sys.argv[2] == "spoil":
        axes.texts[3].set_position(axes.texts[9].get_position())
    boxes = [(text.get_text(), text.get_window_extent(figure.canvas.get_renderer())) for text in axes.texts]
    for (a, box), (b, other) in itertools.combinations(boxes, 2):
        assert overlap(box.extents, other.extents) == 0, f"{a} lies on {b}"
    for name, box in boxes:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, f"{name} is cut off"
PY
}

# The demo's own trainer, shortly.
trains_for_real() {
    "$convergence" --no-build --task digits --steps digits=8 --seeds 1 --codec q4:bucket=128,ef=off,q8 --out "$gw_tmp/real" >"$gw_tmp/said" 2>&1 &&
        grep -q '^| `q4:bucket=128,ef=off` | 0.5[0-9]* | [12]' "$gw_tmp/real/table.md" && return
    cat "$gw_tmp/said"
    return 1
}

cases=("unknown option|--wrong" "--seeds wants|--seeds 0" "--seeds needs a value|--seeds" "--task is lm, digits or both|--task lm,digits"
    "--steps wants|--steps 5" "--steps wants|--steps lm=0" "no such file|--trainer /none" "no such file|--readme /none")
for case in "${cases[@]}"; do
    # shellcheck disable=SC2086 # words on purpose
    tap "${case#*|} is wrong usage" bad_option "${case%%|*}" ${case#*|}
done
tap 'a misspelled codec is wrong usage, before any training' says "closest: 'q8'" 2 --codec q9
GRADWIRE_DISABLE=1 tap 'raw is added, six runs are made, settings of the caller do not count' runs 0 6 --codec 'q8 q2' --seeds 2
tap 'raw is the base, q8 inside, q2 higher' in_table 'c["raw"]["verdict"] == "base" and c["q8"]["verdict"] == "inside" and c["q2"]["verdict"] == "higher"'
tap 'Markdown, CSV and picture are there and say the same' tables_agree
tap 'a second call trains nothing and writes the same table' same_table_again
tap 'a torn line of results costs its own run' torn_line
tap 'another program makes all runs anew, unless --reuse' changed_program
tap 'another trainer makes all runs anew' changed_trainer
tap '--readme replaces what is between the markers' readme_block
echo none >"$gw_tmp/none.md"
tap 'a README without markers is refused' says 'has no lines <!-- convergence -->' 1 --codec q8 --seeds 2 --readme "$gw_tmp/none.md"
FAKE_EXIT=q8:ef=off tap 'a failing run is named, the rest goes on' says 'told to fail' 1 --codec q8:ef=off,q2 --seeds 2
tap 'the table says so' grep -qF 'FAILED: `q8:ef=off` on digits: Error: told to fail' "$gw_tmp/out/table.md"
FAKE_IDLE=q8:ef=off tap 'a run without compressed calls does not count' says 'no call went through the codec' 1 --codec q8:ef=off --seeds 2
FAKE_DIFFER=q8:ef=off tap 'nor does one whose replicas differ' says 'the replicas differ' 1 --codec q8:ef=off --seeds 2
FAKE_NAN=q4 tap 'a loss that is no number is a verdict' says 'no number' 0 --codec q4 --seeds 2
tap 'it is FAILED' in_table 'c["q4"]["verdict"] == "failed"'
tap 'names in the picture lie apart' names_apart good
tap_fails 'a name on another is caught' names_apart spoil
tap 'the trainer of the demo runs, and says nothing of quality with one seed' trains_for_real
tap 'interrupted, it keeps what is finished' interrupted
tap_done
