"""Refusal of evidence paths that are not regular files, or that another run writes."""

import contextlib
import os
import signal

import pytest

from command_line.suite.progress import Follower
from harness.errors import UsageError
from harness.evidence import Store, check_unused, read, worker_path
from tests.evidence import samples


def fifo(path):
    os.mkfifo(path)


def folder(path):
    path.mkdir()


def link(path):
    path.with_name("elsewhere").write_bytes(b"")
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("make", [fifo, folder, link])
def test_a_worker_file_is_a_regular_file(tmp_path, make):
    """Opening a FIFO waits for a writer: the test would end at its alarm."""
    path = samples.write(tmp_path / "evidence.jsonl", samples.green())
    make(worker_path(path, "gw0"))
    with within(10):
        problems = read(path).problems
        assert problems[-1] == "evidence-gw0.jsonl has the name of a worker's file, but is not a regular file"
        follower = Follower(path)
        follower.look()
        assert follower.cases == 3


@pytest.mark.parametrize("make", [fifo, folder, link])
def test_a_worker_file_of_another_kind_is_not_absorbed_without_a_trace(tmp_path, make):
    path = tmp_path / "evidence.jsonl"
    with within(10), Store(path) as store:
        for record in samples.green()[:3]:
            store.append(record)
        make(worker_path(path, "gw0"))
        assert store.absorb_workers() == 1
    assert "evidence.jsonl line 4 is not JSON" in read(path).problems[0]


def test_a_file_is_not_created_through_a_link(tmp_path):
    path = tmp_path / "evidence.jsonl"
    path.symlink_to(tmp_path / "victim")
    with pytest.raises(UsageError, match="exists already"):
        check_unused(path)
    with pytest.raises(UsageError, match="exists already"):
        Store(path)
    assert not (tmp_path / "victim").exists()


def test_two_runs_do_not_write_one_file(tmp_path):
    """Both find it unused; the second is refused although the first has written nothing yet."""
    path = tmp_path / "evidence.jsonl"
    with Store(path) as first:
        with pytest.raises(UsageError, match=r"another run(, process \d+,)? writes .*evidence.jsonl"):
            Store(path)
        first.append(samples.run())
    assert len(read(path).runs) == 1


@contextlib.contextmanager
def within(seconds):
    """The test fails, instead of hanging, if its body takes longer."""

    def late(number, frame):
        raise TimeoutError(f"not within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
