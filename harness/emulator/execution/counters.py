"""Records of a launch's execution, as plain data for evidence."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Access:
    """One global memory instruction of a launch, counted separately for local and peer memory.

    ``width`` is in bytes per lane. ``where`` is ``local`` (this rank's memory) or ``peer`` (another rank's segment).
    ``executions`` counts wavefronts, ``lanes`` active lanes that accessed memory, ``bytes`` is lanes x width.
    ``source`` is the source position with its inline chain, ``line`` the line of the listing. ``polled``: it is in a
    loop that waits for others, and so runs as often as they make it wait.
    """

    mnemonic: str
    kind: str
    width: int
    where: str
    executions: int
    lanes: int
    bytes: int
    source: str
    line: int = 0
    polled: bool = False


@dataclass(frozen=True)
class Stall:
    """Number of times wavefronts waited at an ``s_waitcnt`` because more was outstanding than it allows.

    ``kind`` is the outstanding operation that it waited for, one of ``watch.stalls.KINDS``.
    """

    kind: str
    source: str
    executions: int


@dataclass(frozen=True)
class Inexact:
    """An executed opcode whose result may differ from the hardware's; see ``operations.fidelity``.

    ``grade`` is ``approximate``, by at most ``bound``, or ``modelled``, and ``bound`` states what. ``executions``
    counts wavefronts.
    """

    opcode: str
    grade: str
    bound: str
    source: str
    executions: int


@dataclass(frozen=True)
class LaunchRecord:
    """One launch: ``instructions`` counts wavefront-instructions by class, ``lanes`` active lanes of vector classes.

    ``launches`` is more than 1 in the sum of a kernel's older launches, see ``records``; ``grid`` is then the last one.

    ``tables`` and ``peers`` are positions of arguments of the compiled kernel: tensors through which addresses of other
    ranks' memory are reached, and pointers to such memory. ``tables`` is None if this process has mapped no such
    memory, so that a table of heap bases cannot be distinguished from others.

    ``polled`` is the part of ``instructions`` in loops that wait for others. The rest is the same in every run.

    ``inexact`` has the executed opcodes whose result may differ from the hardware's; all others are exact.

    Counted in mode ``trace`` only: ``lds_conflicts`` (cycles lost to bank conflicts, see ``banks``), ``stalls``, and
    ``sources`` (wavefront-instructions by source position with its inline chain).
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
    launches: int = 1
    tables: tuple[int, ...] | None = None
    peers: tuple[int, ...] = ()
    inexact: list[Inexact] = field(default_factory=list)
    polled: dict[str, int] = field(default_factory=dict)
