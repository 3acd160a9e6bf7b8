"""A kind of device, and one device of it as a rank uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from harness.telemetry import Recorder
from harness.telemetry.source import Library


class Kind:
    """Description of a kind of device. Plain data and pure functions: importing or reading it starts nothing.

    Each kind has its own file and a line in ``harness.devices.table``. GPUs derive from
    ``harness.devices.gpu_kind.GpuKind``.
    """

    name: str
    """As in ``--device NAME``."""

    archs: tuple[str, ...]
    """As in ``--arch ARCH``; the first is the default."""

    lanes: int
    """Lanes of a wavefront (warp)."""

    vendor: str
    """The vendor whose machine code it runs, for messages."""

    triton_backend: str
    """The backend of Triton that compiles for it."""

    triton_packages: tuple[str, ...] = ()
    """Distributions that contain a Triton built for it, besides ``triton`` itself."""

    packages: tuple[str, ...] = ()
    """Distributions for this kind alone whose versions the evidence records."""

    variables: tuple[str, ...] = ()
    """Environment variables of its runtime and libraries whose values the evidence records. None may hold a secret."""

    variable_prefixes: tuple[str, ...] = ()
    """Prefixes of all environment variables of its runtime and libraries."""

    crash_lines: tuple[str, ...] = ()
    """Prefixes of the lines on stderr with which the runtime ends a process whose kernel faulted."""

    modes: tuple[str, ...] = ()
    """As in ``--emulator-mode MODE``; empty for a kind without modes."""

    profiles: Mapping[str, tuple[str, tuple[str, ...]]] = {}
    """Hardware profiles, for which the suite lists the groups of a complete run: the arch and, of a machine with eight
    GPUs, parts of the names that its driver has for them. Empty if the suite has no lists for this kind."""

    telemetry: Library | None = None
    """The library with which the recorder process reads it; None for a kind that records its own telemetry."""

    is_gpu = False

    shares_memory = False
    """Whether another process can map the memory of a rank, as a judge apart from the library must."""


class Device(Protocol):
    """One kind of device, as a run uses it. Plain data until ``activate``; calling ``missing`` starts nothing.

    ``backend`` is the torch.distributed backend that computes the expected results on it; ``modules`` are imported once
    for all forked ranks; the function of an entry ``module:function`` is also called.
    """

    name: str
    arch: str
    lanes: int
    backend: str
    modules: tuple[str, ...]

    @property
    def kind(self) -> Kind:
        """The description of its kind."""

    def missing(self) -> str | None:
        """Return what this machine lacks to run it, and how to get that; None if it can be used."""

    def select(self, local_rank: int) -> None:
        """Make it the device of this process's tensors, in a process that launches no kernels. Called once."""

    def activate(self, local_rank: int) -> None:
        """Make it the device of this process. Called once per rank process."""

    @property
    def torch_device(self) -> Any:
        """The torch.device of this rank's tensors."""

    def synchronize(self) -> None:
        """Wait until every launch of this process has ended. KernelFault if one faulted and no kernel can run after
        it."""

    def healthy(self) -> bool:
        """Return whether kernels can still run in this process."""

    def recorder(self, drain: Callable[[], Sequence[Any]]) -> Recorder | None:
        """Return the telemetry recorder of this rank, over the launches that ``drain`` returns; None if the device has
        none."""

    def drain_launches(self) -> list[Any]:
        """Return the records of the launches since the last call, oldest first; empty if the device keeps none."""
