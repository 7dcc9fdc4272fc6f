"""Optimizer state that Megatron-Core 0.15 to 0.19 has shifted: refused, or
repaired on request.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import re
import shutil
import tempfile

import numpy

from foreign_copy import Copy, code, extract, megatron_tensor
from programs import run, succeed


def test_shifted(directory):
    """B-kind: fully_reshardable state of Megatron-Core 0.15 to 0.19."""
    name = "torch_dist-fully_reshardable-shifted"
    extract(name, directory)
    source = directory / name / "ckpt"
    result = run("reshard", source, directory / "shifted")
    assert result.returncode == 1
    assert "shifts optimizer state" in result.stderr, result.stderr
    assert "--weights-only" in result.stderr
    assert "--repair-shifted" in result.stderr
    assert not (directory / "shifted").exists()
    for command in (["show", source], ["diff", source, source],
                    ["cat", source, "embedding.word.weight[0]"]):
        result = run("ckpt", *command)
        assert result.returncode != 0, command
        assert "`reshard --repair-shifted`" in result.stderr, result.stderr
    succeed("reshard", source, directory / "weights", "--weights-only",
                 "--tp", 2)
    copy = Copy(directory / "weights")
    # The weights are bfloat16: their masters, rounded.
    for entry in json.loads(
            (directory / name / "expected.json").read_text())["tensors"]:
        found = megatron_tensor(copy, entry["name"], "weight", head_width=8)
        wanted = code(entry["t"], "master", found.size)
        error = numpy.abs(found.ravel().astype(numpy.float32) - wanted)
        assert (error <= numpy.abs(wanted) * 2.0**-8).all(), entry["name"]
    assert copy.all() == copy.used


def split_of(name):
    """How tensor parallelism cuts a tensor of GPT-2's."""
    if name.startswith("embedding.word") or re.search(
            r"(qkv|fc1)\.(weight|bias)$", name):
        return 0
    return 1 if re.search(r"(proj|fc2)\.weight$", name) else None


def found_by_loops(expected, ranks):
    """Of every tensor, which elements are under any name after the shift."""
    shapes = {entry["name"]: entry.get("padded_shape", entry["shape"])
              for entry in expected["tensors"]}
    found = {name: numpy.zeros(numpy.prod(shape), bool)
             for name, shape in shapes.items()}
    size = expected["layout"]["tp"]
    for rank in ranks:
        buffer, = rank["buffers"]
        parameters = [
            p for p in buffer["params"]
            if (split_of(p["name"]) is not None or rank["tp"] == 0)
            and not (p["local"].startswith("output") and
                     p["name"].startswith("embedding"))]
        under_a_name = numpy.zeros(buffer["numel"], bool)
        for p in parameters:
            under_a_name[slice(*p["range"])] = True
        for p in parameters:
            begin, end = p["range"]
            shift = sum(b - a - n for a, b, n in buffer["buckets"][:p["bucket"]])
            index = numpy.arange(found[p["name"]].size).reshape(
                shapes[p["name"]])
            if split_of(p["name"]) is not None:
                index = numpy.split(index, size,
                                    split_of(p["name"]))[rank["tp"]]
            assert index.size == end - begin
            found[p["name"]][index.ravel()] = under_a_name[begin - shift:
                                                           end - shift]
    return found


