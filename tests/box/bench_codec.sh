#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `gradwire bench codec` from outside: what it prints for every codec, tier and kind of data, and what it refuses.
# Speeds are looked at only as numbers above 0.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
gradwire=$GW_BUILD/bin/gradwire
python=$(command -v /usr/bin/python3 || command -v python3)
quick=(--size 256K --repeat 1)

# try STATUS ARGUMENTS...: runs it, keeps both outputs, compares the exit status.
try() {
    local expected=$1 status=0
    shift
    "$gradwire" bench codec "$@" >"$gw_tmp/out" 2>"$gw_tmp/err" || status=$?
    [ "$status" -eq "$expected" ] && return
    echo "exit status $status, not $expected; stdout and stderr:"
    cat "$gw_tmp/out" "$gw_tmp/err"
    return 1
}

# refused STATUS WORDS ARGUMENTS...: fails with one sentence on stderr that holds WORDS, and nothing on stdout.
refused() {
    local expected=$1 words=$2
    shift 2
    try "$expected" "$@" || return 1
    [ ! -s "$gw_tmp/out" ] || { echo "stdout:"; cat "$gw_tmp/out"; return 1; }
    if [ "$(wc -l <"$gw_tmp/err")" -ne 1 ] || ! grep -qF -- "$words" "$gw_tmp/err"; then
        echo "one sentence with '$words' was expected, not:"
        cat "$gw_tmp/err"
        return 1
    fi
}

# rows CHECK: every line of stdout is a JSON object r, and CHECK holds for the lists `rows` of codecs and `peers` of others.
rows() {
    "$python" - "$gw_tmp/out" "$1" <<'PY'
import json, sys
KEYS = ["codec", "dtype", "kernels", "bytes", "wire_bytes", "ratio", "encode_gbps", "encode_ef_gbps", "decode_gbps",
        "decode_add_gbps", "memcpy_gbps", "rel_l2", "max_err"]
every = [json.loads(line) for line in open(sys.argv[1])]
rows, peers = [r for r in every if not r["peer"]], [r for r in every if r["peer"]]
assert every, "no rows"
for r in every:
    assert list(r)[:len(KEYS)] == KEYS, list(r)
    assert r["cosine"] is None or -1 <= r["cosine"] <= 1, r
for r in peers:
    assert r["kernels"] == "peer" and r["encode_gbps"] > 0 < r["decode_gbps"] and r["decode_add_gbps"] is None, r
for r in rows:
    for key in ("encode_gbps", "decode_gbps", "decode_add_gbps", "memcpy_gbps", "encode_x", "decode_x", "decode_add_x"):
        assert r[key] > 0, (key, r)
    assert abs(r["ratio"] * r["wire_bytes"] / r["bytes"] - 1) < 1e-5, r
    assert (r["reduce7_gbps"] is None) == (r["reduce7_x"] is None), r
    assert (r["encode_ef_gbps"] is None) == (r["rel_l2_ef8"] is None) == (r["encode_ef_x"] is None), r
    assert r["elements"] * {"f32": 4, "f16": 2, "bf16": 2}[r["dtype"]] == r["bytes"], r
assert eval(sys.argv[2]), (sys.argv[2], rows)
PY
}

info() {
    "$gradwire" info --json | "$python" -c "import json,sys; d=json.load(sys.stdin); print($1)"
}

