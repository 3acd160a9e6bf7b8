"""Joining of ranks: over a channel without an address, on which no message can extend the limit of a start."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.ranks import joining, output, wire
from harness.ranks.generation import Generation

LIMIT = 60
"""Seconds that a start with a limit of 0.5 s may take on a loaded machine; without a limit it would not end."""


@pytest.fixture
def door() -> Iterator[joining.Door]:
    door = joining.Door(2)
    yield door
    door.close()


def test_a_rank_joins_with_a_connection_of_its_own(door: joining.Door) -> None:
    with joining.join(os.dup(door.channel.fileno()), 1) as ours:
        joined = door.take()
        assert joined is not None
        assert (joined.rank, joined.pid) == (1, os.getpid())
        assert door.missing == {0}
        with joined.connection as theirs:
            wire.send(theirs, "welcome")
            assert wire.receive(ours) == "welcome"


def test_nothing_has_an_address(door: joining.Door) -> None:
    with joining.join(os.dup(door.channel.fileno()), 1) as ours:
        joined = door.take()
        assert joined is not None
        with joined.connection as theirs:
            assert [each.getsockname() for each in (door.channel, ours, theirs)] == ["", "", ""]


def test_what_is_not_a_rank_is_dropped(door: joining.Door, caplog: pytest.LogCaptureFixture) -> None:
    before = len(os.listdir("/proc/self/fd"))
    one, two = socket.socketpair()
    datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    read, write = os.pipe()
    with one, two, datagram:
        for data, descriptors in [
            (b"0", []),
            (b"0", [read]),
            (b"0", [datagram.fileno()]),
            (b"0", [one.fileno(), two.fileno()]),
            (b"2", [one.fileno()]),
            (b"-1", [one.fileno()]),
            (b"zero", [one.fileno()]),
            (b"\xff", [one.fileno()]),
            (b"0" * 1000, [one.fileno()]),
        ]:
            socket.send_fds(door.channel, [data], descriptors)
            assert door.take() is None, data
        with pytest.raises(BlockingIOError):
            door.take()
    os.close(read)
    os.close(write)
    assert door.missing == {0, 1}
    assert len(caplog.records) == 9
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_rank_joins_once(door: joining.Door) -> None:
    for _ in range(2):
        joining.join(os.dup(door.channel.fileno()), 0).close()
    first, second = door.take(), door.take()
    assert first is not None
    first.connection.close()
    assert second is None


def test_a_connection_of_another_user_is_dropped(door: joining.Door, monkeypatch: pytest.MonkeyPatch) -> None:
    joining.join(os.dup(door.channel.fileno()), 0).close()
    myself = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: myself + 1)
    assert door.take() is None
    assert door.missing == {0, 1}


def test_the_end_of_all_ranks_is_the_end_of_the_channel(door: joining.Door) -> None:
    door.channel.close()
    with pytest.raises(EOFError):
        door.take()


class Flooding:
    """A keeper that starts no ranks: what it starts sends as many messages as the channel takes, and goes on."""

    def __init__(self, message: bytes) -> None:
        self.connection, self._other = socket.socketpair()
        self.outputs = output.Watch()
        self._message = message
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self.sent = 0

    def start(self, spec: Any, log: int, channel: int) -> int:
        self._thread = threading.Thread(target=self._flood, args=(socket.socket(fileno=os.dup(channel)),))
        self._thread.start()
        return os.getpid()

    def _flood(self, channel: socket.socket) -> None:
        one, two = socket.socketpair()
        with channel, one, two:
            channel.settimeout(0.05)
            while not self._done.is_set():
                try:
                    socket.send_fds(channel, [self._message], [one.fileno()])
                    self.sent += 1
                except (TimeoutError, BrokenPipeError):
                    continue

    def end_group(self, ranks: tuple[int, ...], grace: float) -> None:
        self._done.set()
        assert self._thread is not None
        self._thread.join()
        self.connection.close()
        self._other.close()


@pytest.mark.parametrize("message", [b"7", b"nonsense"])
def test_a_flood_of_messages_does_not_stretch_the_limit_of_a_start(message: bytes) -> None:
    keeper: Any = Flooding(message)
    begin = time.monotonic()
    with pytest.raises(HarnessError, match=r"ranks \[0, 1\] did not start within 0.5 s"):
        Generation(
            keeper,
            2,
            None,
            {},
            start="fork",
            network="private",
            environment={},
            start_timeout=0.5,
            failure_grace=1.0,
            end_grace=0.0,
        )
    assert time.monotonic() - begin < LIMIT
    assert keeper.sent > 100


def test_the_standard_input_of_a_fresh_interpreter_is_empty_after_it_has_joined(door: joining.Door) -> None:
    child = os.fork()
    if child == 0:
        os.dup2(door.channel.fileno(), 0)
        joining.join(0, 1)
        os._exit(0 if os.read(0, 1) == b"" and os.readlink("/proc/self/fd/0") == os.devnull else 1)
    assert os.waitpid(child, 0)[1] == 0
    joined = door.take()
    assert isinstance(joined, joining.Joined)
    joined.connection.close()
    assert joined.pid == child
