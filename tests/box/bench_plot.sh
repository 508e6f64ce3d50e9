#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/plot from outside: it draws recorded rows, no two names lie on each other, and bad input gets one sentence.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
plot=$GW_SOURCE/bench/plot
rows=$GW_SOURCE/tests/box/bench_plot.json
export PYTHONDONTWRITEBYTECODE=1

if ! /usr/bin/python3 -c 'import matplotlib' 2>/dev/null; then
    tap_skip 'bench/plot' 'no matplotlib for /usr/bin/python3'
    tap_done
fi

draws() {
    "$plot" "$@" --out "$gw_tmp/out/picture" >"$gw_tmp/said" && [ "$(cat "$gw_tmp/said")" = "$gw_tmp/out/picture.png
$gw_tmp/out/picture.svg" ] && [ "$(head -c 4 "$gw_tmp/out/picture.png" | tail -c 3)" = PNG ] && grep -q '</svg>' "$gw_tmp/out/picture.svg"
}

names_are_there() {
    local name
    /usr/bin/python3 -c 'import json, sys; print(*{json.loads(line)["codec"] for line in open(sys.argv[1])}, sep="\n")' "$rows" >"$gw_tmp/names"
    [ "$(wc -l <"$gw_tmp/names")" -gt 30 ] || return 1
    while read -r name; do
        grep -qF -- "<g id=\"panel 1 $name\">" "$gw_tmp/out/picture.svg" || { echo "no $name"; return 1; }
    done <"$gw_tmp/names"
}

# names_apart SPOIL ERROR: draws in this process and looks at the boxes of all texts; SPOIL moves one onto another.
names_apart() {
    /usr/bin/python3 - "$plot" "$rows" "$@" <<'PY'
import argparse, importlib.machinery, importlib.util, itertools, os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
from plot_labels import overlap
loader = importlib.machinery.SourceFileLoader("plot", sys.argv[1])
plot = importlib.util.module_from_spec(importlib.util.spec_from_loader("plot", loader))
loader.exec_module(plot)
options = argparse.Namespace(speed="encode", error=sys.argv[4], kernels=None)
rows = [r for r in plot.fastest(plot.read_rows([sys.argv[2]]), "encode_gbps", None) if r[plot.ERRORS[options.error][0]] is not None]
figure = plot.draw(plot.panels_of(rows), options)
axes = figure.axes[0]
texts = axes.texts
assert len(texts) == sum(r["data"] == "gradient" for r in rows) > 20, len(texts)
if sys.argv[3] == "spoil":
    names = {text.get_text(): text for text in texts}
    names["q8"].set_position(names["q8r"].get_position())
boxes = [(text.get_text(), text.get_window_extent(figure.canvas.get_renderer())) for text in texts]
dots = [tuple(p) for points in axes.collections for p in axes.transData.transform(points.get_offsets())]
frame = figure.bbox
for (a, box), (b, other) in itertools.combinations(boxes, 2):
    assert overlap(box.extents, other.extents) == 0, f"{a} lies on {b}"
for name, box in boxes:
    assert not any(box.x0 < x < box.x1 and box.y0 < y < box.y1 for x, y in dots), f"{name} lies on a point"
    assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1, f"{name} is cut off"
PY
}

# refused WORDS ARGUMENTS...: exit status 1, one sentence on stderr that holds WORDS.
refused() {
    local words=$1 status=0
    shift
    "$plot" --out "$gw_tmp/none" "$@" >"$gw_tmp/said" 2>"$gw_tmp/err" || status=$?
    [ "$status" -eq 1 ] && [ ! -s "$gw_tmp/said" ] && [ "$(wc -l <"$gw_tmp/err")" -eq 1 ] && grep -qF -- "$words" "$gw_tmp/err" && return
    echo "exit status $status"
    cat "$gw_tmp/said" "$gw_tmp/err"
    return 1
}

draws_stdin() {
    head -n 1 "$rows" | draws -
}

tap 'recorded rows are drawn as PNG and SVG' draws "$rows"
tap 'every codec has its name in the picture' names_are_there
tap 'no name lies on another, on a point or outside' names_apart good one
tap_fails 'a name on another is caught' names_apart spoil one
tap 'the same for the error with feedback' names_apart good ef8
tap 'times memcpy as colour, one tier' draws "$rows" --speed decode_x --error ef8 --kernels avx512
tap 'one row from standard input' draws_stdin
tap '--help tells the options' bash -c "'$plot' --help | grep -q -- --speed"

echo 'q4 13.1' >"$gw_tmp/table"
sed 's/"ratio": [0-9.]*, //' "$rows" >"$gw_tmp/lacking"
sed '3s/"rel_l2": [0-9.]*/"rel_l2": NaN/' "$rows" >"$gw_tmp/nan"
sed '2s/"codec": "q1"/"codec": 1/' "$rows" >"$gw_tmp/number"
echo '[1, 2]' >"$gw_tmp/list"
: >"$gw_tmp/empty"
head -c 100 /bin/ls >"$gw_tmp/binary"
cases=("none|No such file or directory" "table|table, line 1: is no JSON" "lacking|line 1: \"ratio\" is missing or is no number"
    "nan|line 3: a ratio above 0" "number|line 2: \"codec\" is missing or is no text" "list|a JSON object is needed" "empty|holds no rows"
    "binary|is no" ".|Is a directory")
for case in "${cases[@]}"; do
    tap "refused: ${case%%|*}: ${case#*|}" refused "${case#*|}" "$gw_tmp/${case%%|*}"
done
tap 'refused: a tier of which there is no row' refused 'no row has the kernels sse; there are avx512, peer' "$rows" --kernels sse
grep -v rel_l2_ef8.:\ [0-9] "$rows" >"$gw_tmp/exact"
tap 'refused: an error of which there is no row' refused 'no row has an error of this kind' "$gw_tmp/exact" --error ef8
tap 'refused: a place that cannot be written' refused '/dev/null' "$rows" --out /dev/null/picture
mkdir -p "$gw_tmp/path"
echo 'raise ImportError("none", name="matplotlib")' >"$gw_tmp/path/matplotlib.py"
PYTHONPATH=$gw_tmp/path tap 'without matplotlib it says what is missing' refused 'matplotlib is missing; Debian has it as python3-matplotlib' "$rows"
tap_done
