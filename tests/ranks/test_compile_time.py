"""Compilation time of a call: it does not count against the deadline, and has its own limit."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import compiling, locks
from harness.errors import HarnessError
from harness.ranks import RankGroup, RankHang, generation

TARGETS = "tests.ranks.compile_targets"
DEADLINE = 1.5
WARM = f"{TARGETS}:compile_for", {"seconds": 0, "block": 256}
"""What a fresh group does once: imports, connections."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compile-time") / "cache"


@pytest.fixture(scope="module")
def group(cache: Path) -> Iterator[RankGroup]:
    preload = ["harness.emulator.native.memory", TARGETS]
    with RankGroup(2, environment={"TRITON_CACHE_DIR": str(cache)}, preload=preload) as group:
        group.call(*WARM, deadline=120)
        yield group


@pytest.mark.slow
def test_a_deadline_does_not_count_compilation_of_another_rank(group: RankGroup) -> None:
    group.call(f"{TARGETS}:compile_for", {"seconds": 2, "block": 512}, deadline=DEADLINE)
    assert group.compile_seconds >= 2
    group.call(f"{TARGETS}:compile_for", {"seconds": 2, "block": 512}, deadline=DEADLINE)
    assert group.compile_seconds == 0, "it was in the cache"


def test_a_deadline_does_not_count_numba_nor_the_wait_for_another_process(group: RankGroup, cache: Path) -> None:
    """This process holds the lock of the emulator's compilation for longer than the deadline; then the ranks, which
    have launched no kernel yet, take 1 s, one after the other."""
    lock = locks.FileLock(locks.in_cache(cache, f"{TARGETS}.lock"))
    assert lock.take()
    timer = threading.Timer(1.2 * DEADLINE, lock.release)
    timer.start()
    try:
        assert group.call(f"{TARGETS}:compile_as_the_emulator_does", deadline=DEADLINE) == [1, 1]
    finally:
        timer.join()
    assert group.compile_seconds >= 1.2 * DEADLINE


@pytest.mark.slow
def test_a_hang_is_found_after_a_compilation_and_a_compiler_that_hangs_is_too(
    group: RankGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RankHang) as hang:
        group.call(f"{TARGETS}:compile_for", {"seconds": 2, "block": 1024, "hang": 1}, deadline=DEADLINE)
    assert hang.value.deadline == DEADLINE and hang.value.waiting == (1,)
    assert "compile_for" in hang.value.stacks[1]

    monkeypatch.setattr(generation, "_COMPILE_LIMIT", 1.0)
    group.call(*WARM, deadline=120)
    with pytest.raises(HarnessError, match=r"ranks \[0\] still compile.* after 1 s of it in one call"):
        group.call(f"{TARGETS}:compile_for", {"seconds": 10_000, "block": 2048}, deadline=DEADLINE)


def test_what_a_process_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_word", None)
    clock = [5_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock[0])

    def passes(seconds: float) -> float:
        clock[0] += round(seconds * 1e9)
        return meter.lap()

    own, other = compiling.memory_file(), compiling.memory_file()
    compiling.report_to(own)
    meter = compiling.Meter([own, other], limit=10)
    assert passes(3) == 0
    with compiling.compiling():
        assert passes(2) == 2, "while it lasts"
        with compiling.compiling():
            assert passes(1) == 1
        assert passes(1) == 1, "the inner one ended, the outer one did not"
        clock[0] += 500_000_000
    assert passes(1) == 0.5
    meter.reset()
    assert passes(1) == 0
    with compiling.compiling():
        assert passes(11) == 10 and passes(1) == 0, "no more than a call may have"
        with pytest.raises(HarnessError, match=r"ranks \[0\] still compile"):
            meter.check()
    meter.check()
    with pytest.raises(PermissionError):
        os.ftruncate(own, 0)  # its readers would crash
    os.close(own)
    os.close(other)
