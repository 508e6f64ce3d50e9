#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The report on the CUDA kernels is up to date, and no kernel spills; where nvcc is.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

report=$GW_SOURCE/kernels/cuda/report

# A copy of the folder; headers outside of it are those of the tree.
copy=$gw_tmp/cuda
cp -r "$GW_SOURCE/kernels/cuda" "$copy"

"$report" --check >"$gw_tmp/says" 2>&1
case $? in
0) echo 'ok - REPORT.md is what kernels/cuda/report writes' ;;
77)
    tap_skip 'REPORT.md is what kernels/cuda/report writes' "$(cat "$gw_tmp/says")"
    tap_done
    ;;
*)
    echo 'not ok - REPORT.md is what kernels/cuda/report writes'
    sed 's/^/# /' "$gw_tmp/says" | head -n 30
    tap_failed=1
    ;;
esac

# fails_with WORDS: the check on the copy must end with 1, and say so.
fails_with() {
    local status=0
    "$report" --check --source "$copy" >"$gw_tmp/says" 2>&1 || status=$?
    [ "$status" = 1 ] && grep -q -- "$1" "$gw_tmp/says"
}

rm "$copy"/*_cuda.cu
cp "$GW_SOURCE/kernels/cuda/sum_cuda.cu" "$copy"
tap 'a report on kernels that are not there is caught' fails_with '^-.*gw_cuda_quant_encode'
printf '%s\n' 'extern "C" __global__ void gw_cuda_sum_add(float *x, unsigned n)' '{' '    float room[64];' \
    '    for (unsigned i = 0; i < 64; i++) room[i * n % 64] = x[i];' '    x[0] = room[n % 64];' '}' >"$copy/sum_cuda.cu"
tap 'a kernel with local memory is caught' fails_with 'local memory or spills: gw_cuda_sum_add'
sed -i 's/gw_cuda_sum_add/gw_cuda_sum_other/; s/room\[i \* n % 64\]/room[i]/; s/room\[n % 64\]/room[1]/' "$copy/sum_cuda.cu"
tap 'a kernel that the report does not know is caught' fails_with 'does not know what they move: gw_cuda_sum_other'
tap_done
