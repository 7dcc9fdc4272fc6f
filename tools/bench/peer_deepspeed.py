"""DeepSpeed's ds_to_universal, on a checkpoint as a pipeline engine writes it.

ZeRO stage 1 with TP4 PP2 DP2. The files carry what the converter reads: fp32
master weights, moments, mappings and shapes. Layer files, which it does not
read, are left out, and the tied embedding is on the first stage alone.
SPDX-License-Identifier: Apache-2.0
"""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("TQDM_DISABLE", "1")

# pylint: disable=wrong-import-position
import collections
import re
import sys
import time

import deepspeed
import torch
import torch.multiprocessing as mp
from deepspeed.checkpoint import ds_to_universal
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils.tensor_fragment import fragment_address

import peer_state
import reshard_bench

TP, PP, DP = 4, 2, 2
ROLES = {"fp32": "master", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
VOCABULARY = "embedding.word.weight"
VOCABULARY_MULTIPLE = 128


def stage_of(name, num_layers):
    if found := re.match(r"layers\.(\d+)\.", name):
        return int(found[1]) * PP // num_layers
    return 0 if name.startswith("embedding") else PP - 1


def local_part(name, whole, tp_rank):
    """What a tensor-parallel rank holds, its vocabulary padded with zeros."""
    cut = peer_state.cut_dimension(name)
    if cut is None:
        return whole
    if name == VOCABULARY:
        extra = -whole.shape[0] % (VOCABULARY_MULTIPLE * TP)
        whole = torch.nn.functional.pad(whole, (0, 0, 0, extra))
    return whole.chunk(TP, cut)[tp_rank]


def fragments(shapes, begin, end):
    """Where the elements [begin, end) of the flat group lie in a partition."""
    result = collections.OrderedDict()
    offset = 0
    for name, shape in shapes.items():
        low, high = max(offset, begin), min(offset + shape.numel(), end)
        if low < high:
            result[name] = fragment_address(numel=high - low,
                                            start=low - begin)
        offset += shape.numel()
    return result


def optimizer_state(flat, shapes, begin, end):
    step = torch.tensor(1.0)
    parts = {key: all_[begin:end].clone() for key, all_ in flat.items()}
    fp32 = parts.pop("fp32")
    return {
        "base_optimizer_state": {
            "state": {0: {"step": step, **parts}},
            "param_groups": [{"lr": 0.01, "params": [0]}],
        },
        "single_partition_of_fp32_groups": [fp32],
        "zero_stage": ZeroStageEnum.optimizer_states,
        "group_paddings": [0],
        "partition_count": [DP],
        "ds_version": deepspeed.__version__,
        "param_slice_mappings": [fragments(shapes, begin, end)],
    }


def model_state(shapes, vocabulary_size):
    return {
        "module": None,
        "param_shapes": [shapes],
        "iteration": 1,
        "ds_version": deepspeed.__version__,
        "checkpoint_parallel_dimensions": {"pp_degree": PP, "tp_degree": TP},
        "universal_checkpoint_info": {
            "universal_checkpoint_version": 0.2,
            "tp_replicated_parameter_patterns": peer_state.REPLICATED,
            "parameter_with_row_parallelism_patterns": peer_state.INTO_COLUMNS,
            "vocabulary_parameter_patterns": [re.escape(VOCABULARY) + "$"],
            "original_vocab_size": vocabulary_size,
        },
    }


def make_model_rank(directory, shapes, tp_rank, stage, vocabulary_size):
    parts = {key: [] for key in ROLES}
    local = collections.OrderedDict()
    for name, shape in shapes.items():
        for key, role in ROLES.items():
            part = local_part(name, peer_state.values(name, role, shape),
                              tp_rank)
            parts[key].append(part.reshape(-1))
            local[name] = part.shape
    flat = {key: torch.cat(all_) for key, all_ in parts.items()}
    # Sizes are multiples of many ranks: no partition needs padding.
    size = flat["fp32"].numel() // DP
    rank = f"mp_rank_{stage * TP + tp_rank:02d}"
    torch.save(model_state(local, vocabulary_size),
               directory / f"{rank}_model_states.pt")
    for i in range(DP):
        state = optimizer_state(flat, local, i * size, (i + 1) * size)
        torch.save({"optimizer_state_dict": state, "ds_config": {},
                    "ds_version": deepspeed.__version__},
                   directory / f"bf16_zero_pp_rank_{i}_{rank}_optim_states.pt")


def make(directory, tensors):
    directory.mkdir()
    shapes = {name: shape for name, _, shape in tensors}
    num_layers = len({name.split(".")[1] for name in shapes
                      if name.startswith("layers.")})
    for stage in range(PP):
        mine = {name: shape for name, shape in shapes.items()
                if stage_of(name, num_layers) == stage}
        for tp_rank in range(TP):
            make_model_rank(directory, mine, tp_rank, stage,
                            shapes[VOCABULARY][0])


def convert(_, source, target, results):
    # The converter names its steps on standard output.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv[1:] = ["--input_folder", str(source), "--output_folder",
                    str(target)]
    reshard_bench.drop_cache()
    begin = time.monotonic()
    ds_to_universal.main(ds_to_universal.parse_arguments())
    peer_state.sync_files(target)
    results.put(time.monotonic() - begin)


def reshard(source, target, _):
    """Seconds without the start of the process and its imports."""
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(convert, (source, target, results))
    return results.get()


def check(target, tensors):
    keys = {role: key for key, role in ROLES.items()}
    for name, role, shape in tensors:
        found = torch.load(target / "zero" / name / f"{keys[role]}.pt",
                           weights_only=False)
        peer_state.compare("ds_to_universal", name, role, shape,
                           found["param"])
