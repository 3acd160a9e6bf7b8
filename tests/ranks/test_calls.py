"""Properties of a group of ranks, and results of calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from harness.errors import UsageError
from harness.ranks import RankError, RankFailure, RankGroup

TARGETS = "tests.ranks.targets"


@pytest.fixture(scope="module")
def group() -> Iterator[RankGroup]:
    with RankGroup(2) as group:
        group.start()
        yield group


def test_results_come_in_rank_order(group: RankGroup) -> None:
    assert group.call(f"{TARGETS}:rank_of") == [0, 1]


def test_ranks_are_processes_of_torch_distributed_elastic(group: RankGroup) -> None:
    seen = group.call(f"{TARGETS}:describe", {"a": [1, 2.5, b"x"]})
    for rank, description in enumerate(seen):
        assert description["rank"] == rank
        assert description["world_size"] == 2
        assert description["env"]["rank"] == rank
        assert description["env"]["local_rank"] == rank
        assert description["env"]["world_size"] == 2
        assert description["env"]["run_id"] == description["elastic"]
        assert description["payload"] == {"a": [1, 2.5, b"x"]}
        assert description["backend"] == "gloo"
        assert description["restarts"] == "0"
        assert description["threads"] == 1
        assert description["session"] not in (os.getsid(0), 0)


def test_collectives_work_and_the_processes_stay(group: RankGroup) -> None:
    pids = group.pids
    for step in range(20):
        assert group.call(f"{TARGETS}:sum_of_ranks", step) == [2 * step + 1] * 2
    assert group.pids == pids
    assert len(set(pids)) == 2


def test_a_large_payload_travels_both_ways(group: RankGroup) -> None:
    payload = os.urandom(20_000_000)
    assert group.call(f"{TARGETS}:echo", payload) == [payload, payload]


def test_an_exception_becomes_data(group: RankGroup) -> None:
    generation = group.generation
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:fails", [1])
    error = caught.value.errors[1]
    assert list(caught.value.errors) == [1]
    assert (error.rank, error.type, error.message) == (1, "builtins.ValueError", "planted on 1")
    assert "in fails" in error.traceback
    assert "_execute_calls" not in error.traceback
    assert error.is_a(ValueError)
    assert not error.is_a(KeyError)
    assert caught.value.output[0] == "words of rank 0"
    assert caught.value.stacks == {}
    assert group.call(f"{TARGETS}:rank_of") == [0, 1]
    assert group.generation == generation, "a failure that every rank answered needs no new processes"


def test_all_failing_ranks_are_reported(group: RankGroup) -> None:
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:fails", [0, 1])
    assert sorted(caught.value.errors) == [0, 1]


def test_output_of_an_earlier_call_is_not_repeated(group: RankGroup) -> None:
    with pytest.raises(RankFailure):
        group.call(f"{TARGETS}:fails", [0])
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:faults")
    assert caught.value.output == {0: "", 1: ""}


def test_a_report_of_an_exception_travels(group: RankGroup) -> None:
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:faults")
    assert caught.value.errors[0].report == {"address": 0x1000, "lane": 7}
    assert "harness.errors.KernelFault" in caught.value.errors[0].bases


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (f"{TARGETS}:exits", "builtins.SystemExit"),
        (f"{TARGETS}:unpicklable", "builtins.TypeError"),
        (f"{TARGETS}:missing", "builtins.AttributeError"),
        ("tests.ranks.no_module:f", "builtins.ModuleNotFoundError"),
        ("no_colon", "builtins.ValueError"),
    ],
)
def test_whatever_cannot_run_is_an_error_of_every_rank(group: RankGroup, target: str, kind: str) -> None:
    generation = group.generation
    with pytest.raises(RankFailure) as caught:
        group.call(target)
    assert {error.type for error in caught.value.errors.values()} == {kind}
    assert group.generation == generation


def test_a_payload_that_cannot_travel_is_the_callers_error(group: RankGroup) -> None:
    with pytest.raises(TypeError, match=r"_thread\.lock cannot be sent"):
        group.call(f"{TARGETS}:echo", threading.Lock())
    assert group.call(f"{TARGETS}:rank_of") == [0, 1]


def test_errors_are_picklable() -> None:
    import pickle

    error = RankError(1, "m.T", "text", "trace", ("m.T",), {"a": 1})
    again = pickle.loads(pickle.dumps(RankFailure({1: error}, {0: "stack"}, {0: "words"})))
    assert again.errors[1].report == {"a": 1}
    assert str(again.errors[1]) == "rank 1: m.T: text"
    assert again.stacks == {0: "stack"}


def test_bad_arguments_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="got 0"):
        RankGroup(0)
    with pytest.raises(UsageError, match="'nonsense'"):
        RankGroup(1, setup="nonsense")
    closed = RankGroup(1)
    closed.close()
    with pytest.raises(UsageError, match="closed"):
        closed.call(f"{TARGETS}:rank_of")
