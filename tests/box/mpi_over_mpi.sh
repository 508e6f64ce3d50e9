#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What holds over UCX holds over the transport mpi: semantics, dying ranks, and what a mixed program sees.
export GW_TRANSPORT=mpi
failed=0
for name in mpi_semantics mpi_death mpi_mixed; do
    "$(dirname "$0")/$name.sh" | sed -E "s/^((not )?ok - )/\1over mpi: /"
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
done
exit $failed
