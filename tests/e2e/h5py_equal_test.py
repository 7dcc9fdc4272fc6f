"""h5py alone reads the same arrays out of saves on every layout.

With --sweep all layouts, else six of them.
SPDX-License-Identifier: Apache-2.0
"""
import os
import sys
import tempfile

import h5py

from programs import GPT, LLAMA, RUN, layouts, succeed


def read_arrays(step_dir):
    """"name/role" -> shape, dtype and bytes, through index.h5."""
    arrays = {}

    def visit(path, node):
        if isinstance(node, h5py.Dataset):
            assert node.is_virtual, path
            values = node[...]
            arrays[path] = (values.shape, values.dtype.str, values.tobytes())

    with h5py.File(os.path.join(step_dir, "index.h5"), "r") as index:
        index["tensors"].visititems(visit)
        state = index["state"][()]
    return arrays, state


def main():
    chosen = list(layouts())
    if "--sweep" not in sys.argv:
        chosen = chosen[::7]
    for family in (GPT, LLAMA):
        expected = None
        for layout in chosen:
            with tempfile.TemporaryDirectory() as directory:
                succeed("train", *family, *RUN, *layout, "--train-iters", 2,
                        "--save", os.path.join(directory, "run"))
                found = read_arrays(
                    os.path.join(directory, "run", "step-00000002"))
            if expected is None:
                expected = found
                arrays = expected[0]
                # Different values, so that equality says something.
                assert len({data for _, _, data in arrays.values()}) == len(
                    arrays), "equal arrays under two names"
                assert len(arrays) % 3 == 0 and len(arrays) > 100
            assert found[0].keys() == expected[0].keys(), layout
            for path, array in found[0].items():
                assert array == expected[0][path], (layout, path)
            assert found[1] == expected[1], layout
        print(f"{len(chosen)} layouts, {len(expected[0])} equal arrays")


main()
