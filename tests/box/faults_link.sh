#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A link of the network lab that goes down in the middle of a call and comes back, and a route that leads nowhere.
. "$(dirname "$0")/../lib.sh"
netlab=$GW_SOURCE/bench/netlab/netlab
export GW_LAB=gwfl$$ GW_BUILD GRADWIRE_UCX_NET_DEVICES=lab0

"$netlab" up --nodes 2 --rate 1000 --name "$GW_LAB" >"$gw_tmp/up" 2>&1
status=$?
if [ $status -eq 77 ]; then
    tap_skip "link down and blackhole" "$(tail -n 1 "$gw_tmp/up")"
    tap_done
fi
trap '"$netlab" down --name "$GW_LAB" >/dev/null 2>&1; rm -rf "$gw_tmp"' EXIT
# An interface that has just come up carries nothing for a moment.
reachable() {
    for _ in $(seq 50); do
        "$netlab" exec --name "$GW_LAB" 0 -- bash -c 'exec 3<>/dev/udp/10.77.0.2/9' &&
            "$netlab" exec --name "$GW_LAB" 1 -- grep -q up /sys/class/net/lab0/operstate && return
        sleep 0.2
    done
    return 1
}
tap "the lab stands" test $status -eq 0
tap "its link is up" reachable
tap "a link that goes down, a route that leads nowhere: named in time, and back without damage" \
    "$GW_BUILD/tests/test_faults_link"
GW_LAB=gwnosuch tap_fails "the check notices that there is no lab" "$GW_BUILD/tests/test_faults_link"
tap_done
