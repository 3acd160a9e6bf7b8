"""Order that siblings have after an s_barrier, by the short way and by joining what each of them knows."""

import random

import pytest

from harness.emulator.watch import race_order
from harness.emulator.watch.race_order import AGENT, NOTHING, SYSTEM, Launched, Thread, meet


def joined(threads, reading):
    """Return what a barrier shares: all that each thread has done or knows."""
    joint = NOTHING
    for thread in threads:
        joint = joint.join(thread.views[reading].shared.having(thread.number, [*thread.reached, 0]))
    return joint


def barriers(seed: int) -> int:
    """Execute accesses of four wavefronts and several barriers; return how often the short way was taken."""
    chosen = random.Random(seed)
    launch = Launched(0, "kernel", (1, 1, 1), 4, str)
    threads = [Thread(n, launch, -1, n, (NOTHING, NOTHING)) for n in range(4)]
    # A wavefront of another work-group publishes what it knows, and at times reads what one of these publishes.
    other = Thread(4, launch, -1, 4, (NOTHING, NOTHING))
    short = 0
    for _ in range(12):
        for thread in threads:
            for _ in range(chosen.randrange(4)):
                action = chosen.randrange(7)
                if action == 5:
                    other.access(())
                    other.write_back(SYSTEM, [*threads, other])
                    other.wait(0)
                    thread.access(((chosen.choice([race_order.WORKGROUP, AGENT]), other.publish()),))
                    continue
                if action == 6:
                    other.access(((race_order.WORKGROUP, thread.publish()),))
                    continue
                if action < 2:
                    thread.access(())
                elif action == 2:
                    thread.write_back(chosen.choice([AGENT, SYSTEM]), [*threads, other])
                elif action == 3:
                    thread.invalidate(chosen.choice([AGENT, SYSTEM]))
                else:
                    thread.wait(chosen.randrange(3))
        for reading in race_order.READINGS:
            shared = {id(thread.views[reading].shared) for thread in threads}
            short += len(shared) == 1
        wanted = [joined(threads, reading) for reading in race_order.READINGS]
        known = [[view.known.join(w) for view, w in zip(t.views, wanted, strict=True)] for t in threads]
        meet(threads)
        assert [[view.known for view in thread.views] for thread in threads] == known
        assert all([view.shared for view in thread.views] == wanted for thread in threads)
    return short


@pytest.mark.parametrize("seed", range(30))
def test_a_barrier_shares_what_each_wavefront_has_done_or_knows(seed):
    assert barriers(seed)


def test_an_access_that_is_left_out_is_seen(monkeypatch):
    plain = race_order._plus_own
    monkeypatch.setattr(race_order, "_plus_own", lambda order, threads: plain(order, threads[1:]))
    with pytest.raises(AssertionError):
        barriers(0)
