"""B152: a signal ends a run in good order from any of its phases, and the run
goes on as if it had not come.

SPDX-License-Identifier: Apache-2.0
"""
import os
import signal
import sys
import time
import unittest

from mpi_programs import ranks_of
from watched_run import WatchedRunTest

STOPPED = 128 + signal.SIGTERM


class SignalTest(WatchedRunTest):

    def is_stopped(self, job, code=STOPPED):
        self.ends(job, code)
        self.assertNotIn("error: ", self.said())
        self.assertEqual(self.said().count("stopped by SIG"), 1)

    def test_b152_in_a_step(self):
        job = self.start("--tp", 2)
        self.wait_for(job, lambda: self.iterations() >= 2)
        job.terminate()
        self.is_stopped(job)
        self.assertIn(f"stopped by SIGTERM after iteration {self.iterations()} "
                      f"of {10**6}; --load {self.save} goes on", self.said())
        self.check_goes_on()

    def test_b152_other_signals_have_other_codes(self):
        for number in (signal.SIGINT, signal.SIGUSR1):
            self.log = self.path(number.name)
            self.save = self.path(number.name + "-run")
            job = self.start()
            self.wait_for(job, lambda: self.iterations() >= 1)
            job.send_signal(number)
            self.is_stopped(job, 128 + number)
            self.assertEqual(self.steps(), [self.iterations()])

    def test_b152_at_start_up(self):
        """Before there is anything to save, or just when there is."""
        for seconds in (0, 0.01, 0.02, 0.05, 0.1):
            job = self.start("--load", self.save, "--load-if-present")
            time.sleep(seconds)
            job.terminate()
            code = job.wait(timeout=60)
            # Of a shell both are the same.
            self.assertIn(code, (STOPPED, -signal.SIGTERM), self.said())
            self.assertNotIn("error: ", self.said())
            if os.path.isdir(self.save):
                self.assertEqual(self.steps()[-1], self.iterations())

    def test_b152_in_a_save_and_again(self):
        for flags in ([], ["--async-save"]):
            self.save = self.path("run" + "".join(flags))
            self.log = self.path("log" + "".join(flags))
            job = self.start("--save-interval", 2, "--dp", 2,
                             "--use-distributed-optimizer", *flags,
                             slow_file="part-00001", seconds=0.5)
            self.wait_for(job, self.is_saving)
            for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
                job.send_signal(number)
                time.sleep(0.1)
            self.is_stopped(job)
            self.check_goes_on()

    def test_b152_in_the_last_save_nothing_is_left_to_stop(self):
        job = self.start("--train-iters", 2, slow_file="part-", seconds=0.5)
        self.wait_for(job, self.is_saving)
        job.terminate()
        self.ends(job, 0)
        self.assertEqual(self.steps(), [2])

    def test_b152_to_one_process(self):
        job = self.start("--tp", 2, processes=4)
        self.wait_for(job, lambda: self.iterations() >= 2)
        os.kill(ranks_of(job)[2], signal.SIGTERM)
        self.is_stopped(job)
        self.check_goes_on()

    def test_b152_to_all_processes_by_way_of_mpirun(self):
        job = self.start("--async-save", "--save-interval", 1, processes=2)
        self.wait_for(job, lambda: self.iterations() >= 1)
        job.send_signal(signal.SIGUSR1)
        self.is_stopped(job, 128 + signal.SIGUSR1)
        self.check_goes_on()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
