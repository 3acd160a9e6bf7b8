"""Environment of a run: versions, processor count, commit and sources of the tested package."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import devices

PACKAGES = ("torch", "triton", "numpy", "numba", "hypothesis", "pytest", "iris-harness")
"""Packages whose versions every run records; each kind of device adds its own."""
_COMPILED = (".pyc", ".pyo", ".so", ".nbi", ".nbc")

_digests: dict[tuple[int, ...], str] = {}
"""Digest of each file's content, by what every change of the file changes. Each evidence that is read needs them."""

_SETTLED = 2.0
"""Seconds after a change until any later change is sure to have another time. Until then no digest is kept."""


def capture_environment() -> dict[str, Any]:
    """Return Python, packages (None if not installed), system, processors. Names no machine, user or folder."""
    return {
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "packages": {name: installed_version(name) for name in (*PACKAGES, *devices.of_all("packages"))},
    }


def installed_version(package: str) -> str | None:
    """Return the version of an installed distribution, without importing it; None if it is not installed.

    Triton may also be installed under the names of PyTorch's own builds of it.
    """
    for name in (package, *(devices.of_all("triton_packages") if package == "triton" else ())):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def commit_of(module: str) -> str | None:
    """Return the git commit of the checkout that ``module`` is imported from, with "+changes" if its folder was edited.

    None if the module is not in a checkout, or git is not installed. The module is located, not imported.
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
    """Return the digest of a package's files, see ``digest_of``; None without one. It is not imported."""
    folder = folder_of(module)
    return None if folder is None else digest_of(folder)


def digest_of(folder: Path) -> str:
    """Return the SHA-256 over names and contents of a package's files, without compiled ones.

    It does not depend on the place of the folder, and shows an edit also outside a checkout.
    """
    whole = hashlib.sha256()
    for parts, path in sorted(_files(folder)):
        content = _content(path)
        if content is not None:
            whole.update(f"{'/'.join(parts)} {content}\n".encode("utf-8", "backslashreplace"))
    return whole.hexdigest()


def _files(folder: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the parts of each file's name in the folder, and its path; compiled files are left out."""
    if "__pycache__" in folder.parts:
        return
    for place, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if name != "__pycache__"]
        parts = Path(place).relative_to(folder).parts
        for name in names:
            if os.path.splitext(name)[1] not in _COMPILED:
                yield (*parts, name), os.path.join(place, name)


def _content(path: str) -> str | None:
    """Return the SHA-256 of a file's content; None if it is not a regular file. An unchanged file is not read again."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if state not in _digests:
        now = time.time()
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        if now - status.st_ctime <= _SETTLED:
            return digest
        _digests[state] = digest
    return _digests[state]


def folder_of(module: str) -> Path | None:
    """Return the folder that ``module`` would be imported from; None if there is none. The module is not imported."""
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
