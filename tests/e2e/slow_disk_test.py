"""B150: whoever waits for a disk waits as long as it takes; whoever waits for a
rank does not.

SPDX-License-Identifier: Apache-2.0
"""
import os
import signal
import sys
import time
import unittest

from mpi_programs import ranks_of
from watched_run import WatchedRunTest

TIMEOUT = 0.3  # seconds
TIMEOUT_FLAG = ["--distributed-timeout-minutes", TIMEOUT / 60]


class SlowDiskTest(WatchedRunTest):

    def start_slow(self, *args, processes=0, file="part-00001"):
        return self.start(*TIMEOUT_FLAG, "--tp", 2, "--save-interval", 2, *args,
                          processes=processes, slow_file=file,
                          seconds=3 * TIMEOUT)

    def test_b150_a_save_outlasts_the_timeout(self):
        for number, (processes, flags, file) in enumerate((
                (0, ["--dp", 1], "part-00001"),
                (0, ["--dp", 2, "--async-save"], "part-00001"),
                (2, [], "part-00001"),
                (2, ["--async-save"], "index.h5"))):
            self.save = self.path(f"run-{number}")
            self.log = self.path(f"log-{number}")
            began = time.monotonic()
            job = self.start_slow("--train-iters", 2, *flags,
                                  processes=processes, file=file)
            self.ends(job, 0)
            self.assertGreater(time.monotonic() - began, 3 * TIMEOUT)
            self.assertEqual(self.steps(), [2])

    def test_b150_a_dead_rank_ends_those_that_wait_for_a_disk(self):
        job = self.start_slow(processes=2, file="part-00000")
        self.wait_for(job, self.is_saving)
        os.kill(ranks_of(job)[1], signal.SIGKILL)
        began = time.monotonic()
        self.assertNotEqual(job.wait(timeout=60), 0)
        self.assertLess(time.monotonic() - began, 15)
        self.assertEqual(self.steps(), [])  # nothing half

    def test_b150_a_rank_that_hangs_is_named_after_the_timeout(self):
        # So small that no call moves more than goes with its letters, as a call
        # has a minute for its data.
        tiny = ("--pp 2 --num-layers 2 --hidden-size 8 --ffn-hidden-size 8 "
                "--num-attention-heads 1 --seq-length 4").split()
        job = self.start(*TIMEOUT_FLAG, *tiny, processes=2)
        self.wait_for(job, lambda: self.iterations() >= 1)
        rank = ranks_of(job)[1]
        os.kill(rank, signal.SIGSTOP)
        time.sleep(2 * TIMEOUT)
        os.kill(rank, signal.SIGCONT)
        self.ends(job, 1)
        self.assertRegex(self.said(), r"error: .*waited 300ms for .*rank 1")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
