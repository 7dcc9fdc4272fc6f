"""The subcommands of `ckpt` that write: rebuild, prune and cp; and what train
and reshard make of a rebuilt checkpoint.

usage: ckpt_copy_test.py CKPT TRAIN RESHARD
"""
# SPDX-License-Identifier: Apache-2.0
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

CKPT, TRAIN, RESHARD = sys.argv[1:4]
MODEL = ["--num-layers", "2", "--hidden-size", "16", "--num-attention-heads",
         "2", "--vocab-size", "40", "--seq-length", "8"]
LAYOUT = ["--tensor-model-parallel-size", "2", "--data-parallel-size", "2"]


def run(*args):
    return subprocess.run(args, capture_output=True, text=True, check=False)


def step_name(step):
    return f"step-{step:08d}"


def content(directory):
    """The bytes of each file, by name."""
    files = {}
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), "rb") as file:
            files[name] = file.read()
    return files


class CkptCopyTest(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.run_dir = self.path("run")

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def step_dir(self, step):
        return os.path.join(self.run_dir, step_name(step))

    def done(self, *args):
        done = run(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, *args, code=2, says=""):
        done = run(*args)
        self.assertEqual(done.returncode, code, (args, done))
        error = done.stderr.splitlines()[-1]
        self.assertTrue(error.startswith("error: "), done.stderr)
        self.assertIn(says, error)

    def synth(self, *steps, layout=LAYOUT):
        """Steps of one run: each is written beside and moved there."""
        for step in steps:
            made = self.path("made")
            self.done(CKPT, "synth", made, *MODEL, *layout, "--step",
                      str(step))
            os.makedirs(self.run_dir, exist_ok=True)
            os.rename(os.path.join(made, step_name(step)),
                      self.step_dir(step))
            shutil.rmtree(made)

    def test_rebuild_gives_the_index_again(self):
        self.synth(5)
        index = os.path.join(self.step_dir(5), "index.h5")
        whole = content(self.step_dir(5))
        self.refused(CKPT, "rebuild", self.step_dir(5), says="is whole")
        done = self.done(CKPT, "rebuild", self.step_dir(5), "--force")
        self.assertIn("index of step 5 made of 4 parts", done.stdout)
        self.assertEqual(done.stderr, "")
        self.assertEqual(content(self.step_dir(5)), whole)
        os.remove(index)
        done = self.done(CKPT, "rebuild", self.step_dir(5), "--views")
        self.assertIn("does not tell on which layout", done.stderr)
        self.done(CKPT, "verify", self.run_dir, "--deep")
        shown = json.loads(
            self.done(CKPT, "show", self.run_dir, "--json").stdout)
        self.assertEqual(shown["record"], {})

    def test_a_rebuilt_checkpoint_reshards(self):
        self.synth(5)
        self.done(RESHARD, self.run_dir, self.path("before"))
        os.remove(os.path.join(self.step_dir(5), "index.h5"))
        self.done(CKPT, "rebuild", self.step_dir(5))
        done = self.done(RESHARD, self.run_dir, self.path("after"), "--json")
        self.assertIsNone(json.loads(done.stdout)["from"])
        done = self.done(RESHARD, self.run_dir, self.path("again"))
        self.assertIn("step 5: an unknown layout -> TP1", done.stdout)
        before = content(self.path("before", step_name(5)))
        after = content(self.path("after", step_name(5)))
        del before["index.h5"], after["index.h5"]  # the record is poorer
        self.assertEqual(before, after)

    def test_a_rebuilt_checkpoint_resumes(self):
        flags = ["--lr", "0.001", "--mock-data", *MODEL, "--train-iters"]
        self.done(TRAIN, *flags, "2", "--micro-batch-size", "2",
                  "--save", self.run_dir)
        os.remove(os.path.join(self.step_dir(2), "index.h5"))
        self.done(CKPT, "rebuild", self.step_dir(2))
        resume = [TRAIN, "--load", self.run_dir, "--mock-data",
                  "--train-iters", "3"]
        self.refused(*resume, says="--micro-batch-size is missing")
        self.refused(*resume, "--micro-batch-size", "1",
                     says="--fp32, --bf16 or --fp16 is missing")
        done = self.done(*resume, "--micro-batch-size", "1", "--fp32")
        self.assertIn("written on an unknown layout", done.stderr)
        self.assertNotIn("changed: --micro-batch-size", done.stderr)

    def test_rebuild_refuses_what_makes_no_checkpoint(self):
        self.synth(5)
        os.remove(os.path.join(self.step_dir(5), "index.h5"))
        os.remove(os.path.join(self.step_dir(5), "part-00001.h5"))
        self.refused(CKPT, "rebuild", self.step_dir(5), code=1,
                     says="nothing holds all of")
        self.refused(CKPT, "rebuild", self.run_dir, says="no part")
        self.refused(CKPT, "rebuild", self.path("none"), says="none")

    def test_prune_keeps_by_number(self):
        self.synth(8, 9, 10, 11, layout=[])
        done = self.done(CKPT, "prune", self.run_dir, "--keep-last", "1",
                         "--keep-every", "5", "--dry-run")
        self.assertEqual(done.stdout.splitlines(),
                         [f"would delete {self.step_dir(s)}" for s in (8, 9)])
        self.assertEqual(len(os.listdir(self.run_dir)), 4)
        self.done(CKPT, "prune", self.run_dir, "--keep-last", "1",
                  "--keep-every", "5")
        self.assertEqual(sorted(os.listdir(self.run_dir)),
                         [step_name(10), step_name(11)])
        self.done(CKPT, "prune", self.run_dir, "--keep-every", "7")
        self.assertEqual(os.listdir(self.run_dir), [step_name(11)])
        done = self.done(CKPT, "prune", self.run_dir, "--keep-last", "1")
        self.assertEqual(done.stdout, "nothing to delete\n")
        self.refused(CKPT, "prune", self.step_dir(11), "--keep-last", "1",
                     says="name its run directory")
        self.refused(CKPT, "prune", self.run_dir, says="--keep-last")
        self.refused(CKPT, "prune", self.run_dir, "--keep-last", "0",
                     says="--keep-last")
        self.refused(CKPT, "prune", self.path("none"), "--keep-last", "1",
                     says="none")

    def test_prune_leaves_what_another_process_reads(self):
        self.synth(1, 2, layout=[])
        reader = os.open(self.step_dir(1), os.O_RDONLY)
        fcntl.flock(reader, fcntl.LOCK_SH)
        done = self.done(CKPT, "prune", self.run_dir, "--keep-last", "1")
        self.assertIn("is in use", done.stderr)
        self.assertTrue(os.path.exists(self.step_dir(1)))
        os.close(reader)
        self.done(CKPT, "prune", self.run_dir, "--keep-last", "1")
        self.assertEqual(os.listdir(self.run_dir), [step_name(2)])

    def test_cp_copies_the_newest_step(self):
        self.synth(1, 2)
        done = self.done(CKPT, "cp", self.run_dir, self.path("copy"))
        self.assertIn("copied and verified", done.stdout)
        self.assertEqual(done.stderr, "")
        self.assertEqual(sorted(os.listdir(self.path("copy"))),
                         ["latest", step_name(2)])
        self.assertEqual(content(self.path("copy", step_name(2))),
                         content(self.step_dir(2)))
        self.done(CKPT, "cp", self.step_dir(1),
                  self.path("copy", step_name(1)) + "/")
        self.assertEqual(content(self.path("copy", step_name(1))),
                         content(self.step_dir(1)))
        self.done(CKPT, "diff", self.run_dir, self.path("copy"))

    def test_cp_refuses_what_is_there_or_cannot_be(self):
        self.synth(1)
        self.refused(CKPT, "cp", self.run_dir, self.run_dir, says="exists")
        self.refused(CKPT, "cp", self.run_dir, self.step_dir(1),
                     says="is a checkpoint")
        self.refused(CKPT, "cp", self.run_dir, self.step_dir(3),
                     says="names step 3, the source is step 1")
        self.refused(CKPT, "cp", self.run_dir,
                     os.path.join(self.step_dir(1), "b"), says="lies inside")
        self.refused(CKPT, "cp", self.path("none"), self.path("copy"),
                     says="does not exist")
        self.assertEqual(os.listdir(self.directory), ["run"])
        self.assertEqual(os.listdir(self.run_dir), [step_name(1)])

    def test_cp_of_damage_leaves_nothing(self):
        self.synth(1)
        part = os.path.join(self.step_dir(1), "part-00002.h5")
        with open(part, "r+b") as file:
            file.seek(4096 * 3)
            byte = file.read(1)
            file.seek(4096 * 3)
            file.write(bytes([byte[0] ^ 1]))
        self.refused(CKPT, "cp", self.run_dir, self.path("copy"), code=1,
                     says="part-00002.h5")
        self.assertEqual(os.listdir(self.directory), ["run"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
