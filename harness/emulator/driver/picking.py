"""The ready wavefronts of a scheduler, and which of them runs next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from harness.emulator.watch.choices import HOW_OFTEN, SWITCHES, WHICH_WAVEFRONT, Choices
from harness.emulator.wavefront.single import SingleWavefront
from harness.emulator.wavefront.state import Wavefronts

SLACK = 4
"""With choices, the wavefronts that may run are at most this many turns ahead of the slowest."""
# One of these is chosen for a run: some orderings need a wavefront that runs for long while others stand still.
_PERIODS = (1, 4, 16)


class Picking:
    """Base class of the scheduler: the ready wavefronts, with or without ``choices``.

    ``is_sorted``: they are single wavefronts, kept in the order of ``_rank``. ``unswitched``: a wavefront runs until it
    waits or ends, and then the first, or if ``backwards`` the last one of those with the fewest turns.
    """

    def __init__(self, choices: Choices | None, is_sorted: bool, unswitched: bool) -> None:
        self.choices = choices
        self.sorted = is_sorted
        self.unswitched = unswitched
        self.backwards = unswitched and choices is not None and choices.pick(2, WHICH_WAVEFRONT) == 1
        self.ready: list[Wavefronts] = []
        # The keys of ``ready``, if it is sorted: a search then calls no Python function.
        self.ranks: list[tuple[int, tuple[int, int]]] = []
        self.round = 0
        self.last: Wavefronts | None = None
        self.period: int | None = None
        # The next wavefront, if it has been chosen already.
        self.chosen: Wavefronts | None = None

    def _may_start(self) -> bool:
        """Return whether another work-group starts before a wavefront is picked."""
        raise NotImplementedError

    def _pick(self, lowest: int, ready: Sequence[Any]) -> Any:
        """Return the one of ``ready``, which has wavefronts or what describes them, that runs next."""
        if self.choices is None:
            return min(ready, key=lambda w: (w.turn, w.chunk.index, w.block))
        candidates = [w for w in ready if w.turn <= lowest + SLACK]
        if len(candidates) == 1:
            return candidates[0]
        if self.period is None:
            self.period = _PERIODS[self.choices.pick(len(_PERIODS), HOW_OFTEN)]
        go_on = self.last in candidates and self.period > 1 and self.choices.pick(self.period, SWITCHES) != 1
        if go_on:
            return self.last
        candidates.sort(key=lambda w: (w is not self.last, w.turn, w.chunk.launch.rank, w.chunk.index, int(w.wave[0])))
        return candidates[self.choices.pick(len(candidates), WHICH_WAVEFRONT)]

    def _pick_sorted(self, lowest: int) -> Wavefronts:
        """Remove and return the wavefront that ``_pick`` picks, of sorted ones."""
        ready, choices, last = self.ready, self.choices, self.last
        assert choices is not None  # sanity check
        if self.unswitched:
            return self._take(bisect_left(self.ranks, (lowest + 1,)) - 1 if self.backwards else 0)
        count = bisect_left(self.ranks, (lowest + SLACK + 1,))
        if count == 1:
            return self._take(0)
        if self.period is None:
            self.period = _PERIODS[choices.pick(len(_PERIODS), HOW_OFTEN)]
        at = count
        if last is not None and last.turn <= lowest + SLACK:
            at = bisect_left(self.ranks, _rank(last))
            at = at if at < count and ready[at] is last else count
        if at < count and self.period > 1 and choices.pick(self.period, SWITCHES) != 1:
            return self._take(at)
        chosen = choices.pick(count, WHICH_WAVEFRONT)
        if at < count:  # the last one is the first candidate
            chosen = at if chosen == 0 else chosen - 1 if chosen <= at else chosen
        return self._take(chosen)

    def _goes_on(self, wf: Wavefronts) -> bool:
        """Return whether the wavefront that has just run continues; otherwise put it among the ready ones.

        With the same choices as ``_pick_sorted``, which would put it among the others first and then take it again.
        """
        ready, choices = self.ready, self.choices
        assert choices is not None  # sanity check
        if self.unswitched:
            return True
        lowest = min(wf.turn, ready[0].turn) if ready else wf.turn
        if self._may_start() or lowest > self.round or wf.turn > lowest + SLACK:
            self._enqueue(wf)
            return False
        others = bisect_left(self.ranks, (lowest + SLACK + 1,))
        if not others:
            return True
        if self.period is None:
            self.period = _PERIODS[choices.pick(len(_PERIODS), HOW_OFTEN)]
        if self.period > 1 and choices.pick(self.period, SWITCHES) != 1:
            return True
        chosen = choices.pick(others + 1, WHICH_WAVEFRONT)
        if chosen == 0:
            return True
        self.chosen = self._take(chosen - 1)
        self._enqueue(wf)
        return False

    def _take(self, index: int) -> Wavefronts:
        """Remove and return one of the sorted wavefronts."""
        del self.ranks[index]
        return self.ready.pop(index)

    def _enqueue(self, *wavefronts: Wavefronts) -> None:
        """Add wavefronts that can run."""
        if not self.sorted:
            self.ready += wavefronts
            return
        for wf in wavefronts:
            rank = _rank(wf)
            at = bisect_right(self.ranks, rank)
            self.ranks.insert(at, rank)
            self.ready.insert(at, wf)


def _rank(wf: Wavefronts) -> tuple[int, tuple[int, int]]:
    """Sort key of wavefronts that may run next."""
    assert isinstance(wf, SingleWavefront)  # sanity check
    return wf.turn, wf.place
