"""FORMAT.md suffices to read a checkpoint: format_reader.py, written from it
alone, reads the golden files and fresh ones, and agrees with HDF5's tools.

Usage: format_spec_test.py GOLDEN CKPT SAMPLE; GOLDEN is tests/golden, CKPT and
SAMPLE the programs, the latter of python_sample.cc.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

import format_reader
from format_reader import FormatError, INDEX, PART

GOLDEN, CKPT, SAMPLE = sys.argv[1:4]
STEP = os.path.join("run", "step-00000012")
KINDS = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "F8_E5M2": "u1", "F8_E4M3": "u1",
    "F8_E8M0": "u1", "I16": "i2", "U16": "u2", "F16": "f2", "I32": "i4",
    "U32": "u4", "F32": "f4", "C64": "c8", "F64": "f8", "I64": "i8",
    "U64": "u8",
}


def as_array(tensor, image):
    if tensor.dtype_name == "BF16":
        wide = numpy.frombuffer(image, "<u2").astype("<u4") << 16
        flat = wide.view("<f4")
    else:
        flat = numpy.frombuffer(image, KINDS[tensor.dtype_name])
    return flat.reshape(tensor.shape)


class ReaderTest(unittest.TestCase):

    def check_fingerprints(self, checkpoint):
        for tensor in checkpoint.table.tensors:
            image = checkpoint.image(tensor)
            self.assertEqual(
                format_reader.image_fingerprint(tensor.key, tensor.dtype,
                                                image),
                checkpoint.fingerprint(tensor), tensor.key)
        for fragment in checkpoint.table.fragments:
            image = fragment.image(checkpoint.parts[fragment.part])
            self.assertEqual(
                format_reader.fragment_fingerprint(fragment, image),
                fragment.fingerprint, (fragment.tensor.key, fragment.start))

    def check_hdf5(self, step_dir, checkpoint):
        """H2 to H6: HDF5 shows the same values at the same places."""
        with h5py.File(os.path.join(step_dir, "index.h5"), "r") as index:
            self.assertEqual(index["state"][()], checkpoint.table.state)
            self.assertEqual(index["record"][()], checkpoint.table.record)
            for tensor in checkpoint.table.tensors:
                name, role = (key.decode() for key in tensor.key)
                found = index["tensors"][name][role]
                expected = as_array(tensor, checkpoint.image(tensor))
                self.assertEqual(found.shape, tensor.shape, name)
                numpy.testing.assert_array_equal(found[()], expected, name)
        for number in checkpoint.parts:
            path = os.path.join(step_dir, f"part-{number:05d}.h5")
            with h5py.File(path, "r") as part:
                self.check_part(part, checkpoint, number)

    def check_part(self, part, checkpoint, number):
        mine = [f for f in checkpoint.table.fragments if f.part == number]
        self.assertEqual(len(part["fragments"]), len(mine))
        for fragment in mine:
            name, role = (key.decode() for key in fragment.tensor.key)
            start = "_".join(map(str, fragment.start)) or "scalar"
            dataset = part[f"fragments/{name} {role} {start}"]
            self.assertEqual(dataset.shape, fragment.extent)
            if fragment.blocks:
                self.assertEqual(dataset.id.get_offset(), fragment.blocks[0][0])
            attributes = dataset.attrs
            self.assertEqual(attributes["tensor"].decode(), name)
            self.assertEqual(attributes["role"].decode(), role)
            self.assertEqual(attributes["dtype"].decode(),
                             fragment.tensor.dtype_name)
            self.assertEqual(tuple(attributes["shape"]), fragment.tensor.shape)
            self.assertEqual(tuple(attributes["start"]), fragment.start)
        block = format_reader.UserBlock(checkpoint.parts[number], PART)
        table = part["shardshift_table"]
        self.assertEqual(table.id.get_offset(), block.table_offset)
        self.assertEqual(table.shape, (block.table_bytes,))

    def check_pages(self, checkpoint):
        """B5 and B6."""
        for fragment in checkpoint.table.fragments:
            if fragment.codec or fragment.num_bytes() < 4096:
                continue
            data = checkpoint.parts[fragment.part]
            begin = fragment.blocks[0][0]
            end = begin + fragment.num_bytes()
            self.assertEqual(begin % 4096, 0)
            self.assertFalse(any(data[end:-(-end // 4096) * 4096]))


class GoldenTest(ReaderTest):
    FOLDER = os.path.join(GOLDEN, "format-v1")

    def setUp(self):
        with open(os.path.join(self.FOLDER, "expected.json")) as file:
            self.expected = json.load(file)
        self.step_dir = os.path.join(self.FOLDER, STEP)
        self.checkpoint = format_reader.Checkpoint.open(self.step_dir)

    def test_every_value_is_read(self):
        table = self.checkpoint.table
        self.assertEqual(table.step, self.expected["step"])
        self.assertEqual(table.state.decode(), self.expected["state"])
        self.assertEqual(table.record.decode(), self.expected["record"])
        self.assertEqual(len(table.tensors), len(self.expected["tensors"]))
        for tensor, expected in zip(table.tensors, self.expected["tensors"]):
            self.assertEqual(tensor.key, (expected["name"].encode(),
                                          expected["role"].encode()))
            self.assertEqual(tensor.dtype_name, expected["dtype"])
            self.assertEqual(list(tensor.shape), expected["shape"])
            self.assertEqual(self.checkpoint.image(tensor).hex(),
                             expected["values"], tensor.key)

    def test_verifies(self):
        self.checkpoint.verify()
        self.check_fingerprints(self.checkpoint)
        self.check_pages(self.checkpoint)
        self.assertEqual(format_reader.printed(self.checkpoint.root()),
                         self.expected["root_fingerprint"])

    def test_hdf5_shows_the_same(self):
        self.check_hdf5(self.step_dir, self.checkpoint)

    def test_latest_names_the_step(self):
        with open(os.path.join(self.FOLDER, "run", "latest")) as file:
            self.assertEqual(file.read(), "step-00000012\n")

    def test_flips_anywhere_are_found(self):
        """R8: every byte is covered, those of padding and HDF5 too."""
        files = format_reader.read_files(self.step_dir)
        for name, whole in list(files.items()):
            for at in range(0, len(whole), 29):
                flipped = bytearray(whole)
                flipped[at] ^= 0x10
                files[name] = bytes(flipped)
                with self.assertRaises(FormatError, msg=(name, at)):
                    format_reader.Checkpoint(files, "copy").verify()
            files[name] = whole


class CompressedGoldenTest(GoldenTest):
    FOLDER = os.path.join(GOLDEN, "format-v1-zstd")

    def test_hdf5_shows_the_same(self):
        """Wants the filter: see compressed_h5py_test.py."""

    def test_fragments_of_a_page_are_compressed(self):
        names = {fragment.tensor.key[0].decode()
                 for fragment in self.checkpoint.table.fragments
                 if fragment.codec == 1}
        self.assertEqual(names, {"rows", "wide", "narrow"})


class FreshTest(ReaderTest):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.run_dir = os.path.join(self.directory, "run")
        # The embedding has several blocks, the last one short.
        subprocess.run([
            CKPT, "synth", self.run_dir, "--tp", "2", "--dp", "2",
            "--use-distributed-optimizer", "--num-layers", "2",
            "--hidden-size", "64", "--num-attention-heads", "4",
            "--seq-length", "8", "--max-position-embeddings", "8",
            "--vocab-size", "70001", "--global-batch-size", "4", "--step", "7"
        ], check=True)
        self.step_dir = os.path.join(self.run_dir, "step-00000007")

    def test_reads_what_the_programs_write(self):
        checkpoint = format_reader.Checkpoint.open(self.step_dir)
        checkpoint.verify()
        self.check_fingerprints(checkpoint)
        self.check_pages(checkpoint)
        self.check_hdf5(self.step_dir, checkpoint)
        self.assertGreater(
            max(len(f.blocks) for f in checkpoint.table.fragments), 1)

    def test_names_follow_the_scheme(self):
        """N1, T6 and S3."""
        table = format_reader.Checkpoint.open(self.step_dir).table
        layer = ["attention.proj", "attention.q", "attention.k", "attention.v",
                 "attention_norm", "mlp.down", "mlp.up", "mlp_norm"]
        names = ["embedding.word.weight", "embedding.position.weight"]
        names += [f"{module}.{kind}" for kind in ("weight", "bias")
                  for module in ["final_norm"] +
                  [f"layers.{i}.{m}" for i in (0, 1) for m in layer]]
        self.assertEqual(
            {t.key for t in table.tensors},
            {(name.encode(), role) for name in names
             for role in (b"master", b"exp_avg", b"exp_avg_sq")})
        state = json.loads(table.state)
        self.assertEqual(sorted(state), [
            "data", "model", "numerics", "optimizer", "progress", "schedule",
            "training"])
        self.assertEqual(state["progress"], {
            "step": 7, "consumed_samples": 28, "skipped_iterations": 0,
            "loss_scale": 1.0})
        self.assertEqual(sorted(json.loads(table.record)),
                         ["layout", "micro_batch_size", "precision"])
        for text in (table.state, table.record):  # S1
            self.assertEqual(text.decode(), json.dumps(
                json.loads(text), indent=2, sort_keys=True,
                ensure_ascii=False))

    def test_another_version_and_another_step_are_refused(self):
        path = os.path.join(self.step_dir, "index.h5")
        with open(path, "rb") as file:
            data = bytearray(file.read())
        struct.pack_into("<I", data, 8, 2)
        struct.pack_into("<Q", data, 4088, format_reader.checksum(
            bytes(data[:4088])))
        with self.assertRaisesRegex(FormatError, "V2: version 2"):
            format_reader.UserBlock(bytes(data), INDEX)
        other = os.path.join(self.run_dir, "step-00000008")
        os.rename(self.step_dir, other)
        with self.assertRaisesRegex(FormatError, "D5"):
            format_reader.Checkpoint.open(other)


class CompressedTest(ReaderTest):

    def test_reads_compressed_blocks(self):
        """C1 to C3."""
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([SAMPLE, directory, "--compressed"], check=True)
            checkpoint = format_reader.Checkpoint.open(
                os.path.join(directory, "step-00000001"))
        checkpoint.verify()
        self.check_fingerprints(checkpoint)
        compressed = [f for f in checkpoint.table.fragments if f.codec == 1]
        self.assertGreater(max(len(f.blocks) for f in compressed), 1)
        for fragment in compressed:
            self.assertGreaterEqual(fragment.num_bytes(), 4096)


unittest.main(argv=sys.argv[:1])
