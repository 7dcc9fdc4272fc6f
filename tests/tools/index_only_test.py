"""`ckpt synth --index-only`: plans are those of the whole checkpoint, and
everything else refuses it.

Usage: index_only_test.py RESHARD CKPT TRAIN
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

RESHARD, CKPT, TRAIN = sys.argv[1:4]
MODEL = ["--num-layers", "4", "--hidden-size", "16", "--num-attention-heads",
         "4", "--max-position-embeddings", "32", "--seq-length", "32",
         "--vocab-size", "251", "--make-vocab-size-divisible-by", "1",
         "--global-batch-size", "12", "--swiglu", "--ffn-hidden-size", "24",
         "--disable-bias-linear", "--num-experts", "4",
         "--moe-ffn-hidden-size", "8"]
LAYOUT = ["--tp", "2", "--pp", "2", "--dp", "2", "--use-distributed-optimizer",
          "--ep", "4", "--etp", "1"]
TARGETS = [[], ["--tp", "4", "--dp", "3", "--use-distributed-optimizer"],
           ["--pp", "4", "--dp", "2", "--ep", "2"]]


class IndexOnlyTest(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.run_dir = self.path("alone")
        self.step = os.path.join(self.run_dir, "step-00000003")
        self.synth(self.run_dir, "--index-only")

    def path(self, name):
        return os.path.join(self.directory, name)

    def synth(self, run, *flags):
        done = subprocess.run([CKPT, "synth", run, "--step", "3", *flags,
                               *MODEL, *LAYOUT], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def dry_run(self, source, target):
        return subprocess.run(
            [RESHARD, source, self.path("out"), "--dry-run", "--json", *target],
            capture_output=True, text=True)

    def test_there_is_an_index_and_nothing_else(self):
        self.assertEqual(os.listdir(self.step), ["index.h5"])

    def test_a_dry_run_tells_what_it_tells_of_the_whole_checkpoint(self):
        whole = self.path("whole")
        self.synth(whole)
        for target in TARGETS:
            reports = []
            for source in (whole, self.run_dir):
                done = self.dry_run(source, target)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual("index alone" in done.stderr,
                                 source == self.run_dir)
                reports.append(json.loads(done.stdout))
                del reports[-1]["seconds"]
            self.assertEqual(*reports)
            self.assertGreater(reports[0]["copies"], 0)

    def test_explain_needs_no_parts(self):
        done = subprocess.run([RESHARD, "explain", self.run_dir, "--tp", "2",
                               "--rank", "1", "--json"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(json.loads(done.stdout)["reads"]["bytes"], 0)

    def test_everything_else_says_that_parts_are_missing(self):
        out = self.path("out")
        for command in ([RESHARD, self.run_dir, out],
                        [CKPT, "show", self.run_dir],
                        [CKPT, "stats", self.run_dir],
                        [CKPT, "diff", self.run_dir, self.run_dir],
                        [CKPT, "cat", self.step, "final_norm.weight"],
                        [CKPT, "cp", self.run_dir, out],
                        [TRAIN, "--load", self.run_dir, "--mock-data"]):
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertIn(done.returncode, (1, 2), command)
            self.assertIn("lacks 8 of 8 parts: part-00000.h5, part-00001.h5, "
                          "part-00002.h5, part-00003.h5 and 4 more; an index "
                          "alone", done.stdout + done.stderr, command)
            self.assertFalse(os.path.exists(out), command)

    def test_verify_names_every_part(self):
        for deep in ([], ["--deep"]):
            done = subprocess.run([CKPT, "verify", self.run_dir, *deep],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            for part in range(8):
                self.assertIn(f"part-{part:05}.h5 is missing", done.stdout)

    def test_a_dry_run_refuses_a_checkpoint_that_lacks_some_parts(self):
        whole = self.path("whole")
        self.synth(whole)
        os.remove(os.path.join(whole, "step-00000003", "part-00002.h5"))
        done = self.dry_run(whole, [])
        self.assertEqual(done.returncode, 1)
        self.assertIn("lacks 1 of 8 parts: part-00002.h5", done.stderr)

    def test_it_takes_no_codec(self):
        done = subprocess.run([CKPT, "synth", self.path("other"), *MODEL,
                               "--index-only", "--codec", "zstd"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--codec", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
