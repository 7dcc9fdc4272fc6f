"""The programs under test, and the tiny runs that they are tested on.

Every script gets the folder of the programs as its first argument.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import h5py

BIN = sys.argv[1]

GPT = ("--num-layers 4 --hidden-size 32 --ffn-hidden-size 64 "
       "--num-attention-heads 8 --vocab-size 61 "
       "--make-vocab-size-divisible-by 8 --seq-length 16").split()
LLAMA = GPT + ("--num-query-groups 2 --normalization RMSNorm --swiglu "
               "--position-embedding-type rope --disable-bias-linear "
               "--untie-embeddings-and-output-weights").split()
RUN = ("--global-batch-size 16 --micro-batch-size 1 --lr 1e-2 "
       "--lr-decay-iters 1000 --mock-data").split()
STEP_NAME = re.compile(r"step-\d{8}")


class FolderTest(unittest.TestCase):
    """Each test has a folder of its own, which goes with it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)


def command(program, *args):
    return [os.path.join(BIN, program), *map(str, args)]


def run(program, *args, env=None):
    """Runs a program to its end; gives code, stdout and stderr."""
    return subprocess.run(command(program, *args), capture_output=True,
                          check=False, text=True,
                          env=None if env is None else {**os.environ, **env})


def succeed(program, *args, env=None):
    done = run(program, *args, env=env)
    assert done.returncode == 0, (args, done.stderr)
    return done


def layouts():
    """TP {1,2,4} x PP {1,2,4} x DP {1,2,4,8} up to 8 ranks, each with and
    without the distributed optimizer, as flags."""
    for optimizer in ([], ["--use-distributed-optimizer"]):
        for tp in (1, 2, 4):
            for pp in (1, 2, 4):
                for dp in (1, 2, 4, 8):
                    if tp * pp * dp <= 8:
                        yield ["--tp", str(tp), "--pp", str(pp), "--dp",
                               str(dp), *optimizer]


def read_log(path):
    """iteration -> the bits of each of its lines."""
    log = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            # A last line may be on its way.
            whole = [line for line in file if line.endswith("\n")]
            for line in map(json.loads, whole):
                log.setdefault(line["iteration"], []).append(
                    (line["lm_loss_bits"], line["grad_norm_bits"]))
    return log


def payload_offset(part):
    """Where the payload of some fragment of a part file begins."""
    offsets = []
    with h5py.File(part, "r") as file:
        file["fragments"].visititems(
            lambda _, node: offsets.append(node.id.get_offset())
            if isinstance(node, h5py.Dataset) else None)
    return offsets[len(offsets) // 2]
