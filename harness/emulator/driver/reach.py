"""The memory that a launch can access through its arguments, and the arguments that lead to other ranks' memory.

A table of heap bases is known by its entries: addresses in memory that is registered for another rank. An argument may
also hold the address of such a table, or point to another rank's memory itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from harness.emulator.driver.arguments import Arguments, Memory
from harness.emulator.execution.allocations import Allocations, Table
from harness.emulator.native import survey

_Found = tuple[tuple[int, ...] | None, tuple[int, ...]]


class Reach:
    """Memory of launches with arguments of the same storages; ``survey`` reads what it holds.

    ``table`` is that of the last of these launches, for the next one.
    """

    def __init__(
        self,
        arguments: Arguments,
        memory: Sequence[Memory],
        tensors: Sequence[tuple[int, int]],
        allocations: Allocations,
        rank: int | None,
    ) -> None:
        """``tensors``: address and number of the elements of tensors of 64-bit integers."""
        self.table: Table | None = None
        self._state = allocations.state
        self._positions = arguments.positions
        own, others = allocations.ranges(rank)
        self._others = bool(others)
        lists = (
            arguments.candidates,
            [*own, *((address, address + size) for address, size, _ in memory)],
            others,
            tensors,
        )
        # Kept, since native code has their addresses.
        self._arrays = [np.array(each, np.int64) for each in lists]
        self._results = np.zeros(max(1, len(arguments.candidates)), np.uint8)
        offsets, readable, peers, elements = ((each.ctypes.data, len(each)) for each in self._arrays)
        self._control = np.array(
            [arguments.address, *offsets, *readable, *peers, *elements, self._results.ctypes.data], np.int64
        )
        self._address = int(self._control.ctypes.data)
        self._survey = survey.survey()
        self._found: dict[bytes, _Found] = {}

    def holds(self, allocations: Allocations) -> bool:
        """Return whether nothing was registered since this was made, and nothing removed."""
        return self._state is allocations.state

    def survey(self) -> bool:
        """Read the arguments and the memory that they lead to; return whether the owner of every address is known."""
        return self._survey(self._address) == 1

    def found(self) -> _Found:
        """Return the positions of the arguments that lead to addresses of other ranks' memory, and of those that are
        such, at the last ``survey``.

        The first result is None if no other rank's memory is registered.
        """
        if not self._others:
            return None, ()
        results = self._results.tobytes()
        found = self._found.get(results)
        if found is None:
            at = [(position, int(result)) for position, result in zip(self._positions, results, strict=False)]
            found = self._found[results] = (
                tuple(position for position, result in at if result == survey.TABLE),
                tuple(position for position, result in at if result == survey.PEER),
            )
        return found


def elements_of(tensors: Sequence[tuple[str, torch.Tensor]]) -> tuple[tuple[int, int], ...] | None:
    """Return address and number of the elements of tensors; None if the elements of one are apart."""
    if not all(tensor.is_contiguous() for _, tensor in tensors):
        return None
    return tuple((tensor.data_ptr(), tensor.numel()) for _, tensor in tensors)
