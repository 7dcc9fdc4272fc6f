"""Runs from the weights and the shape of a Hugging Face model.

The second argument is a folder of such models (tests/trainer/parity/data).
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import sys
import tempfile
import unittest

from programs import GPT, RUN, read_log, run, succeed

MODELS = sys.argv.pop(2)
START = ("--seq-length 16 --micro-batch-size 1 --global-batch-size 8 "
         "--lr 1e-3 --mock-data --train-iters 3").split()


class FinetuneTest(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def log_of(self, name, *flags):
        """The bits of a run of three iterations."""
        log = self.path(name + ".jsonl")
        succeed("train", *START, "--log-jsonl", log, *flags)
        bits = read_log(log)
        self.assertEqual(sorted(bits), [1, 2, 3])
        return bits

    def assert_refused(self, words, *flags):
        done = run("train", *flags)
        self.assertEqual(done.returncode, 2, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_weights_come_from_the_folder_or_from_a_copy(self):
        for model in ("gpt2", "qwen3"):
            folder = os.path.join(MODELS, model)
            direct = self.log_of(model, "--load", folder, "--finetune")
            cut = self.log_of(model + "-cut", "--load", folder, "--finetune",
                              "--tp", 2, "--pp", 2, "--dp", 2)
            self.assertEqual(cut, direct)
            succeed("reshard", folder, self.path(model), "--tp", 4)
            copy = self.log_of(model + "-copy", "--load", self.path(model),
                               "--finetune", "--tp", 4)
            self.assertEqual(copy, direct)
            shape = self.log_of(model + "-shape", "--hf-config",
                                os.path.join(folder, "config.json"))
            self.assertNotEqual(shape, direct)

    def test_a_finetuned_run_goes_on_and_starts_others(self):
        folder = os.path.join(MODELS, "llama3")
        first, second = self.path("first"), self.path("second")
        succeed("train", *START, "--load", folder, "--finetune", "--save",
                first)
        succeed("train", "--load", first, "--save", first, "--mock-data",
                "--train-iters", 4)
        log = self.log_of("second", "--load", first, "--finetune", "--save",
                          second)
        self.assertEqual(min(log), 1)
        self.assert_refused(["holds checkpoints of another run"], *START,
                            "--load", first, "--finetune", "--save", first)

    def test_a_shape_is_told_once(self):
        config = os.path.join(MODELS, "qwen2", "config.json")
        self.assert_refused(["--num-layers is 3", config, "has 4"], *START,
                            "--hf-config", config, "--num-layers", 3)
        self.assert_refused(
            ["--hf-config", "has the model's", "gpt2 has"], *START, "--load",
            os.path.join(MODELS, "gpt2"), "--finetune", "--hf-config", config)
        succeed("train", *START, "--hf-config", config, "--swiglu",
                "--num-layers", 4, "--save", self.path("run"))
        self.assert_refused(
            ["--hf-config", "the checkpoint's run has"], "--mock-data",
            "--load", self.path("run"), "--train-iters", 4, "--hf-config",
            os.path.join(MODELS, "llama", "config.json"))

    def test_what_cannot_be_computed_is_refused(self):
        with open(os.path.join(MODELS, "mistral", "config.json"),
                  encoding="utf-8") as file:
            config = json.load(file)
        config.update({"model_type": "qwen3_moe", "num_experts": 4,
                       "moe_intermediate_size": 32, "mlp_only_layers": [9],
                       "architectures": ["Qwen3MoeForCausalLM"]})
        path = self.path("config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.assert_refused(["mlp_only_layers"], *START, "--hf-config", path)
        self.assert_refused(["--hf-config", "missing.json"], *START,
                            "--hf-config", self.path("missing.json"))

    def test_a_folder_is_no_run_to_go_on_with(self):
        folder = os.path.join(MODELS, "llama")
        for more in ([], ["--load-if-present"]):
            self.assert_refused([folder, "--finetune"], *START, "--load",
                                folder, *more)

    def test_flags_make_the_other_kinds(self):
        kinds = {
            "window": ["--window-size", "3,0"],
            "interleaved": ["--rotary-interleaved"],
            "scaled": ["--use-rope-scaling", "--rope-scaling-factor", "4"],
            "interpolated": ["--rotary-seq-len-interpolation-factor", "2"],
            "normed": ["--qk-layernorm"],
            "plain": [],
        }
        rope = [*GPT, *RUN, "--position-embedding-type", "rope",
                "--rotary-base", "1e8", "--train-iters", "2"]
        logs = {}
        for kind, flags in kinds.items():
            log = self.path(kind)
            succeed("train", *rope, *flags, "--log-jsonl", log)
            logs[kind] = json.dumps(read_log(log))
        self.assertEqual(len(set(logs.values())), len(kinds), logs)
        self.assert_refused(["--window-size", "4095,0"], *rope,
                            "--window-size", "4,4")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
