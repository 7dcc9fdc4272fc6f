#!/usr/bin/env python3
"""How much sooner a rank is done with more threads to compute.

Runs `train` on one rank with each number of threads in turn, some times over.
Gives the median seconds of an iteration and their ratio to those of one thread
in the same turn, and of the rank's CPU time the share of its busiest thread,
below which the ratio cannot be.

  tools/bench/threads_bench.py build/bin/train --threads 1 2 --turns 5
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

MODEL = (
    "--num-layers 4 --hidden-size 512 --num-attention-heads 8 "
    "--vocab-size 4096 --seq-length 256 --micro-batch-size 4 "
    "--global-batch-size 8 --mock-data --lr 1e-4"
).split()


def cpu_ticks(pid):
    """Of each thread of a process, as far as they are there."""
    ticks = {}
    for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks[stat.parent.name] = int(fields[11]) + int(fields[12])
    return ticks


def measure(train, threads, iterations):
    """Seconds of an iteration, and the busiest thread's share."""
    with tempfile.NamedTemporaryFile() as log:
        with subprocess.Popen(
            [train, *MODEL, "--train-iters", str(iterations),
             "--threads-per-rank", str(threads), "--log-jsonl", log.name],
            stderr=subprocess.DEVNULL,
        ) as run:
            ticks = {}
            while run.poll() is None:
                ticks |= cpu_ticks(run.pid)
                time.sleep(0.02)
        if run.returncode != 0:
            raise SystemExit(f"error: train gave {run.returncode}")
        # The first iteration touches the memory.
        lines = [json.loads(line) for line in open(log.name, encoding="utf-8")]
    seconds = [line["elapsed_ms"] / 1e3 for line in lines[1:]]
    return statistics.median(seconds), max(ticks.values()) / sum(ticks.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("train")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=6)
    args = parser.parse_args()
    turns = [
        {threads: measure(args.train, threads, args.iterations)
         for threads in args.threads}
        for _ in range(args.turns)
    ]
    print("threads  seconds  ratio  (least to greatest)  busiest thread")
    first = args.threads[0]
    for threads in args.threads:
        seconds = statistics.median(turn[threads][0] for turn in turns)
        ratios = sorted(turn[threads][0] / turn[first][0] for turn in turns)
        share = statistics.median(turn[threads][1] for turn in turns)
        print(f"{threads:7}  {seconds:7.3f}  {statistics.median(ratios):5.2f}  "
              f"({ratios[0]:.2f} to {ratios[-1]:.2f})  {share:18.2f}")


if __name__ == "__main__":
    main()
