"""Checkpoints that Megatron-Core wrote, read by `reshard` and written again.

Every value of every tensor and role is compared.
"""
# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import pathlib
import tempfile
import zipfile

from foreign_copy import (ARCHIVES, Copy, check_archives, check_megatron,
                          extract)
from programs import run, succeed


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


def check_back(directory, name, written):
    """A checkpoint of Megatron's that was made from an archive."""
    succeed("ckpt", "verify", "--deep", written)
    back = directory / f"{written.name}-run"
    succeed("reshard", written, back, "--dp", 2)
    expected = json.loads((directory / name / "expected.json").read_text())
    check_megatron(Copy(back), expected, ["master", "exp_avg", "exp_avg_sq"])


def digest(folder):
    """Of the names and bytes of all files."""
    result = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        result.update(f"{path.relative_to(folder)}\n".encode())
        result.update(path.read_bytes())
    return result.hexdigest()[:16]


def test_to_torch_dist(directory, name, golden, *layout):
    """As Megatron-Core's distributed checkpoint, and back."""
    written = directory / f"{name}-torch-dist"
    result = succeed("reshard", directory / name / "ckpt", written, "--to",
                     "torch_dist", *layout)
    assert "every value is equal" in result.stdout, result.stdout
    assert (written / "latest_checkpointed_iteration.txt").read_text() == "10"
    folder = written / "iter_0000010"
    assert json.loads((folder / "metadata.json").read_text()) == {
        "sharded_backend": "torch_dist", "sharded_backend_version": 1,
        "common_backend": "torch", "common_backend_version": 1}
    assert zipfile.ZipFile(folder / "common.pt").testzip() is None
    for path in folder.glob("*.distcp"):
        check_archives(path)
    check_back(directory, name, written)
    assert digest(written) == golden, (name, layout, digest(written))


def test_to_legacy(directory, name, golden, folders, *layout):
    """As Megatron's legacy files, and back."""
    written = directory / f"{name}-legacy"
    result = succeed("reshard", directory / name / "ckpt", written, "--to",
                     "megatron", *layout)
    assert "every value is equal" in result.stdout, result.stdout
    assert (written / "latest_checkpointed_iteration.txt").read_text() == "10"
    folder = written / "iter_0000010"
    assert sorted(p.name for p in folder.iterdir()) == folders
    for path in folder.rglob("*.pt"):
        assert zipfile.ZipFile(path).testzip() is None
    check_back(directory, name, written)
    assert digest(written) == golden, (name, layout, digest(written))


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


def main():
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        for archive in sorted(ARCHIVES.glob("*-*.tar.xz")):
            name = archive.name.removesuffix(".tar.xz")
            if "shifted" not in name:
                test_megatron(directory, name)
        # The golden files were loaded by Megatron-LM core_v0.16.1, and every
        # value compared.
        distributed = ["--use-distributed-optimizer"]
        test_to_torch_dist(directory, "legacy-gpt2-tp2pp2dp2",
                           "7f92a6a0fd5ed63e", "--tp", 4)
        test_to_torch_dist(directory, "torch_dist-gpt2-tp2pp1dp3-model_space",
                           "6f0842e961549a5e", "--pp", 2, *distributed)
        test_to_torch_dist(directory, "legacy-moe-ep2dp4", "81942d2ed2435ff3",
                           "--dp", 4, "--ep", 4, *distributed)
        test_to_legacy(directory, "legacy-gpt2-tp2pp2dp2", "423b98ff72a800ee",
                       ["mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000",
                        "mp_rank_01_001"], "--tp", 2, "--pp", 2, "--dp", 2,
                       *distributed)
        test_to_legacy(directory, "legacy-gpt2-tp2dp1-nodistopt",
                       "3f133ee257f91405", ["mp_rank_00_000", "mp_rank_00_001"],
                       "--pp", 2)
        test_to_legacy(directory, "legacy-moe-ep2dp4", "0511a90956d66bcb",
                       ["mp_rank_00_000", "mp_rank_00_001", "mp_rank_00_002",
                        "mp_rank_00_003"], "--dp", 4, "--ep", 4, *distributed)
        test_damage(directory)
        test_other_rank(directory)
    print("equal")


main()
