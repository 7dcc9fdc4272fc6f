"""The state that the peers of `reshard` hold: names, shapes, values, cuts.

Whoever asks for a tensor's values gets the same, so that results can be
compared with what was asked for and not with what was written.
SPDX-License-Identifier: Apache-2.0
"""

import os
import re
import sys
import zlib

import torch

# Megatron's cut over tensor-parallel ranks; what matches neither is cut into
# rows.
INTO_COLUMNS = [r"layers\.\d+\.(attention\.proj|mlp\.down)\.weight$"]
REPLICATED = [
    r".*norm\.(weight|bias)$",
    r"layers\.\d+\.(attention\.proj|mlp\.down)\.bias$",
    r"embedding\.position\.weight$"
]


def cut_dimension(name):
    """The dimension that tensor parallelism cuts, or None."""
    if any(re.match(pattern, name) for pattern in REPLICATED):
        return None
    return int(any(re.match(pattern, name) for pattern in INTO_COLUMNS))


def values(name, role, shape):
    """Any finite floats, different for each tensor and role."""
    count = torch.Size(shape).numel()
    bits = torch.arange(count, dtype=torch.int32)
    bits += zlib.crc32(f"{name} {role}".encode()) & 0x0fffffff
    return bits.bitwise_and_(0x3fffffff).view(torch.float32).view(shape)


def compare(what, name, role, shape, found):
    if not torch.equal(found, values(name, role, shape)):
        sys.exit(f"{what}: {name} ({role}) differs from what was saved")


def sync_files(directory):
    """Waits until all files under a directory are on the disk."""
    for folder, _, names in os.walk(directory):
        for name in names:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
