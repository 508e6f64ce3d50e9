#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The transport mpi keeps the contract of transports: over shared memory with and without single copy, and over TCP.
. "$(dirname "$0")/mpi_lib.sh"

# contract NAME NP ARGUMENTS ...: a program that prints its own TAP lines.
contract() {
    local name=$1 np=$2 out rc
    shift 2
    out=$(mpi "$@" -np "$np" "$bin/mpi_transport" 2>&1)
    rc=$?
    sed -E "s/^((not )?ok - )/\1$name: /" <<<"$out"
    failures=$((failures + $(grep -c '^not ok' <<<"$out")))
    if [ $rc -ne 0 ] || ! grep -q '^ok' <<<"$out"; then not_ok "$name ends well" "exit status $rc"; fi
}
contract "2 ranks" 2
contract "3 ranks" 3
contract "2 ranks, tcp" 2 --mca btl self,tcp
contract "3 ranks, tcp" 3 --mca btl self,tcp
# cma where the kernel lets processes read each other.
contract "2 ranks, single copy" 2 --mca btl_vader_single_copy_mechanism cma
# The smallest of everything: each fragment is a rendezvous.
contract "2 ranks, no eager messages" 2 --mca btl self,tcp --mca btl_tcp_eager_limit 128 --mca btl_tcp_rndv_eager_limit 128
finish
