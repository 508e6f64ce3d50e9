#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rotate_levels.c: kernels/rotate_levels.py >kernels/rotate_levels.c

The levels of the Lloyd-Max quantiser of N(0, 1) (Lloyd 1957, Max 1960) for 1 to 8 bits: each level is the mean of its
cell, each threshold the middle of its neighbours. The 2^b levels are symmetric, so that only the positive half is solved
for, by Newton's method on the tridiagonal system level - mean(cell) = 0 in binary64, from the levels of a compander of
density N(0, 3) (Panter and Dite 1951); Lloyd's own iteration needs some hundred thousand rounds at 8 bits.
"""
import math
import struct
import sys


def density(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def mass(a, b):
    return (math.erfc(a / math.sqrt(2)) - math.erfc(b / math.sqrt(2))) / 2


def start(half):
    """Quantiles of N(0, 3), by bisection."""
    levels = []
    for i in range(half):
        low, high = 0.0, 20.0
        for _ in range(80):
            middle = (low + high) / 2
            if math.erf(middle / math.sqrt(6)) < (i + 0.5) / half:
                low = middle
            else:
                high = middle
        levels.append(low)
    return levels


def solve(bits):
    half = 2 ** (bits - 1)
    levels = start(half)
    for _ in range(60):
        edge = [0.0] + [(levels[i] + levels[i + 1]) / 2 for i in range(half - 1)] + [60.0]
        f, lower, diagonal, upper = [], [], [], []
        for i in range(half):
            a, b = edge[i], edge[i + 1]
            p = mass(a, b)
            mean = (density(a) - density(b)) / p
            da = density(a) * (mean - a) / p / 2 if i else 0.0
            db = density(b) * (b - mean) / p / 2 if i + 1 < half else 0.0
            f.append(levels[i] - mean)
            lower.append(-da)
            diagonal.append(1 - da - db)
            upper.append(-db)
        for i in range(1, half):
            w = lower[i] / diagonal[i - 1]
            diagonal[i] -= w * upper[i - 1]
            f[i] -= w * f[i - 1]
        step = [0.0] * half
        for i in reversed(range(half)):
            step[i] = (f[i] - (upper[i] * step[i + 1] if i + 1 < half else 0.0)) / diagonal[i]
        levels = [c - s for c, s in zip(levels, step)]
        if max(abs(s) for s in step) < 1e-15:
            break
    return levels


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def rows(values, form, per):
    out = [form(v) for v in values]
    return ",\n     ".join(", ".join(out[i:i + per]) for i in range(0, len(out), per))


def main():
    all_levels, all_thresholds, all_cells = [], [], []
    for bits in range(1, 9):
        levels = solve(bits)
        half, per_unit = len(levels), 2.0 ** (bits - 2)
        middles = [(levels[i] + levels[i + 1]) / 2 for i in range(half - 1)]
        # The low byte of threshold k is k, so that a cell needs one word.
        thresholds = [0] + [bits_of(t) & ~0xFF | k + 1 for k, t in enumerate(middles)]
        top = struct.unpack("<f", struct.pack("<I", thresholds[-1]))[0] if half > 1 else 0.0
        cells = []
        for cell in range(int(top * per_unit) + 2):
            inside = [t for t in thresholds[1:]
                      if cell <= struct.unpack("<f", struct.pack("<I", t))[0] * per_unit]
            cells.append(inside[0] if inside else 0x7F000000 | half)
        for cell in range(len(cells) - 1):
            assert cells[cell + 1] & 0xFF <= (cells[cell] & 0xFF) + 1, "two thresholds in one cell"
        all_levels.append(levels)
        all_thresholds.append(thresholds)
        all_cells.append(cells)
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Lloyd-Max levels of N(0, 1), written by rotate_levels.py. */")
    print('#include "rotate_block.h"\n\n/* clang-format off */')
    single = lambda x: "%.9gf" % struct.unpack("<f", struct.pack("<f", x))[0]
    word = lambda x: "0x%08X" % x
    for name, kind, table, form, per in (
            ("level", "float", all_levels, single, 8),
            ("threshold", "uint32_t", all_thresholds, word, 10),
            ("cell", "uint32_t", all_cells, word, 10)):
        size = "GW_ROTATE_CELLS" if name == "cell" else "GW_ROTATE_HALF"
        print("GW_ROTATE_TABLE %s gw__rotate_%s[8][%s] = {" % (kind, name, size))
        print(",\n".join("    {" + rows(t, form, per) + "}" for t in table) + ",\n};")
    print("GW_ROTATE_TABLE float gw__rotate_last_cell[8] = {%s};" % ", ".join("%d" % (len(c) - 1) for c in all_cells))
    print("/* clang-format on */")
    print([len(c) for c in all_cells], file=sys.stderr)


main()
