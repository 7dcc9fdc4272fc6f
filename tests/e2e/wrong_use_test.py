"""Wrong use gets a message that names the culprit, exit code 2 (1 for corrupt
data), and leaves every file as it was.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import sys
import tempfile
import unittest

from programs import GPT, LLAMA, RUN, payload_offset, run, succeed

DATA = "--mock-data"


def snapshot(directory):
    """Everything below a directory: name, size, time of change, and bytes."""
    found = {}
    for folder, folders, files in os.walk(directory):
        for name in folders + files:
            path = os.path.join(folder, name)
            stat = os.lstat(path)
            found[path] = (stat.st_mode, stat.st_size, stat.st_mtime_ns)
    return found


def without(flags, flag):
    """`flags` less one flag and its value."""
    at = flags.index(flag)
    return flags[:at] + flags[at + 2:]


class WrongUseTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp()
        cls.run_dir = os.path.join(cls.directory, "run")
        succeed("train", *GPT, *RUN, "--train-iters", 2, "--save", cls.run_dir)
        cls.text = os.path.join(cls.directory, "text.jsonl")
        with open(cls.text, "w", encoding="utf-8") as file:
            for i in range(40):
                file.write(json.dumps({"text": f"line {i} of some text"}))
                file.write("\n")
        cls.data = os.path.join(cls.directory, "data")
        succeed("preprocess", "--input", cls.text, "--output-prefix", cls.data,
                "--tokenizer", "byte")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    def refused(self, program, *args, says, code=2):
        before = snapshot(self.directory)
        done = run(program, *args)
        with self.subTest(program=program, args=args):
            self.assertEqual(done.returncode, code, done.stderr)
            errors = [line for line in done.stderr.splitlines()
                      if line.startswith("error: ")]
            self.assertEqual(len(errors), 1, done.stderr)
            for words in [says] if isinstance(says, str) else says:
                self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertEqual(snapshot(self.directory), before)

    def new_run(self, *args, says):
        """A first start that would save and log."""
        self.refused("train", *GPT, *RUN, "--train-iters", 2, "--save",
                     self.path("new"), "--log-jsonl", self.path("log"), *args,
                     says=says)

    def resumed(self, *args, says, code=2):
        """A resume that would go on in the run directory."""
        self.refused("train", DATA, "--train-iters", 4, "--load", self.run_dir,
                     "--save", self.run_dir, *args, says=says, code=code)

    def path(self, name):
        return os.path.join(self.directory, name)

    def test_layouts_that_cannot_be(self):
        self.new_run("--tp", 16, says=["--num-attention-heads 8",
                                       "--tensor-model-parallel-size 16"])
        self.new_run("--num-attention-heads", 6, "--kv-channels", 8, "--tp", 4,
                     says=["--num-attention-heads 6",
                           "--tensor-model-parallel-size 4"])
        self.new_run("--num-query-groups", 8, "--num-attention-heads", 24,
                     "--kv-channels", 4, "--tp", 3,
                     says="--tensor-model-parallel-size 3")
        self.new_run("--pp", 3, says=["--num-layers 4",
                                      "--pipeline-model-parallel-size 3"])
        self.new_run("--ffn-hidden-size", 62, "--tp", 4,
                     says=["--ffn-hidden-size 62",
                           "--tensor-model-parallel-size 4"])
        self.new_run("--dp", 3, says=["--global-batch-size 16",
                                      "--micro-batch-size 1",
                                      "--data-parallel-size 3"])
        self.new_run("--micro-batch-size", 3,
                     says=["--global-batch-size 16", "--micro-batch-size 3"])
        self.new_run("--data-granularity", 4, "--dp", 8,
                     says=["--data-parallel-size 8", "--data-granularity"])
        self.new_run("--decoder-first-pipeline-num-layers", 1,
                     says=["--decoder-first-pipeline-num-layers",
                           "--pipeline-model-parallel-size of 2 or more"])
        self.new_run("--pp", 2, "--num-layers-per-virtual-pipeline-stage", 3,
                     says="--num-layers-per-virtual-pipeline-stage 3")
        self.new_run("--pp", 2, "--num-virtual-stages-per-pipeline-rank", 3,
                     says="3 virtual stages")
        self.new_run("--num-virtual-stages-per-pipeline-rank", 2,
                     says="--pipeline-model-parallel-size of 2 or more")
        self.new_run("--pp", 2, "--pipeline-model-parallel-layout", "Ett|tL",
                     says="--num-layers 4")
        self.resumed("--pp", 3, says="--pipeline-model-parallel-size 3")
        self.resumed("--pp", 2, "--decoder-last-pipeline-num-layers", 5,
                     says="--decoder-last-pipeline-num-layers is 5")
        self.resumed("--tp", 16, says="--tensor-model-parallel-size 16")
        self.refused("reshard", self.run_dir, self.path("new"), "--tp", 16,
                     says="--tensor-model-parallel-size 16")
        self.refused("reshard", self.run_dir, self.path("new"), "--pp", 3,
                     says=["--num-layers 4",
                           "--pipeline-model-parallel-size 3"])

    def test_flags_that_are_missing_or_contradict(self):
        for flag in ("--num-layers", "--hidden-size", "--num-attention-heads",
                     "--vocab-size", "--seq-length", "--micro-batch-size",
                     "--lr"):
            self.refused("train", *without(GPT + RUN, flag), "--train-iters",
                         2, "--save", self.path("new"), says=flag)
        self.refused("train", *GPT, *RUN, "--save", self.path("new"),
                     says="--train-iters")
        self.new_run("--max-position-embeddings", 8,
                     says=["--seq-length 16", "--max-position-embeddings 8"])
        self.new_run("--num-query-groups", 3, says="3")
        self.new_run("--hidden-size", 36, "--num-attention-heads", 8,
                     says=["--hidden-size 36", "--num-attention-heads 8"])
        self.new_run("--seq-length", 12, "--tensor-granularity", 8,
                     says=["--tensor-granularity 8", "--seq-length 12"])

    def test_flags_of_saves_without_a_save(self):
        for flag in (["--async-save"], ["--keep-last", 2],
                     ["--keep-every", 2]):
            self.refused("train", *GPT, *RUN, "--train-iters", 2, *flag,
                         says=[flag[0], "--save"])
        self.new_run("--keep-last", 0, says="--keep-last")
        self.new_run("--keep-every", -1, says="--keep-every")

    def test_switches_with_a_value_that_is_none(self):
        for flag in ("--swiglu", "--use-distributed-optimizer",
                     "--group-query-attention"):
            self.new_run(f"{flag}=x", says=flag)

    def test_a_pipe_where_a_file_should_be(self):
        for name in ("index.h5", "part-00000.h5"):
            damaged = self.path("piped")
            shutil.copytree(self.run_dir, damaged)
            file = os.path.join(damaged, "step-00000002", name)
            os.remove(file)
            os.mkfifo(file)
            self.refused("ckpt", "show", damaged, says="not a regular file")
            self.refused("train", DATA, "--train-iters", 4, "--load", damaged,
                         says="not a regular file")
            shutil.rmtree(damaged)

    def test_a_destination_inside_its_source(self):
        step = os.path.join(self.run_dir, "step-00000002")
        self.refused("reshard", self.run_dir, os.path.join(step, "inside"),
                     says="lies inside the checkpoint")

    def test_a_destination_with_the_name_of_a_checkpoint(self):
        for slash in ("", "/"):
            self.refused("reshard", self.run_dir,
                         os.path.join(self.run_dir, "step-00000009") + slash,
                         says="has the name of a checkpoint")

    def test_paths_that_cannot_be_written(self):
        self.new_run("--log-jsonl", self.path("none/log"), says="--log-jsonl")
        self.new_run("--save", self.text, says="--save")

    def test_data(self):
        no_data = [flag for flag in GPT + RUN if flag != DATA]
        rest = ["--train-iters", 2, "--save", self.path("new")]
        self.refused("train", *no_data, *rest, says=["--data-path", DATA])
        self.refused("train", *no_data, *rest, DATA, "--data-path", self.data,
                     says=["--data-path", DATA])
        self.refused("train", *no_data, *rest, "--data-path",
                     self.path("none"), says=self.path("none"))
        # Bytes are no tokens of this vocabulary.
        self.refused("train", *no_data, *rest, "--data-path", self.data,
                     says=["--vocab-size", self.data], code=1)
        self.new_run("--data-order", "backwards", says="backwards")

    def test_values(self):
        for value in ("0", "-1", "99999999999999999999", "2.5", "nan", "",
                      "x", "1e3"):
            self.new_run("--num-layers", value, says="--num-layers")
        for value in ("nan", "inf", "-1", "1e999", "", "x"):
            self.new_run("--lr", value, says="--lr")
        self.new_run("--adam-beta1", "1", says="--adam-beta1")
        self.new_run("--adam-beta2", "nan", says="--adam-beta2")
        # 0 / 0 where a gradient has always been 0.
        self.new_run("--adam-eps", "0", says="--adam-eps")
        self.new_run("--seed", "-1", says="--seed")
        self.new_run("--save-interval", "0", says="--save-interval")
        self.new_run("--log-interval", "0", says="--log-interval")
        self.new_run("--normalization", "BatchNorm", says="--normalization")
        self.new_run("--lr-decay-style", "square", says="--lr-decay-style")
        self.new_run("--min-lr", "0.1", says="--min-lr")
        self.new_run("--hidden-size", "2147483647", "--ffn-hidden-size",
                     "2147483647", "--kv-channels", "2147483647", says="")

    def test_unknown_flags_and_arguments(self):
        self.new_run("--tensor-model-paralel-size", 2,
                     says="--tensor-model-parallel-size")
        self.new_run("--num_layer", 2, says="--num-layers")
        self.new_run("stray", says="stray")
        self.new_run("--tp", says="--tensor-model-parallel-size")
        self.refused("reshard", self.run_dir, self.path("new"), "--lr", 1,
                     says="--lr")
        self.refused("reshard", self.run_dir, says="destination")
        self.refused("reshard", says="source")

    def test_b81_a_batch_that_grows_is_refused_not_ignored(self):
        self.new_run("--rampup-batch-size", 4, 4, 64,
                     says="unknown flag --rampup-batch-size")

    def test_checkpoints_that_are_not_there(self):
        self.refused("train", DATA, "--train-iters", 4, "--load",
                     self.path("none"), "--save", self.path("none"),
                     says=["--load", self.path("none")])
        empty = self.path("empty")
        os.mkdir(empty)
        self.refused("train", DATA, "--train-iters", 4, "--load", empty,
                     says=["--load", empty])
        self.refused("train", *GPT, *RUN, "--train-iters", 4, "--load",
                     self.text, "--load-if-present", "--save",
                     self.path("new"), says=["--load", self.text])
        partial = os.path.join(empty, "step-00000001.partial")
        shutil.copytree(os.path.join(self.run_dir, "step-00000002"), partial)
        self.refused("train", DATA, "--train-iters", 4, "--load", empty,
                     says=["--load", empty])
        self.refused("reshard", self.path("none"), self.path("new"),
                     says=self.path("none"))

    def test_what_a_run_keeps(self):
        self.resumed("--hidden-size", 64, says="--hidden-size is 64")
        self.resumed("--num-layers", 2, says="--num-layers is 2")
        self.resumed("--vocab-size", 60, says="--vocab-size is 60")
        self.resumed("--swiglu", says="--swiglu is on")
        self.resumed(*LLAMA, says="--num-query-groups is 2")
        self.resumed("--seq-length", 8, says="--seq-length is 8")
        self.resumed("--seed", 7, says="--seed is 7")
        self.resumed("--data-order", "sequential", says=["order", "sequential"])
        for flag, value in (("--lr", 0.5), ("--min-lr", 1e-4),
                            ("--weight-decay", 0.5), ("--clip-grad", 2),
                            ("--adam-beta2", 0.9), ("--lr-decay-iters", 50),
                            ("--lr-warmup-iters", 1),
                            ("--global-batch-size", 32),
                            ("--lr-decay-style", "cosine")):
            self.resumed(flag, value,
                         says=[flag, "--override-opt-param-scheduler"])

    def tearDown(self):
        for name in ("new", "log"):
            self.assertFalse(os.path.exists(self.path(name)), name)

    def test_targets_that_exist(self):
        self.refused("train", *GPT, *RUN, "--train-iters", 2, "--save",
                     self.run_dir, says=["--save", self.run_dir])
        other = self.path("other")
        shutil.copytree(self.run_dir, other)
        self.refused("train", DATA, "--train-iters", 4, "--load",
                     self.run_dir, "--save", other, says=["--save", other])
        self.refused("reshard", self.run_dir, other, says=other)
        self.refused("reshard", self.run_dir, self.text, says=self.text)
        foreign = self.path("new.partial")
        os.mkdir(foreign)
        self.refused("reshard", self.run_dir, self.path("new"), says=foreign)
        os.rmdir(foreign)
        self.refused("ckpt", "synth", other, *GPT, says=other)

    def test_corrupt_checkpoints(self):
        damaged = self.path("damaged")
        shutil.copytree(self.run_dir, damaged)
        part = os.path.join(damaged, "step-00000002", "part-00000.h5")
        with open(part, "r+b") as file:
            file.seek(payload_offset(part))
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        self.refused("train", DATA, "--train-iters", 4, "--load", damaged,
                     "--save", damaged, says="part-00000.h5", code=1)
        self.refused("reshard", damaged, self.path("new"), "--tp", 2,
                     says="part-00000.h5", code=1)
        os.truncate(part, os.path.getsize(part) - 1)
        self.refused("train", DATA, "--train-iters", 4, "--load", damaged,
                     "--save", damaged, says="part-00000.h5", code=1)
        os.remove(part)
        self.refused("train", DATA, "--train-iters", 4, "--load", damaged,
                     "--save", damaged, says="part-00000.h5", code=1)


class NothingToDoTest(unittest.TestCase):

    def test_a_load_at_the_end_does_nothing(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "run")
            succeed("train", *GPT, *RUN, "--train-iters", 2, "--save", path)
            before = snapshot(directory)
            for iterations in (1, 2):
                succeed("train", DATA, "--train-iters", iterations, "--load",
                        path, "--save", path)
                self.assertEqual(snapshot(directory), before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
