"""All functions of the emulator before anybody needs them: compiled on several cores (``iris-harness cache compile``),
or loaded by the process that ranks are forked from.

numba compiles a function on one core, and all processes that need it wait. It keeps the code on disk, so this is work
of once per installation and processor: about three minutes of one core. To load all of it takes most of a second.
"""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness.emulator import compilation
from harness.emulator.native.execute import Function

_NATIVE = (
    "flights replay race_steps race_judge mfma steps checked_share memory interleaved lds atomics checked traced sparse"
    " located weak_steps execute scratch race_order survey banks summaries scalar local flows"
)
MODULES = (
    *(f"harness.emulator.native.{name}" for name in _NATIVE.split()),
    "harness.emulator.watch.check.compiled",
    "harness.emulator.driver.single",
)
"""The modules with functions to compile, the slowest first, so that the processes end at about the same time."""

_ENTRIES = {"runner": "_run", "survey": "_survey"}
"""Functions of modules that return another one, compiled."""


@dataclass(frozen=True)
class Unit:
    """A part that numba compiles at once: its first function, and the call that compiles or loads all of it."""

    first: Any
    prepare: Callable[[], object]


def compile_all(processes: int, note: Callable[[int], None], begin: Callable[[], None]) -> None:
    """Compile all functions that numba does not have on disk yet, in this number of processes.

    ``note(count)`` is called each time that the functions of another module are compiled; each process first calls
    ``begin()``. Other processes that need one of the functions wait for it, and the other way round, see
    ``harness.emulator.compilation``. An exception, such as KeyboardInterrupt, ends the processes at once.
    """
    context = multiprocessing.get_context("spawn")  # the caller may have threads
    with ProcessPoolExecutor(processes, mp_context=context, initializer=begin) as pool:
        try:
            for count, future in enumerate(as_completed([pool.submit(compile_module, name) for name in MODULES]), 1):
                future.result()
                note(count)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.kill()
            raise


def load_compiled() -> None:
    """Load everything that is on disk; the forks of this process have it. What is not, they compile when they need
    it."""
    compilation.prepare_numba()
    for name in MODULES:
        for unit in units(name):
            if compilation.is_compiled(unit.first):
                unit.prepare()


def compile_module(name: str) -> None:
    """Compile the functions of one of ``MODULES`` in this process, or load them from numba's cache."""
    for unit in units(name):
        unit.prepare()


def units(name: str) -> list[Unit]:
    """Return the units of a module."""
    module = importlib.import_module(name)
    parts: list[Unit] = []
    if signatures := getattr(module, "_SIGNATURES", None):
        parts.append(Unit(next(iter(signatures)), partial(compilation.compile_now, signatures)))
    functions = [each for each in vars(module).values() if isinstance(each, Function)]
    parts += [
        Unit(each.python, partial(getattr, each, "address")) for each in functions if each.python.__module__ == name
    ]
    entries = [(entry, function) for entry, function in _ENTRIES.items() if hasattr(module, entry)]
    return parts + [Unit(getattr(module, function), getattr(module, entry)) for entry, function in entries]
