#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The shim in programs that do no MPI: it must not show. And what the built libraries need and export.
. "$(dirname "$0")/mpi_lib.sh"

library=$GW_BUILD/lib/libgradwire.so
needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' '; }
exported() { nm -D --defined-only "$1" | awk '{ print $3 }' | sed 's/@.*//' | sort; }

equal "the shim needs libc only" "libc.so.6 " "$(needed "$shim")"
equal "libgradwire needs libc, libm, pthread and hwloc only" "" \
    "$(needed "$library" | tr ' ' '\n' | grep -vE '^(lib(c|m|pthread|dl)\.so\.[0-9]+|libhwloc\.so\.[0-9]+|ld-linux.*)?$')"
lacks "the shim has no unresolved MPI symbol" "$(nm -D --undefined-only "$shim")" '(MPI_|mpi_)'
equal "the shim exports what it wraps, no more" \
    "$(printf '%s\n' MPI_Abort MPI_Allreduce MPI_Comm_disconnect MPI_Comm_free MPI_Finalize MPI_Init MPI_Init_thread)" \
    "$(exported "$shim")"
equal "libgradwire exports gw_ names only" "" "$(exported "$library" | grep -vE '^gw_[a-z0-9]')"
# The compiler's own start-up files put one entry into each of the two arrays.
equal "no constructor and no destructor in the shim" "8 8" \
    "$(readelf -d "$shim" | awk '/INIT_ARRAYSZ|FINI_ARRAYSZ/ { printf "%s%s", n++ ? " " : "", $3 }')"

# quiet NAME COMMAND ...: stdout, stderr and exit status with and without the shim.
quiet() {
    local name=$1 with without
    shift
    without=$("$@" 2>&1; echo "status $?")
    with=$(LD_PRELOAD=$shim "$@" 2>&1; echo "status $?")
    equal "$name: same output and status" "$without" "$with"
}
quiet /bin/true /bin/true
quiet bash bash -c 'echo hello; ls /; exit 3'
quiet mpirun mpirun --version
quiet python3 /usr/bin/python3 -c 'import threading, os; print(threading.active_count(), len(os.listdir("/proc/self/fd")))'
quiet "errno, signal handlers, threads and descriptors in main" "$bin/mpi_probe"
quiet "a program that execs" bash -c 'exec /bin/echo hello'
quiet "a launched program without MPI" mpirun -np 2 /bin/true

if command -v strace >/dev/null; then
    calls() { strace -f -o "$work/trace" "$@" >/dev/null 2>&1; grep -oE '^[0-9]+ +(clone3?|socket|rt_sigaction|vfork)\(' "$work/trace" | awk '{ print $2 }' | sort | uniq -c; }
    equal "mpirun: the same clones, sockets and signal actions" "$(calls mpirun --version)" \
        "$(calls env LD_PRELOAD="$shim" mpirun --version)"
else
    skip "mpirun: the same clones, sockets and signal actions" "no strace"
fi

# Start-up: the best of many, in turn, so that other load does not count.
check "start-up grows by less than 2 ms" /usr/bin/python3 - "$shim" <<'PY'
import os, subprocess, sys, time
def once(env):
    began = time.perf_counter()
    subprocess.run(["/bin/true"], env=env, check=True)
    return time.perf_counter() - began
plain, with_shim = dict(os.environ), dict(os.environ, LD_PRELOAD=sys.argv[1])
best = [1.0, 1.0]
for i in range(150):
    for k, env in enumerate((plain, with_shim)):
        best[k] = min(best[k], once(env))
print("plain %.3f ms, with the shim %.3f ms" % (best[0] * 1e3, best[1] * 1e3))
sys.exit(best[1] - best[0] > 0.002)
PY
finish
