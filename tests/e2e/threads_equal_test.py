"""The number of threads that compute changes no bit of a run.

SPDX-License-Identifier: Apache-2.0
"""
import sys
import unittest

from programs import FolderTest, read_log, succeed

# Large enough for its kernels to be shared out.
MODEL = ("--num-layers 1 --hidden-size 192 --num-attention-heads 4 "
         "--seq-length 128 --vocab-size 1000 --global-batch-size 4 "
         "--micro-batch-size 2 --lr 1e-2 --mock-data --train-iters 3").split()
LLAMA = ("--num-query-groups 2 --normalization RMSNorm --swiglu "
         "--position-embedding-type rope --disable-bias-linear "
         "--hidden-dropout 0.1 "
         "--untie-embeddings-and-output-weights").split()


class ThreadsEqualTest(FolderTest):

    def test_any_number_of_threads(self):
        for family in ([], LLAMA):
            logs = []
            for number, layout in ((1, 1), (2, 1), (3, 1), (5, 1), (2, 2)):
                run = self.path(f"{len(family)}-{number}-{layout}")
                succeed("train", *MODEL, *family, "--threads-per-rank", number,
                        "--tp", layout, "--save", run, "--log-jsonl",
                        run + ".jsonl")
                logs.append(read_log(run + ".jsonl"))
                succeed("ckpt", "diff", run, self.path(f"{len(family)}-1-1"))
            self.assertEqual(len(logs[0]), 3)
            self.assertEqual(logs, [logs[0]] * 5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
