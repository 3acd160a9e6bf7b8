"""The wire between controller and ranks: length-prefixed data over pairs of Unix sockets, see ``joining``.

The sockets have no address. The library under test runs in the ranks' processes, so the controller does not trust what
they send: a frame is plain data, decoding it runs no code of the sender, and its size is checked before it is read.

A frame is 8 bytes of length (little endian) and msgpack. Each end has at most one request in progress. These types
arrive as they were sent: None, bool, int (up to 8,192 bits), float, str (lone surrogates too), bytes, list, tuple, and
dict with keys of type None, bool, int of 64 bits, float, str or bytes. Instances of subclasses arrive as their base
type. The caller has to convert other values (a tensor, a dataclass, a set).
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterable
from typing import Any

import msgpack

FRAME_LIMIT = 1 << 25
"""Bytes of the longest frame that is sent or read."""

MESSAGE_LIMIT = 1 << 20
"""Bytes of the longest frame between the controller and the keeper, which carries no results."""

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 16

# Bounds on the memory that a decoded frame takes: objects take up to a hundred times the bytes of the frame.
_ELEMENT_LIMIT = 1 << 20
_DEPTH_LIMIT = 64
# Bytes of an int. Python refuses to print an int of more than 4,300 digits.
_INT_LIMIT = 1 << 10

_BIG_INT, _TUPLE = 1, 2
_TUPLE_MARK = msgpack.ExtType(_TUPLE, b"")
"""The first element of an array that arrives as a tuple."""
_SCALARS = frozenset((type(None), bool, int, float, str, bytes))
_ONLY_TEXT = frozenset((str,))
_TYPES = _SCALARS | {list, tuple, dict}
_OWN_TYPES = frozenset((msgpack.ExtType, msgpack.Timestamp))
"""Types that msgpack would encode by itself and that ``decode`` refuses."""


class WireClosedError(Exception):
    """The other end closed the connection."""


class FrameError(ValueError):
    """A frame that is not sent or not read: too long, nested too deeply, or invalid. The text states the reason."""


def encode(message: Any, limit: int = FRAME_LIMIT) -> bytes:
    """Return the frame of ``message``.

    Raises TypeError, naming the type, for a value that is not plain data, and FrameError for a message that the other
    end would not read: longer than ``limit`` bytes, or nested too deeply.
    """
    for kind in _types_in(message, check_keys=True) & _OWN_TYPES:
        raise _unsendable(kind)
    body: bytes = msgpack.packb(
        message, default=_converted, strict_types=True, unicode_errors="surrogatepass", buf_size=_CHUNK
    )
    if len(body) > limit:
        raise FrameError(f"a message of {len(body):,} bytes: at most {limit:,} can be sent")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Any:
    """Return the message in a frame's ``body``. Raises FrameError for data that ``encode`` would not have sent."""
    elements = 0

    def count(more: int) -> None:
        nonlocal elements
        elements += more
        if elements > _ELEMENT_LIMIT:
            raise FrameError(f"a frame of more than {_ELEMENT_LIMIT:,} elements")

    def array(values: list[Any]) -> Any:
        if values and values[0] is _TUPLE_MARK:
            values = tuple(values[1:])  # type: ignore[assignment]
        count(len(values))
        return values

    def mapping(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        count(len(pairs))
        _check_keys([key for key, _ in pairs])
        return dict(pairs)

    longest = min(len(body), _ELEMENT_LIMIT + 1)
    try:
        message = msgpack.unpackb(
            body,
            list_hook=array,
            object_pairs_hook=mapping,
            ext_hook=_extension,
            strict_map_key=False,
            unicode_errors="surrogatepass",
            max_array_len=longest,
            max_map_len=longest,
        )
    except FrameError:
        raise
    except (ValueError, TypeError, OverflowError) as error:
        raise FrameError(f"a frame that cannot be decoded ({type(error).__name__}: {error})") from error
    if strange := _types_in(message, check_keys=False) - _TYPES:
        raise FrameError(f"a frame with an unknown extension ({min(kind.__name__ for kind in strange)})")
    return message


def send(connection: socket.socket, message: Any) -> None:
    """Send one message; blocks until the kernel has taken it, or the socket's timeout passes."""
    connection.sendall(encode(message))


def send_within(connection: socket.socket, frame: bytes, limit: float) -> bool:
    """Send a frame over a non-blocking socket until the time ``limit`` (monotonic); return whether all was sent."""
    view = memoryview(frame)
    while view:
        try:
            view = view[connection.send(view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(connection, select.POLLOUT)
            if not poll.poll(max(0.0, limit - time.monotonic()) * 1000):
                return False
    return True


def receive_bytes(connection: socket.socket, limit: int = FRAME_LIMIT) -> bytes:
    """Return the body of the next frame, not decoded; blocks.

    Raises WireClosedError at the end of the stream, and FrameError for a frame longer than ``limit`` bytes, of which
    only the length is read.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    _check_length(length, limit)
    return _exactly(connection, length)


def receive(connection: socket.socket, limit: int = FRAME_LIMIT) -> Any:
    """Return the next message; blocks.

    Raises WireClosedError at the end of the stream, FrameError for an invalid frame.
    """
    return decode(receive_bytes(connection, limit))


class Inbox:
    """Collects frames from a non-blocking socket that a poll reported as readable. Holds little more than one frame."""

    def __init__(self, connection: socket.socket, limit: int = FRAME_LIMIT) -> None:
        self._connection = connection
        self._limit = limit
        self._data = bytearray()

    def take(self) -> list[Any]:
        """Return the messages that are complete by now.

        Raises WireClosedError at the end of the stream when no message is left, and FrameError for an invalid frame or
        one that is too long: the rest of the stream can then not be read.
        """
        messages: list[Any] = []
        ended = False
        while not messages:
            try:
                chunk = self._connection.recv(_CHUNK)
            except BlockingIOError:
                break
            except ConnectionError:
                chunk = b""
            if not chunk:
                ended = True
                break
            self._data += chunk
            messages = self._complete()
            if len(chunk) < _CHUNK:
                break
        if ended and not messages:
            raise WireClosedError("the stream ended")
        return messages

    def _complete(self) -> list[Any]:
        messages = []
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            _check_length(length, self._limit)
            end = _LENGTH.size + length
            if len(self._data) < end:
                break
            messages.append(decode(memoryview(self._data)[_LENGTH.size : end].tobytes()))
            del self._data[:end]
        return messages


def send_descriptors(connection: socket.socket, descriptors: list[int]) -> None:
    """Send open descriptors to the other end; exactly one ``receive_descriptors`` must receive them."""
    socket.send_fds(connection, [b"d"], descriptors)


def receive_descriptors(connection: socket.socket, count: int) -> list[int]:
    """Receive the descriptors that the other end sent. Raises WireClosedError if it has closed the connection."""
    data, descriptors, _, _ = socket.recv_fds(connection, 1, count)
    if not data:
        raise WireClosedError("the stream ended before the descriptors came")
    return list(descriptors)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            data = connection.recv(min(count - len(parts), 1 << 20))
        except ConnectionError as error:
            raise WireClosedError("the stream broke") from error
        if not data:
            raise WireClosedError("the stream ended")
        parts += data
    return bytes(parts)


def _check_length(length: int, limit: int) -> None:
    if length > limit:
        raise FrameError(f"a frame of {length:,} bytes; at most {limit:,} are read")


def _converted(value: Any) -> Any:
    """Return a value that msgpack can write in place of ``value``, whose type it does not support."""
    if isinstance(value, tuple):
        return [_TUPLE_MARK, *value]
    if type(value) is int:
        size = value.bit_length() // 8 + 1
        if size > _INT_LIMIT:
            raise FrameError(f"an int of {value.bit_length():,} bits: at most {8 * _INT_LIMIT - 1:,} can be sent")
        return msgpack.ExtType(_BIG_INT, value.to_bytes(size, "little", signed=True))
    bases: tuple[Any, ...] = (int, float, bytes, list, dict)
    for base in bases:
        if isinstance(value, base):
            return base(value)
    if isinstance(value, str):
        return str.__str__(value)  # an enumeration's own __str__ returns other text
    raise _unsendable(type(value))


def _unsendable(kind: type) -> TypeError:
    name = f"{kind.__module__}.{kind.__qualname__}"
    return TypeError(
        f"a {name} cannot be sent between processes: send None, bool, int, float, str, bytes, list, tuple or dict"
    )


def _extension(code: int, data: bytes) -> Any:
    if code == _TUPLE and not data:
        return _TUPLE_MARK
    if code == _BIG_INT and len(data) <= _INT_LIMIT:
        return int.from_bytes(data, "little", signed=True)
    raise FrameError(f"a frame with an unknown extension ({code}, {len(data):,} bytes)")


def _check_keys(keys: Iterable[Any]) -> None:
    """Raise FrameError for keys that a sender could choose so that a dict of them takes quadratic time."""
    kinds = set(map(type, keys))
    if kinds == _ONLY_TEXT:
        return
    for kind in kinds - _SCALARS:
        raise FrameError(
            f"a dict with a key of type {kind.__name__}; keys can be None, bool, int, float, str and bytes"
        )
    if int in kinds and any(type(key) is int and key.bit_length() > 64 for key in keys):
        raise FrameError("a dict with an int of more than 64 bits as a key")


def _types_in(message: Any, check_keys: bool) -> set[type]:
    """Return the types in ``message``, without those of keys. Raises FrameError for too many levels or elements."""
    types: set[type] = set()
    level, count = [message], 1
    for _ in range(_DEPTH_LIMIT):
        kinds = set(map(type, level))
        types |= kinds
        if kinds <= _SCALARS:
            return types
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                if check_keys:
                    _check_keys(value)
                below += value.values()
            elif isinstance(value, (list, tuple)):
                below += value
            if len(below) > _ELEMENT_LIMIT:
                break
        level, count = below, count + len(below)
        if count > _ELEMENT_LIMIT:
            raise FrameError(f"a message of more than {_ELEMENT_LIMIT:,} elements")
    raise FrameError(f"a message of more than {_DEPTH_LIMIT} levels of lists and dicts")
