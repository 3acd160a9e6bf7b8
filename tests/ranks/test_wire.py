"""The wire by itself: frames in pieces, strangers, and the end of the stream."""

from __future__ import annotations

import os
import socket
import struct
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


def _call_listener(listener: wire.Listener, body: bytes) -> tuple[socket.socket, object]:
    caller = socket.socket(socket.AF_UNIX)
    caller.connect("\0" + listener.address)
    caller.sendall(struct.pack("<Q", len(body)) + body)
    return caller, listener.accept(patience=0.05)


def test_only_callers_with_the_token_are_let_in() -> None:
    listener = wire.Listener(4)
    try:
        strangers = [
            b"wrong 0",
            listener.token[:-1].encode() + b" 0",
            listener.token.encode(),
            b"\xff\xfe",
            listener.token.encode() + b" many",
        ]
        for body in strangers:
            caller, accepted = _call_listener(listener, body)
            with caller:
                assert accepted is None, body
                assert caller.recv(1) == b"", "and the door is shut"
        # One that promises more than it sends holds nobody up.
        caller = socket.socket(socket.AF_UNIX)
        with caller:
            caller.connect("\0" + listener.address)
            caller.sendall(struct.pack("<Q", 1 << 40))
            assert listener.accept(patience=0.05) is None
        with wire.connect(listener.address, listener.token, 3) as ours:
            accepted = listener.accept()
            assert accepted is not None
            connection, rank, pid = accepted
            assert (rank, pid) == (3, os.getpid())
            with connection:
                wire.send(connection, "welcome")
                assert wire.receive(ours) == "welcome"
    finally:
        listener.close()


def test_nothing_of_the_wire_is_in_the_file_system() -> None:
    listener = wire.Listener(1)
    try:
        assert listener.socket.getsockname()[0] == 0, "an abstract address"
    finally:
        listener.close()
