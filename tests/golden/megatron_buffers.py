"""Makes megatron_buffers.json: the flat buffers that Megatron-LM itself laid
out, as a dump of its parameter and gradient buffers recorded them.

Usage: megatron_buffers.py FIXTURES > megatron_buffers.json, where
FIXTURES/NAME/buffers.json is the dump of one run with 4 layers, hidden size 32,
ffn 64, 4 heads (Llama-like: 2 query groups), 4 experts of width 48 if any, 32
positions, vocabulary 259 padded to a multiple of 8 TP and --ddp-bucket-size
2000, or no buckets for some.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import sys

# Name of the run, its layout (TP, PP, DP, distributed optimizer), the
# tensor-parallel rank taken, expert-parallel ranks, layers of a chunk of an
# interleaved stage, --ddp-bucket-size.
RUNS = [
    ("torch_dist-gpt2-tp2pp2dp2", (2, 2, 2, True), 1, 1, 0, 2000),
    ("torch_dist-gpt2-tp2pp1dp3-model_space", (2, 1, 3, True), 0, 1, 0, 2000),
    ("torch_dist-gpt2-tp2dp2-nodistopt", (2, 1, 2, False), 0, 1, 0, 2000),
    ("torch_dist-llama-tp1pp1dp4", (1, 1, 4, True), 0, 1, 0, 2000),
    ("torch_dist-llama-tp2pp2dp1-fp32", (2, 2, 1, True), 1, 1, 0, 2000),
    ("torch_dist-moe-ep2dp4-fully_reshardable", (1, 1, 4, True), 0, 2, 0, 2000),
    ("legacy-llama-pp2vpp2dp1", (1, 2, 1, True), 0, 1, 1, 2000),
    ("torch_dist-llama-pp2vpp2dp2-fully_reshardable", (1, 2, 2, True), 0, 1, 1,
     None),
]


def dumps_of(root, run):
    with open(os.path.join(root, run, "buffers.json")) as file:
        return json.load(file)


def entries(root):
    for run, layout, rank, experts, per_chunk, bucket_size in RUNS:
        tensor, pipeline, data, distributed = layout
        for dump in dumps_of(root, run):
            if dump["tp"] != rank:
                continue
            for buffer in dump["buffers"]:
                first = dump["pp"] == 0 and buffer["chunk"] == 0
                entry = {
                    "run": run, "llama": "gpt2" not in run,
                    "tensor": tensor, "pipeline": pipeline, "data": data,
                    "distributed_optimizer": distributed,
                    "rank": rank, "stage": dump["pp"],
                    "bucket_size": bucket_size if first else None,
                    # begin, end, elements before the padding
                    "buckets": buffer["buckets"],
                    # name, begin, end in registration order
                    "parameters": [[p["local"], *p["range"]]
                                   for p in reversed(buffer["params"])],
                }
                if experts > 1:
                    entry["expert"] = experts
                    entry["expert_rank"] = dump["ep"]
                    entry["experts"] = buffer["kind"] == "expert"
                if per_chunk > 0:
                    entry["layers_per_virtual_stage"] = per_chunk
                    entry["chunk"] = buffer["chunk"]
                yield entry


def main():
    lines = [json.dumps(entry, separators=(",", ":"))
             for entry in entries(sys.argv[1])]
    print("[" + ",\n".join(lines) + "]")


main()
