"""What wavefronts wait for: each s_waitcnt that finds more outstanding than it allows.

On hardware such a wait lasts until the memory has answered, unless it has by then; here nothing takes time, so this is
the most that a kernel can stall. A wait is counted once, by the slowest kind of what it waits for.
"""

from __future__ import annotations

from harness.emulator.launch import Launch
from harness.emulator.listing import Instruction
from harness.emulator.state import Wavefronts
from harness.emulator.watch.check.queues import LGKMCNT_MOST, VMCNT_MOST

KINDS = (
    "peer atomic",
    "peer load",
    "peer store",
    "atomic",
    "load",
    "write-back",
    "store",
    "invalidate",
    "lds",
    "scalar",
)
"""What is waited for, the slowest first. *peer*: some lane reached another rank's memory."""


class Stalls:
    """The operations that each wavefront of one launch has outstanding, by the counters vmcnt and lgkmcnt."""

    def __init__(self, launch: Launch) -> None:
        self._counts = launch.stalls
        self._vm: dict[int, list[str]] = {}
        self._lgkm: dict[int, list[str]] = {}

    def issue(self, wave: int, kind: str) -> None:
        """One more operation of ``wave``. A full counter holds no more: the oldest has completed."""
        share = kind in ("lds", "scalar")
        queue = (self._lgkm if share else self._vm).setdefault(wave, [])
        queue.append(kind)
        if len(queue) > (LGKMCNT_MOST if share else VMCNT_MOST):
            del queue[0]

    def wait(self, wf: Wavefronts, instruction: Instruction, vm: int, lgkm: int) -> None:
        """An s_waitcnt: at most so many are outstanding afterwards."""
        for wave in wf.wave.tolist():
            waited = [*_completed(self._vm.get(wave, []), vm), *_completed(self._lgkm.get(wave, []), lgkm)]
            if waited:
                key = min(waited, key=KINDS.index), instruction.source
                self._counts[key] = self._counts.get(key, 0) + 1


def _completed(queue: list[str], allowed: int) -> list[str]:
    """Takes the oldest from ``queue`` until ``allowed`` are left."""
    done = queue[: max(0, len(queue) - allowed)]
    del queue[: len(done)]
    return done
