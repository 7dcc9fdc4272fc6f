"""Megatron-LM's own load_checkpoint on what reshard writes for it: both
formats, each kind of model, on CPU processes. Every parameter, master and
moment, the step, the iteration and the samples are compared with our own
checkpoint.

usage: megatron_peer.py BIN DIR [WORDS]...

Megatron-LM is on PYTHONPATH. WORDS pick cases whose titles have all of them.
SPDX-License-Identifier: Apache-2.0
"""

import io
import json
import socket
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import numpy
import torch

import megatron_rank
from cases import Cases, Programs, expect, table

RUN = dict(step=10, consumed_samples=80)
TIMEOUT_S = 300
# `ckpt synth` and Megatron have the same names for these.
COMMON = """--num-layers 4 --hidden-size 32 --ffn-hidden-size 64
    --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32
    --micro-batch-size 1 --global-batch-size 8 --train-iters 20 --lr 1e-3
    --min-lr 1e-4 --lr-decay-style cosine --lr-decay-iters 20
    --lr-warmup-iters 2 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95
    --clip-grad 1.0 --seed 1234""".split()
# Megatron's tokenizer adds a token of its own.
SYNTH = ["--vocab-size", "258", "--step", str(RUN["step"])]
MEGATRON = """--vocab-size 257 --tokenizer-type NullTokenizer
    --transformer-impl local --distributed-backend gloo --eval-iters 0
    --use-cpu-initialization --no-gradient-accumulation-fusion
    --no-persist-layer-norm --no-masked-softmax-fusion --no-rope-fusion
    --attention-backend unfused""".split()
_LLAMA = """--swiglu --disable-bias-linear --normalization RMSNorm
    --position-embedding-type rope --group-query-attention --num-query-groups 2
    --untie-embeddings-and-output-weights""".split()
_QWEN2 = [flag for flag in _LLAMA
          if flag != "--untie-embeddings-and-output-weights"] + [
              "--add-qkv-bias"]
_QWEN3 = _LLAMA + ["--qk-layernorm", "--kv-channels", "12"]
_EXPERTS = """--num-experts 4 --moe-router-topk 2
    --moe-ffn-hidden-size 48""".split()
MODELS = {
    "llama": _LLAMA,
    "gpt tied": ["--position-embedding-type", "learned_absolute"],
    "gpt untied": ["--position-embedding-type", "learned_absolute",
                   "--untie-embeddings-and-output-weights"],
    "qwen2 tied": _QWEN2,
    "qwen3": _QWEN3,
    "experts": _LLAMA + _EXPERTS,
    "qwen3 experts": _QWEN3 + _EXPERTS,
    "experts, shared, norms": _LLAMA + _EXPERTS + """--add-qkv-bias
        --qk-layernorm --moe-shared-expert-gate
        --moe-shared-expert-intermediate-size 40""".split(),
}


def layout(tp=1, pp=1, dp=1, **more):
    """Flags, and how many ranks."""
    flags = ["--tensor-model-parallel-size", str(tp),
             "--pipeline-model-parallel-size", str(pp)]
    for name, value in more.items():
        flags += ["--" + name.replace("_", "-"), str(value)]
    return flags, dp, tp * pp * dp


CASES = [  # model, layout, distributed optimizer, weights in bfloat16
    ("llama", layout(tp=2, pp=2), True, True),
    ("llama", layout(tp=2, dp=2), True, True),
    ("llama", layout(tp=4), False, True),
    ("llama", layout(pp=2, num_virtual_stages_per_pipeline_rank=2), True, True),
    ("llama", layout(tp=2), True, False),
    ("llama", layout(pp=2), False, False),
    ("gpt tied", layout(tp=2, pp=2), True, True),
    ("gpt tied", layout(tp=2, pp=2), False, True),
    ("gpt untied", layout(tp=2), True, True),
    ("qwen2 tied", layout(tp=2, pp=2), True, True),
    ("qwen3", layout(tp=2), True, True),
    ("qwen3 experts", layout(dp=2, expert_model_parallel_size=2), True, True),
    ("experts", layout(dp=2, expert_model_parallel_size=2), True, True),
    ("experts", layout(tp=2, pp=2), True, True),
    ("experts, shared, norms",
     layout(tp=2, dp=2, expert_model_parallel_size=2), True, True),
]


