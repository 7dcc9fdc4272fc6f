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

    def test_reports_name_the_source(self):
        for source, to, words in (
                (self.copy, "dcp", "step 10: TP2 PP1 DP1 -> dcp\n"),
                (self.weights, "safetensors",
                 "step 0: TP2 PP1 DP1 -> safetensors\n")):
            done = succeed("reshard", source, self.path(to), "--to", to)
            self.assertIn(words, done.stdout)
        generic = self.path("generic")
        succeed("reshard", self.llama, generic, "--generic", "--dp", 2)
        done = succeed("reshard", generic, self.path("again"), "--generic")
        self.assertIn("step 0: TP1 PP1 DP2 -> TP1 PP1 DP1\n", done.stdout)
        dry = self.llama, self.path("dry"), "--dry-run"
        picture = self.path("picture.svg")
        done = succeed("reshard", *dry, "--picture", picture)
        self.assertIn("step 0: safetensors -> TP1 PP1 DP1\n", done.stdout)
        self.assertIn("What moves: safetensors to TP1 PP1 DP1",
                      pathlib.Path(picture).read_text(encoding="utf-8"))
        self.assertEqual(
            json.loads(succeed("reshard", *dry, "--json").stdout)["from"],
            "safetensors")

    def test_much_that_is_left_out_takes_a_line(self):
        folder = self.path("folder")
        shutil.copytree(self.llama, folder)
        names = [f"file{i:02}.txt" for i in range(30)]
        for name in names:
            pathlib.Path(folder, name).touch()
        others = sorted(set(os.listdir(folder)) -
                        {"config.json", "model.safetensors"})
        done = succeed("reshard", folder, self.path("out"))
        self.assertEqual(
            [line for line in done.stdout.splitlines() if "left out" in line],
            [f"left out: file {others[0]}, {others[1]}, {others[2]} and "
             f"{len(others) - 3} more, all of which --json names"])
        done = succeed("reshard", folder, self.path("again"), "--json")
        self.assertEqual(json.loads(done.stdout)["left_out"],
                         [f"file {name}" for name in others])

    def test_folders_that_hold_no_checkpoint(self):
        empty = self.path("empty")
        os.mkdir(empty)
        for program, *args in (("reshard", empty, self.path("x")),
                               ("reshard", "explain", empty),
                               ("ckpt", "show", empty),
                               ("ckpt", "verify", empty),
                               ("train", "--load", empty),
                               ("train", "--load", empty, "--finetune")):
            self.refused(program, *args, says=[
                empty + " holds no checkpoint", "step-*", "model.safetensors",
                ".metadata", "mp_rank_*", "DeepSpeed"])
        file = self.path("notes.txt")
        pathlib.Path(file).touch()
        self.refused("reshard", file, self.path("x"),
                     says=[file, "name a directory"])

    def test_folders_above_a_checkpoint(self):
        above = self.path("above")
        os.mkdir(above)
        os.symlink(os.path.abspath(self.llama), os.path.join(above, "llama"))
        os.symlink(self.legacy, os.path.join(above, "mega"))
        os.symlink(self.copy, os.path.join(above, "run"))
        os.mkdir(os.path.join(above, "other"))
        hint = (f"did you mean {above}/llama (safetensors), {above}/mega "
                f"(megatron), {above}/run (native)?")
        for program, *args in (("reshard", above, self.path("x")),
                               ("ckpt", "verify", above),
                               ("train", "--load", above)):
            self.refused(program, *args, says=hint)

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

    def test_a_rank_that_is_missing(self):
        for name, rank in (("mp_rank_01_001", "tensor rank 1, stage 1"),
                           ("mp_rank_00_000", "tensor rank 0, stage 0"),
                           ("mp_rank_01_000/distrib_optim.pt",
                            "tensor rank 1, stage 0")):
            step = self.damaged_legacy()
            (step / name).rename(self.scratch / "away")
            says = [str(step / name), rank, "TP2 PP2 DP2"]
            self.refused("reshard", step.parent, self.path("x"), says=says,
                         code=1)
            done = run("ckpt", "verify", step.parent)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertTrue(done.stdout.startswith("fault: "), done.stdout)
            for words in says:
                self.assertIn(words, done.stdout)
            shutil.rmtree(step.parent)
            shutil.rmtree(self.scratch / "away", ignore_errors=True)

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

    def test_a_sequence_beyond_the_positions_of_the_model(self):
        flags = ["--micro-batch-size", 1, "--lr", 1e-3, "--mock-data",
                 "--train-iters", 1, "--seq-length"]
        model = json.loads(pathlib.Path(self.llama, "config.json").read_text(
            encoding="utf-8"))["max_position_embeddings"]
        load = "--load", self.llama, "--finetune"
        for length, warns in ((model, False), (model + 8, True)):
            done = succeed("train", *load, *flags, length)
            self.assertEqual("warning: --seq-length" in done.stderr, warns)
        self.refused("train", "--load", os.path.join(MODELS, "gpt2"),
                     "--finetune", *flags, 4096,
                     says=["--seq-length 4096", "--max-position-embeddings"])

    def test_explain_takes_weights_and_other_formats(self):
        layout = ["--tp", 2, "--dp", 2, "--use-distributed-optimizer"]
        ranks = [succeed("reshard", "explain", source, *layout).stdout
                 for source in (self.weights, self.llama)]
        self.assertEqual(*ranks)
        whole = succeed("reshard", "explain", self.weights, "--rank", 0).stdout
        self.assertIn("in 2 part files: part-00000.h5, part-00001.h5\n", whole)
        foreign = succeed("reshard", "explain", self.llama, "--rank", 0).stdout
        self.assertIn("in 1 part files: model.safetensors\n", foreign)
        file = "iter_0000010/mp_rank_00_000/distrib_optim.pt"
        self.assertIn(file, succeed("reshard", "explain", self.legacy,
                                    "--rank", 0).stdout)
        reads = json.loads(succeed("reshard", "explain", self.weights, *layout,
                                   "--rank", 3, "--json").stdout)["reads"]
        self.assertGreater(reads["bytes"], 0)

    def test_diff_shows_where_long_texts_differ(self):
        folder = pathlib.Path(self.path("folder"))
        shutil.copytree(self.llama, folder)
        config = json.loads((folder / "config.json").read_text())
        config["zzz_extra"] = "x" * 50
        (folder / "config.json").write_text(json.dumps(config, indent=2))
        done = run("ckpt", "diff", self.llama, folder)
        self.assertEqual(done.returncode, 1, done.stderr)
        line, equal = done.stdout.splitlines()
        self.assertTrue(line.startswith("state /huggingface/config"), line)
        self.assertIn("zzz_extra", line)
        self.assertIn(" bytes) in A, ", line)
        self.assertLess(len(line), 300)
        self.assertRegex(equal, r"^all \d+ tensors are equal, bit for bit$")
        done = run("ckpt", "diff", self.llama, folder, "--json")
        [entry] = json.loads(done.stdout)["state"]
        self.assertEqual(json.loads(entry["b"]), config)
        done = run("ckpt", "diff", self.llama, self.copy)
        self.assertIn("0 tensors are equal", done.stdout.splitlines()[-1])
        self.assertIn(": absent in A, ", done.stdout)

    def test_verify_tells_what_was_checked(self):
        cases = (([self.llama], "(safetensors): 0 faults; structure and sizes "
                  "checked, no values, which --deep reads\n"),
                 ([self.llama, "--deep"], "kB read, of which there are no "
                  "checksums\n"),
                 ([self.legacy, "--deep"], "(megatron): 0 faults; structure "
                  "and sizes checked, and the checksums of "))
        for args, words in cases:
            self.assertIn(words, succeed("ckpt", "verify", *args).stdout)
        [report] = json.loads(succeed("ckpt", "verify", self.llama, "--deep",
                                      "--json").stdout)
        self.assertEqual((report["format"], report["has_checksums"]),
                         ("safetensors", False))

    def test_commands_for_runs_of_ours(self):
        for command in ("ls", "prune"):
            flags = ["--keep-last", 1] if command == "prune" else []
            for source, name in ((self.llama, "safetensors"),
                                 (self.legacy, "megatron")):
                self.refused("ckpt", command, source, *flags,
                             says=[source, name, "of another format"])
        # A run that has not saved yet, or whose deletions were cut short.
        empty = self.path("empty")
        os.mkdir(empty)
        done = succeed("ckpt", "prune", empty, "--keep-last", 1)
        self.assertEqual(done.stdout, "nothing to delete\n")
        self.refused("ckpt", "ls", empty, says="holds no checkpoint")

    def test_show_cuts_long_texts(self):
        config = pathlib.Path(self.llama, "config.json").read_text(
            encoding="utf-8")
        text = succeed("ckpt", "show", self.llama).stdout
        self.assertIn(f"... ({len(config)} bytes, see --json)", text)
        self.assertNotIn("vocab_size\\\": ", text)
        shown = json.loads(succeed("ckpt", "show", self.llama, "--json").stdout)
        self.assertEqual(shown["state"]["huggingface"]["config"], config)

    def test_a_root_that_does_not_tell_its_iteration(self):
        step = self.damaged_legacy()
        tracker = step.parent / "latest_checkpointed_iteration.txt"
        tracker.write_text("20", encoding="utf-8")
        self.refused("reshard", step.parent, self.path("x"), code=1,
                     says=[str(tracker), "names iter_0000020", str(step)])
        tracker.unlink()
        self.refused("reshard", step.parent, self.path("x"),
                     says=[tracker.name, "name one: " + str(step)])
        succeed("reshard", step, self.path("x"))

    def test_a_save_that_did_not_finish(self):
        for to, metadata in (("dcp", ".metadata"),
                             ("torch_dist", "iter_0000010/.metadata")):
            saved = self.path(to)
            succeed("reshard", self.copy, saved, "--to", to)
            os.remove(os.path.join(saved, metadata))
            for program, *args in (("reshard", saved, self.path("x")),
                                   ("ckpt", "verify", saved),
                                   ("train", "--load", saved, "--finetune")):
                self.refused(program, *args,
                             says=[metadata, "did not finish"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
