"""The instruction set changes no bit of a run.

SPDX-License-Identifier: Apache-2.0
"""
import os
import tempfile

from programs import GPT, LLAMA, RUN, read_log, run, succeed


def instruction_set(isa):
    version = succeed("train", "--version", env={"SHARDSHIFT_ISA": isa})
    return version.stdout.split("instruction set ")[1].split()[0]


def main():
    assert instruction_set("scalar") == "scalar"
    best = instruction_set("avx512")
    isas = {"scalar": 0, "avx2": 1, "avx512": 2}
    with tempfile.TemporaryDirectory() as directory:
        for family in (GPT, LLAMA):
            name = f"{len(family)}"
            logs = {}
            for isa in list(isas)[:isas[best] + 1]:
                path = os.path.join(directory, name + isa)
                succeed("train", *family, *RUN, "--tp", 2, "--train-iters", 5,
                        "--log-jsonl", path + ".jsonl", "--save", path,
                        env={"SHARDSHIFT_ISA": isa})
                logs[isa] = read_log(path + ".jsonl")
                assert logs[isa] == logs["scalar"], (isa, logs)
                diff = run("ckpt", "diff", path,
                           os.path.join(directory, name + "scalar"))
                assert diff.returncode == 0, diff.stdout
            assert len(logs["scalar"]) == 5, logs
            print("equal:", ", ".join(logs))


main()
