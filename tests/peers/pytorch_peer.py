"""PyTorch's distributed checkpoints: torch saves one, reshard takes it to our
own checkpoint and back, torch loads that. Weights and AdamW state are the same.

usage: pytorch_peer.py BIN DIR
SPDX-License-Identifier: Apache-2.0
"""

import datetime
import sys
import warnings

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import (StateDictOptions,
                                                     get_model_state_dict,
                                                     get_optimizer_state_dict)
from torch.distributed.fsdp import fully_shard

import models
from cases import Cases, Programs, expect
from tensors import expect_same, same_bits

STEPS = 3
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def train(model):
    """A few steps of AdamW; gradients that no layer was asked for, so that
    every rank of a sharded model makes its own part of them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-6)
    for step in range(STEPS):
        for parameter in model.parameters():
            parameter.grad = torch.cos(parameter.detach() * (step + 7))
        optimizer.step()
    return optimizer


def application_state(model, optimizer):
    return {"model": get_model_state_dict(model),
            "optim": get_optimizer_state_dict(model, optimizer, options=FLAT)}


def tensors_of(state):
    """The tensors below `model` and `optim`, under names of one level."""
    return {f"{part}.{name}": value for part, values in state.items()
            for name, value in values.items()
            if isinstance(value, torch.Tensor)}


def zeros_like(state):
    return {part: {name: torch.zeros_like(value)
                   if isinstance(value, torch.Tensor) else value
                   for name, value in values.items()}
            for part, values in state.items()}


def load_partial(state, folder):
    """`param_groups` are not in what reshard writes of a model."""
    dcp.load(state, checkpoint_id=folder,
             planner=DefaultLoadPlanner(allow_partial_load=True))


def flat_tensors(tree, prefix=""):
    """The tensors of the nested dicts that dcp_to_torch_save makes."""
    if isinstance(tree, torch.Tensor):
        return {prefix.removesuffix("."): tree}
    found = {}
    if isinstance(tree, dict):
        for key, value in tree.items():
            found |= flat_tensors(value, f"{prefix}{key}.")
    return found


def check_torch_save(folder, file, wanted):
    dcp_to_torch_save(folder, file)
    expect_same(flat_tensors(torch.load(file, weights_only=True)), wanted,
                "dcp_to_torch_save")


def model_round_trip(directory, programs, case, layout):
    model = models.make(case)
    state = application_state(model, train(model))
    model.config.save_pretrained(directory / "theirs")
    dcp.save(state, checkpoint_id=directory / "theirs")
    programs.reshard(directory / "theirs", directory / "native", *layout)
    programs.reshard(directory / "native", directory / "ours", "--to", "dcp")
    return check_copy(directory / "ours", state)


def check_copy(ours, state):
    """Both ways that torch reads what is to be `state`."""
    got = zeros_like(state)
    load_partial(got, ours)
    wanted = tensors_of(state)
    expect_same(tensors_of(got), wanted, "dcp.load")
    check_torch_save(ours, ours.with_suffix(".pt"), wanted)
    return f"{len(wanted)} tensors equal, by dcp.load and dcp_to_torch_save"


def weights_round_trip(directory, programs, case):
    model = models.make(case).bfloat16()
    model.config.save_pretrained(directory / "theirs")
    state = {"model": model.state_dict()}
    dcp.save(state, checkpoint_id=directory / "theirs")
    programs.reshard(directory / "theirs", directory / "native", "--tp", "2")
    programs.reshard(directory / "native", directory / "ours", "--to", "dcp")
    got = zeros_like(state)
    dcp.load(got, checkpoint_id=directory / "ours")
    expect_same(tensors_of(got), tensors_of(state), "dcp.load")
    return f"{len(state['model'])} bfloat16 tensors equal, by a strict dcp.load"


def generic_state():
    """What a model of ours does not have: dtypes, shapes, names, strides."""
    random = torch.Generator().manual_seed(5)
    state = {}
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16,
                  torch.float8_e4m3fn, torch.float8_e5m2):
        state[f"a.{dtype}"] = torch.randn(7, 5, generator=random).to(dtype)
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8,
                  torch.uint8, torch.bool):
        state[f"b.{dtype}"] = torch.randint(
            0, 100, (3, 2, 2), generator=random).to(dtype)
    state["scalar"] = torch.tensor(3.5)
    state["column major"] = torch.randn(6, 4, generator=random).t()
    state["slice"] = torch.randn(9, 9, generator=random)[2:7, 1:8:2]
    state["nan"] = torch.tensor([0x7fc00001, -0x3ffffe, 0x7f800001],
                                dtype=torch.int32).view(torch.float32)
    return {"some": state}


def generic_round_trip(directory, programs, state):
    dcp.save(state, checkpoint_id=directory / "theirs")
    programs.reshard(directory / "theirs", directory / "native", "--generic")
    programs.reshard(directory / "native", directory / "ours", "--generic",
                     "--to", "dcp")
    return check_copy(directory / "ours", state)


def to_safetensors(directory, programs, state):
    """The library's own reader has every tensor under its key."""
    dcp.save(state, checkpoint_id=directory / "theirs")
    programs.reshard(directory / "theirs", directory / "ours", "--generic",
                     "--to", "safetensors")
    found = {}
    for path in directory.glob("ours/*.safetensors"):
        found |= safetensors.torch.load_file(path)
    wanted = tensors_of(state)
    expect(found.keys() == wanted.keys(),
           f"keys {found.keys() ^ wanted.keys()}")
    for name, value in wanted.items():
        expect(same_bits(found[name], value.contiguous()), f"{name} differs")
    return f"{len(found)} tensors equal, by safetensors"


