"""Distributed checkpoints that PyTorch wrote, read by `reshard` and written
again.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import tempfile

import numpy

from foreign_copy import ROLES, Copy, check_archives, code, extract
from programs import run, succeed


def test_dcp(directory):
    extract("dcp", directory)
    for name in ("dtensor-4", "fsdp2-2"):
        target = directory / f"{name}-run"
        succeed("reshard", directory / name / "ckpt", target, "--generic",
                "--dp", 3)
        copy = Copy(target)
        expected = json.loads((directory / name / "expected.json").read_text())
        for entry in expected["tensors"]:
            if entry["dtype"] != "float32" or entry["role"] not in ROLES:
                continue
            key, role = entry["key"], "weight"
            if key.startswith("optim.state."):
                key, role = key.removeprefix("optim.state.").rsplit(".", 1)
            found = copy.get(key, role)
            assert list(found.shape) == entry["shape"], key
            wanted = code(entry["t"], entry["role"], found.size)
            assert numpy.array_equal(found.ravel().view(numpy.uint32),
                                     wanted.view(numpy.uint32)), key
        assert copy.used
        # Once more through another format, and the same checkpoint again.
        folder = directory / f"{name}-folder"
        succeed("reshard", target, folder, "--generic", "--to", "safetensors")
        assert run("ckpt", "diff", folder / "model.safetensors",
                   directory / name / "ckpt").returncode == 1
        again = directory / f"{name}-again"
        succeed("reshard", folder, again, "--generic", "--to",
                     "safetensors")
        assert ((folder / "model.safetensors").read_bytes() ==
                (again / "model.safetensors").read_bytes())
        check_dcp_copy(directory, name, target)


GPT2_NAMES = {
    "transformer.wte.": "embedding.word.",
    "transformer.wpe.": "embedding.position.",
    "transformer.ln_f.": "final_norm.",
    "ln_1.": "attention_norm.",
    "ln_2.": "mlp_norm.",
    "attn.c_proj.": "attention.proj.",
    "mlp.c_fc.": "mlp.up.",
    "mlp.c_proj.": "mlp.down.",
}


def gpt2_tensor(copy, name, role):
    """A tensor of transformers' GPT-2, made of ours."""
    prefix = ""
    if name.startswith("transformer.h."):
        layer, name = name.removeprefix("transformer.h.").split(".", 1)
        prefix = f"layers.{layer}."
    kind = name.rsplit(".", 1)[1]
    if name.startswith("attn.c_attn."):
        found = numpy.concatenate([
            copy.get(f"{prefix}attention.{x}.{kind}", role) for x in "qkv"])
    else:
        theirs = name.removesuffix(kind)
        found = copy.get(prefix + GPT2_NAMES[theirs] + kind, role)
    # Its linear layers are stored transposed.
    return found.T if ".c_" in name and kind == "weight" else found


def check_gpt2(run_dir, expected):
    copy = Copy(run_dir)
    for entry in expected["tensors"]:
        for role in ("master", "exp_avg", "exp_avg_sq"):
            found = gpt2_tensor(copy, entry["name"], role)
            assert list(found.shape) == entry["shape"], entry["name"]
            wanted = code(entry["t"], role, found.size)
            assert numpy.array_equal(
                numpy.ascontiguousarray(found).ravel().view(numpy.uint32),
                wanted.view(numpy.uint32)), (entry["name"], role)
    assert copy.all() == copy.used


def test_fsdp(directory):
    """A model of transformers under FSDP2, there and back."""
    extract("fsdp", directory)
    source = directory / "fsdp" / "ckpt"
    target = directory / "fsdp-run"
    result = succeed("reshard", source, target, "--tp", 2, "--pp", 2)
    assert "every value is equal, bit for bit" in result.stdout
    assert 'left out: object "iteration"' in result.stdout
    expected = json.loads((directory / "fsdp/expected.json").read_text())
    check_gpt2(target, expected)
    progress = json.loads(succeed("ckpt", "show", target, "--json").stdout)[
        "state"]["progress"]
    assert progress == {"step": 10, "skipped_iterations": 0}
    written = directory / "fsdp-dcp"
    result = succeed("reshard", target, written, "--to", "dcp")
    assert "left out: hyper-parameters" in result.stdout
    # There are none to lose.
    assert "consumed_samples" not in result.stdout
    assert (written / "config.json").is_file()
    back = directory / "fsdp-back"
    succeed("reshard", written, back, "--dp", 3,
            "--use-distributed-optimizer")
    assert "equal" in succeed("ckpt", "diff", target, back).stdout
    check_gpt2(back, expected)
    check_archives(written / "__0_0.distcp")
    # The same state, the same bytes.
    again = directory / "fsdp-again"
    succeed("reshard", back, again, "--to", "dcp")
    for path in written.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path
    # The configuration is what tells the model.
    (written / "config.json").unlink()
    result = run("reshard", written, directory / "fsdp-unknown")
    assert result.returncode != 0 and "config.json" in result.stderr
    assert "--generic" in result.stderr


def check_dcp_copy(directory, name, run_dir):
    """To DCP and back: the same tensors and objects, in sound archives."""
    written = directory / f"{name}-dcp"
    succeed("reshard", run_dir, written, "--generic", "--to", "dcp")
    back = directory / f"{name}-back"
    succeed("reshard", written, back, "--generic", "--dp", 3)
    assert "equal" in succeed("ckpt", "diff", run_dir, back).stdout
    check_archives(written / "__0_0.distcp")


def main():
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        test_dcp(directory)
        test_fsdp(directory)
    print("equal")


main()
