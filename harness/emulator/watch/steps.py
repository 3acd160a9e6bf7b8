"""The steps of a kernel that other ranks can notice, each with a call before it: a test can hold a rank back there.

    watch = Steps(lambda number: print("before step", number))
    with driver.watched(watch):
        kernel[grid](...)
    watch.count                      # steps since the construction, or the last ``restart``

A step is an access to a peer's memory, an atomic, or another access at agent or system scope, such as the load of a
flag. An instruction that is executed again with no other step in between is not a new step, so that a loop that polls
is one step however long it waits. Wavefronts at the same instruction execute it as one step. Memory is as in mode
``fast``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.emulator.operations.access import ATOMIC, GlobalAccess
from harness.emulator.operations.table import Step
from harness.emulator.program.decode import Decoded
from harness.emulator.watch.base import Watch
from harness.emulator.watch.choices import Choices
from harness.emulator.wavefront.state import Wavefronts

_WIDE = ("agent", "system")


class Steps(Watch):
    """See the module docstring. ``before(number)`` is called before each step, with numbers from 1."""

    name = "steps"

    def __init__(self, before: Callable[[int], None]) -> None:
        super().__init__()
        self.before = before
        self.restart(None)

    def restart(self, choices: Choices | None) -> None:
        super().restart(choices)
        self.count = 0
        self._last: tuple[int, int] | None = None

    def instrument(self, decoded: Decoded) -> Step | None:
        access, plain = decoded.access, decoded.step
        if not isinstance(access, GlobalAccess) or plain is None:
            return plain
        always = access.kind == ATOMIC or access.scope in _WIDE

        def step(wf: Wavefronts) -> None:
            here = id(wf.chunk.launch), access.instruction.index
            if here != self._last and (always or _reaches_a_peer(wf, access)):
                self._last = here
                self.count += 1
                self.before(self.count)
            plain(wf)

        return step


def _reaches_a_peer(wf: Wavefronts, access: GlobalAccess) -> bool:
    addresses, taking = access.addresses(wf)
    starts, _, peers = wf.chunk.launch.table.arrays
    if not peers.any():
        return False
    # An address outside of every allocation is a fault, which the access itself raises.
    places = np.searchsorted(starts, addresses[taking], side="right") - 1
    return bool(peers[places[places >= 0]].any())
