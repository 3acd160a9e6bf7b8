"""Mode ``race``: reports two accesses to global memory that no happens-before orders.

The accesses may be by different wavefronts, work-groups or ranks:

    driver = emulator.activate(mode="race", choices=7)
    with emulator.concurrent_ranks(driver) as ranks: ...           # raises DataRace

Two accesses conflict when they overlap, at least one of them writes, and they are not both atomic at scopes that
include each other's thread. Atomic accesses are read-modify-writes (at agent scope; with sc1 at system scope), and
loads and stores of up to 8 bytes with scope bits (sc0 work-group, sc1 agent, sc0 sc1 system). ``race_order`` defines
what orders accesses: program order, s_barrier, released values that were read, and kernel boundaries. The launches of
one rank run one after the other, those of several ranks run concurrently within ``concurrent_ranks``.

``covers`` selects the reading of points that the manuals leave open, as in mode ``weak``. With ``work-group``, a
wavefront's fences also act for the other wavefronts of its work-group after an s_barrier; races that exist only in the
other reading are recorded in ``unspecified``. With ``wavefront`` these raise as well, with the text ``relies on
unspecified behaviour``.

Where LLVM expands a read-modify-write into a compare-and-swap loop, the plain load before the loop is ignored, since
the swap confirms its value: the last load of that width before the swap, from the same source position.

Where a block is smaller than a work-group, Triton lets several wavefronts load the same bytes with one instruction, and
one of them store there, without a barrier between. If the copies are used, this is a bug of the compiler; usually they
are not. Such races are recorded in ``replicated``.

The result does not depend on how the accesses interleave, but on the path that each wavefront took and on the released
values that it read. Where two critical sections may run in either order, one order can hide a race that the other
shows: try several seeds. The mode does not see accesses of the host or of other processes; a value that another process
wrote counts as a release of everything that this process had published.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.faults import DataRace, UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction
from harness.emulator.native import memory as native
from harness.emulator.operations.access import (
    ATOMIC,
    LOAD,
    STORE,
    CopyAccess,
    GlobalAccess,
    ScalarAccess,
    ScratchAccess,
)
from harness.emulator.operations.table import Step
from harness.emulator.program.decode import Decoded, Program
from harness.emulator.watch import registers
from harness.emulator.watch.base import Watch
from harness.emulator.watch.choices import Choices
from harness.emulator.watch.race_history import (
    UNTOUCHED,
    Cell,
    Released,
    add,
    are_copies,
    continue_release,
    events,
    ordered,
    same,
)
from harness.emulator.watch.race_order import (
    AGENT,
    ISSUED,
    LENIENT,
    NOTHING,
    SCOPES,
    STRICT,
    SYSTEM,
    WAVE,
    WORKGROUP,
    Order,
    Taken,
    Thread,
    distance,
    meet,
)
from harness.emulator.watch.race_report import UNSPECIFIED, Event, describe, missing
from harness.emulator.watch.shadow import Region, Shadow
from harness.emulator.watch.weak import READINGS as COVERS
from harness.emulator.watch.weak import waits_for
from harness.emulator.wavefront.state import Wavefronts

if TYPE_CHECKING:
    from harness.emulator.execution.launch import Chunk, Launch


class Race(Watch):
    """See the module docstring. ``unspecified`` and ``replicated`` have one message for each pair of instructions."""

    name = "race"
    interleaves = True

    def __init__(self, choices: Choices | None = None, covers: str = COVERS[0]) -> None:
        super().__init__(choices)
        if covers not in COVERS:
            raise ValueError(f"covers must be one of {', '.join(COVERS)}, got {covers!r}")
        self.raises_unspecified = covers != COVERS[0]
        self.unspecified: list[str] = []
        self.replicated: list[str] = []
        self._guessing: dict[int, tuple[Program, set[int]]] = {}
        self._reported: set[tuple[frozenset[tuple[str, int]], str]] = set()
        self.begin(closed=False)

    def restart(self, choices: Choices | None) -> None:
        super().restart(choices)
        self.unspecified.clear()
        self.replicated.clear()
        self._reported.clear()

    # -- called by the scheduler and the decoder ---------------------------------------------------------------------

    def begin(self, closed: bool) -> None:
        self._closed = closed
        self._shadow = Shadow()
        self._threads: list[Thread] = []
        self._by_wave: dict[tuple[int, int], Thread] = {}
        # Each launch has a negative thread number, which stands for its end: id(launch) -> number.
        self._launches: dict[int, int] = {}
        # What each rank's next launch knows at its start, and what the running one will pass on to it.
        self._stream: dict[int, tuple[Order, ...]] = {}
        self._ends: dict[int, tuple[Order, ...]] = {}
        # Everything published at system scope, and the values of scoped stores: for readers of other processes' values.
        self._outside = (NOTHING, NOTHING)
        self._values: dict[int, bytes] = {}

    def start(self, launch: Launch) -> None:
        number = -1 - len(self._launches)
        self._launches[id(launch)] = number
        self._ends[number] = self._stream.setdefault(launch.rank, (NOTHING, NOTHING))

    def started(self, chunk: Chunk) -> None:
        launch = chunk.launch
        key = self._launches[id(launch)]
        for wave in chunk.wavefronts.wave.tolist():
            thread = Thread(len(self._threads), launch, key, wave, self._stream[launch.rank])
            self._threads.append(thread)
            self._by_wave[key, wave] = thread

    def released(self, chunk: Chunk, groups: list[int]) -> None:
        key, per_group = self._launches[id(chunk.launch)], chunk.launch.waves_per_group
        for group in groups:
            waves = range(group * per_group, (group + 1) * per_group)
            meet([self._by_wave[key, wave] for wave in waves if (key, wave) in self._by_wave])

    def ended(self, wf: Wavefronts) -> None:
        for wave in wf.wave.tolist():
            thread = self._by_wave[self._launches[id(wf.chunk.launch)], wave]
            thread.wait(0)
            known = [view.known.join(view.seen[AGENT]).join(view.seen[SYSTEM]) for view in thread.views]
            self._ends[thread.key] = tuple(a.join(b) for a, b in zip(self._ends[thread.key], known, strict=True))

    def finish(self, launch: Launch) -> None:
        key = self._launches[id(launch)]
        for wave in range(launch.groups * launch.waves_per_group):
            self._by_wave.pop((key, wave))
        others = [
            Order(*({t: n for t, n in clock.items() if t < 0 or self._threads[t].key != key} | {key: 1} for clock in o))
            for o in self._ends.pop(key)
        ]
        self._stream[launch.rank] = tuple(others)

    def instrument(self, decoded: Decoded) -> Step | None:
        mnemonic, modifiers = decoded.instruction.mnemonic, decoded.instruction.modifiers
        if isinstance(decoded.access, GlobalAccess | CopyAccess):
            assert decoded.step is not None  # sanity check
            return self._watched(decoded.access, decoded.step)
        if isinstance(decoded.access, ScalarAccess):
            assert decoded.step is not None  # sanity check
            return self._scalar(decoded.access, decoded.step)
        if isinstance(decoded.access, ScratchAccess):
            assert decoded.step is not None  # sanity check
            return self._private(decoded.step)
        if mnemonic in ("buffer_wbl2", "buffer_inv"):
            scope = (SYSTEM if "sc0" in modifiers else AGENT) if "sc1" in modifiers else WORKGROUP
            if mnemonic == "buffer_inv":
                return lambda wf: self._thread(wf).invalidate(scope)
            return lambda wf: self._thread(wf).write_back(scope, self._threads)
        if mnemonic == "s_waitcnt":
            left, _ = waits_for(decoded.instruction)
            return lambda wf: self._thread(wf).wait(left)
        if decoded.access is not None and mnemonic.startswith(("global_", "buffer_", "flat_")):
            raise UnimplementedInstruction(f"mode race cannot track {mnemonic}; use another mode")
        return decoded.step

    # -- accesses ----------------------------------------------------------------------------------------------------

    def _watched(self, access: GlobalAccess | CopyAccess, plain: Step) -> Step:
        scope = SCOPES.index(access.scope)
        index = access.instruction.index

        def step(wf: Wavefronts) -> None:
            addresses, taking = access.addresses(wf)
            lanes, thread = np.flatnonzero(taking[0]), self._thread(wf)
            if not len(lanes):
                plain(wf)
                thread.access(())
                return
            registers.locate(wf, access, addresses[0], lanes)
            chosen = addresses[0, lanes]
            if access.kind == LOAD and scope == WAVE and index in self._guesses(wf.chunk.launch.program):
                plain(wf)
                thread.access(())
                return
            hostcall = wf.chunk.launch.hostcall
            if hostcall is not None and hostcall.holds(chosen):
                # hostcall's stack of packets: a loser of the compare-and-swap has read what the winner may write.
                plain(wf)
                thread.access(())
                return
            wf.chunk.launch.polls[int(wf.wave[0])] = int(chosen[0]), access.instruction
            taken: dict[int, Taken] = {}
            for kind, some in _effects(wf, access, chosen, lanes):
                number = thread.reached[ISSUED] + 1
                event = Event(thread, number, kind, scope, access.instruction, access.size, chosen[some], lanes[some])
                self._note(event, taken)
            plain(wf)
            if scope == SYSTEM and self._open(thread.launch):
                self._remember(chosen, access)
            thread.access(tuple(taken.values()))

        return step

    def _scalar(self, access: ScalarAccess, plain: Step) -> Step:
        """Watch a scalar load: lgkmcnt waits for it, and it counts as complete when nothing else is in flight."""

        def step(wf: Wavefronts) -> None:
            launch, addresses = wf.chunk.launch, access.addresses(wf)
            plain(wf)
            inside = 0 <= int(addresses[0]) - launch.kernarg_address < launch.kernarg.nbytes
            if not inside and access.instruction.index not in self._guesses(launch.program):
                thread, lanes = self._thread(wf), np.zeros(1, np.int64)
                thread.reached[ISSUED] += 1
                number, size = thread.reached[ISSUED], 4 * access.words
                self._note(Event(thread, number, LOAD, WAVE, access.instruction, size, addresses, lanes), {})

        return step

    def _private(self, plain: Step) -> Step:
        """Watch an access to a lane's own memory: no other lane can race with it, but s_waitcnt counts it."""

        def step(wf: Wavefronts) -> None:
            plain(wf)
            self._thread(wf).access(())

        return step

    def _note(self, event: Event, taken: dict[int, Taken]) -> None:
        """Check an access against the history of its bytes, and add it; ``taken`` collects released values it reads."""
        thread, scope = event.thread, event.scope
        region = self._shadow.region(event.addresses, event.size)
        mine: Released | None = None
        if event.kind != LOAD and scope > WAVE:
            orders = thread.publish()
            mine = Released(scope, thread.rank, thread.place, orders)
            if scope == SYSTEM:
                self._outside = self._outside[0].join(orders[0]), self._outside[1].join(orders[1])
        if event.kind != STORE and scope == SYSTEM and self._open(thread.launch) and self._foreign(event):
            taken[0] = SYSTEM, self._outside
        new = {}
        for cell in region.cells:
            old = cell or UNTOUCHED
            writes = tuple(e for e in old.writes if self._concurrent(e, event, region, cell))
            if event.kind == LOAD:
                new[cell] = Cell(old.writes, add(old.readers, event), old.released)
            else:
                readers = None
                for e in events(old.readers):
                    # Own reads are kept, to recognize a replicated copy that follows.
                    if self._concurrent(e, event, region, cell) or e.thread is thread:
                        readers = add(readers, e)
                released: tuple[Released, ...] = () if mine is None else (mine,)
                if event.kind == ATOMIC and mine is not None:
                    released = continue_release(old.released, mine)
                new[cell] = Cell((*(e for e in writes if not same(e, event)), event), readers, released)
            if event.kind != STORE and scope > WAVE:
                for r in old.released:
                    relation = distance(thread, r.place, r.rank)
                    if min(r.scope, scope) >= relation:
                        taken[id(r)] = relation, r.orders
        region.replace(new)

    def _concurrent(self, first: Event, second: Event, region: Region, cell: Cell | None) -> bool:
        """Return False if ``first`` happens before ``second``, True if both are atomic; otherwise report a race."""
        if first.thread is second.thread or ordered(first, second, STRICT):
            return False
        if first.atomic and second.atomic and min(first.scope, second.scope) >= second.thread.relation(first.thread):
            return True
        copies = are_copies(first, second, cell)
        if copies:
            messages, why = self.replicated, "one loads a copy of what the other has loaded before it stores"
        elif ordered(first, second, LENIENT):
            messages, why = self.unspecified, UNSPECIFIED
        else:
            messages, why = None, missing(first, second)
        pair = frozenset((e.thread.launch.program.name, e.instruction.index) for e in (first, second)), why
        if messages is not None and pair in self._reported:
            return False
        message, details = describe(first, second, region.address_of(cell), region.bytes_of(cell), why)
        if messages is None or (messages is self.unspecified and self.raises_unspecified):
            raise DataRace(message, **details)
        self._reported.add(pair)
        messages.append(message)
        return False

    def _guesses(self, program: Program) -> set[int]:
        """Return the indices of a program's loads that only guess the value for a compare-and-swap."""
        if id(program) not in self._guessing:
            self._guessing[id(program)] = program, _guesses(program.listing.instructions)
        return self._guessing[id(program)][1]

    def _thread(self, wf: Wavefronts) -> Thread:
        return self._by_wave[self._launches[id(wf.chunk.launch)], int(wf.wave[0])]

    # -- other processes ---------------------------------------------------------------------------------------------

    def _open(self, launch: Launch) -> bool:
        """Return True if other processes can change memory that this launch reads."""
        return not self._closed and any(a.peer is not None for a in launch.table.allocations)

    def _foreign(self, event: Event) -> bool:
        return any(
            ctypes.string_at(address, event.size) != self._values.get(address) for address in event.addresses.tolist()
        )

    def _remember(self, addresses: np.ndarray, access: GlobalAccess | CopyAccess) -> None:
        if access.kind != LOAD:
            for address in addresses.tolist():
                self._values[address] = ctypes.string_at(address, access.size)