def trained_round_trip(directory, programs, case):
    model = models.make(case)
    return generic_round_trip(directory, programs,
                              application_state(model, train(model)))


def sharded(case, rank, ranks, directory):
    """The state of a model that FSDP2 has cut over `ranks` processes."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{directory}/meeting", rank=rank,
        world_size=ranks, timeout=datetime.timedelta(seconds=60))
    mesh = torch.distributed.init_device_mesh("cpu", (ranks,))
    model = models.make(case)
    for block in model.model.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return application_state(model, train(model))


def save_sharded(rank, case, ranks, directory):
    state = sharded(case, rank, ranks, directory)
    dcp.save(state, checkpoint_id=directory / "theirs")
    torch.distributed.destroy_process_group()


def load_sharded(rank, case, ranks, directory):
    state = sharded(case, rank, ranks, directory)
    got = zeros_like(state)
    load_partial(got, directory / "ours")
    for name, wanted in tensors_of(state).items():
        if isinstance(wanted, torch.distributed.tensor.DTensor):
            found = tensors_of(got)[name]
            expect(same_bits(found.to_local(), wanted.to_local()),
                   f"rank {rank}: {name} differs")
    torch.distributed.destroy_process_group()


def on_ranks(work, case, ranks, directory):
    (directory / "meeting").unlink(missing_ok=True)
    torch.multiprocessing.start_processes(work, (case, ranks, directory),
                                          nprocs=ranks, start_method="fork")


def fsdp_round_trip(directory, programs, case):
    """Saved by two ranks, loaded by three, who made their parts themselves."""
    on_ranks(save_sharded, case, 2, directory)
    models.make(case).config.save_pretrained(directory / "theirs")
    programs.reshard(directory / "theirs", directory / "native", "--tp", "2")
    programs.reshard(directory / "native", directory / "ours", "--to", "dcp")
    on_ranks(load_sharded, case, 3, directory)
    return "weights and moments of three ranks equal"


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    programs = Programs(sys.argv[1])
    cases = Cases("torch DCP", sys.argv[2])
    cases.run("FSDP2, llama grouped queries, TP2", fsdp_round_trip, programs,
              "llama grouped queries")
    for case in models.CONFIGURATIONS:
        cases.run(f"model, {case}, AdamW, TP2 PP2", model_round_trip, programs,
                  case, ["--tp", "2", "--pp", "2"])
    cases.run("weights, llama tied, TP2", weights_round_trip, programs,
              "llama tied")
    cases.run("generic, all kinds of tensors", generic_round_trip, programs,
              generic_state())
    cases.run("generic, all kinds of tensors, as safetensors", to_safetensors,
              programs, generic_state())
    cases.run("generic, qwen3_moe, AdamW", trained_round_trip, programs,
              "qwen3_moe")
    cases.finish()


if __name__ == "__main__":
    main()
