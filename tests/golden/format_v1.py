"""Makes format-v1/expected.json: what the golden checkpoint of format version
1 holds, with fingerprints by the independent reader; with the argument zstd,
format-v1-zstd/expected.json, for codec 1.

Usage: format_v1.py [zstd] > FOLDER/expected.json. The files beside it are made
from it by golden_writer. All are kept as they are: see CONTRIBUTING.md.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "ckpt"))
import format_reader  # noqa: E402

NUMBERS = {name: i for i, (name, _) in enumerate(format_reader.DTYPES)}
STATE = {
    "comment": "été",
    "progress": {"step": 12},
    "unknown": [1, 0.5, None],
}
RECORD = {"layout": {"tensor_model_parallel_size": 2}, "precision": "fp32"}
# NaNs of either sign and kind, zero of either sign, infinity.
SPECIAL = {
    "BF16": struct.pack("<5H", 0x7fc1, 0xffa5, 0x8000, 0x7f80, 0x3f80),
    "F16": struct.pack("<5H", 0x7e01, 0xfd55, 0x8000, 0xfc00, 0x3c01),
    "F32": struct.pack("<5I", 0x7fc00123, 0xffa54321, 0x80000000, 0x7f800000,
                       0x3f800001),
    "F64": struct.pack("<5Q", 0x7ff8000000000123, 0xfff4000000005432, 1 << 63,
                       0x7ff << 52, 0x3ff0000000000001),
    "BOOL": b"\1\0\1\1\0",
}


def coded(name, role, size):
    """Bytes that tell tensor and place."""
    seed = format_reader.checksum((name + "/" + role).encode())
    words = [format_reader.splitmix(seed, i) for i in range(-(-size // 8))]
    return struct.pack(f"<{len(words)}Q", *words)[:size]


def tensor(name, role, dtype, shape, fragments, values=None):
    size = format_reader.DTYPES[NUMBERS[dtype]][1]
    for extent in shape:
        size *= extent
    if values is None:
        values = coded(name, role, size)
    key = (name.encode(), role.encode())
    fingerprint = format_reader.image_fingerprint(key, NUMBERS[dtype], values)
    return {
        "name": name, "role": role, "dtype": dtype, "shape": shape,
        "fingerprint": format_reader.printed(fingerprint),
        "values": values.hex(),
        "fragments": [{"part": part, "start": start, "extent": extent}
                      for part, start, extent in fragments],
    }


def whole(part, shape):
    return [(part, [0] * len(shape), shape)]


def tensors():
    columns = [(0, [0, 0], [4, 3]), (3, [0, 3], [4, 3])]
    for role in ("master", "exp_avg", "exp_avg_sq"):
        yield tensor("columns", role, "F32", [4, 6], columns)
    # The cut is inside a 32-bit word where items are smaller.
    for dtype in NUMBERS:
        yield tensor("dtype." + dtype, "weight", dtype, [5],
                     [(3, [0], [3]), (0, [3], [2])], SPECIAL.get(dtype))
    yield tensor("cube", "weight", "U8", [3, 4, 5],
                 [(3, [0, 0, 0], [2, 4, 3]), (0, [0, 0, 3], [2, 1, 2]),
                  (3, [0, 1, 3], [2, 3, 2]), (0, [2, 0, 0], [1, 4, 5])])
    yield tensor("scalar", "step", "I64", [], whole(0, []))
    yield tensor("scalar", "nan", "BF16", [], whole(3, []), b"\xc1\x7f")
    yield tensor("empty", "weight", "F16", [0, 3], whole(3, [0, 3]))
    # More than a page, and not whole pages.
    yield tensor("page", "weight", "F32", [1033], whole(3, [1033]))
    # Ascending by bytes, not by number.
    yield tensor("layers.10.~%b", "%d%%", "I16", [1, 1], whole(3, [1, 1]))
    yield tensor("layers.2.~%b", "%d%%", "I16", [1, 1], whole(0, [1, 1]))


def ramp(form, size):
    return b"".join(struct.pack("<" + form, i % 1000) for i in range(size))


def compressed_tensors():
    rows = [(0, [0, 0], [40, 50]), (3, [40, 0], [24, 50])]
    for role, values in (("master", ramp("f", 3200)), ("exp_avg", None)):
        yield tensor("rows", role, "F32", [64, 50], rows, values)
    yield tensor("wide", "weight", "I64", [600], whole(3, [600]),
                 ramp("q", 600))
    yield tensor("narrow", "weight", "U8", [5000], whole(0, [5000]),
                 bytes(5000))
    # Below the least size; zero and one element.
    yield tensor("small", "weight", "BF16", [2047], whole(0, [2047]))
    yield tensor("scalar", "step", "I64", [], whole(0, []))
    yield tensor("empty", "weight", "F16", [0, 3], whole(3, [0, 3]))


def main():
    is_compressed = sys.argv[1:] == ["zstd"]
    made = compressed_tensors() if is_compressed else tensors()
    found = sorted(made, key=lambda t: (t["name"], t["role"]))
    root = format_reader.root_fingerprint([
        ((t["name"].encode(), t["role"].encode()), NUMBERS[t["dtype"]],
         t["shape"], (int(t["fingerprint"][16:], 16),
                      int(t["fingerprint"][:16], 16))) for t in found])
    expected = {
        "step": 12,
        "state": json.dumps(STATE, ensure_ascii=False, indent=2),
        "record": json.dumps(RECORD, indent=2),
        "root_fingerprint": format_reader.printed(root),
    }
    if is_compressed:
        expected["codec"] = 1
    lines = ",\n".join("  " + json.dumps(t) for t in found)
    head = json.dumps(expected, ensure_ascii=False, indent=1)[:-2]
    print(f'{head},\n "tensors": [\n{lines}\n ]\n}}')


main()
