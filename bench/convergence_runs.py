#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The training runs of bench/convergence: every codec, task and seed, each finished one kept in a file of results.

Called by bench/convergence with a complete command line. The trainer is the demo's, unmodified, under `gradwire run`.
"""
import argparse
import glob
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time

import convergence_report

RANKS = 2
LIMIT = 1800  # seconds for one run; a hang must not hang the rest
STATS = ("calls", "compressed", "plain_bytes", "wire_bytes", "errors")


class Failure(Exception):
    """What a person should read; no trace."""


# --- codecs ----------------------------------------------------------------------------------------------------------


def split_specs(text):
    """'q4:bucket=128,ef=off,q8 sign' holds three: what is behind a comma and says key=value belongs to the one before."""
    specs = []
    for word in text.split():
        for at, piece in enumerate(word.split(",")):
            if at and "=" in piece and ":" not in piece and specs:
                specs[-1] += "," + piece
            elif piece:
                specs.append(piece)
    return specs


def run_tool(arguments, environment):
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise Failure(last)
    return done.stdout


def registered(tool, environment):
    """Every codec of the program, in its order: what `gradwire info` has in its matrix."""
    info = json.loads(run_tool([tool, "info", "--json"], environment))
    return [row["codec"] for row in info["matrix"]], info["version"]


def canonical(tool, specs, environment):
    """The specs as the program writes them, so that two spellings of one codec are one; asks by encoding a little."""
    command = [tool, "bench", "codec", "--size", "64K", "--repeat", "1", "--peers", "off", "--json"]
    names = []
    for spec in specs:
        rows = run_tool(command + ["--codec", spec], environment).splitlines()
        names += [json.loads(row)["codec"] for row in rows]
    return names


def choose_codecs(tool, wanted, environment):
    every, version = registered(tool, environment)
    specs = split_specs(" ".join(wanted)) or ["all"]
    chosen = []
    for spec in specs:
        for name in every if spec == "all" else canonical(tool, [spec], environment):
            if name not in chosen:
                chosen.append(name)
    if "raw" not in chosen:  # what all others are judged by
        chosen.insert(0, "raw")
    return chosen, version


# --- identity of a run -----------------------------------------------------------------------------------------------


def digest(paths):
    total = hashlib.sha256()
    for path in paths:
        try:
            with open(path, "rb") as file:
                total.update(os.path.basename(path).encode() + b"\0" + hashlib.sha256(file.read()).digest())
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from None
    return total.hexdigest()[:12]


def program_digest(build):
    """Of the libraries that the ranks load: another build is another program."""
    library = os.path.join(build, "lib")
    parts = sorted(glob.glob(os.path.join(library, "*.so")) + glob.glob(os.path.join(library, "gradwire", "*.so")))
    if not parts:
        raise Failure(f"{library}: holds no libraries; it has to be built first")
    return digest(parts)


def key_of(record):
    named = tuple(record[name] for name in ("task", "steps", "seed", "ranks", "codec", "trainer"))
    return named + (record.get("residuals", "fp32"),)


def read_results(path):
    """What earlier runs left, the newest of each kind. A line that was cut off, by a crash or a full disk, is passed over."""
    results = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return results
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {getattr(error, 'strerror', None) or 'is no text'}") from None
    for line in lines:
        try:
            record = json.loads(line)
            results[key_of(record)] = record
        except (ValueError, KeyError, TypeError):
            continue
    return results


def keep(path, record):
    """Appends, on a line of its own even where the last one was cut off."""
    with open(path, "a+b") as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


# --- one run ---------------------------------------------------------------------------------------------------------


def clean_environment(residuals):
    """Nothing of the caller's settings may change what a codec does here; both ranks talk TCP over loopback."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
    kept.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1",
                GRADWIRE_UCX_TLS="tcp,self", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                GRADWIRE_RESIDUALS=residuals)
    return kept


