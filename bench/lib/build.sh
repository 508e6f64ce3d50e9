# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What bench/demo and bench/convergence share: messages, the build, the text. Sourced; it wants the name of the script in
# `gw_script`, the folder of results in `out`, that of the sources in `source_dir` and that of the build in `build`.
# shellcheck disable=SC2154 # set by those who source this file

die() {
    echo "$gw_script: $1" >&2
    exit "${2:-1}"
}

say() { echo "==> $*"; }

whole_number() {
    [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || die "$1 wants a whole number above 0, not '$2'" 2
}

# Runs a command with its output in a log, which is shown only when the command fails.
quietly() {
    local log=$1
    shift
    if ! "$@" >"$log" 2>&1; then
        tail -n 25 "$log" >&2
        die "failed: $* (all of it in $log)"
    fi
}

build_library() {
    say "Building in $build"
    quietly "$out/configure.log" cmake -S "$source_dir" -B "$build"
    quietly "$out/build.log" cmake --build "$build" --parallel "$(nproc)"
    [ -x "$build/bin/gradwire" ] || die "the build made no $build/bin/gradwire"
}

check_python() {
    quietly "$out/python.log" /usr/bin/python3 -c 'import torch, mpi4py.MPI, numpy, sklearn, matplotlib'
}

# The text that the task lm learns; its name goes to `text`.
print_text() {
    text=$build/demo/bible.txt
    [ ! -s "$text" ] || return 0
    mkdir -p "$build/demo"
    bible -f gen1:1-rev22:21 >"$text.new" || die "the command bible failed"
    [ "$(wc -c <"$text.new")" -gt 4000000 ] || die "the command bible printed only part of the text"
    mv "$text.new" "$text"
}

# After `sudo bench/...` the build belongs to the person again, not to root.
hand_back() {
    if [ -n "${SUDO_UID:-}" ] && [ "$(id -u)" -eq 0 ]; then
        chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$build" || true
    fi
}