def check_repaired(directory, name, lost):
    """`lost`, by tensor: how many elements. All others are the true ones."""
    expected = json.loads((directory / name / "expected.json").read_text())
    target = directory / f"{name}-repaired"
    result = succeed("reshard", "--repair-shifted", directory / name / "ckpt",
                     target, "--tp", 2, "--json")
    total = sum(lost.values())
    assert "repaired: the optimizer state of" in result.stderr
    assert f"lost in all: {total} of" in result.stderr, result.stderr
    report = json.loads(result.stdout)
    assert report["equal"]
    assert sum(entry["elements"] for entry in report["lost"]) == total
    assert any(line.startswith(f"{total} of") for line in report["left_out"])
    copy = Copy(target)
    for entry in expected["tensors"]:
        is_lost = None
        for role in ("exp_avg", "exp_avg_sq", "master"):
            found = megatron_tensor(copy, entry["name"], role, head_width=8)
            found = found.ravel().view(numpy.uint32)
            wanted = code(entry["t"], role, found.size).view(numpy.uint32)
            if is_lost is None:
                is_lost = found != wanted
                assert is_lost.sum() == lost.get(entry["name"], 0), (
                    entry["name"])
            filled = numpy.zeros_like(wanted)
            if role == "master":  # the weight: to bfloat16 and back
                even = (wanted >> 16) & 1
                filled = (wanted + 0x7FFF + even) >> 16 << 16
            assert numpy.array_equal(found, numpy.where(
                is_lost, filled, wanted)), (entry["name"], role)
    assert copy.all() == copy.used
    # The same by any other way, and of what is right nothing is changed.
    again = directory / f"{name}-again"
    succeed("reshard", "--repair-shifted", directory / name / "ckpt", again,
            "--dp", 2, "--use-distributed-optimizer")
    assert "equal" in succeed("ckpt", "diff", target, again).stdout


def test_repair(directory):
    lost = {"embedding.word_embeddings.weight": 32}
    for layer in range(4):
        prefix = f"decoder.layers.{layer}."
        lost[prefix + "mlp.linear_fc1.weight"] = 64
        lost[prefix + "self_attention.linear_proj.weight"] = 64
        lost[prefix + "self_attention.linear_qkv.weight"] = 32
        if layer < 3:
            lost[prefix + "mlp.linear_fc2.weight"] = 32
    assert sum(lost.values()) == 768
    check_repaired(directory, "torch_dist-fully_reshardable-shifted", lost)

    # Tied, with tensor and pipeline parallelism, and vocabulary padding.
    name = "torch_dist-gpt2-tp2pp2-shifted"
    extract(name, directory)
    expected, ranks = (
        json.loads((directory / name / file).read_text())
        for file in ("expected.json", "buffers.json"))
    found = found_by_loops(expected, ranks)
    lost = {}
    for entry in expected["tensors"]:
        of_tensor = found[entry["name"]][:numpy.prod(entry["shape"])]
        lost[entry["name"]] = int((~of_tensor).sum())
    assert sum(lost.values()) > 0
    check_repaired(directory, name, lost)


def test_repair_refusals(directory):
    for name in ("torch_dist-moe-ep2dp4", "legacy-gpt2-tp2pp2dp2"):
        extract(name, directory)
    shifted = directory / "torch_dist-fully_reshardable-shifted" / "ckpt"
    for source, flags, hint in (
            (shifted, ["--weights-only"], "--weights-only leaves behind"),
            (shifted, ["--generic"], "read as a model"),
            (directory / "torch_dist-moe-ep2dp4" / "ckpt", [],
             "saved as fully_reshardable"),
            (directory / "legacy-gpt2-tp2pp2dp2" / "ckpt", [], "torch_dist"),
            (directory / "torch_dist-fully_reshardable-shifted-repaired", [],
             "torch_dist")):
        result = run("reshard", "--repair-shifted", source,
                     directory / "refused", *flags)
        assert result.returncode == 2, result.stderr
        assert hint in result.stderr, result.stderr
        assert not (directory / "refused").exists()
    # A master that is another one than its weight says.
    damaged = directory / "damaged-shifted"
    shutil.copytree(shifted, damaged)
    number, = (entry["t"] for entry in json.loads(
        (shifted.parent / "expected.json").read_text())["tensors"]
               if entry["name"] == "embedding.word_embeddings.weight")
    values = code(number, "master", 104)[100:].tobytes()
    path, = (path for path in damaged.glob("iter_*/*.distcp")
             if values in path.read_bytes())
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[data.index(values) + 3] ^= 0x80
    path.write_bytes(data)
    result = run("reshard", "--repair-shifted", damaged, directory / "refused")
    assert result.returncode == 1, result.stderr
    assert "after --repair-shifted" in result.stderr, result.stderr
    assert not (directory / "refused").exists()


def main():
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        test_shifted(directory)
        test_repair(directory)
        test_repair_refusals(directory)
    print("equal")


main()
