"""Groups whose modules are imported before the first call: the import goes on next to this process, and no error of it
is lost."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import psutil
import pytest

from harness.ranks import RankFailure, RankGroup
from harness.ranks.keeping import Keeper

TARGETS = "tests.ranks.targets"
PLAIN = {"compile_once": False}


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name a pipe that receives a byte as soon as the import of the module ``endless_import`` has begun."""
    pipe = tmp_path / "begun"
    os.mkfifo(pipe)
    code = f"import time\nopen({str(pipe)!r}, 'wb', 0).write(b'x')\ntime.sleep(3600)\n"
    (tmp_path / "endless_import.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return pipe


def keepers() -> set[psutil.Process]:
    return {child for child in psutil.Process().children() if child.is_running()}


def test_the_first_call_of_a_prepared_group_waits_for_its_modules() -> None:
    with RankGroup(2, f"{TARGETS}:setup", {**PLAIN, "word": "given"}) as group:
        group.prepare()
        assert group.pids == () and group.generation == 0, "no rank runs yet"
        keeper = group._running.keeper
        assert group.call(f"{TARGETS}:setup_options") == ["given", "given"]
        assert group._running.keeper is keeper
        group.prepare()
        assert group._running.keeper is keeper


def test_a_module_that_cannot_be_imported_is_reported_by_every_call() -> None:
    with RankGroup(1, "tests.ranks.no_such_module:setup", PLAIN) as group:
        group.prepare()
        for _ in range(2):
            with pytest.raises(RankFailure, match="no_such_module"):
                group.call(f"{TARGETS}:rank_of")
        assert group.broken


def test_an_end_of_the_process_that_imports_is_reported_by_the_first_call(endless: Path) -> None:
    with RankGroup(1, None, PLAIN, preload=["endless_import"]) as group:
        group.prepare()
        assert endless.read_bytes() == b"x"
        group._running.keeper.process.send_signal(signal.SIGKILL)  # type: ignore[union-attr]
        with pytest.raises(Exception, match="the keeper process ended, which starts and ends the ranks"):
            group.start()


@pytest.mark.usefixtures("own_keepers")
def test_a_group_that_no_call_used_ends_in_the_middle_of_an_import(endless: Path) -> None:
    before = keepers()
    with RankGroup(1, None, PLAIN, preload=["endless_import"]) as group:
        group.prepare()
        assert endless.read_bytes() == b"x"
        assert len(keepers() - before) == 1
    assert keepers() <= before
    group.prepare()
    assert keepers() <= before, "a closed group starts nothing"


def test_a_fork_of_this_process_does_not_keep_a_keeper_alive() -> None:
    """Processes that compile ahead are such forks: the end of a group would wait for theirs."""
    keeper = Keeper((), {})
    keeper.wait_ready(60)
    until, ended = os.pipe()
    if not (pid := os.fork()):
        os.close(ended)
        os.read(until, 1)
        os._exit(0)
    try:
        descriptor = os.pidfd_open(keeper.process.pid)
        keeper.connection.close()  # as if this process had ended
        assert select.select([descriptor], [], [], 30)[0], "the keeper waits for another process"
        os.close(descriptor)
    finally:
        os.close(ended)
        os.waitpid(pid, 0)
        os.close(until)
        keeper.kill()
