"""Makes values.pt and legacy.pt, by PyTorch 2.15: one of each value that
checkpoints hold. usage: make_values.py
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import collections
import io
import pathlib
import signal
import types

import numpy
import torch

base = torch.arange(6, dtype=torch.float32).reshape(2, 3)
arguments = argparse.Namespace(
    lr=0.5, name="tiny", params_dtype=torch.bfloat16, exit_signal=signal.SIGTERM,
    nested=types.SimpleNamespace(depth=2), path=pathlib.PurePosixPath("/a/b"))
values = {
    "base": base,
    "transposed": base.t(),
    "row": base[1],
    "scalar": torch.tensor(7, dtype=torch.int64),
    "empty": torch.empty(0, 4, dtype=torch.float16),
    "bool": torch.tensor([True, False]),
    "f8": torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn),
    "u16": torch.tensor([1, 65535], dtype=torch.uint16),
    "complex": torch.tensor([1 + 2j], dtype=torch.complex64),
    "complex128": torch.tensor([1 + 2j], dtype=torch.complex128),
    "conj": torch.tensor([1 + 2j], dtype=torch.complex64).conj(),
    "expanded": torch.tensor([3.0]).expand(2, 2),
    "parameter": torch.nn.Parameter(torch.tensor([5.0, 6.0])),
    "args": arguments,
    "ordered": collections.OrderedDict([("a", 1), ("b", [2, 3])]),
    "size": torch.Size([2, 3]),
    "dtype": torch.float32,
    "array": numpy.array([[1, 2, 3], [4, 5, 6]], dtype="uint32"),
    "columns": numpy.asfortranarray(numpy.array([[1, 2], [3, 4]], dtype="int64")),
    "big_endian": numpy.array([1], dtype=">i4"),
    "np_scalar": numpy.float64(1.5),
    "bytes": b"\x00\xff",
    "stream": io.BytesIO(b"abc"),
    "large": 1 << 40,
    "huge": 1 << 100,
    "negative": -5,
    "set": {1},
}
torch.save(values, "values.pt")
torch.save({"a": 1}, "legacy.pt", _use_new_zipfile_serialization=False)
