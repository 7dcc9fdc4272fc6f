"""The `ckpt` program: output, exit codes and messages.

Usage: ckpt_cli_test.py CKPT WRITER; WRITER makes a run directory with step 1
whose tensors hold i % 100 at element i.
SPDX-License-Identifier: Apache-2.0
"""
import io
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import numpy

CKPT, WRITER = sys.argv[1:3]
DTYPES = 17
MODEL = ["--num-layers", "2", "--hidden-size", "64", "--num-attention-heads",
         "4", "--seq-length", "32", "--max-position-embeddings", "32",
         "--vocab-size", "256", "--global-batch-size", "4"]


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

    def path(self, name):
        return os.path.join(self.directory, name)

    def sample(self, name, *flags):
        subprocess.run([WRITER, self.path(name), *flags], check=True)
        return self.path(name)

    def damaged(self, dtype="float64"):
        """A copy of the run, with one byte of a tensor's payload changed."""
        copy = self.path("damaged-" + dtype)
        shutil.copytree(self.run_dir, copy)
        part = os.path.join(copy, "step-00000001", "part-00000.h5")
        value = numpy.arange(4, dtype=dtype).tobytes()
        with open(part, "r+b") as file:
            at = file.read().index(value)
            file.seek(at + 8)
            file.write(b"\x01")
        return copy, at

    def differ(self, a, b):
        """What diff says of the one tensor whose values differ."""
        done = run("diff", a, b, "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        [found] = json.loads(done.stdout)["values"]
        self.assertEqual((found["name"], found["role"]), ("t.F32", "matrix%b"))
        return found

    def synth(self, name, *flags):
        self.output("synth", self.path(name), *MODEL, *flags)
        return self.path(name)

    def test_ls_lists_whole_steps(self):
        [entry] = json.loads(self.output("ls", self.run_dir, "--json"))
        self.assertEqual(entry["step"], 1)
        self.assertEqual(entry["path"], self.step_dir)
        sizes = [os.path.getsize(os.path.join(self.step_dir, name))
                 for name in os.listdir(self.step_dir)]
        self.assertEqual(entry["bytes"], sum(sizes))
        header, row = self.output("ls", self.run_dir).decode().splitlines()
        self.assertEqual(header.split(),
                         ["step", "size", "age", "layout", "path"])
        self.assertEqual(row.split()[0], "1")
        self.assertEqual(row.split()[-2:], ["-", self.step_dir])

    def test_ls_gives_the_layout_in_words_and_the_age(self):
        synth = self.synth("synth", "--tp", "2", "--dp", "2",
                           "--use-distributed-optimizer")
        changed = time.time() - 3 * 3600 - 60
        os.utime(os.path.join(synth, "step-00000000"), (changed, changed))
        row = self.output("ls", synth).decode().splitlines()[1]
        self.assertIn(" 3 h  TP2 PP1 DP2 distributed-optimizer  ", row)

    def test_ls_names_the_steps_that_do_not_open(self):
        os.makedirs(os.path.join(self.run_dir, "step-00000002"))
        done = run("ls", self.run_dir)
        self.assertEqual(done.returncode, 0)
        self.assertIn("does not open", done.stdout.decode().splitlines()[2])
        self.assertIn(b"step-00000002 does not open: ", done.stderr)
        done = run("ls", self.run_dir, "--json")
        entry, broken = json.loads(done.stdout)
        self.assertEqual(entry["step"], 1)
        self.assertEqual(broken["step"], 2)
        self.assertIn("step-00000002", broken["error"])
        self.assertIn(b"step-00000002 does not open: ", done.stderr)

    def test_show_gives_tensors_and_state(self):
        for path in (self.run_dir, self.step_dir):
            shown = json.loads(self.output("show", path, "--json"))
            self.assertEqual(shown["step"], 1)
            self.assertEqual(shown["format_version"], 1)
            self.assertEqual(shown["state"], {"step": 1})
            self.assertEqual(len(shown["tensors"]), 3 * DTYPES)
            self.assertEqual(list(shown),
                             ["step", "format_version", "root_fingerprint",
                              "bytes", "tensors", "state", "record"])
            [tensor] = [tensor for tensor in shown["tensors"]
                        if tensor["name"] == "t.BF16"
                        and tensor["role"] == "matrix%b"]
            self.assertRegex(tensor.pop("fingerprint"), "^[0-9a-f]{32}$")
            self.assertEqual(tensor, {"name": "t.BF16", "role": "matrix%b",
                                      "shape": [5, 9], "dtype": "BF16"})
        text = self.output("show", self.run_dir).decode()
        self.assertRegex(text, r"\nname +role +dtype +shape +fingerprint\n")
        self.assertRegex(text,
                         r"\nt.BF16 +matrix%b +BF16 +\[5,9\] +[0-9a-f]{32}\n")
        self.assertIn("root fingerprint " + shown["root_fingerprint"], text)

    def test_fingerprints_are_of_the_values_whatever_the_layout(self):
        def shown(path):
            shown = json.loads(self.output("show", path, "--json"))
            prints = {(tensor["name"], tensor["role"]): tensor["fingerprint"]
                      for tensor in shown["tensors"]}
            return shown["root_fingerprint"], prints

        self.assertEqual(shown(self.synth("a", "--tp", "2", "--dp", "2")),
                         shown(self.synth("b", "--pp", "2")))
        root, prints = shown(self.run_dir)
        other_root, other = shown(self.sample("other", "--bits", "1"))
        self.assertNotEqual(root, other_root)
        self.assertEqual([key for key in prints if prints[key] != other[key]],
                         [("t.F32", "matrix%b")])

    def test_verify_tells_whole_from_damaged(self):
        self.output("verify", self.run_dir, "--deep")
        copy, at = self.damaged()
        self.assertIn(b"--deep", self.output("verify", copy))
        self.refused("verify", copy, "--deep", code=1, says="1 fault in")
        done = run("verify", copy, "--deep", "--json")
        [report] = json.loads(done.stdout)
        self.assertTrue(report["deep"])
        [fault] = report["faults"]
        message = fault.pop("message")
        self.assertEqual(fault, {"file": "part-00000.h5", "tensor": "t.F64",
                                 "role": "matrix%b", "fragment": "[0:5,0:4]",
                                 "offset_bytes": at})
        text = run("verify", copy, "--deep").stdout.decode()
        self.assertIn("fault: " + message, text)
        for telling in ("checksum differs", "part-00000.h5", "t.F64",
                        "matrix%b", "[0:5,0:4]", f"byte {at} "):
            self.assertIn(telling, message)

    def test_verify_counts_the_bytes_it_checked(self):
        sizes = [os.path.getsize(os.path.join(self.step_dir, name))
                 for name in os.listdir(self.step_dir)]
        [report] = json.loads(self.output("verify", self.run_dir, "--deep",
                                          "--json"))
        self.assertEqual(report["bytes_checked"], sum(sizes))

    def test_verify_does_not_pass_over_a_damaged_newest_step(self):
        os.makedirs(os.path.join(self.run_dir, "step-00000002"))
        self.refused("verify", self.run_dir, code=1, says="1 fault in")

    def test_verify_all_goes_on_after_a_damaged_step(self):
        copy, _ = self.damaged()
        os.makedirs(os.path.join(copy, "step-00000000"))
        done = run("verify", copy, "--all", "--deep", "--json")
        self.assertEqual(done.returncode, 1)
        lost, damaged = json.loads(done.stdout)
        self.assertEqual(lost["path"], os.path.join(copy, "step-00000000"))
        self.assertEqual([fault["file"] for fault in lost["faults"]],
                         ["index.h5"])
        self.assertEqual([fault["tensor"] for fault in damaged["faults"]],
                         ["t.F64"])
        self.assertTrue(done.stderr.startswith(b"error: 2 faults in "))

    def test_a_terminal_shows_progress(self):
        ours, theirs = pty.openpty()
        done = subprocess.run([CKPT, "verify", self.run_dir, "--deep"],
                              stdout=subprocess.PIPE, stderr=theirs,
                              check=False)
        os.close(theirs)
        self.assertEqual(done.returncode, 0)
        drawn = os.read(ours, 1 << 16).decode()
        os.close(ours)
        self.assertRegex(drawn, r"\r\[#* *\] +\d+%  \d+ MB/s  \d+ s left")
        self.assertIn("[" + 30 * "#" + "] 100%", drawn)
        self.assertTrue(drawn.endswith("\r\x1b[K"), "the bar is wiped")

    def test_diff_finds_equal(self):
        done = json.loads(self.output("diff", self.run_dir, self.step_dir,
                                      "--json"))
        self.assertTrue(done["equal"])
        self.assertEqual(done["equal_tensors"], 3 * DTYPES)

    def test_diff_finds_values_names_kinds_and_state(self):
        other = self.sample("other", "--changed")
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
        # 20 and 23 lie between 16 and 32, where floats are 2^-19 apart.
        self.assertEqual(value["max_ulp_distance"], 3 << 19)
        self.assertEqual(value["nan_elements"], 0)
        self.assertEqual(value["first_index"], [1, 2])
        self.assertEqual(found["state"],
                         [{"path": "/step", "a": 1, "b": 2}])
        text = run("diff", self.run_dir, other).stdout
        self.assertIn(b"t.F32 (matrix%b): 2 elements differ, by at most 3 or "
                      b"1572864 ULP, first at [1,2]\n", text)
        self.assertIn(b"t.U64 (empty): U64[0,3] in A, U64[0,4] in B\n", text)

    def test_diff_compares_nan_payloads_as_bits(self):
        nan = self.sample("nan", "--bits", "7fc00001")
        self.output("diff", nan, self.sample("same", "--bits", "7fc00001"))
        other = self.sample("other", "--bits", "7fc00002")
        found = self.differ(nan, other)
        self.assertEqual(found["differing_elements"], 1)
        self.assertEqual(found["nan_elements"], 1)
        self.assertEqual(found["max_abs_difference"], 0)
        self.assertEqual(found["first_index"], [1, 2])
        self.assertIn(b"1 element differs, by at most 0 or 0 ULP, first at "
                      b"[1,2]; 1 beside a NaN\n",
                      run("diff", nan, other).stdout)

    def test_diff_tells_the_zeros_and_infinities_apart(self):
        zero = self.sample("zero", "--bits", "0")
        found = self.differ(zero, self.sample("minus", "--bits", "80000000"))
        self.assertEqual(found["differing_elements"], 1)
        self.assertEqual(found["max_ulp_distance"], 0)
        infinite = self.sample("inf", "--bits", "7f800000")
        self.assertIsNone(self.differ(zero, infinite)["max_abs_difference"])
        self.assertIn(b"by at most inf", run("diff", zero, infinite).stdout)

    def test_diff_reads_only_what_fingerprints_do_not_settle(self):
        damaged, _ = self.damaged("float32")
        self.output("diff", self.run_dir, damaged)
        self.refused("diff", self.sample("other", "--bits", "1"), damaged,
                     says="checksum differs")

    def test_diff_of_what_does_not_open_is_trouble(self):
        damaged, _ = self.damaged()
        with open(os.path.join(damaged, "step-00000001", "index.h5"),
                  "r+b") as index:
            index.seek(100)
            index.write(b"\xff" * 8)
        self.refused("diff", self.run_dir, damaged, says="index.h5")
        self.refused("diff", self.run_dir, self.path("none"), says="none")

    def test_cat_prints_rows(self):
        text = self.output("cat", self.run_dir, "t.F32[1:3,7:]",
                           "--role", "matrix%b")
        self.assertEqual(text, b"16 17\n25 26\n")
        text = self.output("cat", self.run_dir, "t.C64[0,1]",
                           "--role", "matrix%b")
        self.assertEqual(text, b"1-1i\n")

    def test_cat_converts(self):
        for dtype, want in (("bf16", b"16 17\n"), ("F8_E4M3", b"16 16\n")):
            self.assertEqual(want, self.output(
                "cat", self.run_dir, "t.F32[1,7:]", "--role", "matrix%b",
                "--dtype", dtype))
        for dtype in ("I32", "F31"):
            self.refused("cat", self.run_dir, "t.F32", "--role", "matrix%b",
                         "--npy", "--dtype", dtype, says=dtype)

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

    def test_cat_slices_as_numpy_does(self):
        whole = numpy.arange(45).reshape(5, 9)
        for text, want in (("-1", whole[-1]), ("::2", whole[::2]),
                           ("::-1, ::-3", whole[::-1, ::-3]),
                           ("-2:,7:99", whole[-2:, 7:99]),
                           ("3,-4", whole[3, -4]), ("3:3", whole[3:3]),
                           (":,8:0:-2", whole[:, 8:0:-2])):
            data = self.output("cat", self.run_dir, f"t.I32[{text}]", "--npy",
                               "--role", "matrix%b")
            array = numpy.load(io.BytesIO(data))
            self.assertEqual(array.shape, want.shape, text)
            self.assertTrue((array == want).all(), text)
        self.assertEqual(self.output("cat", self.run_dir, "t.I32[::4,-1]",
                                     "--role", "matrix%b"), b"8 44\n")

    def test_stats_are_those_of_numpy(self):
        rows = json.loads(self.output("stats", self.run_dir, "--json"))
        self.assertEqual(len(rows), 3 * DTYPES)
        values = numpy.arange(45)
        for row in rows:
            if row["role"] != "matrix%b" or row["dtype"] in ("BOOL", "C64") or \
                    "F8" in row["dtype"]:
                continue
            self.assertEqual(row["shape"], [5, 9])
            self.assertEqual((row["min"], row["max"], row["mean"]),
                             (0, 44, 22), row)
            self.assertAlmostEqual(row["rms"], (values ** 2).mean() ** .5, 12)
            self.assertEqual((row["nan"], row["inf"], row["zero"]), (0, 0, 1))
            histogram = {bucket["log2"]: bucket["count"]
                         for bucket in row["histogram"]}
            self.assertEqual(histogram, {0: 1, 1: 2, 2: 4, 3: 8, 4: 16, 5: 13})
        [empty] = [row for row in rows
                   if (row["name"], row["role"]) == ("t.F32", "empty")]
        self.assertIsNone(empty["mean"])
        self.assertEqual(empty["histogram"], [])

    def test_stats_do_not_depend_on_the_layout(self):
        a = self.synth("a", "--tp", "2", "--dp", "2")
        b = self.synth("b", "--pp", "2")
        self.assertEqual(self.output("stats", a, "--json"),
                         self.output("stats", b, "--json"))

    def test_stats_draw_the_tensors_that_are_named(self):
        text = self.output("stats", self.run_dir, "t.I32", "t.F32").decode()
        table, *drawings = text.split("\n\n")
        self.assertEqual(len(table.splitlines()), 1 + 6)
        self.assertEqual(len(drawings), 6)
        [drawing] = [drawing for drawing in drawings
                     if drawing.startswith("t.I32 (matrix%b), zeros: 1,")]
        bars = [line.split() for line in drawing.splitlines()[2:]]
        self.assertEqual([bar[:2] for bar in bars],
                         [["2^0", "1"], ["2^1", "2"], ["2^2", "4"],
                          ["2^3", "8"], ["2^4", "16"], ["2^5", "13"]])
        self.assertEqual(bars[4][2], 40 * "#")
        self.refused("stats", self.run_dir, "t.I32", "t.I33", says="t.I33")

    def test_b138_values_that_are_not_finite_are_found(self):
        for bits, kind in (("7fc00001", "nan"), ("ff800000", "inf")):
            run_dir = self.sample(kind, "--bits", bits)
            [row] = [row for row in json.loads(
                self.output("stats", run_dir, "t.F32", "--json"))
                if row["role"] == "matrix%b"]
            self.assertEqual(row[kind], 1)
            self.assertEqual((row["min"], row["max"]), (0, 44))
            self.output("stats", run_dir, "t.F64", "--check-finite")
            self.refused("stats", run_dir, "--check-finite", code=1,
                         says='"t.F32" (matrix%b)')

    def test_stats_of_a_damaged_tensor_fail(self):
        copy, _ = self.damaged()
        self.refused("stats", copy, code=1, says="checksum differs")

    def test_wrong_use_is_refused(self):
        run_dir = self.run_dir
        self.refused(says="subcommand")
        self.refused("shw", run_dir, says="shw")
        self.refused("show", run_dir, "--jsn",
                     says="nearest known one is --json")
        self.refused("show", run_dir, "--verbose", says="see --help")
        self.refused("show", run_dir + "x", says="does not exist")
        self.refused("show", self.directory, says="holds no checkpoint")
        self.refused("ls", run_dir + "x", says=run_dir + "x")
        self.refused("verify", run_dir + "x", says=run_dir + "x")
        self.refused("cat", run_dir, "nope", says="nope")
        self.refused("cat", run_dir, "t.F32", says="--role")
        self.refused("cat", run_dir, "t.F32", "--role", "m", says="matrix%b")
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
        for command in ("ls", "show", "verify", "diff", "cat", "stats"):
            self.assertIn(b"Usage", self.output(command, "--help"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
