#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Not part of tests/run: every cell of the fault matrix many times over, and the full wait for a late peer.
#   GW_BUILD=build/asan tests/box/faults_soak.sh [REPETITIONS] [CELLS AT ONCE]
. "$(dirname "$0")/../lib.sh"
repetitions=${1:-50}
at_once=${2:-6}
export GW_FAULTS_REPEAT=$repetitions GW_BUILD
program=$GW_BUILD/tests/test_faults

cell() {
    GW_FAULTS_CELL=$1 "$program" >"$gw_tmp/${1//[ ,]/_}" 2>&1 && state=ok || state="not ok"
    echo "$state - $1, $GW_FAULTS_REPEAT times"
    grep '^# ' "$gw_tmp/${1//[ ,]/_}"
    [ "$state" = ok ] || sed 's/^/# /' "$gw_tmp/${1//[ ,]/_}"
}
export -f cell
export program gw_tmp

GW_FAULTS_REPEAT=0 "$program" | grep ' ranks' | sort >"$gw_tmp/cells"
xargs -d '\n' -P "$at_once" -I{} bash -c 'cell "{}"' <"$gw_tmp/cells" | tee "$gw_tmp/all"
GW_LATE_SECONDS=90 GW_LATE_TIMEOUT=5 tap "a peer that is 90 s late earns one warning" "$GW_BUILD/tests/test_faults_late"
grep -q '^not ok' "$gw_tmp/all" && tap_failed=1
tap_done
