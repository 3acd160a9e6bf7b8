"""Running a launch: which wavefronts go next, and when they part, wait and meet again.

The grid is cut into chunks of whole work-groups. The wavefronts of a chunk start together and stay one array as long as
they agree on every branch. When they part, the part at the lower address goes on first, and parts that stand at the
same block are joined again: divergent wavefronts meet where the control flow does.

Fairness: after ``QUANTUM`` jumps backwards wavefronts have used a turn, and those with the fewest turns go next. A spin
therefore never starves what it waits for, in this work-group, in another one, or (by yielding the processor) in another
rank. s_barrier holds a wavefront until all of its work-group that have not ended have arrived, at whichever s_barrier
they stand, as on the hardware.
"""

from __future__ import annotations

import os
import time

import numpy as np

from harness.emulator import program as p
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.launch import Chunk, Launch
from harness.emulator.state import Wavefronts

QUANTUM = 16
POLL_QUANTUM = 2
# Wavefronts executed as one array: enough to amortise NumPy's overhead, few enough for the registers to stay in cache.
CHUNK_WAVES = 128
# As many wavefronts as an MI300X holds at once: 304 compute units of 32.
RESIDENT_WAVES = 304 * 32
_SPINS_BEFORE_SLEEP = 64
_SLEEP_SECONDS = 50e-6
_LONGEST_SLEEP_SECONDS = 500e-6


