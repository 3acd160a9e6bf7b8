"""A rank whose device was lost: the case fails with the fault, and the next one runs on fresh processes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import psutil
import pytest

from fixtures.outcome import of_failure
from harness.evidence import Verdict
from harness.ranks import RankCrash, RankError, RankFailure, RankGroup

TARGETS = "tests.ranks.targets"
GRACE = 1.0


@pytest.fixture(scope="module")
def shared() -> Iterator[RankGroup]:
    setup = f"{TARGETS}:poisonable_setup"
    with RankGroup(2, setup, {"compile_once": False}, failure_grace=GRACE) as group:
        yield group


@pytest.fixture
def group(shared: RankGroup, caplog: pytest.LogCaptureFixture) -> Iterator[RankGroup]:
    """Around a fault: the old processes are gone, the next call has fresh ones, and nothing looks like a crash."""
    shared.start()
    old, generation = shared.pids, shared.generation
    with caplog.at_level(logging.WARNING, "harness"):
        yield shared
        assert not [pid for pid in old if psutil.pid_exists(pid)]
        assert shared.pids == ()
        assert shared.call(f"{TARGETS}:sum_of_ranks", 1) == [3, 3]
    assert shared.generation == generation + 1
    assert caplog.records == []


@pytest.mark.parametrize("way", ["returning", "raising", "silently"])
def test_the_fault_is_the_verdict(group: RankGroup, way: str) -> None:
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:loses_its_device", {"way": way, "others": "return"}, deadline=3600)
    failure = caught.value
    assert failure.poisoned == (1,)
    assert list(failure.errors) == [1]
    assert failure.errors[1].type == "harness.errors.KernelFault"
    outcome = of_failure(failure)
    assert outcome.verdict is Verdict.FAIL
    assert outcome.fatal, "so that the case is not shrunk on a fresh group for each try"
    assert outcome.fault == failure.errors[1].message
    assert ("the GPU's context is lost: planted" in outcome.message) == (way != "silently")
    assert "ranks [1] lost their devices and exited" in str(failure)
    assert failure.output[0] == "words of rank 0"


def test_ranks_that_spin_have_the_grace_and_no_more(group: RankGroup) -> None:
    """Act like ranks that wait for a GPU: their use of the CPU shows nothing."""
    started = time.monotonic()
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:loses_its_device", {"way": "returning", "others": "spin"}, deadline=3600)
    assert GRACE <= time.monotonic() - started < 60
    assert list(caught.value.errors) == [1]
    assert "in loses_its_device" in caught.value.stacks[0]


def test_what_came_of_it_on_other_ranks_is_not_the_verdict(group: RankGroup) -> None:
    """Their collective ends with an error when the poisoned process leaves; its rank is lower."""
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:loses_its_device", {"way": "returning", "others": "collective"}, deadline=3600)
    assert caught.value.first.rank == 1
    assert "planted" in of_failure(caught.value).message


def test_a_crash_beside_it_is_not_the_verdict(group: RankGroup) -> None:
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:loses_its_device", {"way": "returning", "others": "crash"}, deadline=3600)
    assert caught.value.poisoned == (1,)
    assert "Fatal Python error: Aborted" in caught.value.output[0]


def test_a_fault_that_leaves_the_device_sound_costs_no_process(shared: RankGroup) -> None:
    shared.start()
    generation = shared.generation
    assert shared.call(f"{TARGETS}:has_a_fault_that_ends_a_launch_only") == ["fine", "fine"]
    assert shared.call(f"{TARGETS}:sum_of_ranks", 1) == [3, 3]
    assert shared.generation == generation


def test_a_failure_without_a_lost_device_may_be_shrunk() -> None:
    error = RankError(0, "builtins.ValueError", "planted", "", ("builtins.ValueError",))
    outcome = of_failure(RankFailure({0: error}))
    assert (outcome.fatal, outcome.fault) == (False, None)


def test_rocm_ends_the_process_and_its_words_are_the_fault() -> None:
    words = "Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f00. Reason: Page not present."
    outcome = of_failure(RankCrash({1: "signal 6 (SIGABRT)"}, {0: "", 1: f"before\n{words}\nFatal Python error"}))
    assert (outcome.verdict, outcome.fault, outcome.fatal) == (Verdict.FAIL, words, True)
    assert of_failure(RankCrash({1: "signal 6 (SIGABRT)"}, {1: "other words"})).fault is None
