"""h5py with our plugin reads compressed checkpoints, without it fails.

Usage: compressed_h5py_test.py WRITER PLUGIN_DIR, the program made of
python_sample.cc and the directory of libh5zstd.so.
SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess
import sys
import tempfile

READ_WITHOUT_PLUGIN = """
import h5py, sys
with h5py.File(sys.argv[1]) as file:
    file[sys.argv[2]][...]
"""


def expected(numpy, dataset):
    values = numpy.arange(dataset.size) % 100
    if dataset.dtype == "bool":
        values = values % 2 == 1
    if dataset.dtype == "complex64":
        values = values - 1j * values
    return values.astype(dataset.dtype).reshape(dataset.shape)


def check_index(h5py, numpy, step_dir):
    with h5py.File(os.path.join(step_dir, "index.h5"), "r") as index:
        assert len(index["tensors"]) == 17
        for name, group in index["tensors"].items():
            matrix = group["matrix%b"]
            assert matrix.is_virtual and matrix.shape == (500, 9), name
            want = expected(numpy, matrix)
            assert (matrix[...] == want).all(), name
            assert (matrix[1:477:3, 2:7] == want[1:477:3, 2:7]).all(), name
        cube = index["tensors/t.F32/cube"]
        want = expected(numpy, cube)
        assert cube.shape == (3, 700, 1000)
        assert (cube[...] == want).all()
        box = numpy.s_[1:3, 330:336, 990:]
        assert (cube[box] == want[box]).all()


def check_part(h5py, numpy, step_dir):
    part = os.path.join(step_dir, "part-00001.h5")
    with h5py.File(part, "r") as file:
        row = file["fragments/t.F32 cube 0_333_0"]
        assert row.shape == (3 * 367 * 1000,)
        assert row.chunks == (1 << 20,) and row.shuffle
        assert list(row.attrs["shape"]) == [3, 700, 1000]
        assert list(row.attrs["start"]) == [0, 333, 0]
        extent = row.attrs["extent"]
        assert list(extent) == [3, 367, 1000]
        cube = numpy.arange(2100000).reshape(3, 700, 1000) % 100
        assert (row[...].reshape(extent) == cube[:, 333:]).all()


def check_plugin_writes(h5py, numpy, directory):
    path = os.path.join(directory, "own.h5")
    values = numpy.arange(100000, dtype="f4") // 7
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=values, chunks=(30000,), shuffle=True,
                            compression=32015, compression_opts=(3,))
    assert os.path.getsize(path) < values.nbytes // 2
    with h5py.File(path) as file:
        assert (file["d"][...] == values).all()


def check_fails_without_plugin(step_dir):
    environment = dict(os.environ)
    environment.pop("HDF5_PLUGIN_PATH", None)
    for file, dataset in (
            ("index.h5", "tensors/t.F32/cube"),
            ("part-00000.h5", "fragments/t.F32 cube 0_0_0")):
        result = subprocess.run(
            [sys.executable, "-c", READ_WITHOUT_PLUGIN,
             os.path.join(step_dir, file), dataset],
            env=environment, capture_output=True, text=True, check=False)
        assert result.returncode != 0, file
        assert "Can't read data" in result.stderr, result.stderr


def main():
    writer, plugins = sys.argv[1:3]
    os.environ["HDF5_PLUGIN_PATH"] = plugins  # read when libhdf5 is loaded
    import h5py  # pylint: disable=import-outside-toplevel
    import numpy  # pylint: disable=import-outside-toplevel
    with tempfile.TemporaryDirectory() as directory:
        run = os.path.join(directory, "run")
        subprocess.run([writer, run, "--compressed"], check=True)
        step_dir = os.path.join(run, "step-00000001")
        check_index(h5py, numpy, step_dir)
        check_part(h5py, numpy, step_dir)
        check_plugin_writes(h5py, numpy, directory)
        check_fails_without_plugin(step_dir)


main()
