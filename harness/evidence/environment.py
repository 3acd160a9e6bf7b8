"""What a run's verdicts depend on: versions, processor count, and the commit of what was tested."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "numpy", "numba", "hypothesis", "pytest", "amdsmi", "nvidia-ml-py", "iris-harness")
_ALSO_KNOWN_AS = {"triton": ("pytorch-triton", "triton-rocm", "pytorch-triton-rocm")}


def capture_environment() -> dict[str, Any]:
    """Python, packages (None where not installed), system, processors. Names no machine, user or folder."""
    return {
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "packages": {name: installed_version(name) for name in PACKAGES},
    }


def installed_version(package: str) -> str | None:
    """The version of an installed distribution, found without importing it; None if there is none.

    Triton is looked for under the names that PyTorch's own builds of it have, too.
    """
    for name in (package, *_ALSO_KNOWN_AS.get(package, ())):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def commit_of(module: str) -> str | None:
    """The git commit of the checkout that ``module`` is imported from, with "+changes" if that folder was edited.

    None when the module is not in a checkout, or git is not there. The module is located, not imported.
    """
    spec = importlib.util.find_spec(module)
    places = [spec.origin] if spec and spec.origin else list(spec.submodule_search_locations or []) if spec else []
    if not places or not places[0]:
        return None
    place = Path(places[0])
    folder = place if place.is_dir() else place.parent
    tracked = _git(folder, "ls-files", "--error-unmatch", ".")
    commit = _git(folder, "rev-parse", "HEAD") if tracked else None
    if not commit:
        return None
    return commit + ("+changes" if _git(folder, "status", "--porcelain", "--", ".") else "")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
