"""The `preprocess` program: files, exit codes and messages.

Usage: preprocess_cli_test.py PREPROCESS
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy

PREPROCESS = sys.argv[1]
BYTE = ("--tokenizer", "byte")


class PreprocessTest(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def run_tool(self, *args):
        return subprocess.run([PREPROCESS, "--output-prefix", self.path("out"),
                               *args], capture_output=True, check=False)

    def refused(self, *args, says):
        done = self.run_tool(*args)
        self.assertEqual(done.returncode, 2, done)
        err = done.stderr.decode()
        self.assertTrue(err.startswith("error: "), err)
        for words in says:
            self.assertIn(words, err)
        self.assertFalse(os.path.exists(self.path("out.idx")))

    def test_files_are_as_numpy_reads_the_published_layout(self):
        texts = ["Größe", "", "b\nc"]
        lines = "".join(json.dumps({"body": text}) + "\n" for text in texts)
        done = self.run_tool("--input", self.write("a.jsonl", lines),
                             "--json-key", "body", "--append-eod", "--json",
                             *BYTE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, b"")
        report = json.loads(done.stdout)
        self.assertEqual(report["documents"], 3)
        self.assertEqual(report["vocab_size"], 257)
        with open(self.path("out.idx"), "rb") as file:
            index = file.read()
        documents = [list(text.encode()) + [256] for text in texts if text]
        lengths = [len(document) for document in documents]
        self.assertEqual(index[:9], b"MMIDIDX\0\0")
        self.assertEqual(numpy.frombuffer(index, "<u8", 1, 9), [1])
        self.assertEqual(index[17], 8)
        self.assertEqual(list(numpy.frombuffer(index, "<u8", 2, 18)), [2, 4])
        self.assertEqual(list(numpy.frombuffer(index, "<i4", 2, 34)), lengths)
        self.assertEqual(list(numpy.frombuffer(index, "<i8", 2, 42)),
                         [0, 2 * lengths[0]])
        self.assertEqual(list(numpy.frombuffer(index, "<i8", -1, 58)),
                         [0, 1, 1, 2])
        tokens = numpy.fromfile(self.path("out.bin"), "<u2")
        self.assertEqual(list(tokens), documents[0] + documents[1])
        self.assertEqual(report["tokens"], len(tokens))

    def test_inputs_are_taken_in_order(self):
        done = self.run_tool("--input", self.write("a", "one"),
                             self.write("b", "two"), "--input",
                             self.write("c", "3"), "--split_on=blank-lines",
                             *BYTE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"3 documents, 7 tokens", done.stdout)
        tokens = numpy.fromfile(self.path("out.bin"), "<u2")
        self.assertEqual(bytes(tokens.astype("u1")), b"onetwo3")

    def test_wrong_use_is_refused(self):
        text = self.write("a.txt", "plain\n")
        self.refused("--input", text, *BYTE,
                     says=["a.txt, line 1", "--split-on blank-lines"])
        self.refused("--input", self.path("none"), *BYTE, says=["none"])
        self.refused("--input", text, says=["--tokenizer"])
        self.refused("--input", text, "--tokenizer", "bpe", says=["byte"])
        self.refused("--input", text, *BYTE, "--split-on", "lines",
                     says=["--split-on"])
        self.refused("--input", text, *BYTE, "--split-on", "blank-lines",
                     "--json-key", "x", says=["--json-key"])
        self.refused("--input", text, *BYTE, "--apend-eod",
                     says=["--apend-eod", "--append-eod"])

    def test_existing_output_is_kept(self):
        self.write("out.bin", "precious")
        self.refused("--input", self.write("a", "x"), *BYTE, "--split-on",
                     "blank-lines", says=["out.bin exists"])
        with open(self.path("out.bin"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
