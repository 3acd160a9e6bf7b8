"""Order that siblings have after an s_barrier, by the short way and by joining what each of them knows."""

import random
from itertools import pairwise

import pytest

from harness.emulator.watch import race_order
from harness.emulator.watch.race_order import (
    AGENT,
    COMPLETE,
    ISSUED,
    NOTHING,
    SYSTEM,
    Launched,
    Order,
    Thread,
    meet,
)


def joined(threads, reading):
    """Return what a barrier shares: all that each thread has done or knows."""
    joint = NOTHING
    for thread in threads:
        joint = joint.join(thread.views[reading].shared.having(thread.number, [*thread.reached, 0]))
    return joint


def is_nested(order: Order) -> bool:
    """Return whether what is known as far as one place is known as far as the nearer ones."""
    return all(near.get(number, 0) >= n for near, far in pairwise(order[:-1]) for number, n in far.items())


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
        assert all(is_nested(order) for thread in (*threads, other) for order in thread.publish())
    return short


@pytest.mark.parametrize("seed", range(30))
def test_a_barrier_shares_what_each_wavefront_has_done_or_knows(seed):
    assert barriers(seed)


def test_an_access_that_is_left_out_is_seen(monkeypatch):
    plain = race_order._plus_own
    monkeypatch.setattr(race_order, "_plus_own", lambda order, threads: plain(order, threads[1:]))
    with pytest.raises(AssertionError):
        barriers(0)


def thread(number: int = 0, known: Order = NOTHING, rank: int = 0) -> Thread:
    return Thread(number, Launched(rank, "kernel", (1, 1, 1), 4, str), -1 - rank, number, (known, known))


def test_a_wavefront_publishes_what_it_has_issued_completed_and_written_back():
    """``reached`` after each step, and the order with the next access itself, which has the next number."""
    one = thread(3)
    assert one.publish() == (Order({}, {}, {}, {}, {3: 1}),) * 2, "nothing but the access that publishes it"
    one.access(())
    one.access(())
    assert one.publish()[0] == Order({3: 2}, {}, {}, {}, {3: 3})
    one.wait(1)
    assert one.publish()[0] == Order({3: 2}, {3: 1}, {}, {}, {3: 3}), "the newest one is in flight"
    one.wait(0)
    one.write_back(SYSTEM, [one] * 4)
    one.access(())
    one.wait(1)
    assert one.reached == [3, 2, 2, 2], "the write-back is complete, and covers what was issued before it"


def test_a_wavefront_publishes_what_a_sibling_has_written_back_for_it():
    """In the lenient reading also a store that it has not waited for."""
    one, leader = siblings = [thread(0), thread(1)]
    one.access(())
    one.wait(0)
    one.access(())
    meet(siblings)
    leader.write_back(SYSTEM, siblings)
    leader.wait(0)
    meet(siblings)
    lenient, strict = one.publish()
    assert [clock[0] for clock in lenient[:4]] == [2, 2, 2, 2]
    assert [clock[0] for clock in strict[:4]] == [2, 1, 1, 1]


def test_a_wait_for_fewer_operations_than_are_in_flight_completes_none():
    one = thread()
    one.access(())
    for left in (1, 2, 63):
        one.wait(left)
        assert one.reached[COMPLETE] == 0 and len(one.flight) == 1


def test_a_scalar_access_is_complete_when_nothing_is_in_flight():
    """``HappensBefore.scalar`` issues it without an operation in flight."""
    one = thread()
    one.access(())
    one.reached[ISSUED] += 1
    one.wait(1)
    assert one.reached[COMPLETE] == 0
    one.wait(0)
    assert one.reached[COMPLETE] == 2


def test_a_fence_is_no_access():
    one = thread()
    one.access(())
    one.access(())
    one.wait(0)
    one.invalidate(SYSTEM)
    one.access(())
    one.wait(1)
    assert one.reached[COMPLETE] == 2


@pytest.mark.parametrize(
    ("place", "covered"),
    [("issued", {0, 1}), ("complete", {0, 1}), ("agent", {0, 1, 2}), ("system", {-1, 0, 1, 2, 3})],
)
def test_a_write_back_covers_what_has_come_as_far_as_it_acts(place, covered):
    """Threads 0 to 3: two siblings, another work-group's, another rank's. Number -1 is another process's. What has
    come to a place has come to those before it."""
    clock, places = {-1: 9, 0: 6, 1: 5, 2: 7, 3: 8}, ("issued", "complete", "agent", "system")
    known = NOTHING._replace(**dict.fromkeys(places[: places.index(place) + 1], clock))
    launch, far = Launched(0, "kernel", (2, 1, 1), 4, str), Launched(1, "kernel", (1, 1, 1), 4, str)
    waves = [Thread(number, launch, -1, wave, (known, known)) for number, wave in enumerate((0, 1, 4))]
    one = Thread(4, launch, -1, 2, (known, known))
    one.write_back(SYSTEM, [*waves, Thread(3, far, -2, 0, ()), one])
    lenient, strict = one.flight[-1].written_back[1]
    own = {4: 0}
    assert lenient == own | {number: clock[number] for number in covered}, "a leader writes back for its siblings"
    waited = set() if place == "issued" else covered
    assert strict == own | {number: clock[number] for number in waited}, "siblings must have waited for their stores"


def test_a_farther_place_has_the_earlier_accesses_of_a_thread():
    """A sibling's access 3 has reached the system, 4 the agent, 5 is complete and 6 issued: all are written back."""
    known = Order({0: 6}, {0: 5}, {0: 4}, {0: 3}, {})
    one = thread(1, known)
    one.write_back(SYSTEM, [thread(), one])
    assert one.flight[-1].written_back[1] == ({0: 6, 1: 0}, {0: 5, 1: 0})


@pytest.mark.parametrize(("scope", "places"), [(race_order.WORKGROUP, 1), (AGENT, 2), (SYSTEM, 3)])
def test_a_completed_write_back_counts_as_far_as_its_scope(scope, places):
    """Of a sibling's store, which was complete before."""
    known = NOTHING._replace(issued={0: 2}, complete={0: 2})
    one = thread(1, known)
    one.write_back(scope, [thread(), one])
    assert [view.known for view in one.views] == [known, known], "it is in flight"
    one.wait(0)
    for view in one.views:
        assert [clock.get(0, 0) for clock in view.known] == [2, *[2] * places, *[0] * (4 - places)]
