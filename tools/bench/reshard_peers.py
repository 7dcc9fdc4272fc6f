#!/usr/bin/env python3
"""Reshards beside PyTorch's and DeepSpeed's ways, taking turns.

    python3 -m venv venv && venv/bin/pip install torch numpy setuptools
    DS_BUILD_OPS=0 venv/bin/pip install --no-build-isolation deepspeed
    venv/bin/python tools/bench/reshard_peers.py BIN DIR [--runs 5]

BIN holds `reshard` and `ckpt`. All hold the same tensors, fp32 master weights
and Adam moments of a GPT-2: `reshard` takes them from TP4 PP2 DP2 to TP2 PP4
DP4, PyTorch's distributed checkpoint loads them into another sharding and saves
them (peer_dcp.py), ds_to_universal converts them (peer_deepspeed.py). Times
include the sync of what was written, and of `reshard` its start and its
verification; of the peers they leave out the start of Python, the imports and
the making of the state that is loaded into. The page cache is dropped before
each where that is allowed. What the peers wrote the first time is read back
and compared. A peer that is not installed is skipped.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import importlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

import reshard_bench

WIDTH = 1024
VOCABULARY = 50257
POSITIONS = 1024
LAYOUT = ["--tp", "2", "--pp", "4", "--dp", "4"]
PEERS = {
    "DCP load + save": ("torch", "peer_dcp", 2.5),
    "ds_to_universal": ("deepspeed", "peer_deepspeed", 10),
}


def num_layers(total_bytes):
    """Layers for about that many bytes, four pipeline stages at least."""
    parameters = total_bytes / 12 - (VOCABULARY + POSITIONS) * WIDTH
    return max(4, round(parameters / (12 * WIDTH**2) / 4) * 4)


def make_source(bench, total_bytes):
    subprocess.run([
        str(bench.binaries / "ckpt"), "synth", str(bench.source),
        "--num-layers", str(num_layers(total_bytes)),
        "--hidden-size", str(WIDTH), "--num-attention-heads", "16",
        "--seq-length", str(POSITIONS), "--vocab-size", str(VOCABULARY),
        "--use-distributed-optimizer", *reshard_bench.SOURCE
    ], check=True)


def list_tensors(bench):
    """Name, role and shape of everything that the checkpoint holds."""
    shown = subprocess.run(
        [str(bench.binaries / "ckpt"), "show", "--json", str(bench.source)],
        check=True, stdout=subprocess.PIPE).stdout
    return [(tensor["name"], tensor["role"], tuple(tensor["shape"]))
            for tensor in json.loads(shown)["tensors"]]


def installed_peers():
    peers = {}
    for what, (library, module, _) in PEERS.items():
        try:
            version = importlib.import_module(library).__version__
            peers[what] = importlib.import_module(module)
            print(f"{what}: {library} {version}")
        except ImportError as error:
            print(f"{what}: skipped, {library} is not usable here: {error}")
    return peers


def files_bytes(directory):
    return sum(path.stat().st_size for path in directory.rglob("*")
               if path.is_file())


def report(bench, sources, runs):
    medians = {what: statistics.median(all_)
               for what, all_ in bench.seconds.items()}
    print(f"medians of {runs}")
    for what, seconds in medians.items():
        line = f"{what:16} {files_bytes(sources[what]):12} bytes"
        line += f" {seconds:8.2f} s"
        if what in PEERS:
            turns = [peer / ours for peer, ours in
                     zip(bench.seconds[what], bench.seconds["reshard"])]
            line += (f"  {seconds / medians['reshard']:6.2f} x reshard "
                     f"({min(turns):.2f} to {max(turns):.2f}), "
                     f"target {PEERS[what][2]}")
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binaries", type=pathlib.Path, metavar="BIN")
    parser.add_argument("directory", type=pathlib.Path, metavar="DIR",
                        help="where to write; must not exist")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--bytes", type=float, default=2e9,
                        help="size of the checkpoint, about (2e9)")
    args = parser.parse_args()
    args.directory.mkdir(parents=True)
    bench = reshard_bench.Bench(args.binaries, args.directory)
    make_source(bench, args.bytes)
    tensors = list_tensors(bench)
    sources = {"reshard": bench.source}
    peers = installed_peers()
    for what, peer in peers.items():
        sources[what] = args.directory / peer.__name__
        peer.make(sources[what], tensors)
    if not reshard_bench.drop_cache():
        print("the page cache cannot be dropped: sources may be read from it")
    total_bytes = files_bytes(bench.source)
    for i in range(args.runs):
        bench.reshard("reshard", LAYOUT, total_bytes, cold=True)
        for what, peer in peers.items():
            bench.time(what, lambda peer=peer, what=what: (peer.reshard(
                sources[what], bench.target, tensors),), cold=True)
            if i == 0:
                peer.check(bench.target, tensors)
                print(f"{what}: {len(tensors)} tensors are what was saved",
                      file=sys.stderr)
    report(bench, sources, args.runs)
    shutil.rmtree(args.directory)


if __name__ == "__main__":
    main()
