"""What a launch executed, as plain data for evidence."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Access:
    """One global memory instruction of a launch, by the memory that its lanes reached.

    ``width`` bytes a lane; ``where`` ``local`` (this rank's memory) or ``peer`` (another rank's segment);
    ``executions`` in wavefronts, ``lanes`` active lanes that accessed memory, ``bytes`` = lanes x width; ``source`` the
    position with its inline chain.
    """

    mnemonic: str
    kind: str
    width: int
    where: str
    executions: int
    lanes: int
    bytes: int
    source: str


@dataclass(frozen=True)
class Stall:
    """Executions by wavefronts of an s_waitcnt that found more outstanding than it allows. ``kind``: what it waited
    for, one of ``watch.stalls.KINDS``.
    """

    kind: str
    source: str
    executions: int


@dataclass(frozen=True)
class LaunchRecord:
    """One launch: ``instructions`` counts wavefront-instructions by class, ``lanes`` the active lanes of the vector
    classes. Counted in mode ``trace`` alone: ``lds_conflicts``, cycles lost to bank conflicts (see ``banks``),
    ``stalls``, and ``sources``, wavefront-instructions by source position with its inline chain.
    """

    kernel: str
    hash: str
    listing: str
    grid: tuple[int, int, int]
    num_warps: int
    instructions: dict[str, int]
    lanes: dict[str, int]
    accesses: list[Access]
    lds_conflicts: int = 0
    stalls: list[Stall] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
