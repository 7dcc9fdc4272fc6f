"""What every parameter of a Megatron rank has to hold, from our tensors.

A table of ours has whole tensors, (name, role) -> array. The fused and cut ones
are made here by plain loops over heads and halves, apart from our layout code.
SPDX-License-Identifier: Apache-2.0
"""

import re

import numpy

_NAMES = {
    "self_attention.linear_proj.": "attention.proj.",
    "self_attention.linear_qkv.layer_norm_": "attention_norm.",
    "self_attention.q_layernorm.": "attention.q_norm.",
    "self_attention.k_layernorm.": "attention.k_norm.",
    "mlp.linear_fc1.layer_norm_": "mlp_norm.",
    "pre_mlp_layernorm.": "mlp_norm.",
    "mlp.router.": "mlp.router.",
    "mlp.shared_experts.gate_": "mlp.shared_experts.output_gate.",
    "embedding.position_embeddings.": "embedding.position.",
    "decoder.final_layernorm.": "final_norm.",
}
_MLP = re.compile(r"(mlp|mlp\.shared_experts|mlp\.experts\.local_experts\.\d+)"
                  r"\.linear_(fc1|fc2)\.(weight|bias)")


class Values:
    """Expected values of one rank; `used` are the names of ours it asked for.

    shares: (rank, ranks) of tensor parallelism, for the experts their own.
    """

    def __init__(self, table, args, share, expert_share, first_expert):
        self.table = table
        self.args = args
        self.share = share
        self.expert_share = expert_share
        self.first_expert = first_expert
        self.used = set()

    def _ours(self, name, role):
        self.used.add(name)
        if role == "weight" and (name, role) not in self.table:
            role = "master"  # which it is, rounded
        return self.table[name, role]

    def of(self, name, layer_numbers, role):
        """The local array of parameter `name` of a model chunk whose layers
        have these numbers in the model."""
        if name in ("embedding.word_embeddings.weight", "output_layer.weight"):
            return self._vocabulary(name, role)
        prefix = ""
        if match := re.fullmatch(r"decoder\.layers\.(\d+)\.(.*)", name):
            prefix = f"layers.{layer_numbers[int(match[1])]}."
            name = re.sub(r"(mlp\.experts)\.(linear_fc[12]\.weight)(\d+)",
                          r"\1.local_experts.\3.\2", match[2])
        if match := re.fullmatch(_MLP, name):
            return self._mlp(prefix, *match.groups(), role)
        if name.startswith("self_attention.linear_qkv.") and \
                "layer_norm" not in name:
            return self._qkv(prefix, name.rsplit(".", 1)[1], role)
        for theirs, ours in _NAMES.items():
            if name.startswith(theirs):
                value = self._ours(prefix + ours + name[len(theirs):], role)
                if name == "self_attention.linear_proj.weight":
                    return _cut(value, 1, self.share)
                return value
        raise KeyError(f"parameter {name} is none of the known ones")

    def _vocabulary(self, name, role):
        tied = not self.args.untie_embeddings_and_output_weights
        untied_output = name == "output_layer.weight" and not tied
        value = self._ours(
            "output.weight" if untied_output else "embedding.word.weight", role)
        padding = self.args.padded_vocab_size - len(value)
        return _cut(numpy.pad(value, ((0, padding), (0, 0))), 0, self.share)

    def _qkv(self, prefix, part, role):
        q, k, v = (self._ours(f"{prefix}attention.{which}.{part}", role)
                   for which in "qkv")
        heads, width = self.args.num_attention_heads, self.args.kv_channels
        groups = heads
        if self.args.group_query_attention:
            groups = self.args.num_query_groups
        per_group = heads // groups * width
        rows = []
        for group in range(groups):
            rows.append(q[group * per_group:(group + 1) * per_group])
            rows.append(k[group * width:(group + 1) * width])
            rows.append(v[group * width:(group + 1) * width])
        return _cut(numpy.concatenate(rows), 0, self.share)

    def _mlp(self, prefix, which, layer, part, role):
        share = self.share
        if match := re.fullmatch(r"mlp\.experts\.local_experts\.(\d+)", which):
            which = f"mlp.experts.{int(match[1]) + self.first_expert}"
            share = self.expert_share
        stem = prefix + which
        if layer == "fc2":
            value = self._ours(f"{stem}.down.{part}", role)
            return _cut(value, 1, share) if part == "weight" else value
        halves = ["gate", "up"] if self.args.swiglu else ["up"]
        return numpy.concatenate([
            _cut(self._ours(f"{stem}.{half}.{part}", role), 0, share)
            for half in halves])


def _cut(value, axis, share):
    rank, ranks = share
    return numpy.split(value, ranks, axis)[rank]
