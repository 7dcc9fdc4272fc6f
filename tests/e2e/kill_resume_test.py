"""A run that saves every step, in the background or not, survives kill -9 at
any moment: it resumes, on whatever layout, from the last whole checkpoint, with
the same bits.

usage: kill_resume_test.py PROGRAMS KILLS [SEED]
SPDX-License-Identifier: Apache-2.0
"""
import os
import random
import subprocess
import sys
import tempfile
import time

from programs import (GPT, RUN, STEP_NAME, command, read_log, run,
                      succeed)

KILLS = int(sys.argv[2])
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(10**6)
LAYOUTS = [("--tp 2 --dp 2 " + optimizer).split() for optimizer in
           ("--use-distributed-optimizer", "--no-use-distributed-optimizer")]
LAYOUTS += [("--tp 1 --pp 2 --dp 1 --no-use-distributed-optimizer").split(),
            ("--tp 1 --pp 1 --dp 4 --use-distributed-optimizer").split()]
# Flags, and how many iterations that were logged a kill may undo: a save in the
# background is waited for only when the next is due.
SAVES = [([], 1), (["--async-save"], 2),
         (["--async-save", "--keep-last", 2, "--keep-every", 5], 2)]


class Victim:
    """The run directory and log of a run that is killed again and again."""

    def __init__(self, directory, rng):
        self.rng = rng
        self.run_dir = os.path.join(directory, "run")
        self.log = os.path.join(directory, "run.jsonl")
        self.stderr = os.path.join(directory, "stderr")
        self.partials_left = 0
        self.undone = 0  # iterations that the last kill may have undone

    def last_logged(self):
        return max(read_log(self.log), default=0)

    def start(self, train_iters, saves):
        flags, self.undone = saves
        with open(self.stderr, "w", encoding="utf-8") as stderr:
            return subprocess.Popen(
                command("train", *GPT, *RUN, *self.rng.choice(LAYOUTS),
                        "--train-iters", train_iters, "--save-interval", 1,
                        "--save", self.run_dir, "--load", self.run_dir,
                        "--load-if-present", "--log-jsonl", self.log, *flags),
                stderr=stderr)

    def wait_a_while(self, process):
        """Somewhere in the start-up, or some iterations and saves later."""
        if self.rng.random() < 0.3:
            time.sleep(self.rng.uniform(0, 0.3))
            return
        target = self.last_logged() + self.rng.randint(1, 3)
        while self.last_logged() < target:
            assert process.poll() is None, self.said()
            time.sleep(0.002)
        time.sleep(self.rng.uniform(0, 0.15))

    def said(self):
        with open(self.stderr, encoding="utf-8") as file:
            return file.read()

    def check_start(self, last_logged, undone):
        """It took the last whole checkpoint, not more than `undone` iterations
        before the last that had been logged."""
        lines = [line for line in self.said().splitlines()
                 if line.startswith("loading ")]
        if not lines:
            return
        taken = os.path.basename(lines[0].split()[1].rstrip(","))
        assert STEP_NAME.fullmatch(taken), lines
        assert last_logged - undone <= int(taken[5:]) <= last_logged, (
            lines, last_logged, undone)

    def kill_once(self):
        before, undone = self.last_logged(), self.undone
        process = self.start(10**6, self.rng.choice(SAVES))
        self.wait_a_while(process)
        assert process.poll() is None, self.said()
        process.kill()
        process.wait()
        self.check_start(before, undone)
        if self.last_logged() == before:
            self.undone = max(self.undone, undone)
        if os.path.isdir(self.run_dir):
            self.partials_left += any(name.endswith(".partial")
                                      for name in os.listdir(self.run_dir))

    def finish(self):
        end = self.last_logged() + 3
        before, undone = self.last_logged(), self.undone
        process = self.start(end, SAVES[-1])
        assert process.wait() == 0, self.said()
        self.check_start(before, undone)
        assert "loading " in self.said(), self.said()
        return end


def main():
    print(f"seed {SEED}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        victim = Victim(directory, random.Random(SEED))
        for _ in range(KILLS):
            victim.kill_once()
        end = victim.finish()
        whole_log = os.path.join(directory, "whole.jsonl")
        whole_run = os.path.join(directory, "whole")
        succeed("train", *GPT, *RUN, "--train-iters", end, "--save",
                whole_run, "--log-jsonl", whole_log)
        expected = read_log(whole_log)
        found = read_log(victim.log)
        assert sorted(found) == sorted(expected) == list(range(1, end + 1))
        for iteration, lines in found.items():
            assert set(lines) == set(expected[iteration]), (iteration, lines)
        diff = run("ckpt", "diff", victim.run_dir, whole_run)
        assert diff.returncode == 0, diff.stdout + diff.stderr
        left = [name for name in os.listdir(victim.run_dir)
                if name != "latest" and not STEP_NAME.fullmatch(name)]
        assert not left, left
        print(f"{KILLS} kills, {victim.partials_left} left a partial save; "
              f"{end} iterations, all with the bits of the uninterrupted run")


main()
