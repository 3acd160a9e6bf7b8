"""Records of kernel launches on GPUs, made by Triton's hooks.

    recorder = install()          # once per process, before the first launch
    kernel[grid](...)
    recorder.drain()              # [GpuLaunch(hash=..., kernel="kernel", grid=(4, 1, 1), ...)]
    recorder.recent()             # ["launch 1: kernel[(4, 1, 1)] 3f9c0e1b7a22 on stream 0x0"]

A GPU does not count what it executes: a record names the compiled code that was launched, not what it did. Triton's
hash identifies a kernel; its code is read from the files that Triton compiled, on first use.
"""

from __future__ import annotations

import functools
import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.devices.gpu_kind import GpuKind
from harness.devices.table import gpu_kinds
from harness.errors import HarnessError

RECENT = 16
_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class GpuCode:
    """Compiled code of one kernel: Triton's ``files``, path by name. Equal hashes mean equal code."""

    hash: str
    name: str
    files: Mapping[str, str] = field(repr=False)

    @property
    def listing(self) -> str:
        """The assembly listing of Triton's backend: amdgcn on AMD GPUs, PTX on NVIDIA's."""
        endings = tuple(kind.listing for kind in gpu_kinds())
        path = next((path for name, path in self.files.items() if name.endswith(endings)), None)
        if path is None:
            raise HarnessError(f"Triton kept no {' or '.join(endings)} of {self.name}, only {sorted(self.files)}")
        return _text(path)

    @property
    def sass(self) -> str | None:
        """The disassembled machine code; None if there is none, for the reason in ``without_sass``."""
        kind = self._kind
        return None if kind is None else kind.disassembly(self.files)

    @property
    def without_sass(self) -> str | None:
        """The reason why there is no ``sass``; None if there is."""
        kind = self._kind
        return f"Triton kept only {sorted(self.files)}" if kind is None else kind.without_disassembly(self.files)

    @property
    def usage(self) -> str:
        """Registers and memory of the machine code, if the listing does not hold them; else empty."""
        kind = self._kind
        return "" if kind is None else kind.usage(self.files)

    @property
    def shared(self) -> int | None:
        """The bytes of shared memory that Triton allocates at a launch; None if it kept no metadata."""
        path = next((path for name, path in self.files.items() if name.endswith(".json")), None)
        return None if path is None else int(json.loads(_text(path))["shared"])

    @property
    def _kind(self) -> GpuKind | None:
        """The kind of GPU that these files are for."""
        endings = {Path(name).suffix for name in self.files}
        return next((kind for kind in gpu_kinds() if endings & {kind.listing, kind.binary}), None)


class GpuLaunch(NamedTuple):
    """One launch. ``grid``: number of work-groups per axis, empty if Triton did not report it; ``stream``: the driver's
    handle. ``number``: 1 for the first launch of the process.

    ``accesses``, ``instructions`` and ``lanes`` are counts of the emulated device; empty here.
    """

    code: GpuCode
    grid: tuple[int, ...]
    stream: int
    number: int

    @property
    def launches(self) -> int:
        """1: each launch has a record of its own."""
        return 1

    @property
    def accesses(self) -> tuple[Any, ...]:
        """Empty: a GPU does not count them."""
        return ()

    @property
    def instructions(self) -> Mapping[str, int]:
        """Empty: a GPU does not count them."""
        return _NOTHING

    @property
    def lanes(self) -> Mapping[str, int]:
        """Empty: a GPU does not count them."""
        return _NOTHING

    @property
    def hash(self) -> str:
        """Triton's hash of the code."""
        return self.code.hash

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.code.name

    @property
    def listing(self) -> str:
        """``code.listing``."""
        return self.code.listing

    @property
    def sass(self) -> str | None:
        """``code.sass``."""
        return self.code.sass

    @property
    def usage(self) -> str:
        """``code.usage``."""
        return self.code.usage

    def __str__(self) -> str:
        grid = f"[{self.grid}]" if self.grid else ""
        return f"launch {self.number}: {self.kernel}{grid} {self.hash[:12]} on stream {self.stream:#x}"


