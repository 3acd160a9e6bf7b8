"""``iris-harness emulate``: a program on the emulated machine."""

from __future__ import annotations

import os
import shutil
import signal
import sys

import click

from harness.emulated_machine.facts import MAX_GPUS, MODELS
from harness.emulated_machine.hip import build
from harness.emulated_machine.settings import MODES, Settings
from harness.errors import HarnessError, UsageError


@click.command(
    "emulate",
    short_help="Run a program on an emulated machine with GPUs.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--arch", default=Settings.arch, show_default=True, help=f"The GPUs: {' or '.join(MODELS)}.")
@click.option("--gpus", default=str(MAX_GPUS), show_default=True, help=f"Number of GPUs, 1 to {MAX_GPUS}.")
@click.option("--mode", default=MODES[0], show_default=True, help=f"{', '.join(MODES)}, or one with a seed: weak:7.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="-- PROGRAM [ARGUMENTS]...")
def command(arch: str, gpus: str, mode: str, program: tuple[str, ...]) -> int:
    """Run PROGRAM on an emulated machine with AMD GPUs: torch.cuda, Triton, HIP, amdsmi and ROCm's tools show them, in
    the program and in the processes that it starts.

    \b
    iris-harness emulate -- python prog.py
    iris-harness emulate --arch gfx950 --gpus 4 --mode race -- torchrun --nproc-per-node 4 prog.py

    The program is not changed. Kernels run on the CPU; tensors on cuda:N and CPU tensors are valid arguments. python
    and torchrun are those of the environment that iris-harness is installed in. Each process is checked by itself.
    A program that activates the emulated device itself keeps the arch that it names, with a note. Python's options -I,
    -E and -S switch the device off.

    Exit status: the program's; 2 if there is no such program, arch or mode.
    """
    if not gpus.isdecimal():
        raise UsageError(f"--gpus: expected a number from 1 to {MAX_GPUS}, got {gpus!r:.60}")
    settings = Settings(arch, mode, int(gpus))
    if not program:
        raise UsageError("no program: write it after --, as in iris-harness emulate -- python prog.py")
    environment = settings.environment(os.environ)
    path = shutil.which(program[0], path=environment["PATH"])
    if path is None:
        hint = f"; for a Python file write -- python {program[0]:.200}" if program[0].endswith(".py") else ""
        raise UsageError(f"no program {program[0]!r:.200}: it is not a file that can be run, and not in PATH{hint}")
    try:
        build.built()
    except HarnessError as error:  # a program that uses neither torch nor HIP runs without the library
        print(f"iris-harness emulate: note: {error}", file=sys.stderr)
    # This process becomes the program: signals, terminal and exit status are the program's without anything in between.
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execve(path, program, environment)
    except OSError as error:
        raise UsageError(f"{path} cannot be run: {error.strerror}") from error
