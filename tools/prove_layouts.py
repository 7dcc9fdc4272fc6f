#!/usr/bin/env python3
"""Trains one model on many parallel layouts and shows that none can be told.

For each family a run on one rank, then one on each of the other layouts: TP,
PP and DP up to eight ranks, and of the rest, sequence parallelism, interleaved
stages, the distributed optimizer, expert parallelism, recomputation and
micro-batch size, what a seeded generator picks. Prints a line a layout: bits of
the last loss and gradient norm, root fingerprint of the last checkpoint, and
how many iterations differ from the first line. Exits 0 if all are equal, 1 if
not. Flags of `train` that are not known here go to all runs, `--bf16` say.

  tools/prove_layouts.py build/bin
  tools/prove_layouts.py build/bin --layouts 8 --mpirun
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

GPT = ("--num-layers 4 --hidden-size 32 --ffn-hidden-size 64 "
       "--num-attention-heads 8 --vocab-size 61 --seq-length 16 "
       "--make-vocab-size-divisible-by 8").split()
LLAMA = GPT + ("--num-query-groups 2 --normalization RMSNorm --swiglu "
               "--position-embedding-type rope --disable-bias-linear "
               "--untie-embeddings-and-output-weights").split()
MOE = LLAMA + ("--num-experts 4 --moe-ffn-hidden-size 32 --moe-router-topk 2 "
               "--moe-aux-loss-coeff 0.01 --moe-z-loss-coeff 0.001").split()
FAMILIES = {"gpt": GPT, "llama": LLAMA, "moe": MOE}
BATCH = 16
RUN = ["--global-batch-size", str(BATCH), "--lr", "1e-2", "--mock-data"]
MAX_RANKS = 8
RECOMPUTE = ["none", "selective", "full uniform 1", "full block 1"]


def base_layouts():
    return [(tp, pp, dp) for tp, pp, dp in
            itertools.product((1, 2, 4), (1, 2, 4), (1, 2, 4, 8))
            if tp * pp * dp <= MAX_RANKS]


def with_the_rest(tp, pp, dp, family, pick):
    """The flags of a layout, with what else it may have picked."""
    flags = [f"--tp {tp} --pp {pp} --dp {dp}"]
    moe = family == "moe"
    if tp > 1 and (moe or pick([True, False])):
        flags.append("--sequence-parallel")
    if pp == 2 and pick([True, False]):
        flags.append("--num-layers-per-virtual-pipeline-stage 1")
    if pick([True, False]):
        flags.append("--use-distributed-optimizer")
    if moe:
        flags.append("--ep {} --etp {}".format(*pick(
            [(ep, etp) for ep in (1, 2, 4) for etp in (1, 2, 4)
             if tp * dp % (ep * etp) == 0 and ep * etp % tp == 0])))
    micro = pick([size for size in (1, 2, 4) if BATCH % (size * dp) == 0])
    flags.append(f"--micro-batch-size {micro}")
    kept, *method = pick(RECOMPUTE).split()
    flags.append(f"--recompute-granularity {kept}")
    if method:
        flags.append("--recompute-method {} --recompute-num-layers {}".format(
            *method))
    return " ".join(flags)


def layouts(family, number, seed):
    """So many layouts, no two the same; the first is one rank."""
    generator = random.Random(seed)
    bases = base_layouts()
    generator.shuffle(bases)
    chosen = {"--tp 1 --pp 1 --dp 1 --micro-batch-size 1": 1}
    for tp, pp, dp in itertools.cycle(bases):
        if len(chosen) >= number:
            return list(chosen.items())
        flags = with_the_rest(tp, pp, dp, family, generator.choice)
        chosen[flags] = tp * pp * dp


def call(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(command)}\n{done.stderr}")
    return done.stdout


def train(args, family, layout, ranks, folder):
    """The log of a run and the fingerprint of its checkpoint."""
    run, log = os.path.join(folder, "run"), os.path.join(folder, "log")
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np",
                str(ranks)] if args.mpirun and ranks > 1 else []
    call([*launcher, os.path.join(args.programs, "train"), *FAMILIES[family],
          *RUN, *layout.split(), "--train-iters", str(args.iterations),
          "--save", run, "--log-jsonl", log, *args.flags])
    shown = call([os.path.join(args.programs, "ckpt"), "show", run, "--json"])
    with open(log, encoding="utf-8") as lines:
        return ([json.loads(line) for line in lines],
                json.loads(shown)["root_fingerprint"])


def bits(line):
    return line["lm_loss_bits"], line["grad_norm_bits"]


def prove(args, family):
    """Whether all layouts gave the same; prints the table."""
    print(f"\n{family}, {args.iterations} iterations\n"
          "loss bits  norm bits  root fingerprint                  "
          "differ  layout")
    first = None
    equal = True
    for layout, ranks in layouts(family, args.layouts, args.seed):
        with tempfile.TemporaryDirectory() as folder:
            log, fingerprint = train(args, family, layout, ranks, folder)
        first = first or (log, fingerprint)
        differ = sum(bits(a) != bits(b)
                     for a, b in itertools.zip_longest(log, first[0]))
        equal = equal and differ == 0 and fingerprint == first[1]
        print(f"{bits(log[-1])[0]:>9}  {bits(log[-1])[1]:>9}  {fingerprint}  "
              f"{differ:6}  {layout}", flush=True)
    return equal


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("programs", help="folder of train and ckpt")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES),
                        choices=list(FAMILIES))
    parser.add_argument("--layouts", type=int, default=48, metavar="N",
                        help="of each family (48)")
    parser.add_argument("--iterations", type=int, default=30, metavar="N")
    parser.add_argument("--seed", type=int, default=1,
                        help="of what is picked (1)")
    parser.add_argument("--mpirun", action="store_true",
                        help="ranks are processes, but for the first layout")
    args, args.flags = parser.parse_known_args()
    unequal = [family for family in args.families if not prove(args, family)]
    print(f"\n{args.layouts} layouts of each of {', '.join(args.families)}: "
          + (f"NOT equal: {', '.join(unequal)}" if unequal else
             "all losses, norms and fingerprints are equal"))
    sys.exit(1 if unequal else 0)


if __name__ == "__main__":
    main()
