"""Functions that numba compiles: once per machine and processor, and loaded from numba's cache on disk afterwards.

A *unit* is what numba compiles at once for us: the functions of a module's ``_SIGNATURES``, or one C function. One of
several processes compiles a unit, under a lock, and the others wait for it. Afterwards a marker is next to numba's own
files, and processes load the unit side by side. It holds what numba makes code anew for: the source, see ``stamps``,
the processor, and the versions of numba and Python. Like numba's files there is one, of the last compilation. A marker
without numba's file, or the other way round, costs time only.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import cfunc, njit, types
from numba.core.registry import cpu_target
from triton import knobs

from harness import locks
from harness.compiling import compiling
from harness.emulator import stamps

LOCK_LIMIT = 240.0
"""Seconds that a process waits for another one's compilation, which takes about 4, and tens of seconds under load."""

_compiled = 0
"""Functions that this process compiled, instead of loading them from numba's cache."""


def compile_now(signatures: Mapping[Any, Any]) -> None:
    """Compile functions of one module, given with their signatures, or load them from numba's cache.

    Takes about 4 s for the memory unit the first time on a machine, 0.05 s afterwards. Reported as compilation time,
    see ``harness.compiling``. Raises HarnessError, which names the other process, if the wait for a process that
    compiles the same takes longer than LOCK_LIMIT.
    """
    if all(function.signatures for function in signatures):
        return
    with _unit(next(iter(signatures))):
        for function, signature in signatures.items():
            function.compile(signature)
            if function.stats.cache_misses:
                _report_progress()
            # Not at the first call: each rank would compile for itself, in the middle of a case with a deadline.
            function.disable_compile()


def compile_pointer(function: Callable[..., int]) -> Any:
    """Return a function of int64 that gives one as a numba ``CFunc``, compiled or loaded as ``compile_now`` does."""
    count = len(inspect.signature(function).parameters)
    with _unit(njit(cache=True)(function)):
        compiled = cfunc(types.int64(*[types.int64] * count), cache=True)(function)
        if not compiled.cache_hits:
            _report_progress()
    return compiled


def entry(function: Callable[..., int]) -> Callable[..., int]:
    """Return a function of int64 that gives one, compiled. A call of it releases Python's lock."""
    called: Callable[..., int] = compile_pointer(function).ctypes
    return called


def is_compiled(function: Any) -> bool:
    """Return whether the unit is on disk that ``function`` is the first of: a dispatcher of numba, or a C function in
    Python."""
    marker, state = _marker(function if hasattr(function, "py_func") else njit(cache=True)(function))
    return _is_of(marker, state)


def prepare_numba() -> None:
    """Have numba register what it can compile, which each process does at its first compilation or load, for 0.2 s.

    The forks of this process find it done.
    """
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


@contextlib.contextmanager
def _unit(first: Any) -> Iterator[None]:
    """Compile or load a unit in the body, alone if it is not on disk. ``first``: numba's dispatcher of its first
    function. Reported as compilation time.

    The lock is in Triton's cache folder: rank groups that start together share that folder, and need the same functions
    at once. It is one of the module, whose units have common parts. Other modules can be compiled meanwhile.
    """
    marker, state = _marker(first)
    with compiling(), contextlib.ExitStack() as stack:
        known = _is_of(marker, state)
        if not known:
            lock = locks.in_cache(Path(knobs.cache.dir), f"{first.py_func.__module__}.lock")
            stack.enter_context(locks.held(lock, LOCK_LIMIT, "numba's compilation of the emulator"))
        yield
        if not known:
            with contextlib.suppress(OSError):  # a cache that others filled, and that this user only reads
                marker.write_text(state)


def _is_of(marker: Path, state: str) -> bool:
    try:
        return marker.read_text() == state
    except FileNotFoundError:
        return False


def _marker(first: Any) -> tuple[Path, str]:
    """Return the marker of a unit, and what it holds if the unit on disk is of the present source."""
    function = first.py_func
    source = stamps.stamp_of(Path(function.__code__.co_filename).resolve())
    parts = (function.__module__, function.__qualname__, source, _processor())
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}.compiled"
    return Path(first.stats.cache_path) / name, hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def _processor() -> tuple[str, ...]:
    """Return what code is made for, besides the source: the processor, and the versions that make it."""
    features = llvm.get_host_cpu_features().flatten()
    return platform.python_version(), numba.__version__, llvm.get_host_cpu_name(), features


def _report_progress() -> None:
    """Write to stderr, once per process, that the first launch on a machine compiles; on a terminal, also how far."""
    global _compiled
    _compiled += 1
    if _compiled == 1:
        print(
            "emulated device: compiling its functions for this processor, once per installation: up to a minute or two",
            file=sys.stderr,
            flush=True,
        )
    elif sys.stderr.isatty():
        print(f"\remulated device: {_compiled} functions compiled ", end="", file=sys.stderr, flush=True)
