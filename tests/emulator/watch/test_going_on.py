"""A wavefront that continues is not put among the ready ones first: the schedule is the one that this would give."""

import numpy as np
import pytest
import torch

from harness import emulator
from harness.emulator.driver import single
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.watch import Lazy, Seeded
from tests.emulator import schedule_kernels as kernels


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Interpret each program: where its functions are on disk, native code would run it, without ``Scheduler``."""
    monkeypatch.setattr(single.Heat, "_decide", lambda heat, spent: None)


def _through_the_ready_ones(scheduler, wf):
    """Put the wavefront among the ready ones; ``_next`` then chooses."""
    scheduler._enqueue(wf)
    return False


def _run(mode, choices, groups, warps):
    """Return what shows the schedule of a lock that work-groups pass on: decisions, events, counts and results."""
    driver = emulator.activate(mode=mode, choices=choices)
    try:
        lock, counter = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        kernels.locked_increments[(groups,)](lock, counter, 2, num_warps=warps)
        assert counter.item() == 2 * groups
        (launch,) = driver.drain_launches()
        story = driver.watch.story(4000) if mode == "weak" else []
        # Addresses differ from run to run.
        events = [line[:6] + line[line.index(":") :] for line in story]
        return choices.decisions, events, launch.instructions, launch.lanes
    finally:
        emulator.deactivate()


@pytest.mark.parametrize("kind", [Seeded, Lazy])
@pytest.mark.parametrize(
    ("mode", "groups", "warps"),
    # With two wavefronts in a work-group, the kernel has a race.
    [("weak", 1, 1), ("weak", 2, 1), ("weak", 5, 2), ("race", 1, 1), ("race", 2, 1), ("race", 5, 1)],
)
def test_the_schedule_stays(monkeypatch, kind, mode, groups, warps):
    for seed in np.random.default_rng(groups).integers(0, 1 << 30, 4).tolist():
        taken = _run(mode, kind(seed), groups, warps)
        with monkeypatch.context() as patch:
            patch.setattr(Scheduler, "_goes_on", _through_the_ready_ones)
            assert taken == _run(mode, kind(seed), groups, warps)


def test_another_schedule_is_seen(monkeypatch):
    """A wavefront that takes one choice more than the others would."""
    plain = Scheduler._goes_on

    def goes_on(scheduler, wf):
        scheduler.choices.pick(2, "one more")
        return plain(scheduler, wf)

    taken = _run("weak", Seeded(3), 2, 1)
    monkeypatch.setattr(Scheduler, "_goes_on", goes_on)
    assert taken[1] != _run("weak", Seeded(3), 2, 1)[1]
