"""A run of `train` that a test watches and disturbs, on a disk that may be slow.

Scripts get the library of the slow disk as their second argument.
SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess
import sys
import time

from mpi_programs import mpi_command
from programs import GPT, RUN, STEP_NAME, FolderTest, command, read_log, succeed


class WatchedRunTest(FolderTest):

    def setUp(self):
        super().setUp()
        self.save, self.log = self.path("run"), self.path("log")

    def start(self, *args, processes=0, slow_file="", seconds=0):
        """A run on threads, or processes, with what it says in a file; each
        sync of `slow_file` takes so many seconds."""
        train = [*GPT, *RUN, "--train-iters", 10**6, "--save", self.save,
                 "--log-jsonl", self.log, *args]
        line = (mpi_command(processes, *train) if processes else
                command("train", *train))
        env = dict(os.environ)
        if slow_file:
            env |= {"LD_PRELOAD": sys.argv[2], "SLOW_DISK_FILE": slow_file,
                    "SLOW_DISK_SECONDS": str(seconds)}
        with open(self.path("stderr"), "w", encoding="utf-8") as stderr:
            job = subprocess.Popen(line, stderr=stderr, env=env)
        self.addCleanup(job.kill)
        return job

    def said(self):
        with open(self.path("stderr"), encoding="utf-8") as file:
            return file.read()

    def wait_for(self, job, condition):
        while not condition():
            self.assertIsNone(job.poll(), self.said())
            time.sleep(0.002)

    def iterations(self):
        return max(read_log(self.log), default=0)

    def is_saving(self):
        return os.path.isdir(self.save) and any(
            name.endswith(".partial") for name in os.listdir(self.save))

    def steps(self):
        return sorted(int(name[5:]) for name in os.listdir(self.save)
                      if STEP_NAME.fullmatch(name))

    def ends(self, job, code):
        self.assertEqual(job.wait(timeout=60), code, self.said())

    def check_goes_on(self):
        """All that was computed was saved, and a run that goes on from it has
        the bits of one that was never disturbed."""
        done = self.iterations()
        self.assertEqual(self.steps()[-1], done, self.said())
        succeed("ckpt", "verify", "--deep", "--all", self.save)
        end = ["--train-iters", done + 2]
        succeed("train", "--mock-data", "--load", self.save, *end, "--tp", 1,
                "--dp", 4, "--log-jsonl", self.log)
        whole = self.log + "-whole"
        succeed("train", *GPT, *RUN, *end, "--log-jsonl", whole)
        self.assertEqual(read_log(self.log), read_log(whole))
