# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the script tests share: TAP lines, a temporary directory. Sourced.
set -u
: "${GW_SOURCE:=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}"
: "${GW_BUILD:=$GW_SOURCE/build}"

# Check programs that a script runs must not write where the script's own lines belong.
unset CK_TAP_LOG_FILE_NAME

# tap NAME COMMAND ...: one test; passes when the command succeeds. Its output is shown when it fails.
tap() {
    local name=$1 out
    shift
    if out=$("$@" 2>&1); then
        echo "ok - $name"
    else
        echo "not ok - $name"
        printf '%s\n' "$out" | head -n 30 | sed 's/^/# /'
        tap_failed=1
    fi
}

# tap_fails NAME COMMAND ...: the negative case of a check; passes when the command fails.
tap_fails() {
    local name=$1
    shift
    if "$@" >/dev/null 2>&1; then
        echo "not ok - $name"
        tap_failed=1
    else
        echo "ok - $name"
    fi
}

tap_skip() {
    echo "ok - $1 # SKIP $2"
}

tap_failed=0
gw_tmp=$(mktemp -d "${TMPDIR:-/tmp}/gwtest.XXXXXX")
trap 'rm -rf "$gw_tmp"' EXIT

tap_done() {
    exit "$tap_failed"
}
