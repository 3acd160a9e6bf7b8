"""Log of native code in mode ``race``, from which Python judges the accesses that native code leaves to it.

``Log`` has the methods of ``HappensBefore``, or of ``Recording``, that the mode calls. Before one of them judges
anything, all events that native code has logged are judged: so the verdicts are those of ``HappensBefore``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from harness.emulator.listing.instructions import Instruction
from harness.emulator.native import race_order, race_shadow, race_steps, weak_state
from harness.emulator.native import race_state as st
from harness.emulator.native.flight_state import ATOMIC as NATIVE_ATOMIC
from harness.emulator.native.flight_state import LOAD as NATIVE_LOAD
from harness.emulator.native.flight_state import STORE as NATIVE_STORE
from harness.emulator.operations.access import ATOMIC, LOAD, STORE
from harness.emulator.watch.choices import Choices
from harness.emulator.watch.decisions import Decisions, aligned
from harness.emulator.watch.race_history import Cell, events
from harness.emulator.watch.race_order import WAVE, Launched
from harness.emulator.watch.race_record import Recording
from harness.emulator.watch.race_report import Effect
from harness.emulator.watch.race_state import HappensBefore

KINDS = {LOAD: NATIVE_LOAD, STORE: NATIVE_STORE, ATOMIC: NATIVE_ATOMIC}
_NAMES = {number: name for name, number in KINDS.items()}
BLOCK_WORDS, MOST_BLOCKS, MOST_KEPT_BLOCKS = 1 << 18, 128, 16
"""The log: int64 words in a block (2 MiB), blocks at most, and blocks kept from run to run. Python judges the events of
a full log, to empty it."""
MOST_MEMORY_BLOCKS = 256
"""Of 1 MiB each, for the histories and clocks of a run. Beyond these, Python judges all accesses."""
FIRST_PAGES, FIRST_CELLS = 1 << 10, 1 << 12
MOST_PAGES = 1 << 15
"""Pages whose shadows are kept from run to run: 512 MiB."""
_LAST_CELL = 1 << 30


class Native(Decisions):
    """State of native code, at ``state``; see ``native.race_state``. ``judge()``: Python judges the logged events.

    ``launches``: what native code reads of the launches of the run; ``full``: Python judges all their accesses.
    """

    def __init__(self, choices: Choices, judge: Callable[[], None]) -> None:
        super().__init__(choices, {weak_state.MORE: self._more})
        race_order.prepare()
        race_steps.prepare()
        self._judge = judge
        self._fields = np.zeros(st.STATE_BYTES >> 3, np.int64)
        self.state = self._fields.ctypes.data
        self._pages: dict[int, np.ndarray] = {}
        # The blocks of the log, with their addresses.
        self._logs: list[tuple[np.ndarray, int]] = []
        self._cells = np.zeros(FIRST_CELLS * race_shadow.CELL_BYTES, np.uint8)
        self._put(st.MODEL, self.address)
        self._put(st.FIRST_CELL, 1)
        self._put(st.NEXT_CELL, 2)
        self._hash_pages()
        self.begin(records=False)

    def _put(self, field: int, value: int) -> None:
        self._fields[field >> 3] = value

    def _at(self, field: int) -> int:
        return int(self._fields[field >> 3])

    def begin(self, records: bool) -> None:
        """Forget all accesses. ``records``: the accesses are recorded, and not judged."""
        self.forget_structures()
        first = self._at(st.NEXT_CELL)
        if first > _LAST_CELL or len(self._pages) > MOST_PAGES:
            self._pages.clear()
            self._hash_pages()
            first = 1
        self._put(st.FIRST_CELL, first)
        self._put(st.NEXT_CELL, first + 1)
        self._put(st.RECORDS, records)
        if self._cells.nbytes > 64 * FIRST_CELLS * race_shadow.CELL_BYTES:
            self._cells = np.zeros(FIRST_CELLS * race_shadow.CELL_BYTES, np.uint8)
        self._use_cells()
        self._threads = np.zeros(0, np.int64)
        self.launches: list[np.ndarray] = []
        self.full = False
        del self._logs[MOST_KEPT_BLOCKS:]
        # Blocks that are full, with their addresses and the ends of what they have.
        self._used: list[tuple[np.ndarray, int, int]] = []
        self._block = -1
        self._next_block()

    def add_threads(self, count: int) -> int:
        """Make room for the wavefronts of a launch; return the number of the first one."""
        first = len(self._threads)
        self._threads = np.concatenate([self._threads, np.zeros(count, np.int64)])
        self._put(st.THREADS, self._threads.ctypes.data)
        return first

    def take(self) -> list[np.ndarray]:
        """Return the words of the log, block by block, and empty it. They are valid until native code runs."""
        used = [*self._used, (*self._logs[self._block], self._at(st.LOG_AT))]
        self._used, self._block = [], -1
        self._next_block()
        return [block[: (end - address) >> 3] for block, address, end in used]

    def append(self, event: int, key: int, *words: int) -> None:
        """Append an event of Python to the log."""
        if self._at(st.LOG_AT) + 8 * st.MOST_WORDS > self._at(st.LOG_END):
            self._make_room()
        block, address = self._logs[self._block]
        at = (self._at(st.LOG_AT) - address) >> 3
        block[at : at + 3] = (event | key << 32, *words, *(0,) * (2 - len(words)))
        self._put(st.LOG_AT, self._at(st.LOG_AT) + 24)

    def executed(self, record: int, is_scalar: bool) -> None:
        """Python has executed an access of the wavefront whose record is given."""
        race_steps.executed(record, is_scalar)

    def restore(self, address: int, size: int, accesses: np.ndarray) -> None:
        """Replace the history of bytes; see ``race_shadow.cell_of``."""
        race_steps.restore(self.state, address, size, accesses.ctypes.data, len(accesses))

    def name_copies(self, pairs: np.ndarray) -> None:
        """Set the pairs of accesses that have been reported as those of copies, int64[n, 2]: load and store."""
        self._copies = pairs
        self._put(st.COPIES, pairs.ctypes.data)
        self._put(st.COPIES_COUNT, len(pairs))

    # -- memory ------------------------------------------------------------------------------------------------------

    def _more(self, wanted: int, argument: int) -> int:
        if wanted == weak_state.MEMORY:
            self.more_memory(argument)
            self.full |= self._used_blocks > MOST_MEMORY_BLOCKS
            for launch in self.launches if self.full else ():
                launch[st.BY_PYTHON >> 3] = 1
        elif wanted == st.LOG:
            self._make_room()
        elif wanted == st.PAGE:
            self._pages[argument] = _aligned_page()
            if 2 * len(self._pages) > self._at(st.PAGES_MASK):
                self._hash_pages()
            else:
                self._hash(argument)
        else:
            more = np.zeros(2 * self._cells.nbytes, np.uint8)
            more[: self._cells.nbytes] = self._cells
            self._cells = more
            self._use_cells()
        return 0

    def _make_room(self) -> None:
        if len(self._used) + 1 < MOST_BLOCKS:
            self._used.append((*self._logs[self._block], self._at(st.LOG_AT)))
            self._next_block()
        else:
            self._judge()

    def _next_block(self) -> None:
        self._block += 1
        if self._block == len(self._logs):
            block = np.empty(BLOCK_WORDS, np.int64)
            self._logs.append((block, block.ctypes.data))
        _, address = self._logs[self._block]
        self._put(st.LOG_AT, address)
        self._put(st.LOG_END, address + 8 * BLOCK_WORDS)

    def _use_cells(self) -> None:
        self._put(st.CELLS, self._cells.ctypes.data)
        self._put(st.CELLS_END, self._at(st.FIRST_CELL) + self._cells.nbytes // race_shadow.CELL_BYTES)

    def _hash_pages(self) -> None:
        size = FIRST_PAGES
        while size < 4 * len(self._pages):
            size *= 2
        self._table = np.zeros((size, 2), np.int64)
        self._put(st.PAGES, self._table.ctypes.data)
        self._put(st.PAGES_MASK, size - 1)
        for page in self._pages:
            self._hash(page)

    def _hash(self, page: int) -> None:
        at = race_shadow.place_of(page, self._at(st.PAGES_MASK))
        while self._table[at, 0]:
            at = (at + 1) & self._at(st.PAGES_MASK)
        self._table[at] = page, self._pages[page].ctypes.data


def _aligned_page() -> np.ndarray:
    """Return an empty shadow of a page, whose granules' numbers start at a multiple of their size."""
    memory = aligned(race_shadow.SHADOW_BYTES + race_shadow.PAGE_SHADOW_BYTES)
    first = -memory.ctypes.data % race_shadow.PAGE_SHADOW_BYTES
    return memory[first : first + race_shadow.SHADOW_BYTES]


