"""Shared libraries whose functions answer by a script: compiled from ``scripted.c``, which describes the script."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from harness.errors import HarnessError

SOURCE = Path(__file__).with_name("scripted.c")


def compiler() -> str | None:
    """Return the C compiler of this machine: $CC, cc, gcc or clang; None if there is none."""
    names = (*filter(None, [os.environ.get("CC")]), "cc", "gcc", "clang")
    return next((path for path in map(shutil.which, names) if path), None)


def build(path: Path, functions: Iterable[str], default: int, script: Path | None = None) -> Path:
    """Compile a library with these functions to ``path``; ``default`` is the status of those without a line.

    ``script``: the script that it reads unless the environment variable STANDIN names another.
    """
    program = compiler()
    if program is None:
        raise HarnessError(f"{path.name} of the emulated machine needs a C compiler: install gcc or clang, or set CC")
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [program, "-shared", "-fPIC", "-O1", "-w", "-D_GNU_SOURCE", f"-DDEFAULT={default}"]
    names = " ".join(f"F({name})" for name in sorted(set(functions)))
    quoted = str(script or os.devnull).replace("\\", "\\\\").replace('"', '\\"')
    new = path.with_name(f".{path.name}.{os.getpid()}")
    command += [f'-DSCRIPT="{quoted}"', f"-DFUNCTIONS={names}", "-o", str(new), str(SOURCE)]
    done = subprocess.run(command, check=False, timeout=120, capture_output=True, text=True)
    if done.returncode != 0:
        raise HarnessError(f"{program} could not compile {path.name}: {done.stderr.strip()[:500]}")
    new.replace(path)
    return path


def handle(index: int) -> int:
    """Return the value of the handle of device ``index``."""
    return 0x1000 + 0x10 * index


class Script:
    """The lines of a script; ``write`` puts them into effect at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        self.write()

    def say(self, name: str, status: int = 0, *words: str) -> None:
        """Add a line before all others, so that the newest counts."""
        self.lines.insert(0, " ".join([name, str(status), *words]))

    def write(self) -> None:
        """Replace the script's file."""
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        new.write_text("".join(f"{line}\n" for line in self.lines))
        new.replace(self.path)

    def logged(self) -> list[str]:
        """Return the names that lines with ``log`` were called by."""
        log = Path(f"{self.path}.log")
        return log.read_text().split() if log.exists() else []


def out(argument: int, data: bytes) -> str:
    """Return the word that writes ``data`` to where an argument points."""
    return f"a{argument}:{data.hex()}"
