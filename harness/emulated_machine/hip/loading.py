"""The stand-in ``libamdhip64.so`` in this process: ``ctypes``, ``dlopen`` and child processes find it by its name."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import re
from pathlib import Path
from typing import Any

from harness.emulated_machine.hip import build

VARIABLE = "IRIS_HARNESS_HIP"
"""Arch and number of GPUs, ``gfx942:8``: what the library reads, in programs that are not Python too."""

_NAMES = re.compile(r"libamdhip64\.so(\.\d+)*$|libhipblaslt\.so$")
_unpatched: tuple[Any, Any] | None = None


def install(arch: str, gpus: int) -> None:
    """Make the library of the emulated machine this process's and its children's ``libamdhip64.so``.

    It is built and loaded at first use. Idempotent; a process keeps it until it ends.
    """
    global _unpatched
    os.environ[VARIABLE] = f"{arch}:{gpus}"
    if _unpatched is None:
        changed: Any = ctypes
        _unpatched = changed._dlopen, ctypes.util.find_library
        changed._dlopen = _open
        ctypes.util.find_library = _find


@functools.cache
def library() -> ctypes.CDLL:
    """Return the library, loaded for the whole process under each of its names; HarnessError if it cannot be built.

    After ``dlopen`` of this process's C code finds ``libamdhip64.so.6`` loaded, it searches no further.
    """
    folder = build.built()
    opened = ctypes.CDLL(str(folder / build.NAME), ctypes.RTLD_GLOBAL)
    for alias in build.ALIASES:
        ctypes.CDLL(str(folder / alias), ctypes.RTLD_GLOBAL)
    return opened


def loaded() -> bool:
    """Return whether this process has the library, which it keeps until it ends."""
    return library.cache_info().currsize > 0


def remove() -> None:
    """Undo ``install``; only before the library is loaded."""
    global _unpatched
    if _unpatched is not None:
        changed: Any = ctypes
        changed._dlopen, ctypes.util.find_library = _unpatched
        _unpatched = None
        os.environ.pop(VARIABLE, None)


def _open(name: Any, *arguments: Any) -> Any:
    assert _unpatched is not None  # sanity check: the only caller is a patched module
    if isinstance(name, (str, bytes, os.PathLike)):
        text = os.fsdecode(name)
        if _NAMES.fullmatch(os.path.basename(text)) and Path(text).parent != build.folder():
            library()
            name = str(build.folder() / build.NAME)
    return _unpatched[0](name, *arguments)


def _find(name: str) -> str | None:
    assert _unpatched is not None  # sanity check: the only caller is a patched module
    if name == "amdhip64":
        return f"{build.NAME}.{build.VERSION[0]}"
    return str(path) if (path := _unpatched[1](name)) else None
