"""State of a hanging rank's device: described by its environment, within a time limit in all cases."""

from __future__ import annotations

import time

import pytest

from harness.ranks import RankGroup, RankHang, stacks

TARGETS = "tests.ranks.targets"
SHORT = 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("something", "rank 1 polls at kernel.py:17"),
        ("error", "describe() failed: ArithmeticError('no words')"),
        ("nothing", "describe() gave no answer within 2 s"),
    ],
)
def test_the_environment_describes_its_state(state: str, expected: str) -> None:
    options = {"compile_once": False, "state": state}
    with RankGroup(2, f"{TARGETS}:described_setup", options) as group:
        with pytest.raises(RankHang) as caught:
            group.call(f"{TARGETS}:hangs_in_sleep", deadline=SHORT)
        assert expected in caught.value.stacks[1].partition("[state]")[2].partition("[py-spy]")[0]
        assert "describe-" not in caught.value.stacks[1].partition("[state]")[0], "described after the stack was taken"
        assert group.call(f"{TARGETS}:sum_of_ranks", 1) == [3, 3]


@pytest.mark.slow
def test_an_environment_without_words_is_said() -> None:
    with RankGroup(1, options={"compile_once": False}) as group, pytest.raises(RankHang) as caught:
        group.call(f"{TARGETS}:hangs_alone", deadline=SHORT)
    assert "describes no state" in caught.value.stacks[0]


def test_what_does_not_answer_costs_the_others_nothing() -> None:
    started = time.monotonic()
    answers = stacks.within(
        2.0, {"one": lambda: "fine", "two": lambda: time.sleep(60) or "late", "three": lambda: str(1 // 0)}
    )
    assert time.monotonic() - started < 30
    assert answers["one"] == "fine"
    assert answers["two"] == "(two gave no answer within 2 s)"
    assert answers["three"].startswith("(three failed: ZeroDivisionError")