# npy FILE [DESCR [SHAPE [VALUES]]]: an .npy file; VALUES is Python text of the elements.
npy() {
    "$python" - "$@" <<'PY'
import math, random, struct, sys
path, descr, shape, values = (sys.argv[1:] + ["<f4", "", ""][len(sys.argv) - 2:])[:4]
random.seed(1)
values = eval(values or "[random.gauss(0, 1e-3) for _ in range(10000)]")
shape = shape or f"({len(values)},)"
head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
head += " " * (-(len(head) + 11) % 64) + "\n"
with open(path, "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
    for value in values:
        file.write(struct.pack({"<f2": "<e", "<f8": "<d"}.get(descr, "<f"), value))
PY
}

prints_table() {
    try 0 "${quick[@]}" --codec q4 --codec raw && [ ! -s "$gw_tmp/err" ] &&
        grep -qE '^codec +kernels +encode +encode ef' "$gw_tmp/out" && [ "$(grep -cE '^(q4|raw) ' "$gw_tmp/out")" -eq 2 ]
}

json_keeps_stdout_clean() {
    try 0 "${quick[@]}" --codec q4 --json && [ "$(wc -l <"$gw_tmp/out")" -eq 1 ] && grep -qE '^q4 ' "$gw_tmp/err"
}

tap 'a table on stdout, nothing on stderr' prints_table
tap 'with --json the table is on stderr' json_keeps_stdout_clean
families=$(info "[c['names'] for c in d['codecs']]")
lossless=$(info "[r['codec'] for r in d['matrix'] if not r['lossy']]")
matrix=$(info "[(r['codec'], r['fixed'], r['bits']['f32'], r['feedback'], r['reduce']) for r in d['matrix']]")
tap 'all codecs' try 0 "${quick[@]}" --codec all --data gradient --json
tap 'every family that info lists is there' rows "all({name.split(':')[0] for name in names.split()} & {r['codec'].split(':')[0] for r in rows} for names in $families)"
tap 'q1 to q8 and raw are there' rows "{'raw', *('q%d' % bits for bits in range(1, 9))} <= {r['codec'] for r in rows}"
tap 'lossless codecs have no error, lossy ones do' rows "all((r['rel_l2'] == 0) == (r['codec'].split(':')[0] in $lossless) for r in rows)"
tap "info's matrix: its codecs, their features and sizes" rows "{(r['codec'], r['encode_ef_gbps'] is not None, r['reduce7_gbps'] is not None) for r in rows} == {(c, ef, one) for c, _, _, ef, one in $matrix} and all(r['wire_bytes'] - 48 <= (bits + 0.01) / 8 * r['elements'] * (1.05 if r['codec'].startswith('topk') else 1) for r in rows for c, fixed, bits, _, _ in $matrix if c == r['codec'])"
tap 'cosine: 1 where nothing is lost, and the angle that the error allows' rows "all(r['cosine'] == 1 for r in rows if r['rel_l2'] == 0) and all(r['cosine'] >= (1 - r['rel_l2'] ** 2) ** 0.5 - 1e-5 for r in rows if r['rel_l2'] < 1) and 0.9 < [r['cosine'] for r in rows if r['codec'] == 'q4'][0] < 1"
tap 'all of them keep their bound' rows "all(r['within_bound'] and r['poisoned_buckets'] == 0 for r in rows)"
tap 'q4 sums and encodes in one pass' rows "all(r['reduce7_gbps'] > 0 for r in rows if r['codec'] == 'q4')"
tap 'more bits, less error and more bytes' rows "(lambda q: all(a['rel_l2'] > b['rel_l2'] and a['wire_bytes'] < b['wire_bytes'] for a, b in zip(q, q[1:])))(sorted((r for r in rows if r['codec'] in ['q%d' % bits for bits in range(1, 9)]), key=lambda r: r['codec']))"
tap 'feedback brings the mean of 8 steps nearer' rows "all(r['rel_l2_ef8'] < r['rel_l2'] for r in rows if r['rel_l2_ef8'] is not None)"
tap 'a codec that sums factors shows its sums too, which begin to find directions' rows "[(r['codec'], r['factors']['rows'], r['factors']['rel_l2_warm'] < r['factors']['rel_l2_first']) for r in rows if r['factors']] == [('lowrank', 256, True)]"
tap 'all is the default' try 0 "${quick[@]}" --json
tap 'all is the default: every family, of normal data' rows "all({name.split(':')[0] for name in names.split()} & {r['codec'].split(':')[0] for r in rows} for names in $families) and rows[0]['data'] == 'normal'"

tiers=$(info "' '.join(t['name'] for t in d['kernels']['tiers'] if t['available'])")
tap 'all tiers' try 0 "${quick[@]}" --codec q4 --codec q8:round=stochastic --kernels all --json
tap 'every tier that runs here, and equal bytes and errors on all' rows "[r['kernels'] for r in rows] == '$tiers'.split() * 2 and len({(r['codec'], r['frame_hash'], r['rel_l2'], r['max_err']) for r in rows}) == 2"
GRADWIRE_KERNELS=ref tap 'GRADWIRE_KERNELS' try 0 "${quick[@]}" --codec q4 --json
tap 'GRADWIRE_KERNELS is in effect' rows "rows[0]['kernels'] == 'ref'"
GRADWIRE_KERNELS=none tap '--kernels wins over it' try 0 "${quick[@]}" --codec q4 --kernels ref --json
tap '--kernels is in effect' rows "rows[0]['kernels'] == 'ref'"
for dtype in f32 f16 bf16; do
    tap "$dtype" try 0 "${quick[@]}" --codec raw --codec q4 --codec q8 --dtype $dtype --json
    tap "$dtype: elements and errors" rows "all(r['dtype'] == '$dtype' and r['bytes'] == 262144 and r['within_bound'] for r in rows) and rows[0]['rel_l2'] == 0 < rows[2]['rel_l2'] < rows[1]['rel_l2'] < 0.2"
done
tap 'one element' try 0 --size 4 --repeat 1 --json
tap 'one element: every codec keeps its bound' rows "all(r['elements'] == 1 and r['within_bound'] for r in rows)"
tap 'feedback switched off has no figure' try 0 "${quick[@]}" --codec q4:ef=off --json
tap 'feedback switched off has no figure: null' rows "rows[0]['encode_ef_gbps'] is None"

npy "$gw_tmp/g.npy"
npy "$gw_tmp/half.npy" '<f2'
tail -c 40000 "$gw_tmp/g.npy" >"$gw_tmp/g.raw"
tap 'an .npy file, all of it' try 0 --data "$gw_tmp/g.npy" --codec q4 --repeat 1 --json
tap 'an .npy file, all of it: 10000 elements' rows "rows[0]['bytes'] == 40000 and rows[0]['data'] == '$gw_tmp/g.npy'"
error=$("$python" -c "import json; print(json.loads(open('$gw_tmp/out').readline())['rel_l2'])")
tap 'the same elements as raw float32' try 0 --data "$gw_tmp/g.raw" --codec q4 --repeat 1 --json
tap 'the same elements as raw float32: the same error' rows "rows[0]['rel_l2'] == $error"
tap 'all codecs on a file' try 0 --data "$gw_tmp/g.npy" --repeat 1 --json
tap 'all codecs on a file: every family, inside its bound' rows "all({name.split(':')[0] for name in names.split()} & {r['codec'].split(':')[0] for r in rows} for names in $families) and all(r['within_bound'] and r['elements'] == 10000 for r in rows)"
tap 'float16 in the file' try 0 --data "$gw_tmp/half.npy" --codec q4 --repeat 1 --json
tap 'float16 in the file: nearly the same error' rows "rows[0]['bytes'] == 40000 and abs(rows[0]['rel_l2'] / $error - 1) < 0.01"
tap 'a file that is cycled' try 0 --data "$gw_tmp/g.npy" --size 1M --codec q4 --repeat 1
tap 'a file that is cycled says so' grep -q 'again from the start' "$gw_tmp/out"
tap 'a file that is cut' try 0 --data "$gw_tmp/g.npy" --size 400 --codec q4 --repeat 1
tap 'a file that is cut says so' grep -q 'the first ones' "$gw_tmp/out"
cp "$gw_tmp/g.raw" "$gw_tmp/normal"
in_tmp() {
    (cd "$gw_tmp" && try "$@")
}
tap 'a file may be called normal' in_tmp 0 --data ./normal --codec q4 --repeat 1
tap 'a file may be called normal: it is read' grep -q 'raw of 10000' "$gw_tmp/out"

# Recorded gradients: of the demo's small task, and by the lines that bench/README.md gives.
if /usr/bin/python3 -c 'import torch, numpy, mpi4py, sklearn' 2>/dev/null; then
    record() {
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONDONTWRITEBYTECODE=1 \
            "$GW_SOURCE/bench/record_gradients" --out "$gw_tmp/gradients" "$@"
    }
    recipe() {
        sed -n '/^```python/,/^```/p' "$GW_SOURCE/bench/README.md" | sed '1d;$d' >"$gw_tmp/recipe.py"
        cat >>"$gw_tmp/recipe.py" <<'PY'
import sys
model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Linear(40, 2)).bfloat16()
model(torch.ones(5, 30).bfloat16()).sum().backward()
record(model, sys.argv[1])
PY
        /usr/bin/python3 "$gw_tmp/recipe.py" "$gw_tmp/recipe.npy"
    }
    tap 'record_gradients' record --task digits --steps 1,3
    tap 'record_gradients: what it wrote is measured' try 0 --data "$gw_tmp/gradients/digits-step3.npy" --codec q4 --repeat 1 --json
    tap 'record_gradients: all elements, the error of real data' rows "rows[0]['elements'] == 64*512+512 + 512*512+512 + 512*10+10 and 0.02 < rows[0]['rel_l2'] < 0.5"
    tap 'record_gradients: the steps differ' bash -c '! cmp -s "$0/digits-step1.npy" "$0/digits-step3.npy"' "$gw_tmp/gradients"
    tap_fails 'record_gradients: no step 0' record --task digits --steps 0
    tap "the README's recipe runs" recipe
    tap "the README's recipe: what it wrote is measured" try 0 --data "$gw_tmp/recipe.npy" --codec q8 --repeat 1 --json
    tap "the README's recipe: all elements" rows "rows[0]['elements'] == 30*40+40 + 40*2+2"
