"""Faults that bit users of other programs, by the number of their kind: those
of types that change on the way, or that nobody checks.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import struct
import sys
import unittest

from programs import FolderTest, run, succeed

# dtype, shape and bytes: a model of 16 bits, and what is not.
TENSORS = {
    "layer.weight": ("BF16", [3, 4], struct.pack("<12H", *range(0x3F80, 0x3F8C))),
    "layer.bias": ("F16", [4], struct.pack("<4e", 1, -2, 0.5, 6e4)),
    "norm.weight": ("F32", [3], struct.pack("<3f", 1, 1e-30, 1e30)),
    "position_ids": ("I64", [5], struct.pack("<5q", 0, 1, 2, -3, 2**62)),
}


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    os.mkdir(path)
    with open(os.path.join(path, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(os.path.join(path, "model.safetensors"), "rb") as file:
        everything = file.read()
    begin = 8 + struct.unpack_from("<Q", everything)[0]
    header = json.loads(everything[8:begin])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"],
                   everything[begin + entry["data_offsets"][0]:
                              begin + entry["data_offsets"][1]])
            for name, entry in header.items()}


class DtypeKindsTest(FolderTest):

    def reshard(self, source, target, *args):
        return succeed("reshard", self.path(source), self.path(target),
                       "--generic", *args)

    def test_b136_every_tensor_keeps_its_type_unless_told(self):
        write(self.path("source"), TENSORS)
        self.reshard("source", "run")
        self.reshard("run", "back", "--to", "safetensors")
        self.assertEqual(read(self.path("back")), TENSORS)
        self.reshard("source", "rounded", "--to", "safetensors", "--dtype",
                     "bf16")
        types = {name: dtype for name, (dtype, _, _) in
                 read(self.path("rounded")).items()}
        self.assertEqual(types, {"layer.weight": "BF16", "layer.bias": "BF16",
                                 "norm.weight": "BF16", "position_ids": "I64"})

    def test_b137_a_type_that_does_not_fit_the_bytes_is_refused(self):
        values = TENSORS["norm.weight"][2]
        for name, bad in (("type", ("F16", [3], values)),
                          ("half", ("F32", [3], values[:6]))):
            write(self.path(name), {**TENSORS, "norm.weight": bad})
            done = run("reshard", self.path(name), self.path("to"), "--generic")
            self.assertNotEqual(done.returncode, 0)
            for words in ("error: ", "model.safetensors", "norm.weight"):
                self.assertIn(words, done.stderr)
            self.assertFalse(os.path.exists(self.path("to")))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
