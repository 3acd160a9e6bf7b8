"""Libraries that act by a test's script, in place of the vendors': compiled by
``harness.emulated_machine.smi.scripted``, loaded by the vendors'
own Python packages, which are exercised for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.emulated_machine.smi.scripted import compiler

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the stand-in library")
ROOT = Path(__file__).resolve().parents[2]


def run_python(code: str, *, script: Path, library: Path, path: Iterable[Path] = (), **environment: str) -> str:
    """Return the output of ``code`` in a new process that finds the stand-in ``library`` in place of the real one."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables(script, library, path), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def variables(script: Path, library: Path, path: Iterable[Path] = ()) -> dict[str, str]:
    """Return the environment in which ``library`` is found and acts by ``script``."""
    return {
        "STANDIN": str(script),
        "LD_LIBRARY_PATH": str(library.parent),
        "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))),
    }
