"""Every two features together, on models of two layers: a run that saves is
killed, and goes on in another layout with another micro-batch size, with the
bits of a run on one rank that was left alone.

SPDX-License-Identifier: Apache-2.0
"""
import itertools
import os
import random
import sys
import time
import unittest
from subprocess import PIPE, Popen

from programs import FolderTest, command, read_log, run, succeed

BATCH = 8
BASE = (f"--num-layers 2 --hidden-size 16 --ffn-hidden-size 32 "
        f"--num-attention-heads 4 --vocab-size 29 --seq-length 8 "
        f"--make-vocab-size-divisible-by 4 --global-batch-size {BATCH} "
        f"--lr 1e-2 --lr-decay-iters 1000 --mock-data").split()

# Of each feature its choices, as flags.
MODEL = {
    "norm": ["--normalization LayerNorm", "--normalization RMSNorm"],
    "activation": ["", "--swiglu"],
    "position": ["", "--position-embedding-type rope",
                 "--position-embedding-type rope --rotary-interleaved "
                 "--window-size 4,0"],
    "output": ["", "--untie-embeddings-and-output-weights"],
    "attention": ["", "--num-query-groups 2 --qk-layernorm",
                  "--disable-bias-linear --add-qkv-bias"],
    "dropout": ["", "--attention-dropout 0.1 --hidden-dropout 0.1"],
    "experts": ["", "--num-experts 4 --moe-ffn-hidden-size 16 "
                "--disable-bias-linear",
                "--num-experts 2 --moe-shared-expert-intermediate-size 16 "
                "--moe-shared-expert-gate --moe-router-pre-softmax "
                "--moe-aux-loss-coeff 0.1 --moe-z-loss-coeff 0.01 "
                "--disable-bias-linear"],
    "precision": ["--fp32", "--bf16", "--fp16 --initial-loss-scale 65536"],
}
LAYOUT = {
    "tensor": ["--tp 1", "--tp 2"],
    "stages": ["--pp 1 --pipeline-model-parallel-layout EttL",
               "--pp 2 --pipeline-model-parallel-layout Et|tL",
               "--pp 2 --pipeline-model-parallel-layout Et||t|L"],
    "data": ["--dp 1", "--dp 2"],
    "positions": ["--no-sequence-parallel", "--sequence-parallel"],
    "expert ranks": ["", "--ep 1 --etp 1", "--ep 2 --etp 1", "--ep 1 --etp 2",
                     "--ep 2 --etp 2"],
    "optimizer": ["--no-use-distributed-optimizer",
                  "--use-distributed-optimizer"],
    "recompute": ["--recompute-granularity none",
                  "--recompute-granularity selective",
                  "--recompute-granularity full --recompute-method uniform "
                  "--recompute-num-layers 1",
                  "--recompute-granularity full --recompute-method block "
                  "--recompute-num-layers 1"],
    "micro-batch": ["--micro-batch-size 1", "--micro-batch-size 2"],
}
SAVES = {"save": ["", "--async-save"]}
FEATURES = {**MODEL, **LAYOUT, **SAVES}


def is_possible(case):
    """Experts, and only they, are handed out to ranks of a stage; on
    tensor-parallel ones they want sequence parallelism."""
    if not case["experts"] or not case["expert ranks"]:
        return case["experts"] == case["expert ranks"]
    tp, dp = (int(case[name].split()[1]) for name in ("tensor", "data"))
    ep, etp = map(int, case["expert ranks"].split()[1::2])
    return (tp * dp % (ep * etp) == 0 and ep * etp % tp == 0 and
            (tp == 1 or case["positions"] == "--sequence-parallel"))


def pairs(case):
    return set(itertools.combinations(case.items(), 2))


def cases():
    """A few, in which every two choices that are possible together meet."""
    generator = random.Random(1)
    made = ({name: generator.choice(choices) for name, choices in
             FEATURES.items()} for _ in range(2000))
    pool = [(case, pairs(case)) for case in made if is_possible(case)]
    left = set().union(*(both for _, both in pool))
    while left:
        case, both = max(pool, key=lambda entry: len(entry[1] & left))
        left -= both
        yield case


def flags(case, features):
    return " ".join(case[name] for name in features).split()


class SmokeTest(FolderTest):

    def kill_after_saves(self, args, log):
        """Runs on for ever, and is killed once it has ended two iterations."""
        with Popen(command("train", *args, "--train-iters", 10**6,
                           "--save-interval", 1, "--log-jsonl", log),
                   stderr=PIPE, text=True) as job:
            while max(read_log(log), default=0) < 2:
                if job.poll() is not None:
                    self.fail(job.stderr.read())
                time.sleep(0.005)
            job.kill()

    def goes_on(self, case, other):
        save, log, whole = (self.path(name) for name in
                            ("run", "log", "whole"))
        model = [*BASE, *flags(case, MODEL)]
        start = [*flags(case, LAYOUT), *flags(case, SAVES), "--save", save]
        self.kill_after_saves([*model, *start], log)
        end = max(read_log(log)) + 2
        again = ["--mock-data", "--load", save, "--load-if-present", *model,
                 *flags(other, LAYOUT), "--save", save]
        succeed("train", *again, "--train-iters", end, "--log-jsonl", log)
        succeed("train", *model, "--micro-batch-size", 1, "--train-iters", end,
                "--log-jsonl", whole, "--save", whole + "-run")
        found, expected = read_log(log), read_log(whole)
        self.assertEqual(sorted(found), sorted(expected))
        for iteration, lines in found.items():
            self.assertEqual(set(lines), set(expected[iteration]))
        diff = run("ckpt", "diff", save, whole + "-run")
        self.assertEqual(diff.returncode, 0, diff.stdout)

    def test_every_two_features_together(self):
        all_cases = list(cases())
        print(f"{len(all_cases)} cases")
        base = self.folder
        for number, case in enumerate(all_cases):
            # The layout of another case that is possible for this model.
            other = next(
                there for there in (
                    {**case, **{name: that[name] for name in LAYOUT}}
                    for that in all_cases[number - 1::-1] + all_cases[::-1])
                if is_possible(there) and
                there["micro-batch"] != case["micro-batch"])
            self.folder = os.path.join(base, str(number))
            os.mkdir(self.folder)
            with self.subTest(case=case, other=other):
                self.goes_on(case, other)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
