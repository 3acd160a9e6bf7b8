"""Records of the kernels that a GPU was given, by Triton's own hooks.

    recorder = install()          # once per process, before the first launch
    kernel[grid](...)
    recorder.drain()              # [GpuLaunch(hash=..., kernel="kernel", grid=(4, 1, 1), ...)]
    recorder.recent()             # ["launch 1: kernel[(4, 1, 1)] 3f9c0e1b7a22 on stream 0x0"]

A GPU does not count what it executes: a record says which compiled code was launched, not what it did. Kernels are told
apart by Triton's hash, and their code is read from the files that Triton compiled, when somebody asks.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.errors import HarnessError

RECENT = 16
_LISTINGS = (".amdgcn", ".ptx")
_SECONDS = 10.0
_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class GpuCode:
    """What Triton compiled: its ``files`` by name. Equal hashes are equal code."""

    hash: str
    name: str
    files: Mapping[str, str] = field(repr=False)

    @property
    def listing(self) -> str:
        """amdgcn on ROCm, PTX on CUDA."""
        path = self._path(*_LISTINGS)
        if path is None:
            raise HarnessError(f"Triton kept no {' or '.join(_LISTINGS)} of {self.name}, only {sorted(self.files)}")
        return _text(path)

    @property
    def sass(self) -> str | None:
        """What ptxas made of PTX, disassembled, and what it needs; None where ``without_sass`` says why."""
        path, program = self._path(".cubin"), tool("nvdisasm")
        if path is None or program is None:
            return None
        # With the source line of each instruction, and what that was inlined into.
        return f"{_output(program, '-gi', '-c', '-ndf', path)}\n// {self.usage}\n"

    @property
    def without_sass(self) -> str | None:
        """Why there is no ``sass``; None if there is."""
        if self._path(".cubin") is None:
            return f"Triton kept no cubin of {self.name}: {'amdgcn' if self._path('.amdgcn') else 'what it kept'} runs"
        return None if tool("nvdisasm") else "there is no nvdisasm, neither in Triton's package nor on the PATH"

    @property
    def usage(self) -> str:
        """Registers and memory of the machine code as cuobjdump puts it, ``REG:18 STACK:0 SHARED:0 LOCAL:0 ...``; empty
        where there is no cubin or no cuobjdump. A few milliseconds, once."""
        path, program = self._path(".cubin"), tool("cuobjdump")
        if path is None or program is None:
            return ""
        lines = _output(program, "-res-usage", path).splitlines()
        return next((line.strip() for line in lines if line.strip().startswith("REG:")), "")

    def _path(self, *endings: str) -> str | None:
        return next((path for name, path in self.files.items() if name.endswith(endings)), None)


class GpuLaunch(NamedTuple):
    """One launch. ``grid`` counts work-groups, empty if Triton did not tell; ``stream`` is the driver's handle.

    ``accesses``, ``instructions`` and ``lanes`` are what the emulated device counts; empty here.
    """

    code: GpuCode
    grid: tuple[int, ...]
    stream: int
    number: int

    @property
    def accesses(self) -> tuple[Any, ...]:
        """Empty."""
        return ()

    @property
    def instructions(self) -> Mapping[str, int]:
        """Empty."""
        return _NOTHING

    @property
    def lanes(self) -> Mapping[str, int]:
        """Empty."""
        return _NOTHING

    @property
    def hash(self) -> str:
        """Triton's, of the code."""
        return self.code.hash

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
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
    """The launches of this process since the last ``drain``, the latest ``limit`` of them; safe from any thread.

    What is kept per kernel is the names of its files, for as long as it is loaded.
    """

    def __init__(self, limit: int = 1 << 16) -> None:
        self._loaded: dict[int, GpuCode] = {}
        self._waiting: deque[GpuLaunch] = deque(maxlen=limit)
        self._recent: deque[GpuLaunch] = deque(maxlen=RECENT)
        self._count = 0
        self._lock = threading.Lock()

    def drain(self) -> list[GpuLaunch]:
        """Launches since the last call, oldest first."""
        with self._lock:
            found = list(self._waiting)
            self._waiting.clear()
        return found

    def recent(self) -> list[str]:
        """The last launches as text, oldest first: what was enqueued, finished or not."""
        with self._lock:
            return [str(launch) for launch in self._recent]

    # -- what Triton calls ---------------------------------------------------------------------------------------------

    def loaded(self, module: Any, function: int, name: str, metadata_group: Mapping[str, str], hash_: str) -> None:
        """A kernel was loaded: launches name its handle. Triton 3.6 never unloads; later it gives a handle anew."""
        self._loaded[function] = GpuCode(hash_, name, metadata_group)

    def unloaded(self, module: Any, function: int, name: str, metadata_group: Mapping[str, str], hash_: str) -> None:
        """A kernel is no longer loaded."""
        self._loaded.pop(function, None)

    def entered(self, metadata: Any) -> None:
        """A launch is about to be enqueued. HarnessError if its kernel was loaded before anybody recorded."""
        plain = metadata.get()
        code = self._loaded.get(plain["function"])
        if code is None:
            raise HarnessError(f"kernel {plain['name']} was loaded before launches were recorded")
        grid = plain.get("grid", ())
        with self._lock:
            self._count += 1
            launch = GpuLaunch(code, tuple(grid), plain["stream"], self._count)
            self._waiting.append(launch)
            self._recent.append(launch)


_installed: Launches | None = None


def install() -> Launches:
    """Record from now on; the same recorder on every call. Kernels must not have been loaded before."""
    global _installed
    if _installed is None:
        from triton import knobs

        _installed = Launches()
        knobs.runtime.kernel_load_end_hook.add(_installed.loaded)
        if hasattr(knobs.runtime, "kernel_unload_hook"):
            knobs.runtime.kernel_unload_hook.add(_installed.unloaded)
        knobs.runtime.launch_enter_hook.add(_installed.entered)
        knobs.compilation.listener = _telling_grids(knobs.compilation.listener)
    return _installed


def _telling_grids(before: Callable[..., None] | None) -> Callable[..., None]:
    """A compilation listener after which a kernel's launches tell their grid; ``before`` is called first.

    A launch hook is told what the kernel's ``launch_metadata`` function makes of the grid, so each kernel is given one.
    """

    def listener(*, src: Any, **told: Any) -> None:
        if before is not None:
            before(src=src, **told)
        function = getattr(src, "fn", None)
        if function is not None and not isinstance(function.launch_metadata, _Grid):
            function.launch_metadata = _Grid(function.launch_metadata)

    return listener


class _Grid:
    """A ``launch_metadata`` function that adds the grid to what the kernel's own one says."""

    def __init__(self, own: Callable[..., dict[str, Any]] | None) -> None:
        self._own = own

    def __call__(self, grid: tuple[int, ...], metadata: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        told = {} if self._own is None else self._own(grid, metadata, arguments)
        return {**told, "grid": grid}


@functools.cache
def tool(name: str) -> str | None:
    """A program of NVIDIA's in Triton's package, else on the PATH, else None."""
    import triton

    own = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return str(own) if own.is_file() else shutil.which(name)


@functools.lru_cache(maxsize=256)
def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise HarnessError(f"what Triton compiled cannot be read any more: {error}") from error


@functools.lru_cache(maxsize=256)
def _output(program: str, *arguments: str) -> str:
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"{program} {' '.join(arguments)}: {error}") from error
    if done.returncode != 0:
        raise HarnessError(f"{program} {' '.join(arguments)} ended with status {done.returncode}: {done.stderr[:200]}")
    return done.stdout
