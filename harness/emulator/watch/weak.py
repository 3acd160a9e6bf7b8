"""Mode ``weak``: an adversary of the gfx942 memory model across wavefronts, work-groups, XCDs and ranks.

    driver = emulator.activate(mode="weak", choices=7)
    with emulator.concurrent_ranks(driver) as ranks: ...

Every global access is issued, and performed at any time before the wavefront's ``s_waitcnt vmcnt`` requires it:
accesses of one wavefront to different lines in any order, to the same line in program order. ``Hierarchy`` decides
where a store is then visible, and how old a line a load sees (LLVM AMDGPUUsage, "Memory Model gfx942"). The destination
register of a load changes when the load is performed, so code that forgets to wait reads the old value.

``covers`` selects the reading of a point that the manuals leave open: whether a leader wavefront's fence covers
siblings. ``work-group``  ``buffer_wbl2`` also writes back stores that other wavefronts of the work-group issued before
it and that are still in flight; ``buffer_inv`` acts at once for the whole compute unit
``wavefront``   it covers this wavefront's own earlier stores and what already landed; ``buffer_inv`` acts for siblings
when this wavefront has waited for it

Work-group number i of an agent runs on XCD i modulo ``xcds``, each on a compute unit of its own. LDS and scalar loads
are coherent. The stores of a kernel reach the system when it ends, and a kernel begins with clean caches.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import (
    ATOMIC,
    LOAD,
    STORE,
    CopyAccess,
    FormatAccess,
    GlobalAccess,
    LdsAccess,
    ScalarAccess,
    ScratchAccess,
    at_one,
)
from harness.emulator.operations.table import Step
from harness.emulator.program.decode import Decoded
from harness.emulator.watch import registers
from harness.emulator.watch.base import Watch
from harness.emulator.watch.choices import EVICTS, MOVES, Choices, Seeded
from harness.emulator.watch.hierarchy import LINE, Hierarchy, Line, Unit
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.single import SingleWavefront
from harness.emulator.wavefront.state import Wavefronts

if TYPE_CHECKING:
    from harness.emulator.execution.launch import Launch

READINGS = ("work-group", "wavefront")
WRITE_BACK, INVALIDATE = "write-back", "invalidate"
# The adversary performs an access or evicts at one of this many memory instructions; 0: it only delays.
_DRIFTS = (0, 16, 4, 2)


@dataclass
class Local:
    """An LDS access or scalar load in flight: ``step`` runs on a copy of the wavefront made when it was issued."""

    wf: Wavefronts
    issued: SingleWavefront
    step: Step
    vectors: tuple[int, ...]
    scalars: tuple[int, ...]

    def perform(self) -> None:
        self.step(self.issued)
        mask = self.issued.exec_mask[0]
        for register in self.vectors:
            old, new = (w.v[register >> 1][0, :, register & 1] for w in (self.wf, self.issued))
            np.copyto(old, new, where=mask)
        for register in self.scalars:
            self.wf.s[0, register] = self.issued.s[0, register]
        self.issued.free()


@dataclass(eq=False)
class Part:
    """The bytes of an access that lie in one cache line.

    ``rows``: their numbers in the access, counted lane by lane. ``offsets``: their positions in the line.
    """

    operation: Operation
    line: Line
    rows: np.ndarray
    offsets: np.ndarray


@dataclass(eq=False)
class Operation:
    """An instruction of one wavefront in flight.

    ``order`` sorts operations by wavefront, in the order of the wavefronts' first ones, and then in program order.
    ``lanes`` access memory; ``data`` uint8[lanes, size] is the stored data, or the data loaded so far; ``places``
    int64[lanes] are the destinations of a load to the data share.
    """

    number: int
    order: tuple[int, int]
    wf: Wavefronts
    unit: Unit
    instruction: Instruction
    kind: str
    scope: str
    access: GlobalAccess | CopyAccess | None = None
    lanes: np.ndarray | None = None
    places: np.ndarray | None = None
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


@dataclass(eq=False)
class Flight:
    """Operations of one wavefront in flight, in program order. ``order`` numbers the wavefronts by their first one."""

    order: int
    operations: list[Operation] = field(default_factory=list)


@dataclass(eq=False)
class Queue:
    """LDS accesses and scalar loads of one wavefront in flight. ``order`` numbers the wavefronts by their first one."""

    order: int
    accesses: deque[Local] = field(default_factory=deque)


_ORDER = attrgetter("order")


class Weak(Watch):
    """See the module docstring. ``story()`` returns the memory events, oldest first."""

    name = "weak"
    interleaves = True

    def __init__(self, choices: Choices | None = None, covers: str = "work-group", xcds: int = 8) -> None:
        super().__init__(choices or Seeded(0))
        if covers not in READINGS:
            raise ValueError(f"covers must be one of {', '.join(READINGS)}, got {covers!r}")
        if xcds < 1:
            raise ValueError(f"xcds must be at least 1, got {xcds}")
        self.covers = covers
        self.xcds = xcds
        self.restart(self.choices)

    def restart(self, choices: Choices | None) -> None:
        choices = choices or Seeded(0)
        super().restart(choices)
        self.hierarchy = Hierarchy(choices)
        self._forget_operations()
        self.drift: int | None = None
        self.evicts = False
        # Ranks whose kernel has ended and whose caches have not been written back.
        self.ending: list[int] = []
        self.issued = 0
        self._events: deque[tuple[int, str, int, object]] = deque(maxlen=4000)
        self._changes = -1
        self._blocked = False

    def _forget_operations(self) -> None:
        # Operations in flight, by (rank, launch, wavefront); those of a compute unit; those that are not performed yet,
        # by ``order``. A large launch has thousands, and each choice is made among them.
        self.flights: dict[tuple[int, int, int], Flight] = {}
        self._units: dict[Unit, dict[tuple[int, int, int], Flight]] = {}
        self._moving: list[Operation] = []
        # LDS accesses and scalar loads, by the same key; those queues that are not empty, by ``order``.
        self.local: dict[tuple[int, int, int], Queue] = {}
        self._queued: list[Queue] = []
        self._wavefronts = itertools.count()

    def story(self, last: int = 40) -> list[str]:
        """Return the last events, oldest first: time, event, lines, and the instruction and wavefront that caused it.

        Loads that saw the newest value are left out.
        """
        lines: list[str] = []
        for (event, origin), events in itertools.groupby(self._events, lambda entry: (entry[1], str(entry[3]))):
            group = list(events)
            count = f"{len(group)} lines from " if len(group) > 1 else ""
            at = f" {count}{group[0][2]:#x}" if group[0][2] else ""
            lines.append(f"{group[0][0]:6d} {event}{at}: {origin}")
        return lines[-last:]

    # -- called by the scheduler and the decoder ---------------------------------------------------------------------

    def begin(self, closed: bool) -> None:
        self.hierarchy.forget(outside=not closed)
        self._forget_operations()

    def start(self, launch: Launch) -> None:
        if (hostcall := launch.hostcall) is not None:
            hostcall.answered = lambda: self.hierarchy.answered(hostcall.address, hostcall.memory.nbytes)
        starts, ends, _ = launch.table.arrays
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            self.hierarchy.picture(start, end)
        if self.drift is None:
            assert self.choices is not None  # sanity check
            self.drift = _DRIFTS[self.choices.pick(len(_DRIFTS), MOVES)]
            self.evicts = bool(self.choices.pick(2, EVICTS))
        if launch.rank in self.ending:
            self.over()
        self.hierarchy.begin(launch.rank)

    def finish(self, launch: Launch) -> None:
        for key in [key for key in self.local if key[:2] == (launch.rank, id(launch))]:
            if (queue := self.local.pop(key)).accesses:
                self._queued.remove(queue)
        # All their operations have been performed: see ``lingers``.
        for key in [key for key in self.flights if key[:2] == (launch.rank, id(launch))]:
            del self.flights[key]
        for unit in [unit for unit in self._units if unit.agent == launch.rank]:
            del self._units[unit]
        self.ending.append(launch.rank)

    def over(self) -> None:
        while self.ending:
            self._end_kernel()

    def _end_kernel(self) -> None:
        """Perform the release at the end of a kernel: after the last wavefront, before the rank's next kernel."""
        self.hierarchy.flush(self.ending.pop(0))

    def settled(self) -> bool:
        if self.ending:
            self._end_kernel()
            return False
        before, self._changes = self._changes, self.hierarchy.changes
        stores = any(operation.kind not in (LOAD, ATOMIC) for operation in self._moving)
        evictable = self.evicts and bool(self.drift) and bool(self.hierarchy.dirty)
        return before == self._changes and not stores and not evictable

    def instrument(self, decoded: Decoded) -> Step | None:
        mnemonic = decoded.instruction.mnemonic
        if isinstance(decoded.access, GlobalAccess | FormatAccess):
            return self._issue_access(decoded.access)
        if isinstance(decoded.access, CopyAccess):
            return self._issue_copy(decoded.access)
        if isinstance(decoded.access, ScratchAccess):
            assert decoded.step is not None  # sanity check
            return self._issue_private(decoded.access, decoded.step)
        if mnemonic in ("buffer_wbl2", "buffer_inv"):
            return self._issue_fence(decoded.instruction)
        if mnemonic == "s_waitcnt":
            return self._wait(*waits_for(decoded.instruction))
        if decoded.step is not None and decoded.entry.klass in ("lds", "smem"):
            return self._issue_local(decoded, decoded.step)
        if mnemonic.startswith(("global_", "buffer_", "flat_")) and decoded.access is not None:
            raise UnimplementedInstruction(f"mode weak cannot track {mnemonic}; use another mode")
        return decoded.step

    # -- issuing -----------------------------------------------------------------------------------------------------

    def _issue_access(self, declared: GlobalAccess | FormatAccess) -> Step:
        def step(wf: Wavefronts) -> None:
            access = at_one(declared, wf)
            assert isinstance(access, GlobalAccess)  # sanity check
            addresses, taking = access.addresses(wf)
            chunk = wf.chunk
            chunk.launch.executions[access.site] += len(wf)
            lanes = np.flatnonzero(taking[0])
            outside = wf.exec_mask[0] & ~taking[0]
            if outside.any() and access.kind != STORE:
                registers.clear(wf, access, np.flatnonzero(outside))
            if not len(lanes):
                self._operation(wf, access.instruction, access.kind, access.scope, done=True)
                return
            starts, ends = registers.locate(wf, access, addresses[0], lanes)
            chosen = addresses[0, lanes]
            peers = int(wf.chunk.table[2][np.searchsorted(wf.chunk.table[0], starts)].sum())
            chunk.launch.access_lanes[access.site] += (len(lanes) - peers, peers)
            operation = self._operation(wf, access.instruction, access.kind, access.scope)
            operation.access, operation.lanes = access, lanes
            operation.data, operation.compared = registers.gather(wf, access, lanes)
            operation.parts = self._parts(operation, chosen, access.size, starts, ends)

        return step

    def _issue_copy(self, access: CopyAccess) -> Step:
        """Issue a load to the data share, which writes there when it is performed."""

        def step(wf: Wavefronts) -> None:
            addresses, taking = access.addresses(wf)
            chunk, at = wf.chunk, access.lds_addresses(wf)[0]
            chunk.launch.executions[access.site] += len(wf)
            beyond = np.flatnonzero(wf.exec_mask[0] & ((at < 0) | (at + access.slot > chunk.lds_bytes)))
            if len(beyond):
                chunk.lds_fault_at(wf, access.instruction, int(beyond[0]), int(at[beyond[0]]), access.slot)
            at = at + int(chunk.group_of(wf.wave)[0]) * chunk.lds_bytes
            outside = np.flatnonzero(wf.exec_mask[0] & ~taking[0])
            registers.deliver_to_share(wf, access, at[outside], np.zeros((len(outside), access.size), np.uint8))
            lanes = np.flatnonzero(taking[0])
            operation = self._operation(wf, access.instruction, LOAD, access.scope, done=not len(lanes))
            if operation.done:
                return
            starts, ends = registers.locate(wf, access, addresses[0], lanes)
            peers = int(chunk.table[2][np.searchsorted(chunk.table[0], starts)].sum())
            chunk.launch.access_lanes[access.site] += (len(lanes) - peers, peers)
            operation.access, operation.lanes, operation.places = access, lanes, at[lanes]
            operation.data = np.zeros((len(lanes), access.size), np.uint8)
            operation.parts = self._parts(operation, addresses[0, lanes], access.size, starts, ends)

        return step

    def _issue_private(self, access: ScratchAccess, plain: Step) -> Step:
        """Issue an access to a lane's private segment: it is performed at once, and counted as in flight."""
        written = registers.written(access)

        def step(wf: Wavefronts) -> None:
            for other in list(self._flight(wf).operations):
                if written & registers.written(other.access) and not other.done:
                    self._complete(other)
            plain(wf)
            self._operation(wf, access.instruction, access.kind, "wave", done=True)

        return step

    def _parts(
        self, operation: Operation, addresses: np.ndarray, size: int, starts: np.ndarray, ends: np.ndarray
    ) -> list[Part]:
        where = (addresses[:, None] + np.arange(size, dtype=np.uint64)).reshape(-1)
        start = starts.repeat(size)
        offsets = ((where - start) % np.uint64(LINE)).astype(np.int64)
        low = where - offsets.astype(np.uint64)
        changes = low[1:] != low[:-1]
        rows = np.arange(len(low))
        if (low[1:] < low[:-1]).any():
            rows = np.argsort(low, kind="stable")
            changes = low[rows[1:]] != low[rows[:-1]]
        bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(low)]
        parts = []
        for first, past in itertools.pairwise(bounds):
            some = rows[first:past]
            row = int(some[0])
            line = self.hierarchy.line(int(where[row]), int(start[row]), int(ends[row // size]))
            parts.append(Part(operation, line, some, offsets[some]))
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

    def _issue_local(self, decoded: Decoded, plain: Step) -> Step:
        access = decoded.access
        vectors: tuple[int, ...] = ()
        scalars: tuple[int, ...] = ()
        if isinstance(access, ScalarAccess):
            if access.kind != LOAD:
                # LLVM's memory model has no scalar writes: they go to another cache, which s_dcache_wb writes back.
                raise UnimplementedInstruction(
                    f"mode weak cannot track {access.instruction.mnemonic}; use another mode"
                )
            scalars = tuple(range(access.target, access.target + access.words))
        elif isinstance(access, LdsAccess):
            words = max(1, access.size // 4)
            vectors = tuple(first + i for first in access.loaded for i in range(words))
        else:  # a clock, or a lane permutation through the LDS unit
            target = operands.parse(decoded.instruction.operands[0], decoded.accum_offset)
            written = tuple(range(target.register, target.register + target.count))
            vectors, scalars = (written, ()) if target.space == "v" else ((), written)
        pairs = _pairs(decoded)

        def step(wf: Wavefronts) -> None:
            assert isinstance(wf, SingleWavefront)  # sanity check
            queue = self._queue(wf)
            if not queue.accesses:
                insort(self._queued, queue, key=_ORDER)
            queue.accesses.append(Local(wf, wf.copy(pairs), plain, vectors, scalars))

        return step

    def _queue(self, wf: Wavefronts) -> Queue:
        key = self._key(wf)
        if key not in self.local:
            self.local[key] = Queue(next(self._wavefronts))
        return self.local[key]

    def _perform_local(self, queue: Queue) -> None:
        """Perform the oldest access of a queue."""
        access = queue.accesses.popleft()
        if not queue.accesses:
            del self._queued[bisect_left(self._queued, queue.order, key=_ORDER)]
        access.perform()

    def _operation(
        self, wf: Wavefronts, instruction: Instruction, kind: str, scope: str, done: bool = False
    ) -> Operation:
        self.issued += 1
        flight = self._flight(wf)
        order = flight.order, self.issued
        operation = Operation(self.issued, order, wf, self._unit(wf), instruction, kind, scope, done=done)
        flight.operations.append(operation)
        if not done:
            insort(self._moving, operation, key=_ORDER)
        return operation

    def _finish(self, operation: Operation) -> None:
        """Mark an operation as performed."""
        operation.done = True
        del self._moving[bisect_left(self._moving, operation.order, key=_ORDER)]

    def _unit(self, wf: Wavefronts) -> Unit:
        launch, group = wf.chunk.launch, int(wf.wave[0]) // wf.chunk.launch.waves_per_group
        return Unit(launch.rank, group % self.xcds, group // self.xcds)

    def _flight(self, wf: Wavefronts) -> Flight:
        key = self._key(wf)
        if key not in self.flights:
            flight = self.flights[key] = Flight(next(self._wavefronts))
            self._units.setdefault(self._unit(wf), {})[key] = flight
        return self.flights[key]

    def _key(self, wf: Wavefronts) -> tuple[int, int, int]:
        return wf.chunk.launch.rank, id(wf.chunk.launch), int(wf.wave[0])

    # -- performing --------------------------------------------------------------------------------------------------

    def _wait(self, global_: int, local: int) -> Callable[[Wavefronts], None]:
        """s_waitcnt: perform the oldest accesses one by one, in an order that the adversary chooses."""

        def step(wf: Wavefronts) -> None:
            queue = self._queue(wf)
            while len(queue.accesses) > local:
                self._perform_local(queue)
            flight = self._flight(wf).operations
            oldest = flight[: max(0, len(flight) - global_)]
            waiting = [operation for operation in oldest if not operation.done]
            if waiting:
                self._complete(waiting[self.choices.pick(len(waiting), "which access completes")])  # type: ignore[union-attr]
            self._blocked = len(waiting) > 1
            if not self._blocked:
                del flight[: len(oldest)]

        return step

    def lingers(self, wf: Wavefronts) -> bool:
        """Return True until the wavefront's accesses have been performed."""
        waiting = [operation for operation in self._flight(wf).operations if not operation.done]
        if waiting:
            self._complete(waiting[self.choices.pick(len(waiting), "which access completes")])  # type: ignore[union-attr]
        return bool(waiting)

    def blocked(self, wf: Wavefronts) -> bool:
        self._drift()
        blocked, self._blocked = self._blocked, False
        return blocked

    def _drift(self) -> None:
        """Let memory change without an instruction: perform an access, or evict a line."""
        assert self.choices is not None  # sanity check
        if not self.drift or self.choices.pick(self.drift, "memory moves") == 0:
            return
        moving, local = self._moving, self._queued
        evictable = len(self.hierarchy.dirty) if self.evicts else 0
        possible = len(moving) + evictable + len(local) + bool(self.ending)
        if not possible:
            return
        chosen = self.choices.pick(possible, "what moves")
        if chosen == len(moving) + evictable + len(local):
            self._end_kernel()
            return
        if chosen >= len(moving) + evictable:
            self._perform_local(local[chosen - len(moving) - evictable])
            return
        if chosen >= len(moving):
            _, store = self.hierarchy.evict(chosen - len(moving))
            self._log("cache evicts the store of", store.origin)
            return
        operation = moving[chosen]
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
        self._finish(operation)
        if operation.kind == INVALIDATE:
            self.hierarchy.invalidate(operation.unit, operation.scope)
            self._log("caches are invalidated by", operation)
            return
        for flight in self._units[operation.unit].values():
            for other in flight.operations:
                covered = other.wf is operation.wf or self.covers == "work-group"
                if covered and other.number < operation.number and other.kind != LOAD:
                    self._complete(other)
        written = self.hierarchy.write_back(operation.unit, operation.scope) if operation.scope != "workgroup" else 0
        self._log(f"{written} stores are written back by", operation)

    def _perform(self, part: Part) -> None:
        operation, line = part.operation, part.line
        self._perform_before(part)
        access, data, parts = operation.access, operation.data, operation.parts
        if access is None or data is None or parts is None or part not in parts:
            return  # performed as a predecessor of another part
        flat = data.reshape(-1)
        if operation.kind == LOAD:
            seen, hidden = self.hierarchy.load(operation.unit, line, operation.scope)
            flat[part.rows] = seen[part.offsets]
            if hidden:
                self._log("reads an old copy of", operation, line.address)
        elif operation.kind == STORE:
            mask, new = np.zeros(line.size, np.bool_), np.zeros(line.size, np.uint8)
            mask[part.offsets], new[part.offsets] = True, flat[part.rows]
            self.hierarchy.store(operation.unit, line, mask, new, operation.scope, operation)
            self._log("lands at", operation, line.address)
        else:
            self._perform_atomic(operation, part, flat)
        parts.remove(part)
        if not parts:
            self._finish(operation)
            if isinstance(access, CopyAccess):
                assert operation.places is not None  # sanity check
                registers.deliver_to_share(operation.wf, access, operation.places, data)
            elif operation.kind == LOAD:
                registers.deliver(operation.wf, access, operation.lanes, data)
            elif access.target >= 0:
                registers.deliver_old(operation.wf, access, operation.lanes, data)

    def _perform_atomic(self, operation: Operation, part: Part, flat: np.ndarray) -> None:
        """Perform an atomic for the lanes in the line, one after the other; ``flat`` then holds the old values."""
        access, line = operation.access, part.line
        assert isinstance(access, GlobalAccess)  # sanity check
        for first in range(0, len(part.rows), access.size):
            rows, at = part.rows[first : first + access.size], part.offsets[first : first + access.size]
            value = flat[rows].copy()
            compared = operation.compared.reshape(-1)[rows] if operation.compared is not None else None

            def compute(
                old: np.ndarray, value: np.ndarray = value, compared: np.ndarray | None = compared
            ) -> np.ndarray | None:
                unequal = compared is not None and not np.array_equal(old, compared)
                return None if unequal else registers.fold(access, old, value)

            flat[rows] = self.hierarchy.exchange(operation.unit, line, at, operation.scope, compute, operation)
        self._log(f"exchanges at {operation.scope} scope", operation, line.address)

    def _perform_before(self, part: Part) -> None:
        """Perform the predecessors of a part.

        These are earlier accesses of the compute unit to the same line, an earlier invalidate of the wavefront, and an
        earlier load of it into the same registers: loads return in order (AMD "CDNA3 ISA", vmcnt).
        """
        operation = part.operation
        written = registers.written(operation.access)
        for flight in list(self._units[operation.unit].values()):
            if flight.operations and flight.operations[0] is operation:
                continue
            for other in list(flight.operations):
                if other.number >= operation.number:
                    break
                if other.done:
                    continue
                own = other.wf is operation.wf
                if own and other.kind == INVALIDATE and operation.kind == LOAD:
                    self._perform_fence(other)
                elif own and written & registers.written(other.access):
                    self._complete(other)
                elif other.parts and (own or other.kind != LOAD):
                    for earlier in list(other.parts):
                        if earlier.line is part.line and earlier in other.parts:
                            self._perform(earlier)

    def _log(self, event: str, origin: object, address: int = 0) -> None:
        self._events.append((self.hierarchy.now, event, address, origin))


def _pairs(decoded: Decoded) -> tuple[int, ...]:
    """Return the pairs of vector registers among an instruction's operands."""
    pairs: set[int] = set()
    for text in decoded.instruction.operands:
        operand = operands.parse(text, decoded.accum_offset)
        if operand.space == "v":
            pairs.update(register >> 1 for register in range(operand.register, operand.register + operand.count))
    return tuple(sorted(pairs))


def waits_for(instruction: Instruction) -> tuple[int, int]:
    """Return how many vector memory accesses, and how many LDS accesses and scalar loads, may stay in flight.

    The operand of s_waitcnt is ``vmcnt(n) lgkmcnt(n)`` or one of them, or a number that encodes both: bits 3..0 with
    15..14, and 11..8 (CDNA3 ISA, SOPP).
    """
    text = " ".join(instruction.operands)
    if "cnt(" not in text:
        word = int(text, 0)
        return word & 0xF | word >> 14 << 4 & 0x30, word >> 8 & 0xF
    counts = {name: int(n) for name, n in re.findall(r"(\w+cnt)\((\d+)\)", text)}
    return counts.get("vmcnt", 63), counts.get("lgkmcnt", 63)