else
    tap_skip 'record_gradients' "no torch, mpi4py or sklearn for /usr/bin/python3"
fi

# What is refused, each with its sentence.
head -c 39000 "$gw_tmp/g.npy" >"$gw_tmp/short.npy"
head -c 50 "$gw_tmp/g.npy" >"$gw_tmp/stump.npy"
head -c 1001 "$gw_tmp/g.raw" >"$gw_tmp/odd.raw"
npy "$gw_tmp/double.npy" '<f8'
npy "$gw_tmp/nan.npy" '<f4' '' '[1.0] * 17 + [math.nan] + [1.0] * 5'
npy "$gw_tmp/big.npy" '<f4' '' '[1.0, 1e6]'
cp "$gw_tmp/g.raw" "$gw_tmp/named.npy"
: >"$gw_tmp/empty.npy"
mkfifo "$gw_tmp/fifo"
data=("short.npy|is truncated: its shape needs 40000 bytes" "stump.npy|ends inside its header"
    "odd.raw|1001 bytes are no whole number" "double.npy|type '<f8'; '<f4' (float32) or '<f2' (float16) is needed"
    "nan.npy|element 17 is a NaN" "named.npy|does not begin as an .npy file does" "empty.npy|is empty" "fifo|is not a regular file"
    ".|is a directory" "none.npy|No such file or directory; allowed are normal, gradient")
