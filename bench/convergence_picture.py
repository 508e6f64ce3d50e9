# SPDX-License-Identifier: Apache-2.0
"""The picture of bench/convergence: for each task the final loss and accuracy of every codec against its bytes an element."""
import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from plot_labels import end_of, put_labels

# Of Okabe and Ito's palette, told apart by every kind of colour vision, and by their marks.
STYLES = {"base": ("#000000", "D", "raw"), "inside": ("#0072B2", "o", "inside of raw's spread"), "lower": ("#009E73", "v", "better than raw by more"),
          "higher": ("#D55E00", "s", "worse than raw by more"), "unknown": ("#9a9a9a", "o", "one seed: no verdict")}
PALE = "#9a9a9a"
QUANTITIES = {"loss": ("validation loss (nats)", 1), "accuracy": ("validation accuracy, %", 100)}


def scale(centre, unit):
    """Linear near the centre, logarithmic far away, so that what is close to raw has room beside what is not."""
    import numpy

    return (lambda y: numpy.arcsinh((numpy.asarray(y, dtype=float) - centre) / unit),
            lambda t: centre + unit * numpy.sinh(numpy.asarray(t, dtype=float)))


def nice_ticks(centre, unit, low, high):
    """Raw's mean, and away from it numbers of few digits about as far apart on the scale as each other."""
    forward, back = scale(centre, unit)
    t_low, t_high = float(forward(low)), float(forward(high))
    ticks = [centre]
    steps = max(1, round((t_high - t_low) / 1.1))
    for i in range(steps + 1):
        t = t_low + (t_high - t_low) * i / steps
        value, distance = float(back(t)), abs(float(back(t)) - centre)
        if distance < unit * 0.5:
            continue
        digits = max(0, -math.floor(math.log10(distance)))
        tick = round(value, min(digits, 4))
        if low <= tick <= high and all(abs(float(forward(tick) - forward(other))) > 0.45 for other in ticks):
            ticks.append(tick)
    return ticks


def tick_text(value, places):
    return f"{value:.{places}f}".rstrip("0").rstrip(".") if places else f"{value:g}"


def points_of(report, task, quantity):
    """(codec, bytes, mean, deviation, verdict) of all that have a number. The mean is raw's and the difference to raw over the same
    seeds, so that a codec of which seeds are missing stands where it belongs."""
    factor, points = QUANTITIES[quantity][1], []
    cells = {row["codec"]: row["tasks"].get(task) for row in report["codecs"]}
    for codec, cell in cells.items():
        if cell and cell[f"{quantity}_shift"] is not None:
            points.append((codec, cell["bytes_per_element"], factor * (cells["raw"][f"{quantity}_mean"] + cell[f"{quantity}_shift"]),
                           factor * cell[f"{quantity}_std"], cell["verdict"]))
    return points