def _effects(
    wf: Wavefronts, access: GlobalAccess | CopyAccess, addresses: np.ndarray, lanes: np.ndarray
) -> list[tuple[str, np.ndarray]]:
    """Return the kinds of an access with their lanes: a compare-and-swap that does not swap is a load."""
    if isinstance(access, CopyAccess):
        return [(LOAD, np.ones(len(lanes), np.bool_))]
    if access.operation != native.CMPSWAP:
        return [(access.kind, np.ones(len(lanes), np.bool_))]
    _, compared = registers.gather(wf, access, lanes)
    assert compared is not None  # sanity check
    wanted = [row.tobytes() for row in compared]
    swaps = np.array([ctypes.string_at(a, access.size) == w for a, w in zip(addresses.tolist(), wanted, strict=True)])
    return [(kind, some) for kind, some in ((LOAD, ~swaps), (ATOMIC, swaps)) if some.any()]


def _guesses(code: list[Instruction]) -> set[int]:
    guesses: set[int] = set()
    for swap in code:
        if "_atomic_cmpswap" not in swap.mnemonic or not swap.frames:
            continue
        width = "_dwordx2" if swap.mnemonic.endswith("_x2") else "_dword"
        for load in reversed(code[: swap.index]):
            alike = "_load_" in load.mnemonic and load.mnemonic.endswith(width) and load.frames == swap.frames
            if alike and load.index not in guesses:
                guesses.add(load.index)
                break
    return guesses
