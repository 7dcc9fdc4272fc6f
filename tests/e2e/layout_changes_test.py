"""A run that goes on in another layout every ten steps, through eight of them,
has the bits of one that never changes.

SPDX-License-Identifier: Apache-2.0
"""
import sys
import unittest

from mpi_programs import mpi_run
from programs import GPT, LLAMA, RUN, FolderTest, read_log, succeed

STEPS_EACH = 10
MIXTURE = LLAMA + ("--num-experts 4 --moe-ffn-hidden-size 32 "
                   "--moe-aux-loss-coeff 0.01 --moe-z-loss-coeff 0.001").split()

DENSE_LAYOUTS = [
    "--tp 1 --dp 1",
    "--tp 2 --dp 2 --sequence-parallel --use-distributed-optimizer",
    "--tp 1 --dp 4 --micro-batch-size 4 --no-use-distributed-optimizer "
    "--no-sequence-parallel",
    "--tp 2 --dp 1 --pp 2 --recompute-granularity selective",
    "--tp 1 --pp 2 --dp 2 --num-layers-per-virtual-pipeline-stage 1 "
    "--micro-batch-size 2",
    "--tp 4 --pp 1 --dp 2 --sequence-parallel --use-distributed-optimizer "
    "--recompute-granularity full --recompute-method uniform "
    "--recompute-num-layers 2",
    "--tp 1 --dp 8 --micro-batch-size 1",
    "--tp 2 --pp 2 --dp 2",
]
MIXTURE_LAYOUTS = [
    "--tp 1 --dp 1",
    "--tp 2 --dp 2 --ep 4 --etp 1 --sequence-parallel "
    "--use-distributed-optimizer",
    "--tp 1 --dp 4 --ep 2 --etp 2 --micro-batch-size 4",
    "--tp 2 --dp 1 --pp 2 --ep 1 --etp 2 --recompute-granularity selective",
    "--tp 1 --pp 2 --dp 2 --ep 2 --etp 1 "
    "--num-layers-per-virtual-pipeline-stage 1 --micro-batch-size 2 "
    "--no-use-distributed-optimizer",
    "--tp 4 --pp 1 --dp 2 --ep 2 --etp 4 --use-distributed-optimizer "
    "--recompute-granularity full --recompute-method uniform "
    "--recompute-num-layers 2",
    "--tp 1 --dp 8 --ep 4 --etp 1 --micro-batch-size 1",
    "--tp 2 --pp 2 --dp 2 --ep 2 --etp 2",
]


class LayoutChangesTest(FolderTest):

    def goes_through(self, model, layouts):
        steps = STEPS_EACH * len(layouts)
        succeed("train", *model, *RUN, "--train-iters", steps,
                "--save", self.path("whole"), "--log-jsonl",
                self.path("expected"))
        for number, layout in enumerate(layouts):
            start = ([*model, *RUN] if number == 0 else
                     ["--mock-data", "--load", self.path("run")])
            succeed("train", *start, *layout.split(), "--save",
                    self.path("run"), "--train-iters",
                    STEPS_EACH * (number + 1), "--log-jsonl", self.path("log"))
        expected = read_log(self.path("expected"))
        self.assertEqual(len(expected), steps)
        self.assertEqual(read_log(self.path("log")), expected)
        succeed("ckpt", "diff", self.path("whole"), self.path("run"))

    def test_gpt(self):
        self.goes_through(GPT, DENSE_LAYOUTS)

    def test_llama(self):
        self.goes_through(LLAMA, DENSE_LAYOUTS)

    def test_mixture(self):
        self.goes_through(MIXTURE, MIXTURE_LAYOUTS)

    def test_mixture_as_processes(self):
        succeed("train", *MIXTURE, *RUN, "--train-iters", 3, "--log-jsonl",
                self.path("expected"))
        for processes, layout in (
                (2, "--ep 2"), (4, "--tp 2 --sequence-parallel --ep 4 --etp 1"),
                (4, "--pp 2 --etp 2 --use-distributed-optimizer")):
            log = self.path(layout)
            done = mpi_run(processes, *MIXTURE, *RUN, *layout.split(),
                           "--train-iters", 3, "--log-jsonl", log)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(read_log(log), read_log(self.path("expected")))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
