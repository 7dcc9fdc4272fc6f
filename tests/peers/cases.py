"""Cases that run one after the other, a line each, and our programs.

SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import shutil
import subprocess
import sys
import time
import traceback

import h5py


class Disagreement(Exception):
    """A peer and we do not see the same."""


def expect(condition, what):
    if not condition:
        raise Disagreement(what)


class Programs:
    """`reshard` and `ckpt` of one directory."""

    def __init__(self, binaries):
        self.binaries = pathlib.Path(binaries)

    def run(self, program, *args):
        """What the program prints, as bytes."""
        done = subprocess.run(
            [str(self.binaries / program), *map(str, args)],
            capture_output=True)
        if done.returncode:
            raise Disagreement(f"{program} {' '.join(map(str, args))}: "
                               f"{done.stderr.decode().strip()}")
        return done.stdout

    def reshard(self, *args):
        return self.run("reshard", *args)


def table(run):
    """All tensors of a run of ours, by h5py: (name, role) -> array."""
    step, = pathlib.Path(run).glob("step-*")
    found = {}

    def take(path, node):
        if isinstance(node, h5py.Dataset):
            found[tuple(path.rsplit("/", 1))] = node[...]

    with h5py.File(step / "index.h5") as file:
        file["tensors"].visititems(take)
    return found


class Cases:
    """Runs cases, each in a directory of its own under `directory`, which is
    made anew; those of cases that failed are left to be looked at."""

    def __init__(self, peer, directory):
        self.peer = peer
        self.directory = pathlib.Path(directory)
        self.passed = 0
        self.failed = 0
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)

    def run(self, name, action, *args):
        """Calls action(directory, *args), which returns words on what it
        compared, or raises."""
        directory = self.directory / name.replace(" ", "-").replace(",", "")
        directory.mkdir()
        start = time.monotonic()
        try:
            words = action(directory, *args)
            verdict = "ok"
        except Exception as error:  # whatever a library throws is a failure
            (directory / "error").write_text(traceback.format_exc())
            last = (str(error).strip() or "no message").splitlines()[-1]
            words = f"{type(error).__name__}: {last}; see {directory}/error"
            verdict = "FAILED"
        seconds = time.monotonic() - start
        print(f"{verdict} {self.peer}: {name}: {words} ({seconds:.1f} s)",
              flush=True)
        if verdict == "ok":
            self.passed += 1
            shutil.rmtree(directory)
        else:
            self.failed += 1

    def finish(self):
        """Ends the process: 0 only if all cases passed, and there were any."""
        print(f"{self.peer}: {self.passed} ok, {self.failed} failed",
              flush=True)
        sys.exit(0 if self.passed and not self.failed else 1)
