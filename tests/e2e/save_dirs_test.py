"""A new run saves into any directory that holds no checkpoint, whatever else is
in it, and goes on there.

SPDX-License-Identifier: Apache-2.0
"""
import os
import sys
import tempfile
import unittest

from programs import GPT, RUN, run, succeed


class SaveDirsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_dir = os.path.join(folder.name, "run")

    def train(self, iterations, *args):
        succeed("train", *GPT, *RUN, "--train-iters", iterations, "--save",
                self.run_dir, *args)
        self.assertTrue(os.path.exists(os.path.join(
            self.run_dir, f"step-{iterations:08d}", "index.h5")))

    def test_an_empty_directory(self):
        os.mkdir(self.run_dir)
        self.train(1)

    def test_notes(self):
        os.mkdir(self.run_dir)
        with open(os.path.join(self.run_dir, "notes.txt"), "w",
                  encoding="utf-8"):
            pass
        self.train(1)

    def test_what_a_kill_left_of_the_first_save(self):
        partial = os.path.join(self.run_dir, "step-00000001.partial")
        os.makedirs(partial)
        with open(os.path.join(partial, "part-00000.h5"), "wb") as file:
            file.write(b"half")
        self.train(1, "--load", self.run_dir, "--load-if-present")
        self.assertFalse(os.path.exists(partial))
        self.train(2, "--load", self.run_dir)

    def test_steps_of_another_run_are_not_touched(self):
        self.train(1)
        done = run("train", *GPT, *RUN, "--train-iters", 1, "--save",
                   self.run_dir)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--save", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
