#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run without a GPU: a rehearsal on the double, and what it says when something fails or is not there.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
unset GW_SKIP_FILE OUT

if [ ! -e "$GW_BUILD/doubles/libcuda.so.1" ] || [ ! -x "$GW_BUILD/bin/bench_gpu" ]; then
    tap_skip 'tests/gpu/run on the double' 'there is no double here'
    tap_done
fi

# gpu_run BUILD OUT OPTIONS ...
gpu_run() {
    local build=$1 out=$2
    shift 2
    "$GW_SOURCE/tests/gpu/run" --no-build --build "$build" --out "$out" --count 4096 "$@"
}

field() {
    python3 - "$1/results.json" "$2" <<'PY'
import json, sys
results = json.load(open(sys.argv[1]))
print(eval(sys.argv[2], {"r": results}))
PY
}

rehearsal() {
    gpu_run "$GW_BUILD" "$gw_tmp/out" --driver "$GW_BUILD/doubles" --only device_double >"$gw_tmp/log" || return 1
    tail -n 1 "$gw_tmp/log"
    tail -n 1 "$gw_tmp/log" | grep -qx 'gpu tests: 2 passed, 0 failed, 1 skipped' &&
        [ "$(field "$gw_tmp/out" '(r["rehearsal"], r["passed"], r["failed"], r["skipped"])')" = '(True, 2, 0, 1)' ] &&
        [ "$(field "$gw_tmp/out" 'len(r["kernels"]["rows"]) >= 9 and all(k["share"] >= 0 for k in r["kernels"]["rows"])')" = True ] &&
        [ "$(field "$gw_tmp/out" '[e["status"] for e in r["entries"]]')" = "['pass', 'skip', 'pass']" ]
}
tap 'a rehearsal on the double passes, counts its skips and writes JSON' rehearsal

kernels() {
    CK_RUN_CASE=copies gpu_run "$GW_BUILD" "$gw_tmp/copies" --driver "$GW_BUILD/doubles" --parts tests --only gpu_device_ops >"$gw_tmp/log" &&
        [ "$(field "$gw_tmp/copies" 'r["entries"][0]["detail"]')" = '100%: Checks: 12, Failures: 0, Errors: 0' ]
}
tap 'tests of kernels run by the driver, in memory that is registered' kernels

parts() {
    gpu_run "$GW_BUILD" "$gw_tmp/part" --driver "$GW_BUILD/doubles" --parts kernels >"$gw_tmp/log" 2>&1 &&
        [ "$(field "$gw_tmp/part" '[e["kind"] for e in r["entries"]]')" = "['bench']" ]
}
tap 'one part can be run alone' parts

# A folder of programs of which one fails, one hangs up with words that JSON must quote, and one is not there.
mkdir -p "$gw_tmp/build/tests" "$gw_tmp/build/bin"
printf '#!/bin/sh\necho "says \\"no\\"\\\\ twice"\nexit 1\n' >"$gw_tmp/build/tests/test_device_double"
printf '#!/bin/sh\nkill -SEGV $$\n' >"$gw_tmp/build/tests/test_device_calls"
printf '#!/bin/sh\necho "{}"\n' >"$gw_tmp/build/bin/bench_gpu"
chmod +x "$gw_tmp"/build/*/*
failures() {
    gpu_run "$gw_tmp/build" "$gw_tmp/bad" --driver "$GW_BUILD/doubles" >"$gw_tmp/log" 2>&1
    [ $? -eq 1 ] && [ "$(field "$gw_tmp/bad" '(r["passed"], r["failed"], r["skipped"])')" = '(1, 2, 4)' ] &&
        [ "$(field "$gw_tmp/bad" 'r["entries"][0]["detail"]')" = 'says "no"\ twice' ] &&
        [ "$(field "$gw_tmp/bad" 'r["entries"][1]["detail"]')" = 'was not built' ]
}
tap 'a test that fails, one that crashes and one that is not there are told apart' failures

exits() {
    local want=$1
    shift
    "$@" >"$gw_tmp/log" 2>&1
    [ $? -eq "$want" ]
}
tap 'an option that there is not is wrong usage' exits 2 "$GW_SOURCE/tests/gpu/run" --gpu
tap 'a value that is missing too' exits 2 "$GW_SOURCE/tests/gpu/run" --build
tap 'a test that there is not too' exits 2 "$GW_SOURCE/tests/gpu/run" --only device_dobule
tap 'a part that there is not too' exits 2 "$GW_SOURCE/tests/gpu/run" --parts 'tests sanitiser'
tap 'a folder without a driver is nothing to run on' exits 3 gpu_run "$GW_BUILD" "$gw_tmp/none" --driver "$gw_tmp"
if command -v nvidia-smi >/dev/null; then
    tap_skip 'no GPU is nothing to run on' 'there is one'
else
    tap 'bench_gpu without a driver says so' exits 1 "$GW_BUILD/bin/bench_gpu" --count 4096
    tap 'no GPU is nothing to run on' exits 3 gpu_run "$GW_BUILD" "$gw_tmp/none"
    tap 'and says so' grep -q 'no NVIDIA GPU' "$gw_tmp/log"
fi
tap 'bench_gpu refuses a count that is no multiple of a block' exits 2 "$GW_BUILD/bin/bench_gpu" --count 5000
tap_done
