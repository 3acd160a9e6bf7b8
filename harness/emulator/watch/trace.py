"""Mode ``trace``: a timeline for Perfetto, an access log, a heat map, and the causes of waits.

    driver = emulator.activate(mode="trace")
    kernel[grid](tensor, ...)
    driver.watch.write("run.json")             # open at ui.perfetto.dev
    driver.watch.accesses                      # one record for each global access of a wavefront
    print(driver.watch.heat_table())

Time is virtual: the number of wavefront-instructions that all wavefronts have executed since the driver was created.
Wavefronts at the same instruction execute it one after the other. The same seed gives the same times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.emulator.execution.tally import split_counters
from harness.emulator.listing.instructions import Instruction
from harness.emulator.native import memory as native
from harness.emulator.native import summaries
from harness.emulator.native.banks import bank_conflicts
from harness.emulator.operations.access import (
    ATOMIC,
    LOAD,
    STORE,
    Access,
    CopyAccess,
    FormatAccess,
    GlobalAccess,
    LdsAccess,
    ScalarAccess,
)
from harness.emulator.operations.table import Step
from harness.emulator.program.decode import Decoded, Program
from harness.emulator.watch import heat, perfetto
from harness.emulator.watch.base import Watch
from harness.emulator.watch.check.queues import counts_of
from harness.emulator.watch.choices import Choices
from harness.emulator.watch.shadow import Shadow
from harness.emulator.watch.stalls import Stalls
from harness.emulator.watch.timeline import LaunchSpan, Log, Record, Sample, Timeline
from harness.emulator.wavefront.state import Wavefronts

if TYPE_CHECKING:
    from harness.emulator.execution.launch import Chunk, Launch


_CACHE_OPERATIONS = {"buffer_wbl2": "write-back", "buffer_inv": "invalidate"}


@dataclass(eq=False)
class _Writer:
    """The last writer of bytes: index of its access, launch and wavefront. ``read``: another one has loaded them."""

    access: int
    who: tuple[int, int]
    read: bool = False


@dataclass(frozen=True)
class _Stored:
    """A store of several wavefronts to [low, high), whose bytes nothing has accessed since.

    ``first`` is the index of the first one's access; ``launch`` and ``waves`` int64[W] are numbers, ``addresses``
    uint64[W, 64], ``lanes`` bool[W, 64].
    """

    low: int
    high: int
    first: int
    launch: int
    waves: np.ndarray
    addresses: np.ndarray
    lanes: np.ndarray
    size: int


_MOST_STORED = 1 << 16
"""Wavefronts of such stores that are kept."""

LOCAL, PEER, CONFLICTS = range(3)
"""A rank's totals: bytes accessed in local memory and in that of peers, and cycles lost to bank conflicts."""


@dataclass(frozen=True)
class Note:
    """Facts of an instruction that native code records: its access, if it accesses memory, and the kind of operation
    that it begins (``stalls.KINDS``); or the counts of an s_waitcnt."""

    access: Access | None = None
    kind: str = ""
    wait: tuple[int, int] | None = None


class Notes:
    """The notes of a program, ``of`` an instruction by its index."""

    def __init__(self, of: dict[int, Note], program: Program) -> None:
        self.of = of
        self._program = program

    @cached_property
    def counts(self) -> tuple[list[str], np.ndarray]:
        """The source positions; and int64[3, n]: a segment, a position, and how many instructions of it are in it."""
        counts: dict[tuple[int, int], int] = {}
        numbers: dict[str, int] = {}
        code = self._program.listing.instructions
        for block in self._program.blocks:
            at = block.first
            for segment in block.segments:
                end = at + sum(segment.counts.values())
                for instruction in code[at:end]:
                    key = segment.index, numbers.setdefault(instruction.source, len(numbers))
                    counts[key] = counts.get(key, 0) + 1
                at = end
        return list(numbers), np.array([(*key, count) for key, count in counts.items()], np.int64).reshape(-1, 3).T


