# SPDX-License-Identifier: Apache-2.0
"""What the runs of bench/convergence come to: a verdict for each codec, tables in Markdown, JSON and CSV, and the picture."""
import csv
import json
import os
import re
import statistics

WORDS = {"base": "base", "inside": "inside", "lower": "lower", "higher": "HIGHER", "failed": "FAILED", "unknown": "?"}
MARKERS = ("<!-- convergence -->", "<!-- /convergence -->")


def spread_of(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def shift_of(records, raw, quantity):
    """Mean difference to raw over the seeds that both have; None without one, or where a value is no number."""
    of_raw = {record["seed"]: record[quantity] for record in raw}
    pairs = [(record[quantity], of_raw[record["seed"]]) for record in records if record["seed"] in of_raw]
    if not pairs or any(value is None for pair in pairs for value in pair):
        return None
    return statistics.fmean(a - b for a, b in pairs)


def judge(records, raw, shift):
    """How the final loss lies to that of raw over the same seeds: inside of raw's own spread over the seeds (one standard deviation,
    of all of raw's seeds), lower or higher. Without a number as loss it has failed; by one seed of raw nobody can tell."""
    if records == raw:
        return "base"
    if any(record["loss"] is None for record in records):
        return "failed"
    if len(raw) < 2 or shift is None:
        return "unknown"
    spread = spread_of([record["loss"] for record in raw])
    return "inside" if abs(shift) <= spread else "lower" if shift < 0 else "higher"


def summarize(records, raw):
    losses = [record["loss"] for record in records if record["loss"] is not None]
    accuracies = [record["accuracy"] for record in records if record["accuracy"] is not None]
    shift = shift_of(records, raw, "loss")
    return {
        "seeds": len(records), "bytes_per_element": statistics.fmean(record["bytes_per_element"] for record in records),
        "loss_mean": statistics.fmean(losses) if losses else None, "loss_std": spread_of(losses),
        "losses": [record["loss"] for record in records],
        "accuracy_mean": statistics.fmean(accuracies) if accuracies else None, "accuracy_std": spread_of(accuracies),
        "loss_shift": shift, "accuracy_shift": shift_of(records, raw, "accuracy"), "verdict": judge(records, raw, shift),
        "loss_change": None if shift is None else shift / statistics.fmean(record["loss"] for record in raw),
    }


def build(options, codecs, records, failures, version):
    """All figures as one object; codecs in the program's order, tasks in that of the command line."""
    report = {"command": options.command, "version": version, "ranks": 2, "seeds": options.seeds, "tasks": {}, "codecs": [],
              "programs": sorted({record["program"] for record in records}),
              "failures": [{"task": task, "codec": codec, "reason": reason} for (task, codec), reason in sorted(failures.items())]}
    of = {}
    for record in records:
        of.setdefault((record["task"], record["codec"]), []).append(record)
    for task in options.tasks:
        raw = of.get((task, "raw"))
        if raw:
            first = raw[0]
            report["tasks"][task] = {"title": first["title"], "steps": first["steps_done"], "parameters": first["parameters"],
                                     "baseline": first["baseline"], "baseline_name": first["baseline_name"],
                                     "raw_seeds": len(raw), "raw_loss": statistics.fmean(record["loss"] for record in raw),
                                     "raw_spread": spread_of([record["loss"] for record in raw])}
    for codec in codecs:
        row = {task: summarize(of[task, codec], of[task, "raw"]) for task in report["tasks"] if (task, codec) in of}
        report["codecs"].append({"codec": codec, "tasks": row})
    return report


# --- tables ----------------------------------------------------------------------------------------------------------


def with_spread(mean, deviation, seeds, style):
    if mean is None:
        return "no number"
    return f"{mean:{style}}" + (f" ± {deviation:{style}}" if seeds > 1 else "")


def against(cell):
    words = WORDS[cell["verdict"]]
    if cell["loss_change"] is None or cell["verdict"] == "base":
        return words
    change = f"{cell['loss_change']:+.1%}"
    return f"{words} ({'0.0%' if change[1:] == '0.0%' else change})"


def cells_of(cell, seeds):
    """The four columns of one task."""
    if not cell:
        return ["-"] * 4
    loss = with_spread(cell["loss_mean"], cell["loss_std"], cell["seeds"], ".4f")
    if cell["seeds"] < seeds:
        loss += f" ({cell['seeds']} of {seeds})"
    return [f"{cell['bytes_per_element']:.3f}", loss,
            with_spread(100 * cell["accuracy_mean"], 100 * cell["accuracy_std"], cell["seeds"], ".2f")
            if cell["accuracy_mean"] is not None else "-", against(cell)]


def task_line(name, task):
    spread = f"raw's seeds spread by {task['raw_spread']:.4f} ({task['raw_spread'] / task['raw_loss']:.1%})" if task["raw_seeds"] > 1 \
        else "one seed of raw, and so no spread and no verdict"
    return f"{name}: {task['parameters'] / 1e6:.2f} million parameters, {task['steps']} steps; {spread}"


def markdown(report):
    """What stands in codecs/README.md between the markers, the command included."""
    lines = [f"    {report['command']}", ""]
    lines += [f"{line}." for line in (task_line(name, task) for name, task in report["tasks"].items())]
    lines += [f"{report['ranks']} ranks, {report['seeds']} seeds, gradwire {report['version']}, "
              f"program{'s' if len(report['programs']) > 1 else ''} {', '.join(report['programs'])}.", ""]
    heads = ["codec"] + [f"{name}: {word}" for name in report["tasks"]
                         for word in ("bytes an element", "loss", "accuracy, %", "against raw")]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in report["codecs"]:
        cells = [f"`{row['codec']}`"]
        for name in report["tasks"]:
            cells += cells_of(row["tasks"].get(name), report["seeds"])
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"\nFAILED: `{f['codec']}` on {f['task']}: {f['reason']}" for f in report["failures"]]
    return "\n".join(lines) + "\n"


