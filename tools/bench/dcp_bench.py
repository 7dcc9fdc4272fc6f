#!/usr/bin/env python3
"""Times PyTorch's distributed checkpoint beside ckpt_bench, taking turns.

Both hold the same fp32 state: matrices [4096, 4096] and vectors [4096], cut
into rows over four ranks, loaded as rows and as columns. PyTorch's ranks are
processes with the gloo backend. The page cache is dropped before every load
where that is allowed (root). Wants a Python with torch:

  python3 -m venv venv && venv/bin/pip install torch numpy
  venv/bin/python tools/bench/dcp_bench.py build/bin/ckpt_bench DIR
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import shutil
import statistics
import subprocess
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import reshard_bench

WIDTH = 4096
RANKS = 4


def make_state(mesh, matrices, columns):
    """The state dict of this rank, in touched memory."""
    rank = dist.get_rank()
    part = WIDTH // RANKS
    state = {}
    for i in range(matrices):
        dim = 1 if columns else 0
        shape = (WIDTH, part) if columns else (part, WIDTH)
        state[f"w{i}"] = DTensor.from_local(
            torch.full(shape, float(i + rank)).normal_(),
            mesh,
            [Shard(dim)],
            run_check=False,
        )
        state[f"b{i}"] = DTensor.from_local(
            torch.ones(part), mesh, [Shard(0)], run_check=False
        )
    return state


def drop_caches():
    if dist.get_rank() == 0:
        os.sync()
        reshard_bench.drop_cache()
    dist.barrier()


def timed(work):
    dist.barrier()
    begin = time.perf_counter()
    work()
    dist.barrier()
    return time.perf_counter() - begin


def one_run(args, rows, columns, seconds):
    path = os.path.join(args.directory, "bench-dcp")
    if dist.get_rank() == 0:
        shutil.rmtree(path, ignore_errors=True)
        out = subprocess.run(
            [args.ckpt_bench, args.directory, "--json", "--runs", "1"]
            + ["--matrices", str(args.matrices), "--ranks", str(RANKS)],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ).stdout
        for what, times in json.loads(out)["seconds"].items():
            seconds.setdefault(what, []).extend(times)
    dist.barrier()

    def note(what, value):
        seconds.setdefault(what, []).append(value)

    note("dcp save", timed(lambda: dcp.save(rows, checkpoint_id=path)))
    drop_caches()
    note("dcp load same", timed(lambda: dcp.load(rows, checkpoint_id=path)))
    drop_caches()
    note("dcp load other", timed(lambda: dcp.load(columns, checkpoint_id=path)))
    drop_caches()
    if dist.get_rank() == 0:
        shutil.rmtree(path, ignore_errors=True)


def report(seconds):
    medians = {what: statistics.median(all_) for what, all_ in seconds.items()}
    for what, median in medians.items():
        print(f"{what:16s} {median:7.3f} s")
    for what in ("save", "load same", "load other"):
        ratio = medians[f"dcp {what}"] / medians[what]
        print(f"{what}: {ratio:.2f} times as fast as torch {torch.__version__}")


def start_rank(rank, port):
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)


def rank_main(rank, args):
    start_rank(rank, args.port)
    mesh = init_device_mesh("cpu", (RANKS,))
    rows = make_state(mesh, args.matrices, columns=False)
    columns = make_state(mesh, args.matrices, columns=True)
    seconds = {}
    for _ in range(args.runs):
        one_run(args, rows, columns, seconds)
    if rank == 0:
        report(seconds)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ckpt_bench", help="the built program")
    parser.add_argument("directory", help="where to write")
    parser.add_argument("--matrices", type=int, default=32)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--port", type=int, default=29611)
    args = parser.parse_args()
    mp.spawn(rank_main, (args,), nprocs=RANKS)


if __name__ == "__main__":
    main()
