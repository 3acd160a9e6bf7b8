"""The files of torch's stores: this user's only, and gone with the group, in memory or in /dev/shm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.ranks import RankCrash, RankGroup, keeper, store

TARGETS = "tests.ranks.targets"


def _left(run_id: str) -> list[Path]:
    return sorted(path for path in Path("/dev/shm").iterdir() if run_id in path.name)


def test_a_file_in_memory_is_this_users_only() -> None:
    path = Path(store.path("test", "no-run"))
    try:
        assert path.parent == Path(f"/proc/{os.getpid()}/fd")
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_bytes() == b""
        assert _left("no-run") == []
    finally:
        os.close(int(path.name))


def test_a_file_in_shared_memory_is_this_users_only_and_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_can_be_opened", lambda file: False)
    run_id = f"iris-harness-test-{os.getpid()}"
    path = Path(store.path("test", run_id))
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(FileExistsError):
            store.path("test", run_id)
        assert _left(run_id) == [path]
    finally:
        keeper.remove_shared_memory(run_id, ())
    assert _left(run_id) == []


def test_a_group_works_without_files_in_memory_and_leaves_nothing() -> None:
    preload = ("tests.ranks.no_files_in_memory",)
    with RankGroup(2, options={"compile_once": False}, preload=preload) as group:
        run_id = group.call(f"{TARGETS}:describe")[0]["elastic"]
        files = _left(run_id)
        assert {path.name for path in files} == {f"{run_id}-ranks", f"{run_id}-rendezvous"}
        with pytest.raises(RankCrash):
            group.call(f"{TARGETS}:leaves", 5)
        assert _left(run_id) == []
        assert group.call(f"{TARGETS}:sum_of_ranks", 1) == [3, 3]
        again = group.call(f"{TARGETS}:describe")[0]["elastic"]
        assert len(_left(again)) == 2
    assert _left(again) == []
