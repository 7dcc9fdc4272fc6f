"""The `reshard` program and `ckpt synth`: exit codes, messages, values.

Usage: reshard_cli_test.py RESHARD CKPT
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

RESHARD, CKPT = sys.argv[1:3]
GPT = ["--num-layers", "4", "--hidden-size", "16", "--num-attention-heads", "4",
       "--max-position-embeddings", "32", "--seq-length", "32",
       "--vocab-size", "251", "--make-vocab-size-divisible-by", "1",
       "--global-batch-size", "12"]
LLAMA = GPT + ["--swiglu", "--ffn-hidden-size", "24",
               "--disable-bias-linear", "--normalization",
               "RMSNorm", "--position-embedding-type", "rope",
               "--group-query-attention", "--num-query-groups", "2",
               "--untie-embeddings-and-output-weights"]
LAYOUTS = [
    [],
    ["--tensor-model-parallel-size", "4", "--data-parallel-size", "3",
     "--use-distributed-optimizer"],
    ["--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2",
     "--data-parallel-size", "2"],
]
MIXTURE = LLAMA + ["--num-experts", "4", "--moe-ffn-hidden-size", "8",
                   "--moe-shared-expert-intermediate-size", "12",
                   "--moe-shared-expert-gate", "--qk-layernorm"]
# Every axis there is.
WIDE = ["--tp", "2", "--pp", "2", "--dp", "2", "--use-distributed-optimizer",
        "--ep", "4", "--etp", "1"]
STAGES = [
    ["--num-layers-per-virtual-pipeline-stage", "1"],
    ["--decoder-first-pipeline-num-layers", "3"],
    ["--decoder-last-pipeline-num-layers", "3"],
    ["--pipeline-model-parallel-layout", "Et|t|(t|)*1tL"],
]
ROLES = ("master", "exp_avg", "exp_avg_sq")


def mix(x):
    """The finaliser of splitmix64."""
    x = x + numpy.uint64(0x9e3779b97f4a7c15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
    return x ^ (x >> numpy.uint64(31))


def synth_values(tensor, role, shape):
    key = numpy.zeros(1, "uint64")
    for byte in f"{tensor}/{role}".encode():
        key = mix(key ^ numpy.uint64(byte))
    index = numpy.arange(int(numpy.prod(shape)), dtype="uint64")
    bits = mix(key + index) >> numpy.uint64(40)
    values = bits.astype("float32") * numpy.float32(2**-23) - numpy.float32(1)
    return (abs(values) if role == "exp_avg_sq" else values).reshape(shape)


class ReshardTest(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def done(self, *args):
        done = subprocess.run(args, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, (args, done.stderr))
        return done.stdout.decode()

    def refused(self, *args, code=2, says=()):
        done = subprocess.run(args, capture_output=True, check=False)
        err = done.stderr.decode()
        self.assertEqual(done.returncode, code, (args, err))
        self.assertTrue(err.startswith("error: "), err)
        for word in says:
            self.assertIn(word, err)

    def synth(self, name, model, layout, step=3):
        self.done(CKPT, "synth", self.path(name), "--step", str(step), *model,
                  *layout)
        return self.path(name)

    def flip_a_payload_byte(self, run):
        step = os.path.join(run, "step-00000003")
        part = os.path.join(step, "part-00000.h5")
        value = synth_values("final_norm.weight", "exp_avg", (16,)).tobytes()
        with open(part, "r+b") as file:
            at = file.read().index(value)
            file.seek(at + 8)
            byte = file.read(1)[0]
            file.seek(at + 8)
            file.write(bytes([byte ^ 1]))

    def test_synth_gives_every_tensor_its_values_in_any_layout(self):
        for model, tensors in ((GPT, 3 * (2 + 4 * 16 + 2)),
                               (LLAMA, 3 * (1 + 4 * 9 + 2))):
            for number, layout in enumerate(LAYOUTS):
                run = self.synth(f"{tensors}-{number}", model, layout)
                self.done(CKPT, "verify", run, "--deep")
                self.check_values(run, tensors)

    def test_synth_gives_experts_and_any_stages_their_values(self):
        for number, stages in enumerate(STAGES):
            run = self.synth(f"mixture-{number}", MIXTURE, WIDE + stages)
            self.done(CKPT, "verify", run, "--deep")
            self.check_values(run, 3 * (1 + 4 * 25 + 2))

    def layout_of(self, run):
        shown = json.loads(self.done(CKPT, "show", run, "--json"))
        return shown["record"]["layout"]

    def test_b14_nothing_of_the_sources_stages_reaches_the_target(self):
        """And there and back gives the first directory again (B12)."""
        plain = self.synth("plain", MIXTURE, [])
        for number, stages in enumerate(STAGES):
            wide = self.path(f"wide-{number}")
            back = self.path(f"back-{number}")
            self.done(RESHARD, plain, wide, *WIDE, *stages)
            self.assertEqual(len(self.layout_of(wide)), 5 + 3)
            self.done(RESHARD, wide, back)
            self.assertEqual(self.layout_of(back), self.layout_of(plain))
            subprocess.run(["diff", "-r", plain, back], check=True)

    def check_values(self, run, tensors):
        index = os.path.join(run, "step-00000003", "index.h5")
        found = 0
        with h5py.File(index, "r") as file:
            for name, group in file["tensors"].items():
                for role in ROLES:
                    dataset = group[role]
                    want = synth_values(name, role, dataset.shape)
                    self.assertEqual(dataset.dtype, "float32")
                    self.assertTrue((dataset[...] == want).all(), name)
                    found += 1
            word = file["tensors/embedding.word.weight/master"]
            self.assertEqual(word.shape, (251, 16))
        self.assertEqual(found, tensors)

    def test_reshard_changes_no_value_and_says_so(self):
        source = self.synth("source", LLAMA, LAYOUTS[0])
        for number, layout in enumerate(LAYOUTS):
            target = self.path(f"out{number}")
            out = self.done(RESHARD, source, target, *layout)
            self.assertIn("every value is equal, bit for bit", out)
            self.done(CKPT, "verify", target, "--deep")
            self.check_values(target, 3 * (1 + 4 * 9 + 2))
            diff = json.loads(self.done(CKPT, "diff", source, target, "--json"))
            self.assertTrue(diff["equal"])
        self.assertEqual(
            sorted(os.listdir(self.directory)),
            ["out0", "out1", "out2", "source"])

    def files(self, run):
        step = os.path.join(run, "step-00000003")
        found = {}
        for name in os.listdir(step):
            with open(os.path.join(step, name), "rb") as file:
                found[name] = file.read()
        return found

    def test_a_codec_is_that_of_the_copy_and_changes_no_value(self):
        plain = self.synth("plain", LLAMA, LAYOUTS[1])
        packed = self.synth("packed", LLAMA, LAYOUTS[1] + ["--codec", "zstd"])
        part = os.path.join(packed, "step-00000003", "part-00000.h5")
        with h5py.File(part, "r") as file:
            stored = [d for d in file["fragments"].values() if d.chunks]
            self.assertTrue(stored)
            for dataset in stored:
                self.assertLess(dataset.id.get_storage_size(),
                                dataset.size * 4)
        self.done(CKPT, "verify", packed, "--deep")
        self.done(CKPT, "diff", plain, packed)
        for source, codec, expected in ((packed, "none", plain),
                                        (plain, "zstd", packed),
                                        (packed, "zstd", packed)):
            out = self.path("out")
            self.done(RESHARD, source, out, *LAYOUTS[1], "--codec", codec)
            self.assertEqual(self.files(out), self.files(expected))
            shutil.rmtree(out)
        self.refused(RESHARD, plain, self.path("out"), "--codec", "lz4",
                     says=["--codec"])

    def test_json_reports_the_work(self):
        source = self.synth("source", LLAMA, LAYOUTS[0], step=7)
        report = json.loads(self.done(RESHARD, source, self.path("out"),
                                      "--json", *LAYOUTS[1]))
        self.assertEqual(report["step"], 7)
        self.assertEqual(report["from"]["tensor_model_parallel_size"], 1)
        self.assertEqual(report["to"]["tensor_model_parallel_size"], 4)
        self.assertEqual(report["to"]["data_parallel_size"], 3)
        self.assertTrue(report["to"]["use_distributed_optimizer"])
        self.assertEqual(report["tensors"], 3 * (1 + 4 * 9 + 2))
        self.assertEqual(report["parts"], 12)
        self.assertIs(report["equal"], True)

    def test_takes_one_step_or_the_newest_of_a_run(self):
        source = self.synth("source", GPT, LAYOUTS[0])
        self.synth("later", GPT, LAYOUTS[2], step=12)
        shutil.move(self.path("later/step-00000012"), source)
        self.done(RESHARD, source, self.path("newest"))
        self.assertIn("step-00000012", os.listdir(self.path("newest")))
        self.done(RESHARD, os.path.join(source, "step-00000003"),
                  self.path("third"))
        self.assertIn("step-00000003", os.listdir(self.path("third")))

    def test_every_spelling_of_an_axis_means_it(self):
        source = self.synth("source", GPT, LAYOUTS[0])
        for number, flags in enumerate((
                ["--tensor_model_parallel_size=2", "--sequence-parallel"],
                ["--tensor-parallel-size", "2"], ["--tp", "2"])):
            target = self.path(str(number))
            report = json.loads(self.done(RESHARD, source, target, "--json",
                                          *flags))
            self.assertEqual(report["to"]["tensor_model_parallel_size"], 2)
            self.assertEqual(report["parts"], 2)

    def test_wrong_use_is_refused_and_writes_nothing(self):
        source = self.synth("source", LLAMA, LAYOUTS[0])
        out = self.path("out")
        self.refused(RESHARD, says=["source is required"])
        self.refused(RESHARD, source, says=["destination is required"])
        self.refused(RESHARD, source, out, "--data-paralel-size", "2",
                     says=["unknown flag --data-paralel-size",
                           "nearest known one is --data-parallel-size"])
        self.refused(RESHARD, source, out, "--tensor-model-parallel-size", "3",
                     says=["--num-attention-heads 4",
                           "--tensor-model-parallel-size 3"])
        self.refused(RESHARD, source, out, "--pipeline-model-parallel-size",
                     "3", says=["--num-layers 4"])
        self.refused(RESHARD, source, out, "--data-parallel-size", "0",
                     says=["--data-parallel-size"])
        self.refused(RESHARD, source, out, "--data-parallel-size", "two",
                     says=["--data-parallel-size", "two"])
        self.refused(RESHARD, self.path("typo"), out, says=["typo"])
        self.refused(RESHARD, self.directory, out, says=["no checkpoint"])
        self.refused(RESHARD, source, source, says=["exists"])
        self.assertEqual(os.listdir(self.directory), ["source"])

    def test_a_damaged_source_fails_and_leaves_nothing(self):
        source = self.synth("source", LLAMA, LAYOUTS[0])
        self.flip_a_payload_byte(source)
        self.refused(RESHARD, source, self.path("out"), *LAYOUTS[1], code=1,
                     says=["final_norm.weight", "part-00000.h5"])
        self.assertEqual(os.listdir(self.directory), ["source"])

    def test_says_when_it_replaced_its_leftover(self):
        source = self.synth("source", GPT, LAYOUTS[0])
        os.makedirs(self.path("out.partial"))
        self.refused(RESHARD, source, self.path("out"), says=["out.partial"])
        with open(self.path("out.partial/shardshift-reshard"), "wb"):
            pass
        done = subprocess.run([RESHARD, source, self.path("out")],
                              capture_output=True, check=True)
        self.assertIn(b"replaced " + self.path("out.partial").encode(),
                      done.stderr)

    def test_synth_refuses_what_exists_and_what_cannot_be(self):
        source = self.synth("source", GPT, LAYOUTS[0])
        self.refused(CKPT, "synth", source, *GPT, says=["exists"])
        self.refused(CKPT, "synth", self.path("x"), *GPT,
                     "--tensor-model-parallel-size", "3",
                     says=["--tensor-model-parallel-size 3"])
        self.assertEqual(os.listdir(self.directory), ["source"])


class DryRunTest(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.source = os.path.join(self.directory, "source")
        self.target = os.path.join(self.directory, "target")
        subprocess.run([CKPT, "synth", self.source, *GPT, *LAYOUTS[1]],
                       check=True)

    def run_reshard(self, *flags):
        return subprocess.run([RESHARD, self.source, self.target, *flags],
                              capture_output=True, text=True)

    def test_tells_of_other_formats_too(self):
        for form in ("megatron", "torch_dist", "dcp", "safetensors"):
            layout = ["--tp", "2", "--pp", "2"]
            words = form + " TP2 PP2 DP1"
            if form in ("dcp", "safetensors"):
                layout, words = [], form
            run = self.run_reshard("--to", form, *layout, "--dry-run")
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertIn(f" -> {words}\n", run.stdout)
            run = self.run_reshard("--to", form, *layout, "--dry-run",
                                   "--json")
            plan = json.loads(run.stdout)
            self.assertEqual(os.listdir(self.directory), ["source"])
            run = self.run_reshard("--to", form, *layout)
            self.assertIn(f" -> {words}\n", run.stdout)
            shutil.rmtree(self.target)
            report = json.loads(
                self.run_reshard("--to", form, *layout, "--json").stdout)
            shutil.rmtree(self.target)
            for key in ("step", "bytes", "parts", "from", "to", "to_layout"):
                self.assertEqual(plan[key], report[key], key)
            self.assertEqual(report["to"], form)
            if layout:
                self.assertEqual(
                    report["to_layout"]["pipeline_model_parallel_size"], 2)
            else:
                self.assertIsNone(report["to_layout"])
        run = self.run_reshard("--to", "dcp", "--dry-run", "--picture", "p.svg")
        self.assertEqual(run.returncode, 2)
        self.assertIn("--picture is for --to native", run.stderr)

    def test_tells_what_would_be_done_and_writes_nothing(self):
        run = self.run_reshard("--dry-run", "--json", "--tp", "2")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        plan = json.loads(run.stdout)
        self.assertEqual(os.listdir(self.directory), ["source"])
        self.assertEqual(plan["to"]["tensor_model_parallel_size"], 2)
        self.assertGreaterEqual(plan["bytes_read"], plan["bytes"])
        self.assertLessEqual(len(plan["tensors"]), 10)
        run = self.run_reshard("--json", "--tp", "2")
        self.assertEqual(run.returncode, 0, run.stderr)
        done = json.loads(run.stdout)
        self.assertEqual((done["bytes"], done["parts"]),
                         (plan["bytes"], plan["parts"]))

    def test_prints_a_table_for_people(self):
        run = self.run_reshard("--dry-run")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("to write", run.stdout)
        self.assertIn("embedding.word.weight", run.stdout)

    def test_refuses_what_the_run_would_refuse(self):
        run = self.run_reshard("--dry-run", "--tp", "3")
        self.assertEqual(run.returncode, 2)
        self.assertIn("--num-attention-heads 4", run.stderr)

    def test_a_memory_limit_does_not_change_a_byte(self):
        self.assertEqual(self.run_reshard("--tp", "2").returncode, 0)
        other = self.target + "-other"
        run = subprocess.run([RESHARD, self.source, other, "--tp", "2",
                              "--memory-limit", "72MiB"])
        self.assertEqual(run.returncode, 0)
        run = subprocess.run(["diff", "-r", self.target, other])
        self.assertEqual(run.returncode, 0)

    def test_refuses_a_memory_limit_that_is_none(self):
        for limit in ("1MiB", "lots", "-5"):
            run = self.run_reshard("--memory-limit", limit)
            self.assertEqual(run.returncode, 2, limit)
            self.assertIn("--memory-limit", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
