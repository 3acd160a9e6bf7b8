"""Companions: they execute calls for their ranks, and any fault of one is a fault of its rank."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import psutil
import pytest

from harness.errors import HarnessError
from harness.ranks import RankCrash, RankFailure, RankGroup, RankHang

TARGETS = "tests.ranks.companion_targets"


def group_with(companion_setup: str) -> RankGroup:
    return RankGroup(2, f"{TARGETS}:setup", {"companion_setup": companion_setup}, companion=True)


@pytest.fixture(scope="module")
def shared() -> Iterator[RankGroup]:
    with group_with("companion_setup") as group:
        yield group


@pytest.fixture
def group(shared: RankGroup) -> Iterator[RankGroup]:
    """The group before and after a fault: ranks and companions are gone, and the next call has fresh ones."""
    old = [pid for pair in shared.call(f"{TARGETS}:both", 1) for pid, *_ in pair]
    yield shared
    assert not [pid for pid in old if psutil.pid_exists(pid)]
    new = [pid for pair in shared.call(f"{TARGETS}:both", 1) for pid, *_ in pair]
    assert len(set(new)) == 4 and not set(new) & set(old)


def test_rank_and_companion_have_process_groups_of_their_own(shared: RankGroup) -> None:
    pairs = shared.call(f"{TARGETS}:both", 1)
    assert [[identity[1:] for identity in pair] for pair in pairs] == [[[0, 2], [0, 20]], [[1, 2], [1, 20]]]
    assert len({pid for pair in pairs for pid, *_ in pair}) == 4
    for (rank, *_), (companion, *_) in pairs:
        assert psutil.Process(companion).ppid() == rank and os.getsid(companion) == os.getsid(rank)


def test_an_exception_of_a_companion_is_an_error_of_the_harness(shared: RankGroup) -> None:
    """Exceptions of a library arrive as data, so one that is raised is none of the library's."""
    with pytest.raises(RankFailure) as caught:
        shared.call(f"{TARGETS}:in_companion", ["raises", [0, 1]])
    assert caught.value.errors[0].is_a(HarnessError)
    assert "ArithmeticError: companion 0 cannot count" in caught.value.errors[0].message
    assert "in raises" in caught.value.errors[0].message, "its traceback"


def test_a_result_that_is_not_plain_data_is_refused(shared: RankGroup) -> None:
    with pytest.raises(RankFailure, match=r"a builtins\.object cannot be sent between processes"):
        shared.call(f"{TARGETS}:in_companion", ["sends_nonsense", [0, 1]])


@pytest.mark.parametrize(("fault", "how"), [("crashes", "signal 11 (SIGSEGV)"), ("exits", "exit status 7")])
def test_the_end_of_a_companion_is_the_end_of_its_rank(group: RankGroup, fault: str, how: str) -> None:
    with pytest.raises(RankCrash) as caught:
        group.call(f"{TARGETS}:in_companion", [fault, [1]], deadline=60)
    assert how in caught.value.exits[1]
    assert re.search(r"the companion \d+ has ended", caught.value.output[1])


def test_a_hang_of_a_companion_shows_where_it_is_and_its_state(group: RankGroup) -> None:
    with pytest.raises(RankHang) as caught:
        group.call(f"{TARGETS}:in_companion", ["waits_for_ever", [1]], deadline=0.5)
    assert caught.value.waiting == (1,)
    assert "companion 1 waits for the tide" in caught.value.stacks[1]
    assert re.search(r"companion_targets\.py\", line \d+ in waits_for_ever", caught.value.stacks[1])


def test_a_companion_ends_with_its_rank(group: RankGroup) -> None:
    with pytest.raises(RankCrash):
        group.call(f"{TARGETS}:rank_exits", deadline=60)


def test_a_companion_is_closed_in_order() -> None:
    with group_with("companion_setup") as group:
        pids = group.call(f"{TARGETS}:closes")
        assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_a_set_up_that_raises_in_the_companion_is_no_error_of_the_harness() -> None:
    with group_with("failing_setup") as group, pytest.raises(RankFailure) as caught:
        group.start()
    assert "ArithmeticError: no set-up in the companion of rank 0" in caught.value.errors[0].message
    assert not caught.value.errors[0].is_a(HarnessError)


def test_a_set_up_with_an_error_of_the_harness_stays_one() -> None:
    with group_with("broken_setup") as group, pytest.raises(HarnessError, match="the harness is wrong"):
        group.start()
