"""Tiny models of each family that we know, made by transformers.

SPDX-License-Identifier: Apache-2.0
"""

import transformers

from tensors import fill


def _decoder(heads, groups, **more):
    return dict(vocab_size=131, hidden_size=32, intermediate_size=48,
                num_hidden_layers=2, num_attention_heads=heads,
                num_key_value_heads=groups, max_position_embeddings=64, **more)


def _rope(theta=1e4, **more):
    return dict(rope_type="default", rope_theta=theta) | more


_LLAMA3 = _rope(5e5, rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                high_freq_factor=4.0, original_max_position_embeddings=32)
_EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)

# Case -> model type, configuration.
CONFIGURATIONS = {
    "gpt2": ("gpt2", dict(vocab_size=131, n_embd=32, n_layer=2, n_head=4,
                          n_positions=64, bos_token_id=0, eos_token_id=0)),
    "llama": ("llama", _decoder(8, 8, rope_parameters=_rope())),
    "llama grouped queries":
        ("llama", _decoder(8, 2, rope_parameters=_rope())),
    "llama tied": ("llama", _decoder(4, 2, rope_parameters=_rope(),
                                     tie_word_embeddings=True)),
    "llama llama3 rope":
        ("llama", _decoder(4, 2, rope_parameters=_LLAMA3, rms_norm_eps=1e-5)),
    "mistral": ("mistral", _decoder(4, 2, rope_parameters=_rope(),
                                    sliding_window=None)),
    "qwen2": ("qwen2", _decoder(4, 2, rope_parameters=_rope(1e6),
                                tie_word_embeddings=True)),
    "qwen3": ("qwen3", _decoder(4, 2, rope_parameters=_rope(1e6),
                                head_dim=24)),
    "mixtral": ("mixtral", _decoder(4, 2, rope_parameters=_rope(1e6),
                                    num_local_experts=4,
                                    num_experts_per_tok=2)),
    "qwen2_moe": ("qwen2_moe", _decoder(
        4, 2, rope_parameters=_rope(1e6), norm_topk_prob=False,
        shared_expert_intermediate_size=40, **_EXPERTS)),
    "qwen3_moe": ("qwen3_moe", _decoder(
        4, 2, rope_parameters=_rope(1e6), norm_topk_prob=True, head_dim=24,
        **_EXPERTS)),
}


def make(case, seed=1):
    """The model with random weights, in float32."""
    kind, values = CONFIGURATIONS[case]
    config = transformers.AutoConfig.for_model(kind, **values)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    fill(model, seed)
    return model
