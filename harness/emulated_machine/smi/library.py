"""The machine's ``libamd_smi.so``, for the amdsmi package that is installed; built on first use and kept."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import locks
from harness.emulated_machine import system
from harness.emulated_machine.facts import Gpu
from harness.emulated_machine.smi.amdsmi_answers import LAYOUT, NOT_SUPPORTED, GpuAnswers, Structures, functions
from harness.emulated_machine.smi.scripted import SOURCE, Script, build
from harness.errors import HarnessError

LIMIT = 120.0
"""Seconds for building the library, or waiting until another process has built it; it takes about one."""


def install(gpus: Sequence[Gpu]) -> Path:
    """Build the library in the machine's ``opt/rocm/lib``, where amdsmi looks for it, if it is not there.

    Called before amdsmi is imported. HarnessError without a C compiler. Returns the path of the library.
    """
    rocm = system.root(gpus) / "opt/rocm"
    package = _package()
    sources = (package / "amdsmi_wrapper.py", SOURCE, Path(__file__), Path(__file__).with_name("amdsmi_answers.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    library, stamp = rocm / "lib/libamd_smi.so", rocm / "lib/libamd_smi.built"
    with locks.held(locks.in_cache(system.cache(), "amdsmi.lock"), LIMIT, "building libamd_smi.so"):
        if not stamp.exists() or stamp.read_text() != digest:
            script = rocm / "lib/libamd_smi.script"
            Script(script)
            build(library, functions(package), NOT_SUPPORTED, script)
            GpuAnswers(script, Structures(_layout(package, rocm))).machine(gpus)
            stamp.write_text(digest)
    return library


def _package() -> Path:
    spec = importlib.util.find_spec("amdsmi")
    if spec is None or spec.origin is None:
        raise HarnessError("the package amdsmi is not installed: python -m pip install amdsmi")
    return Path(spec.origin).parent


def _layout(package: Path, rocm: Path) -> dict[str, object]:
    """Return the package's structures, read in a process that is not on the machine: importing is not installing."""
    environment = {name: value for name, value in os.environ.items() if name != "IRIS_HARNESS_EMULATE"}
    environment |= {"PYTHONPATH": str(package.parent), "ROCM_PATH": str(rocm), "ROCM_HOME": str(rocm)}
    done = subprocess.run(
        [sys.executable, "-c", LAYOUT], env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise HarnessError(f"the structures of amdsmi could not be read: {last}")
    layout: dict[str, object] = json.loads(done.stdout)
    return layout
