"""Plan of a program for ``native.replay``: its blocks, their events, and the states of outstanding operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.emulator.listing.instructions import Instruction
from harness.emulator.native import replay_state as at
from harness.emulator.operations.access import ATOMIC, LOAD, STORE, GlobalAccess
from harness.emulator.program import decode as p
from harness.emulator.watch import heat
from harness.emulator.watch.stalls import KINDS, States
from harness.emulator.watch.trace import Note, Notes

_HEAT = {LOAD: heat.READ, STORE: heat.WRITTEN, ATOMIC: heat.ATOMIC}
# Kinds of operations that begin. That of an access to a peer follows that of the same access to local memory.
_OPERATIONS = (
    "load", "peer load", "store", "peer store", "atomic", "peer atomic", "write-back", "invalidate", "lds", "scalar",
)  # fmt: skip
_UNKNOWN = -1


class Transitions:
    """Tables of the states of outstanding operations, which are filled when a state is reached for the first time.

    ``following`` int32[states, kinds]: the state after an operation begins, or after a wait; ``waited`` int32[states,
    kinds]: the index in ``KINDS`` of the operation that a wait waits for, or -1. The kinds are ``_OPERATIONS``, then
    ``waits``.
    """

    def __init__(self, waits: list[tuple[int, int]]) -> None:
        self._waits = waits
        self._states = States()
        self.width = len(_OPERATIONS) + len(waits)
        self._use(*(np.full((16, self.width), _UNKNOWN, np.int32) for _ in range(2)))

    def _use(self, following: np.ndarray, waited: np.ndarray) -> None:
        self.following, self.waited = following, waited
        self.addresses = int(following.ctypes.data), int(waited.ctypes.data)
        """Of the tables."""

    def fill(self, place: int) -> None:
        """Fill the tables at a place, state * ``width`` + kind."""
        state, kind = divmod(place, self.width)
        waited = None
        if kind < len(_OPERATIONS):
            following = self._states.issue(state, _OPERATIONS[kind])
        else:
            following, waited = self._states.wait(state, *self._waits[kind - len(_OPERATIONS)])
        if len(self._states) > len(self.following):
            self._use(*(np.vstack([table, np.full_like(table, _UNKNOWN)]) for table in (self.following, self.waited)))
        self.following[state, kind] = following
        self.waited[state, kind] = _UNKNOWN if waited is None else KINDS.index(waited)


@dataclass
class Plan:
    """``blocks``, ``events``: tables of ``native.replay``; ``kinds`` uint8[operations]: 1 for events.

    ``sites``: the instructions that access global memory, ``waits``: the sources of those that wait, by
    their numbers in the events.
    """

    blocks: np.ndarray
    events: np.ndarray
    kinds: np.ndarray
    transitions: Transitions
    sites: list[tuple[str, Instruction]] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)


def plan(program: p.Program, notes: Notes, operations: Mapping[int, int], count: int, ordered: bool) -> Plan:
    """Return the plan of a program.

    ``operations``: the place of each instruction before which an operation appends an event, of ``count`` operations.
    ``ordered``: whether the order of accesses of different wavefronts matters in a launch by itself.
    """
    waits = sorted({note.wait for note in notes.of.values() if note.wait is not None})
    kinds = np.zeros(count, np.uint8)
    made = Plan(np.zeros(0), np.zeros(0), kinds, Transitions(waits))
    blocks: list[tuple[int, ...]] = []
    events: list[tuple[int, ...]] = []
    for block in program.blocks:
        ticks = sum(sum(segment.counts.values()) for segment in block.segments)
        first = len(events)
        for offset, instruction in enumerate(program.listing.instructions[block.first : block.first + ticks]):
            if (note := notes.of.get(instruction.index)) is not None:
                executed = operations.get(instruction.index)
                events.append(_event(made, note, instruction, offset, executed, ordered, waits))
        end = block.terminator.index if block.terminator is not None else 0
        blocks.append((first, len(events) - first, ticks, block.end, block.target, block.polls, end))
    made.blocks = np.array(blocks, np.int64).reshape(-1, at.BLOCK_FIELDS)
    made.events = np.array(events, np.int64).reshape(-1, at.EVENT_FIELDS)
    return made


def _event(
    made: Plan,
    note: Note,
    instruction: Instruction,
    offset: int,
    executed: int | None,
    ordered: bool,
    waits: list[tuple[int, int]],
) -> tuple[int, ...]:
    access = note.access
    if note.wait is not None:
        made.waits.append(instruction.source)
        begins = len(_OPERATIONS) + waits.index(note.wait)
        return at.WAIT, offset, False, -1, 0, begins, len(made.waits) - 1, instruction.index, 0, 0
    begins = _OPERATIONS.index(note.kind)
    if isinstance(access, GlobalAccess):
        made.sites.append((access.kind, instruction))
        site, reads = len(made.sites) - 1, access.kind != STORE
        assert executed is not None  # sanity check
        return at.ACCESS, offset, True, executed, ordered, begins, site, access.size, _HEAT[access.kind], reads
    kind = at.SHARE if note.kind == "lds" else at.ISSUE
    return kind, offset, executed is not None, -1, ordered and kind == at.ISSUE, begins, 0, 0, 0, 0
