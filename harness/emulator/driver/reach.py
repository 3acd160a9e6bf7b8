"""The memory that a launch can access through its arguments, and the arguments that lead to other ranks' memory.

A table of heap bases is known by its entries: addresses in memory that is registered for another rank. An argument may
also hold the address of such a table, or point to another rank's memory itself.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.driver.arguments import Arguments, Placed
from harness.emulator.execution.allocations import Allocations, Table
from harness.emulator.execution.tally import Facts
from harness.emulator.native import survey

_Positions = tuple[tuple[int, ...] | None, tuple[int, ...]]


class Reach:
    """Memory of launches with arguments of the same storages; ``survey`` reads what it holds.

    ``table`` and ``facts`` are those of the last of these launches, for the next one.
    """

    def __init__(
        self,
        arguments: Arguments,
        placed: Placed,
        allocations: Allocations,
        rank: int | None,
    ) -> None:
        self.table: Table | None = None
        self.facts: Facts | None = None
        self._state = allocations.state
        self._positions = arguments.positions
        own, others = allocations.ranges(rank)
        self._others = bool(others)
        readable = [*own, *((address, address + size) for address, size, _ in placed.memory)]
        self._results = np.zeros(max(1, len(arguments.candidates)), np.uint8)
        pairs = readable, others, placed.tensors
        lists = [arguments.candidates, *([word for pair in each for word in pair] for each in pairs)]
        # The control, and what it has the addresses of: one array, since each costs a microsecond.
        self._control = np.array([0] * survey.CONTROL_FIELDS + [word for each in lists for word in each], np.int64)
        self._address = int(self._control.ctypes.data)
        fields, at = [arguments.address], self._address + 8 * survey.CONTROL_FIELDS
        for words, each in zip((1, 2, 2, 2), lists, strict=True):
            fields += (at, len(each) // words)
            at += 8 * len(each)
        self._control[: survey.CONTROL_FIELDS] = [*fields, self._results.ctypes.data]
        self._survey = survey.survey()
        self._decoded: dict[bytes, _Positions] = {}

    def holds(self, allocations: Allocations) -> bool:
        """Return whether nothing was registered since this was made, and nothing removed."""
        return self._state is allocations.state

    def survey(self) -> bool:
        """Read the arguments and the memory that they lead to; return whether the owner of every address is known.

        The elements of a tensor that is not contiguous are not read, so it is not known.
        """
        return self._survey(self._address) == 1

    def positions(self) -> _Positions:
        """Return the positions of the arguments that lead to addresses of other ranks' memory, and of those that are
        such, at the last ``survey``.

        The first result is None if no other rank's memory is registered.
        """
        if not self._others:
            return None, ()
        results = self._results.tobytes()
        positions = self._decoded.get(results)
        if positions is None:
            at = [(position, int(result)) for position, result in zip(self._positions, results, strict=False)]
            positions = self._decoded[results] = (
                tuple(position for position, result in at if result == survey.TABLE),
                tuple(position for position, result in at if result == survey.PEER),
            )
        return positions
