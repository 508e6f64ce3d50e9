#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `gradwire topo` from outside: both formats, files, and what it refuses.
set -u
gradwire=${GW_BUILD:?}/bin/gradwire
machines=${GW_SOURCE:?}/tests/topologies
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

# report NAME CONDITION...: one line of TAP
report()
{
    local name=$1
    shift
    if "$@"; then
        echo "ok - topo: $name"
    else
        echo "not ok - topo: $name"
        sed 's/^/# /' "$dir/out" "$dir/err"
        failed=1
    fi
}

# try STATUS ARGUMENTS...: runs it and compares the exit status
try()
{
    local expected=$1 rc=0
    shift
    "$gradwire" topo "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    [ "$rc" -eq "$expected" ]
}

says()
{
    grep -q -- "$2" "$dir/$1"
}

silent()
{
    [ ! -s "$dir/$1" ]
}

report "text of this machine" try 0
report "text names the machine, its memory and this process" eval 'says out "^this machine$" && says out "^NUMA nodes$" && says out "^This process$"'
report "nothing on stderr" silent err

cpus=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
python=$(command -v /usr/bin/python3 || command -v python3)
if [ -n "$python" ]; then
    check()
    {
        "$python" -c "import json,sys; d=json.load(open('$dir/out')); assert $1, d"
    }
    report "JSON of this machine" try 0 --of json
    report "JSON is one line" eval '[ "$(wc -l <"$dir/out")" -eq 1 ]'
    report "JSON agrees with nproc" check "d['cpus_allowed'] == $cpus and d['process']['cpus_allowed'] == $cpus"
    report "JSON has the loopback" check "any(n['loopback'] for n in d['devices']) and any('loopback' in i['flags'] for i in d['process']['interfaces'])"
    report "JSON of a file" try 0 --of json --input "$machines/gpu-far.xml"
    report "JSON of a file: the GPU is far and has no process" check "d['process'] is None and [(g['name'], g['distance']) for g in d['devices'] if g['kind'] == 'gpu'] == [('cuda0', 2)] and d['numa'][1]['near_gpus'] == ['cuda0']"
    sed 's/name="eth0"/name="\&quot;\\\&lt;e"/' "$machines/two-sockets.xml" >"$dir/odd \"name\".xml"
    report "JSON with odd names" try 0 --of json --input "$dir/odd \"name\".xml"
    report "JSON keeps odd names" check "d['devices'][0]['name'] == chr(34) + chr(92) + '<e' and d['source'].endswith('odd \"name\".xml')"
else
    echo "ok - topo: JSON # SKIP no python3"
fi

report "--output writes the file" try 0 --input "$machines/two-sockets.xml" --output "$dir/page"
report "--output leaves stdout alone" silent out
report "--output has the page" grep -q "NICs near it: eth0" "$dir/page"
report "an unknown format is wrong usage" try 2 --of svg
report "an unknown format is told which exist" says err 'no format "svg"; there are: text json'
report "an unknown option is wrong usage" try 2 --what
report "an argument too many is wrong usage" try 2 file.xml
report "a missing file fails" try 1 --input "$dir/none.xml"
report "a missing file is named" says err "none.xml: No such file"
report "a truncated file fails" try 1 --input "$machines/truncated.xml"
report "a truncated file is named with the line" says err "truncated.xml: line 9:"
report "a refused file leaves stdout empty" silent out
report "a full disk fails" try 1 --output /dev/full
GRADWIRE_INTERFACES=gw-none report "a filter that leaves nothing fails" try 1
report "a filter that leaves nothing lists the interfaces" says err "leaves no interface; there are: .*lo ("
GRADWIRE_INTERFACES=1.2.3.4/99 report "a bad filter fails" try 1
report "a bad filter has its reason" says err "more bits after / than the address has"
exit $failed
