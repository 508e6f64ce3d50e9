#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# src/device/driver_api.h against the toolkit's cuda.h: every number and every signature, by the compiler.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

for include in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include; do
    [ -f "$include/cuda.h" ] && break
done
if ! [ -f "$include/cuda.h" ]; then
    tap_skip driver_abi "no CUDA toolkit here"
    exit 0
fi
gw_tmp=$(mktemp -d)
trap 'rm -rf "$gw_tmp"' EXIT

# compiles HEADER: a function that is declared twice must have one type, a constant one value.
compiles() {
    cat >"$gw_tmp/abi.c" <<END
#include <cuda.h>
#define GW_DRIVER_TYPES_ELSEWHERE
#include "$1"
#define NUMBER(name, number, ...) _Static_assert((int)name == (number), #name);
GW_CU_RESULTS(NUMBER)
GW_CU_CONSTANTS(NUMBER)
#undef cuEventElapsedTime
#define SAME(name, since, params) CUresult name params;
GW_CU_FUNCTIONS(SAME)
END
    "${CC:-cc}" -std=gnu11 -fsyntax-only -Wno-comment -D__CUDA_API_VERSION_INTERNAL -I"$include" "$gw_tmp/abi.c"
}

header=$GW_SOURCE/src/device/driver_api.h
broken() {
    sed "$1" "$header" >"$gw_tmp/broken.h"
    cmp -s "$header" "$gw_tmp/broken.h" || compiles "$gw_tmp/broken.h"
}

tap "driver_api.h says what cuda.h says" compiles "$header"
tap_fails "another number is seen" broken 's/CUDA_ERROR_NOT_PERMITTED, 800/CUDA_ERROR_NOT_PERMITTED, 801/'
tap_fails "another signature is seen" broken 's/cuMemAlloc_v2, 3020, (CUdeviceptr \* at, size_t bytes)/cuMemAlloc_v2, 3020, (CUdeviceptr * at, unsigned bytes)/'
tap_fails "a function that gives way to another is seen" broken 's/cuStreamWaitValue32_v2/cuStreamWaitEvent/'
exit "$tap_failed"