for case in "${data[@]}"; do
    tap "--data ${case%%|*}: ${case#*|}" refused 2 "${case#*|}" --data "$gw_tmp/${case%%|*}"
done
tap '--data big.npy --dtype f16: more than f16 holds' refused 2 'element 1 is 1e+06, which f16 cannot hold' \
    --data "$gw_tmp/big.npy" --dtype f16
options=("--codec q9|--codec q9: no codec 'q9'; closest: 'q8'" "--codec q4:bucket=5|bucket=5: allowed is a whole number"
    "--codec q4,|--codec : codec name missing" "--codec q4,q9|--codec q9: no codec" "--codec q4,bucket=64|no codec 'q4,bucket=64'"
    "--size 0|--size 0: must be a number of bytes above 0" "--size 64X|--size 64X: must be" "--size -1|--size -1: must be"
    "--size 6|--size 6: must be a multiple of the 4 bytes" "--size 99999999999G|must be a number"
    "--dtype f64|--dtype f64: must be f32, f16 or bf16" "--dtype int|--dtype int: must be"
    "--kernels sse|kernels tier 'sse' does not exist; allowed here: best, ref" "--repeat 0|--repeat 0: must be a whole number"
    "--repeat many|--repeat many: must be" "--peers maybe|--peers maybe: must be on or off" "64M|64M: no argument is expected")
