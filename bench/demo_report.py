#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads what the demo's runs left and says what came out: a table, report.json and report.png."""
import argparse
import glob
import json
import os
import re
import statistics
import sys

KINDS = ("plain", "compressed")
LOSS_TOLERANCE = 0.005
EXPECTED_Q4_RATIO = 7.5


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def mean_and_deviation(values):
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def read_stats(pattern):
    """Sums of the stats files of all ranks: one number for each key, and the reasons."""
    total = {"calls": 0, "compressed": 0, "passed": 0, "plain_bytes": 0, "wire_bytes": 0, "reasons": {}, "codecs": set(),
             "files": 0, "version": None}
    for path in sorted(glob.glob(glob.escape(pattern) + ".stats.*.json")):
        stats = read_json(path)
        total["files"] += 1
        total["version"] = stats.get("version")
        for key in ("calls", "compressed", "passed", "plain_bytes", "wire_bytes"):
            total[key] += stats.get(key, 0)
        for reason, count in stats.get("reasons", {}).items():
            total["reasons"][reason] = total["reasons"].get(reason, 0) + count
        total["codecs"].update(c["codec"] for c in stats.get("communicators", []) if c.get("codec"))
    return total


def read_runs(folder, task, kind):
    runs = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), f"{task}-*-{kind}.json"))):
        if not re.search(rf"{task}-\d+-{kind}\.json$", path):
            continue
        run = read_json(path)
        base = path[: -len(".json")]
        run["stats"] = read_stats(base)
        run["interface_bytes"] = int(open(base + ".interface").read()) if os.path.exists(base + ".interface") else None
        runs.append(run)
    return sorted(runs, key=lambda run: run["seed"])


def plain_bytes(run):
    """What a bandwidth-optimal all-reduce sends from one rank."""
    return 2 * (run["ranks"] - 1) / run["ranks"] * run["raw_bytes"]


def summarize_kind(runs, kind, codec):
    loss = mean_and_deviation([run["loss"] for run in runs])
    accuracy = mean_and_deviation([run["accuracy"] for run in runs])
    if kind == "plain" or not any(run["stats"]["compressed"] for run in runs):
        wire = statistics.fmean(plain_bytes(run) for run in runs)
    else:
        wire = statistics.fmean(run["stats"]["wire_bytes"] / run["ranks"] for run in runs)
    summary = {
        "codec": "none" if kind == "plain" else codec,
        "loss_mean": loss[0], "loss_std": loss[1], "accuracy_mean": accuracy[0], "accuracy_std": accuracy[1],
        "step_ms": statistics.fmean(run["step_ms"] for run in runs),
        "allreduce_ms": statistics.fmean(run["allreduce_ms"] for run in runs),
        "raw_bytes": statistics.fmean(run["raw_bytes"] for run in runs),
        "wire_bytes": wire,
        "interface_bytes": None if runs[0]["interface_bytes"] is None
        else statistics.fmean(run["interface_bytes"] for run in runs),
        "identical": all(run["identical"] for run in runs),
        "losses": [run["loss"] for run in runs],
        "validation_curves": [run["validation_curve"] for run in runs],
        "training_losses": [run["training_loss"] for run in runs],
    }
    if kind == "compressed":
        summary["calls"] = calls_of(runs)
    return summary


def calls_of(runs):
    """Calls of all ranks and seeds together."""
    calls = {key: sum(run["stats"][key] for run in runs) for key in ("calls", "compressed", "passed")}
    calls["reasons"] = {}
    for run in runs:
        for reason, count in run["stats"]["reasons"].items():
            calls["reasons"][reason] = calls["reasons"].get(reason, 0) + count
    calls["stats_files"] = sum(run["stats"]["files"] for run in runs)
    return calls


def summarize_task(folder, task, codec, link_mbit):
    runs = {kind: read_runs(folder, task, kind) for kind in KINDS}
    if not runs["plain"] or len(runs["plain"]) != len(runs["compressed"]):
        sys.exit(f"demo: results of the task {task} are missing in {folder}")
    wire = sum(run["stats"]["wire_bytes"] for run in runs["compressed"])
    plain = sum(run["stats"]["plain_bytes"] for run in runs["compressed"])
    first = runs["plain"][0]
    report = {key: first[key] for key in ("task", "title", "ranks", "steps", "parameters", "baseline", "baseline_name")}
    report.update(
        link_mbit=link_mbit, seeds=len(runs["plain"]), codec=codec, wire_ratio=plain / wire if wire else 1.0,
        version=runs["compressed"][0]["stats"]["version"],
        plain=summarize_kind(runs["plain"], "plain", codec),
        compressed=summarize_kind(runs["compressed"], "compressed", codec),
    )
    a, b = report["plain"], report["compressed"]
    report["loss_change"] = b["loss_mean"] / a["loss_mean"] - 1
    report["step_ratio"] = a["step_ms"] / b["step_ms"]
    report["allreduce_ratio"] = a["allreduce_ms"] / b["allreduce_ms"]
    report["interface_ratio"] = a["interface_bytes"] / b["interface_bytes"] if a["interface_bytes"] else None
    report["verdict"] = verdict(report)
    return report


# --- words -----------------------------------------------------------------------------------------------------------


def loss_words(report):
    change, spread = report["loss_change"], max(report["plain"]["loss_std"], report["compressed"]["loss_std"])
    inside = abs(report["compressed"]["loss_mean"] - report["plain"]["loss_mean"]) <= spread
    amount = f"{change:+.2%}"
    if abs(change) <= LOSS_TOLERANCE:
        return f"the loss is within {LOSS_TOLERANCE:.1%} of plain ({amount})"
    if inside:
        return f"the loss differs by {amount}, inside the spread of the seeds"
    if report["seeds"] == 1:
        return f"the loss differs by {amount} (from one seed nobody can tell whether that means anything)"
    if change < 0:
        return f"the loss is {amount} against plain: lower, by more than the spread of the seeds"
    return f"THE LOSS IS WORSE by {amount}, more than {LOSS_TOLERANCE:.1%} and more than the spread of the seeds"