def write_csv(report, path):
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["codec", "task", "seeds", "steps", "bytes_per_element", "loss_mean", "loss_std", "accuracy_mean",
                      "accuracy_std", "loss_change", "verdict"])
        for row in report["codecs"]:
            for name, cell in row["tasks"].items():
                out.writerow([row["codec"], name, cell["seeds"], report["tasks"][name]["steps"],
                              f"{cell['bytes_per_element']:.6g}", *("" if value is None else f"{value:.6g}" for value in (
                                  cell["loss_mean"], cell["loss_std"], cell["accuracy_mean"], cell["accuracy_std"],
                                  cell["loss_change"])), cell["verdict"]])


def check_block(path):
    """The text of a file that has the markers, once each; ValueError for another."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    begin, end = MARKERS
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"{path}: has no lines {begin} and {end}, once each")
    return text


def replace_block(path, text):
    """Puts the table between the markers of a file."""
    old, (begin, end) = check_block(path), MARKERS
    new = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: f"{begin}\n{text}{end}", old, flags=re.S)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(new)
    os.replace(path + ".new", path)


# --- terminal --------------------------------------------------------------------------------------------------------


def print_table(report):
    width = max(len(row["codec"]) for row in report["codecs"])
    for name, task in report["tasks"].items():
        print(f"\n{task_line(name, task)}\n")
        print(f"    {'codec':{width}}  bytes/el  {'loss':24} {'accuracy, %':15} against raw")
        for row in report["codecs"]:
            cells = cells_of(row["tasks"].get(name), report["seeds"])
            print(f"    {row['codec']:{width}}  {cells[0]:>8}  {cells[1]:24} {cells[2]:15} {cells[3]}".rstrip())
    for failure in report["failures"]:
        print(f"\nFAILED: {failure['codec']} on {failure['task']}: {failure['reason']}")


def write(options, codecs, records, failures, version):
    """Writes table.md, table.json, table.csv and convergence.png into the folder, and the README's block where asked to."""
    report = build(options, codecs, records, failures, version)
    if not report["tasks"]:
        print("\nNo run of raw is finished: there is nothing to judge by, and no table.")
        return
    text = markdown(report)
    with open(os.path.join(options.out, "table.md"), "w", encoding="utf-8") as file:
        file.write(text)
    with open(os.path.join(options.out, "table.json"), "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    write_csv(report, os.path.join(options.out, "table.csv"))
    from convergence_picture import draw

    draw(report, os.path.join(options.out, "convergence.png"))
    print_table(report)
    if options.readme:
        replace_block(options.readme, text)
    print(f"\nWritten: {options.out}/table.md, table.json, table.csv and convergence.png"
          + (f"; {options.readme}" if options.readme else ""))
