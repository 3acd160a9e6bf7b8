"""Mode ``weak``: an adversary of the gfx942 memory model across wavefronts, work-groups, XCDs and ranks.

    driver = emulator.activate(mode="weak", choices=7)
    with emulator.together(driver) as ranks: ...

Every global access is issued, and performed at any time before the wavefront's ``s_waitcnt vmcnt`` asks for it:
accesses of one wavefront to different lines in any order, to the same line in program order. Where a store is then
visible, and how old a line a load sees, is up to ``Hierarchy`` (LLVM AMDGPUUsage, "Memory Model gfx942"). A
register that a load fills changes when the load is performed, so code that forgets to wait reads the old value.

``covers`` is the reading of what the manuals leave open (whether a leader wavefront's fence covers its siblings):
``work-group``  ``buffer_wbl2`` also writes back stores that other wavefronts of the work-group issued before it and
that are still in flight; ``buffer_inv`` acts at once for the whole compute unit
``wavefront``   it covers this wavefront's own earlier stores and what already landed; ``buffer_inv`` acts for siblings
when this wavefront has waited for it

Of the work-groups of an agent, number i runs on XCD i modulo ``xcds``, each on a compute unit of its own. LDS and
scalar loads are coherent; what a kernel wrote reaches the system when it ends, and a kernel begins with clean caches.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing import Instruction
from harness.emulator.ops.access import ATOMIC, LOAD, STORE, GlobalAccess
from harness.emulator.ops.table import Step
from harness.emulator.program import Decoded
from harness.emulator.state import Wavefronts
from harness.emulator.watch import registers
from harness.emulator.watch.base import Watch
from harness.emulator.watch.choices import Choices, Seeded
from harness.emulator.watch.hierarchy import Hierarchy, Line, Unit

if TYPE_CHECKING:
    from harness.emulator.launch import Launch

READINGS = ("work-group", "wavefront")
WRITE_BACK, INVALIDATE = "write-back", "invalidate"
# One of how many memory instructions the adversary uses to perform an access or to evict; 0: it only delays.
_DRIFTS = (0, 16, 4, 2)


@dataclass
class Part:
    """What an access does to one line: ``rows`` are its bytes, numbered lane by lane, at ``offsets`` in the line."""

    operation: Operation
    line: Line
    rows: np.ndarray
    offsets: np.ndarray


@dataclass
class Operation:
    """An instruction of one wavefront in flight. ``lanes`` access memory; ``data`` uint8[lanes, size] is what is
    stored, or what has been loaded so far."""

    number: int
    wf: Wavefronts
    unit: Unit
    instruction: Instruction
    kind: str
    scope: str
    access: GlobalAccess | None = None
    lanes: np.ndarray | None = None
    data: np.ndarray | None = None
    compared: np.ndarray | None = None
    parts: list[Part] | None = None
    done: bool = False

    def __str__(self) -> str:
        launch, wave = self.wf.chunk.launch, int(self.wf.wave[0])
        group, inner = divmod(wave, launch.waves_per_group)
        return (
            f"rank {launch.rank}, work-group {group}, wavefront {inner}: {self.instruction.text!r} "
            f"({self.instruction.source})"
        )


class Weak(Watch):
    """See the module docstring. ``story()`` tells what happened to memory, oldest first."""

    name = "weak"
    interleaves = True

    def __init__(
        self, choices: Choices | None = None, covers: str = "work-group", xcds: int = 8, outside: bool = True
    ) -> None:
        super().__init__(choices or Seeded(0))
        if covers not in READINGS:
            raise ValueError(f"covers is one of {', '.join(READINGS)}, not {covers!r}")
        if xcds < 1:
            raise ValueError(f"an agent has at least 1 XCD, not {xcds}")
        assert self.choices is not None  # sanity check
        self.covers = covers
        self.xcds = xcds
        self.hierarchy = Hierarchy(self.choices, outside)
        # In flight, by (rank, launch, wavefront) in program order.
        self.flights: dict[tuple[int, int, int], list[Operation]] = defaultdict(list)
        self.drift: int | None = None
        self.evicts = False
        self.issued = 0
        self._told: deque[tuple[int, str, object]] = deque(maxlen=4000)
        self._stale_before = 0
        self._blocked = False

    def story(self, last: int = 60) -> list[str]:
        """The last events: when, what, which instruction of which wavefront, at which source line."""
        return [f"{when:6d} {what} {who}" for when, what, who in list(self._told)[-last:]]

    # -- what the scheduler and the decoder call ---------------------------------------------------------------------

    def start(self, launch: Launch) -> None:
        if self.drift is None:
            assert self.choices is not None  # sanity check
            self.drift = _DRIFTS[self.choices.pick(len(_DRIFTS), "how often memory moves by itself")]
            self.evicts = bool(self.choices.pick(2, "whether caches evict"))
        self.hierarchy.begin(launch.rank)

    def finish(self, launch: Launch) -> None:
        for key in [key for key in self.flights if key[0] == launch.rank]:
            for operation in self.flights.pop(key):
                self._complete(operation)
        self.hierarchy.flush(launch.rank)

    def settled(self) -> bool:
        stale, self._stale_before = self._stale_before != self.hierarchy.stale_loads, self.hierarchy.stale_loads
        moving = bool(self.drift) and (any(self.flights.values()) or (self.evicts and bool(self.hierarchy.dirty)))
        return not (stale or moving)

    def instrument(self, decoded: Decoded) -> Step | None:
        mnemonic = decoded.instruction.mnemonic
        if isinstance(decoded.access, GlobalAccess):
            return self._issue_access(decoded.access)
        if mnemonic in ("buffer_wbl2", "buffer_inv"):
            return self._issue_fence(decoded.instruction)
        if mnemonic == "s_waitcnt":
            allowed = waits_for(decoded.instruction)
            return None if allowed is None else self._wait(allowed)
        if mnemonic.startswith(("global_", "buffer_", "flat_")) and decoded.access is not None:
            raise UnimplementedInstruction(f"mode weak does not know {mnemonic}")
        return decoded.step

    # -- issuing -----------------------------------------------------------------------------------------------------

    def _issue_access(self, access: GlobalAccess) -> Step:
        def step(wf: Wavefronts) -> None:
            addresses, taking = access.addresses(wf)
            chunk = wf.chunk
            chunk.launch.executions[access.site] += len(wf)
            lanes = np.flatnonzero(taking[0])
            outside = wf.exec_mask[0] & ~taking[0]
            if outside.any() and access.kind != STORE:
                registers.clear(wf, access, np.flatnonzero(outside))
            if not len(lanes):
                return
            starts, ends = registers.locate(wf, access, addresses[0], lanes)
            chosen = addresses[0, lanes]
            chunk.launch.polls[int(wf.wave[0])] = int(chosen[0]), access.instruction
            operation = self._operation(wf, access.instruction, access.kind, access.scope)
            operation.access, operation.lanes = access, lanes
            operation.data, operation.compared = registers.gather(wf, access, lanes)
            operation.parts = self._parts(operation, chosen, access.size, starts, ends)

        return step

    def _parts(
        self, operation: Operation, addresses: np.ndarray, size: int, starts: np.ndarray, ends: np.ndarray
    ) -> list[Part]:
        where = (addresses[:, None] + np.arange(size, dtype=np.uint64)).reshape(-1)
        start, end = starts.repeat(size), ends.repeat(size)
        low = np.maximum(where & ~np.uint64(127), start)
        parts = []
        for at in np.unique(low):
            rows = np.flatnonzero(low == at)
            line = self.hierarchy.line(int(where[rows[0]]), int(start[rows[0]]), int(end[rows[0]]))
            parts.append(Part(operation, line, rows, (where[rows] - at).astype(np.int64)))
        return parts

    def _issue_fence(self, instruction: Instruction) -> Step | None:
        modifiers = instruction.modifiers
        scope = ("system" if "sc0" in modifiers else "agent") if "sc1" in modifiers else "workgroup"
        kind = WRITE_BACK if instruction.mnemonic == "buffer_wbl2" else INVALIDATE

        def step(wf: Wavefronts) -> None:
            operation = self._operation(wf, instruction, kind, scope)
            if kind == INVALIDATE and self.covers == "work-group":
                self._perform_fence(operation)

        return step

    def _operation(self, wf: Wavefronts, instruction: Instruction, kind: str, scope: str) -> Operation:
        self.issued += 1
        launch, group = wf.chunk.launch, int(wf.wave[0]) // wf.chunk.launch.waves_per_group
        unit = Unit(launch.rank, group % self.xcds, group // self.xcds)
        operation = Operation(self.issued, wf, unit, instruction, kind, scope)
        self._flight(wf).append(operation)
        self._tell("issues", operation)
        return operation

    def _flight(self, wf: Wavefronts) -> list[Operation]:
        return self.flights[wf.chunk.launch.rank, id(wf.chunk.launch), int(wf.wave[0])]

    # -- performing --------------------------------------------------------------------------------------------------

    def _wait(self, allowed: int) -> Callable[[Wavefronts], None]:
        """s_waitcnt vmcnt: the oldest accesses are performed one by one, in an order that the adversary chooses."""

        def step(wf: Wavefronts) -> None:
            flight = self._flight(wf)
            oldest = flight[: max(0, len(flight) - allowed)]
            waiting = [operation for operation in oldest if not operation.done]
            if waiting:
                self._complete(waiting[self.choices.pick(len(waiting), "which access completes")])  # type: ignore[union-attr]
            self._blocked = len(waiting) > 1
            if not self._blocked:
                del flight[: len(oldest)]

        return step

    def blocked(self, wf: Wavefronts) -> bool:
        self._drift()
        blocked, self._blocked = self._blocked, False
        return blocked

    def _drift(self) -> None:
        """Memory moves by itself: an access is performed, or a cache evicts."""
        assert self.choices is not None  # sanity check
        if not self.drift or self.choices.pick(self.drift, "memory moves") == 0:
            return
        parts = [o for flight in self.flights.values() for o in flight if not o.done]
        evictable = len(self.hierarchy.dirty) if self.evicts else 0
        if not parts and not evictable:
            return
        chosen = self.choices.pick(len(parts) + evictable, "what moves")
        if chosen >= len(parts):
            _, store = self.hierarchy.evict(chosen - len(parts))
            self._tell("cache evicts the store of", store.origin)
            return
        operation = parts[chosen]
        if operation.parts:
            self._perform(operation.parts[self.choices.pick(len(operation.parts), "which line")])
        else:
            self._complete(operation)

    def _complete(self, operation: Operation) -> None:
        if operation.kind in (WRITE_BACK, INVALIDATE):
            self._perform_fence(operation)
        for part in list(operation.parts or []):
            if part in operation.parts:  # type: ignore[operator]
                self._perform(part)

    def _perform_fence(self, operation: Operation) -> None:
        if operation.done:
            return
        operation.done = True
        if operation.kind == INVALIDATE:
            self.hierarchy.invalidate(operation.unit, operation.scope)
            self._tell("caches are invalidated by", operation)
            return
        for flight in self.flights.values():
            for other in flight:
                covered = other.wf is operation.wf or (self.covers == "work-group" and other.unit == operation.unit)
                if covered and other.number < operation.number and other.kind != LOAD:
                    self._complete(other)
        written = self.hierarchy.write_back(operation.unit, operation.scope) if operation.scope != "workgroup" else 0
        self._tell(f"{written} stores are written back by", operation)

    def _perform(self, part: Part) -> None:
        operation, line = part.operation, part.line
        self._perform_before(part)
        access, data, parts = operation.access, operation.data, operation.parts
        if access is None or data is None or parts is None or part not in parts:
            return  # performed on the way
        flat = data.reshape(-1)
        if operation.kind == LOAD:
            seen, hidden = self.hierarchy.load(operation.unit, line, operation.scope)
            flat[part.rows] = seen[part.offsets]
            self._tell(f"reads {line.address:#x}{f' without {hidden} newer stores' if hidden else ''}:", operation)
        elif operation.kind == STORE:
            mask, new = np.zeros(line.size, np.bool_), np.zeros(line.size, np.uint8)
            mask[part.offsets], new[part.offsets] = True, flat[part.rows]
            self.hierarchy.store(operation.unit, line, mask, new, operation.scope, str(operation))
            self._tell(f"lands at {line.address:#x}:", operation)
        else:
            self._perform_atomic(operation, part, flat)
        parts.remove(part)
        if not parts:
            operation.done = True
            if operation.kind == LOAD:
                registers.deliver(operation.wf, access, operation.lanes, data)
            elif access.target >= 0:
                registers.deliver_old(operation.wf, access, operation.lanes, data)

    def _perform_atomic(self, operation: Operation, part: Part, flat: np.ndarray) -> None:
        """The lanes whose address lies in the line, one after the other; ``flat`` then holds the old values."""
        access, line = operation.access, part.line
        assert access is not None  # sanity check
        for first in range(0, len(part.rows), access.size):
            rows, at = part.rows[first : first + access.size], part.offsets[first : first + access.size]
            mask = np.zeros(line.size, np.bool_)
            mask[at] = True
            before = self.hierarchy.exchange(operation.unit, line, mask, operation.scope)
            old, new = before[at].copy(), np.zeros(line.size, np.uint8)
            compared = operation.compared.reshape(-1)[rows] if operation.compared is not None else None
            new[at] = registers.fold(access, old, flat[rows].copy(), compared)
            if compared is None or (old == compared).all():
                self.hierarchy.store(operation.unit, line, mask, new, operation.scope, str(operation))
            flat[rows] = old
        self._tell(f"exchanges at {line.address:#x} ({operation.scope}):", operation)

    def _perform_before(self, part: Part) -> None:
        """What must come first: earlier accesses of the compute unit to the same line, and an own earlier
        invalidate."""
        operation = part.operation
        for flight in list(self.flights.values()):
            for other in list(flight):
                if other.number >= operation.number or other.done or other.unit != operation.unit:
                    continue
                own = other.wf is operation.wf
                if own and other.kind == INVALIDATE and operation.kind == LOAD:
                    self._perform_fence(other)
                elif other.parts and (own or other.kind != LOAD):
                    for earlier in list(other.parts):
                        if earlier.line is part.line and earlier in other.parts:
                            self._perform(earlier)

    def _tell(self, what: str, who: object) -> None:
        self._told.append((self.hierarchy.now, what, who))


def waits_for(instruction: Instruction) -> int | None:
    """How many vector memory accesses an s_waitcnt lets go on, None when it does not wait for them.

    The operand is ``vmcnt(n)`` among others, or the number that encodes it: bits 3..0 and 15..14 (CDNA3 ISA, SOPP).
    """
    text = " ".join(instruction.operands)
    if match := re.search(r"vmcnt\((\d+)\)", text):
        return int(match.group(1))
    if "cnt(" in text:
        return None
    word = int(text, 0)
    allowed = word & 0xF | word >> 14 << 4 & 0x30
    return None if allowed == 0x3F else allowed


__all__ = ["ATOMIC", "READINGS", "Weak", "waits_for"]
