"""Faults that bit users of other programs, by the number of their kind: those
of schedule, random numbers and data position of a run that goes on.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import sys
import unittest

from programs import GPT, FolderTest, run, succeed

STOP, END = 4, 8
RUN = "--global-batch-size 8 --micro-batch-size 1 --lr 1e-2".split()


class ResumeKindsTest(FolderTest):

    def log(self, name):
        """Of each iteration what must not depend on the stop."""
        with open(self.path(name), encoding="utf-8") as file:
            return [[line[key] for key in (
                "iteration", "consumed_samples", "lm_loss_bits",
                "grad_norm_bits", "learning_rate")]
                    for line in map(json.loads, file)]

    def train(self, log, *args):
        return succeed("train", *args, "--log-jsonl", self.path(log))

    def stops_and_goes_on(self, *args, then=(), data=("--mock-data",),
                          stop=STOP, end=END):
        """A run that stops and one that does not are the same."""
        # Else the schedule's length is that of the run.
        start = [*GPT, *RUN, *data, "--lr-decay-iters", 1000, *args]
        for name in ("whole.jsonl", "stopped.jsonl"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        save = self.path(f"run-{len(os.listdir(self.folder))}")
        self.train("whole.jsonl", *start, "--train-iters", end)
        self.train("stopped.jsonl", *start, "--train-iters", stop, "--save",
                   save)
        self.train("stopped.jsonl", *data, "--load", save, "--train-iters",
                   end, *then)
        whole = self.log("whole.jsonl")
        self.assertEqual(len(whole), end)
        self.assertEqual(self.log("stopped.jsonl"), whole)
        return whole

    def test_b71_the_schedule_is_advanced_once(self):
        for style in ("constant", "linear", "cosine"):
            lines = self.stops_and_goes_on(
                "--lr-decay-style", style, "--lr-decay-iters", 6,
                "--lr-warmup-iters", 2, "--min-lr", 1e-4)
            rates = [line[-1] for line in lines]
            self.assertGreater(len(set(rates)),
                               2 if style == "constant" else 5)

    def test_b72_the_stored_schedule_wins(self):
        start = [*GPT, *RUN, "--mock-data", "--lr-decay-style", "cosine",
                 "--train-iters", END]
        self.train("whole.jsonl", *start)
        self.train("first.jsonl", *start, "--save", self.path("run"),
                   "--save-interval", STOP)
        step = os.path.join(self.path("run"), f"step-{STOP:08d}")
        self.train("longer.jsonl", "--mock-data", "--load", step,
                   "--train-iters", 3 * END)
        rate = self.log("whole.jsonl")[STOP:]
        self.assertEqual(self.log("longer.jsonl")[:len(rate)], rate)
        for flag, value in (("--global-batch-size", 16),
                            ("--lr-decay-iters", 100)):
            done = run("train", "--mock-data", "--load", step, "--train-iters",
                       END, flag, value)
            self.assertEqual(done.returncode, 2)
            self.assertIn(flag, done.stderr)
            self.assertIn("--override-opt-param-scheduler", done.stderr)

    def test_b74_b75_random_numbers_belong_to_elements_not_to_ranks(self):
        dropout = ["--attention-dropout", 0.1, "--hidden-dropout", 0.1]
        self.stops_and_goes_on(*dropout, "--tp", 2, "--pp", 2)
        for before, after in (("1", "2"), ("2", "1")):
            self.stops_and_goes_on(*dropout, "--tp", before,
                                   then=["--tp", after])

    def test_b79_the_position_is_one_for_all_data_parallel_ranks(self):
        for dp in (2, 8):
            self.stops_and_goes_on("--dp", 4, then=["--dp", dp])
        self.train("first.jsonl", *GPT, *RUN, "--mock-data", "--dp", 4,
                   "--train-iters", 1, "--save", self.path("run"))
        done = run("train", "--mock-data", "--load", self.path("run"), "--dp",
                   3, "--train-iters", 2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("data-parallel-size", done.stderr)

    def test_b82_b83_the_position_is_counted_in_samples(self):
        lines = self.stops_and_goes_on(
            "--dp", 2, then=["--micro-batch-size", 2, "--dp", 1])
        self.assertEqual([line[1] for line in lines],
                         [8 * (i + 1) for i in range(END)])

    def test_b138_a_run_whose_loss_is_no_number_ends_and_saves_nothing(self):
        save = self.path("run")
        start = [*GPT, *RUN, "--mock-data", "--save", save]
        self.train("good.jsonl", *start, "--train-iters", 2)
        for dp in (1, 2):
            done = run("train", "--mock-data", "--load", save, "--save", save,
                       "--save-interval", 1, "--train-iters", 9, "--lr", 1e30,
                       "--lr-decay-style", "constant", "--dp", dp,
                       "--override-opt-param-scheduler")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr,
                             r"error: .*iteration \d+: the loss is")
            succeed("ckpt", "verify", save, "--deep", "--all")
            header, *rows = succeed("ckpt", "stats", save).stdout.splitlines()
            self.assertEqual(header.split()[-2:], ["NaN", "Inf"])
            self.assertEqual({tuple(row.split()[-2:]) for row in rows},
                             {("0", "0")})

    def write_data(self, name, letter, documents=20):
        text = self.path(name + ".jsonl")
        with open(text, "w", encoding="utf-8") as file:
            for i in range(documents):
                words = " ".join(f"{letter}{(i * 7 + j) % 23}"
                                 for j in range(8 + i))
                file.write(json.dumps({"text": words}) + "\n")
        succeed("preprocess", "--input", text, "--output-prefix",
                self.path(name), "--tokenizer", "byte")
        return ["--data-path", self.path(name)]

    def test_b76_b78_b80_b85_epochs_go_on_in_their_order(self):
        data = self.write_data("text", "a")
        model = ["--vocab-size", 256]
        size = os.path.getsize(self.path("text.bin"))
        # The samples of an epoch, and about where one ends, before and after.
        an_epoch = (size // 2 - 1) // 16 // 8
        self.assertGreater(an_epoch, 2)
        for stop in (an_epoch - 1, an_epoch, an_epoch + 1):
            self.stops_and_goes_on(*model, data=data, stop=stop,
                                   end=2 * an_epoch + 2)

    def test_b84_other_data_are_refused(self):
        data = self.write_data("text", "a")
        other = self.write_data("other", "b")
        self.assertEqual(os.path.getsize(self.path("text.bin")),
                         os.path.getsize(self.path("other.bin")))
        self.train("first.jsonl", *GPT, "--vocab-size", 256, *RUN, *data,
                   "--train-iters", 1, "--save", self.path("run"))
        for args in (other, ["--mock-data"], [*data, "--seed", 5],
                     [*data, "--seq-length", 8]):
            done = run("train", *args, "--load", self.path("run"),
                       "--train-iters", 2)
            self.assertNotEqual(done.returncode, 0, args)
            self.assertIn("error: ", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
