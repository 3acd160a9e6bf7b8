"""What a run's verdicts depend on: versions, processor count, commit and sources of what was tested."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "numpy", "numba", "hypothesis", "pytest", "amdsmi", "nvidia-ml-py", "iris-harness")
_COMPILED = (".pyc", ".pyo", ".so", ".nbi", ".nbc")
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
    folder = folder_of(module)
    if folder is None:
        return None
    tracked = _git(folder, "ls-files", "--error-unmatch", ".")
    commit = _git(folder, "rev-parse", "HEAD") if tracked else None
    if not commit:
        return None
    return commit + ("+changes" if _git(folder, "status", "--porcelain", "--", ".") else "")


def sources_of(module: str) -> str | None:
    """SHA-256 over the names and contents of all files of a package, compiled ones aside; None if there is none.

    It is the same for the same sources wherever they lie, and shows an edit where there is no checkout. The package is
    located, not imported.
    """
    folder = folder_of(module)
    if folder is None:
        return None
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in _COMPILED and "__pycache__" not in path.parts:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            whole.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode("utf-8", "backslashreplace"))
    return whole.hexdigest()


def folder_of(module: str) -> Path | None:
    """The folder that ``module`` would be imported from; None if there is none. The module is not imported."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        return None
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    if not places or not places[0]:
        return None
    place = Path(places[0])
    return place if place.is_dir() else place.parent


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
