#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `gradwire info` says of GPUs with each kind of driver, and that nothing else looks for one.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

gradwire=$GW_BUILD/bin/gradwire

# with DIRECTORY COMMAND ...: DIRECTORY has the libcuda.so.1 of this machine.
with() {
    local where=$1
    shift
    LD_LIBRARY_PATH=$where${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"
}

# says DIRECTORY WORDS: the line on GPUs ends so; --json must be an object with the same.
says() {
    with "$1" "$gradwire" info | grep -q -- "^GPU kernels: .*; $2" &&
        with "$1" "$gradwire" info --json | python3 -c "
import json, sys
d = json.load(sys.stdin)['devices']
words = sys.argv[1]
assert isinstance(d['kernels'], str), d
assert d['count'] == len(d['list']), d
assert (d['count'] == 0) == ('reason' in d) == words.startswith('no GPU'), d
assert all(x['name'] and x['bytes'] > 0 and x['multiprocessors'] > 0 for x in d['list']), d
" "$2"
}

# loads COMMAND ...: whether libcuda was looked for while it ran.
loads() {
    LD_DEBUG=files LD_DEBUG_OUTPUT=$gw_tmp/debug with "$GW_BUILD/fakes/full" "$@" >/dev/null 2>&1
    local found=1
    grep -q libcuda "$gw_tmp"/debug.* && found=0
    rm -f "$gw_tmp"/debug.*
    return "$found"
}

if ldconfig -p | grep -q libcuda.so.1; then
    tap_skip 'no driver is said so' 'this machine has one'
else
    tap 'no driver is said so' says "$gw_tmp" 'no GPU: no CUDA driver (libcuda.so.1: '
fi
tap 'two GPUs are listed' says "$GW_BUILD/fakes/full" '2 GPUs, driver for CUDA 12.8'
tap 'a driver that is too old is said so' says "$GW_BUILD/fakes/old" 'no GPU: libcuda.so.1 is for CUDA 10.2 and lacks '
tap_fails 'an old driver is no new one' says "$GW_BUILD/fakes/old" '2 GPUs, driver for CUDA 12.8'
if [ -e "$GW_BUILD/doubles/libcuda.so.1" ]; then
    tap "the double's GPU is listed" says "$GW_BUILD/doubles" '1 GPU, driver for CUDA 13.0'
    export GW_DOUBLE_DEVICES=0
    tap 'a driver without a GPU is said so' says "$GW_BUILD/doubles" 'no GPU: cuInit: CUDA_ERROR_NO_DEVICE: '
    unset GW_DOUBLE_DEVICES
else
    tap_skip "the double's GPU is listed" 'there is no double'
fi
tap_fails 'a benchmark of host memory looks for no driver' loads "$gradwire" bench codec --codec q4 --size 64K
tap_fails 'nor does the map' loads "$gradwire" topo
tap 'info does, which is seen' loads "$gradwire" info
tap_done
