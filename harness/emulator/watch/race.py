"""Mode ``race``: reports two accesses to global memory that no happens-before orders.

The accesses may be by different wavefronts, work-groups or ranks:

    driver = emulator.activate(mode="race", choices=7)
    with emulator.concurrent_ranks(driver) as ranks: ...           # raises DataRace

Two accesses conflict when they overlap, at least one of them writes, and they are not both atomic at scopes that
include each other's thread. Atomic accesses are read-modify-writes (at agent scope; with sc1 at system scope), and
aligned loads and stores of up to 8 bytes with scope bits (sc0 work-group, sc1 agent, sc0 sc1 system). ``race_order``
defines what orders accesses: program order, s_barrier, released values that were read, and kernel boundaries. The
launches of one rank run one after the other, those of several ranks run concurrently within ``concurrent_ranks``.

Two atomic accesses conflict as well if the second one overwrites a value that its thread saw, where several lanes of
one instruction write that value: each lane's write may come for itself, also after the second one.

``covers`` selects the reading of points that the manuals leave open, as in mode ``weak``. With ``work-group``, a
wavefront's fences also act for the other wavefronts of its work-group after an s_barrier; races that exist only in the
other reading are recorded in ``unspecified``. With ``wavefront`` these raise as well, with the text ``relies on
unspecified behaviour``.

Where LLVM expands a read-modify-write into a compare-and-swap loop, the plain load before the loop is ignored, since
the swap confirms its value: the last load of that width before the swap, from the same source position. Where the loop
swaps 4 bytes to add to an element of 2, the other 2 do not count either, see ``race_swaps``.

Where a block is smaller than a work-group, Triton lets several wavefronts load the same bytes with one instruction, and
one of them store there, without a barrier between. If the copies are used, this is a bug of the compiler; usually they
are not. Such races are recorded in ``replicated``.

The result does not depend on how the accesses interleave, but on the path that each wavefront took and on the released
values that it read. Where two critical sections may run in either order, one order can hide a race that the other
shows: try several seeds. By itself the mode does not see accesses of the host or of other processes; a value that
another process wrote counts as a release of everything that this process had published. ``race_record`` judges what
several processes, and their hosts, have recorded.

Native code executes the accesses of translated programs, and judges those that are surely no races, see ``race_log``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import located, race_order, race_state, race_steps
from harness.emulator.native import memory as native
from harness.emulator.operations.access import (
    ATOMIC,
    LOAD,
    STORE,
    CopyAccess,
    FlatAccess,
    FormatAccess,
    GlobalAccess,
    ScalarAccess,
    ScratchAccess,
    at_one,
)
from harness.emulator.operations.table import Step, with_native
from harness.emulator.program.decode import Decoded, Program
from harness.emulator.watch import registers
from harness.emulator.watch.base import NativeWatch
from harness.emulator.watch.choices import Choices
from harness.emulator.watch.race_log import KINDS, Log, Native, Site
from harness.emulator.watch.race_order import AGENT, SCOPES, SYSTEM, WAVE, WORKGROUP, Launched
from harness.emulator.watch.race_record import Recording
from harness.emulator.watch.race_report import Effect, overwrites
from harness.emulator.watch.race_state import HappensBefore
from harness.emulator.watch.race_swaps import Swaps, accessed
from harness.emulator.watch.weak import READINGS as COVERS
from harness.emulator.watch.weak import waits_for
from harness.emulator.wavefront.single import SingleWavefront
from harness.emulator.wavefront.state import LANES, Wavefronts

if TYPE_CHECKING:
    from harness.emulator.execution.allocations import Table
    from harness.emulator.execution.launch import Chunk, Launch


class Race(NativeWatch):
    """See the module docstring.

    With ``recording``, what the launches do is recorded for ``race_record.judge`` and not judged here.
    """

    name = "race"
    any_order = True

    def __init__(
        self, choices: Choices | None = None, covers: str = COVERS[0], recording: Recording | None = None
    ) -> None:
        super().__init__(choices)
        if covers not in COVERS:
            raise ValueError(f"covers must be one of {', '.join(COVERS)}, got {covers!r}")
        located.prepare()
        self.covers = covers
        self.recording = recording
        self._addresses, self._lanes = np.zeros(LANES, np.uint64), np.zeros(LANES, np.int64)
        self._swapping: WeakKeyDictionary[Program, Swaps] = WeakKeyDictionary()
        # What native functions read of an instruction, by its address; of the program that is being decoded; and of
        # launches.
        self._sites: dict[int, Site] = {}
        self._by_name: dict[tuple[str, int], int] = {}
        self._described: dict[int, np.ndarray] = {}
        self._keeps: list[np.ndarray] = []
        self._data: dict[int, tuple[Launch, np.ndarray, int]] = {}
        self._translated = False
        self.restart(self.choices)

    @property
    def unspecified(self) -> list[str]:
        """Races that exist only in the strict reading: one message for each pair of instructions."""
        return self._judge.unspecified

    @property
    def replicated(self) -> list[str]:
        """Races of wavefronts that load and store copies of the same bytes: one for each pair of instructions."""
        return self._judge.replicated

    def restart(self, choices: Choices | None) -> None:
        super().restart(choices)
        self._judge = HappensBefore(raises_unspecified=self.covers != COVERS[0])
        self._native: Native | None = None
        self.begin(closed=False)

    # -- called by the scheduler and the decoder ---------------------------------------------------------------------

    @property
    def decisions(self) -> Native:
        if self._native is None:
            assert self.choices is not None  # sanity check
            self._native = Native(self.choices, lambda: self._log.judge() if self._log is not None else None)
        return self._native

    @property
    def events(self) -> int:
        return self.decisions.state

    def translated(self) -> None:
        self._translated = True

    def begin(self, closed: bool) -> None:
        self._closed = closed
        self._launches: dict[int, int] = {}
        # The values of scoped stores, to recognize those of other processes.
        self._values: dict[int, bytes] = {}
        if self.recording is None:
            self._judge.clear()
        self._data.clear()
        # For each rank, addresses of the clocks that its next launch knows.
        self._orders: dict[int, tuple[int, ...]] = {}
        self._log: Log | None = None
        if self._translated:
            self._translated = False
            self.decisions.begin(self.recording is not None)
            state = self._judge if self.recording is None else self.recording
            self._log = Log(self.decisions, state, self._sites, self._by_name)

    @property
    def _state(self) -> HappensBefore | Recording | Log:
        if self._log is not None:
            return self._log
        return self._judge if self.recording is None else self.recording

    def start(self, launch: Launch) -> None:
        # Only the table: the launch refers to this watch, and Python does not find cycles through arrays of objects,
        # such as the pages of the judge's shadow memory.
        place = functools.partial(_place, launch.table)
        facts = Launched(launch.rank, launch.program.name, launch.grid, launch.waves_per_group, place)
        state = self._state
        key = state.start(facts) if isinstance(state, HappensBefore) else state.start(facts, launch.table)
        self._launches[id(launch)] = key
        if self._log is None:
            return
        starts, ends, _ = launch.table.addresses
        data = np.array(
            [
                starts, ends, len(launch.table.allocations), self.decisions.state, key, launch.rank,
                launch.waves_per_group, launch.hostcall is not None or self.decisions.full, self._open(launch),
                launch.kernarg_address, launch.kernarg.nbytes, self._log.first_thread(key), facts.waves,
                *2 * self._orders.get(launch.rank, 5 * (0,)),
            ]
        )  # fmt: skip
        self._data[id(launch)] = launch, data, data.ctypes.data
        self.decisions.launches.append(data)

    def address_of(self, launch: Launch) -> int:
        return self._data[id(launch)][2]

    def started(self, chunk: Chunk) -> None:
        state = self._state
        assert not isinstance(state, Log)  # sanity check
        state.create(self._launches[id(chunk.launch)], chunk.wavefronts.wave.tolist())

    def released(self, chunk: Chunk, groups: list[int]) -> None:
        state = self._state
        assert not isinstance(state, Log)  # sanity check
        for group in groups:
            state.barrier(self._launches[id(chunk.launch)], group)

    def ended(self, wf: Wavefronts) -> None:
        state = self._state
        assert not isinstance(state, Log)  # sanity check
        for wave in wf.wave.tolist():
            state.end(self._launches[id(wf.chunk.launch)], wave)

    def finish(self, launch: Launch) -> None:
        self._state.finish(self._launches[id(launch)])
        if self._log is not None:
            _, data, address = self._data[id(launch)]
            race_order.finish(address)
            self._orders[launch.rank] = tuple(data[race_state.AFTER >> 3 :].tolist())

    def untranslated(self) -> None:
        if self._log is not None and self.recording is not None:
            self._log.judge()

    def instrument(self, decoded: Decoded) -> Step | None:
        mnemonic, modifiers = decoded.instruction.mnemonic, decoded.instruction.modifiers
        if isinstance(decoded.access, GlobalAccess | CopyAccess | FormatAccess):
            assert decoded.step is not None  # sanity check
            return self._watched(decoded.access, decoded.step)
        if isinstance(decoded.access, ScalarAccess):
            assert decoded.step is not None  # sanity check
            return self._scalar(decoded.access, decoded.step)
        if isinstance(decoded.access, ScratchAccess):
            assert decoded.step is not None  # sanity check
            return self._private(decoded.access, decoded.step)
        if mnemonic in ("buffer_wbl2", "buffer_inv"):
            scope = (SYSTEM if "sc0" in modifiers else AGENT) if "sc1" in modifiers else WORKGROUP
            if mnemonic == "buffer_inv":
                step: Step = lambda wf: self._state.invalidate(*self._thread(wf), scope)  # noqa: E731
                return with_native(step, race_steps.fence, race_state.INVALIDATE, scope)
            step = lambda wf: self._state.write_back(*self._thread(wf), scope)  # noqa: E731
            return with_native(step, race_steps.fence, race_state.WRITE_BACK, scope)
        if mnemonic == "s_waitcnt":
            left, _ = waits_for(decoded.instruction)
            return with_native(lambda wf: self._state.wait(*self._thread(wf), left), race_steps.wait, left)
        if decoded.access is not None and mnemonic.startswith(("global_", "buffer_", "flat_")):
            raise UnimplementedInstruction(f"mode race cannot track {mnemonic}; use another mode")
        return decoded.step

    # -- accesses ----------------------------------------------------------------------------------------------------

    def _watched(self, declared: GlobalAccess | CopyAccess | FormatAccess, plain: Step) -> Step:
        scope = SCOPES.index(declared.scope)
        index = declared.instruction.index
        shared = scope >= AGENT
        log = self._log_access

        def step(wf: Wavefronts) -> None:
            access, launch = at_one(declared, wf), wf.chunk.launch
            chosen, lanes = self._located(wf, access)
            guess = access.kind == LOAD and scope == WAVE and index in self._swaps(launch.program).guesses
            # hostcall's stack of packets: a loser of the compare-and-swap has read what the winner may write.
            packet = launch.hostcall is not None and len(lanes) and launch.hostcall.holds(chosen)
            if not len(lanes) or guess or packet:
                plain(wf)
                log(wf, ())
                return
            # Another process must not come between a scoped access and its place in the recorded order.
            if self._log is not None:
                self._log.judge()
            with self.recording.turn() if self.recording is not None and shared else nullcontext():
                effects = []
                for kind, size, addresses, some in _effects(wf, access, chosen, lanes, self._swaps(launch.program)):
                    effect = Effect(kind, scope, access.instruction, size, addresses, some)
                    effects.append(effect._replace(outside=self._is_outside(launch, effect)))
                log(wf, effects)
                plain(wf)
            if scope == SYSTEM and access.kind != LOAD and self._open(launch):
                for effect in effects:
                    for address in effect.addresses.tolist():
                        self._values[address] = ctypes.string_at(address, effect.size)

        if type(declared) is not GlobalAccess or not hasattr(plain, "native"):
            return step
        swaps = declared.operation == native.CMPSWAP
        site = Site(declared.kind, scope, declared.instruction, declared.size, swaps)
        address = self._describe(site, *declared.address, declared.data if swaps else -1)
        return with_native(step, race_steps.access, address, then=plain)

    def _describe(self, site: Site, *rest: int) -> int:
        """Return the address of what native functions read of an access; ``rest``: the fields after the scope."""
        described = np.zeros(race_steps.ACCESS_FIELDS, np.int64)
        described[: 3 + len(rest)] = KINDS[site.kind], site.size, site.scope, *rest
        address: int = described.ctypes.data
        self._sites[address], self._described[address] = site, described
        return address

    def decoded(self, program: Program) -> None:
        swaps = self._swaps(program)
        for address, described in self._described.items():
            site = self._sites[address]
            self._by_name[program.name, site.instruction.index] = address
            described[race_steps.OVERWRITES >> 3] = site.scope > WAVE and overwrites(site.kind, site.instruction)
            described[race_steps.GUESSES >> 3] = site.instruction.index in swaps.guesses and site.scope == WAVE
            described[race_steps.KEEPS >> 3] = (
                site.swaps and swaps.kept(site.instruction, int(described[race_steps.SWAPS >> 3])) is not None
            )
        self._keeps += self._described.values()
        self._described.clear()

    def _log_access(self, wf: Wavefronts, effects: Sequence[Effect]) -> None:
        """Judge, or record, a global access that Python executes."""
        self._state.access(*self._thread(wf), effects)
        if self._log is not None:
            self._executed(wf, effects)

    def _executed(self, wf: Wavefronts, effects: Sequence[Effect], is_scalar: bool = False) -> None:
        assert isinstance(wf, SingleWavefront)  # sanity check
        assert self._log is not None  # sanity check
        self._log.executed(wf.record, effects, is_scalar)

    def _located(self, wf: Wavefronts, access: GlobalAccess | CopyAccess) -> tuple[np.ndarray, np.ndarray]:
        """Return the addresses, uint64[n], and the lanes, int64[n], of an access; raises its fault."""
        if not isinstance(access, FlatAccess):
            assert isinstance(wf, SingleWavefront)  # sanity check
            table = wf.chunk.launch.table
            count = located.locate(
                wf.record, *access.address, access.size, access.kind == ATOMIC, *table.addresses[:2],
                len(table.allocations), self._addresses, self._lanes,
            )  # fmt: skip
            if count >= 0:
                return self._addresses[:count].copy(), self._lanes[:count].copy()
        addresses, taking = access.addresses(wf)
        lanes = np.flatnonzero(taking[0])
        if len(lanes):
            registers.locate(wf, access, addresses[0], lanes)
        return addresses[0, lanes], lanes

    def _scalar(self, access: ScalarAccess, plain: Step) -> Step:
        def step(wf: Wavefronts) -> None:
            launch, addresses = wf.chunk.launch, access.addresses(wf)
            plain(wf)
            inside = 0 <= int(addresses[0]) - launch.kernarg_address < launch.kernarg.nbytes
            if not inside and access.instruction.index not in self._swaps(launch.program).guesses:
                lanes, size = np.zeros(1, np.int64), 4 * access.words
                scope = AGENT if access.kind == ATOMIC else WAVE
                effect = Effect(access.kind, scope, access.instruction, size, addresses & ~np.uint64(3), lanes)
                self._state.scalar(*self._thread(wf), effect)
                if self._log is not None:
                    self._executed(wf, (effect,), is_scalar=True)

        if access.kind != LOAD or not hasattr(plain, "native"):
            return step
        address = self._describe(Site(LOAD, WAVE, access.instruction, 4 * access.words))
        upper = 0xFFFF if "buffer" in access.instruction.mnemonic else 0xFFFFFFFF
        where = 4 * access.words, access.base, access.soffset, access.offset, upper
        return with_native(step, race_steps.scalar, address, *where, then=plain)

    def _private(self, access: ScratchAccess, plain: Step) -> Step:
        """Watch an access to a lane's own memory: no other lane can race with it, but s_waitcnt counts it."""

        def step(wf: Wavefronts) -> None:
            plain(wf)
            self._log_access(wf, ())

        address = self._describe(Site(access.kind, WAVE, access.instruction, access.size))
        return with_native(step, race_steps.private, address, then=plain) if hasattr(plain, "native") else step

    def _swaps(self, program: Program) -> Swaps:
        if program not in self._swapping:
            self._swapping[program] = Swaps(program.listing)
        return self._swapping[program]

    def _thread(self, wf: Wavefronts) -> tuple[int, int]:
        return self._launches[id(wf.chunk.launch)], int(wf.wave[0])

    # -- other processes ---------------------------------------------------------------------------------------------

    def _open(self, launch: Launch) -> bool:
        """Return True if processes that are not recorded can change memory that this launch reads."""
        alone = self._closed or self.recording is not None
        return not alone and any(a.peer is not None for a in launch.table.allocations)

    def _is_outside(self, launch: Launch, effect: Effect) -> bool:
        return (
            effect.kind != STORE
            and effect.scope == SYSTEM
            and self._open(launch)
            and any(
                ctypes.string_at(address, effect.size) != self._values.get(address)
                for address in effect.addresses.tolist()
            )
        )


