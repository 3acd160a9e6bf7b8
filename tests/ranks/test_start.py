"""Start of a group: a failure is reported once, with the rank's own message, and every later call raises it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from harness.errors import HarnessError, UsageError
from harness.ranks import RankCrash, RankFailure, RankGroup, spec

TARGETS = "tests.ranks.targets"
# These tests do not use the compiler, and Triton's import would double their time.
PLAIN = {"compile_once": False}


def test_setup_and_close_run_once_on_each_rank(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with RankGroup(2, f"{TARGETS}:setup", {**PLAIN, "trace": str(trace), "word": "given"}) as group:
        assert group.pids == ()
        assert group.call(f"{TARGETS}:setup_options") == ["given", "given"]
        assert group.call(f"{TARGETS}:setup_options") == ["given", "given"]
        assert not trace.exists()
        pids = group.pids
    assert sorted(trace.read_text().split()) == ["0", "1"]
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    group.close()


def test_a_failing_setup_is_raised_now_and_ever_after() -> None:
    with RankGroup(2, f"{TARGETS}:failing_setup", PLAIN) as group:
        with pytest.raises(RankFailure) as caught:
            group.call(f"{TARGETS}:rank_of")
        assert caught.value.errors[1].type == "builtins.ArithmeticError"
        assert "words before the failure" in caught.value.output[1]
        with pytest.raises(RankFailure) as again:
            group.call(f"{TARGETS}:rank_of")
        assert again.value is caught.value
        assert group.generation == 1
        assert group.pids == ()


def test_a_usage_error_of_a_rank_is_one_here() -> None:
    with RankGroup(1, f"{TARGETS}:misused_setup", PLAIN) as group, pytest.raises(UsageError, match="abacus"):
        group.start()


def test_a_setup_that_cannot_be_imported_is_told() -> None:
    with RankGroup(1, "tests.ranks.no_such_module:setup", PLAIN) as group, pytest.raises(RankFailure) as caught:
        group.start()
    assert "no_such_module" in str(caught.value)


@pytest.mark.slow
def test_a_setup_that_hangs_is_told_with_its_stack() -> None:
    group = RankGroup(2, f"{TARGETS}:hanging_setup", PLAIN, start_timeout=5)
    with group, pytest.raises(HarnessError, match=r"ranks \[1\] were not set up within 5 s") as caught:
        group.start()
    assert "in hanging_setup" in str(caught.value)


def test_a_setup_that_dies_is_told_at_once() -> None:
    group = RankGroup(2, f"{TARGETS}:dying_setup", PLAIN, start_timeout=3600)
    with group, pytest.raises(RankCrash) as caught:
        group.start()
    assert caught.value.exits == {1: "signal 9 (SIGKILL)"}


@pytest.mark.slow
def test_fresh_interpreters_serve_like_forks() -> None:
    """Start with "exec", for devices whose drivers do not survive a fork."""
    with RankGroup(2, options={**PLAIN, "start": "exec"}) as group:
        assert group.call(f"{TARGETS}:sum_of_ranks", 1) == [3, 3]
        assert {description["start_method"] for description in group.call(f"{TARGETS}:describe")} == {"exec"}
        pids = group.pids
        with pytest.raises(RankCrash) as caught:
            group.call(f"{TARGETS}:leaves", 5, deadline=3600)
        assert caught.value.exits == {1: "exit status 5"}
        assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_a_way_of_starting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="'summon'"):
        RankGroup(1, options={"start": "summon"})


def test_groups_with_nccl_report_their_collectives_themselves() -> None:
    """torch keeps a record, writes no file of it, and leaves the verdict and the end of the process to the group."""
    group = RankGroup(1, options={"backend": "cpu:gloo,cuda:nccl"}, environment={"TORCH_FR_BUFFER_SIZE": "9"})
    assert group._environment["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "0"
    assert group._environment["TORCH_NCCL_RETHROW_CUDA_ERRORS"] == "0"
    assert group._environment["TORCH_FR_BUFFER_SIZE"] == "9", "the caller's word counts"
    assert not [name for name in RankGroup(1)._environment if "NCCL" in name]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", pytest.param("exec", marks=pytest.mark.nightly)])
def test_what_the_agent_needs_is_not_handed_to_what_ranks_start(start: str) -> None:
    """A rank may run torchrun itself, as BENCH-MAIN-001 does; with the agent's setting its ranks would hang."""
    with RankGroup(2, options={"compile_once": False, "start": start}) as group:
        assert group.call("tests.ranks.targets:variable", spec.NO_TCP_STORE) == [None, None]