def draw_panel(axes, report, task, quantity):
    """Returns the points, for the labels to be put when all sizes are known."""
    points = points_of(report, task, quantity)
    raw = next(point for point in points if point[0] == "raw")
    centre, spread = raw[2], raw[3]
    unit = max(spread, 0.002 * abs(centre), 1e-6)
    low = min(point[2] - point[3] for point in points)
    high = max(point[2] + point[3] for point in points)
    forward, back = scale(centre, unit)
    margin = 0.06 * float(forward(high) - forward(low)) + 0.3
    low, high = float(back(forward(low) - margin)), float(back(forward(high) + margin))
    if quantity == "accuracy":
        high = min(high, 100.0) if max(point[2] + point[3] for point in points) <= 100 else high
    axes.set_yscale("function", functions=(forward, back))
    axes.set_ylim(low, high)
    ticks = nice_ticks(centre, unit, low, high)
    places = max(0, min(4, 1 - math.floor(math.log10(unit))))
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: tick_text(y, places)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if spread:
        axes.axhspan(centre - spread, centre + spread, color="#56B4E9", alpha=0.22, lw=0, zorder=0)
    axes.axhline(centre, color="#0072B2", lw=0.9, ls="--", zorder=1)
    for verdict, (colour, marker, _) in STYLES.items():
        some = [point for point in points if point[4] == verdict]
        axes.errorbar([p[1] for p in some], [p[2] for p in some], yerr=[p[3] for p in some], fmt=marker, ms=7, color=colour,
                      mec="black", mew=0.6, ecolor=colour, elinewidth=1.1, capsize=2, zorder=3)
    axes.set_xscale("log")
    sizes = [point[1] for point in points]
    axes.set_xlim(min(sizes) / 1.35, max(sizes) * 1.5)
    marks = [m * 10.0 ** e for e in range(-3, 2) for m in (1, 2, 5) if min(sizes) / 1.35 <= m * 10.0 ** e <= max(sizes) * 1.5]
    axes.xaxis.set_major_locator(FixedLocator(marks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25)
    axes.set_xlabel("bytes an element")
    axes.set_ylabel(QUANTITIES[quantity][0])
    return points


def label_panel(figure, axes, points, name):
    """Names beside their points, or at the end of a thin line."""
    renderer, font = figure.canvas.get_renderer(), {"fontsize": 9, "zorder": 5}
    sizes = []
    for point in points:
        text = axes.text(0.5, 0.5, point[0], transform=axes.transAxes, **font)
        box = text.get_window_extent(renderer)
        sizes.append((box.width, box.height))
        text.remove()
    pixels = [tuple(p) for p in axes.transData.transform([(point[1], point[2]) for point in points])]
    frame, radius = list(axes.get_window_extent(renderer).extents), 4.2 * figure.dpi / 72
    bars = [tuple(map(tuple, axes.transData.transform([(p[1], p[2] - p[3]), (p[1], p[2] + p[3])]))) for p in points]
    inverse = axes.transAxes.inverted()
    for i, box in put_labels(pixels, sizes, frame, radius, bars).items():
        x, y = inverse.transform(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2))
        axes.text(x, y, points[i][0], transform=axes.transAxes, ha="center", va="center", gid=f"{name} {points[i][0]}",
                  path_effects=[withStroke(linewidth=2, foreground="white")], **font)
        end = end_of(pixels[i], box)
        if math.dist(pixels[i], end) > radius + 5:
            axes.plot(*zip(inverse.transform(pixels[i]), inverse.transform(end)), transform=axes.transAxes, color=PALE, lw=0.7,
                      zorder=2)


def figure_of(report):
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    tasks = list(report["tasks"])
    figure, grid = plt.subplots(len(tasks), 2, figsize=(19, 7.6 * len(tasks) + 0.6), dpi=100, squeeze=False, layout="constrained")
    drawn = []
    for line, task in zip(grid, tasks):
        about = report["tasks"][task]
        for axes, quantity in zip(line, QUANTITIES):
            drawn.append((axes, draw_panel(axes, report, task, quantity), f"{task} {quantity}"))
        line[1].set_title(f"{task}: accuracy", loc="left", fontsize=12)
        line[0].set_title(f"{about['title']}: {about['parameters'] / 1e6:.2f} M parameters, {about['steps']} steps", loc="left",
                          fontsize=12)
    seen = {point[4] for _, points, _ in drawn for point in points}
    marks = [Line2D([], [], marker=marker, color=colour, mec="black", mew=0.6, ms=7, ls="none", label=words)
             for verdict, (colour, marker, words) in STYLES.items() if verdict in seen]
    if report["seeds"] > 1:
        marks.append(Patch(color="#56B4E9", alpha=0.3, label="raw: mean and spread of the seeds"))
    figure.legend(handles=marks, frameon=False, loc="upper right", ncol=6)
    bars = f"; bars: standard deviation of {report['seeds']} seeds" if report["seeds"] > 1 else ""
    figure.suptitle(f"Trained with every codec, {report['ranks']} ranks{bars}", x=0.01, ha="left", fontsize=14)
    figure.canvas.draw()
    for axes, points, name in drawn:
        label_panel(figure, axes, points, name)
    return figure


def draw(report, path):
    figure = figure_of(report)
    figure.savefig(path, dpi=figure.dpi)
    plt.close(figure)
