# SPDX-License-Identifier: Apache-2.0
"""The picture of the demo: for each task the loss curves and, as bars, bytes and step time."""
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

# Two colours of Okabe and Ito's palette, told apart by every kind of colour vision, and two line styles beside them.
COLOURS = {"plain": "#0072B2", "compressed": "#D55E00"}
LINES = {"plain": "-", "compressed": "--"}
MARKERS = {"plain": "o", "compressed": "s"}
GREY = "#555555"


def label_of(report, kind):
    return "plain" if kind == "plain" else report["codec"]


def draw_losses(axes, report):
    """Validation loss: mean over the seeds, their standard deviation as a band."""
    for kind in ("plain", "compressed"):
        curves = numpy.array(report[kind]["validation_curves"])
        steps, mean = curves[0, :, 0], curves[:, :, 1].mean(0)
        axes.plot(steps, mean, LINES[kind], marker=MARKERS[kind], markersize=5 if kind == "plain" else 7, lw=1.8,
                  color=COLOURS[kind], markerfacecolor=COLOURS[kind] if kind == "plain" else "none",
                  label=f"{label_of(report, kind)}: {report[kind]['loss_mean']:.4f} at the end")
        if len(curves) > 1:
            deviation = curves[:, :, 1].std(0, ddof=1)
            axes.fill_between(steps, mean - deviation, mean + deviation, color=COLOURS[kind], alpha=0.2, lw=0)
    if report["baseline"] > 5 * mean.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.axhline(report["baseline"], color=GREY, lw=1, ls=":")
    axes.annotate(report["baseline_name"], (steps[-1], report["baseline"]), ha="right", va="top",
                  xytext=(0, -3), textcoords="offset points", color=GREY)
    axes.set_xlabel("step")
    axes.set_ylabel("validation loss (nats)")
    axes.set_xlim(0, steps[-1] * 1.02)
    band = f" (band: spread of {report['seeds']} seeds)" if report["seeds"] > 1 else ""
    axes.set_title(f"Loss{band}", loc="left")
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)


def bar_pair(axes, report, values, style):
    for position, kind in enumerate(("plain", "compressed")):
        axes.bar(position, values[kind], 0.62, color=COLOURS[kind], hatch="" if kind == "plain" else "//",
                 edgecolor="white", linewidth=0)
        axes.annotate(style.format(values[kind]), (position, values[kind]), xytext=(0, 3), textcoords="offset points",
                      ha="center")
    axes.set_xticks((0, 1), [label_of(report, kind) for kind in ("plain", "compressed")])
    axes.set_ylim(0, max(values.values()) * 1.15)
    axes.set_xlim(-0.6, 1.6)


def draw_bytes(axes, report):
    megabytes = {kind: report[kind]["wire_bytes"] / 1e6 for kind in ("plain", "compressed")}
    bar_pair(axes, report, megabytes, "{:.0f} MB" if megabytes["plain"] > 1000 else "{:.1f} MB")
    axes.set_ylabel("MB sent by a rank, whole run")
    axes.set_title(f"Bytes: {report['wire_ratio']:.2f} x fewer", loc="left")


def draw_times(axes, report):
    """Step time; the pale lower part is what all-reduce took of it."""
    steps = {kind: report[kind]["step_ms"] for kind in ("plain", "compressed")}
    bar_pair(axes, report, steps, "{:.0f} ms" if steps["plain"] > 50 else "{:.1f} ms")
    for position, kind in enumerate(("plain", "compressed")):
        reduce_ms = report[kind]["allreduce_ms"]
        axes.bar(position, reduce_ms, 0.62, color="white", alpha=0.55, linewidth=0)
        axes.plot((position - 0.31, position + 0.31), (reduce_ms, reduce_ms), color="black", lw=1)
        label = f"all-reduce\n{reduce_ms:.0f} ms" if reduce_ms >= 20 else f"all-reduce\n{reduce_ms:.1f} ms"
        roomy = reduce_ms > 0.15 * max(steps.values())
        axes.annotate(label, (position, reduce_ms / 2 if roomy else reduce_ms), ha="center",
                      xytext=(0, 0 if roomy else 3), textcoords="offset points", va="center" if roomy else "bottom",
                      fontsize=9, bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.75})
    axes.set_ylabel("ms a step")
    axes.set_title(f"Step: {report['step_ratio']:.2f} x faster" if report["step_ratio"] >= 1
                   else f"Step: {1 / report['step_ratio']:.2f} x slower", loc="left")


def draw(reports, path):
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False,
                         "axes.titleweight": "bold", "hatch.color": "white", "hatch.linewidth": 0.8})
    figure = plt.figure(figsize=(12, 4.3 * len(reports) + 0.5), layout="constrained")
    rows = figure.subfigures(len(reports), 1, squeeze=False)[:, 0]
    for row, report in zip(rows, reports):
        place = f"{report['link_mbit']} Mbit/s" if report["link_mbit"] else "one machine, no network"
        row.suptitle(f"{report['title']}: {report['parameters'] / 1e6:.2f} M parameters, {report['ranks']} ranks, {place}",
                     x=0.01, ha="left", fontsize=12)
        losses, sent, times = row.subplots(1, 3, gridspec_kw={"width_ratios": (2.4, 1, 1)})
        draw_losses(losses, report)
        draw_bytes(sent, report)
        draw_times(times, report)
    figure.savefig(path, dpi=110)
    plt.close(figure)
