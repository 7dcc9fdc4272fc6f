"""One rank of Megatron-LM that loads a checkpoint and compares what it got.

SPDX-License-Identifier: Apache-2.0
"""

import os
import sys

import torch
from megatron.core import parallel_state
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.training import get_args, training
from megatron.training.arguments import core_transformer_config_from_args
from megatron.training.initialize import initialize_megatron
from megatron.training.utils import unwrap_model

import megatron_on_cpu
from cases import expect
from megatron_values import Values
from tensors import same_bits


def _make_chunk(pre_process=True, post_process=True, vp_stage=None,
                config=None, pg_collection=None):
    args = get_args()
    return GPTModel(
        config=config or core_transformer_config_from_args(args),
        transformer_layer_spec=megatron_on_cpu.layer_spec(args),
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=pre_process, post_process=post_process,
        share_embeddings_and_output_weights=(
            not args.untie_embeddings_and_output_weights),
        position_embedding_type=args.position_embedding_type,
        vp_stage=vp_stage)


def _values(table, args):
    experts = args.num_experts or 0
    ranks = parallel_state.get_expert_model_parallel_world_size()
    return Values(
        table, args,
        (parallel_state.get_tensor_model_parallel_rank(),
         parallel_state.get_tensor_model_parallel_world_size()),
        (parallel_state.get_expert_tensor_parallel_rank(),
         parallel_state.get_expert_tensor_parallel_world_size()),
        parallel_state.get_expert_model_parallel_rank() * experts // ranks)


def _optimizers(optimizer):
    every = getattr(optimizer, "chained_optimizers", [optimizer])
    return [each for each in every
            if not getattr(each, "is_stub_optimizer", False)]


def _main_parameters(optimizer):
    """(model parameter, its main parameter, first element of it)"""
    if hasattr(optimizer, "model_param_group_index_map"):  # distributed
        for parameter, (group, order) in \
                optimizer.model_param_group_index_map.items():
            groups = optimizer.optimizer.param_groups
            part = optimizer._get_model_param_range_map(parameter)["param"]
            yield parameter, groups[group]["params"][order], part.start
    elif hasattr(optimizer, "float16_groups"):
        for theirs, mains in zip(
                optimizer.float16_groups + optimizer.fp32_from_fp32_groups,
                optimizer.fp32_from_float16_groups +
                optimizer.fp32_from_fp32_groups):
            yield from ((p, main, 0) for p, main in zip(theirs, mains))
    else:
        for group in optimizer.optimizer.param_groups:
            yield from ((p, p, 0) for p in group["params"])


class _Comparison:
    """Counts values that are equal, and stops at the first that is not."""

    def __init__(self, values, chunks):
        self.values = values
        self.names = {}
        self.equal = 0
        for chunk in chunks:
            numbers = [layer.layer_number - 1 for layer in chunk.decoder.layers]
            for name, parameter in chunk.named_parameters():
                self.names[parameter] = name, numbers

    def expect(self, parameter, role, got, start=0):
        name, numbers = self.names[parameter]
        wanted = torch.from_numpy(self.values.of(name, numbers, role))
        expect(wanted.shape == parameter.shape,
               f"{name}: {tuple(parameter.shape)}, expected "
               f"{tuple(wanted.shape)}")
        wanted = wanted.reshape(-1)[start:start + got.numel()].to(got.dtype)
        expect(same_bits(got.reshape(-1), wanted),
               f"{name} {role}, elements from {start}, differs on rank "
               f"{torch.distributed.get_rank()}")
        self.equal += got.numel()


def _copies(parameter):
    """Ranks over which a distributed optimizer cuts the parameter."""
    if getattr(parameter, "allreduce", True):
        return parallel_state.get_data_parallel_world_size()
    return parallel_state.get_expert_data_parallel_world_size()


def _compare_optimizer(comparison, optimizer, step):
    """Returns the elements of main parameters seen here."""
    seen = 0
    for each in _optimizers(optimizer):
        for parameter, main, start in _main_parameters(each):
            state = each.optimizer.state[main]
            comparison.expect(parameter, "master", main, start)
            for role in ("exp_avg", "exp_avg_sq"):
                expect(state[role].dtype == torch.float32, f"{role} is no F32")
                comparison.expect(parameter, role, state[role], start)
            seen += main.numel()
        steps = {group["step"] for group in each.optimizer.param_groups}
        expect(steps == {step}, f"steps {steps}, expected {step}")
    return seen


def _compare_progress(args, scheduler, run):
    for what, got, wanted in (
            ("iteration", args.iteration, run["step"]),
            ("consumed samples", args.consumed_train_samples,
             run["consumed_samples"]),
            ("scheduler", scheduler.num_steps, run["consumed_samples"])):
        expect(got == wanted, f"{what} {got}, expected {wanted}")


def load_and_compare(rank, ranks, port, flags, table, run, log, results):
    """Loads with Megatron's command line `flags`; puts (values compared, names
    of ours, main elements seen, main elements there should be) into
    `results`. Raises if anything differs."""
    sys.stdout.flush()
    out = os.open(log / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), CUDA_DEVICE_MAX_CONNECTIONS="1")
    sys.argv = ["pretrain_gpt.py", *flags]
    megatron_on_cpu.stand_in()
    # Copies into views of parameters, which is not allowed otherwise.
    training.load_checkpoint = torch.no_grad()(training.load_checkpoint)
    with megatron_on_cpu.OnCpu():
        initialize_megatron(allow_no_cuda=True)
        args = get_args()
        model, optimizer, scheduler = training.setup_model_and_optimizer(
            _make_chunk, ModelType.encoder_or_decoder,
            checkpointing_context={})
        values = _values(table, args)
        chunks = unwrap_model(model)
        comparison = _Comparison(values, chunks)
        parameters = [p for chunk in chunks for p in chunk.parameters()]
        for parameter in parameters:
            comparison.expect(parameter, "weight", parameter)
        seen = _compare_optimizer(comparison, optimizer, run["step"])
        _compare_progress(args, scheduler, run)
        cut = args.use_distributed_optimizer
        there = sum(p.numel() / (_copies(p) if cut else 1) for p in parameters)
        results.put((comparison.equal, values.used, seen, there))
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
