"""Runs example programs as their users do: a command, in a folder of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 200


def run(command: str, folder: Path, *, change: tuple[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """``command`` as a guide prints it, in ``folder``, which holds copies of the examples.

    ``change``: (old, new), replaced in the program before it runs, to see that it notices a fault.
    """
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
    words = shlex.split(command)
    program = folder / next(word for word in words if word.endswith(".py"))
    if change is not None:
        text = program.read_text(encoding="utf-8")
        assert change[0] in text, change[0]
        program.write_text(text.replace(*change), encoding="utf-8")
    starters = {"python": [sys.executable], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}
    return subprocess.run(
        [*starters[words[0]], *words[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
