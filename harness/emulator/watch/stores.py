"""A watch for one byte: the stores and atomics that wrote it, to explain a wrong element."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.emulator.operations.access import ATOMIC, STORE, GlobalAccess
from harness.emulator.operations.table import Step
from harness.emulator.program.decode import Decoded
from harness.emulator.watch.base import Watch
from harness.emulator.wavefront.state import Wavefronts

if TYPE_CHECKING:
    from harness.emulator.execution.allocations import Allocation
    from harness.emulator.execution.launch import Launch

LIMIT = 8
"""Writers that are kept: one for each instruction."""


class Stores(Watch):
    """Records the instructions that wrote a byte of a rank's symmetric memory. Call ``aim`` before the launches."""

    name = "stores"

    def aim(self, rank: int, address: int, here: int) -> None:
        """Watch a byte of ``rank``. ``address``: that of the same byte in this process's memory; ``here``: the rank of
        this process."""
        self._rank, self._address, self._here = rank, address, here
        self._hits: dict[tuple[str, int], dict[str, Any]] = {}

    @property
    def hits(self) -> list[dict[str, Any]]:
        """The writers so far, in the order of their first store: kernel, work-group, lane, instruction and source."""
        return list(self._hits.values())

    def instrument(self, decoded: Decoded) -> Step | None:
        access = decoded.access
        if isinstance(access, GlobalAccess) and access.kind in (STORE, ATOMIC):
            return self._watching(access, decoded.step)
        return decoded.step

    def _watching(self, access: GlobalAccess, plain: Step | None) -> Step:
        def step(wf: Wavefronts) -> None:
            launch = wf.chunk.launch
            if (byte := self._byte(launch)) is not None:
                addresses, lanes = access.addresses(wf)
                hit = lanes & (addresses <= np.uint64(byte)) & (np.uint64(byte) < addresses + np.uint64(access.size))
                if hit.any():
                    self._note(access, wf, hit)
            if plain is not None:
                plain(wf)

        return step

    def _note(self, access: GlobalAccess, wf: Wavefronts, hit: np.ndarray) -> None:
        launch, instruction = wf.chunk.launch, access.instruction
        key = launch.program.name, instruction.line
        if key in self._hits or len(self._hits) >= LIMIT:
            return
        row, lane = (int(index) for index in np.argwhere(hit)[0])
        self._hits[key] = {
            "rank": self._here,
            "kernel": launch.program.name,
            "wavefront": int(wf.wave[row]),
            "lane": lane,
            "instruction": instruction.text,
            "source": instruction.source,
        }

    def _byte(self, launch: Launch) -> int | None:
        """Return the byte's address in the launching process; None if it cannot access the rank's memory."""
        known = launch.table.allocations
        own = next((each for each in known if each.contains(self._address, 1)), None)
        if own is None or self._here == self._rank:
            return None if own is None else self._address
        theirs = (each for each in known if each.peer == self._rank and _kind(each) == _kind(own))
        return next((each.address + self._address - own.address for each in theirs), None)


def _kind(allocation: Allocation) -> tuple[int, str]:
    """Return the properties that the allocations of one symmetric allocation share: size, and label without rank."""
    return allocation.size, re.sub(r"\d+", "", allocation.label)
