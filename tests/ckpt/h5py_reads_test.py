"""h5py alone reads whole tensors, with true values, through index.h5.

Usage: h5py_reads_test.py WRITER, the program made of python_sample.cc.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy

KINDS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E5M2": "uint8",
    "F8_E4M3": "uint8", "F8_E8M0": "uint8", "I16": "int16", "U16": "uint16",
    "F16": "float16", "BF16": "float32", "I32": "int32", "U32": "uint32",
    "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64",
    "U64": "uint64",
}


def expected(name, count):
    values = numpy.arange(count) % 100
    if name == "BOOL":
        return values % 2 == 1
    if name == "C64":
        return (values - 1j * values).astype("complex64")
    return values.astype(KINDS[name])


def check(step_dir):
    with h5py.File(os.path.join(step_dir, "index.h5"), "r") as index:
        assert index["state"][()] == b'{"step":1}', index["state"][()]
        assert index["record"][()] == b"", index["record"][()]
        assert len(index["tensors"]) == len(KINDS)
        for name, kind in KINDS.items():
            group = index["tensors"]["t." + name]
            matrix = group["matrix%b"]
            assert matrix.is_virtual and matrix.shape == (5, 9), name
            assert matrix.dtype == kind, (name, matrix.dtype)
            want = expected(name, 45).reshape(5, 9)
            assert (matrix[...] == want).all(), (name, matrix[...])
            assert (matrix[1:4, 2:7] == want[1:4, 2:7]).all(), name
            assert group["scalar"].shape == (), name
            assert group["scalar"][()] == expected(name, 1)[0], name
            assert group["empty"].shape == (0, 3), name
    part = os.path.join(step_dir, "part-00001.h5")
    with h5py.File(part, "r") as file:
        fragment = file["fragments/t.F32 matrix%b 0_4"]
        attrs = fragment.attrs
        assert attrs["tensor"] == b"t.F32" and attrs["role"] == b"matrix%b"
        assert attrs["dtype"] == b"F32"
        assert list(attrs["shape"]) == [5, 9]
        assert list(attrs["start"]) == [0, 4]
        want = expected("F32", 45).reshape(5, 9)[:, 4:]
        assert (fragment[...] == want).all()


def main():
    with tempfile.TemporaryDirectory() as directory:
        run = os.path.join(directory, "run")
        subprocess.run([sys.argv[1], run], check=True)
        check(os.path.join(run, "step-00000001"))
        # Views follow their directory.
        moved = os.path.join(directory, "elsewhere", "best")
        shutil.move(os.path.join(run, "step-00000001"), moved)
        check(moved)


main()
