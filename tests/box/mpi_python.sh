#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Python opens libmpi RTLD_LOCAL; its calls are seen all the same. Uses Debian's /usr/bin/python3, which has mpi4py.
. "$(dirname "$0")/mpi_lib.sh"

if ! /usr/bin/python3 -c 'import mpi4py, numpy' 2>/dev/null; then
    skip "mpi4py" "no mpi4py or numpy for /usr/bin/python3"
    finish
fi
cat >"$work/prog.py" <<'PY'
from mpi4py import MPI
import numpy as np
comm = MPI.COMM_WORLD
x = (np.arange(1 << 17, dtype=np.float32) % 1000) * 0.001 + comm.rank
y = np.zeros_like(x)
comm.Allreduce(x, y, op=MPI.SUM)
z = x.copy()
comm.Allreduce(MPI.IN_PLACE, z)
total = comm.allreduce(comm.rank + 1)
exact = sum((np.arange(1 << 17) % 1000) * 0.001 + r for r in range(comm.size))
largest = comm.allreduce(max(np.abs(y - exact).max(), np.abs(z - exact).max()), op=MPI.MAX)
same = len(set(comm.allgather(y.tobytes()))) == 1
if comm.rank == 0:
    print(total, same, "exact" if largest < 1e-5 else "lossy" if largest < 0.5 else "wrong", flush=True)
PY
equal "plain" "3 True exact" "$(mpi -np 2 /usr/bin/python3 "$work/prog.py" 2>&1)"
mapfile -t with < <(shimmed GRADWIRE_STATS="$work/stats.%r.json")
equal "Allreduce in place and not is compressed, allreduce of objects is exact" "3 True lossy" \
    "$(mpi "${with[@]}" -np 2 /usr/bin/python3 "$work/prog.py" 2>&1)"
check "two compressed calls" stats "$work/stats.1.json" "$consistent and s['compressed'] == 2"

cat >"$work/late.py" <<'PY'
import sys, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
MPI.Init_thread()
print(MPI.COMM_WORLD.allreduce(1), flush=True)
MPI.Finalize()
PY
equal "Init_thread and Finalize called late" "$(printf '2\n2')" "$(mpi "${with[@]}" -np 2 /usr/bin/python3 "$work/late.py" 2>&1)"

# The loader knows the shim by a relative name, and the program has left that directory when it starts MPI.
out=$(cd "$GW_BUILD/lib" && LD_PRELOAD=./$(basename "$shim") GRADWIRE_LOG=info timeout 60 \
    /usr/bin/python3 -c 'import os; os.chdir("/"); from mpi4py import MPI; MPI.COMM_WORLD.Barrier()' 2>&1)
contains "a relative name in LD_PRELOAD" "$out" 'active on Open MPI'
finish
