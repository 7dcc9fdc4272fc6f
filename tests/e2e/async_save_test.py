"""`train --async-save`, `--keep-last`, `--keep-every`: what a user sees.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

from programs import GPT, RUN, STEP_NAME, command, read_log, run, succeed


class AsyncSaveTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_dir = os.path.join(folder.name, "run")
        self.log = os.path.join(folder.name, "log")
        self.args = [*GPT, *RUN, "--tp", 2, "--dp", 2, "--save", self.run_dir,
                     "--save-interval", 1]

    def steps(self):
        return sorted(int(name[5:]) for name in os.listdir(self.run_dir)
                      if STEP_NAME.fullmatch(name))

    def test_the_log_tells_saves_and_stalls(self):
        done = succeed("train", *self.args, "--train-iters", 3, "--async-save")
        saved = re.findall(r"^saved (\S+) in [\d.]+ s; training waited [\d.]+ s"
                           r" for the copy", done.stderr, re.MULTILINE)
        self.assertEqual([os.path.basename(path) for path in saved],
                         [f"step-{step:08d}" for step in (1, 2, 3)])
        self.assertIn("bytes of memory for the copies", done.stderr)

    def test_a_failure_in_the_background_ends_the_run(self):
        in_the_way = os.path.join(self.run_dir, "step-00000003.partial", "mine")
        os.makedirs(in_the_way)
        done = run("train", *self.args, "--train-iters", 10**6, "--async-save",
                   "--log-jsonl", self.log)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("error: rank 0: ", done.stderr)
        self.assertIn("step-00000003.partial", done.stderr)
        self.assertLessEqual(max(read_log(self.log)), 23)
        self.assertEqual(self.steps(), [1, 2])
        self.assertTrue(os.path.isdir(in_the_way))
        succeed("ckpt", "verify", "--deep", self.run_dir)
        os.rmdir(in_the_way)
        resumed = succeed("train", "--mock-data", "--train-iters", 4, "--load",
                          self.run_dir, "--save", self.run_dir, "--async-save")
        self.assertIn("loading " + self.run_dir + "/step-00000002",
                      resumed.stderr)

    def test_retention(self):
        for flags, kept in ((["--keep-last", 2], [8, 9]),
                            (["--keep-every", 4], [4, 8, 9]),
                            (["--keep-last", 2, "--keep-every", 3],
                             [3, 6, 8, 9])):
            with tempfile.TemporaryDirectory() as self.run_dir:
                succeed("train", *self.args, "--save", self.run_dir,
                        "--train-iters", 9, "--async-save", *flags)
                self.assertEqual(self.steps(), kept)

    def test_a_second_run_into_the_same_directory_is_refused(self):
        with subprocess.Popen(
                command("train", *self.args, "--train-iters", 10**6,
                        "--async-save", "--keep-last", 2),
                stderr=subprocess.PIPE, text=True) as first:
            for line in first.stderr:
                if line.startswith("saved "):
                    break
            second = run("train", "--mock-data", "--train-iters", 10**6,
                         "--load", self.run_dir, "--save", self.run_dir)
            first.kill()
        self.assertEqual(second.returncode, 2, second.stderr)
        self.assertIn("another run saves into " + self.run_dir, second.stderr)
        # The lock goes with its holder.
        succeed("train", "--mock-data", "--train-iters", self.steps()[-1] + 1,
                "--load", self.run_dir, "--save", self.run_dir)

    def test_a_failed_first_iteration_leaves_no_directory(self):
        done = run("train", *self.args, "--train-iters", 2, "--log-jsonl",
                   "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertFalse(os.path.exists(self.run_dir))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
