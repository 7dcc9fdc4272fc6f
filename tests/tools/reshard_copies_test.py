"""`reshard` of some of a checkpoint, by links, and by several processes.

Usage: reshard_copies_test.py RESHARD CKPT TRAIN
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import numpy

RESHARD, CKPT, TRAIN = sys.argv[1:4]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np"]
MODEL = ["--num-layers", "4", "--hidden-size", "16", "--num-attention-heads",
         "4", "--max-position-embeddings", "32", "--seq-length", "32",
         "--vocab-size", "251", "--make-vocab-size-divisible-by", "1",
         "--global-batch-size", "12"]
FROM = ["--tp", "2", "--dp", "2"]
TO = ["--pp", "2", "--dp", "3", "--use-distributed-optimizer"]


class CopiesTest(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.source = self.path("source")
        self.run_ok(CKPT, "synth", self.source, "--step", "3", *MODEL, *FROM,
                    "--sequence-parallel")

    def path(self, name):
        return os.path.join(self.directory, name)

    def run_any(self, *args):
        return subprocess.run(args, capture_output=True, text=True,
                              timeout=100, check=False)

    def run_ok(self, *args):
        done = self.run_any(*args)
        self.assertEqual(done.returncode, 0, (args, done.stderr))
        return done.stdout

    def refused(self, *args, says):
        done = self.run_any(*args)
        self.assertEqual(done.returncode, 2, (args, done.stderr))
        self.assertTrue(done.stderr.startswith("error: "), done.stderr)
        self.assertIn(says, done.stderr)

    def tensors(self, run):
        """(name, role) to array, by h5py alone."""
        index = os.path.join(run, "step-00000003", "index.h5")
        found = {}
        with h5py.File(index, "r") as file:
            for name, group in file["tensors"].items():
                for role, dataset in group.items():
                    found[name, role] = dataset[...]
        return found

    def assert_same(self, a, b):
        done = self.run_any("diff", "-r", a, b)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_weights_alone_are_the_masters(self):
        out = self.path("weights")
        said = self.run_ok(RESHARD, self.source, out, "--weights-only", *TO)
        self.assertIn("every value is equal, bit for bit", said)
        masters = {name: values for (name, role), values
                   in self.tensors(self.source).items() if role == "master"}
        weights = self.tensors(out)
        self.assertEqual(len(weights), len(masters))
        for (name, role), values in weights.items():
            self.assertEqual(role, "weight")
            numpy.testing.assert_array_equal(values, masters[name], name)
        self.run_ok(CKPT, "verify", out, "--deep")

    def test_a_dtype_rounds_them(self):
        out = self.path("half")
        said = self.run_ok(RESHARD, self.source, out, "--weights-only",
                           "--dtype", "f16", "--tp", "4")
        self.assertIn("every value is the source's, rounded", said)
        masters = self.tensors(self.source)
        for (name, _), values in self.tensors(out).items():
            self.assertEqual(values.dtype, "float16")
            numpy.testing.assert_array_equal(
                values, masters[name, "master"].astype("float16"), name)
        # From there on they go as they are.
        again = self.path("again")
        said = self.run_ok(RESHARD, out, again, *TO)
        self.assertIn("every value is equal, bit for bit", said)
        self.run_ok(CKPT, "diff", out, again)
        self.refused(RESHARD, self.source, self.path("x"), "--dtype", "f16",
                     says="--weights-only")
        self.refused(RESHARD, self.source, self.path("x"), "--weights-only",
                     "--dtype", "half", says="unknown dtype")
        self.refused(TRAIN, "--load", out, "--mock-data", "--lr", "1e-4",
                     "--micro-batch-size", "1", "--train-iters", "9",
                     says="without optimizer state")
        self.assertEqual(sorted(os.listdir(self.directory)),
                         ["again", "half", "source"])

    def test_selected_tensors_alone(self):
        out = self.path("some")
        self.run_ok(RESHARD, self.source, out, "--select", "layers.[02].mlp.*")
        whole = self.tensors(self.source)
        some = self.tensors(out)
        self.assertEqual({name for name, _ in some},
                         {name for name, _ in whole
                          if name.startswith(("layers.0.mlp.",
                                              "layers.2.mlp."))})
        for key, values in some.items():
            numpy.testing.assert_array_equal(values, whole[key])
        self.refused(RESHARD, self.source, self.path("x"), "--select", "mlp*",
                     says='a name like "mlp*"')

    def test_parts_that_are_there_are_linked(self):
        out = self.path("out")
        plan = json.loads(self.run_ok(RESHARD, self.source, out, "--dry-run",
                                      "--json", *FROM))
        self.assertEqual((plan["parts"], plan["linked_parts"], plan["bytes"]),
                         (0, 4, 0))
        said = self.run_ok(RESHARD, self.source, out, *FROM)
        self.assertIn("4 are files of the source, linked unread", said)
        self.assert_same(self.source, out)
        part = "step-00000003/part-00002.h5"
        self.assertEqual(os.stat(os.path.join(self.source, part)).st_ino,
                         os.stat(os.path.join(out, part)).st_ino)

    def test_processes_share_the_work_and_write_the_same(self):
        alone = self.path("alone")
        self.run_ok(RESHARD, self.source, alone, *TO)
        for number in (2, 6, 8):
            together = self.path(f"together-{number}")
            said = self.run_ok(*MPIRUN, str(number), RESHARD, self.source,
                               together, "--json", *TO)
            report = json.loads(said)  # one report, of the first process
            self.assertIs(report["equal"], True)
            self.assert_same(alone, together)
        plan = self.run_ok(*MPIRUN, "2", RESHARD, self.source, self.path("x"),
                           "--dry-run", "--json", *TO)
        self.assertEqual(json.loads(plan)["parts"], 6)

    def test_processes_refuse_together_and_say_it_once(self):
        for flags in (["--tp", "3"], ["--select", "nothing"]):
            done = self.run_any(*MPIRUN, "3", RESHARD, self.source,
                                self.path("x"), *flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stderr.count("error: "), 1, done.stderr)
        picture = self.path("x.svg")
        told = self.run_ok(*MPIRUN, "3", RESHARD, "explain", self.source,
                           "--json", "--picture", picture)
        json.loads(told)
        os.remove(picture)
        done = self.run_any(*MPIRUN, "3", RESHARD, self.path("typo"),
                            self.path("x"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("error: "), 1, done.stderr)
        self.assertEqual(os.listdir(self.directory), ["source"])

    def test_what_an_interrupt_leaves_is_no_checkpoint_and_is_replaced(self):
        big = self.path("big")
        self.run_ok(CKPT, "synth", big, "--step", "3", *MODEL,
                    "--hidden-size", "512", *FROM)
        before = self.run_ok(CKPT, "show", big, "--json")
        out = self.path("out")
        for delay in (0.01, 0.05, 0.1):
            run = subprocess.Popen([RESHARD, big, out, *TO],
                                   stdout=subprocess.DEVNULL)
            time.sleep(delay)
            run.send_signal(signal.SIGINT)
            if run.wait() != 0:
                self.assertFalse(os.path.exists(out))
                refused = self.run_any(CKPT, "show", out)
                self.assertEqual(refused.returncode, 2)
            else:
                shutil.rmtree(out)
        self.run_ok(RESHARD, big, out, *TO)
        self.run_ok(CKPT, "verify", out, "--deep")
        self.assertEqual(self.run_ok(CKPT, "show", big, "--json"), before)
        self.assertFalse(os.path.exists(out + ".partial"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