class Site(NamedTuple):
    """An instruction that accesses memory, as in ``Effect``; ``swaps``: it is a compare-and-swap."""

    kind: str
    scope: int
    instruction: Instruction
    size: int
    swaps: bool = False


_ALL = (1 << 64) - 1
_PLACES = np.arange(64, dtype=np.uint64)


@lru_cache(maxsize=1 << 12)
def _lanes(mask: int) -> np.ndarray:
    """Return the lanes in a mask, int64[n]."""
    lanes = np.array([lane for lane in range(64) if mask >> lane & 1], np.int64)
    lanes.flags.writeable = False
    return lanes


class Log:
    """See the module docstring.

    ``sites``: the instructions by the addresses of their descriptions; ``by_name``: these addresses by kernel and index
    of the instruction.
    """

    def __init__(
        self,
        native: Native,
        state: HappensBefore | Recording,
        sites: dict[int, Site],
        by_name: dict[tuple[str, int], int],
    ) -> None:
        self._native = native
        self._state = state
        self._sites = sites
        self._by_name = by_name
        self._launches: list[Launched] = []
        # Of each launch, its key for ``state``, and the number of its first thread.
        self._keys: list[int] = []
        self._firsts: list[int] = []
        self._copies = 0
        self._name_copies()

    # -- launches ----------------------------------------------------------------------------------------------------

    def start(self, launch: Launched, *more: Any) -> int:
        key = len(self._launches)
        self._launches.append(launch)
        self._firsts.append(self._native.add_threads(launch.waves))
        if isinstance(self._state, Recording):
            self.judge()
            self._keys.append(self._state.start(launch, *more))
        else:
            self._native.append(st.START, key)
        return key

    def first_thread(self, key: int) -> int:
        """Return the number of a launch's first thread."""
        return self._firsts[key]

    def finish(self, key: int) -> None:
        self._native.append(st.FINISH, key)

    # -- instructions that Python executes ---------------------------------------------------------------------------

    def access(self, key: int, wave: int, effects: Sequence[Effect]) -> None:
        self.judge()
        self._state.access(self._keys[key], wave, effects)
        self._name_copies()

    def scalar(self, key: int, wave: int, effect: Effect) -> None:
        self.judge()
        self._state.scalar(self._keys[key], wave, effect)

    def executed(self, record: int, effects: Sequence[Effect], is_scalar: bool) -> None:
        """Python has executed an access of the wavefront whose record is given: native code learns what it has done."""
        self._native.executed(record, is_scalar)
        if not isinstance(self._state, HappensBefore):
            return
        for effect in effects:
            for address, size, cell in self._state.history(effect.addresses, effect.size):
                self._native.restore(address, size, self._accesses_of(cell))

    def _accesses_of(self, cell: Cell) -> np.ndarray:
        """Return the accesses in a cell as native code has them, int64[n, fields]."""
        rows = []
        for is_read, some in ((0, cell.writes), (1, reversed(events(cell.readers)))):
            for event in some:
                key, wave = event.thread.key, event.thread.wave
                launch = event.thread.launch
                number = self._firsts[self._keys.index(key)] + event.thread.group * launch.waves_per_group + wave
                site = self._by_name.get((launch.kernel, event.instruction.index), 0)
                kind = KINDS[event.kind]
                # Native code takes what reads a value for ordered after it: not so after several lanes.
                scope, atomic = (WAVE, False) if event.repeated else (event.scope, event.atomic)
                rows.append([number, event.number, kind, scope, atomic, site, is_read])
        return np.array(rows, np.int64).reshape(-1, race_shadow.EVENT_BYTES >> 3)

    def _name_copies(self) -> None:
        """Let native code know which copies have been reported."""
        if isinstance(self._state, HappensBefore) and len(self._state.replicated) != self._copies:
            self._copies = len(self._state.replicated)
            pairs = []
            for pair in self._state.copies:
                sites = [self._by_name[each] for each in pair if each in self._by_name]
                pairs += [(a, b) for a in sites for b in sites]
            self._native.name_copies(np.array(pairs, np.int64).reshape(-1, 2))

    def write_back(self, key: int, wave: int, scope: int) -> None:
        self._native.append(st.WRITE_BACK, key, wave, scope)

    def invalidate(self, key: int, wave: int, scope: int) -> None:
        self._native.append(st.INVALIDATE, key, wave, scope)

    def wait(self, key: int, wave: int, left: int) -> None:
        self._native.append(st.WAIT, key, wave, left)

    # -- the log -----------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Judge, or record, the events that native code has logged."""
        for block in self._native.take():
            words = block.tolist()
            at = 0
            while at < len(words):
                at += self._judge_event(words, at)

    def _judge_event(self, words: list[int], at: int) -> int:
        """Judge the event whose first word is at an index; return the number of its words."""
        state, event, number = self._state, words[at] & 0xFF, words[at] >> 32
        if event == st.START:
            assert isinstance(state, HappensBefore)  # sanity check
            self._keys.append(state.start(self._launches[number]))
            return 3
        key = self._keys[number]
        if event in (st.ACCESS, st.SCALAR):
            wave, pieces = words[at + 1] & 0xFFFFFFFF, words[at + 1] >> 32
            effects = self._effects(words, at, pieces) if pieces else []
            if event == st.SCALAR:
                state.scalar(key, wave, effects[0])
            else:
                state.access(key, wave, effects)
            return 5 + (1 + pieces if pieces else 0)
        a, b = words[at + 1], words[at + 2]
        if event == st.CREATE:
            state.create(key, range(a, b))
        elif event == st.BARRIER:
            state.barrier(key, a)
        elif event == st.END:
            state.end(key, a)
        elif event == st.FINISH:
            state.finish(key)
        elif event == st.WAIT:
            state.wait(key, a, b)
        elif event == st.WRITE_BACK:
            state.write_back(key, a, b)
        else:
            state.invalidate(key, a, b)
        return 3

    def _effects(self, words: list[int], at: int, pieces: int) -> list[Effect]:
        site = self._sites[words[at + 2]]
        lanes, swaps, first = words[at + 3] & _ALL, words[at + 4] & _ALL, words[at + 5]
        parts = []
        for word in words[at + 6 : at + 6 + pieces]:
            start = first + (word >> race_steps.DISTANCE_SHIFT)
            count = word & (1 << race_steps.COUNT_BITS) - 1
            step = 0 if word & race_steps.SAME else site.size
            parts.append(np.uint64(start) + _PLACES[:count] * np.uint64(step))
        addresses = parts[0] if pieces == 1 else np.concatenate(parts)
        kind = site.kind if not site.swaps else ATOMIC if swaps else LOAD
        return [Effect(kind, site.scope, site.instruction, site.size, addresses, _lanes(lanes))]
