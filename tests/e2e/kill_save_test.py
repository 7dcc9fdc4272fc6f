"""kill -9 of a process that saves, at random moments: the last save that it
reported, or the one under way, is there, whole.

usage: kill_save_test.py SAVE_LOOP KILLS [SEED]
SPDX-License-Identifier: Apache-2.0
"""
import os
import random
import subprocess
import sys
import tempfile
import time

SAVE_LOOP = sys.argv[1]
KILLS = int(sys.argv[2])
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(10**6)


def saved(run):
    """The save that the run directory holds."""
    done = subprocess.run([SAVE_LOOP, run], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def kill_once(run, first, rng):
    """Gives the saves that were reported."""
    with subprocess.Popen([SAVE_LOOP, run, str(first)], text=True,
                          stdout=subprocess.PIPE) as process:
        # Over the checkpoint of a save before it.
        reported = [int(process.stdout.readline())
                    for _ in range(rng.randint(1, 2))]
        time.sleep(rng.uniform(0, 0.06))
        assert process.poll() is None
        process.kill()
        return reported + [int(line) for line in process.stdout]


def main():
    print(f"seed {SEED}", flush=True)
    rng = random.Random(SEED)
    first = partials = under_way = 0
    with tempfile.TemporaryDirectory() as directory:
        run = os.path.join(directory, "run")
        for _ in range(KILLS):
            last = kill_once(run, first, rng)[-1]
            partials += any(name.endswith(".partial")
                            for name in os.listdir(run))
            found = saved(run)
            assert found in (last, last + 1), (found, last)
            under_way += found > last
            first = found + 1
    print(f"{KILLS} kills over {first} saves: {partials} left a partial save, "
          f"{under_way} came between the commit and its report")


main()
