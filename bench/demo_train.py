#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A plain data-parallel trainer: PyTorch and mpi4py, one all-reduce for each bucket of gradients.

  mpirun -np 2 /usr/bin/python3 demo_train.py --task lm --text FILE --seed 1 --out RESULT.json

It knows nothing of compression, and the demo runs this same file twice. /usr/bin/python3 by its full name: Debian's
python3-torch and python3-mpi4py belong to it, while `python3` on the PATH may be another build without them.
"""
import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before anything loads a BLAS

import argparse
import hashlib
import json
import math
import statistics
import time

import numpy
import torch
import torch.nn.functional as F
from mpi4py import MPI

from demo_tasks import TASKS

BUCKET_BYTES = 8 << 20
CURVE_POINTS = 8
SETTLING_STEPS = 5  # not timed: first touches of memory, connections


class Gradients:
    """All gradients in one buffer, last parameter first (the order in which backward makes them), cut at parameter
    borders into buckets of up to BUCKET_BYTES; a larger parameter is a bucket by itself. autograd adds into it; a bucket
    is summed over the ranks in place."""

    def __init__(self, model, comm):
        self.comm = comm
        parameters = list(model.parameters())[::-1]
        self.flat = torch.zeros(sum(p.numel() for p in parameters))
        self.buckets, begin, end = [], 0, 0
        for parameter in parameters:
            if end > begin and (end - begin + parameter.numel()) * 4 > BUCKET_BYTES:
                self.buckets.append(self.flat[begin:end].numpy())
                begin = end
            parameter.grad = self.flat[end : end + parameter.numel()].view_as(parameter)
            end += parameter.numel()
        self.buckets.append(self.flat[begin:end].numpy())

    def reduce(self):
        """Leaves the ranks' mean in place; returns the seconds spent in all-reduce."""
        begin = time.perf_counter()
        for bucket in self.buckets:
            self.comm.Allreduce(MPI.IN_PLACE, bucket)
        seconds = time.perf_counter() - begin
        self.flat /= self.comm.size
        return seconds

    def clip(self, limit):
        """Shortens a longer gradient to that norm; the same on every rank, as all hold the same sum."""
        norm = self.flat.norm().item()
        if norm > limit:
            self.flat *= limit / norm


def loss_of(model, x, y):
    scores = model(x)
    return scores, F.cross_entropy(scores.flatten(0, -2), y.flatten())


def evaluate(model, task, windows, comm):
    """Mean loss and accuracy on the validation data; every rank takes its share of the batches."""
    totals = numpy.zeros(3)  # loss, right answers, answers
    with torch.no_grad():
        for x, y in task.examination(windows)[comm.rank :: comm.size]:
            scores, loss = loss_of(model, x, y)
            right = (scores.argmax(-1) == y).sum().item()
            totals += (loss.item() * y.numel(), right, y.numel())
    comm.Allreduce(MPI.IN_PLACE, totals)
    return totals[0] / totals[2], totals[1] / totals[2]


def replicas_identical(model, comm):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return len(set(comm.allgather(digest.hexdigest()))) == 1


def learning_rate(task, step, steps):
    """Linear warm-up, then a cosine down to nothing."""
    return task.rate * min(1, (step + 1) / task.warm_up) * (0.5 + 0.5 * math.cos(math.pi * step / steps))


def progress(comm, line):
    if comm.rank == 0:
        print(line, flush=True)


def step_line(step, steps, loss, windows, step_seconds, reduce_seconds):
    """The loss on the way is of a few windows of the validation text, that at the end (the report's) of many."""
    on = f" ({windows} windows)" if windows else ""
    return (f"step {step}/{steps}  validation loss {loss:.4f}{on}  {1e3 * statistics.median(step_seconds):4.0f} ms a step"
            f"  {1e3 * statistics.median(reduce_seconds):4.0f} in all-reduce")


def train(task, seed, steps, comm):
    torch.manual_seed(seed)
    model = task.model()
    for parameter in model.parameters():
        comm.Bcast(parameter.detach().numpy(), root=0)
    gradients = Gradients(model, comm)
    optimizer = task.optimizer(model.parameters())
    shard = task.shard(comm.rank, comm.size)
    generator = torch.Generator().manual_seed(1000 * seed + comm.rank)
    history, curve, step_seconds, reduce_seconds = [], [], [], []
    report_steps = {max(1, steps * (i + 1) // CURVE_POINTS) for i in range(CURVE_POINTS)}
    for step in range(1, steps + 1):
        begin = time.perf_counter()
        optimizer.param_groups[0]["lr"] = learning_rate(task, step - 1, steps)
        gradients.flat.zero_()
        _, loss = loss_of(model, *task.draw(shard, generator))
        loss.backward()
        reduce_seconds.append(gradients.reduce())
        gradients.clip(task.clip)
        optimizer.step()
        step_seconds.append(time.perf_counter() - begin)
        mean_loss = numpy.array([loss.item()])
        comm.Allreduce(MPI.IN_PLACE, mean_loss)
        history.append(mean_loss[0] / comm.size)
        if step in report_steps:
            validation, _ = evaluate(model, task, task.curve_windows, comm)
            curve.append([step, validation])
            if step < steps:
                progress(comm, step_line(step, steps, validation, task.curve_windows, step_seconds, reduce_seconds))
    loss, accuracy = evaluate(model, task, task.final_windows, comm)
    progress(comm, step_line(steps, steps, loss, task.final_windows, step_seconds, reduce_seconds))
    return {
        "task": task.name, "title": task.title, "seed": seed, "steps": steps, "ranks": comm.size,
        "parameters": gradients.flat.numel(), "raw_bytes": steps * gradients.flat.numel() * 4,
        "baseline": task.baseline, "baseline_name": task.baseline_name,
        "loss": loss, "accuracy": accuracy, "identical": replicas_identical(model, comm),
        "step_ms": 1e3 * statistics.median(step_seconds[SETTLING_STEPS:]),
        "allreduce_ms": 1e3 * statistics.median(reduce_seconds[SETTLING_STEPS:]),
        "training_loss": history, "validation_curve": curve,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", choices=sorted(TASKS), required=True)
    parser.add_argument("--text", help="the text that lm learns")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, help="how many; each task has a default")
    parser.add_argument("--out", required=True, help="JSON file for the result")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    task = TASKS[arguments.task](arguments.text)
    result = train(task, arguments.seed, arguments.steps or task.steps, MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(result, file)


if __name__ == "__main__":
    main()
