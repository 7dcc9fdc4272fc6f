"""Makes the files in data/.

python3 make_data.py MODELS: `golden.safetensors` is what the reference library
(safetensors 0.8.0) writes for tensors of every dtype. From the folders of
models below MODELS, as transformers writes them, it takes configurations and
the headers of the weight files; of `expected.json`, which tells what
transformers makes of a configuration, all but the shapes.
SPDX-License-Identifier: Apache-2.0
"""

import ctypes
import json
import math
import pathlib
import shutil
import struct
import sys

import safetensors

DATA = pathlib.Path(__file__).parent / "data"
ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e8m0fnu": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "complex64": 8, "float64": 8,
    "int64": 8, "uint64": 8,
}


def write_golden():
    zeros = ctypes.create_string_buffer(64)

    def spec(dtype, shape):
        return safetensors.TensorSpec(
            dtype=dtype, shape=shape, data_ptr=ctypes.addressof(zeros),
            data_len=math.prod(shape) * ITEM_BYTES[dtype])

    tensors = {f"{name}.{dtype}": spec(dtype, shape) for dtype in ITEM_BYTES
               for name, shape in (("b", [2, 3]), ("a", [5]), ("none", [0, 7]))}
    tensors["scalar"] = spec("float32", [])
    tensors['odd "name"\\/\n\x01\x7f \u00e9'] = spec("uint8", [1])
    (DATA / "golden.safetensors").write_bytes(
        safetensors.serialize(tensors, {"format": "pt"}))
    (DATA / "golden_empty.safetensors").write_bytes(
        safetensors.serialize({}, None))


def copy_heads(source, target):
    target.mkdir(parents=True, exist_ok=True)
    for config in source.glob("config*.json"):
        shutil.copyfile(config, target / config.name)
    for index in source.glob("model*.index.json"):
        shutil.copyfile(index, target / index.name)
    for weights in source.glob("model*.safetensors"):
        with weights.open("rb") as file:
            length = file.read(8)
            head = length + file.read(struct.unpack("<Q", length)[0])
        (target / f"{weights.name}.head").write_bytes(head)


def main(models):
    write_golden()
    for folder in sorted(p for p in models.iterdir() if p.is_dir()):
        target = DATA / folder.name
        copy_heads(folder, target)
        for variant in sorted(p for p in folder.iterdir() if p.is_dir()):
            copy_heads(variant, target / variant.name)
        expected = json.loads((folder / "expected.json").read_text())
        del expected["shapes"]
        (target / "expected.json").write_text(json.dumps(expected, indent=1))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
