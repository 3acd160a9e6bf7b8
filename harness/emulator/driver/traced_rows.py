"""Memory into which ``native.replay`` and ``native.flows`` write: rows that grow, and the shadow of stored bytes."""

from __future__ import annotations

import numpy as np

from harness.emulator.native import flows

_MOST_AT_ONCE = 1 << 16
"""Rows of a block of memory; the rows of one launch are in one block, which may be larger."""


class Rows:
    """Rows of ``fields`` int64 each. Native code has their address, number and room, in three fields of ``state``.

    Rows of a launch that has ended stay where they are, and the following ones are behind them.
    """

    def __init__(self, state: np.ndarray, field: int, fields: int) -> None:
        self._state = memoryview(state[field : field + 3])  # type: ignore[arg-type]
        self._fields = fields
        self._first = 0
        self._size = 256
        self._use(np.empty((0, fields), np.int64))

    @property
    def used(self) -> np.ndarray:
        """The rows of the launch, int64[n, fields]."""
        return self._block[self._first : self._first + self._state[1]]

    def begin(self, room: int, kept: bool = True) -> None:
        """Begin a launch with room for at least ``room`` rows. ``kept``: the rows of the last one stay."""
        if kept:
            self._first += self._state[1]
        self._state[1] = 0
        if len(self._block) - self._first < room:
            self._renew(room)
        else:
            self._place()

    def make_room(self, room: int) -> None:
        """Make room for ``room`` more rows."""
        if self._state[2] - self._state[1] < room:
            self._renew(max(2 * self._state[1], self._state[1] + room))

    def _renew(self, rows: int) -> None:
        self._size = min(2 * self._size, _MOST_AT_ONCE)
        block = np.empty((max(rows, self._size), self._fields), np.int64)
        used = self.used
        block[: len(used)] = used
        self._first = 0
        self._use(block)

    def _use(self, block: np.ndarray) -> None:
        self._block, self._address = block, int(block.ctypes.data)
        self._place()

    def _place(self) -> None:
        self._state[0] = self._address + 8 * self._fields * self._first
        self._state[2] = len(self._block) - self._first


class FlowMemory:
    """The state of ``native.flows``, which is cleared for each launch."""

    def __init__(self) -> None:
        state = np.zeros(flows.STATE_BYTES >> 3, np.int64)
        self._state = memoryview(state)  # type: ignore[arg-type]
        self.address = int(state.ctypes.data)
        noted, lists, pairs = (field >> 3 for field in (flows.NOTED, flows.LISTS, flows.PAIRS))
        self._noted = Rows(state, noted, flows.NOTED_FIELDS)
        self._lists = Rows(state, lists, 64)
        self.pairs = Rows(state, pairs, 2)
        self._pages = np.zeros(flows.PAGE_WORDS, np.int64)
        self._state[flows.PAGES >> 3] = self._pages.ctypes.data
        flows.prepare()
        self._make_shadow(1 << 10)

    def begin(self) -> None:
        state = self._state
        if state[flows.NOTED + 8 >> 3]:
            self._pages.fill(0)
        if state[flows.GRANULES >> 3]:
            self._keys.fill(0)
        state[flows.NOTED_GRANULES >> 3] = state[flows.GRANULES >> 3] = 0
        self._noted.begin(flows.MOST_NOTED, kept=False)
        self._lists.begin(flows.MOST_NOTED, kept=False)
        self.pairs.begin(flows.MOST_PAIRS)

    def make_room(self) -> None:
        """Make room for what one access may need."""
        self._noted.make_room(flows.MOST_NOTED)
        self._lists.make_room(flows.MOST_NOTED)
        self.pairs.make_room(flows.MOST_PAIRS)
        needed = flows.MOST_GRANULES + self._state[flows.GRANULES >> 3] + self._state[flows.NOTED_GRANULES >> 3]
        if 2 * needed > len(self._keys):
            keys, writers = self._keys, self._writers
            self._make_shadow(1 << (4 * needed - 1).bit_length())
            flows.rehash(self.address, keys.ctypes.data, writers.ctypes.data, len(keys))

    def _make_shadow(self, capacity: int) -> None:
        self._keys, self._writers = np.zeros(capacity, np.int64), np.empty((capacity, 16), np.int32)
        self._state[flows.KEYS >> 3] = self._keys.ctypes.data
        self._state[flows.WRITERS >> 3] = self._writers.ctypes.data
        self._state[flows.CAPACITY >> 3] = capacity
