#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kernels on older processors, emulated: a tier that holds an instruction of a later one ends here with SIGILL.
. "$(dirname "$0")/../lib.sh"

if [ "$(uname -m)" != x86_64 ]; then
    tap_skip 'kernels on older processors' 'not an x86-64 machine'
    tap_done
fi
if ! command -v qemu-x86_64 >/dev/null; then
    tap_skip 'kernels on older processors' 'qemu-x86_64 (package qemu-user) is missing'
    tap_done
fi

# on MODEL PROGRAM [ARGUMENT ...]
on() {
    local model=$1
    shift
    # What the model lacks and the emulator lacks too is said on stderr, at length.
    qemu-x86_64 -cpu "$model" "$@" 2>"$gw_tmp/err" || { local rc=$?; head -n 5 "$gw_tmp/err"; echo "status $rc on $model"; return "$rc"; }
}

# has MODEL TIER ...: the tiers that the program finds on this model, no more and no less.
has() {
    local model=$1 found
    shift
    found=$(on "$model" "$GW_BUILD/tests/kernels_probe") || { echo "$found"; return 1; }
    echo "$found"
    [ "$(grep -o '^tier [a-z0-9]*' <<<"$found")" = "$(printf 'tier %s\n' "$@")" ]
}

dies_of_sigill() {
    on "$@"
    [ $? -eq 132 ]
}

for model in Nehalem Westmere; do
    tap "$model runs the reference alone" has "$model" ref
done
tap 'Haswell runs AVX2 beside it, the same bytes' has Haswell ref avx2
tap_fails 'a tier too many is caught' has Haswell ref
# Forced tiers are what they are called: each of their kernels dies where its instructions are missing.
tap 'every AVX2 kernel dies on Westmere' on Westmere "$GW_BUILD/tests/kernels_probe" force avx2
tap 'every AVX-512 kernel dies on Haswell' on Haswell "$GW_BUILD/tests/kernels_probe" force avx512
tap_fails 'kernels that do not die are noticed' on Haswell "$GW_BUILD/tests/kernels_probe" force avx2
# The negative case: AVX2 code on a processor without it.
tap 'an instruction that the model lacks is caught' dies_of_sigill Westmere "$GW_BUILD/tests/kernels_probe" leak
tap 'the same instruction runs where it exists' on Haswell "$GW_BUILD/tests/kernels_probe" leak
tap_done