for case in "${options[@]}"; do
    # shellcheck disable=SC2086 # an option and its value
    tap "${case%%|*} is wrong usage" refused 2 "${case#*|}" ${case%%|*}
done
tap 'more than the memory is refused before it is used' refused 1 'a smaller --size is needed' --size 1000G --codec q4
tap 'an unknown option is wrong usage' try 2 --fast
unknown_benchmark() {
    local status=0
    "$gradwire" bench code 2>"$gw_tmp/err" || status=$?
    [ "$status" -eq 2 ] && grep -q 'no such benchmark: code' "$gw_tmp/err"
}
tap 'an unknown benchmark is wrong usage' unknown_benchmark
GRADWIRE_SEED=x tap 'a bad setting in the environment fails with its name' refused 1 GRADWIRE_SEED --codec q4
full_disk() {
    local status=0
    "$gradwire" bench codec "${quick[@]}" --codec raw --json >/dev/full 2>"$gw_tmp/err" || status=$?
    [ "$status" -eq 1 ] && grep -q 'standard output cannot be written' "$gw_tmp/err"
}
tap 'a full disk fails' full_disk

# Compressors of other libraries, those that are here.
found=$("$python" - <<'PY'
import ctypes
def here(name):
    try:
        return bool(ctypes.CDLL(name))
    except OSError:
        return False
count = {"liblz4.so.1": 1, "libzstd.so.1": 2, "libblosc.so.1": 2, "libzfp.so.1": 2}
print(sum(n for name, n in count.items() if here(name)))
PY
)
if [ "$found" -gt 0 ]; then
    tap 'peers beside all codecs' try 0 "${quick[@]}" --data gradient --json
    tap 'peers beside all codecs: those that are here, the lossless ones exact' rows "len(peers) == $found and all(r['within_bound'] and (r['rel_l2'] == 0) == (not r['codec'].startswith('zfp')) for r in peers) and rows"
    tap 'peers on bf16' try 0 "${quick[@]}" --dtype bf16 --codec raw --peers on --json
    tap 'peers on bf16: exact' rows "peers and len(rows) == 1 and all(r['within_bound'] and r['rel_l2'] == 0 for r in peers)"
    tap 'peers of one element' try 0 --size 4 --repeat 1 --codec raw --peers on --json
    tap 'peers of one element: all of them' rows "len(peers) == $found and all(r['within_bound'] for r in peers)"
else
    tap_skip 'peers beside all codecs' 'no lz4, zstd, blosc or zfp on this machine'