class Launches:
    """The launches of this process since the last ``drain``, at most the latest ``limit``. Thread-safe.

    For each loaded kernel it keeps only the names of its files.
    """

    def __init__(self, limit: int = 1 << 16) -> None:
        self._loaded: dict[int, GpuCode] = {}
        self._waiting: deque[GpuLaunch] = deque(maxlen=limit)
        self._recent: deque[GpuLaunch] = deque(maxlen=RECENT)
        self._count = 0
        self._lock = threading.Lock()

    def drain(self) -> list[GpuLaunch]:
        """Return the launches since the last call, oldest first."""
        with self._lock:
            launches = list(self._waiting)
            self._waiting.clear()
        return launches

    def recent(self) -> list[str]:
        """Return the last launches as text, oldest first, whether finished or not."""
        with self._lock:
            return [str(launch) for launch in self._recent]

    # -- hooks that Triton calls ---------------------------------------------------------------------------------------

    def loaded(self, module: Any, function: int, name: str, metadata_group: Mapping[str, str], hash_: str) -> None:
        """Record a kernel that was loaded, by the handle that launches name. Triton 3.6 never unloads kernels; later
        versions do, and reuse handles."""
        self._loaded[function] = GpuCode(hash_, name, metadata_group)

    def unloaded(self, module: Any, function: int, name: str, metadata_group: Mapping[str, str], hash_: str) -> None:
        """Forget a kernel that was unloaded."""
        self._loaded.pop(function, None)

    def entered(self, metadata: Any) -> None:
        """Record a launch that is about to be enqueued. HarnessError if its kernel was loaded before ``install``."""
        plain = metadata.get()
        code = self._loaded.get(plain["function"])
        if code is None:
            raise HarnessError(f"kernel {plain['name']} was loaded before launches were recorded: call install() first")
        grid = plain.get("grid", ())
        with self._lock:
            self._count += 1
            launch = GpuLaunch(code, tuple(grid), plain["stream"], self._count)
            self._waiting.append(launch)
            self._recent.append(launch)


_installed: Launches | None = None


def install() -> Launches:
    """Record launches from now on; returns the same recorder on every call. No kernel may be loaded before."""
    global _installed
    if _installed is None:
        from triton import knobs

        _installed = Launches()
        knobs.runtime.kernel_load_end_hook.add(_installed.loaded)
        if hasattr(knobs.runtime, "kernel_unload_hook"):
            knobs.runtime.kernel_unload_hook.add(_installed.unloaded)
        knobs.runtime.launch_enter_hook.add(_installed.entered)
        knobs.compilation.listener = _recording_grids(knobs.compilation.listener)
    return _installed


def _recording_grids(before: Callable[..., None] | None) -> Callable[..., None]:
    """Return a compilation listener that makes a kernel's launches report their grid; it calls ``before`` first.

    A launch hook receives the result of the kernel's ``launch_metadata`` function, so the listener gives each kernel
    one that adds the grid.
    """

    def listener(*, src: Any, **event: Any) -> None:
        if before is not None:
            before(src=src, **event)
        function = getattr(src, "fn", None)
        if function is not None and not isinstance(function.launch_metadata, _Grid):
            function.launch_metadata = _Grid(function.launch_metadata)

    return listener


class _Grid:
    """A ``launch_metadata`` function that adds the grid to the result of the kernel's own."""

    def __init__(self, own: Callable[..., dict[str, Any]] | None) -> None:
        self._own = own

    def __call__(self, grid: tuple[int, ...], metadata: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        own_metadata = {} if self._own is None else self._own(grid, metadata, arguments)
        return {**own_metadata, "grid": grid}


@functools.lru_cache(maxsize=256)
def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise HarnessError(f"a file of a compiled kernel cannot be read any more: {error}") from error
