"""What the programs say of checkpoints of other formats, and of folders that
hold none: which it is, what is missing, and what to do.

The second argument is a folder of Hugging Face models
(tests/trainer/parity/data).
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

MODELS = sys.argv.pop(2)

# pylint: disable=wrong-import-position
from foreign_copy import extract
from programs import run, succeed

LEGACY = "legacy-gpt2-tp2pp2dp2"


class ForeignWordsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp()
        extract(LEGACY, cls.directory)
        cls.legacy = os.path.join(cls.directory, LEGACY, "ckpt")
        cls.llama = os.path.join(MODELS, "llama")
        cls.copy = os.path.join(cls.directory, "copy")
        succeed("reshard", cls.legacy, cls.copy, "--tp", 2)
        cls.weights = os.path.join(cls.directory, "weights")
        succeed("reshard", cls.llama, cls.weights, "--tp", 2)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def path(self, name):
        return str(self.scratch / name)

    def refused(self, program, *args, says, code=2):
        done = run(program, *args)
        self.assertEqual(done.returncode, code, (args, done.stderr))
        self.assertRegex(done.stderr, "(^|\n)error: ")
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, done.stderr)
        self.assertEqual(done.stdout, "")

    def damaged_legacy(self):
        copy = self.path("legacy")
        shutil.copytree(self.legacy, copy)
        return pathlib.Path(copy, "iter_0000010")

    def test_pickled_weights_of_hugging_face(self):
        for names in (["pytorch_model.bin"],
                      ["pytorch_model-00001-of-00002.bin",
                       "pytorch_model-00002-of-00002.bin",
                       "pytorch_model.bin.index.json"]):
            folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
            shutil.copy(os.path.join(self.llama, "config.json"), folder)
            for name in names:
                (folder / name).touch()
            for program, *args in (
                    ("reshard", folder, self.path("x")),
                    ("reshard", folder, self.path("x"), "--generic"),
                    ("reshard", folder, self.path("x"), "--from",
                     "safetensors"),
                    ("ckpt", "show", folder),
                    ("train", "--load", folder, "--finetune",
                     "--load-if-present")):
                self.refused(program, *args, says=[
                    str(folder), names[0], "safe_serialization=True"])

    def test_a_copy_is_no_run_to_go_on_with(self):
        self.refused("train", "--load", self.copy, "--mock-data",
                     "--train-iters", 12,
                     says=["settings of a run", "--finetune"])

    def test_finetune_names_the_format(self):
        for source, name in ((self.weights, "native"),
                             (self.llama, "safetensors")):
            done = succeed("train", "--load", source, "--finetune",
                           "--seq-length", 16, "--micro-batch-size", 1, "--lr",
                           1e-3, "--mock-data", "--train-iters", 1)
            self.assertIn(f", format {name}\n", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
