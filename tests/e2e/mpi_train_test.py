"""`mpirun -np N train`: a process for each rank, the bits of rank threads.

SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess
import sys
import unittest

from mpi_programs import finish, mpi_command, mpi_run, start
from programs import GPT, LLAMA, RUN, FolderTest, read_log, run, succeed

class MpiTrainTest(FolderTest):

    def threads_log(self, model, iterations):
        log = self.path("threads")
        succeed("train", *model, *RUN, "--train-iters", iterations,
                "--log-jsonl", log)
        return read_log(log)

    def test_the_bits_are_those_of_threads(self):
        for model, runs in (
                (GPT, [(2, "--tp 2"), (8, "--tp 2 --pp 2 --dp 2"),
                       (4, "--pp 4")]),
                (LLAMA, [(4, "--tp 4"),
                         (8, "--tp 2 --pp 2 --use-distributed-optimizer")])):
            expected = self.threads_log(model, 3)
            for processes, layout in runs:
                log = self.path(layout)
                done = mpi_run(processes, *model, *RUN, *layout.split(),
                               "--train-iters", 3, "--log-jsonl", log)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"{processes} rank processes", done.stderr)
                self.assertEqual(done.stderr.count("numerics:"), 1)
                self.assertEqual(read_log(log), expected, layout)
            os.remove(self.path("threads"))

    def test_a_run_moves_between_processes_and_threads(self):
        whole, moved = self.path("whole"), self.path("moved")
        log = self.path("log")
        succeed("train", *GPT, *RUN, "--train-iters", 6, "--save", whole,
                "--log-jsonl", self.path("expected"))
        to = ["--save", moved, "--log-jsonl", log]
        first = mpi_run(4, *GPT, *RUN, *to, "--tp", 2, "--train-iters", 2,
                        "--use-distributed-optimizer", "--async-save",
                        "--save-interval", 1)
        self.assertEqual(first.returncode, 0, first.stderr)
        again = ["--mock-data", "--load", moved, *to]
        succeed("train", *again, "--tp", 1, "--pp", 2, "--dp", 1,
                "--train-iters", 4)
        last = mpi_run(8, *again, "--tp", 4, "--pp", 1, "--train-iters", 6)
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertIn("--data-parallel-size is 2, the checkpoint's run has 1",
                      last.stderr)
        self.assertEqual(read_log(log), read_log(self.path("expected")))
        succeed("ckpt", "diff", whole, moved)
        succeed("ckpt", "verify", "--deep", moved)
        done = mpi_run(2, *again, "--tp", 1, "--train-iters", 6)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("nothing to do"), 1, done.stderr)

    # B149: nothing that jobs of one machine could share by mistake.
    def test_b149_two_jobs_do_not_mix(self):
        expected = self.threads_log(GPT, 5)
        jobs = [start(mpi_command(2, *GPT, *RUN, "--tp", tp, "--train-iters", 5,
                                  "--log-jsonl", self.path(f"log{tp}")))
                for tp in (1, 2)]
        for job in jobs:
            done = finish(job)
            self.assertEqual(done.returncode, 0, done.stderr)
        for tp in (1, 2):
            self.assertEqual(read_log(self.path(f"log{tp}")), expected)

    # B147: Open MPI mostly says what it found and needed, and goes another way.
    def test_b147_little_shared_memory_is_enough(self):
        expected = self.threads_log(GPT, 2)
        small = ["unshare", "--map-root-user", "--mount", "sh", "-c",
                 'mount -t tmpfs -o size=64k tmpfs /dev/shm && "$@" && '
                 '! ls -A /dev/shm | grep .', "sh"]
        if subprocess.run([*small, "true"], check=False).returncode != 0:
            self.skipTest("no file systems of its own may be mounted here")
        done = finish(start([*small, *mpi_command(
            2, *GPT, *RUN, "--tp", 2, "--train-iters", 2, "--log-jsonl",
            self.path("log"))]))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(read_log(self.path("log")), expected)

    def test_a_plain_run_loads_no_mpi(self):
        trace = {"LD_DEBUG": "files"}
        args = [*GPT, *RUN, "--tp", 2, "--train-iters", 1]
        plain = run("train", *args, env=trace)
        self.assertEqual(plain.returncode, 0)
        self.assertNotIn("mpi", plain.stderr)
        alone = run("train", *args, env={**trace, "PMIX_RANK": "0"})
        self.assertIn("libmpi", alone.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
