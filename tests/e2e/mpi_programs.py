"""`train` under mpirun, a process for each rank.

SPDX-License-Identifier: Apache-2.0
"""
import subprocess

from programs import command

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np"]


def mpi_command(processes, *args):
    return [*MPIRUN, str(processes), *command("train", *args)]


def start(arguments):
    return subprocess.Popen(arguments, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def ranks_of(job):
    """The process ids of the ranks of a job that runs, first rank first."""
    children = subprocess.run(["pgrep", "-P", str(job.pid)], text=True,
                              capture_output=True, check=True)
    return [int(child) for child in children.stdout.split()]


def finish(process, timeout=120):
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out,
                                       err)


def mpi_run(processes, *args):
    return finish(start(mpi_command(processes, *args)))
