"""Emulated GPUs in a CPU build of torch: ``torch.cuda`` as a ROCm build with MI300X GPUs shows it.

``install`` is called once in a process, after torch was imported. Cuda tensors are ordinary tensors with the dispatch
key CUDA, in memory of the emulated HIP runtime; their operators run as CPU kernels on that memory. ``support`` lists
what is exact, approximate and refused.
"""

from __future__ import annotations

from typing import Any

_installed: tuple[str, int] | None = None
_native: Any = None


def install(arch: str, gpus: int) -> None:
    """Make torch show ``gpus`` GPUs of ``arch``; ``ValueError`` for another machine than the one that is there."""
    global _installed, _native
    if _installed is not None:
        if _installed != (arch, gpus):
            raise ValueError(f"this process is a machine with {_installed} already; it cannot become {(arch, gpus)}")
        return
    from . import bindings, build

    _native = build.load()
    bindings.install(_native, arch, gpus)
    _installed = arch, gpus


def is_capturing() -> bool:
    """Return whether a graph is being captured: a driver passes its launch to ``record`` then, and does not run it."""
    return _native is not None and bool(_native.is_capturing())


def block_at(address: int) -> tuple[int, int] | None:
    """Return address and size of torch's allocation that holds ``address``; None if there is none."""
    start, size = (0, 0) if _native is None else _native.block_at(address)
    return (start, size) if size else None


def check_memory(tensor: Any) -> None:
    """Raise RuntimeError if ``tensor`` is a cuda tensor over memory that the machine does not have."""
    if _native is not None:
        _native.check_memory(tensor)


def segments_of_torch() -> list[tuple[int, int]]:
    """Return address and size of each segment that torch's allocations lie in."""
    return [] if _native is None else list(_native.segments())


def record(launch: Any) -> None:
    """Add ``launch()`` to the graph that is being captured."""
    _native.record(launch)
