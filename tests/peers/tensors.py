"""Comparing torch tensors bit for bit.

SPDX-License-Identifier: Apache-2.0
"""

import torch

from cases import expect


def same_bits(a, b):
    """Whether dtype, shape and every bit are the same, NaNs included."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(
        a.detach().contiguous().reshape(-1).view(torch.uint8),
        b.detach().contiguous().reshape(-1).view(torch.uint8))


def expect_same(got, wanted, what):
    """Two dicts of tensors; `what` goes in front of the name of a bad one."""
    expect(set(got) == set(wanted),
           f"{what}: only on one side: {sorted(set(got) ^ set(wanted))[:5]}")
    for name, tensor in wanted.items():
        expect(same_bits(got[name], tensor),
               f"{what}: {name} differs: {tuple(got[name].shape)} "
               f"{got[name].dtype}, expected {tuple(tensor.shape)} "
               f"{tensor.dtype}")


def fill(model, seed):
    """Random values for every parameter: norms and biases too, so that a
    forgotten or swapped one shows."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=random) * 0.1 + 0.02)
