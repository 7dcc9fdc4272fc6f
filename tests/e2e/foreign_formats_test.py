"""Checkpoints that Megatron-Core and PyTorch wrote, read by `reshard`.

The archives in foreign/ hold what the real libraries saved, with values that
are coded by tensor, role and position (Megatron-Core 0.14 to 0.16.1, PyTorch
2.15). Every value of every tensor and role is compared.
"""
# SPDX-License-Identifier: Apache-2.0
import io
import json
import pathlib
import re
import shutil
import tarfile
import tempfile
import zipfile

import h5py
import numpy

from programs import run, succeed

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


def test_megatron(directory, name):
    extract(name, directory)
    target = directory / f"{name}-run"
    result = succeed("reshard", directory / name / "ckpt", target, "--tp", 2,
                     "--pp", 2)
    assert "every value is equal, bit for bit" in result.stdout
    assert "left out: random number state" in result.stdout
    expected = json.loads((directory / name / "expected.json").read_text())
    check_megatron(Copy(target), expected, ["master", "exp_avg", "exp_avg_sq"])
    assert (target / "step-00000010").is_dir()
    progress = json.loads(succeed("ckpt", "show", target, "--json").stdout)[
        "state"]["progress"]
    assert progress["step"] == 10 and progress["skipped_iterations"] == 0


def test_to_torch_dist(directory, name, *layout):
    """As Megatron-Core's distributed checkpoint, and back."""
    written = directory / f"{name}-torch-dist"
    result = succeed("reshard", directory / name / "ckpt", written, "--to",
                     "torch_dist", *layout)
    assert "rounded" in result.stdout, result.stdout
    assert (written / "latest_checkpointed_iteration.txt").read_text() == "10"
    folder = written / "iter_0000010"
    assert json.loads((folder / "metadata.json").read_text()) == {
        "sharded_backend": "torch_dist", "sharded_backend_version": 1,
        "common_backend": "torch", "common_backend_version": 1}
    assert zipfile.ZipFile(folder / "common.pt").testzip() is None
    for path in folder.glob("*.distcp"):
        check_archives(path)
    succeed("ckpt", "verify", "--deep", written)
    back = directory / f"{name}-torch-dist-run"
    succeed("reshard", written, back, "--dp", 2)
    expected = json.loads((directory / name / "expected.json").read_text())
    check_megatron(Copy(back), expected, ["master", "exp_avg", "exp_avg_sq"])


def test_damage(directory):
    """A flipped bit in a value is found by the archive's checksum."""
    source = directory / "legacy-gpt2-tp2pp2dp2" / "ckpt"
    path = source / "iter_0000010" / "mp_rank_01_001" / "distrib_optim.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    result = run("reshard", source, directory / "damaged")
    assert result.returncode == 1
    assert str(path) in result.stderr and "CRC-32" in result.stderr
    assert not (directory / "damaged").exists()
    assert not (directory / "damaged.partial").exists()
    result = run("ckpt", "verify", "--deep", source)
    assert result.returncode == 1 and str(path) in result.stdout
    # A rank's folder that is not there.
    path.rename(directory / "away")
    result = run("reshard", source, directory / "damaged")
    assert result.returncode != 0 and str(path) in result.stderr


def test_other_rank(directory):
    """Folders of two ranks swapped: B-kinds of mixed checkpoints."""
    name = "legacy-gpt2-tp2dp1-nodistopt"
    folder = directory / name / "ckpt" / "iter_0000010"
    (folder / "mp_rank_00").rename(folder / "away")
    (folder / "mp_rank_01").rename(folder / "mp_rank_00")
    (folder / "away").rename(folder / "mp_rank_01")
    result = run("reshard", folder.parent, directory / "swapped")
    assert result.returncode == 1
    assert "written by rank 1" in result.stderr, result.stderr
    assert not (directory / "swapped").exists()
    result = run("reshard", folder.parent, directory / "swapped",
                 "--vocab-size", 100)
    assert result.returncode == 2 and "--vocab-size" in result.stderr


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


def main():
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        for archive in sorted(ARCHIVES.glob("*-*.tar.xz")):
            name = archive.name.removesuffix(".tar.xz")
            if "shifted" not in name:
                test_megatron(directory, name)
        test_to_torch_dist(directory, "legacy-gpt2-tp2pp2dp2", "--tp", 4)
        test_to_torch_dist(directory, "torch_dist-gpt2-tp2pp1dp3-model_space",
                           "--pp", 2, "--use-distributed-optimizer")
        test_to_torch_dist(directory, "legacy-moe-ep2dp4", "--tp", 2, "--pp", 2,
                           "--dp", 2, "--ep", 2,
                           "--use-distributed-optimizer")
        test_damage(directory)
        test_other_rank(directory)
        test_shifted(directory)
        test_repair(directory)
        test_repair_refusals(directory)
        test_dcp(directory)
        test_fsdp(directory)
    print("equal")


main()