fi
tap 'a list of codecs' try 0 "${quick[@]}" --codec q4:bucket=64,ef=off,raw --codec topk+q8:ratio=0.02,q8 --json
tap 'a list of codecs: in its order, a comma before key=value belongs to the codec' rows "[r['codec'] for r in rows] == ['q4:bucket=64,ef=off', 'raw', 'topk+q8:ratio=0.02', 'q8']"
absent() {
    "$gradwire" bench codec "${quick[@]}" --codec raw --peers on >"$gw_tmp/out" || return 1
    "$python" - "$gw_tmp/out" <<'PY'
import ctypes, sys
def here(name):
    try:
        return bool(ctypes.CDLL(f"lib{name}.so.1"))
    except OSError:
        return False
text = open(sys.argv[1]).read()
missing = [name for name in ("lz4", "zstd", "blosc", "zfp") if not here(name)]
wanted = "# not on this machine: " + ", ".join(missing) + "\n"
assert (wanted in text) if missing else "not on this machine" not in text, (wanted, text)
PY
}
tap 'peers that are not here are named' absent
tap 'no peers beside one codec' try 0 "${quick[@]}" --codec q4 --json
tap 'no peers beside one codec: one row' rows "len(rows) == 1 and not peers"
tap '--peers off' try 0 "${quick[@]}" --peers off --json
tap '--peers off: none' rows "rows and not peers"
fake() {
    LD_LIBRARY_PATH=$GW_BUILD/tests/fake BENCH_FAKE_LZ4=$1 try "${@:2}"
}
peer_caught() {
    fake "$1" 1 "${quick[@]}" --codec raw --peers on --json && grep -qF "$2" "$gw_tmp/err"
}
tap 'a peer by its name at run time' fake none 0 "${quick[@]}" --codec raw --peers on --json
tap 'a peer by its name at run time: its row' rows "[(r['wire_bytes'], r['peer'], r['within_bound']) for r in peers if r['codec'] == 'lz4'] == [(262144, 'lz4 0.fake', True)]"
tap 'a peer that changes a byte is caught' peer_caught byte 'peer lz4 does not give back what it was given'
tap 'a peer that changes a byte is caught: its row says so' rows "[r['codec'] for r in peers if not r['within_bound']] == ['lz4']"
tap 'a peer that gives back too little is caught' peer_caught length 'peer lz4: frame payload not valid'
tap 'a peer that does not compress is caught' peer_caught refuse 'peer lz4: '
tap 'the program needs none of them' bash -c "! ldd '$gradwire' | grep -E 'lz4|zstd|blosc|zfp'"

# A codec of somebody else's is listed at once, and one that lies is found out.
extra() {
    LD_PRELOAD=$GW_BUILD/tests/libbench_extra_codec.so BENCH_EXTRA=$1 try "${@:2}"
}
caught() {
    local lie=$1 words=$2
    shift 2
    extra "$lie" 1 "${quick[@]}" --json "$@" && grep -qF "$words" "$gw_tmp/err"
}
tap 'a registered codec is among all' extra good 0 "${quick[@]}" --json --kernels all
tap 'a registered codec is among all: its row' rows "[r['wire_bytes'] for r in rows if r['codec'] == 'upper16'] == [131072 + 48] * $(wc -w <<<"$tiers") and all(r['within_bound'] for r in rows)"
extra_matrix() {
    LD_PRELOAD=$GW_BUILD/tests/libbench_extra_codec.so BENCH_EXTRA=good info "[r for r in d['matrix'] if r['codec'] == 'upper16'][0]['bits']" >"$gw_tmp/bits" &&
        grep -qx "{'f32': 16, 'f16': None, 'bf16': None}" "$gw_tmp/bits" || { cat "$gw_tmp/bits"; return 1; }
}
tap "a registered codec is in info's matrix, with the type that it does not take" extra_matrix
tap 'one that does not take a type is left out of all' extra good 0 "${quick[@]}" --dtype bf16
tap 'it is said that it is left out' grep -q 'upper16 does not take bf16 and is left out' "$gw_tmp/err"
tap 'asked for by name that is a failure' caught good 'combination not supported' --codec upper16 --dtype bf16
tap 'a bound that is not kept is caught' caught bound 'outside of the codec'
tap 'a bound that is not kept is caught: the row says so, the others are shown' rows "[r['codec'] for r in rows if not r['within_bound']] == ['upper16'] and len(rows) > 2"
tap 'an element that is not written is caught' caught unwritten 'outside of the codec' --codec upper16
tap 'a wrong decode-add is caught' caught add 'outside of the codec' --codec upper16
tap 'finite data that count as poisoned are caught' caught poison 'outside of the codec' --codec upper16
tap 'a codec that cannot decode its own frame is caught' caught refuse 'frame payload not valid' --codec upper16
tap 'a reduce that is not the sum of its steps is caught' caught reduce 'writes other bytes than its steps' --codec upper16
tap 'a family whose names are no codecs is caught' caught nameless "family upper lists 'upper16 and its like'"
if [ "$(wc -w <<<"$tiers")" -gt 1 ]; then
    tap 'tiers that write different bytes are caught' caught tier 'write different bytes' --codec upper16 --kernels all
else
    tap_skip 'tiers that write different bytes are caught' 'one kernel tier on this machine'
fi
tap_done
