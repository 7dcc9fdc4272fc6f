#!/usr/bin/env python3
"""Moves a legacy Megatron checkpoint to another layout beside `cp -r`, in turns.

    tools/bench/megatron_bench.py BIN DIR [--runs 3] [--cgroup]

BIN holds `reshard` and `ckpt`. The checkpoint has bfloat16 weights and the
state of a distributed optimizer, 4.5 GB, TP8 PP4 DP2, and goes to TP4 PP2 DP4.
Both are timed until what they wrote is on the disk, with the source in the page
cache and without. With --cgroup `reshard` runs in a memory cgroup of 160 MiB,
which counts the pages of files, too, and so holds up what is written.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import time

from reshard_bench import drop_cache, memory_cgroup, run

MODEL = [
    "--num-layers", "16", "--hidden-size", "1024", "--num-attention-heads",
    "16", "--seq-length", "1024", "--vocab-size", "50257", "--step", "100",
    "--use-distributed-optimizer"
]
MEGATRON = ["--to", "megatron", "--use-distributed-optimizer"]
SOURCE = ["--tp", "8", "--pp", "4", "--dp", "2", "--dtype", "bf16"]
TARGET = ["--tp", "4", "--pp", "2", "--dp", "4"]


def make_source(tools, directory):
    source = directory / "source"
    if source.exists():
        return source
    native = directory / "native"
    subprocess.run([tools / "ckpt", "synth", native, *MODEL], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([tools / "reshard", native, source, *MEGATRON, *SOURCE],
                   check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(native)
    return source


def read_all(source):
    # Piece by piece: what this process holds counts for those that it starts.
    for path in source.rglob("*.pt"):
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass


def timed(work, copy):
    """Seconds until the copy is on the disk, and what `work` gives."""
    os.sync()
    begin = time.monotonic()
    result = work()
    os.sync()
    seconds = time.monotonic() - begin
    shutil.rmtree(copy)
    return seconds, result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cgroup", action="store_true")
    args = parser.parse_args()
    source = make_source(args.bin, args.dir)
    copy = args.dir / "copy"
    cgroup = memory_cgroup() if args.cgroup else None
    command = [str(args.bin / "reshard"), str(source), str(copy), *MEGATRON,
               *TARGET]
    print(f"memory cgroup: {'yes' if cgroup else 'none'}")
    for cache in ("cold", "warm"):
        ratios, peaks, seconds = [], [], []
        for _ in range(args.runs):
            for is_ours in (False, True):
                drop_cache() if cache == "cold" else read_all(source)
                if is_ours:
                    took, (_, peak, _) = timed(lambda: run(command, cgroup),
                                               copy)
                    peaks.append(peak)
                else:
                    took, _ = timed(lambda: subprocess.run(
                        ["cp", "-r", source, copy], check=True), copy)
                seconds.append(took)
            ratios.append(seconds[-1] / seconds[-2])
        print(f"{cache}: cp -r {statistics.median(seconds[0::2]):.2f} s, "
              f"reshard {statistics.median(seconds[1::2]):.2f} s, ratios " +
              " ".join(f"{ratio:.2f}" for ratio in ratios) +
              f", at most {max(peaks) >> 20} MiB resident")


main()
