"""Settings of the emulated machine, and the environment that passes them to a program and its children."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.devices.emulated import parse_mode
from harness.emulated_device import STARTUP
from harness.emulated_machine import system
from harness.emulated_machine.facts import MAX_GPUS, MODELS, Gpu, gpus
from harness.emulated_machine.hip import build, loading
from harness.errors import HarnessError, UsageError

VARIABLE = "IRIS_HARNESS_EMULATE"
"""Arch, mode and number of GPUs, separated by spaces: ``gfx942 weak:7 8``. The last two may be left out."""

VARIABLES = frozenset((VARIABLE, loading.VARIABLE))
"""Variables that a process on the machine needs."""

MODES = ("fast", "check", "race", "weak")
"""Modes that need nothing but a seed. ``trace`` writes a file: ``python -m harness.emulator trace`` has its options."""


@dataclass(frozen=True)
class Settings:
    """Arch, mode and number of GPUs; the mode as the user writes it, ``weak`` or ``weak:7``. UsageError for others."""

    arch: str = "gfx942"
    mode: str = "fast"
    gpus: int = MAX_GPUS

    def __post_init__(self) -> None:
        if self.arch not in MODELS:
            raise UsageError(f"--arch: expected {' or '.join(MODELS)}, got {self.arch!r:.60}")
        if self.mode.partition(":")[0] not in MODES:
            raise UsageError(f"--mode: expected {', '.join(MODES)} or weak:SEED, got {self.mode!r:.60}")
        parse_mode(self.mode)
        if type(self.gpus) is not int or not 1 <= self.gpus <= MAX_GPUS:
            raise UsageError(f"--gpus: expected a number from 1 to {MAX_GPUS}, got {self.gpus!r:.60}")

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Return the settings in the text of VARIABLE."""
        words = text.split()
        if not 1 <= len(words) <= 3:
            raise UsageError(f"{VARIABLE}: expected ARCH [MODE [GPUS]], such as 'gfx942 fast 8', got {text!r:.60}")
        count = words[2] if len(words) == 3 else str(MAX_GPUS)
        try:
            return cls(words[0], words[1] if len(words) > 1 else cls.mode, int(count) if count.isdecimal() else -1)
        except UsageError as error:
            raise UsageError(f"{VARIABLE}={text!r:.60}: {error}") from None

    def __str__(self) -> str:
        return f"{self.arch} {self.mode} {self.gpus}"

    def machine(self) -> tuple[Gpu, ...]:
        """Return all GPUs of the machine, whichever of them the variables of visible devices choose."""
        return gpus(self.arch, self.gpus)

    def variables(self) -> dict[str, str]:
        """Return the variables of a process on the machine, other than the paths; makes the machine's files if they
        do not exist yet."""
        root = system.root(self.machine())
        rocm = root / "opt" / "rocm"
        with contextlib.suppress(HarnessError):  # without the headers of HIP no process can build or open the library
            build.link(rocm / "lib")
        return {
            VARIABLE: str(self),
            loading.VARIABLE: f"{self.arch}:{self.gpus}",
            system.VARIABLE: str(root),
            "ROCM_PATH": str(rocm),
            "ROCM_HOME": str(rocm),
        }

    def environment(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return ``before`` with what makes Python processes run on the emulated machine.

        ``python`` and ``torchrun`` become those of the environment that iris-harness is installed in, and ``rocm-smi``
        and its like those of the machine. Programs in other languages find the machine's ``libamdhip64.so`` in
        ``LD_LIBRARY_PATH``, once ``hip.build.built`` has built it.
        """
        variables = self.variables()
        rocm = Path(variables["ROCM_PATH"])
        scripts = str(Path(sys.executable).parent)
        return {
            **before,
            **variables,
            "PATH": os.pathsep.join([str(rocm / "bin"), scripts, before.get("PATH", os.defpath)]),
            "LD_LIBRARY_PATH": _first(rocm / "lib", before.get("LD_LIBRARY_PATH")),
            "PYTHONPATH": _first(STARTUP, before.get("PYTHONPATH")),
        }


def _first(folder: Path, others: str | None) -> str:
    return os.pathsep.join([str(folder), *filter(None, [others])])


def current() -> Settings | None:
    """Return the settings of the machine that this process runs on, from the environment; None if it runs on none."""
    text = os.environ.get(VARIABLE)
    return None if text is None else Settings.parse(text)
