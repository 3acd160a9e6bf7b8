"""The choices that withhold, and a block of launches in another mode than the driver's."""

import pytest
import torch

from examples.handshake import consume, produce
from harness import emulator
from harness.emulator.watch import Lazy, make
from harness.emulator.watch.choices import AGE, EVICTS, MOVES


@pytest.fixture
def driver():
    yield emulator.activate("gfx942")
    emulator.deactivate()


def arrived(driver, release):
    """Pass a payload between two ranks, and return whether the receiver read it."""
    inbox, out, flag = (torch.zeros(n, dtype=torch.int32) for n in (64, 64, 1))
    with emulator.concurrent_ranks(driver) as ranks:
        with ranks.rank(0):
            produce[(1,)](inbox, flag, release, num_warps=1)
        with ranks.rank(1):
            consume[(1,)](inbox, flag, out, num_warps=1)
    return torch.equal(out, torch.arange(1, 65, dtype=torch.int32))


def test_memory_never_moves_by_itself_and_most_loads_are_old():
    lazy = Lazy(5)
    assert {lazy.pick(4, decision) for decision in (MOVES, EVICTS) for _ in range(50)} == {0}
    ages = [lazy.pick(3, AGE) for _ in range(200)]
    assert ages.count(2) > 140 and {0, 1} & set(ages)
    assert {lazy.pick(3, "next wavefront") for _ in range(50)} == {0, 1, 2}


def test_a_payload_arrives_by_a_release_only(driver):
    weak, runs = make("weak"), {"release": [], "relaxed": []}
    for seed in range(4):
        for release, seen in runs.items():
            weak.restart(Lazy(seed))
            with driver.watched(weak):
                seen.append(arrived(driver, release))
    assert all(runs["release"])
    assert runs["relaxed"].count(False) >= 2, "one load in four may see it, once the producer's kernel has ended"


def test_launches_after_the_block_run_in_the_drivers_mode(driver):
    weak = make("weak", 1)
    with driver.watched(weak):
        assert arrived(driver, "release")
    assert driver.watch is None
    issued = weak.issued
    assert arrived(driver, "release") and weak.issued == issued > 0
    with driver.watched(weak):
        assert arrived(driver, "release")
    assert weak.issued > issued


def test_red_zones_are_refused(driver):
    with pytest.raises(ValueError, match="mode check needs red zones from the start"), driver.watched(make("check")):
        pass
