# SPDX-License-Identifier: Apache-2.0
# What the MPI test scripts share. Sourced; needs GW_BUILD and GW_SOURCE.
set -u
: "${GW_BUILD:?}" "${GW_SOURCE:?}"
bin=$GW_BUILD/tests
shim=$GW_BUILD/lib/libgradwire-openmpi.so
gradwire=$GW_BUILD/bin/gradwire
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# Debian's Open MPI as root, on fewer processors than ranks, in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl=self,vader,tcp
for name in $(compgen -v | grep '^GRADWIRE_'); do unset "$name"; done

ok() { echo "ok - $1"; }
not_ok() {
    echo "not ok - $1"
    failures=$((failures + 1))
    [ $# -gt 1 ] && sed 's/^/# /' <<<"$2" | head -40
    return 0
}
skip() { echo "ok - $1 # SKIP $2"; }

# A preloaded library with a sanitizer in it stops every program that was built without.
if nm -D "$shim" | grep -qE '__(asan|tsan|ubsan)_'; then
    skip "$(basename "$0" .sh)" "sanitizer build"
    exit 0
fi

# check NAME COMMAND ...: a line for whether COMMAND succeeds; its output is shown when not.
check() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then ok "$name"; else not_ok "$name" "$output"; fi
}

# equal NAME EXPECTED ACTUAL
equal() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "$(diff <(echo "$2") <(echo "$3"))"; fi
}

# contains NAME TEXT PATTERN: whether an extended regular expression matches in TEXT.
contains() {
    if grep -qE -- "$3" <<<"$2"; then ok "$1"; else not_ok "$1" "no \"$3\" in: $2"; fi
}
lacks() {
    if grep -qE -- "$3" <<<"$2"; then not_ok "$1" "\"$3\" in: $2"; else ok "$1"; fi
}

# mpi ARGUMENTS ...: mpirun that cannot hang.
mpi() { timeout -k 5 "${MPI_TIMEOUT:-60}" mpirun "$@"; }
# shimmed: arguments of one application context that preload the shim; more variables as NAME=VALUE. Whoever sets GW_TRANSPORT runs a
# whole script over that transport.
shimmed() {
    local v
    printf -- '-x\nLD_PRELOAD=%s\n' "$shim"
    [[ -n ${GW_TRANSPORT:-} && " $*" != *" GRADWIRE_TRANSPORT="* ]] && printf -- '-x\nGRADWIRE_TRANSPORT=%s\n' "$GW_TRANSPORT"
    for v in "$@"; do printf -- '-x\n%s\n' "$v"; done
}

# stats FILE EXPRESSION: a Python expression over the figures `s` of a stats file must be true.
stats() {
    python3 - "$1" "$2" <<'PY'
import json, sys
s = json.load(open(sys.argv[1]))
r = s["reasons"]
if not eval(sys.argv[2]):
    print(sys.argv[2], "is false for", json.dumps(s))
    sys.exit(1)
PY
}
consistent='s["calls"] == s["compressed"] + s["passed"] and sum(r.values()) == s["passed"]'

finish() { [ "$failures" -eq 0 ]; exit; }
