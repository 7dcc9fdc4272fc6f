"""Faults that bit users of other programs, by the number of their kind: here
those of the command lines.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from mpi_programs import MPIRUN
from programs import (GPT, LLAMA, RUN, command, payload_offset, read_log, run,
                      succeed)

DATA = "--mock-data"
# Nothing here is about disks.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class KindTest(unittest.TestCase):
    """Runs of two iterations, one for each class."""
    MODEL = GPT

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir=MEMORY)
        cls.addClassCleanup(folder.cleanup)
        cls.directory = pathlib.Path(folder.name)
        cls.run_dir = cls.directory / "run"
        succeed("train", *cls.MODEL, *RUN, "--train-iters", 2, "--save",
                cls.run_dir)

    def path(self, name):
        return self.directory / f"{self._testMethodName}-{name}"

    def refused(self, program, *args, says, code=2):
        done = run(program, *args)
        self.assertEqual(done.returncode, code, (args, done.stderr))
        errors = [line for line in done.stderr.splitlines()
                  if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, done.stderr)
        for word in says:
            self.assertIn(str(word), errors[0])

    def resume(self, load, name, *args):
        """Goes on to the fourth iteration; gives what was said, and the log."""
        log = self.path(f"{name}.jsonl")
        done = succeed("train", DATA, "--train-iters", 4, "--load", load,
                       "--save", self.path(name), "--log-jsonl", log, *args)
        return done.stderr, read_log(log)


class B120MissingCheckpointsAreNoFreshStart(KindTest):

    def no_start(self, path, *args, says):
        """Nothing is saved, nothing is logged."""
        save, log = self.path("save"), self.path("log")
        self.refused("train", *GPT, *RUN, "--train-iters", 4, "--load", path,
                     "--save", save, "--log-jsonl", log, *args,
                     says=["--load", path, *says])
        self.assertFalse(save.exists() or log.exists())

    def test_a_path_that_is_not_there(self):
        self.no_start(self.path("typo"), says=["does not exist"])
        self.path("empty").mkdir()
        self.no_start(self.path("empty"), says=["holds no checkpoint"])

    def test_a_checkpoint_of_another_format(self):
        for form in ("safetensors", "megatron", "torch_dist", "dcp"):
            there = self.path(form)
            succeed("reshard", self.run_dir, there, "--to", form)
            for args in ([], ["--load-if-present"]):
                self.no_start(there, *args, says=[form, "reshard"])

    def test_a_checkpoint_that_is_damaged(self):
        there = self.path("damaged")
        shutil.copytree(self.run_dir, there)
        os.truncate(there / "step-00000002" / "index.h5", 100)
        before = {p: p.stat().st_size for p in there.rglob("*")}
        for args in ([], ["--load-if-present"]):
            done = run("train", *GPT, *RUN, "--train-iters", 4, "--load",
                       there, "--save", there, *args)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(str(there), done.stderr)
            self.assertEqual({p: p.stat().st_size for p in there.rglob("*")},
                             before)

    def test_only_a_flag_of_its_own_starts_anew(self):
        done = succeed("train", *GPT, *RUN, "--train-iters", 1, "--load",
                       self.path("none"), "--load-if-present")
        self.assertIn("starting anew", done.stderr)


class B124ExplicitFlagsWinThenTheCheckpointThenDefaults(KindTest):

    def test_what_is_given_wins_and_is_told(self):
        said, log = self.resume(self.run_dir, "same")
        self.assertIn("layout TP1 PP1 DP1,", said)
        self.assertIn("global batch 16 = ", said)
        self.assertNotIn("changed: ", said)
        wide, wide_log = self.resume(self.run_dir, "wide", "--tp", 2)
        self.assertIn("layout TP2 PP1 DP1,", wide)
        self.assertEqual(wide.count("changed: "), 1, wide)
        self.assertIn("changed: --tensor-model-parallel-size is 2, the "
                      "checkpoint's run has 1", wide)
        self.assertEqual(wide_log, log)
        # The layout of the checkpoint that was saved last is the next default.
        done = succeed("train", DATA, "--train-iters", 5, "--load",
                       self.path("wide"), "--save", self.path("wide"))
        self.assertIn("layout TP2 PP1 DP1,", done.stderr)
        self.assertNotIn("changed: ", done.stderr)

    def test_what_follows_from_a_flag_is_computed_anew(self):
        flags = ["--global-batch-size", 32, "--override-opt-param-scheduler",
                 "--dp", 2]
        said, _ = self.resume(self.run_dir, "batch", *flags)
        self.assertIn(
            "global batch 32 = micro-batch 1 x accumulation 16 x DP 2", said)
        self.assertIn("changed: --global-batch-size is 32", said)
        done = succeed("train", DATA, "--train-iters", 5, "--load",
                       self.path("batch"), "--save", self.path("batch"),
                       "--dp", 1)
        self.assertIn(
            "global batch 32 = micro-batch 1 x accumulation 32 x DP 1",
            done.stderr)

    def test_an_axis_that_is_not_given_to_reshard_is_one(self):
        wide, back = self.path("wide"), self.path("back")
        succeed("reshard", self.run_dir, wide, "--tp", 4, "--dp", 2)
        report = json.loads(succeed("reshard", wide, back, "--pp", 2,
                                    "--json").stdout)
        axes = {key.split("_")[0]: size for key, size in report["to"].items()}
        self.assertEqual((axes["tensor"], axes["pipeline"], axes["data"]),
                         (1, 2, 1))


class B39OptimizerStateIsLeftOutOnPurposeOnly(KindTest):

    def test_all_ways(self):
        """What is stored, what is asked for, and how it goes on."""
        stored = {True: self.run_dir, False: self.path("weights")}
        succeed("reshard", self.run_dir, stored[False], "--weights-only")
        _, log = self.resume(self.run_dir, "goes-on")
        for has_state, source in stored.items():
            for asks in (True, False):
                copy = self.path(f"{has_state}-{asks}")
                succeed("reshard", source, copy, "--tp", 2,
                        *([] if asks else ["--weights-only"]))
                shown = json.loads(succeed("ckpt", "show", copy,
                                           "--json").stdout)
                self.assertTrue(shown["state"]["optimizer"])
                if has_state and asks:
                    self.assertEqual(self.resume(copy, "again")[1], log)
                    continue
                self.refused("train", DATA, "--train-iters", 4, "--load", copy,
                             "--save", copy,
                             says=[copy, "without optimizer state"])


class B125ReshardEndsWithAReasonWhateverHappens(KindTest):

    def launched(self, processes, *args):
        return subprocess.run([*MPIRUN, str(processes), *command(
            "reshard", *args)], capture_output=True, text=True, timeout=30,
            check=False)

    def test_processes_without_work(self):
        done = self.launched(4, self.run_dir, self.path("copy"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("every value is equal", done.stdout)

    def test_a_source_that_breaks_half_way(self):
        broken, copy = self.path("broken"), self.path("copy")
        shutil.copytree(self.run_dir, broken)
        part = broken / "step-00000002" / "part-00000.h5"
        data = bytearray(part.read_bytes())
        data[payload_offset(part)] ^= 1
        part.write_bytes(data)
        done = self.launched(3, broken, copy, "--dp", 3,
                             "--use-distributed-optimizer")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue(done.stderr.startswith("error: "), done.stderr)
        self.assertIn("part-00000.h5", done.stderr.splitlines()[0])
        self.assertFalse(copy.exists())

    def test_a_process_that_is_killed(self):
        big, copy = self.path("big"), self.path("copy")
        partial = pathlib.Path(f"{copy}.partial")
        succeed("ckpt", "synth", big, *GPT, "--hidden-size", 512)
        with subprocess.Popen(
                [*MPIRUN, "3", *command("reshard", big, copy, "--tp", 4)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True) as launched:
            until = time.monotonic() + 20
            while not partial.exists() and time.monotonic() < until:
                time.sleep(0.001)
            children = pathlib.Path(
                f"/proc/{launched.pid}/task/{launched.pid}/children")
            os.kill(int(children.read_text().split()[1]), signal.SIGKILL)
            said, _ = launched.communicate(timeout=30)
        self.assertNotEqual(launched.returncode, 0)
        self.assertIn("signal 9", said)
        self.assertFalse(copy.exists())
        # What is left is no checkpoint, and in nobody's way.
        done = run("ckpt", "show", copy)
        self.assertEqual(done.returncode, 2, done.stderr)
        done = succeed("reshard", big, copy, "--tp", 4)
        self.assertIn("every value is equal", done.stdout)
        self.assertFalse(partial.exists())


def swap_rows(path, name):
    """Of a matrix in a safetensors file: its first two."""
    data = bytearray(path.read_bytes())
    length, = struct.unpack_from("<Q", data)
    entry = json.loads(data[8:8 + length])[name]
    row = entry["shape"][1] * 4
    begin = 8 + length + entry["data_offsets"][0]
    data[begin:begin + 2 * row] = (data[begin + row:begin + 2 * row] +
                                   data[begin:begin + row])
    path.write_bytes(data)


class B129ValuesTellRoundingFromDamage(KindTest):
    MODEL = LLAMA

    def difference(self, a, b):
        done = run("ckpt", "diff", a, b, "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        return json.loads(done.stdout)

    def test_rounded_rows_and_rows_that_changed_places(self):
        whole, swapped = self.path("whole"), self.path("swapped")
        succeed("reshard", self.run_dir, whole, "--to", "safetensors")
        for layout in ([], ["--tp", 2], ["--tp", 4]):
            copy = self.path("-".join(map(str, ["at", *layout])))
            succeed("reshard", whole, copy, *layout)
            self.assertIn("bit for bit",
                          succeed("ckpt", "diff", whole, copy).stdout)
        name = "model.layers.1.mlp.down_proj.weight"
        shutil.copytree(whole, swapped)
        swap_rows(swapped / "model.safetensors", name)
        found = self.difference(self.path("at---tp-4"), swapped)
        self.assertEqual([t["name"] for t in found["values"]],
                         ["layers.1.mlp.down.weight"])
        self.assertEqual(found["values"][0]["differing_elements"], 2 * 64)
        self.assertEqual(found["values"][0]["first_index"], [0, 0])

    def test_a_rounded_copy_says_so(self):
        half, wide = self.path("half"), self.path("wide")
        done = succeed("reshard", self.run_dir, half, "--weights-only",
                       "--dtype", "bf16")
        self.assertIn("every value is the source's, rounded", done.stdout)
        self.assertNotIn("bit for bit", done.stdout)
        succeed("reshard", self.run_dir, wide, "--weights-only")
        found = self.difference(wide, half)
        self.assertEqual(found["values"], [])
        self.assertEqual({t["b"]["dtype"] for t in found["shape_or_dtype"]},
                         {"BF16"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
