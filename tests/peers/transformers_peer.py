"""Hugging Face folders: transformers writes one, reshard takes it to our own
checkpoint and back, transformers loads that. State and logits are the same.

usage: transformers_peer.py BIN DIR
SPDX-License-Identifier: Apache-2.0
"""

import sys

import torch
import transformers

import models
from cases import Cases, Programs, expect
from tensors import expect_same, same_bits

INPUT = torch.arange(48).reshape(2, 24) * 37 % 131


def load(folder, dtype):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager",
        output_loading_info=True)
    wrong = {what: names for what, names in report.items() if names}
    expect(not wrong, f"from_pretrained: {wrong}")
    return model.eval()


def logits(model):
    with torch.no_grad():
        return model(INPUT, use_cache=False).logits


def round_trip(directory, programs, case, dtype, layout, back):
    models.make(case).to(dtype).save_pretrained(directory / "theirs")
    programs.reshard(directory / "theirs", directory / "native", *layout)
    programs.reshard(directory / "native", directory / "ours",
                     "--to", "safetensors", *back)
    theirs = load(directory / "theirs", dtype)
    ours = load(directory / "ours", dtype)
    expect_same(ours.state_dict(), theirs.state_dict(), "state")
    expect(same_bits(logits(ours), logits(theirs)), "logits differ")
    return f"{len(theirs.state_dict())} tensors and logits equal"


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    programs = Programs(sys.argv[1])
    cases = Cases("transformers", sys.argv[2])
    for case in models.CONFIGURATIONS:
        cases.run(f"{case}, TP2", round_trip, programs, case, torch.float32,
                  ["--tp", "2"], [])
    for case in ("llama tied", "qwen3_moe"):
        cases.run(f"{case}, bfloat16, PP2, files of 64 kB", round_trip,
                  programs, case, torch.bfloat16, ["--pp", "2"],
                  ["--max-shard-size", "64kB"])
    cases.finish()


if __name__ == "__main__":
    main()
