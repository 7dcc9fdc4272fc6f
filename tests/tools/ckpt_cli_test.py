"""The `ckpt` program: output, exit codes and messages.

Usage: ckpt_cli_test.py CKPT WRITER; WRITER makes a run directory with step 1
whose tensors hold i % 100 at element i.
SPDX-License-Identifier: Apache-2.0
"""
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy

CKPT, WRITER = sys.argv[1:3]
DTYPES = 17


def run(*args):
    return subprocess.run([CKPT, *args], capture_output=True, check=False)


class CkptTest(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.run_dir = os.path.join(self.directory, "run")
        subprocess.run([WRITER, self.run_dir], check=True)
        self.step_dir = os.path.join(self.run_dir, "step-00000001")

    def output(self, *args):
        done = run(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, b"")
        return done.stdout

    def refused(self, *args, code=2, says=""):
        done = run(*args)
        self.assertEqual(done.returncode, code, (args, done))
        err = done.stderr.decode()
        self.assertTrue(err.startswith("error: "), err)
        self.assertIn(says, err)

    def copy(self, step):
        """A copy of the run, with one byte of payload changed."""
        copy = os.path.join(self.directory, "copy")
        shutil.copytree(self.run_dir, copy)
        part = os.path.join(copy, step, "part-00000.h5")
        value = numpy.float64([0, 1, 2, 3]).tobytes()
        with open(part, "r+b") as file:
            at = file.read().index(value)
            file.seek(at + 8)
            file.write(b"\x01")
        return copy

    def test_ls_lists_whole_steps(self):
        [entry] = json.loads(self.output("ls", self.run_dir, "--json"))
        self.assertEqual(entry["step"], 1)
        self.assertEqual(entry["path"], self.step_dir)
        sizes = [os.path.getsize(os.path.join(self.step_dir, name))
                 for name in os.listdir(self.step_dir)]
        self.assertEqual(entry["bytes"], sum(sizes))
        self.assertIn(b"step-00000001", self.output("ls", self.run_dir))

    def test_show_gives_tensors_and_state(self):
        for path in (self.run_dir, self.step_dir):
            shown = json.loads(self.output("show", path, "--json"))
            self.assertEqual(shown["step"], 1)
            self.assertEqual(shown["format_version"], 1)
            self.assertEqual(shown["state"], {"step": 1})
            self.assertEqual(len(shown["tensors"]), 3 * DTYPES)
            self.assertIn({"name": "t.BF16", "role": "matrix%b",
                           "shape": [5, 9], "dtype": "BF16"},
                          shown["tensors"])
        self.assertIn(b"t.BF16", self.output("show", self.run_dir))

    def test_verify_tells_whole_from_damaged(self):
        self.output("verify", self.run_dir, "--deep")
        copy = self.copy("step-00000001")
        self.output("verify", copy)
        self.refused("verify", copy, "--deep", code=1, says="1 faults")
        done = run("verify", copy, "--deep", "--json", "--all")
        [report] = json.loads(done.stdout)
        [fault] = report["faults"]
        self.assertEqual(fault["file"], "part-00000.h5")
        self.assertEqual(fault["tensor"], "t.F64")
        self.assertIn("checksum differs", fault["message"])

    def test_verify_does_not_pass_over_a_damaged_newest_step(self):
        os.makedirs(os.path.join(self.run_dir, "step-00000002"))
        self.refused("verify", self.run_dir, says="step-00000002")

    def test_diff_finds_equal(self):
        done = json.loads(self.output("diff", self.run_dir, self.step_dir,
                                      "--json"))
        self.assertTrue(done["equal"])
        self.assertEqual(done["equal_tensors"], 3 * DTYPES)

    def test_diff_finds_values_names_kinds_and_state(self):
        other = os.path.join(self.directory, "other")
        subprocess.run([WRITER, other, "--changed"], check=True)
        done = run("diff", self.run_dir, other, "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = json.loads(done.stdout)
        self.assertFalse(found["equal"])
        names = [(t["name"], t["role"]) for t in found["only_in_a"]]
        self.assertEqual(names, [("t.U64", "scalar")])
        names = [(t["name"], t["role"]) for t in found["only_in_b"]]
        self.assertEqual(names, [("t.U64", "scalar2")])
        [pair] = found["shape_or_dtype"]
        self.assertEqual(pair["a"]["shape"], [0, 3])
        self.assertEqual(pair["b"]["shape"], [0, 4])
        [value] = found["values"]
        self.assertEqual((value["name"], value["role"]),
                         ("t.F32", "matrix%b"))
        self.assertEqual(value["differing_elements"], 2)
        self.assertEqual(value["max_abs_difference"], 3)
        self.assertEqual(value["first_index"], [1, 2])
        self.assertEqual(found["state"],
                         [{"path": "/step", "a": 1, "b": 2}])
        text = run("diff", self.run_dir, other).stdout
        self.assertIn(b"t.F32 (matrix%b): 2 elements differ", text)

    def test_diff_of_a_damaged_side_is_trouble(self):
        self.refused("diff", self.run_dir, self.copy("step-00000001"),
                     says="checksum differs")

    def test_cat_prints_rows(self):
        text = self.output("cat", self.run_dir, "t.F32[1:3,7:]",
                           "--role", "matrix%b")
        self.assertEqual(text, b"16 17\n25 26\n")
        text = self.output("cat", self.run_dir, "t.C64[0,1]",
                           "--role", "matrix%b")
        self.assertEqual(text, b"1-1i\n")

    def test_cat_writes_npy_of_every_dtype(self):
        shown = json.loads(self.output("show", self.run_dir, "--json"))
        for tensor in shown["tensors"]:
            data = self.output("cat", self.run_dir, tensor["name"], "--npy",
                               "--role", tensor["role"])
            array = numpy.load(io.BytesIO(data))
            self.assertEqual(list(array.shape), tensor["shape"])
            if tensor["dtype"] in ("BOOL", "C64") or "F8" in tensor["dtype"]:
                continue
            want = numpy.arange(array.size) % 100
            self.assertTrue((array.reshape(-1) == want).all(), tensor)

    def test_wrong_use_is_refused(self):
        run_dir = self.run_dir
        self.refused(says="subcommand")
        self.refused("shw", run_dir, says="shw")
        self.refused("show", run_dir, "--jsn",
                     says="nearest known one is --json")
        self.refused("show", run_dir + "x", says="does not exist")
        self.refused("show", self.directory, says="holds no checkpoint")
        self.refused("ls", run_dir + "x", says=run_dir + "x")
        self.refused("verify", run_dir + "x", says=run_dir + "x")
        self.refused("cat", run_dir, "nope", says="nope")
        self.refused("cat", run_dir, "t.F32", says="--role")
        self.refused("cat", run_dir, "t.F32[5]", "--role", "matrix%b",
                     says="extent 5")

    def test_a_full_output_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([CKPT, "show", self.run_dir], stdout=full,
                                  stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"standard output", done.stderr)

    def test_help_and_version_go_to_stdout(self):
        self.assertIn(b"format version 1", self.output("--version"))
        for command in ("ls", "show", "verify", "diff", "cat"):
            self.assertIn(b"Usage", self.output(command, "--help"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
