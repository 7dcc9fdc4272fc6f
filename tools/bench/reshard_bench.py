#!/usr/bin/env python3
"""Reshards a checkpoint beside plain copies of the same bytes, taking turns.

    tools/bench/reshard_bench.py BIN DIR [--runs 5]

BIN holds `reshard` and `ckpt`. The references: `cp -r`, and a bare copy by
direct I/O, in which one thread reads and one writes, 4 MiB at a time from huge
pages. Prints medians, their ratios, the peak of resident memory, and the bytes
that the kernel counts as read over those of the checkpoint. Where it may make a
memory cgroup, `reshard` runs in one of 160 MiB, which kills what needs more.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import mmap
import os
import pathlib
import queue
import shutil
import statistics
import subprocess
import sys
import threading
import time

import numpy

PIECE = 4 << 20
RING = 8
MEMORY_LIMIT = 160 << 20
MODEL = [
    "--num-layers", "16", "--hidden-size", "1792", "--num-attention-heads",
    "16", "--seq-length", "1024", "--vocab-size", "50257",
    "--use-distributed-optimizer"
]
SOURCE = ["--tp", "4", "--pp", "2", "--dp", "2"]
TARGETS = {
    "TP4 PP2 DP2 -> TP2 PP4 DP4": ["--tp", "2", "--pp", "4", "--dp", "4"],
    "TP4 PP2 DP2 -> TP1": [],
    "TP4 PP2 DP2 -> TP8 PP4": ["--tp", "8", "--pp", "4"],
    "TP4 PP2 DP2 again, linked": SOURCE,
}


def drop_cache():
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    except OSError:
        return False


class BareCopy:
    """Copies the files of a directory, reading and writing at once."""

    def __init__(self):
        self.memory = mmap.mmap(-1, PIECE * (RING + 1),
                                flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory.madvise(mmap.MADV_HUGEPAGE)
        view = numpy.frombuffer(self.memory, dtype=numpy.uint8)
        view[:] = 1
        # Huge pages begin on multiples of their size.
        start = -view.ctypes.data % PIECE
        self.buffers = [view[start + i * PIECE:start + (i + 1) * PIECE]
                        for i in range(RING)]

    def run(self, source, target):
        free, full = queue.Queue(), queue.Queue()
        for buffer in self.buffers:
            free.put(buffer)
        writer = threading.Thread(target=self.write, args=(target, free, full))
        writer.start()
        for path in sorted(source.rglob("*.h5")):
            size = path.stat().st_size
            fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
            full.put((path.name, size))
            for offset in range(0, size, PIECE):
                buffer = free.get()
                count = os.preadv(fd, [buffer], offset)
                full.put((buffer, offset, count))
            os.close(fd)
        full.put(None)
        writer.join()

    def write(self, target, free, full):
        target.mkdir()
        fd = None
        while (item := full.get()) is not None:
            if isinstance(item[0], str):
                self.close(fd)
                fd = os.open(target / item[0],
                             os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
                self.file_bytes = item[1]
            else:
                buffer, offset, count = item
                pages = (count + 4095) // 4096 * 4096
                os.pwritev(fd, [buffer[:pages]], offset)
                free.put(buffer)
        self.close(fd)

    def close(self, fd):
        if fd is None:
            return
        os.ftruncate(fd, self.file_bytes)
        os.fsync(fd)
        os.close(fd)


def memory_cgroup():
    """Makes one; gives the file that takes in a process, or None."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                        ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(root, "shardshift-bench")
        try:
            group.mkdir(exist_ok=True)
            (group / limit).write_text(str(MEMORY_LIMIT))
            return group / "cgroup.procs"
        except OSError:
            continue
    return None


def run(command, cgroup):
    """Runs it; gives seconds, peak resident bytes and bytes read from disk."""
    if cgroup:
        command = ["/bin/sh", "-c", f'echo $$ >{cgroup} && exec "$0" "$@"',
                   *command]
    begin = time.monotonic()
    pid = os.posix_spawn(command[0], command, os.environ,
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null",
                                        os.O_WRONLY, 0)])
    # What a process read is known until its parent asks how it ended.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    seconds = time.monotonic() - begin
    lines = pathlib.Path(f"/proc/{pid}/io").read_text().splitlines()
    counts = dict(line.split(": ") for line in lines)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: exit status {status}")
    return seconds, usage.ru_maxrss << 10, int(counts["read_bytes"])


class Bench:

    def __init__(self, binaries, directory):
        self.binaries = binaries
        self.source = directory / "source"
        self.target = directory / "target"
        self.cgroup = memory_cgroup()
        self.seconds = {}
        self.worst = {}

    def time(self, what, work, cold):
        shutil.rmtree(self.target, ignore_errors=True)
        os.sync()
        if cold:
            drop_cache()
        begin = time.monotonic()
        result = work()
        took = result[0] if result else time.monotonic() - begin
        self.seconds.setdefault(what, []).append(took)
        print(f"{what:44} {took:7.2f} s", file=sys.stderr)
        return result

    def reshard(self, name, layout, total_bytes, cold):
        result = self.time(
            name, lambda: run([
                str(self.binaries / "reshard"),
                str(self.source),
                str(self.target), "--use-distributed-optimizer", *layout
            ], self.cgroup), cold)
        resident, amplification = self.worst.get(name, (0, 0))
        self.worst[name] = (max(resident, result[1]),
                            max(amplification, result[2] / total_bytes))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binaries", type=pathlib.Path, metavar="BIN")
    parser.add_argument("directory", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--warm", action="store_true",
                        help="do not drop the page cache before each run")
    args = parser.parse_args()
    bench = Bench(args.binaries, args.directory)
    args.directory.mkdir(parents=True, exist_ok=True)
    if not bench.source.exists():
        subprocess.run([str(args.binaries / "ckpt"), "synth",
                        str(bench.source), *MODEL, *SOURCE], check=True)
    files = list(bench.source.rglob("*.h5"))
    total_bytes = sum(path.stat().st_size for path in files)
    bare = BareCopy()
    step = next(bench.source.glob("step-*"))
    for _ in range(args.runs):
        bench.time("bare copy", lambda: bare.run(step, bench.target),
                   not args.warm)
        for name, layout in TARGETS.items():
            bench.reshard(name, layout, total_bytes, not args.warm)
        bench.time(
            "cp -r", lambda: subprocess.run(
                ["sh", "-c", f"cp -r {step} {bench.target} && sync"],
                check=True) and None, not args.warm)
    shutil.rmtree(bench.target, ignore_errors=True)
    median = {what: statistics.median(all) for what, all in
              bench.seconds.items()}
    print(f"{total_bytes} bytes, medians of {args.runs}, "
          f"{'in' if bench.cgroup else 'without'} a memory cgroup of "
          f"{MEMORY_LIMIT >> 20} MiB")
    for what, seconds in median.items():
        resident, amplification = bench.worst.get(what, (0, 0))
        extra = (f"  {resident / 2**20:.0f} MiB resident, read "
                 f"{amplification:.3f}" if resident else "")
        print(f"{what:30} {seconds:6.2f} s  "
              f"{seconds / median['bare copy']:.2f} x bare copy  "
              f"{seconds / median['cp -r']:.2f} x cp -r{extra}")


if __name__ == "__main__":
    main()
