"""What a launch executed, as plain data for evidence."""

from __future__ import annotations

from dataclasses import dataclass


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
class LaunchRecord:
    """One launch: ``instructions`` counts wavefront-instructions by class, ``lanes`` the active lanes of the vector
    classes. ``lds_conflicts`` are cycles lost to bank conflicts, counted in mode ``trace`` alone (see ``banks``).
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