def title(model, axes, distributed, half):
    flags, dp, _ = axes
    short = {"--tensor-model-parallel-size": "TP",
             "--pipeline-model-parallel-size": "PP",
             "--expert-model-parallel-size": "EP",
             "--num-virtual-stages-per-pipeline-rank": "VPP"}
    sizes = [short[name] + value
             for name, value in zip(flags[::2], flags[1::2])]
    return (f"{model}, {' '.join(sizes)} DP{dp}, "
            f"{'distributed' if distributed else 'plain'} optimizer, "
            f"{'bfloat16' if half else 'float32'}")


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def on_ranks(ranks, *args):
    """Runs megatron_rank in forks of this process, which has everything
    imported; returns what they found."""
    results = torch.multiprocessing.get_context("fork").SimpleQueue()
    context = torch.multiprocessing.start_processes(
        megatron_rank.load_and_compare,
        (ranks, free_port(), *args, results), nprocs=ranks, join=False,
        start_method="fork")
    end = time.monotonic() + TIMEOUT_S
    try:
        while not context.join(timeout=1):
            expect(time.monotonic() < end, f"no end after {TIMEOUT_S} s")
    finally:
        for process in context.processes:
            process.kill()
    found = []
    while len(found) < ranks:
        # Megatron ends with exit code 0 where it does not like a file.
        expect(not results.empty(), "a rank ended early, see its log")
        found.append(results.get())
    return found


def reshard(programs, source, target, case, form):
    _, (flags, dp, _), distributed, half = case
    programs.reshard(source, target, "--to", form, *flags, "--dp", dp,
                     *(["--use-distributed-optimizer"] if distributed else []),
                     *(["--dtype", "BF16"] if half else []))


def load(directory, programs, source, case, form):
    if not source.exists():
        programs.run("ckpt", "synth", source, *SYNTH, *COMMON,
                     *MODELS[case[0]])
    target = directory / "run"
    reshard(programs, source, target, case, form)
    return compare(directory, target, table(source), case, form)


def load_kept(directory, programs, source, case, form):
    """A weight that is not its master, rounded, on its way through ours."""
    changed = directory / "changed"
    programs.run("ckpt", "synth", source, *SYNTH, *COMMON, *MODELS[case[0]])
    reshard(programs, source, changed, case, "megatron")
    path, = changed.glob("iter_*/mp_rank_01/model_optim_rng.pt")
    content = torch.load(path, weights_only=False)
    weight = content["model"]["decoder.layers.1.mlp.linear_fc2.weight"]
    weight.view(-1)[3:7] = torch.tensor([3.0, float("inf"), -0.0, 1e-40])
    torch.save(content, path)
    report = json.loads(programs.reshard(changed, directory / "ours", "--json"))
    kept, = report["kept_weights"]
    tensors = {key: value for key, value in table(directory / "ours").items()
               if key[1] != "weight"}
    tensors[kept, "weight"] = numpy.load(io.BytesIO(programs.run(
        "ckpt", "cat", directory / "ours", kept, "--role", "weight", "--dtype",
        "F32", "--npy")))
    target = directory / "run"
    reshard(programs, directory / "ours", target, case, form)
    words = compare(directory, target, tensors, case, form)
    return f"{kept} kept, {words}"


def compare(directory, target, tensors, case, form):
    """Loads with Megatron, and compares all ranks with our tensors."""
    model, (flags, _, ranks), distributed, half = case
    cut = ["--use-distributed-optimizer"] if distributed else []
    command = COMMON + MEGATRON + MODELS[model] + flags + cut + [
        "--load", str(target),
        "--ckpt-format", "torch" if form == "megatron" else form]
    command += ["--bf16"] if half else []
    # Our legacy files have no random number state, and nowhere to say so.
    command += ["--no-load-rng"] if form == "megatron" else []
    # Megatron wants it of tensor-parallel experts; files do not depend on it.
    if "--num-experts" in command and flags[1] != "1":
        command.append("--sequence-parallel")
    found = on_ranks(ranks, command, tensors, RUN, directory)
    used = set().union(*(names for _, names, _, _ in found))
    missing = {name for name, _ in tensors} - used
    expect(not missing, f"no rank has {sorted(missing)[:5]}")
    seen, there = (sum(each[which] for each in found) for which in (2, 3))
    expect(seen == there, f"{seen} main elements, expected {there}")
    return f"{sum(each[0] for each in found)} values equal on {ranks} ranks"


def main():
    programs = Programs(sys.argv[1])
    cases = Cases("Megatron-LM", sys.argv[2])
    sources = {}
    for form in ("torch_dist", "megatron"):
        for case in CASES:
            name = f"{form}, {title(*case)}"
            if all(words in name for words in sys.argv[3:]):
                source = sources.setdefault(case[0], cases.directory / case[0])
                cases.run(name, load, programs, source, case, form)
        case = ("llama", layout(tp=2), True, True)
        name = f"{form}, a weight that is kept, {title(*case)}"
        if all(words in name for words in sys.argv[3:]):
            cases.run(name, load_kept, programs,
                      cases.directory / f"kept-{form}", case, form)
    cases.finish()


if __name__ == "__main__":
    main()