class Scheduler:
    """Runs one launch to its end on the calling thread."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.program = launch.program
        self.blocks = launch.program.blocks
        self.ready: list[Wavefronts] = []
        per_chunk = max(1, CHUNK_WAVES // launch.waves_per_group)
        starts = range(0, launch.groups, per_chunk)
        self.pending = [(first, min(per_chunk, launch.groups - first)) for first in reversed(starts)]
        self.resident = 0
        self.idle_rounds = 0
        self.round = 0

    def run(self) -> None:
        """Execute every wavefront; raises the kernel's fault."""
        with np.errstate(all="ignore"):
            while True:
                wavefronts = self._next()
                if wavefronts is None:
                    return
                self._run(wavefronts)

    def describe(self) -> str:
        """Where every wavefront of the launch is; for hang reports, safe to call at any time."""
        lines = [f"kernel {self.program.name}, grid {self.launch.grid}, {len(self.pending)} chunks not started"]
        for wavefronts in [self.current, *self.ready] if self.current else self.ready:
            lines.append("  running " + self._where(wavefronts))
        for chunk in self.launch.chunks:
            for wavefronts in chunk.at_barrier:
                lines.append("  at s_barrier " + self._where(wavefronts))
        return "\n".join(lines)

    current: Wavefronts | None = None

    def _where(self, wavefronts: Wavefronts) -> str:
        block = self.blocks[wavefronts.block]
        instruction = self.program.listing.instructions[block.first]
        spin = f", {wavefronts.turn} turns used" if wavefronts.turn else ""
        waves = wavefronts.wave
        which = f"wavefronts {waves[0]}..{waves[-1]} ({len(waves)})" if len(waves) > 1 else f"wavefront {waves[0]}"
        return f"{which} at {instruction.text!r} ({instruction.source}){spin}"

    # -- choosing ----------------------------------------------------------------------------------------------------

    def _next(self) -> Wavefronts | None:
        ready = self.ready
        lowest = min((w.turn for w in ready), default=None)
        if self.pending and (lowest is None or lowest > 0) and self.resident < RESIDENT_WAVES:
            first, count = self.pending.pop()
            chunk = self.launch.start(first, count)
            self.resident += chunk.live
            return chunk.wavefronts
        if lowest is None:
            # The last wavefront to arrive or to end releases a barrier, so nobody can be left waiting.
            assert not any(chunk.at_barrier for chunk in self.launch.chunks)  # sanity check
            return None
        if lowest > self.round:
            # Everyone ready has used a turn without ending: others, in other ranks, may be what they wait for.
            self.round = lowest
            self._yield()
        best = min(ready, key=lambda w: (w.turn, w.chunk.index, w.block))
        same = [w for w in ready if w.chunk is best.chunk and w.block == best.block]
        if len(same) == 1:
            ready.remove(best)
            return best
        self.ready = [w for w in ready if w.chunk is not best.chunk or w.block != best.block]
        return Wavefronts.merge(same)

    def _yield(self) -> None:
        self.idle_rounds += 1
        if self.idle_rounds < _SPINS_BEFORE_SLEEP:
            os.sched_yield()
        else:
            # The longer nothing ends here, the more of the processor goes to the ranks that are waited for.
            longer = self.idle_rounds / _SPINS_BEFORE_SLEEP
            time.sleep(min(_SLEEP_SECONDS * longer, _LONGEST_SLEEP_SECONDS))

    # -- executing ---------------------------------------------------------------------------------------------------

    def _run(self, wf: Wavefronts) -> None:
        """Run these wavefronts until they end, wait, part, or should let others go first."""
        self.current = wf
        blocks, tally, lanes = self.blocks, self.launch.waves, self.launch.lanes
        step = None
        try:
            while True:
                block = blocks[wf.block]
                count = len(wf.wave)
                for segment in block.segments:
                    tally[segment.index] += count
                    lanes[segment.index] += wf.active
                    for step in segment.steps:
                        step(wf)
                end = block.end
                if end == p.FALL:
                    wf.block += 1
                elif end == p.BRANCH:
                    taken = block.taken(wf)  # type: ignore[misc]
                    if taken.all():
                        if self._jump(wf, block):
                            return
                    elif not taken.any():
                        wf.block += 1
                    else:
                        self._part(wf, block, taken)
                        return
                elif end == p.JUMP:
                    if self._jump(wf, block):
                        return
                elif end == p.BARRIER:
                    wf.block += 1
                    if count != wf.chunk.live:
                        self._wait(wf)
                        return
                elif end == p.SLEEP:
                    wf.block += 1
                    os.sched_yield()
                else:
                    self._end(wf)
                    return
                if self.ready and self._meets(wf):
                    self.ready.append(wf)
                    return
        except UnimplementedInstruction:
            raise
        except (ValueError, TypeError, IndexError, KeyError) as error:
            instruction = self._instruction_of(wf, step)
            raise UnimplementedInstruction(
                f"kernel {self.program.name}: executing {instruction} failed in the emulator: {error!r}"
            ) from error
        finally:
            self.current = None

    def _instruction_of(self, wf: Wavefronts, step: object) -> str:
        for segment in self.blocks[wf.block].segments:
            for candidate, instruction in zip(segment.steps, segment.instructions, strict=True):
                if candidate is step:
                    return f"{instruction.text!r} ({instruction.source})"
        return "an unknown instruction"

    def _meets(self, wf: Wavefronts) -> bool:
        """True when siblings that parted stand here, or behind: they are joined, or go first."""
        return any(w.chunk is wf.chunk and w.turn <= wf.turn and w.block <= wf.block for w in self.ready)

    def _jump(self, wf: Wavefronts, block: p.Block) -> bool:
        """Go to the branch target; True when that used up the turn."""
        wf.block = block.target
        if block.target > block.index:
            return False
        wf.loops += 1
        if wf.loops < (POLL_QUANTUM if block.polls else QUANTUM):
            return False
        wf.loops = 0
        if not block.polls and not self.ready and not self.pending:
            return False  # a counted loop with nobody to wait for
        wf.turn += 1
        self.ready.append(wf)
        return True

    def _part(self, wf: Wavefronts, block: p.Block, taken: np.ndarray) -> None:
        stay, go = wf.select(~taken), wf.select(taken)
        stay.block += 1
        go.block = block.target
        if block.target <= block.index:
            go.turn += 1 if block.polls else 0
        self.ready += [stay, go]

    # -- barriers and ends -------------------------------------------------------------------------------------------

    def _end(self, wf: Wavefronts) -> None:
        chunk = wf.chunk
        chunk.live -= len(wf)
        self.resident -= len(wf)
        self.idle_rounds = 0
        if chunk.live:
            np.subtract.at(chunk.live_in_group, chunk.group_of(wf.wave), 1)
            if chunk.at_barrier:
                self._release(chunk)
        else:
            self.launch.finish(chunk)

    def _wait(self, wf: Wavefronts) -> None:
        wf.chunk.at_barrier.append(wf)
        self._release(wf.chunk)

    def _release(self, chunk: Chunk) -> None:
        """Let go every work-group whose live wavefronts have all arrived."""
        arrived = np.zeros_like(chunk.live_in_group)
        for wf in chunk.at_barrier:
            np.add.at(arrived, chunk.group_of(wf.wave), 1)
        complete = (arrived == chunk.live_in_group) & (arrived > 0)
        if not complete.any():
            return
        waiting, chunk.at_barrier = chunk.at_barrier, []
        # Of a spinning work-group only some wavefronts jump backwards; all that met here have used what those used.
        turn = max(wf.turn for wf in waiting)
        for wf in waiting:
            go = complete[chunk.group_of(wf.wave)]
            if not go.any():
                chunk.at_barrier.append(wf)
                continue
            if not go.all():
                chunk.at_barrier.append(wf.select(~go))
                wf = wf.select(go)
            wf.turn = turn
            self.ready.append(wf)
