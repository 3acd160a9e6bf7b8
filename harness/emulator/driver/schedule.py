"""The scheduler: decides which wavefronts run next, and when they diverge, wait and reconverge.

The grid is cut into chunks of whole work-groups. The wavefronts of a chunk start together and stay one array as long as
they agree on every branch. When they diverge, the part at the lower address continues first; parts that reach the same
block are joined again. So divergent wavefronts reconverge where the control flow does.

Fairness: wavefronts that have made ``QUANTUM`` backward jumps have used a turn, and those with the fewest turns run
next. A spin loop therefore never starves the wavefront that it waits for, whether that is in the same work-group, in
another one, or (because the processor is yielded) in another rank. s_barrier holds a wavefront until all wavefronts of
its work-group that have not ended have arrived at any s_barrier, as on the hardware.

A watched mode with ``Choices`` picks among all wavefronts that are at most ``SLACK`` turns ahead of the slowest; a mode
that ``interleaves`` runs each wavefront by itself and picks again at every memory instruction. The same choices give
the same interleaving. Of a launch with more wavefronts than ``WINDOW_WAVES``, the first work-groups start, and others
when those have ended: in turn, or in an order that the choices decide. Whenever all wavefronts have used a turn, twice
as many may be resident, since they may wait for others that have not started.

If no wavefront of the launches communicates, and the mode sees the same in ``any_order``, they are not switched: one
work-group after the other runs, and each wavefront of it up to a barrier, its end, or the end of its turn. The choices
decide the order of the work-groups, and which of the ready wavefronts of the same turn run first: those with the lowest
or those with the highest numbers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import gcd
from typing import NamedTuple

import numpy as np

from harness.emulator.driver.awaited import Polled, polled
from harness.emulator.driver.patience import Patience
from harness.emulator.driver.picking import Picking
from harness.emulator.driver.positions import failed, where
from harness.emulator.driver.progress import Progress
from harness.emulator.execution.launch import Chunk, Launch, nothing
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.program import decode as p
from harness.emulator.program.communication import communicates
from harness.emulator.watch.base import Watch
from harness.emulator.watch.choices import ORDER
from harness.emulator.wavefront.single import SingleWavefront
from harness.emulator.wavefront.state import LANES, Wavefronts

QUANTUM = 16
POLL_QUANTUM = 2
# Wavefronts executed as one array: enough to amortise the overhead of a step, few enough to keep registers in cache.
CHUNK_WAVES, CHUNK_BYTES = 512, 4 << 20
# As many wavefronts as an MI300X holds at once: 304 compute units of 32.
RESIDENT_WAVES = 304 * 32
# Of a watched mode with choices, until all of them have used a turn: registers of more do not fit in a core's caches.
WINDOW_WAVES = 64
_SPINS_BEFORE_SLEEP = 64
_SLEEP_SECONDS = 50e-6
_LONGEST_SLEEP_SECONDS = 500e-6
# A longer round of polls is followed by a sleep of its own length, up to a limit: at most half of a processor waits.
_SHORT_SECONDS, _LONGEST_BUSY_SECONDS = 100e-6, 10e-3


class Order(NamedTuple):
    """The order in which the work-groups of a launch start: from ``first`` on, each ``step`` after the last one."""

    first: int = 0
    step: int = 1

    def group(self, place: int, groups: int) -> int:
        """Return the number of the work-group at a place in the order, of ``groups``."""
        return (self.first + place * self.step) % groups


class Scheduler(Picking):
    """Runs launches to their end on the calling thread.

    ``streams`` are lists of launches: those of one stream run one after the other, the streams run concurrently.
    ``closed``: only these launches can change the memory that they read, so wavefronts that all wait for ever are
    reported (``NoProgress``) and the processor is not yielded. Otherwise that is reported after ``PATIENCE`` seconds in
    which no wavefront ended, if no other process or thread can change the memory. ``limit``: seconds after which
    ``TimeLimit`` is raised, None for no limit. ``isolated``: it is known that none can.
    """

    def __init__(
        self,
        streams: Sequence[Sequence[Launch]],
        watch: Watch | None = None,
        closed: bool = False,
        limit: float | None = None,
        isolated: bool = False,
    ) -> None:
        self.queues = [list(reversed(stream)) for stream in streams]
        self.watch = watch
        self.closed = closed
        choices = None if watch is None else watch.choices
        self.splits = watch is not None and watch.interleaves
        # A large launch has thousands of wavefronts to choose from.
        is_sorted = self.splits and choices is not None
        unswitched = (
            is_sorted
            and watch is not None
            and watch.any_order
            and not any(communicates(launch.program) for stream in streams for launch in stream)
        )
        super().__init__(choices, is_sorted, unswitched)
        self.launches: list[Launch] = []
        # Launches with work-groups that have not started: (launch, how many have, work-groups in a chunk, order).
        self.pending: list[tuple[Launch, int, int, Order]] = []
        self.resident = 0
        self.most_resident = min(WINDOW_WAVES, RESIDENT_WAVES) if self.sorted else RESIDENT_WAVES
        if self.unswitched:
            self.most_resident = 1  # one work-group
        self.idle_rounds = 0
        self.resumed = time.perf_counter()
        # Called when every ready wavefront has used a turn.
        self.polled: Callable[[], None] | None = None
        self.limit = limit
        self.patience = Patience(self)
        self.current: Wavefronts | None = None
        self.progress = Progress(self)
        if watch is not None:
            watch.begin(closed or isolated)
        for queue in self.queues:
            self._begin(queue)

    def run(self) -> None:
        """Execute every wavefront; raises the kernel's fault."""
        with np.errstate(all="ignore"):
            while True:
                wavefronts = self._next()
                if wavefronts is None:
                    if self.watch is not None:
                        self.watch.over()
                    return
                self._run(wavefronts)

    def describe(self) -> str:
        """Describe the position of every wavefront of the launches, for hang reports; safe to call at any time."""
        lines = []
        for launch in self.launches:
            lines.append(
                f"kernel {launch.program.name}, grid {launch.grid}, {launch.unstarted} work-groups not started"
            )
            current = [self.current] if self.current is not None else []
            for wavefronts in [*current, *self.ready]:
                if wavefronts.chunk.launch is launch:
                    lines.append("  running " + where(wavefronts, self.watch))
            for chunk in list(launch.chunks.values()):
                for wavefronts in chunk.at_barrier:
                    lines.append("  at s_barrier " + where(wavefronts, self.watch))
        return "\n".join(lines)

    def words_polled(self) -> list[Polled]:
        """Return the words that the wavefronts poll, for hang reports; safe to call at any time."""
        current = [self.current] if self.current is not None else []
        return [word for wavefronts in [*current, *self.ready] for word in polled(wavefronts, self.watch)]

    # -- launches ----------------------------------------------------------------------------------------------------

    def _begin(self, queue: list[Launch]) -> None:
        """Start the next launch of a stream."""
        if not queue:
            return
        launch = queue.pop()
        if self.watch is not None and self.choices is not None:
            launch.clock = self.watch.clock
        launch.then = partial(self._finished, launch, queue)
        self.launches.append(launch)
        if self.watch is not None:
            self.watch.start(launch)
        waves = min(CHUNK_WAVES, CHUNK_BYTES // (4 * LANES * (launch.program.vgprs + 2)))
        per_chunk = 1 if self.splits else max(1, waves // launch.waves_per_group)
        self.pending.insert(0, (launch, 0, per_chunk, self._order(launch) if self._is_wide(launch) else Order()))

    def _is_wide(self, launch: Launch) -> bool:
        """Return whether some work-groups of a launch start when others have ended, although more could be resident."""
        wide = self.unswitched or launch.groups * launch.waves_per_group > WINDOW_WAVES
        return self.sorted and wide and launch.groups > 1

    def _order(self, launch: Launch) -> Order:
        """Choose the order in which the work-groups of a launch start: one after the other, or scattered."""
        assert self.choices is not None  # sanity check
        if self.choices.pick(2, ORDER) == 0:
            return Order()
        first, step = (self.choices.pick(launch.groups, ORDER) for _ in range(2))
        while gcd(step, launch.groups) != 1:
            step += 1
        return Order(first, step)

    def _finished(self, launch: Launch, queue: list[Launch]) -> None:
        launch.then = nothing  # else only a search for garbage would find the launch and this scheduler
        self.launches.remove(launch)
        if self.watch is not None:
            self.watch.finish(launch)
        self._begin(queue)

    # -- choosing ----------------------------------------------------------------------------------------------------

    def _next(self) -> Wavefronts | None:
        if self.chosen is not None:
            chosen, self.chosen = self.chosen, None
            return chosen
        while self.splits and self._may_start():
            self._start_chunk()
        first = self.ready[:1] if self.sorted else self.ready
        lowest = min((w.turn for w in first), default=None)
        if not self.splits and self.pending and self.resident < RESIDENT_WAVES and (lowest is None or lowest > 0):
            self._start_chunk()
            return self.ready.pop()
        if lowest is None:
            # The last wavefront to arrive or to end releases a barrier, so none can be left waiting.
            assert not any(
                chunk.at_barrier for launch in self.launches for chunk in launch.chunks.values()
            )  # sanity check
            return None
        if lowest > self.round:
            # Every ready wavefront has used a turn without ending: they may wait for other ranks.
            self.round = lowest
            self._yield()
            if self.pending and self._widen():
                return self._next()
        if self.sorted:
            return self._pick_sorted(lowest)
        best: Wavefronts = self._pick(lowest, self.ready)
        if self.splits:
            self.ready.remove(best)
            return best
        same = [w for w in self.ready if w.chunk is best.chunk and w.block == best.block]
        if len(same) == 1:
            self.ready.remove(best)
            return best
        self.ready = [w for w in self.ready if w.chunk is not best.chunk or w.block != best.block]
        return Wavefronts.merge(same)

    def _may_start(self) -> bool:
        return bool(self.pending) and self.resident < self.most_resident

    def _widen(self) -> bool:
        """Let more wavefronts be resident, since all that are may wait; return whether more may."""
        before = self.most_resident
        self.most_resident = min(2 * before, RESIDENT_WAVES)
        return self.most_resident > before

    def _start_chunk(self) -> None:
        launch, started, per_chunk, order = self.pending.pop()
        count = min(per_chunk, launch.groups - started)
        if started + count < launch.groups:
            self.pending.append((launch, started + count, per_chunk, order))
        chunk = launch.start(order.group(started, launch.groups), count)
        if self._is_wide(launch):
            # Those that have run for long do not stop until this one has.
            chunk.wavefronts.turn = self.round
        self.resident += chunk.live
        if self.watch is not None:
            self.watch.started(chunk)
        if self.splits:
            self._enqueue(*(SingleWavefront.of(chunk.wavefronts, i) for i in range(chunk.live)))
        else:
            self._enqueue(chunk.wavefronts)

    def _yield(self) -> None:
        self.idle_rounds += 1
        if self.polled is not None:
            self.polled()
        if self.closed:
            self.progress.look()
            return
        if self.patience.exhausted():
            if self.patience.alone():
                self.patience.look()
                return
            self.patience.report()
        # The time of this round: in a watched mode, a poll is a hundred times as expensive as in ``fast``.
        busy = time.perf_counter() - self.resumed
        if self.idle_rounds < _SPINS_BEFORE_SLEEP and busy < _SHORT_SECONDS:
            os.sched_yield()
        else:
            # The longer no wavefront ends here, the more of the processor goes to the ranks that are waited for.
            longer = self.idle_rounds / _SPINS_BEFORE_SLEEP
            pause = min(_SLEEP_SECONDS * longer, _LONGEST_SLEEP_SECONDS)
            time.sleep(max(pause, min(busy, _LONGEST_BUSY_SECONDS)))
        self.resumed = time.perf_counter()

    def at_barriers(self) -> Iterator[Wavefronts]:
        """Yield the wavefronts that wait at an s_barrier."""
        for launch in self.launches:
            for chunk in launch.chunks.values():
                yield from chunk.at_barrier

    def executed(self, launch: Launch) -> list[int]:
        """Return for each segment of the launch's code how many wavefronts have executed it."""
        return launch.waves

    # -- executing ---------------------------------------------------------------------------------------------------

    def _run(self, wf: Wavefronts) -> None:
        """Run these wavefronts until they end, wait, diverge, or should yield to others."""
        self.current = self.last = wf
        launch = wf.chunk.launch
        blocks, tally, lanes = launch.program.blocks, launch.waves, launch.lanes
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
                    taken = block.taken(wf)
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
                    if count != wf.chunk.live or self.watch is not None:
                        self._wait(wf, block)
                        return
                elif end == p.SLEEP:
                    wf.block += 1
                    os.sched_yield()
                elif end == p.CALL:
                    goes = block.goes(wf)
                    if (goes != goes[0]).any():
                        self._scatter(wf, goes)
                        return
                    wf.block = int(goes[0])
                elif end == p.SWITCH:
                    wf.block += not self.watch.blocked(wf)  # type: ignore[union-attr]
                    if self.sorted and self._goes_on(wf):
                        continue
                    if not self.sorted:
                        self._enqueue(wf)
                    return
                elif self.splits and self.watch.lingers(wf):  # type: ignore[union-attr]
                    for segment in block.segments:  # they are counted when the wavefront ends
                        tally[segment.index] -= count
                        lanes[segment.index] -= wf.active
                    self._enqueue(wf)
                    return
                else:
                    self._end(wf)
                    return
                if self.ready and not self.splits and self._rejoins(wf):
                    self._enqueue(wf)
                    return
        except UnimplementedInstruction:
            raise
        except IndexError as error:
            if wf.block < len(blocks):
                raise failed(wf, step, error) from error
            last = launch.program.listing.instructions[-1]
            wf.chunk.raise_fault("execution goes on after the end of the code", wf, last, 0)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise failed(wf, step, error) from error
        finally:
            self.current = None

    def _rejoins(self, wf: Wavefronts) -> bool:
        """Return True if diverged siblings are at this block, or at a lower one: they are joined, or run first."""
        return any(w.chunk is wf.chunk and w.turn <= wf.turn and w.block <= wf.block for w in self.ready)

    def _jump(self, wf: Wavefronts, block: p.Block) -> bool:
        """Go to the branch target; return True if that used up the turn."""
        wf.block = block.target
        if block.target > block.index:
            return False
        wf.loops += 1
        if wf.loops < (POLL_QUANTUM if block.polls else QUANTUM):
            return False
        wf.loops = 0
        waits = block.polls or self.ready or self.pending or self.closed
        if not waits and not self.patience.exhausted():
            return False  # a counted loop that waits for no other wavefront
        wf.turn += 1
        self._enqueue(wf)
        return True

    def _part(self, wf: Wavefronts, block: p.Block, taken: np.ndarray) -> None:
        stay, go = wf.select(~taken), wf.select(taken)
        stay.block += 1
        go.block = block.target
        if block.target <= block.index:
            go.turn += 1 if block.polls else 0
        self._enqueue(stay, go)

    def _scatter(self, wf: Wavefronts, goes: np.ndarray) -> None:
        """Split wavefronts that return to different callers."""
        for block in np.unique(goes):
            part = wf.select(goes == block)
            part.block = int(block)
            self._enqueue(part)

    # -- barriers and ends -------------------------------------------------------------------------------------------

    def _end(self, wf: Wavefronts) -> None:
        chunk = wf.chunk
        chunk.live -= len(wf)
        self.resident -= len(wf)
        self.idle_rounds = 0
        self.patience.restart()
        if self.watch is not None:
            self.watch.ended(wf)
        if self.splits:
            chunk.live_in_group[0] -= 1  # one work-group, and one wavefront of it
        else:
            np.subtract.at(chunk.live_in_group, chunk.group_of(wf.wave), 1)
        if chunk.live:
            if chunk.at_barrier:
                self._release(chunk)
        else:
            chunk.launch.finish(chunk)

    def _wait(self, wf: Wavefronts, block: p.Block) -> None:
        if self.watch is not None:
            self.watch.arrived(wf, block.index)
        wf.chunk.at_barrier.append(wf)
        self._release(wf.chunk)

    def _release_group(self, chunk: Chunk) -> None:
        """Release the only work-group of a chunk, as ``_release`` does."""
        if not chunk.live or len(chunk.at_barrier) < chunk.live:
            return
        if self.watch is not None:
            self.watch.released(chunk, [chunk.groups[1]])
        waiting, chunk.at_barrier = chunk.at_barrier, []
        turn = max(wf.turn for wf in waiting)
        for wf in waiting:
            wf.turn = turn
        self._enqueue(*waiting)

    def _release(self, chunk: Chunk) -> None:
        """Release every work-group whose live wavefronts have all arrived at a barrier."""
        if self.splits:
            self._release_group(chunk)
            return
        arrived = np.zeros_like(chunk.live_in_group)
        for wf in chunk.at_barrier:
            np.add.at(arrived, chunk.group_of(wf.wave), 1)
        complete = (arrived == chunk.live_in_group) & (arrived > 0)
        if not complete.any():
            return
        if self.watch is not None:
            self.watch.released(chunk, [chunk.groups[1] + int(i) for i in np.flatnonzero(complete)])
        waiting, chunk.at_barrier = chunk.at_barrier, []
        # Of a spinning work-group only some wavefronts jump backwards; all that arrived here get the maximum of their
        # turns.
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
            self._enqueue(wf)
