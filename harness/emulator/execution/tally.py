"""The counters of a launch as they are collected, and the record that is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from harness.emulator.execution.counters import Access, Inexact, LaunchRecord, Stall
from harness.emulator.operations.fidelity import fidelity
from harness.emulator.program.decode import Program
from harness.emulator.program.polling import polling_loops

_VECTOR_KLASSES = ("valu", "vmem", "atomic", "lds")


def number_of_counters(program: Program) -> int:
    """Return the length of an array of counters."""
    return 2 * len(program.segments) + 3 * len(program.accesses)


def split_counters(program: Program, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the parts of an array of counters: wavefronts and lanes int64[segments], executions int64[sites], and
    accessing lanes int64[sites, 2]."""
    segments, sites = len(program.segments), len(program.accesses)
    at = 2 * segments + sites
    return counts[:segments], counts[segments : 2 * segments], counts[2 * segments : at], counts[at:].reshape(-1, 2)


class Facts(NamedTuple):
    """The facts of a launch besides its counters: one object for all launches that have them in common.

    Thousands of records are kept. Python's garbage collector does not visit arrays, so the counters are one.
    """

    program: Program
    hash: str
    listing: str
    grid: tuple[int, int, int]
    waves_per_group: int
    tables: tuple[int, ...] | None
    peers: tuple[int, ...]
    lds_conflicts: int = 0
    stalls: Mapping[tuple[str, str], int] = {}
    sources: Mapping[str, int] = {}

    def record(self, counts: np.ndarray, executions: np.ndarray | None = None) -> LaunchRecord:
        """Return counters as data. ``counts``: see ``split_counters``.

        ``executions`` int64[sites, 2]: those of the access sites by local and peer memory, by default both those in
        ``counts``.
        """
        waves_of, lanes_of, executed, accessed = split_counters(self.program, counts)
        if executions is None:
            executions = np.repeat(executed[:, None], 2, axis=1)
        instructions: dict[str, int] = {}
        lanes: dict[str, int] = {}
        waiting: dict[str, int] = {}
        inexact: dict[str, int] = {}
        loops = polling_loops(self.program)
        reached = np.flatnonzero(waves_of)  # of thousands, where a launch ends early
        counted = zip(reached.tolist(), waves_of[reached].tolist(), lanes_of[reached].tolist(), strict=True)
        for index, waves, active in counted:
            segment = self.program.segments[index]
            for klass, count in segment.counts.items():
                instructions[klass] = instructions.get(klass, 0) + count * waves
                if segment.index in loops.segments:
                    waiting[klass] = waiting.get(klass, 0) + count * waves
                if klass in _VECTOR_KLASSES:
                    lanes[klass] = lanes.get(klass, 0) + count * active
            for opcode, count in segment.inexact.items():
                inexact[opcode] = inexact.get(opcode, 0) + count * waves
        accesses = []
        used = np.flatnonzero(accessed.any(axis=1))
        for index, times, lanes_by in zip(
            used.tolist(), executions[used].tolist(), accessed[used].tolist(), strict=True
        ):
            site = self.program.accesses[index]
            for where, wavefronts, n in zip(("local", "peer"), times, lanes_by, strict=True):
                if n:
                    accesses.append(
                        Access(
                            site.instruction.mnemonic,
                            site.kind,
                            site.width,
                            where,
                            wavefronts,
                            n,
                            n * site.width,
                            site.instruction.source,
                            site.instruction.line,
                            site.instruction.index in loops.instructions,
                        )
                    )
        return LaunchRecord(
            self.program.name,
            self.hash,
            self.listing,
            self.grid,
            self.waves_per_group,
            instructions,
            lanes,
            accesses,
            self.lds_conflicts,
            [Stall(*key, count) for key, count in sorted(self.stalls.items())],
            dict(self.sources),
            tables=self.tables,
            peers=self.peers,
            inexact=[_inexact(opcode, self.program.listing.arch, count) for opcode, count in sorted(inexact.items())],
            polled=waiting,
        )


def _inexact(opcode: str, arch: str, executions: int) -> Inexact:
    known = fidelity(opcode, arch)
    return Inexact(opcode, known.grade, known.bound, known.source, executions)
