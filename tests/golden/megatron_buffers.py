"""Makes megatron_buffers.json: the flat buffers that Megatron-LM itself laid
out, as a dump of its parameter and gradient buffers recorded them.

Usage: megatron_buffers.py FIXTURES > megatron_buffers.json, where
FIXTURES/NAME/buffers.json is the dump of one run with 4 layers, hidden size 32,
ffn 64, 4 heads (Llama-like: 2 query groups), 32 positions, vocabulary 259
padded to a multiple of 8 TP and --ddp-bucket-size 2000.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import sys

# Name of the run, its layout, the tensor-parallel rank taken.
RUNS = [
    ("torch_dist-gpt2-tp2pp2dp2", (2, 2, 2, True), 1),
    ("torch_dist-gpt2-tp2pp1dp3-model_space", (2, 1, 3, True), 0),
    ("torch_dist-gpt2-tp2dp2-nodistopt", (2, 1, 2, False), 0),
    ("torch_dist-llama-tp1pp1dp4", (1, 1, 4, True), 0),
    ("torch_dist-llama-tp2pp2dp1-fp32", (2, 2, 1, True), 1),
]


def entries(root):
    for run, (tensor, pipeline, data, distributed), rank in RUNS:
        with open(os.path.join(root, run, "buffers.json")) as file:
            dumps = json.load(file)
        for dump in dumps:
            if dump["tp"] != rank:
                continue
            [buffer] = dump["buffers"]
            yield {
                "run": run, "llama": "llama" in run,
                "tensor": tensor, "pipeline": pipeline, "data": data,
                "distributed_optimizer": distributed,
                "rank": rank, "stage": dump["pp"],
                "bucket_size": 2000 if dump["pp"] == 0 else None,
                # begin, end, elements before the padding
                "buckets": buffer["buckets"],
                # name, begin, end in registration order
                "parameters": [[p["local"], *p["range"]]
                               for p in reversed(buffer["params"])],
            }


def main():
    lines = [json.dumps(entry, separators=(",", ":"))
             for entry in entries(sys.argv[1])]
    print("[" + ",\n".join(lines) + "]")


main()
