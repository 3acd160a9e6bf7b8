"""Counts of stalls: executions of s_waitcnt with more operations outstanding than it allows.

On hardware such a wait lasts until the memory has answered, which may be at once; here nothing takes time, so the count
is an upper bound of the stalls of a kernel. A wait is counted once, under the slowest kind of operation it waits for.
"""

from __future__ import annotations

from harness.emulator.execution.launch import Launch
from harness.emulator.listing.instructions import Instruction
from harness.emulator.watch.check.queues import LGKMCNT_MOST, VMCNT_MOST
from harness.emulator.wavefront.state import Wavefronts

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
"""Kinds of outstanding operations, the slowest first. *peer*: at least one lane accessed another rank's memory."""


class Stalls:
    """Outstanding operations of each wavefront of one launch, by the counters vmcnt and lgkmcnt."""

    def __init__(self, launch: Launch) -> None:
        self._counts = launch.stalls
        self._vm: dict[int, list[str]] = {}
        self._lgkm: dict[int, list[str]] = {}

    def issue(self, wave: int, kind: str) -> None:
        """Add an operation of ``wave``. If its counter is full, the oldest one has completed."""
        share = kind in ("lds", "scalar")
        queue = (self._lgkm if share else self._vm).setdefault(wave, [])
        queue.append(kind)
        if len(queue) > (LGKMCNT_MOST if share else VMCNT_MOST):
            del queue[0]

    def wait(self, wf: Wavefronts, instruction: Instruction, vm: int, lgkm: int) -> None:
        """Execute an s_waitcnt: at most ``vm`` and ``lgkm`` operations stay outstanding."""
        for wave in wf.wave.tolist():
            waited = [*_completed(self._vm.get(wave, []), vm), *_completed(self._lgkm.get(wave, []), lgkm)]
            if waited:
                key = min(waited, key=KINDS.index), instruction.source
                self._counts[key] = self._counts.get(key, 0) + 1


def _completed(queue: list[str], allowed: int) -> list[str]:
    """Remove the oldest operations from ``queue`` until ``allowed`` are left, and return them."""
    done = queue[: max(0, len(queue) - allowed)]
    del queue[: len(done)]
    return done