def end_group(process):
    """mpirun ends its ranks on SIGTERM; what does not listen is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(10)
            return
        except subprocess.TimeoutExpired:
            continue


def call(command, log, environment, limit):
    """Runs the command with its output in `log`; returns its exit status, or None when it ran out of time."""
    with open(log, "w", encoding="utf-8") as file:
        file.write(" ".join(command) + "\n")
        file.flush()
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            end_group(process)
            return None
        except BaseException:
            end_group(process)
            raise


def last_words(log):
    """The line of a log that most likely says why."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file.read().splitlines()[1:] if line.strip(" -*\n")]
    own = [line for line in lines if line.lower().startswith("gradwire")]
    wrong = [line for line in lines if "Error" in line]
    return (own[-1:] or wrong[-1:] or lines[-1:] or ["no output"])[0][:300]


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def sum_stats(base):
    """Of all ranks, with the codecs that their communicators used; a run that went uncompressed must not pass for one."""
    total, codecs, found = dict(dict.fromkeys(STATS, 0), excluded=0), set(), 0
    for path in glob.glob(glob.escape(base) + ".stats.*.json"):
        stats = read_json(path) or {}
        found += bool(stats)
        for name in STATS:
            total[name] += stats.get(name, 0)
        total["excluded"] += stats.get("reasons", {}).get("excluded", 0)
        codecs.update(c["codec"] for c in stats.get("communicators", []) if c.get("codec"))
    return total, codecs, found


def judge_run(codec, result, stats, codecs, found):
    """Why a run that ended well does not count; None when it does."""
    if found != RANKS:
        return f"{found} of {RANKS} ranks left a stats file: the shim was not in all processes"
    if stats["errors"]:
        return f"{stats['errors']} calls ended with an error"
    if codec == "raw" and not stats["excluded"]:
        return "no call was left to MPI by the codec raw"
    if codec != "raw" and not stats["compressed"]:
        return "no call went through the codec"
    if codec != "raw" and codecs != {codec}:
        return f"ran with {' and '.join(sorted(codecs)) or 'no codec'}"
    if not result["identical"]:
        return "the replicas differ at the end"
    return None


def finite(value):
    return value if math.isfinite(value) else None


def train(options, task, seed, codec, environment):
    """One run; returns its record, or raises Failure with the reason."""
    safe = codec.replace(":", "-").replace("=", "").replace(",", "-").replace("/", "-")
    base = os.path.join(options.out, "runs", f"{task}-{seed}-{safe}")
    for path in glob.glob(glob.escape(base) + ".*"):
        os.remove(path)
    command = [os.path.join(options.build, "bin", "gradwire"), "run", "--codec", codec, "--stats", base + ".stats.%r.json", "--",
               "mpirun", "--bind-to", "none", "--oversubscribe", "-np", str(RANKS), "/usr/bin/python3", options.trainer,
               "--task", task, "--seed", str(seed), "--out", base + ".json"]
    if task in options.steps:
        command += ["--steps", str(options.steps[task])]
    if options.text:
        command += ["--text", options.text]
    begin = time.monotonic()
    status = call(command, base + ".log", environment, LIMIT)
    result = read_json(base + ".json")
    if status is None:
        raise Failure(f"no end within {LIMIT} s")
    if status or not result:
        raise Failure(last_words(base + ".log"))
    stats, codecs, found = sum_stats(base)
    wrong = judge_run(codec, result, stats, codecs, found)
    if wrong:
        raise Failure(wrong)
    return {"loss": finite(result["loss"]), "accuracy": finite(result["accuracy"]), "steps_done": result["steps"],
            "parameters": result["parameters"], "title": result["title"], "baseline": result["baseline"],
            "baseline_name": result["baseline_name"], "curve": [[step, finite(loss)] for step, loss in result["validation_curve"]],
            "bytes_per_element": 4.0 * stats["wire_bytes"] / stats["plain_bytes"] if stats["plain_bytes"] else 4.0, "seconds": round(time.monotonic() - begin, 1)}


# --- all of them -----------------------------------------------------------------------------------------------------