class SourceCounts(Mapping[str, int]):
    """Wavefront-instructions by source position, which are counted when they are read.

    ``waves`` int64[segments]: wavefronts that executed each segment.
    """

    def __init__(self, notes: Notes, waves: np.ndarray) -> None:
        self._notes, self._waves = notes, waves

    @cached_property
    def _counts(self) -> dict[str, int]:
        sources, (segments, positions, counts) = self._notes.counts
        executed = np.bincount(positions, self._waves[segments] * counts, len(sources)).astype(np.int64)
        return {source: count for source, count in zip(sources, executed.tolist(), strict=True) if count}

    def __getitem__(self, source: str) -> int:
        return self._counts[source]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)


class Trace(Watch):
    """See the module docstring.

    At most ``limit`` accesses and ``limit`` spans are kept, the timeline shows up to ``wavefronts`` wavefronts of each
    rank, and the heat map has at most ``buckets`` buckets per allocation.
    """

    name = "trace"

    def __init__(
        self, choices: Choices | None = None, limit: int = 200_000, wavefronts: int = 64, buckets: int = 64
    ) -> None:
        super().__init__(choices)
        for name, value in (("limit", limit), ("wavefronts", wavefronts), ("buckets", buckets)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.limit = limit
        self.shown = wavefronts
        self.buckets = buckets
        self.restart(choices)

    # -- results -----------------------------------------------------------------------------------------------------

    @property
    def accesses(self) -> Log[Record]:
        """The access log, in the order of execution; ``timeline.dropped`` counts the accesses beyond ``limit``."""
        return self.timeline.accesses

    def heat_map(self) -> list[heat.Heat]:
        """Bytes read, written and changed atomically, by rank, allocation and address; nothing is dropped here."""
        return self.heat.heats()

    def heat_table(self) -> str:
        return heat.as_text(self.heat_map())

    def write(self, path: str | Path) -> None:
        """Write the timeline as a Chrome trace (JSON), which ui.perfetto.dev opens."""
        Path(path).write_text(perfetto.as_json(self.timeline, self.shown))

    def write_heat_map(self, path: str | Path) -> None:
        """Write the heat map as an HTML page."""
        Path(path).write_text(heat.as_html(self.heat_map()))

    # -- called by the scheduler and the decoder ---------------------------------------------------------------------

    def restart(self, choices: Choices | None) -> None:
        super().restart(choices)
        self.timeline = Timeline()
        self.heat = heat.HeatMap(self.buckets)
        # The memory of native code, made by ``driver.traced``.
        self.memory: Any = None
        # By rank, int64[3]: LOCAL, PEER, CONFLICTS.
        self._totals: dict[int, np.ndarray] = {}
        self._shadow = Shadow()
        self._launches: dict[int, int] = {}
        self._stalls: dict[int, Stalls] = {}
        # By launch, the time at which each wavefront began its current span: its start, or the last barrier.
        self._since: dict[int, np.ndarray] = {}
        # By launch, the time at which each wavefront arrived at an s_barrier, or -1, and the barrier's source.
        self._arrived: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._stored: list[_Stored] = []
        summaries.prepare()
        self._notes: dict[int, Note] = {}

    def begin(self, closed: bool) -> None:
        self._shadow.clear()  # the host may have written since
        self._stored.clear()
        self._launches.clear()
        self._stalls.clear()
        self._since.clear()
        self._arrived.clear()

    def start(self, launch: Launch) -> None:
        number = self.begin_launch(launch)
        self._launches[id(launch)] = number
        self._stalls[id(launch)] = Stalls(launch)
        waves = launch.groups * launch.waves_per_group
        self._since[number] = np.zeros(waves, np.int64)
        self._arrived[number] = np.full(waves, -1), np.full(waves, "", object)
        self.totals_of(launch.rank)

    def begin_launch(self, launch: Launch) -> int:
        """Add a launch to the timeline; return its number."""
        span = LaunchSpan(launch.rank, launch.program.name, launch.grid, launch.waves_per_group, self.timeline.now)
        self.timeline.launches.append(span)
        return len(self.timeline.launches) - 1

    def end_launch(self, launch: Launch, number: int) -> None:
        """Note that launch ``number`` has ended now; count its instructions by source."""
        self.timeline.launches[number].end = self.timeline.now
        waves, *_ = split_counters(launch.program, launch.counts())
        launch.sources = SourceCounts(launch.program.facts, waves)

    def totals_of(self, rank: int) -> np.ndarray:
        """Return the totals of a rank, int64[3]; the same array each time."""
        return self._totals.setdefault(rank, np.zeros(3, np.int64))

    def started(self, chunk: Chunk) -> None:
        number = self._launches[id(chunk.launch)]
        self._since[number][chunk.wavefronts.wave] = self.timeline.now

    def released(self, chunk: Chunk, groups: list[int]) -> None:
        number, per_group = self._launches[id(chunk.launch)], chunk.launch.waves_per_group
        waves = (np.array(groups)[:, None] * per_group + np.arange(per_group)).reshape(-1)
        times, sources = self._arrived[number]
        waves = waves[times[waves] >= 0]
        self._spans(chunk.launch.rank, waves, "s_barrier", times[waves], self.timeline.now, sources[waves])
        self._since[number][waves] = self.timeline.now
        times[waves] = -1

    def ended(self, wf: Wavefronts) -> None:
        since = self._since[self._launches[id(wf.chunk.launch)]]
        self._spans(wf.chunk.launch.rank, wf.wave, "to the end", since[wf.wave], self.timeline.now, "")

    def finish(self, launch: Launch) -> None:
        self.end_launch(launch, self._launches.pop(id(launch)))
        del self._stalls[id(launch)]

    def decoded(self, program: Program) -> None:
        program.facts, self._notes = Notes(self._notes, program), {}

    def instrument(self, decoded: Decoded) -> Step | None:
        if (note := _note(decoded)) is not None:
            self._notes[decoded.instruction.index] = note
        access = decoded.access
        if isinstance(access, GlobalAccess | CopyAccess):
            return self._logged(access, decoded.step)
        if isinstance(access, FormatAccess):
            return self._logged_by_format(access, decoded.step)
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

        source = instruction.source

        def step(wf: Wavefronts) -> None:
            number = self._launches[id(wf.chunk.launch)]
            at = self.timeline.now + np.arange(len(wf))
            self._spans(wf.chunk.launch.rank, wf.wave, "to s_barrier", self._since[number][wf.wave], at, source)
            times, sources = self._arrived[number]
            times[wf.wave], sources[wf.wave] = at, source
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
            self._stalls[id(wf.chunk.launch)].issue(wf.wave, kind)
            ticking(wf)

        return step

    def _waiting(self, instruction: Instruction, plain: Step | None) -> Step:
        ticking, counts, source = self._ticking(plain), counts_of(instruction), instruction.source

        def step(wf: Wavefronts) -> None:
            self._stalls[id(wf.chunk.launch)].wait(wf.wave, source, *counts)
            at = self.timeline.now + np.arange(len(wf))
            self._spans(wf.chunk.launch.rank, wf.wave, instruction.text, at, at + 1, source)
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
                self._totals[launch.rank][CONFLICTS] += extra
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
                # A compare-and-swap that does not swap is a read only.
                writes = writes & (_words(wf, old[1]) == compared).all(axis=0)
            self._log(wf, access, addresses, taking, writes)

        return step

    def _logged_by_format(self, access: FormatAccess, plain: Step | None) -> Step:
        ticking = self._ticking(plain)

        def step(wf: Wavefronts) -> None:
            parts = [(rows, part, *part.addresses(wf)) for rows, part in access.parts(wf)]
            ticking(wf)
            for rows, part, addresses, taking in parts:
                taking = taking & rows[:, None]
                self._log(wf, part, addresses, taking, taking if access.kind == STORE else np.zeros_like(taking))

        return step

    def _log(
        self,
        wf: Wavefronts,
        access: GlobalAccess | CopyAccess,
        addresses: np.ndarray,
        taking: np.ndarray,
        writes: np.ndarray,
    ) -> None:
        if self._log_together(wf, access, addresses, taking):
            return
        launch, table = wf.chunk.launch, wf.chunk.launch.table.allocations
        totals = self._totals[launch.rank]
        number, begin = self._launches[id(launch)], self.timeline.now - len(wf)
        kind = {LOAD: heat.READ, STORE: heat.WRITTEN, ATOMIC: heat.ATOMIC}.get(access.kind, heat.READ)
        outstanding = {LOAD: "load", STORE: "store", ATOMIC: "atomic"}.get(access.kind, "load")
        peers = wf.chunk.table[2]
        for row, wave in enumerate(wf.wave.tolist()):
            mask = taking[row]
            chosen = addresses[row, mask]
            where = _owners(chosen, *wf.chunk.table[:2])
            far = bool(peers[where[where >= 0]].any())
            self._stalls[id(launch)].issue(wf.wave[row : row + 1], f"peer {outstanding}" if far else outstanding)
            if not len(chosen):
                continue
            for at in np.unique(where[where >= 0]).tolist():
                allocation = table[at]
                some = chosen[where == at]
                self.heat.add(launch.rank, allocation, some, access.size, kind)
                peer = allocation.peer is not None and allocation.peer != launch.rank
                size = len(some) * access.size
                totals[PEER if peer else LOCAL] += size
                first = int(some[0])
                if len(self.timeline.accesses) >= self.limit:
                    self.timeline.dropped["accesses"] += 1
                    continue
                writer = _Writer(len(self.timeline.accesses), (number, wave))
                self.timeline.accesses.add(
                    1, begin + row, launch.rank, number, wave, access.kind, access.instruction.line, size, first,
                    first - allocation.address, allocation.label, peer, access.instruction.text,
                    access.instruction.source,
                )  # fmt: skip
                self._follow(writer, access, some, addresses[row, mask & writes[row]])
        self._sample(launch.rank)

    def _log_together(
        self, wf: Wavefronts, access: GlobalAccess | CopyAccess, addresses: np.ndarray, taking: np.ndarray
    ) -> bool:
        """Log an access of all wavefronts at once, and return True, if it is in one allocation and ends no flow."""
        launch, count = wf.chunk.launch, len(wf)
        if access.kind == ATOMIC or len(self.timeline.accesses) + count > self.limit:
            return False
        counts, firsts = np.zeros(count, np.int64), np.zeros(count, np.uint64)
        lowest, highest = (int(each) for each in summaries.summarize(addresses, taking, counts, firsts))
        if highest < lowest:
            return False
        starts, ends, peers = wf.chunk.table
        at, last = _owners(np.array([lowest, highest], np.uint64), starts, ends).tolist()
        end = highest + access.size
        stores = access.kind == STORE
        if at != last or at < 0 or (not stores and self._may_be_written(lowest, end)):
            return False
        allocation, number, begin = launch.table.allocations[at], self._launches[id(launch)], self.timeline.now - count
        kind = "store" if stores else "load"
        active = counts > 0
        stalls = self._stalls[id(launch)]
        stalls.issue(wf.wave[active], f"peer {kind}" if peers[at] else kind)
        stalls.issue(wf.wave[~active], kind)
        heat_kind = heat.WRITTEN if stores else heat.READ
        self.heat.add_lanes(launch.rank, allocation, addresses, taking, access.size, heat_kind)
        peer = allocation.peer is not None and allocation.peer != launch.rank
        totals, sizes = self._totals[launch.rank], counts[active] * access.size
        totals[PEER if peer else LOCAL] += int(sizes.sum())
        rows, chosen = np.flatnonzero(active), firsts[active]
        if stores:
            first = len(self.timeline.accesses)
            lanes = addresses[rows], taking[rows]
            self._stored.append(_Stored(lowest, end, first, number, wf.wave[rows], *lanes, access.size))
        self.timeline.accesses.add(
            len(rows), begin + rows, launch.rank, number, wf.wave[rows], access.kind, access.instruction.line, sizes,
            chosen, chosen - np.uint64(allocation.address), allocation.label, peer, access.instruction.text,
            access.instruction.source,
        )  # fmt: skip
        if sum(len(stored.lanes) for stored in self._stored) > _MOST_STORED:
            self._follow_stored()
        self._sample(launch.rank)
        return True

    def _may_be_written(self, low: int, high: int) -> bool:
        """Return whether a wavefront of these launches may have written a byte of [low, high)."""
        return any(s.low < high and low < s.high for s in self._stored) or self._shadow.has(low, high)

    def _follow_stored(self) -> None:
        """Remember the bytes of the stores that were logged together."""
        stored, self._stored = self._stored, []
        for each in stored:
            for row, lanes in enumerate(each.lanes):
                region = self._shadow.region(each.addresses[row, lanes], each.size)
                writer = _Writer(each.first + row, (each.launch, int(each.waves[row])))
                region.replace(dict.fromkeys(region.cells, writer))

    def _follow(
        self, reader: _Writer, access: GlobalAccess | CopyAccess, read: np.ndarray, written: np.ndarray
    ) -> None:
        """Record the flows that end at an access, and remember the bytes it writes."""
        low = int(min(lanes.min() for lanes in (read, written) if len(lanes)))
        high = int(max(lanes.max() for lanes in (read, written) if len(lanes))) + access.size
        if any(stored.low < high and low < stored.high for stored in self._stored):
            self._follow_stored()
        if access.kind != STORE:
            for writer in self._shadow.region(read, access.size).cells:
                if writer is not None and not writer.read and writer.who != reader.who:
                    writer.read = True
                    self.timeline.flows.add(1, writer.access, reader.access)
        if len(written):
            region = self._shadow.region(written, access.size)
            region.replace(dict.fromkeys(region.cells, reader))

    def _spans(self, rank: int, waves: np.ndarray, name: str, starts: Any, ends: Any, sources: Any) -> None:
        """Record a span of each of ``waves``; the others are arrays of as many elements, or one value for all."""
        room = max(0, min(len(waves), self.limit - len(self.timeline.spans)))
        self.timeline.dropped["spans"] += len(waves) - room
        columns = (each[:room] if isinstance(each, np.ndarray) else each for each in (waves, starts, ends, sources))
        waves, starts, ends, sources = columns
        if room:
            self.timeline.spans.add(room, rank, waves, name, starts, ends, sources)

    def _sample(self, rank: int) -> None:
        samples = self.timeline.samples
        sample = Sample(self.timeline.now, rank, *self._totals[rank].tolist())
        if len(samples) < self.limit:
            samples.add(1, *sample)
        else:
            samples.replace_last(sample)


def _note(decoded: Decoded) -> Note | None:
    access, mnemonic = decoded.access, decoded.instruction.mnemonic
    if isinstance(access, LdsAccess | ScalarAccess):
        return Note(access, "lds" if isinstance(access, LdsAccess) else "scalar")
    if isinstance(access, GlobalAccess | CopyAccess | FormatAccess):
        return Note(access, access.kind)
    if mnemonic in _CACHE_OPERATIONS:
        return Note(kind=_CACHE_OPERATIONS[mnemonic])
    return Note(wait=counts_of(decoded.instruction)) if mnemonic == "s_waitcnt" else None


def _owners(addresses: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the last allocation that starts before each address and contains it, or -1."""
    where = np.searchsorted(starts, addresses, side="right") - 1
    while len(outside := np.flatnonzero((where >= 0) & (addresses >= ends[where]))):
        where[outside] -= 1
    return where


def _swap_registers(access: GlobalAccess | CopyAccess) -> tuple[range, range] | None:
    """Return the compared registers and the old value's registers of a compare-and-swap that returns the old value."""
    if isinstance(access, CopyAccess) or access.operation != native.CMPSWAP or access.target < 0:
        return None
    words = access.size // 4
    return range(access.data + words, access.data + 2 * words), range(access.target, access.target + words)


def _words(wf: Wavefronts, registers: range) -> np.ndarray:
    """Return the registers as uint32[registers, W, 64]."""
    return np.stack([wf.v[r >> 1][:, :, r & 1] for r in registers])
