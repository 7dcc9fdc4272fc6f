#!/usr/bin/env python3
"""What asynchronous saves cost a training run: its stalls and its rate.

Runs `train` on one rank thread, which leaves the other cores to the saves,
with a save every few iterations. Gives the stall of a save beside a plain copy
of as many bytes by one thread, and by how much the iterations are slower while
a save is being written than after it.

  tools/bench/async_bench.py build/bin/train DIR
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import pathlib
import re
import shutil
import statistics
import subprocess
import time

import numpy

MODEL = (
    "--num-layers 12 --hidden-size 1024 --num-attention-heads 16 "
    "--vocab-size 8192 --seq-length 32 --micro-batch-size 1 "
    "--global-batch-size 1 --mock-data --lr 1e-4 --log-interval 1"
).split()
SAVED = re.compile(r"saved .* in ([0-9.]+) s.*waited ([0-9.]+) s for the copy")
MEMORY = re.compile(r"asynchronous saves: (\d+) bytes")


def events(command):
    """Yields (time, line) as the run prints."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        for line in run.stdout:
            yield time.monotonic(), line
    if run.returncode != 0:
        raise SystemExit(f"error: {' '.join(command)} gave {run.returncode}")


def copy_seconds(num_bytes):
    """Of a copy between touched memory, by one thread; the best of five."""
    source = numpy.ones(num_bytes // 8)
    target = numpy.ones(num_bytes // 8)
    seconds = []
    for _ in range(5):
        begin = time.monotonic()
        numpy.copyto(target, source)
        seconds.append(time.monotonic() - begin)
    return min(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--saves", type=int, default=6)
    parser.add_argument("--interval", type=int, default=10)
    args = parser.parse_args()

    run_dir = args.directory / "async-bench-run"
    shutil.rmtree(run_dir, ignore_errors=True)
    command = [args.train, *MODEL, "--async-save", "--keep-last", "1"]
    command += ["--save", str(run_dir), "--save-interval", str(args.interval)]
    command += ["--train-iters", str(args.interval * (args.saves + 1))]

    num_bytes = 0
    ends = []  # of iterations
    saves = []  # end, seconds, stall
    for when, line in events(command):
        if match := MEMORY.search(line):
            num_bytes = int(match[1])
        elif match := SAVED.search(line):
            saves.append((when, float(match[1]), float(match[2])))
        elif " iteration " in line:
            ends.append(when)
    shutil.rmtree(run_dir)
    copy = copy_seconds(num_bytes)

    idle = []  # iterations that no save touches
    losses = []
    for i, (_, seconds, stall) in enumerate(saves[: args.saves]):
        # The lines from the one before the save to the last before the next.
        times = ends[args.interval * (i + 1) - 1 : args.interval * (i + 2)]
        took = [b - a for a, b in zip(times, times[1:])]
        busy = int(seconds / statistics.median(took)) + 2
        idle += took[busy:]
        losses.append((sum(took[:busy]) - stall, busy, seconds))
    step = statistics.median(idle)
    loss = statistics.median(
        (total - busy * step) / seconds for total, busy, seconds in losses
    )
    stall = statistics.median(stall for _, _, stall in saves)
    drain = statistics.median(seconds for _, seconds, _ in saves)
    print(f"state {num_bytes / 1e9:.2f} GB, iteration {step:.3f} s")
    print(f"save {drain:.2f} s; training is {100 * loss:.1f}% slower meanwhile")
    print(f"stall {stall:.3f} s, {stall / copy:.2f} x a copy ({copy:.3f} s)")


if __name__ == "__main__":
    main()
