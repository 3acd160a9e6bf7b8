"""A stand-in ``libamd_smi.so`` with GPUs like an MI300X's, for the real amdsmi package of several ROCm versions.

Which functions the library must have and how its structures are laid out is read from the package itself.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness.emulated_machine.smi.amdsmi_answers import LAYOUT, NOT_SUPPORTED, GpuAnswers, Structures, functions
from harness.emulated_machine.smi.scripted import Script, build
from tests.telemetry.standin import run_python

INSTALLED = "installed"
FURTHER = ("6.0.2", "6.2.4", "6.4.4")
"""Versions that are fetched once, where there is a package index; the installed one is always exercised."""


class Package(Structures):
    """One version of amdsmi: where it is imported from, a stand-in library for it, and its structures."""

    def __init__(self, version: str, folder: Path, place: Path) -> None:
        self.version = version
        self.place = place
        self.library = build(folder / "lib" / "libamd_smi.so", functions(place / "amdsmi"), NOT_SUPPORTED)
        script = Script(folder / "layout")
        super().__init__(json.loads(self.run(LAYOUT, script.path)))

    def run(self, code: str, script: Path, **environment: str) -> str:
        variables = {**self.variables(script), **environment}
        return run_python(code, script=script, library=self.library, path=[self.place], **variables)

    def variables(self, script: Path) -> dict[str, str]:
        return {"STANDIN": str(script), "ROCM_PATH": str(self.library.parents[1]), "ROCM_HOME": ""}


def package(version: str, folder: Path, cache: Path) -> Package:
    """The package, fetched into ``cache`` if it is not the installed one; skips the test if it cannot be fetched."""
    if version == INSTALLED:
        done = subprocess.run(
            [sys.executable, "-c", "import importlib.util as u; print(u.find_spec('amdsmi').origin)"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip("needs the package amdsmi")
        return Package(version, folder, Path(done.stdout.strip()).parents[1])
    wheels = cache / version
    if not list(wheels.glob("*.whl")) and (reason := _fetch(version, wheels)):
        pytest.skip(f"needs a package index for amdsmi {version}: {reason}")
    place = folder / "package"
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        wheel.extractall(place)
    return Package(version, folder, place)


@functools.cache
def _fetch(version: str, wheels: Path) -> str:
    """The reason why the wheel could not be fetched; empty if it was."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "0", "--timeout", "5"]
    try:
        done = subprocess.run(
            [*pip, "--dest", str(wheels), f"amdsmi=={version}"], capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return "pip took too long"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["pip failed"])[-1]


def hip_uuid(index: int) -> str:
    return f"GPU-{0xABCDEF0000000000 + index:016x}"


def bus_id(index: int) -> str:
    return f"0000:{0x20 + index:02x}:00.0"


class Amd(GpuAnswers):
    """``count`` GPUs at 500 W; amdsmi lists them in the reverse of HIP's order."""

    def __init__(self, path: Path, package: Package, count: int = 2) -> None:
        super().__init__(path, package)
        self.handles(*reversed(range(count)))
        for index in range(count):
            self.gpu(index)
        self.write()

    def gpu(self, index: int, bus: int | None = None, function: int = 0, uuid: str = "") -> None:
        super().gpu(index, 0x20 + index if bus is None else bus, function, uuid or hip_uuid(index))
