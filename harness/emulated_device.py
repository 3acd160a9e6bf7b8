"""The emulated device of a process as its child processes inherit it: an environment variable, and a start-up module.

``harness.emulator.activate(inherit=True)`` sets them. Python imports the start-up module in every child, whether it is
started by ``subprocess``, by ``multiprocessing`` or by pytest-xdist, and ``harness.emulated_machine.device`` activates
the device when the child first uses Triton. Imports nothing that a child might not need.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError

VARIABLE = "IRIS_HARNESS_DEVICE"
"""Arch, mode and seed of the device, separated by spaces: ``gfx942 weak 7``. The last two may be left out."""

STARTUP = Path(__file__).resolve().parent / "emulated_machine" / "startup"
"""The folder of the ``sitecustomize`` of child processes."""


@dataclass(frozen=True)
class Inherited:
    """Arguments of ``activate`` in a child; ``seed`` decides the interleaving in a watched mode."""

    arch: str
    mode: str | None = None
    seed: int | None = None

    @classmethod
    def parse(cls, text: str) -> Inherited:
        """Return the device in the text of VARIABLE. UsageError if it has another form."""
        words = text.split()
        if not 1 <= len(words) <= 3 or (len(words) == 3 and not words[2].isdecimal()):
            raise UsageError(f"{VARIABLE}: expected ARCH [MODE [SEED]], got {text!r:.60}")
        return cls(words[0], words[1] if len(words) > 1 else None, int(words[2]) if len(words) > 2 else None)

    def __str__(self) -> str:
        return " ".join(str(word) for word in (self.arch, self.mode, self.seed) if word is not None)


_before: dict[str, str | None] = {}


def pass_on(device: Inherited) -> None:
    """Let processes that this one starts from now on have ``device``."""
    take_back()
    path = os.environ.get("PYTHONPATH")
    variables = {VARIABLE: str(device), "PYTHONPATH": os.pathsep.join([str(STARTUP), *filter(None, [path])])}
    for name, value in variables.items():
        _before[name] = os.environ.get(name)
        os.environ[name] = value


def take_back() -> None:
    """Undo ``pass_on``: the environment is as it was before. A device that this process inherited stays."""
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _before.clear()
