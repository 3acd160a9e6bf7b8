"""The counters of a launch as they were collected, and what is made of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.emulator.execution.counters import Access, Inexact, LaunchRecord, Stall
from harness.emulator.operations.fidelity import fidelity
from harness.emulator.program.decode import Program
from harness.emulator.program.polling import polling_loops

_VECTOR_KLASSES = ("valu", "vmem", "atomic", "lds")


def number_of_counters(program: Program) -> int:
    return 2 * len(program.segments) + 3 * len(program.accesses)


def split_counters(program: Program, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the parts of an array of counters: wavefronts and lanes int64[segments], executions int64[sites], and
    accessing lanes int64[sites, 2]."""
    segments, sites = len(program.segments), len(program.accesses)
    waves, lanes, executions, access_lanes = np.split(counts, [segments, 2 * segments, 2 * segments + sites])
    return waves, lanes, executions, access_lanes.reshape(-1, 2)


class Tally(NamedTuple):
    """The counters of a launch as they were collected; ``record`` makes data for people of them.

    ``counts``: see ``split_counters``.
    """

    program: Program
    grid: tuple[int, int, int]
    waves_per_group: int
    counts: np.ndarray
    lds_conflicts: int
    stalls: dict[tuple[str, str], int]
    sources: dict[str, int]
    tables: tuple[int, ...] | None
    peers: tuple[int, ...]

    def record(self, kernel_hash: str, listing: str) -> LaunchRecord:
        """Return the launch's counters as data."""
        counted_waves, counted_lanes, executed, accessed = (
            part.tolist() for part in split_counters(self.program, self.counts)
        )
        instructions: dict[str, int] = {}
        lanes: dict[str, int] = {}
        waiting: dict[str, int] = {}
        loops = polling_loops(self.program)
        for segment, waves, active in zip(self.program.segments, counted_waves, counted_lanes, strict=True):
            for klass, count in segment.counts.items():
                if waves:
                    instructions[klass] = instructions.get(klass, 0) + count * waves
                    if segment.index in loops.segments:
                        waiting[klass] = waiting.get(klass, 0) + count * waves
                    if klass in _VECTOR_KLASSES:
                        lanes[klass] = lanes.get(klass, 0) + count * active
        inexact: dict[str, int] = {}
        for segment, waves in zip(self.program.segments, counted_waves, strict=True):
            for opcode, count in segment.inexact.items():
                if waves:
                    inexact[opcode] = inexact.get(opcode, 0) + count * waves
        accesses = []
        for site, executions, counts in zip(self.program.accesses, executed, accessed, strict=True):
            for where, n in zip(("local", "peer"), counts, strict=True):
                if n:
                    accesses.append(
                        Access(
                            site.instruction.mnemonic,
                            site.kind,
                            site.width,
                            where,
                            executions,
                            n,
                            n * site.width,
                            site.instruction.source,
                            site.instruction.line,
                            site.instruction.index in loops.instructions,
                        )
                    )
        return LaunchRecord(
            self.program.name,
            kernel_hash,
            listing,
            self.grid,
            self.waves_per_group,
            instructions,
            lanes,
            accesses,
            self.lds_conflicts,
            [Stall(*key, count) for key, count in sorted(self.stalls.items())],
            self.sources,
            tables=self.tables,
            peers=self.peers,
            inexact=[_inexact(opcode, self.program.listing.arch, count) for opcode, count in sorted(inexact.items())],
            polled=waiting,
        )


def _inexact(opcode: str, arch: str, executions: int) -> Inexact:
    known = fidelity(opcode, arch)
    return Inexact(opcode, known.grade, known.bound, known.source, executions)