def identities(options, codecs):
    """Every run that is wanted, one seed of all codecs before the next, so that an early end leaves whole columns."""
    trainer = digest([options.trainer] + ([options.tasks_file] if options.tasks_file else []))
    return [{"task": task, "steps": options.steps.get(task), "seed": seed, "ranks": RANKS, "codec": codec, "trainer": trainer,
             "residuals": options.residuals}
            for seed in range(1, options.seeds + 1) for task in options.tasks for codec in codecs]


def left_words(durations, task_of_rest):
    if not all(durations.get(task) for task in set(task_of_rest)):
        return ""
    seconds = sum(durations[task][0] / durations[task][1] for task in task_of_rest)
    return f"  {seconds / 60:.0f} min left" if seconds > 90 else ""


def run_all(options, codecs, program):
    """Trains what is not in the file of results yet; returns all records that are wanted, and the failures."""
    path = os.path.join(options.out, "results.jsonl")
    results = read_results(path)
    wanted = identities(options, codecs)
    usable = {key for key, record in results.items() if options.reuse or record.get("program") == program}
    todo = [identity for identity in wanted if key_of(identity) not in usable]
    print(f"{len(wanted)} runs: {len(wanted) - len(todo)} are there already, {len(todo)} to do", flush=True)
    if options.report_only:
        todo = []
    environment, failures, durations, interrupted = clean_environment(options.residuals), {}, {}, False
    os.makedirs(os.path.join(options.out, "runs"), exist_ok=True)
    try:
        for number, identity in enumerate(todo, 1):
            task, seed, codec = identity["task"], identity["seed"], identity["codec"]
            head = f"  {number:{len(str(len(todo)))}}/{len(todo)}  {task} seed {seed}  {codec:14}"
            try:
                record = dict(identity, program=program, **train(options, task, seed, codec, environment))
            except Failure as failure:
                failures[task, codec] = str(failure)
                print(f"{head} FAILED: {failure}", flush=True)
                continue
            keep(path, record)
            results[key_of(record)] = record
            usable.add(key_of(record))
            total = durations.setdefault(task, [0.0, 0])
            total[0] += record["seconds"]
            total[1] += 1
            loss = "no number" if record["loss"] is None else f"{record['loss']:.4f}"
            print(f"{head} loss {loss}  {record['bytes_per_element']:.3f} bytes an element  {record['seconds']:.0f} s"
                  + left_words(durations, [i["task"] for i in todo[number:]]), flush=True)
    except KeyboardInterrupt:
        interrupted = True
        print("\nInterrupted; what is finished is kept, and the same command goes on from there.", file=sys.stderr)
    records = [results[key_of(i)] for i in wanted if key_of(i) in usable and key_of(i) in results]
    return records, failures, interrupted


def parse():
    parser = argparse.ArgumentParser(prog="convergence_runs.py", description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--codec", action="append", default=[])
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--task", action="append", required=True, dest="tasks")
    parser.add_argument("--steps", action="append", default=[], metavar="TASK=N")
    parser.add_argument("--residuals", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--tasks-file", help="also part of the trainer")
    parser.add_argument("--text")
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--readme")
    parser.add_argument("--command", required=True, help="what the person typed, for the table")
    options = parser.parse_args()
    options.steps = {task: int(number) for task, number in (item.split("=") for item in options.steps)}
    return options


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    tool = os.path.join(options.build, "bin", "gradwire")
    try:
        codecs, version = choose_codecs(tool, options.codec, clean_environment(options.residuals))
        program = program_digest(options.build)
        if options.readme:
            convergence_report.check_block(options.readme)  # before hours of training, not behind them
        records, failures, interrupted = run_all(options, codecs, program)
        convergence_report.write(options, codecs, records, failures, version)
    except Failure as failure:
        print(f"convergence: {failure}", file=sys.stderr)
        return 2 if "--codec" in str(failure) else 1
    except ValueError as error:  # the README's markers
        print(f"convergence: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"convergence: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 130 if interrupted else 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