def ratio_words(report):
    words = f"{report['wire_ratio']:.2f} times fewer bytes"
    if report["codec"].split(":")[0] == "q4" and report["wire_ratio"] < EXPECTED_Q4_RATIO:
        words += f" (BELOW the {EXPECTED_Q4_RATIO} that q4 should reach)"
    return words


def step_words(report):
    if not report["link_mbit"]:
        return f"a step takes {1 / report['step_ratio']:.2f} times as long (no network here, so that nothing could be saved)"
    if report["step_ratio"] >= 1.05:
        return f"a step is {report['step_ratio']:.2f} times faster"
    return f"A STEP IS NOT FASTER ({1 / report['step_ratio']:.2f} times the time of plain)"


def uncompressed_words(calls):
    if not calls["stats_files"]:
        return "NOTHING WAS COMPRESSED: the runs left no stats file, so that the shim was not in the processes"
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(calls["reasons"].items()))
    return f"NOTHING WAS COMPRESSED: {calls['calls']} calls seen, all passed through ({reasons or 'no reason given'})"


def verdict(report):
    parts = []
    calls = report["compressed"]["calls"]
    if calls["compressed"]:
        parts += [loss_words(report), ratio_words(report), step_words(report)]
    else:
        parts.append(uncompressed_words(calls))
    for kind in KINDS:
        if not report[kind]["identical"]:
            parts.append(f"THE REPLICAS DIFFER at the end of {kind} runs")
    return "; ".join(parts) + "."


# --- table -----------------------------------------------------------------------------------------------------------


def faster(ratio):
    return f"{ratio:.2f} x faster" if ratio >= 1 else f"{1 / ratio:.2f} x slower"


def spread(mean, deviation, style, seeds):
    return f"{mean:{style}}" + (f" ± {deviation:{style}}" if seeds > 1 else "")


def table_rows(report):
    a, b, seeds = report["plain"], report["compressed"], report["seeds"]
    yield "", "plain", b["codec"], ""
    yield ("validation loss", spread(a["loss_mean"], a["loss_std"], ".4f", seeds),
           spread(b["loss_mean"], b["loss_std"], ".4f", seeds), f"{report['loss_change']:+.2%}")
    yield ("validation accuracy, %", spread(100 * a["accuracy_mean"], 100 * a["accuracy_std"], ".2f", seeds),
           spread(100 * b["accuracy_mean"], 100 * b["accuracy_std"], ".2f", seeds),
           f"{100 * (b['accuracy_mean'] - a['accuracy_mean']):+.2f} points")
    yield "one step, ms", f"{a['step_ms']:.1f}", f"{b['step_ms']:.1f}", faster(report["step_ratio"])
    yield ("of it in all-reduce, ms", f"{a['allreduce_ms']:.1f}", f"{b['allreduce_ms']:.1f}",
           faster(report["allreduce_ratio"]))
    yield ("a rank sends, MB", f"{a['wire_bytes'] / 1e6:.1f}", f"{b['wire_bytes'] / 1e6:.1f}",
           f"{report['wire_ratio']:.2f} x fewer")
    if report["interface_ratio"]:
        yield ("its interface sent, MB", f"{a['interface_bytes'] / 1e6:.1f}", f"{b['interface_bytes'] / 1e6:.1f}",
               f"{report['interface_ratio']:.2f} x fewer")
    words = {True: "yes", False: "NO"}
    yield "replicas bit for bit equal", words[a["identical"]], words[b["identical"]], ""


def print_task(report):
    place = f"{report['link_mbit']} Mbit/s" if report["link_mbit"] else "one machine, no network"
    print(f"\n{report['task']}: {report['title']}")
    print(f"    {report['parameters'] / 1e6:.2f} million parameters, {report['steps']} steps, {report['ranks']} ranks, "
          f"{report['seeds']} seed{'s' if report['seeds'] > 1 else ''}, {place}; "
          f"{report['baseline_name']}: loss {report['baseline']:.4f}\n")
    for row in table_rows(report):
        print("    {:27} {:>18} {:>18}   {}".format(*row).rstrip())
    calls = report["compressed"]["calls"]
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(calls["reasons"].items()))
    print(f"\n    all-reduce calls of all ranks: {calls['compressed']} compressed, {calls['passed']} passed through"
          + (f" ({reasons})" if reasons else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", required=True, help="folder with the results of the runs")
    parser.add_argument("--out", required=True, help="folder for report.json and report.png")
    parser.add_argument("--codec", required=True)
    parser.add_argument("--link-mbit", type=int, required=True, help="0: no network between the ranks")
    arguments = parser.parse_args()
    found = {os.path.basename(path).split("-")[0] for path in glob.glob(os.path.join(glob.escape(arguments.runs), "*.json"))}
    tasks = {task: summarize_task(arguments.runs, task, arguments.codec, arguments.link_mbit)
             for task in ("lm", "digits") if task in found}
    if not tasks:
        sys.exit(f"demo: no results in {arguments.runs}")
    report = dict(next(iter(tasks.values())), tasks=tasks)
    with open(os.path.join(arguments.out, "report.json"), "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    from demo_picture import draw

    draw(list(tasks.values()), os.path.join(arguments.out, "report.png"))
    for task in tasks.values():
        print_task(task)
    print()
    for name, task in tasks.items():
        print(f"{name}: {task['verdict']}")
    print(f"\nWritten: {arguments.out}/report.json and report.png")


if __name__ == "__main__":
    main()
