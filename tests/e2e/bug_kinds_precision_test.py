"""Faults that bit users of other programs, by the number of their kind: those
of 16-bit precision in a run that goes on.

SPDX-License-Identifier: Apache-2.0
"""
import io
import json
import os
import subprocess
import sys
import unittest

import numpy

from programs import GPT, LLAMA, FolderTest, command, run, succeed

RUN = ("--global-batch-size 8 --micro-batch-size 1 --lr 1e-2 --mock-data "
       "--lr-decay-iters 1000").split()
NORM = "layers.1.mlp_norm.weight"


def state_of(checkpoint):
    return json.loads(succeed("ckpt", "show", "--json", checkpoint).stdout)


class PrecisionKindsTest(FolderTest):

    def train(self, log, *args):
        done = succeed("train", *args, "--log-jsonl", self.path(log))
        with open(self.path(log), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        keys = ("iteration", "lm_loss_bits", "grad_norm_bits", "loss_scale",
                "skipped", "learning_rate")
        return [[line[key] for key in keys] for line in lines], done.stderr

    def values(self, checkpoint, name, role="master"):
        done = subprocess.run(
            command("ckpt", "cat", checkpoint, name, "--role", role, "--npy"),
            check=True, capture_output=True)
        return numpy.load(io.BytesIO(done.stdout)).astype(numpy.float32)

    def test_b73_the_loss_scale_goes_on_with_its_counters(self):
        start = [*GPT, *RUN, "--fp16", "--initial-loss-scale", 2 ** 26,
                 "--loss-scale-window", 4]
        whole, _ = self.train("whole", *start, "--train-iters", 50, "--save",
                              self.path("whole-run"), "--save-interval", 50)
        skipped = [line[4] for line in whole]
        self.assertGreater(skipped[-1], 5)
        self.assertLess(skipped[-1], 30)
        for stop in (1, 7, 12, 13):
            save = self.path(f"run-{stop}")
            first, _ = self.train(f"log-{stop}", *start, "--train-iters", stop,
                                  "--save", save)
            self.assertEqual(first, whole[:stop])
            both, _ = self.train(f"log-{stop}", "--mock-data", "--load", save,
                                 "--save", save, "--train-iters", 50, "--tp", 2)
            self.assertEqual(both, whole)
            succeed("ckpt", "diff", self.path("whole-run"), save)

    def test_b73_a_scale_of_256_and_three_good_steps(self):
        self.train("log", *GPT, *RUN, "--fp16", "--initial-loss-scale", 256,
                   "--train-iters", 3, "--save", self.path("run"))
        progress = state_of(self.path("run"))["state"]["progress"]
        self.assertEqual(
            progress, {"step": 3, "consumed_samples": 24, "loss_scale": 256.0,
                       "skipped_iterations": 0, "growth_tracker": 3,
                       "hysteresis_tracker": 2})

    def test_skipped_iterations_leave_weights_and_schedule_alone(self):
        lines, _ = self.train(
            "log", *LLAMA, *RUN, "--fp16", "--loss-scale", 2 ** 40,
            "--train-iters", 3, "--lr-warmup-iters", 2, "--save",
            self.path("run"), "--save-interval", 1, "--dp", 2,
            "--use-distributed-optimizer")
        self.assertEqual([line[3:] for line in lines],
                         [[2.0 ** 40, i + 1, 0.0] for i in range(3)])
        self.assertEqual({line[2] for line in lines}, {"7fc00000"})
        steps = [self.path(f"run/step-{i:08d}") for i in (1, 3)]
        diff = run("ckpt", "diff", *steps)
        self.assertEqual(diff.returncode, 1)
        self.assertNotIn("weight", diff.stdout)
        self.assertEqual(
            state_of(steps[1])["state"]["progress"]["skipped_samples"], 24)

    def test_the_scale_stays_at_its_smallest(self):
        lines, said = self.train("log", *GPT, *RUN, "--fp16",
                              "--initial-loss-scale", 2 ** 40,
                              "--min-loss-scale", 2 ** 39, "--hysteresis", 1,
                              "--train-iters", 4)
        self.assertEqual([line[3:5] for line in lines],
                         [[2.0 ** 40, 1], [2.0 ** 39, 2], [2.0 ** 39, 3],
                          [2.0 ** 39, 4]])
        self.assertIn("4 of 4 iterations were skipped", said)

    def test_b132_masters_follow_a_load_of_weights_alone(self):
        self.train("first", *LLAMA, *RUN, "--train-iters", 5, "--save",
                   self.path("run"))
        for precision, dtype in (("bf16", "bf16"), ("fp16", "f16")):
            source = self.path(precision)
            succeed("reshard", self.path("run"), source, "--weights-only",
                    "--dtype", dtype)
            loaded = self.values(source, NORM, "weight")
            for layout in ([], ["--dp", 2, "--use-distributed-optimizer"]):
                name = f"tuned-{precision}-{len(layout)}"
                self.train(name + "-log", *RUN, "--seq-length", 16,
                           "--load", source, "--finetune", f"--{precision}",
                           "--lr", 1e-9, "--train-iters", 1, "--save",
                           self.path(name), *layout)
                tuned = self.values(self.path(name), NORM)
                self.assertLess(numpy.abs(tuned - loaded).max(), 1e-7)

    def test_b133_masters_are_stored_not_made_from_weights(self):
        start = [*GPT, *RUN, "--bf16"]
        whole, _ = self.train("whole", *start, "--train-iters", 20, "--save",
                              self.path("whole-run"))
        save = self.path("run")
        self.train("parts", *start, "--train-iters", 2, "--save", save)
        for stop in range(4, 21, 2):
            parts, _ = self.train("parts", "--mock-data", "--load", save,
                                  "--save", save, "--train-iters", stop)
        self.assertEqual(parts, whole)
        succeed("ckpt", "diff", self.path("whole-run"), save)
        bits = self.values(save, NORM).view(numpy.uint32)
        self.assertGreater(numpy.count_nonzero(bits & 0xFFFF), 16)

    def test_b139_a_run_goes_on_in_its_precision(self):
        # Below half a step of bf16 at 1.
        start = [*GPT, *RUN, "--lr-decay-style", "constant", "--lr", 1e-4]
        save = self.path("run")
        whole, _ = self.train("whole", *start, "--bf16", "--train-iters", 6)
        self.train("parts", *start, "--bf16", "--train-iters", 3, "--save",
                   save)
        before = self.values(save, NORM)
        self.assertTrue((before != 1).all())
        self.assertTrue((abs(before - 1) < 2 ** -9).all())
        parts, said = self.train("parts", "--mock-data", "--load", save,
                                 "--save", save, "--train-iters", 6)
        self.assertEqual(parts, whole)
        self.assertIn("precision bf16", said)
        self.assertNotIn("changed:", said)
        self.assertTrue((self.values(save, NORM) != before).all())
        self.assertEqual(state_of(save)["record"]["precision"], "bf16")

    def test_a_change_of_precision_is_said(self):
        save = self.path("run")
        self.train("log", *GPT, *RUN, "--fp16", "--initial-loss-scale", 1024,
                   "--train-iters", 2, "--save", save)
        _, said = self.train("log", "--mock-data", "--load", save, "--save",
                             save, "--fp32", "--train-iters", 4)
        self.assertIn("changed: the precision is fp32, the checkpoint's run "
                      "has fp16", said)
        progress = state_of(save)["state"]["progress"]
        self.assertEqual(progress["loss_scale"], 1.0)
        self.assertNotIn("growth_tracker", progress)
        # A loss scale begins anew, as the run says.
        lines, _ = self.train("last", "--mock-data", "--load", save, "--fp16",
                              "--train-iters", 5)
        self.assertEqual(lines[0][3], 1024.0)

    def test_flags_that_do_not_go_together_are_refused(self):
        for flags, words in (
                (["--bf16", "--fp16"], ["--bf16", "--fp16"]),
                (["--bf16", "--loss-scale", 8], ["--loss-scale", "bf16"]),
                (["--hysteresis", 3], ["--hysteresis", "fp32"]),
                (["--fp16", "--loss-scale", 3], ["--loss-scale is 3"]),
                (["--fp16", "--min-loss-scale", 0], ["--min-loss-scale"])):
            done = run("train", *GPT, *RUN, *flags, "--train-iters", 1)
            self.assertEqual(done.returncode, 2, flags)
            for word in words:
                self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
