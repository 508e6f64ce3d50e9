#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Strangers at UCX's listening ports while communicators are made and used: the job runs to its end with right sums.
# The attacks come from a process on the ranks' own host, and from a third host of the network lab.
. "$(dirname "$0")/../lib.sh"

job=$GW_BUILD/tests/strangers_job
here=$GW_SOURCE/tests/box
netlab=$GW_SOURCE/bench/netlab/netlab
lab=gws$((BASHPID % 100000))
trap '"$netlab" down --name "$lab" 2>/dev/null; rm -rf "$gw_tmp"' EXIT
ulimit -c 0
export GRADWIRE_LOG=warn GRADWIRE_TIMEOUT=10

if nm -D "$GW_BUILD/lib/libgradwire.so" | grep -qE '__(asan|tsan|ubsan)_'; then
    tap_skip "strangers" "sanitizer build"
    exit 0
fi

# attacked WHERE ROUNDS PAUSE_MS SECONDS KIND ...: two ranks on one host, or on two of the lab, with an attacker on each
# rank from WHERE: "here" or "third". Leaves rank outputs and attack counts; succeeds when the job did.
attacked() {
    local where=$1 rounds=$2 pause=$3 seconds=$4 rank status=0 dir
    shift 4
    dir=$(mktemp -d "$gw_tmp/job.XXXX")
    local ranks=() attackers=() enter address
    for rank in 0 1; do
        enter=()
        [ "$where" = third ] && enter=("$netlab" exec --name "$lab" "$rank" --)
        # The launcher is replaced by the job in the lab as well, so that its number is the job's.
        "${enter[@]}" "$job" "$rank" 2 "$dir" "$rounds" "$pause" "$seconds" >"$gw_tmp/rank$rank" 2>&1 &
        ranks+=($!)
    done
    for rank in 0 1; do
        enter=() address=-
        [ "$where" = third ] && enter=("$netlab" exec --name "$lab" 2 --) address=10.77.0.$((rank + 1))
        [ $# -eq 0 ] || "${enter[@]}" python3 "$here/progs/strangers.py" "${ranks[rank]}" "$address" "$@" \
            >"$gw_tmp/attack$rank" 2>&1 &
        attackers+=($!)
    done
    for rank in 0 1; do
        wait "${ranks[rank]}" || status=1
        grep -q "^rank $rank done" "$gw_tmp/rank$rank" || status=1
    done
    wait "${attackers[@]}"
    cat "$gw_tmp"/rank? "$gw_tmp"/attack?
    return $status
}

# Connections of a kind in the last attack: tried, or (2) let in.
tried() { awk -v k="$1" -v c="${2:-1}" '$1 == k { n += $(c + 1) } END { print n + 0 }' "$gw_tmp"/attack?; }

survives() {
    local kind
    attacked "$@" || return 1
    shift 4
    for kind in "$@"; do
        [ "$(tried "$kind")" -gt 0 ] || { echo "no attack of kind $kind took place"; return 1; }
    done
}

# Silent strangers are let in between two steps of the set-up only from the ranks' own host.
some_let_in() { [ "$(tried silent 2)" -gt 0 ]; }
nobody_let_in() {
    local kind
    for kind in silent http random storm junk split half peer; do
        [ "$(tried "$kind" 2)" -eq 0 ] || { echo "$kind: $(tried "$kind" 2) let in"; return 1; }
    done
}

harmless=(silent http random storm)
hostile=(junk split half)

on_one_host() {
    export UCX_TLS=tcp,self
    tap "one host, TCP: silence, HTTP, random bytes and storms" survives here 4 150 1 "${harmless[@]}"
    tap "one host, TCP: some of them were let in" some_let_in
    tap "one host, TCP: UCX's magic number and junk, whole and in pieces" survives here 4 150 1 "${hostile[@]}"
    # What makes it dangerous, and the limit that the README states.
    tap_fails "one host, TCP: without the guard the junk ends the job" env GRADWIRE_GUARD=off \
        bash -c "$(declare -f attacked); $(declare -p job here netlab lab gw_tmp); attacked here 4 150 1 junk"
    unset UCX_TLS
    tap "one host: no port to attack" attacked here 3 50 0.5 "${harmless[@]}" "${hostile[@]}" peer
    tap "one host: nobody was let in" nobody_let_in
}

from_a_third_host() {
    local out
    out=$("$netlab" up --name "$lab" --nodes 3 2>&1)
    case $? in
    0) ;;
    77) tap_skip "attacks from a third host" "$out" && return ;;
    *) tap "a lab can be made" echo "$out" && return ;;
    esac
    tap "two hosts: all attacks from a third" survives third 4 150 1 "${harmless[@]}" "${hostile[@]}" peer
    tap "two hosts: nobody was let in" nobody_let_in
    tap_fails "two hosts: without the guard the junk ends the job" env GRADWIRE_GUARD=off \
        bash -c "$(declare -f attacked); $(declare -p job here netlab lab gw_tmp); attacked third 4 150 1 junk"
}

on_one_host
from_a_third_host
tap_done
