"""Runs example programs as their users do: a command, in a folder of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 200
EMPTY: Mapping[str, str] = {}


def run(
    command: str, folder: Path, *, change: tuple[str, str] | None = None, environment: Mapping[str, str] = EMPTY
) -> subprocess.CompletedProcess[str]:
    """``command`` as a guide prints it, in ``folder``, which holds copies of the examples.

    ``change``: (old, new), replaced in the program before it runs, to see that it notices a fault.
    ``environment``: more variables.
    """
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
    words = shlex.split(command)
    program = folder / next(word for word in words if word.endswith(".py"))
    if change is not None:
        text = program.read_text(encoding="utf-8")
        assert change[0] in text, change[0]
        program.write_text(text.replace(*change), encoding="utf-8")
    starters = {"python": [sys.executable], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}
    arguments = [*starters[words[0]], *words[1:]]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    # torchrun leaves a folder behind, and a failing torch.multiprocessing.spawn a file. Not in ``folder``, whose path
    # is too long for a socket's.
    with (
        tempfile.TemporaryDirectory() as temporary,
        subprocess.Popen(
            arguments,
            cwd=folder,
            env={**variables, "TMPDIR": temporary},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            printed, complained = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            # Its ranks too: torchrun starts them in sessions of their own.
            for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                one.kill()
            printed, complained = process.communicate()
            complained += f"\nended after {LIMIT_S} s"
    return subprocess.CompletedProcess(arguments, process.returncode, printed, complained)
