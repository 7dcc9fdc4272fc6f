"""What the tests of other formats share.

The archives in foreign/ hold what the real libraries saved, with values that
are coded by tensor, role and position (Megatron-Core 0.14 to 0.16.1, PyTorch
2.15).
"""
# SPDX-License-Identifier: Apache-2.0
import io
import pathlib
import re
import tarfile
import zipfile

import h5py
import numpy

ARCHIVES = pathlib.Path(__file__).parent / "foreign"
ROLES = {"weight": 0, "master": 1, "exp_avg": 2, "exp_avg_sq": 3}


def code(number, role, count):
    """The first `count` elements of a tensor, as float32."""
    index = numpy.arange(count, dtype=numpy.uint64)
    u = (index * numpy.uint64(2654435761) +
         numpy.uint64(number * 40503 + ROLES[role] * 97)) % numpy.uint64(1 << 24)
    u = u.astype(numpy.float64)
    if role == "exp_avg_sq":
        return (u * 2.0**-24).astype(numpy.float32)
    return ((u - 2**23) * 2.0**-23).astype(numpy.float32)


def extract(name, directory):
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(directory)


class Copy:
    """The tensors of a checkpoint of ours."""

    def __init__(self, run):
        step, = pathlib.Path(run).glob("step-*")
        self.tensors = h5py.File(step / "index.h5")["tensors"]
        self.used = set()

    def get(self, name, role):
        self.used.add(f"{name}/{role}")
        return self.tensors[f"{name}/{role}"][...]

    def all(self):
        names = set()
        self.tensors.visititems(lambda name, node: names.add(name) if isinstance(
            node, h5py.Dataset) else None)
        return names


NAMES = {
    "embedding.word_embeddings.": "embedding.word.",
    "embedding.position_embeddings.": "embedding.position.",
    "decoder.final_layernorm.": "final_norm.",
    "output_layer.": "output.",
    "self_attention.linear_qkv.layer_norm_": "attention_norm.",
    "mlp.linear_fc1.layer_norm_": "mlp_norm.",
    "pre_mlp_layernorm.": "mlp_norm.",
    "self_attention.linear_proj.": "attention.proj.",
    "mlp.router.": "mlp.router.",
}


def megatron_tensor(copy, name, role, head_width):
    """A tensor of Megatron's, on one rank, made of ours."""
    prefix = ""
    if name.startswith("decoder.layers."):
        layer, name = name.removeprefix("decoder.layers.").split(".", 1)
        prefix = f"layers.{layer}."
    for theirs, ours in NAMES.items():
        if name.startswith(theirs):
            return copy.get(prefix + ours + name.removeprefix(theirs), role)
    kind = name.rsplit(".", 1)[1]
    if name.startswith("self_attention.linear_qkv."):
        parts = [copy.get(f"{prefix}attention.{x}.{kind}", role) for x in "qkv"]
        groups = parts[1].shape[0] // head_width
        grouped = [x.reshape(groups, -1, *x.shape[1:]) for x in parts]
        fused = numpy.concatenate(grouped, axis=1)
        return fused.reshape(-1, *fused.shape[2:])
    block = prefix + "mlp."
    if "local_experts." in name:
        block += f"experts.{name.split('local_experts.')[1].split('.')[0]}."
    if "linear_fc2." in name:
        return copy.get(f"{block}down.{kind}", role)
    if f"{block}gate.{kind}" in copy.tensors:
        return numpy.concatenate([copy.get(f"{block}{x}.{kind}", role)
                                  for x in ("gate", "up")])
    return copy.get(f"{block}up.{kind}", role)


def check_megatron(copy, expected, roles):
    for entry in expected["tensors"]:
        for role in roles:
            found = megatron_tensor(copy, entry["name"], role, head_width=8)
            assert list(found.shape) == entry["shape"], entry["name"]
            wanted = code(entry["t"], role, found.size)
            assert found.dtype == numpy.float32
            assert numpy.array_equal(found.ravel().view(numpy.uint32),
                                     wanted.view(numpy.uint32)), (
                                         entry["name"], role)
    assert copy.all() == copy.used


def check_archives(path):
    """Archives follow each other; each ends with a record of 22 bytes."""
    data = path.read_bytes()
    ends = [m.start() + 22 for m in re.finditer(b"PK\x05\x06", data)]
    begin = data.index(b"PK\x03\x04")
    assert ends[-1] == len(data)
    for end in ends:
        archive = zipfile.ZipFile(io.BytesIO(data[begin:end]))
        assert archive.testzip() is None
        assert "archive/data.pkl" in archive.namelist()
        begin = end