def _place(table: Table, address: int) -> str:
    for allocation in table.allocations:
        if allocation.contains(address, 1):
            return f"byte {address - allocation.address} of {allocation.label}"
    return table.nearest(address)


def _effects(
    wf: Wavefronts, access: GlobalAccess | CopyAccess, addresses: np.ndarray, lanes: np.ndarray, known: Swaps
) -> list[tuple[str, int, np.ndarray, np.ndarray]]:
    """Return the kinds and sizes of an access with their addresses and lanes.

    A compare-and-swap that does not swap is a load.
    """
    if isinstance(access, CopyAccess):
        return [(LOAD, access.size, addresses, lanes)]
    if access.operation != native.CMPSWAP:
        return [(access.kind, access.size, addresses, lanes)]
    _, compared = registers.gather(wf, access, lanes)
    assert compared is not None  # sanity check
    wanted = [row.tobytes() for row in compared]
    swaps = np.array([ctypes.string_at(a, access.size) == w for a, w in zip(addresses.tolist(), wanted, strict=True)])
    mask = known.kept(access.instruction, access.data)
    all_lanes = [(0, access.size, np.ones(len(lanes), np.bool_))]
    return [
        (kind, size, addresses[some & part] + np.uint64(offset), lanes[some & part])
        for offset, size, part in (all_lanes if mask is None else accessed(wf, access, lanes, mask))
        for kind, some in ((LOAD, ~swaps), (ATOMIC, swaps))
        if (some & part).any()
    ]
