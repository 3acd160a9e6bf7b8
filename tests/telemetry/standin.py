"""Libraries that do what a test says, in place of the vendors': compiled with the C compiler, loaded by the vendors'
own Python packages, which are exercised for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler for the stand-in library")
SOURCE = Path(__file__).with_name("standin.c")
ROOT = Path(__file__).resolve().parents[2]


def build(path: Path, functions: Iterable[str], default: int) -> Path:
    """Compile a library with these functions to ``path``; ``default`` is the status of those without a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-w", "-D_GNU_SOURCE", f"-DDEFAULT={default}"]
    names = " ".join(f"F({name})" for name in sorted(set(functions)))
    subprocess.run([*command, f"-DFUNCTIONS={names}", "-o", str(path), str(SOURCE)], check=True, timeout=120)
    return path


def handle(index: int) -> int:
    """The value of the handle of device ``index``."""
    return 0x1000 + 0x10 * index


class Script:
    """The lines of a stand-in's script; ``write`` puts them into effect at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        self.write()

    def say(self, name: str, status: int = 0, *words: str) -> None:
        """A line before all others, so that the newest counts."""
        self.lines.insert(0, " ".join([name, str(status), *words]))

    def write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in self.lines))
        new.replace(self.path)

    def logged(self) -> list[str]:
        """The names that lines with ``log`` were called by."""
        log = Path(f"{self.path}.log")
        return log.read_text().split() if log.exists() else []


def out(argument: int, data: bytes) -> str:
    """The word that writes ``data`` to where an argument points."""
    return f"a{argument}:{data.hex()}"


def run_python(code: str, *, script: Path, library: Path, path: Iterable[Path] = (), **environment: str) -> str:
    """What ``code`` prints in a process of its own that finds the stand-in ``library`` in place of the real one."""
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
    """The environment in which ``library`` is found and does what ``script`` says."""
    return {
        "STANDIN": str(script),
        "LD_LIBRARY_PATH": str(library.parent),
        "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))),
    }
