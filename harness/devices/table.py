"""Table of all kinds of devices, one line each. To add a kind, add a file next to this one and a line here."""

from __future__ import annotations

from harness.devices.base import Kind
from harness.devices.cuda import Cuda
from harness.devices.emulated import EmulatedKind
from harness.devices.gpu_kind import GpuKind
from harness.devices.rocm import Rocm
from harness.errors import UsageError

KINDS: dict[str, Kind] = {
    EmulatedKind.name: EmulatedKind(),
    Rocm.name: Rocm(),
    Cuda.name: Cuda(),
}


def kind(name: str) -> Kind:
    """Return the kind of that name; UsageError if there is none."""
    if name not in KINDS:
        raise UsageError(f"unknown device {name!r}; choose one of {', '.join(KINDS)}")
    return KINDS[name]


def gpu_kind(name: str) -> GpuKind:
    """Return the kind of GPU of that name; UsageError if there is none."""
    kind_of_gpu = kind(name)
    if not isinstance(kind_of_gpu, GpuKind):
        raise UsageError(f"device {name} has no GPUs; choose one of {', '.join(kind.name for kind in gpu_kinds())}")
    return kind_of_gpu


def gpu_kinds() -> tuple[GpuKind, ...]:
    """Return every kind of GPU, in the order of the table."""
    return tuple(kind for kind in KINDS.values() if isinstance(kind, GpuKind))


def names() -> tuple[str, ...]:
    """Return the names of all kinds, in the order of the table."""
    return tuple(KINDS)


def of_all(field: str) -> tuple[str, ...]:
    """Return the words of a field of all kinds, such as ``archs`` or ``modes``, each once."""
    return tuple(dict.fromkeys(word for kind in KINDS.values() for word in getattr(kind, field)))


def crash_line(text: str) -> str | None:
    """Return the first line of ``text``, a process's output, that a runtime prints when a kernel faulted; else None."""
    return next((line for line in text.split("\n") if line.startswith(of_all("crash_lines"))), None)
