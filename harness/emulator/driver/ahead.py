"""All functions of the emulator compiled before anybody needs them, on several cores: ``iris-harness cache compile``.

numba compiles a function on one core, and all processes that need it wait. It keeps the code on disk, so this is work
of once per installation and processor: about three minutes of one core.
"""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

from harness.emulator.native import memory
from harness.emulator.native.execute import Function

_NATIVE = (
    "flights replay race_steps mfma steps checked_share memory interleaved lds atomics checked traced sparse located"
    " weak_steps execute scratch race_order survey banks summaries scalar local flows"
)
MODULES = (
    *(f"harness.emulator.native.{name}" for name in _NATIVE.split()),
    "harness.emulator.watch.check.compiled",
    "harness.emulator.driver.single",
)
"""The modules with functions to compile, the slowest first, so that the processes end at about the same time."""

_ENTRIES = ("runner", "survey")


def compile_all(processes: int, note: Callable[[int], None], begin: Callable[[], None]) -> None:
    """Compile all functions that numba does not have on disk yet, in this number of processes.

    ``note(count)`` is called each time that the functions of another module are compiled; each process first calls
    ``begin()``. Other processes that need one of the functions wait for it, and the other way round, see
    ``memory.compiling_alone``. An exception, such as KeyboardInterrupt, ends the processes at once.
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


def compile_module(name: str) -> None:
    """Compile the functions of one of ``MODULES`` in this process, or load them from numba's cache."""
    for compile_one in compilations(name):
        compile_one()


def compilations(name: str) -> list[Callable[[], object]]:
    """Return a call for each part of a module that numba compiles by itself."""
    module = importlib.import_module(name)
    calls: list[Callable[[], object]] = []
    if signatures := getattr(module, "_SIGNATURES", None):
        calls.append(partial(memory.compile_now, signatures))
    functions = [each for each in vars(module).values() if isinstance(each, Function)]
    calls += [partial(getattr, each, "address") for each in functions if each.python.__module__ == name]
    return calls + [getattr(module, entry) for entry in _ENTRIES if hasattr(module, entry)]
