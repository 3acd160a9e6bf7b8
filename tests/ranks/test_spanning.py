"""Rank groups on several nodes: parts of this machine in namespaces of their own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.errors import HarnessError, UsageError
from harness.ranks import RankCrash, RankFailure, RankHang, spanning
from harness.ranks.here import NodesHere
from harness.ranks.spanning import SpanningGroup

TARGETS = "tests.ranks.spanning_targets"


@pytest.fixture(scope="module")
def group(separate_nodes: None) -> Iterator[SpanningGroup]:
    with NodesHere(2) as nodes, SpanningGroup(4, None, {}, links=nodes.links, host=nodes.host) as started:
        yield started


def test_ranks_of_all_nodes_are_one_world(group: SpanningGroup) -> None:
    answers = group.call(f"{TARGETS}:who")
    assert [answer["rank"] for answer in answers] == [0, 1, 2, 3]
    assert [(answer["node"], answer["local"]) for answer in answers] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [answer["host"] for answer in answers] == ["node-0", "node-0", "node-1", "node-1"]
    assert {answer["total"] for answer in answers} == {10}, "a sum over all ranks"
    assert group.nodes == ((0, 1), (2, 3))


def test_nodes_share_no_memory_and_see_no_process_of_each_other(group: SpanningGroup) -> None:
    seen = group.call(f"{TARGETS}:leave_trace", "trace-of-rank-0")
    assert ["trace-of-rank-0" in names for names in seen] == [True, True, False, False]
    assert not Path("/dev/shm/trace-of-rank-0").exists(), "nor does this process"
    assert group.call(f"{TARGETS}:command_lines") == [["node"]] * 4, "only the rank's own node, which is process 1"


@pytest.mark.parametrize("rank", [0, 2])
def test_only_the_rank_that_raised_is_blamed(group: SpanningGroup, rank: int) -> None:
    """The ranks of the other node raise too, when the failed node's ranks are ended."""
    with pytest.raises(RankFailure) as raised:
        group.call(f"{TARGETS}:fail", rank)
    assert list(raised.value.errors) == [rank]
    assert raised.value.first.message == f"planted on rank {rank}"
    assert len(group.call(f"{TARGETS}:who")) == 4, "the next call runs on fresh ranks"


def test_errors_of_all_nodes_are_reported(group: SpanningGroup) -> None:
    with pytest.raises(RankFailure) as raised:
        group.call(f"{TARGETS}:fail_everywhere")
    assert [error.message for _, error in sorted(raised.value.errors.items())] == [
        f"planted on all, {rank}" for rank in range(4)
    ]


def test_a_hang_names_the_rank_and_its_stack(group: SpanningGroup) -> None:
    group.call(f"{TARGETS}:who")
    with pytest.raises(RankHang) as raised:
        group.call(f"{TARGETS}:stuck", 3, deadline=2.0)
    assert raised.value.waiting == (3,)
    assert "in stuck" in raised.value.stacks[3]
    assert raised.value.deadline == 2.0


def test_a_crash_names_the_rank(group: SpanningGroup) -> None:
    with pytest.raises(RankCrash) as raised:
        group.call(f"{TARGETS}:crash", 1)
    assert raised.value.exits == {1: "signal 6 (SIGABRT)"}


def test_compilation_on_one_node_extends_the_deadline_of_all(group: SpanningGroup) -> None:
    group.call(f"{TARGETS}:who")
    order = {"rank": 3, "seconds": 3.0}
    assert group.call(f"{TARGETS}:compile_on", order, deadline=2.0) == [0, 1, 2, 3]
    assert group.compile_seconds > 2.0


@pytest.mark.nightly
def test_a_lost_node_is_named_and_nothing_is_left(separate_nodes: None) -> None:
    before = set(psutil.Process().children(recursive=True))
    with NodesHere(2) as nodes, SpanningGroup(2, None, {}, links=nodes.links, host=nodes.host) as started:
        started.call(f"{TARGETS}:who")
        mine = [child for child in psutil.Process().children(recursive=True) if child not in before]
        [unshare] = [child for child in mine if child.name() == "unshare" and "node-1" in child.cmdline()]
        os.kill(unshare.pid, signal.SIGKILL)
        with pytest.raises(HarnessError, match="node 1 has ended"):
            started.call(f"{TARGETS}:stuck", 1, deadline=600.0)
    _, alive = psutil.wait_procs(mine, 20.0)
    assert alive == []


def test_an_interrupted_call_ends_the_ranks_at_once(separate_nodes: None) -> None:
    before = set(psutil.Process().children(recursive=True))
    earlier = signal.signal(signal.SIGUSR2, signal.default_int_handler)
    try:
        with NodesHere(2) as nodes, SpanningGroup(2, None, {}, links=nodes.links, host=nodes.host) as started:
            started.call(f"{TARGETS}:who")
            mine = [child for child in psutil.Process().children(recursive=True) if child not in before]
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR2)).start()
            with pytest.raises(KeyboardInterrupt):
                started.call(f"{TARGETS}:stuck", 1, deadline=600.0)
    finally:
        signal.signal(signal.SIGUSR2, earlier)
    _, alive = psutil.wait_procs(mine, 20.0)
    assert alive == []


def test_ranks_must_be_divisible_by_nodes() -> None:
    with pytest.raises(UsageError, match="3 ranks cannot be divided evenly among 2 nodes"):
        SpanningGroup(3, None, {}, links=[None, None], host="")  # type: ignore[list-item]


def test_nodes_with_other_versions_are_refused() -> None:
    versions = {"node 0": {"host": "a", "torch": "2.13.0"}, "node 1": {"host": "b", "torch": "2.12.0"}}
    with pytest.raises(UsageError, match=r"node 0 has torch 2\.13\.0, node 1 has 2\.12\.0: install the same"):
        spanning._check_equal(versions)
