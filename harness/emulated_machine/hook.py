"""Import hook that makes this process the emulated machine, part by part, as the program imports torch, Triton, amdsmi.

``install`` imports none of them. A program that never imports a module pays nothing for the part that belongs to it.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType, TracebackType
from typing import Any

from harness.emulated_machine.settings import Settings, current
from harness.errors import MachineError

Patch = Callable[[Any], None]


def install(settings: Settings) -> None:
    """Make this process the machine: change modules that are imported already now, others after their import."""
    global _installed
    before = {
        "amdsmi.amdsmi_wrapper": _make_smi_library,
        "hip.hip": _load_hip,  # hip-python: its C code searches the library by name
        "rocm.bindings": _load_hip,
    }
    after = {
        "ctypes": _use_hip,
        "torch": _use_torch,
        "triton.runtime.driver": _use_driver,
        "harness.emulator.driver.driver": _use_mode,
    }
    _installed = _Installed(settings, AroundImport(before, after), sys.excepthook)
    sys.meta_path.insert(0, _installed.finder)
    sys.excepthook = _with_hint(sys.excepthook)
    for name in after:
        module = sys.modules.get(name)
        if module is not None:
            _installed.finder.apply(name, module)


def installed() -> Settings | None:
    """Return the settings of ``install``; None before it."""
    return None if _installed is None else _installed.settings


def remove() -> None:
    """Undo ``install``; RuntimeError if torch or HIP is the machine's already."""
    global _installed
    if _installed is None:
        return
    kept = [*_installed.kept, *(["HIP's library"] if _installed.hip_is_loaded() else [])]
    if kept:
        raise RuntimeError(
            f"this process stays the emulated machine '{_installed.settings}': {' and '.join(kept)} cannot"
            " be given back; start another process"
        )
    _installed.undo.close()
    sys.meta_path.remove(_installed.finder)
    sys.excepthook = _installed.excepthook
    _installed = None


class _Installed:
    """State of an installed machine. ``kept``: parts that cannot be undone."""

    def __init__(self, settings: Settings, finder: AroundImport, excepthook: Callable[..., Any]) -> None:
        self.settings = settings
        self.finder = finder
        self.excepthook = excepthook
        self.kept: list[str] = []
        self.hip_is_loaded: Callable[[], bool] = lambda: False
        self.undo = ExitStack()


_installed: _Installed | None = None


def _state() -> _Installed:
    assert _installed is not None  # sanity check: patches run after install only
    return _installed


# -- the parts -------------------------------------------------------------------------------------------------------


def _use_hip(_: ModuleType) -> None:
    from harness.emulated_machine.hip import loading

    settings = _state().settings
    loading.install(settings.arch, settings.gpus)
    _state().undo.callback(loading.remove)
    _state().hip_is_loaded = loading.loaded


def _load_hip() -> None:
    from harness.emulated_machine.hip import library

    library()


def _use_torch(_: ModuleType) -> None:
    from harness.emulated_machine import torch_cuda

    settings = _state().settings
    try:
        torch_cuda.install(settings.arch, settings.gpus)
    except MachineError as error:
        if current() is None:
            raise
        # The program imports torch: it can do nothing about it, and the traceback would show its line.
        sys.stderr.write(f"iris-harness emulate: {error}\n")
        raise SystemExit(2) from None
    _state().kept.append("torch.cuda")


def _use_driver(triton_driver: Any) -> None:
    arch = _state().settings.arch

    def create() -> Any:
        from harness.emulated_machine import driver

        return driver.activate(arch)

    def is_active() -> bool:
        """Return whether the emulated device is Triton's device; called by programs that look for an AMD GPU."""
        from triton.runtime import driver

        from harness import emulator

        return isinstance(driver.active, emulator.EmulatedDriver)

    undo = _state().undo
    undo.callback(setattr, triton_driver, "_create_driver", triton_driver._create_driver)
    triton_driver._create_driver = create
    if "amd" in triton_driver.backends:
        amd = triton_driver.backends["amd"].driver
        undo.callback(setattr, amd, "is_active", staticmethod(amd.is_active))
        amd.is_active = staticmethod(is_active)


def _use_mode(emulated_driver: Any) -> None:
    """Let every ``activate`` without a mode of its own use the machine's mode until the process ends, and print a note
    if it names another arch than the machine's."""
    from harness.devices.emulated import parse_mode
    from harness.emulator.watch import make
    from harness.emulator.watch.race import Race

    watch = make(*parse_mode(_state().settings.mode))
    until_exit = _state().undo
    until_exit.enter_context(emulated_driver.watching(watch))
    if isinstance(watch, Race):
        until_exit.callback(_print_notes, watch)
    activate, machine = emulated_driver.activate, _state().settings.arch

    @functools.wraps(activate)
    def with_note(arch: str = machine, *arguments: Any, **options: Any) -> Any:
        if arch != machine:
            print(
                f"iris-harness emulate: the program activates {arch}: its kernels are compiled for {arch}, and the"
                f" machine's GPUs are {machine}; run it with --arch {arch}",
                file=sys.stderr,
            )
        return activate(arch, *arguments, **options)

    until_exit.callback(setattr, emulated_driver, "activate", activate)
    emulated_driver.activate = with_note
    atexit.register(until_exit.close)


def _make_smi_library() -> None:
    from harness.emulated_machine import smi

    smi.install(_state().settings.machine())


def _print_notes(race: Any) -> None:
    """Print the accesses whose order relies on unspecified behaviour."""
    for message in (*race.unspecified, *race.replicated):
        print(f"note: {message}", file=sys.stderr)


def _with_hint(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return an exception hook that adds one line to the errors of a program that finds no GPU."""

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if not issubclass(kind, (RuntimeError, AssertionError)):  # what torch raises without a GPU
            return
        from harness.devices import no_gpu

        if any(text in str(error) for text in no_gpu.TEXTS):
            print(
                "iris-harness emulate: the emulated machine lacks this call of torch.cuda, see"
                " docs/emulated-machine.md; the emulated device runs kernels on CPU tensors too",
                file=sys.stderr,
            )

    return report


# -- around imports --------------------------------------------------------------------------------------------------


class AroundImport(importlib.abc.MetaPathFinder):
    """Import hook that calls a function before a module is executed, or a patch right after it was, once each."""

    def __init__(self, before: Mapping[str, Callable[[], None]], after: Mapping[str, Patch]) -> None:
        self._before = dict(before)
        self._after = dict(after)

    def apply(self, name: str, module: ModuleType) -> None:
        """Apply the patch of a module that is imported already."""
        self._after.pop(name)(module)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec that the other finders have for a module of ours, its loader changed; else None."""
        if name in self._before:
            self._before.pop(name)()
        if name not in self._after:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            _patch_after(spec.loader, self._after.pop(name))
        return spec


def _patch_after(loader: Any, patch: Patch) -> None:
    execute = loader.exec_module

    def execute_and_patch(module: ModuleType) -> None:
        execute(module)
        patch(module)

    loader.exec_module = execute_and_patch
