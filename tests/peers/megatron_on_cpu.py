"""Megatron-LM on machines without a GPU: stand-ins for what its way to a loaded
checkpoint asks of CUDA, Transformer Engine and Apex. What reads the files, and
decides what goes where, is Megatron's.

SPDX-License-Identifier: Apache-2.0
"""

import copy
import types
import typing

import torch
import typing_extensions
from torch.overrides import TorchFunctionMode

if not hasattr(typing, "override"):  # Python 3.11
    typing.override = typing_extensions.override

# Imported before CUDA is replaced: modules keep some of its functions.
import megatron.core.tensor_parallel.random as megatron_random
from megatron.core import optimizer as megatron_optimizer
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import distrib_optimizer
from megatron.core.tensor_parallel import ColumnParallelLinear
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.training import initialize


class OnCpu(TorchFunctionMode):
    """While this is entered, a device of CUDA's means the CPU."""

    def __torch_function__(self, function, of_types, args=(), kwargs=None):
        if function is torch.Tensor.cuda:
            return args[0]
        kwargs = {key: self._place(value)
                  for key, value in (kwargs or {}).items()}
        result = function(*map(self._place, args), **kwargs)
        # Megatron compares with 'torch.cuda.BFloat16Tensor' and the like.
        if function is torch.Tensor.type and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.", 1)
        return result

    @staticmethod
    def _place(value):
        if isinstance(value, str) and value.startswith("cuda"):
            return "cpu"
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return value


class _Nothing:
    """A stream or an event: takes every call, and is a context."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        return _Nothing

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        return False


class FusedAdam(torch.optim.Optimizer):
    """The state of Transformer Engine's and Apex's optimizer, which counts
    steps in the groups. It makes no steps."""

    def __init__(self, params, lr, weight_decay, betas, eps, adam_w_mode):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps,
                                      weight_decay=weight_decay,
                                      bias_correction=True))


class FusedNormLinear(ColumnParallelLinear):
    """The parameters of Transformer Engine's linear layer with a norm in front,
    in its order and under its names. It computes nothing."""

    def __init__(self, input_size, output_size, *, config, **more):
        super().__init__(input_size, output_size, config=config, **more)
        rest = dict(self._parameters)
        self._parameters.clear()
        has_bias = config.normalization == "LayerNorm"
        for part in ("weight", "bias")[:1 + has_bias]:
            norm = torch.nn.Parameter(
                torch.empty(input_size, dtype=config.params_dtype))
            self.register_parameter(f"layer_norm_{part}", norm)
        self._parameters.update(rest)


class GroupedExperts(MegatronModule):
    """The parameters of the experts that Transformer Engine multiplies as a
    group, a weight for each in two layers. It computes nothing."""

    def __init__(self, num_local_experts, config, pg_collection=None):
        super().__init__(config)
        width = config.moe_ffn_hidden_size // pg_collection.expt_tp.size()
        inner = width * (1 + config.gated_linear_unit)
        for layer, shape in (("linear_fc1", (inner, config.hidden_size)),
                             ("linear_fc2", (config.hidden_size, width))):
            weights = torch.nn.Module()
            for expert in range(num_local_experts):
                weight = torch.nn.Parameter(
                    torch.empty(shape, dtype=config.params_dtype))
                weight.allreduce = config.expert_model_parallel_size == 1
                weights.register_parameter(f"weight{expert}", weight)
            self.add_module(layer, weights)


def _make_norm(of_type, config, hidden_size, eps=1e-5):
    """torch's norm refuses sequence parallelism, which its parameters do not
    depend on."""
    config = copy.copy(config)
    config.sequence_parallel = False
    return _make_torch_norm(of_type, config, hidden_size, eps)


_make_torch_norm = WrappedTorchNorm.__new__


def layer_spec(args):
    """A layer of the modules that Transformer Engine's spec has."""
    spec = get_gpt_layer_local_spec(args.num_experts, False, args.qk_layernorm,
                                    normalization=args.normalization)
    layer = spec.submodules
    layer.input_layernorm = IdentityOp
    layer.self_attention.submodules.linear_qkv = FusedNormLinear
    # Keys of torch_dist are the same for a group and for one after the other.
    if args.num_experts and args.ckpt_format == "torch":
        layer.mlp.submodules.experts = GroupedExperts
    if not args.num_experts:
        layer.pre_mlp_layernorm = IdentityOp
        layer.mlp.submodules.linear_fc1 = FusedNormLinear
    layer.sharded_state_dict_keys_map = {}
    return spec


def stand_in():
    """Replaces, for the life of the process."""
    cpu = torch.device("cpu")
    for name in ("set_device", "synchronize", "empty_cache", "manual_seed",
                 "manual_seed_all"):
        setattr(torch.cuda, name, lambda *args, **kwargs: None)
    for name in ("Stream", "Event", "stream", "current_stream",
                 "default_stream"):
        setattr(torch.cuda, name, _Nothing)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved",
                 "max_memory_reserved"):
        setattr(torch.cuda, name, lambda *args: 0)
    torch.cuda.current_device = lambda: cpu
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_name = lambda *args: "cpu"
    torch.cuda.get_device_capability = lambda *args: (9, 0)
    torch.cuda.get_device_properties = lambda *args: types.SimpleNamespace(
        major=9, minor=0)
    state = torch.zeros(16, dtype=torch.uint8)
    torch.cuda.get_rng_state = lambda *args: state
    torch.cuda.set_rng_state = lambda *args: None
    megatron_random._get_cuda_rng_state = lambda *args, **kwargs: state
    megatron_random._set_cuda_rng_state = lambda *args, **kwargs: None
    initialize._compile_dependencies = lambda: None
    WrappedTorchNorm.__new__ = _make_norm
    megatron_optimizer.USING_PYTORCH_OPTIMIZER = False
    megatron_optimizer.Adam = FusedAdam
    distrib_optimizer.HAVE_APEX_OR_TE = True
    distrib_optimizer.Adam = FusedAdam
