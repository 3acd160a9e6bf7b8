"""The wire by itself: frames in pieces, and the end of the stream."""

from __future__ import annotations

import enum
import math
import pickle
import random
import socket
import struct
import time
from collections.abc import Iterator

import msgpack
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


class Colour(str, enum.Enum):
    RED = "red"


PLAIN = [
    None,
    True,
    -1,
    2**63,
    2**64,
    -(2**63) - 1,
    2**8000,
    1.5,
    math.inf,
    "é, and a lone surrogate: \ud800",
    b"\x00\xff",
    (),
    [()],
    ((), [], {}),
    [1, (2, (3, [4]))],
    {1: "a", None: [2], b"k": (3,), 2.5: {}, "text": {True: 2**70}},
]


@pytest.mark.parametrize("message", PLAIN, ids=lambda message: repr(message)[:30])
def test_plain_data_arrives_as_it_was_sent(message: object) -> None:
    received = wire.decode(wire.encode(message)[8:])
    assert received == message and type(received) is type(message)


def test_a_subclass_arrives_as_its_base_type() -> None:
    received = wire.decode(wire.encode([Colour.RED, float("nan")])[8:])
    assert received[0] == "red" and type(received[0]) is str
    assert math.isnan(received[1])


@pytest.mark.parametrize("message", [{1, 2}, object(), [range(3)], msgpack.ExtType(5, b""), msgpack.Timestamp(1)])
def test_what_is_not_plain_data_is_not_sent(message: object) -> None:
    with pytest.raises(TypeError, match="cannot be sent between processes: send None, bool"):
        wire.encode(message)


def nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


def circle() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


def doubling() -> list[object]:
    """2 ** 60 elements, if each is counted; a few hundred bytes."""
    value: list[object] = [0]
    for _ in range(60):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (bytes(wire.FRAME_LIMIT), r"a message of 33,554,437 bytes: at most 33,554,432 can be sent"),
        ([None] * (1 << 20), "more than 1,048,576 elements"),
        (doubling(), "more than 1,048,576 elements"),
        (nested(64), "more than 64 levels"),
        (circle(), "more than 64 levels"),
        (2**9000, "an int of 9,001 bits"),
        ({(1, 2): 3}, "a key of type tuple"),
        ({2**70: 3}, "more than 64 bits as a key"),
    ],
    ids=["bytes", "elements", "shared elements", "levels", "circle", "int", "key", "int key"],
)
def test_what_the_other_end_would_not_read_is_not_sent(message: object, reason: str) -> None:
    with pytest.raises(wire.FrameError, match=reason):
        wire.encode(message)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (pickle.dumps([1]), "cannot be decoded"),
        (b"", "cannot be decoded"),
        (b"\xc1", "cannot be decoded"),
        (b"\x91" * 200 + b"\xc0", "more than 64 levels"),
        (b"\x91" * 5000 + b"\xc0", "cannot be decoded"),
        (b"\xdd\xff\xff\xff\xff", "cannot be decoded"),
        (b"\x92" + 2 * (b"\xdd\x00\x09\x00\x00" + bytes(9 << 16)), "more than 1,048,576 elements"),
        (msgpack.packb(msgpack.ExtType(7, b"x")), r"unknown extension \(7, 1 bytes\)"),
        (msgpack.packb(msgpack.ExtType(1, bytes(2000))), r"unknown extension \(1, 2,000 bytes\)"),
        (msgpack.packb(msgpack.Timestamp(1)), r"unknown extension \(Timestamp\)"),
        (msgpack.packb([0, msgpack.ExtType(2, b"")]), r"unknown extension \(ExtType\)"),
        (b"\x81\x92\xd4\x02\x00\x01\x01", "unknown extension"),
        (b"\x81\x80\x01", "a key of type dict"),
    ],
    ids=lambda value: value[:12].hex() if isinstance(value, bytes) else "",
)
def test_what_no_end_sends_is_not_read(body: bytes, reason: str) -> None:
    with pytest.raises(wire.FrameError, match=reason):
        wire.decode(body)


def test_no_bytes_raise_anything_else() -> None:
    """Random bytes, and a real frame with three bytes replaced."""
    source = random.Random(1)
    frame = wire.encode([(1, 2.0, {"a": [b"x", 2**70]}), "text", None])[8:]
    refused = 0
    for _ in range(5000):
        broken = bytearray(frame)
        for _ in range(3):
            broken[source.randrange(len(broken))] = source.randrange(256)
        for body in (bytes(broken), source.randbytes(source.randrange(1, 30))):
            try:
                wire.decode(body)
            except wire.FrameError:
                refused += 1
    assert refused > 5000


def test_the_length_of_a_frame_is_checked_before_it_is_read(pair: tuple[socket.socket, socket.socket]) -> None:
    one, two = pair
    two.setblocking(False)
    inbox = wire.Inbox(two, limit=100)
    one.send(struct.pack("<Q", 101))
    with pytest.raises(wire.FrameError, match="a frame of 101 bytes; at most 100 are read"):
        inbox.take()
    two.setblocking(True)
    one.send(struct.pack("<Q", 101))
    with pytest.raises(wire.FrameError, match="a frame of 101 bytes; at most 100 are read"):
        wire.receive(two, limit=100)


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
