"""The wire by itself: frames in pieces, and the end of the stream."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from harness.ranks import wire


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, two = socket.socketpair()
    with one, two:
        yield one, two


def test_messages_arrive_whole_and_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    one, two = pair
    for message in ({"a": 1}, b"", "x" * 1000):
        wire.send(one, message)
    assert [wire.receive(two) for _ in range(3)] == [{"a": 1}, b"", "x" * 1000]


def test_an_inbox_puts_pieces_together(pair: tuple[socket.socket, socket.socket]) -> None:
    one, two = pair
    two.setblocking(False)
    inbox = wire.Inbox(two)
    frames = wire.encode("first") + wire.encode(list(range(5)))
    seen = []
    for byte in frames:
        one.send(bytes([byte]))
        seen += inbox.take()
    assert seen == ["first", [0, 1, 2, 3, 4]]
    assert inbox.take() == []


def test_what_came_before_the_end_is_not_lost(pair: tuple[socket.socket, socket.socket]) -> None:
    one, two = pair
    two.setblocking(False)
    inbox = wire.Inbox(two)
    wire.send(one, "last words")
    one.close()
    assert inbox.take() == ["last words"]
    with pytest.raises(wire.WireClosedError):
        inbox.take()


def test_half_a_frame_is_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    one, two = pair
    one.send(wire.encode("cut")[:-1])
    one.close()
    with pytest.raises(wire.WireClosedError):
        wire.receive(two)


def test_sending_to_one_that_does_not_read_is_bounded(pair: tuple[socket.socket, socket.socket]) -> None:
    one, _ = pair
    one.setblocking(False)
    assert not wire.send_within(one, bytes(50_000_000), time.monotonic() + 0.05)
