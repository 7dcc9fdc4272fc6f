"""Weights that are not their masters, rounded: files that Megatron-Core and
DeepSpeed wrote, in which some bytes are changed.

The second argument is the folder of a checkpoint of DeepSpeed's.
SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import shutil
import subprocess
import sys
import unittest
import zipfile

from foreign_copy import extract
from programs import FolderTest, command, run, succeed

DEEPSPEED = sys.argv.pop(2)
NAME = "legacy-gpt2-tp2pp2dp2"
NAN = b"\xc1\x7f"
WIDE = ("--tp", 2, "--pp", 2, "--dp", 2, "--use-distributed-optimizer")


def change(path, at, value):
    """Sets bytes of the largest storage, which has all weights, and its
    checksum.
    """
    with zipfile.ZipFile(path) as archive:
        entries = [(i.filename, archive.read(i)) for i in archive.infolist()]
    changed = max((len(data), name) for name, data in entries
                  if "/data/" in name)[1]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries:
            if name == changed:
                data = data[:at] + value + data[at + len(value):]
            archive.writestr(name, data)


def kept(report):
    return json.loads(report.stdout)["kept_weights"]


class KeptWeightsTest(FolderTest):

    def megatron(self):
        extract(NAME, self.folder)
        source = pathlib.Path(self.path(NAME)) / "ckpt"
        change(source / "iter_0000010/mp_rank_01_001/model_optim_rng.pt", 22392,
               NAN)
        return source

    def test_a_report_counts_and_names_them(self):
        source = self.megatron()
        done = succeed("reshard", source, self.path("copy"))
        line, = (line for line in done.stdout.splitlines()
                 if line.startswith("kept: "))
        self.assertRegex(line, "^kept: the weight of 1 tensor, which is not "
                         r"its master, rounded: layers\.\d\.[a-z_.]+weight$")
        name = line.split()[-1]
        self.assertEqual([name], kept(succeed(
            "reshard", source, self.path("copy2"), "--json")))
        shown = json.loads(succeed("ckpt", "show", self.path("copy"),
                                   "--json").stdout)["tensors"]
        self.assertEqual([t["dtype"] for t in shown if t["name"] == name],
                         ["F32", "F32", "F32", "BF16"])
        self.assertEqual({t["name"] for t in shown if t["role"] == "weight"},
                         {name})
        # A copy that needs no rounded weight names them, too.
        for flags in (("--select", name), ("--weights-only",)):
            self.assertEqual([name], kept(succeed(
                "reshard", self.path("copy"), self.path("some"), "--json",
                *flags)))
            shutil.rmtree(self.path("some"))

    def test_several_processes_keep_them_too(self):
        source = self.megatron()
        succeed("reshard", source, self.path("one"), "--tp", 2, "--pp", 2)
        subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2",
             *command("reshard", source, self.path("two"), "--tp", 2, "--pp",
                      2)], check=True, capture_output=True)
        for path in pathlib.Path(self.path("one")).rglob("*.h5"):
            other = self.path("two") / path.relative_to(self.path("one"))
            self.assertEqual(path.read_bytes(), other.read_bytes(), path)

    def test_every_command_of_ckpt_knows_them(self):
        source = self.megatron()
        succeed("reshard", source, self.path("copy"), "--tp", 2)
        diff = succeed("ckpt", "diff", source, self.path("copy"))
        self.assertIn("kept beside the masters: the weight of 1 tensor",
                      diff.stderr)
        verified = succeed("ckpt", "verify", "--deep", source)
        self.assertIn("0 faults", verified.stdout)
        self.assertIn("kept beside the masters", verified.stderr)
        self.assertIn("weight", succeed("ckpt", "show", source).stdout)
        succeed("ckpt", "verify", "--deep", self.path("copy"))
        self.assertIn("nan", succeed("ckpt", "stats", self.path("copy"))
                      .stdout.lower())

    def test_they_come_back_as_they_were(self):
        source = self.megatron()
        succeed("reshard", source, self.path("copy"))
        for form, weights in (("megatron", "w1"), ("torch_dist", "w2")):
            back = self.path(form)
            succeed("reshard", self.path("copy"), back, "--to", form, *WIDE)
            self.assertIn("tensors are equal, bit for bit",
                          run("ckpt", "diff", self.path("copy"), back).stdout)
            one, other = self.path(weights + "a"), self.path(weights + "b")
            succeed("reshard", source, one, "--weights-only")
            succeed("reshard", back, other, "--weights-only")
            self.assertIn("tensors are equal, bit for bit",
                          run("ckpt", "diff", one, other).stdout)

    def test_a_run_takes_the_masters_and_says_so(self):
        source = self.megatron()
        succeed("reshard", source, self.path("copy"))
        done = run("train", "--load", self.path("copy"), "--mock-data")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--finetune starts one from its weights", done.stderr)
        flags = ("--mock-data --seq-length 16 --micro-batch-size 1 --lr 1e-3 "
                 "--global-batch-size 2 --train-iters 1 --finetune").split()
        done = succeed("train", "--load", self.path("copy"), *flags)
        self.assertIn("masters are taken, not the weight of 1 tensor",
                      done.stdout + done.stderr)

    def test_of_deepspeed(self):
        source = self.path("deepspeed")
        shutil.copytree(DEEPSPEED, source)
        path = pathlib.Path(source) / "global_step3/mp_rank_00_model_states.pt"
        change(path, 4, NAN)
        done = succeed("reshard", source, self.path("copy"), "--generic",
                       "--json")
        name, = kept(done)
        succeed("ckpt", "diff", source, self.path("copy"))
        # Beside its master, also where keys are all there is.
        succeed("reshard", self.path("copy"), self.path("dcp"), "--to", "dcp",
                "--generic")
        succeed("reshard", self.path("dcp"), self.path("again"), "--generic")
        for of in ("copy", "again"):
            value = succeed("ckpt", "cat", self.path(of), name, "--role",
                            "weight").stdout
            self.assertIn("nan", value)
        # Of weights alone that one is the weight, for the others the master.
        succeed("reshard", source, self.path("weights"), "--generic",
                "--weights-only")
        shown = json.loads(succeed("ckpt", "show", self.path("weights"),
                                   "--json").stdout)["tensors"]
        self.assertEqual({t["role"] for t in shown}, {"weight"})
        self.assertEqual({t["dtype"] for t in shown if t["name"] == name},
                         {"BF16"})
        self.assertIn("F32", {t["dtype"] for t in shown})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
