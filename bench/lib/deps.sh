# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing Debian packages; sourced by bench/demo and tests/run.

# What building needs, what the demo needs beside it, and what the tests need beside both.
# shellcheck disable=SC2034 # read by those who source this file
GW_BUILD_PACKAGES=(cmake gcc g++ make pkg-config libhwloc-dev libucx-dev openmpi-bin libopenmpi-dev libpmix-dev check)
# shellcheck disable=SC2034
GW_DEMO_PACKAGES=(python3 python3-torch libopenblas0-pthread python3-mpi4py python3-numpy python3-sklearn python3-matplotlib bible-kjv
    iproute2 procps util-linux)
# shellcheck disable=SC2034
GW_TEST_PACKAGES=(locales strace binutils python3-minimal qemu-user)

# gw_need_packages NAME ...: returns 0 when all of them are installed, after installing those that were not. Silent when
# there is nothing to do; says on stderr what it installs, or why it cannot. Needs root or sudo only when one is missing.
gw_need_packages() {
    local missing
    missing=$(gw__missing_packages "$@")
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "These Debian packages, or what they hold, are needed here: $missing" >&2
        return 1
    fi
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Neither root nor sudo is at hand; please install: $missing" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "Installing: $missing" >&2
    # shellcheck disable=SC2086 # one argument for each package
    gw__install_packages "${as_root[@]}" -- $missing
}

# The names among the arguments that dpkg does not have installed, separated by spaces.
gw__missing_packages() {
    local package have missing=''
    have=$'\n'$(dpkg-query -W -f '${binary:Package} ${db:Status-Abbrev}\n' 2>/dev/null |
        sed -n 's/^\([^ :]*\)[^ ]* ii *$/\1/p')$'\n'
    for package; do
        [[ $have == *$'\n'"$package"$'\n'* ]] || missing+=" $package"
    done
    echo "${missing# }"
}

# gw__install_packages [SUDO] -- NAME ...: an index that knows all of them is used as it is; otherwise it is fetched.
gw__install_packages() {
    local as_root=() log status=0
    while [ "$1" != -- ]; do
        as_root+=("$1")
        shift
    done
    shift
    log=$(mktemp)
    {
        if ! apt-get install --simulate --no-install-recommends "$@" >/dev/null 2>&1; then
            "${as_root[@]}" apt-get -q update
        fi
        gw__apt_install "$@" || { "${as_root[@]}" apt-get -q update && gw__apt_install "$@"; }
    } >"$log" 2>&1 </dev/null || status=1
    if [ "$status" -ne 0 ]; then
        tail -n 15 "$log" >&2
        echo "Installing packages failed: $*" >&2
    fi
    rm -f "$log"
    return "$status"
}

# Uses the caller's `as_root`. A lock held by another apt (a fresh machine updates itself at first boot) is waited for.
gw__apt_install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a \
        apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
}
