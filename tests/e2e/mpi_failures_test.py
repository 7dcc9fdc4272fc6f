"""`mpirun -np N train` where something is wrong with one rank, or with all.

SPDX-License-Identifier: Apache-2.0
"""
import os
import resource
import signal
import sys
import time
import unittest

from mpi_programs import (MPIRUN, finish, mpi_command, mpi_run, ranks_of,
                          start)
from programs import GPT, RUN, FolderTest, command

# The command of one process, where rank 1 does another than the rest.
RANK_1 = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then {}; fi; exec "$@"'


def mpi_run_unlike(processes, rank_1_does, *args):
    return finish(start([*MPIRUN, str(processes), "sh", "-c",
                         RANK_1.format(rank_1_does), "sh",
                         *command("train", *args)]))


class MpiFailuresTest(FolderTest):

    def fails(self, done, code, *says):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr.count("error: "), 1, done.stderr)
        for words in says:
            self.assertIn(words, done.stderr)

    def start_logging(self, processes, *args):
        """A job that has ended its first iteration, and its ranks' ids."""
        log = self.path("log")
        job = start(mpi_command(processes, *args, "--log-jsonl", log))
        while not os.path.exists(log) or os.path.getsize(log) == 0:
            self.assertIsNone(job.poll())
            time.sleep(0.02)
        return job, ranks_of(job)

    def test_the_layout_has_a_rank_for_each_process(self):
        base = [*GPT, *RUN, "--train-iters", 1]
        self.fails(mpi_run(2, *base, "--tp", 2, "--dp", 2), 2,
                   "TP 2 x PP 1 x DP 2 is 4 ranks, but 2 processes")
        self.fails(mpi_run(3, *base, "--tp", 2), 2,
                   "3 processes were launched", "no multiple of TP 2 x PP 1")

    def test_one_process_speaks_for_all(self):
        self.fails(mpi_run(3, "--no-such-flag"), 2, "--no-such-flag")
        done = mpi_run(3, "--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("shardshift"), 1, done.stdout)

    def test_b144_b149_one_rank_that_is_refused_ends_all(self):
        base = [*GPT, *RUN, "--train-iters", 10**6]
        self.fails(mpi_run_unlike(4, 'set -- "$@" --data-path /nowhere', *base),
                   2, "error: rank 1: give either")
        self.fails(mpi_run_unlike(4, 'set -- "$@" --seed 77', *base), 2,
                   "error: rank 1: has other flags")
        self.fails(mpi_run_unlike(4, 'set -- "$@" --no-such-flag', *base), 1,
                   "error: rank 1: ended with exit code 2")
        self.fails(mpi_run(4, *base, "--micro-batch-size", 3), 2,
                   "error: --")

    def test_b144_one_rank_whose_disk_fails_ends_all(self):
        for more in ([], ["--async-save"]):
            save = self.path("run" + "".join(more))
            job, ranks = self.start_logging(
                4, *GPT, *RUN, "--train-iters", 10**6, "--save", save,
                "--save-interval", 5, "--use-distributed-optimizer", *more)
            resource.prlimit(ranks[1], resource.RLIMIT_FSIZE, (8192, 8192))
            self.fails(finish(job), 1, "error: rank 1: ", "part-00001",
                       "File too large")
            os.remove(self.path("log"))

    def test_b144_a_save_that_cannot_begin_ends_all(self):
        save = self.path("run")
        os.makedirs(os.path.join(save, "step-00000002.partial", "mine"))
        self.fails(mpi_run(4, *GPT, *RUN, "--train-iters", 2, "--save", save),
                   1, "error: rank 0: ", "step-00000002.partial")

    def test_a_killed_rank_ends_all(self):
        job, ranks = self.start_logging(4, *GPT, *RUN, "--tp", 2,
                                        "--train-iters", 10**6)
        os.kill(ranks[-1], signal.SIGKILL)
        began = time.monotonic()
        done = finish(job)
        self.assertLess(time.monotonic() - began, 15)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("signal 9", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
