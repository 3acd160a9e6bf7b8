"""Mode ``trace``: what happened when, as a timeline for Perfetto, an access log, a heat map, and what was waited for.

    driver = emulator.activate(mode="trace")
    kernel[grid](tensor, ...)
    driver.watch.write("run.json")             # open at ui.perfetto.dev
    driver.watch.accesses                      # one record for each global access of a wavefront
    print(driver.watch.heat_table())

Time is virtual: the wavefront-instructions that were executed since the driver was made, by all wavefronts together.
Wavefronts that stand at the same instruction execute it one after the other. The same seed gives the same times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.emulator import native
from harness.emulator.banks import bank_conflicts
from harness.emulator.listing import Instruction
from harness.emulator.ops.access import ATOMIC, LOAD, STORE, CopyAccess, GlobalAccess, LdsAccess, ScalarAccess
from harness.emulator.ops.table import Step
from harness.emulator.program import Decoded
from harness.emulator.state import Wavefronts
from harness.emulator.watch import heat, perfetto
from harness.emulator.watch.base import Watch
from harness.emulator.watch.check.queues import counts_of
from harness.emulator.watch.choices import Choices
from harness.emulator.watch.shadow import Shadow
from harness.emulator.watch.stalls import Stalls

if TYPE_CHECKING:
    from harness.emulator.launch import Chunk, Launch


class Record(NamedTuple):
    """One global access of one wavefront.

    ``step`` is the virtual time, ``launch`` and ``wavefront`` are numbers (a launch's from 0 in the order of their
    starts, a wavefront's within its launch), ``site`` is the instruction's line in the listing, ``bytes`` those of all
    lanes, ``address`` the first lane's, ``offset`` how far into ``allocation`` that is, ``peer`` whether it belongs to
    another rank.
    """

    step: int
    rank: int
    launch: int
    wavefront: int
    kind: str
    site: int
    bytes: int
    address: int
    offset: int
    allocation: str
    peer: bool
    instruction: str
    source: str


class Span(NamedTuple):
    """Something that a wavefront did from ``start`` to ``end``: ran up to a barrier, or waited."""

    rank: int
    wavefront: int
    name: str
    start: int
    end: int
    source: str


class Sample(NamedTuple):
    """Bytes that a rank's lanes have accessed so far, and LDS cycles lost to bank conflicts."""

    step: int
    rank: int
    local: int
    peer: int
    conflicts: int


@dataclass
class LaunchSpan:
    """A launch; ``end`` None: it has not ended."""

    rank: int
    kernel: str
    grid: tuple[int, int, int]
    waves_per_group: int
    start: int
    end: int | None = None


_CACHE_OPERATIONS = {"buffer_wbl2": "write-back", "buffer_inv": "invalidate"}


@dataclass(eq=False)
class _Writer:
    """Who wrote bytes last; ``read``: another wavefront has loaded them."""

    record: Record
    read: bool = False


@dataclass
class _Totals:
    local: int = 0
    peer: int = 0
    conflicts: int = 0


@dataclass
class Timeline:
    """All that ``Trace`` has seen. ``flows`` lead from a store or atomic to the first access of another wavefront that
    reads its value. Lists are bounded; ``dropped`` counts what they have no room for."""

    accesses: list[Record] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    flows: list[tuple[Record, Record]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    launches: list[LaunchSpan] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=lambda: {"accesses": 0, "spans": 0})
    now: int = 0


class Trace(Watch):
    """See the module docstring. At most ``limit`` accesses and ``limit`` spans are kept, ``wavefronts`` of each rank
    are shown in the timeline, and an allocation has at most ``buckets`` in the heat map."""

    name = "trace"

    def __init__(
        self, choices: Choices | None = None, limit: int = 200_000, wavefronts: int = 64, buckets: int = 64
    ) -> None:
        super().__init__(choices)
        for name, value in (("limit", limit), ("wavefronts", wavefronts), ("buckets", buckets)):
            if value < 1:
                raise ValueError(f"{name} is at least 1, not {value}")
        self.limit = limit
        self.shown = wavefronts
        self.buckets = buckets
        self.restart(choices)

    # -- what users ask ----------------------------------------------------------------------------------------------

    @property
    def accesses(self) -> list[Record]:
        """The access log, in the order of execution; ``timeline.dropped`` counts what came after ``limit``."""
        return self.timeline.accesses

    def heat_map(self) -> list[heat.Heat]:
        """Bytes read, written and changed atomically, by rank, allocation and address; nothing is dropped here."""
        return self._heat.heats()

    def heat_table(self) -> str:
        return heat.as_text(self.heat_map())

    def write(self, path: str | Path) -> None:
        """Write the timeline as a Chrome trace (JSON), which ui.perfetto.dev opens."""
        Path(path).write_text(perfetto.as_json(self.timeline, self.shown))

    def write_heat_map(self, path: str | Path) -> None:
        """Write the heat map as an HTML page."""
        Path(path).write_text(heat.as_html(self.heat_map()))

    # -- what the scheduler and the decoder call ---------------------------------------------------------------------

    def restart(self, choices: Choices | None) -> None:
        super().restart(choices)
        self.timeline = Timeline()
        self._heat = heat.HeatMap(self.buckets)
        self._totals: dict[int, _Totals] = {}
        self._shadow = Shadow()
        self._launches: dict[int, int] = {}
        self._stalls: dict[int, Stalls] = {}
        # When each wavefront began what it does, by launch: its start, or the last barrier.
        self._since: dict[int, dict[int, int]] = {}
        self._arrived: dict[tuple[int, int], tuple[int, str]] = {}

    def begin(self, closed: bool) -> None:
        self._shadow.clear()  # the host may have written since
        self._launches.clear()
        self._stalls.clear()
        self._since.clear()
        self._arrived.clear()

    def start(self, launch: Launch) -> None:
        number = len(self.timeline.launches)
        self._launches[id(launch)] = number
        self._stalls[id(launch)] = Stalls(launch)
        self._since[number] = {}
        self._totals.setdefault(launch.rank, _Totals())
        span = LaunchSpan(launch.rank, launch.program.name, launch.grid, launch.waves_per_group, self.timeline.now)
        self.timeline.launches.append(span)

    def started(self, chunk: Chunk) -> None:
        number = self._launches[id(chunk.launch)]
        self._since[number].update(dict.fromkeys(chunk.wavefronts.wave.tolist(), self.timeline.now))

    def released(self, chunk: Chunk, groups: list[int]) -> None:
        number, per_group = self._launches[id(chunk.launch)], chunk.launch.waves_per_group
        for wave in (group * per_group + i for group in groups for i in range(per_group)):
            if (number, wave) in self._arrived:
                since, source = self._arrived.pop((number, wave))
                self._span(chunk.launch.rank, wave, "s_barrier", since, self.timeline.now, source)
                self._since[number][wave] = self.timeline.now

    def ended(self, wf: Wavefronts) -> None:
        since = self._since[self._launches[id(wf.chunk.launch)]]
        for wave in wf.wave.tolist():
            self._span(wf.chunk.launch.rank, wave, "to the end", since.pop(wave), self.timeline.now, "")

    def finish(self, launch: Launch) -> None:
        self.timeline.launches[self._launches.pop(id(launch))].end = self.timeline.now
        del self._stalls[id(launch)]
        launch.sources = _by_source(launch)

    def instrument(self, decoded: Decoded) -> Step | None:
        access = decoded.access
        if isinstance(access, GlobalAccess | CopyAccess):
            return self._logged(access, decoded.step)
        if isinstance(access, LdsAccess):
            return self._counted(access, decoded.step)
        if isinstance(access, ScalarAccess):
            return self._issuing("scalar", decoded.step)
        mnemonic = decoded.instruction.mnemonic
        if mnemonic in _CACHE_OPERATIONS:
            return self._issuing(_CACHE_OPERATIONS[mnemonic], decoded.step)
        if mnemonic == "s_waitcnt":
            return self._waiting(decoded.instruction, decoded.step)
        return self._ticking(decoded.step)

    def before_end(self, instruction: Instruction) -> Step | None:
        if instruction.mnemonic != "s_barrier":
            return self._ticking(None)

        def step(wf: Wavefronts) -> None:
            number = self._launches[id(wf.chunk.launch)]
            for i, wave in enumerate(wf.wave.tolist()):
                at = self.timeline.now + i
                since = self._since[number][wave]
                self._span(wf.chunk.launch.rank, wave, "to s_barrier", since, at, instruction.source)
                self._arrived[number, wave] = at, instruction.source
            self.timeline.now += len(wf)

        return step

    # -- steps -------------------------------------------------------------------------------------------------------

    def _ticking(self, plain: Step | None) -> Step:
        def step(wf: Wavefronts) -> None:
            self.timeline.now += len(wf)
            if plain is not None:
                plain(wf)

        return step

    def _issuing(self, kind: str, plain: Step | None) -> Step:
        ticking = self._ticking(plain)

        def step(wf: Wavefronts) -> None:
            stalls = self._stalls[id(wf.chunk.launch)]
            for wave in wf.wave.tolist():
                stalls.issue(wave, kind)
            ticking(wf)

        return step

    def _waiting(self, instruction: Instruction, plain: Step | None) -> Step:
        ticking, counts = self._ticking(plain), counts_of(instruction)

        def step(wf: Wavefronts) -> None:
            self._stalls[id(wf.chunk.launch)].wait(wf, instruction, *counts)
            for i, wave in enumerate(wf.wave.tolist()):
                at = self.timeline.now + i
                self._span(wf.chunk.launch.rank, wave, instruction.text, at, at + 1, instruction.source)
            ticking(wf)

        return step

    def _counted(self, access: LdsAccess, plain: Step | None) -> Step:
        ticking, stores = self._issuing("lds", plain), access.kind != LOAD

        def step(wf: Wavefronts) -> None:
            launch, mask = wf.chunk.launch, wf.exec_mask
            parts = [access.addresses(wf, part) for part in range(len(access.parts))]
            ticking(wf)
            arch = launch.program.listing.arch
            extra = sum(bank_conflicts(addresses, mask, access.size, arch, stores) for addresses in parts)
            if extra:
                launch.lds_conflicts += extra
                self._totals[launch.rank].conflicts += extra
                self._sample(launch.rank)

        return step

    def _logged(self, access: GlobalAccess | CopyAccess, plain: Step | None) -> Step:
        ticking = self._ticking(plain)
        old = _swap_registers(access)

        def step(wf: Wavefronts) -> None:
            addresses, taking = access.addresses(wf)
            compared = _words(wf, old[0]) if old else None
            ticking(wf)
            writes = taking if access.kind in (STORE, ATOMIC) else np.zeros_like(taking)
            if compared is not None and old:
                # A compare-and-swap that does not swap only reads.
                writes = writes & (_words(wf, old[1]) == compared).all(axis=0)
            self._log(wf, access, addresses, taking, writes)

        return step

    def _log(
        self,
        wf: Wavefronts,
        access: GlobalAccess | CopyAccess,
        addresses: np.ndarray,
        taking: np.ndarray,
        writes: np.ndarray,
    ) -> None:
        launch, table = wf.chunk.launch, wf.chunk.launch.table.allocations
        starts = wf.chunk.table[0]
        totals = self._totals[launch.rank]
        number, begin = self._launches[id(launch)], self.timeline.now - len(wf)
        kind = {LOAD: heat.READ, STORE: heat.WRITTEN, ATOMIC: heat.ATOMIC}.get(access.kind, heat.READ)
        outstanding = {LOAD: "load", STORE: "store", ATOMIC: "atomic"}.get(access.kind, "load")
        peers = wf.chunk.table[2]
        for row, wave in enumerate(wf.wave.tolist()):
            mask = taking[row]
            chosen = addresses[row, mask]
            where = np.searchsorted(starts, chosen, side="right") - 1
            far = bool(peers[where[where >= 0]].any())
            self._stalls[id(launch)].issue(wave, f"peer {outstanding}" if far else outstanding)
            if not len(chosen):
                continue
            for at in np.unique(where[where >= 0]).tolist():
                allocation = table[at]
                some = chosen[where == at]
                self._heat.add(launch.rank, allocation, some, access.size, kind)
                peer = allocation.peer is not None and allocation.peer != launch.rank
                size = len(some) * access.size
                if peer:
                    totals.peer += size
                else:
                    totals.local += size
                first = int(some[0])
                record = Record(
                    begin + row, launch.rank, number, wave, access.kind, access.instruction.line, size, first,
                    first - allocation.address, allocation.label, peer, access.instruction.text,
                    access.instruction.source,
                )  # fmt: skip
                if len(self.timeline.accesses) >= self.limit:
                    self.timeline.dropped["accesses"] += 1
                    continue
                self.timeline.accesses.append(record)
                self._follow(record, access, some, addresses[row, mask & writes[row]])
        self._sample(launch.rank)

    def _follow(self, record: Record, access: GlobalAccess | CopyAccess, read: np.ndarray, written: np.ndarray) -> None:
        """Draw the arrows that end at an access, and remember what it writes."""
        if access.kind != STORE:
            for writer in self._shadow.region(read, access.size).cells:
                if writer is not None and not writer.read and _who(writer.record) != _who(record):
                    writer.read = True
                    self.timeline.flows.append((writer.record, record))
        if len(written):
            region = self._shadow.region(written, access.size)
            region.replace(dict.fromkeys(region.cells, _Writer(record)))

    def _span(self, rank: int, wave: int, name: str, start: int, end: int, source: str) -> None:
        if len(self.timeline.spans) < self.limit:
            self.timeline.spans.append(Span(rank, wave, name, start, end, source))
        else:
            self.timeline.dropped["spans"] += 1

    def _sample(self, rank: int) -> None:
        totals, samples = self._totals[rank], self.timeline.samples
        sample = Sample(self.timeline.now, rank, totals.local, totals.peer, totals.conflicts)
        if len(samples) < self.limit:
            samples.append(sample)
        else:
            samples[-1] = sample


def _by_source(launch: Launch) -> dict[str, int]:
    """Wavefront-instructions by source position."""
    counts: dict[str, int] = {}
    code = launch.program.listing.instructions
    for block in launch.program.blocks:
        at = block.first
        for segment in block.segments:
            behind = at + sum(segment.counts.values())
            if waves := launch.waves[segment.index]:
                for instruction in code[at:behind]:
                    counts[instruction.source] = counts.get(instruction.source, 0) + waves
            at = behind
    return counts


def _who(record: Record) -> tuple[int, int]:
    return record.launch, record.wavefront


def _swap_registers(access: GlobalAccess | CopyAccess) -> tuple[range, range] | None:
    """Of a compare-and-swap that returns the old value: the registers it compares with, and those of the old value."""
    if isinstance(access, CopyAccess) or access.operation != native.CMPSWAP or access.target < 0:
        return None
    words = access.size // 4
    return range(access.data + words, access.data + 2 * words), range(access.target, access.target + words)


def _words(wf: Wavefronts, registers: range) -> np.ndarray:
    """uint32[registers, W, 64]"""
    return np.stack([wf.v[r >> 1][:, :, r & 1] for r in registers])
